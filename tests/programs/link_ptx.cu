// cuLink with texts of PTX: what they use of each other, what the error log says when something is missing, there twice
// or no PTX, and a file.
#include <cstdio>
#include <cstring>
#include <cuda.h>
#include <unistd.h>

#include "check.h"

#define HEADER ".version 7.0\n.target sm_75\n.address_size 64\n"

static const char user[] =
    HEADER ".extern .func (.param .b32 r) triple(.param .b32 a);\n.extern .global .u32 offset;\n"
           ".global .u32 own = 7;\n"
           ".visible .entry k(.param .u64 k_out) {\n  .reg .b64 %x; .reg .b32 %r; .reg .b32 %s;\n"
           "  ld.param.u64 %x, [k_out]; mov.b32 %r, 5;\n"
           "  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r; call (b), triple, (a); ld.param.b32 %r, [b]; }\n"
           "  ld.global.u32 %s, [offset]; add.u32 %r, %r, %s; ld.global.u32 %s, [own]; add.u32 %r, %r, %s;\n"
           "  st.global.u32 [%x], %r; ret;\n}\n";
static const char maker[] =
    HEADER ".visible .global .u32 offset = 100;\n.global .u32 own = 1000;\n"
           ".visible .func (.param .b32 r) triple(.param .b32 a) {\n  .reg .b32 %r; .reg .b32 %s;\n"
           "  ld.param.b32 %r, [a]; mul.lo.u32 %r, %r, 3; ld.global.u32 %s, [own]; add.u32 %r, %r, %s;\n"
           "  st.param.b32 [r], %r; ret;\n}\n";

static char info[8192], errors[8192];
static CUlinkState link_state;

static const char *name_of(CUresult result)
{
    const char *name = "?";
    cuGetErrorName(result, &name);
    return name;
}

// The array of values stays: the driver writes the lengths of the logs there.
static void **create()
{
    static CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                                     CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                                     CU_JIT_WALL_TIME,        CU_JIT_OPTIMIZATION_LEVEL};
    static void *values[6];
    void *start[] = {info, (void *)sizeof(info), errors, (void *)sizeof(errors), nullptr, (void *)4};
    memcpy(values, start, sizeof(values));
    memset(errors, 'x', sizeof(errors));
    printf("create %s\n", name_of(cuLinkCreate(6, options, values, &link_state)));
    return values;
}

static CUresult add(const char *text)
{
    return cuLinkAddData(link_state, CU_JIT_INPUT_PTX, (void *)text, strlen(text) + 1, "text", 0, nullptr, nullptr);
}

static void failing(const char *what, const char *first, const char *second)
{
    void **values = create(), *image = nullptr;
    size_t bytes = 0;
    CUresult results[] = {add(first), second ? add(second) : CUDA_SUCCESS, cuLinkComplete(link_state, &image, &bytes)};
    bool is_told = strlen(errors) > 0 && (size_t)values[3] == strlen(errors);
    printf("%s: %s %s %s, error log %s\n", what, name_of(results[0]), name_of(results[1]), name_of(results[2]),
           is_told ? "filled" : "wrong");
    printf("destroy %s\n", name_of(cuLinkDestroy(link_state)));
}

static bool runs(void *image)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr out;
    unsigned value = 0;
    void *arguments[] = {&out};
    if (cuModuleLoadData(&module, image) || cuModuleGetFunction(&function, module, "k") || cuMemAlloc(&out, 4) ||
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr) || cuMemcpyDtoH(&value, out, 4)) {
        return false;
    }
    printf("kernel wrote %u\n", value);
    return value == 3 * 5 + 1000 + 100 + 7;
}

static bool succeeding()
{
    char path[] = "/tmp/link_ptx.XXXXXX";
    int file = mkstemp(path);
    void **values = create(), *image = nullptr;
    size_t bytes = 0;
    bool is_right = file >= 0 && write(file, maker, strlen(maker)) == (ssize_t)strlen(maker);
    is_right = is_right && add(user) == CUDA_SUCCESS &&
               cuLinkAddFile(link_state, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr) == CUDA_SUCCESS &&
               cuLinkComplete(link_state, &image, &bytes) == CUDA_SUCCESS && bytes > 0 && values[3] == nullptr;
    unlink(path);
    is_right = is_right && runs(image);
    printf("again %s\n", name_of(cuLinkComplete(link_state, &image, &bytes)));
    printf("more %s\n", name_of(add(user)));
    printf("destroy %s\n", name_of(cuLinkDestroy(link_state)));
    return is_right;
}

int main()
{
    CHECK(cudaFree(nullptr));
    failing("undefined", user, nullptr);
    failing("twice", maker, maker);
    failing("no PTX", "rubbish", nullptr);
    failing("bad syntax", HEADER ".visible .entry k( {", nullptr);
    create();
    printf("no file %s\n", name_of(cuLinkAddFile(link_state, CU_JIT_INPUT_PTX, "/no/such/file", 0, nullptr, nullptr)));
    printf("nothing %s\n", name_of(cuLinkAddData(link_state, CU_JIT_INPUT_PTX, nullptr, 4, "", 0, nullptr, nullptr)));
    cuLinkDestroy(link_state);
    return verdict(succeeding());
}
