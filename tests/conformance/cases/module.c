/* Modules: how they are loaded, what is in them. */
#include <unistd.h>

#include "case.h"

static const char broken_ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry broken() { nonsense; }\n";
static const char newer_ptx[] = ".version 8.0\n.target sm_999\n.address_size 64\n.visible .entry newer() { ret; }\n";
static const char small_ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry small() { ret; }\n";

static const char managed_ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .global .attribute(.managed) .align 4 .u32 shared[4] = {1, 2, 3, 4};\n"
    ".visible .global .align 4 .u32 own[4] = {5, 6, 7, 8};\n"
    ".visible .entry grow()\n{\n    .reg .u32 %r<3>;\n    ld.global.u32 %r1, [shared+8];\n"
    "    add.u32 %r2, %r1, 100;\n    st.global.u32 [shared+8], %r2;\n    ret;\n}\n";

CASE(module_load_text)
{
    CUmodule module = NULL;
    CUfunction function = NULL;

    DO(cuModuleLoadData, &module, kernels_ptx);
    DO(cuModuleGetFunction, &function, module, "fill");
    DO(cuModuleUnload, module);
}

CASE(module_load_bad_images)
{
    static const char nothing[64] = "";
    CUmodule module = NULL;

    DO(cuModuleLoadData, &module, "this is no image at all");
    DO(cuModuleLoadData, &module, nothing);
    DO(cuModuleLoadData, &module, broken_ptx);
    DO(cuModuleLoadData, &module, newer_ptx);
    DO(cuModuleLoadData, &module, NULL);
    DO(cuModuleLoadData, NULL, small_ptx);
}

CASE(module_load_with_options)
{
    char info[2000] = "", errors[2000] = "";
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_LOG_VERBOSE,      CU_JIT_OPTIMIZATION_LEVEL,
                              CU_JIT_MAX_REGISTERS,    CU_JIT_TARGET_FROM_CUCONTEXT};
    void *values[] = {info,      (void *)sizeof(info), errors, (void *)sizeof(errors), (void *)1,
                      (void *)4, (void *)64,           NULL};
    CUmodule module = NULL;

    DO(cuModuleLoadDataEx, &module, kernels_ptx, 8, options, values);
    say_number("no errors", strlen(errors));
    values[1] = (void *)sizeof(info);
    values[3] = (void *)sizeof(errors);
    DO(cuModuleLoadDataEx, &module, small_ptx, 0, NULL, NULL);
    DO(cuModuleLoadDataEx, &module, small_ptx, 4, options, values);
    values[1] = (void *)sizeof(info);
    values[3] = (void *)sizeof(errors);
    DO(cuModuleLoadDataEx, &module, broken_ptx, 8, options, values);
    say_number("there are words on the error", strlen(errors) > 0);
    say_number("their size is given back", (size_t)values[3] > 0 && (size_t)values[3] <= sizeof(errors));
    errors[0] = 'x';
    values[3] = (void *)8;
    DO(cuModuleLoadDataEx, &module, broken_ptx, 8, options, values);
    say_number("cut to what there is room for", strnlen(errors, 9) <= 8);
}

CASE(module_load_with_bad_options)
{
    CUjit_option unknown[] = {(CUjit_option)12345};
    CUjit_option level[] = {CU_JIT_OPTIMIZATION_LEVEL};
    void *values[] = {(void *)99};
    CUmodule module = NULL;

    DO(cuModuleLoadDataEx, &module, small_ptx, 1, unknown, values);
    DO(cuModuleLoadDataEx, &module, small_ptx, 1, NULL, values);
    DO(cuModuleLoadDataEx, &module, small_ptx, 1, level, NULL);
}

CASE(module_load_file)
{
    char path[] = "/tmp/fairgv-conformance-XXXXXX";
    int file = mkstemp(path);
    CUmodule module = NULL;
    CUfunction function = NULL;

    if (file < 0 || write(file, small_ptx, sizeof(small_ptx)) != sizeof(small_ptx)) {
        end_case("no temporary file");
    }
    close(file);
    say("load", CU(cuModuleLoad)(&module, path));
    DO(cuModuleGetFunction, &function, module, "small");
    DO(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    DO(cuCtxSynchronize);
    unlink(path);
    DO(cuModuleLoad, &module, "/no/such/file.ptx");
    DO(cuModuleLoad, &module, "/tmp");
    DO(cuModuleLoad, &module, NULL);
}

CASE(module_functions_by_name)
{
    CUfunction function = NULL, again = NULL;
    CUmodule module = module_of_kernels();

    DO(cuModuleGetFunction, &function, module, "fill");
    DO(cuModuleGetFunction, &again, module, "fill");
    say_number("the same", function == again);
    DO(cuModuleGetFunction, &function, module, "no_such_kernel");
    DO(cuModuleGetFunction, &function, module, "counter");
    DO(cuModuleGetFunction, &function, module, "");
    DO(cuModuleGetFunction, &function, module, NULL);
    DO(cuModuleGetFunction, NULL, module, "fill");
    DO(cuModuleGetFunction, &function, NULL, "fill");
}

CASE(module_globals)
{
    CUmodule module = module_of_kernels();
    CUdeviceptr counter = 0, table = 0, coefficients = 0, out = device_bytes(64, 0);
    size_t size = 0;
    void *parameters[] = {&out};
    unsigned int values[4] = {10, 20, 30, 40};

    DO(cuModuleGetGlobal, &counter, &size, module, "counter");
    say_number("size of counter", (long long)size);
    say_device_bytes("counter", counter, 4);
    DO(cuModuleGetGlobal, &table, &size, module, "table");
    say_number("size of table", (long long)size);
    say_device_bytes("table", table, size);
    DO(cuModuleGetGlobal, &coefficients, &size, module, "coefficients");
    say_number("size of coefficients", (long long)size);
    say_device_bytes("coefficients", coefficients, size);
    say("use", launch("use_globals", 1, 32, NULL, parameters));
    say_device_bytes("used", out, 64);
    DO(cuMemcpyHtoD, coefficients, values, sizeof(values));
    DO(cuMemcpyHtoD, table + 16, values, sizeof(values));
    say("use", launch("use_globals", 1, 32, NULL, parameters));
    say_device_bytes("used", out, 64);
    say_device_bytes("counter", counter, 4);
}

CASE(module_globals_wrongly)
{
    CUmodule module = module_of_kernels();
    CUdeviceptr address = 0;
    size_t size = 0;

    DO(cuModuleGetGlobal, &address, &size, module, "no_such_global");
    DO(cuModuleGetGlobal, &address, &size, module, "fill");
    DO(cuModuleGetGlobal, &address, NULL, module, "counter");
    DO(cuModuleGetGlobal, NULL, &size, module, "counter");
    DO(cuModuleGetGlobal, NULL, NULL, module, "counter");
    DO(cuModuleGetGlobal, &address, &size, module, NULL);
    DO(cuModuleGetGlobal, &address, &size, NULL, "counter");
}

CASE(module_globals_as_memory)
{
    CUdeviceptr table = 0, base = 0;
    size_t size = 0;
    unsigned int type = 99;

    MUST(cuModuleGetGlobal, &table, &size, module_of_kernels(), "table");
    DO(cuMemGetAddressRange, &base, &size, table);
    DO(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, table);
    say_number("type", type);
    DO(cuMemsetD32, table, 9, 16);
    say_device_bytes("set", table, 64);
    DO(cuMemFree, table);
}

CASE(module_twice_has_its_own_globals)
{
    CUmodule module = module_of_kernels(), other = NULL;
    CUdeviceptr one = 0, two = 0;

    DO(cuModuleLoadData, &other, kernels_ptx);
    MUST(cuModuleGetGlobal, &one, NULL, module, "counter");
    MUST(cuModuleGetGlobal, &two, NULL, other, "counter");
    say_number("another place", one != two);
    MUST(cuMemsetD32, one, 77, 1);
    say_device_bytes("one", one, 4);
    say_device_bytes("two", two, 4);
    DO(cuModuleUnload, other);
    say_device_bytes("one", one, 4);
}

CASE(module_enumerate_functions)
{
    CUfunction functions[64] = {NULL};
    unsigned int count = 0;

    DO(cuModuleGetFunctionCount, &count, module_of_kernels());
    say_number("count", count);
    DO(cuModuleEnumerateFunctions, functions, count, module_of_kernels());
    for (unsigned int i = 0; i < count && i < 64; i++) {
        const char *name = NULL;

        CU(cuFuncGetName)(&name, functions[i]);
        say_text(text("function %u", i), name ? name : "none");
    }
    DO(cuModuleEnumerateFunctions, functions, 3, module_of_kernels());
    DO(cuModuleEnumerateFunctions, functions, 0, module_of_kernels());
    DO(cuModuleEnumerateFunctions, NULL, 3, module_of_kernels());
}

CASE(module_loading_mode)
{
    CUmoduleLoadingMode mode = 77;

    DO(cuModuleGetLoadingMode, &mode);
    say_number("mode", mode);
    DO(cuModuleGetLoadingMode, NULL);
}

static void say_loaded(const char *label, CUmodule module)
{
    CUfunction functions[64];
    unsigned int count = 0, nr_loaded = 0;

    MUST(cuModuleGetFunctionCount, &count, module);
    MUST(cuModuleEnumerateFunctions, functions, count < 64 ? count : 64, module);
    for (unsigned int i = 0; i < count && i < 64; i++) {
        CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;

        CU(cuFuncIsLoaded)(&state, functions[i]);
        nr_loaded += state == CU_FUNCTION_LOADING_STATE_LOADED;
    }
    say_number(text("%s: functions", label), count);
    say_number(text("%s: loaded", label), nr_loaded);
}

/* CUDA_MODULE_LOADING is EAGER where cases run: all of a module is loaded with it, of a library in each context. */
CASE(module_loaded_eagerly)
{
    CUresult (*create)(CUcontext *, unsigned int, CUdevice) = symbol_find("cuCtxCreate_v2");
    CUlibrary library;
    CUmodule module;
    CUcontext other;

    say_loaded("module", module_of_kernels());
    MUST(cuLibraryLoadData, &library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0);
    MUST(cuLibraryGetModule, &module, library);
    say_loaded("library", module);
    must("context", create(&other, 0, 0));
    MUST(cuLibraryGetModule, &module, library);
    say_loaded("library in a later context", module);
    MUST(cuCtxDestroy, other);
    MUST(cuLibraryUnload, library);
}

BARE(module_loaded_lazily)
{
    CUmoduleLoadingMode mode = 77;
    CUcontext context;
    CUfunction function;

    setenv("CUDA_MODULE_LOADING", "LAZY", 1);
    DO(cuInit, 0);
    DO(cuModuleGetLoadingMode, &mode);
    say_number("mode", mode);
    MUST(cuDevicePrimaryCtxRetain, &context, 0);
    MUST(cuCtxSetCurrent, context);
    say_loaded("at first", module_of_kernels());
    MUST(cuModuleEnumerateFunctions, &function, 1, module_of_kernels());
    DO(cuFuncLoad, function);
    say_loaded("one", module_of_kernels());
}

ALONE(destroyed_module)
{
    CUmodule module = NULL;
    CUfunction function = NULL;

    MUST(cuModuleLoadData, &module, small_ptx);
    MUST(cuModuleUnload, module);
    DO(cuModuleGetFunction, &function, module, "small");
    DO(cuModuleUnload, module);
}

ALONE(destroyed_module_with_function)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    int value = 0;

    MUST(cuModuleLoadData, &module, small_ptx);
    MUST(cuModuleGetFunction, &function, module, "small");
    DO(cuModuleUnload, module);
    DO(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    DO(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
    DO(cuCtxSynchronize);
}

CASE(module_references)
{
    CUtexref texture = NULL;
    CUsurfref surface = NULL;

    DO(cuModuleGetTexRef, &texture, module_of_kernels(), "counter");
    DO(cuModuleGetSurfRef, &surface, module_of_kernels(), "counter");
}

CASE(module_link)
{
    CUlinkState link = NULL;

    DO(cuLinkCreate, 0, NULL, NULL, &link);
    if (link) {
        DO(cuLinkDestroy, link);
    }
}

CASE(module_managed_variable)
{
    CUmodule module = NULL;
    CUfunction grow = NULL;
    CUdeviceptr shared = 0, own = 0;
    size_t size = 0;
    int is_managed = 9;

    DO(cuModuleLoadData, &module, managed_ptx);
    DO(cuModuleGetFunction, &grow, module, "grow");
    DO(cuModuleGetGlobal, &own, &size, module, "own");
    DO(cuPointerGetAttribute, &is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, own);
    say_number("own is managed", is_managed);
    DO(cuModuleGetGlobal, &shared, &size, module, "shared");
    say_number("size", size);
    DO(cuPointerGetAttribute, &is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, shared);
    say_number("shared is managed", is_managed);
    for (int round = 0; round < 3; round++) {
        unsigned int *words = (unsigned int *)(uintptr_t)shared;
        words[0] += 10;
        DO(cuLaunchKernel, grow, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        DO(cuCtxSynchronize);
        say_bytes("words", words, 16);
    }
    const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    DO(cuMemAdvise, shared, size, CU_MEM_ADVISE_SET_READ_MOSTLY, device);
    DO(cuMemPrefetchAsync, shared, size, device, 0, NULL);
    DO(cuMemRangeGetAttribute, &is_managed, sizeof(is_managed), CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, shared, size);
    say_number("read mostly", is_managed);
    DO(cuMemAdvise, own, 4, CU_MEM_ADVISE_SET_READ_MOSTLY, device);
    DO(cuMemFree, shared);
    DO(cuModuleUnload, module);
}
