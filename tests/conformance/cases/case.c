/*
 * Runs cases: conformance-driver --list, or conformance-driver NAME... Cases of one process run one after the other;
 * what one printed stands between "== NAME" and "-- NAME".
 */
#include "case.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

static struct test_case *cases;
static jmp_buf case_over;
static CUmodule kernels;
static const char *volatile label_tried = "";

/* CONFORMANCE_SKIP holds the labels that crashed, one a line. */
bool is_tried(const char *label)
{
    const char *skipped = getenv("CONFORMANCE_SKIP");
    size_t length = strlen(label);

    label_tried = label;
    while (skipped && *skipped) {
        const char *end = strchrnul(skipped, '\n');

        if ((size_t)(end - skipped) == length && !memcmp(skipped, label, length)) {
            return false;
        }
        skipped = *end ? end + 1 : end;
    }
    return true;
}

/* Says which call it was; the process then ends as it would have. */
static void on_crash(int number)
{
    static const char word[] = ": crashes\n";

    signal(number, SIG_DFL);
    if (write(STDOUT_FILENO, label_tried, strlen(label_tried)) < 0 ||
        write(STDOUT_FILENO, word, sizeof(word) - 1) < 0) {
        return;
    }
}

void case_register(struct test_case *entry)
{
    entry->next = cases;
    cases = entry;
}

static CUresult absent(void)
{
    return ABSENT;
}

static void *library(void)
{
    static void *opened;

    if (!opened) {
        opened = dlopen("libcuda.so.1", RTLD_NOW);
    }
    if (!opened) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return opened;
}

/* Calling the stand-in with arguments that it does not take is harmless where the caller cleans up, as on x86-64. */
void *symbol_find(const char *name)
{
    void *found = dlsym(library(), name);

    return found ? found : (void *)absent;
}

const char *text(const char *format, ...)
{
    static _Thread_local char texts[16][256];
    static _Thread_local unsigned int next;
    char *buffer = texts[next++ % 16];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(buffer, sizeof(texts[0]), format, arguments);
    va_end(arguments);
    return buffer;
}

const char *result_name(CUresult result)
{
    const char *name = NULL;

    if (result == ABSENT) {
        return "absent";
    }
    if (result == CRASHES) {
        return "crashes";
    }
    CU(cuGetErrorName)(result, &name);
    return name ? name : text("error %d", (int)result);
}

CUresult say(const char *label, CUresult result)
{
    printf("%s: %s\n", label, result_name(result));
    return result;
}

void say_number(const char *label, long long value)
{
    printf("%s: %lld\n", label, value);
}

void say_text(const char *label, const char *value)
{
    printf("%s: %s\n", label, value);
}

/* FNV-1a */
static uint64_t digest(const uint8_t *memory, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ memory[i]) * 0x100000001b3;
    }
    return hash;
}

void say_bytes(const char *label, const void *memory, size_t bytes)
{
    printf("%s: %zu bytes %016llx\n", label, bytes, (unsigned long long)digest(memory, bytes));
}

void say_device_bytes(const char *label, CUdeviceptr memory, size_t bytes)
{
    uint8_t *copy = calloc(1, bytes);
    CUresult result = CU(cuMemcpyDtoH)(copy, memory, bytes);

    if (result == CUDA_SUCCESS) {
        say_bytes(label, copy, bytes);
    } else {
        say(label, result);
    }
    free(copy);
}

void end_case(const char *reason)
{
    printf("ended: %s\n", reason);
    longjmp(case_over, 1);
}

void must(const char *call, CUresult result)
{
    if (result != CUDA_SUCCESS) {
        end_case(text("%s gave %s", call, result_name(result)));
    }
}

void row(const char *label, CUresult result)
{
    CUresult later;

    say(label, result);
    later = CU(cuCtxSynchronize)();
    if (later != CUDA_SUCCESS) {
        say(text("%s, later", label), later);
    }
}

CUmodule module_of_kernels(void)
{
    if (!kernels) {
        MUST(cuModuleLoadData, &kernels, kernels_ptx);
    }
    return kernels;
}

CUfunction function_of(const char *name)
{
    CUfunction function;

    MUST(cuModuleGetFunction, &function, module_of_kernels(), name);
    return function;
}

CUresult launch(const char *name, unsigned int grid, unsigned int block, CUstream stream, void **parameters)
{
    return CU(cuLaunchKernel)(function_of(name), grid, 1, 1, block, 1, 1, 0, stream, parameters, NULL);
}

CUdeviceptr device_bytes(size_t bytes, uint8_t seed)
{
    uint8_t *host = malloc(bytes);
    CUdeviceptr memory;

    for (size_t i = 0; i < bytes; i++) {
        host[i] = (uint8_t)(seed + i * 7);
    }
    MUST(cuMemAlloc, &memory, bytes);
    MUST(cuMemcpyHtoD, memory, host, bytes);
    MUST(cuStreamSynchronize, NULL); /* the copy of pageable memory may still be on its way, for other streams */
    free(host);
    return memory;
}

CUresult fill(CUdeviceptr words, unsigned int value, unsigned int nr_words, CUstream stream)
{
    void *parameters[] = {&words, &value, &nr_words};

    return launch("fill", (nr_words + 127) / 128, 128, stream, parameters);
}

struct held hold(CUstream stream)
{
    const struct timespec nap = {.tv_nsec = 100000};
    struct held held;
    void *parameters[] = {&held.flags};

    MUST(cuMemHostAlloc, (void **)&held.flags, 64, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
    held.flags[0] = held.flags[1] = 0;
    must("launch of hold", launch("hold", 1, 1, stream, parameters));
    while (!held.flags[0]) {
        nanosleep(&nap, NULL);
    }
    return held;
}

void let_go(struct held held)
{
    held.flags[1] = 1;
}

static void context_begin(void)
{
    CUcontext context;

    must("cuInit", CU(cuInit)(0));
    MUST(cuDevicePrimaryCtxRetain, &context, 0);
    MUST(cuCtxSetCurrent, context);
    kernels = NULL;
}

/* Whatever the case left: no current context, no work, nothing in the primary context. */
static void context_end(void)
{
    CUcontext context;

    CU(cuCtxSynchronize)();
    while (CU(cuCtxPopCurrent)(&context) == CUDA_SUCCESS)
        ;
    CU(cuDevicePrimaryCtxReset)(0);
    while (CU(cuDevicePrimaryCtxRelease)(0) == CUDA_SUCCESS)
        ;
    CU(cuDevicePrimaryCtxSetFlags)(0, 0);
}

static int case_run(const char *name)
{
    struct test_case *entry = cases;

    while (entry && strcmp(entry->name, name) != 0) {
        entry = entry->next;
    }
    if (!entry) {
        fprintf(stderr, "no case %s\n", name);
        return 2;
    }
    printf("== %s\n", name);
    if (!setjmp(case_over)) {
        if (entry->kind != KIND_BARE) {
            context_begin();
        }
        entry->run();
    }
    if (entry->kind == KIND_CASE) {
        context_end();
    }
    printf("-- %s\n", name);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = {"CASE", "ALONE", "BARE"};

    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGSEGV, on_crash);
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (const struct test_case *entry = cases; entry; entry = entry->next) {
            printf("%s %s\n", kinds[entry->kind], entry->name);
        }
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        if (case_run(argv[i])) {
            return 2;
        }
    }
    return 0;
}
