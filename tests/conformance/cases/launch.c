/* Launches: shapes, shared memory, parameters, the extended forms. */
#include "case.h"

CASE(launch_shapes)
{
    static const unsigned int shapes[][6] = {{1, 1, 1, 1, 1, 1},    {7, 1, 1, 33, 1, 1}, {2, 3, 4, 5, 6, 7},
                                             {1, 1, 1, 1024, 1, 1}, {1, 1, 1, 1, 1, 64}, {1, 5, 9, 32, 4, 1}};
    CUdeviceptr out = 0;

    MUST(cuMemAlloc, &out, 1 << 16);
    for (unsigned int i = 0; i < 6; i++) {
        const unsigned int *s = shapes[i];
        void *parameters[] = {&out};

        MUST(cuMemsetD8, out, 0xff, 1 << 16);
        say(text("launch %u", i),
            CU(cuLaunchKernel)(function_of("shape"), s[0], s[1], s[2], s[3], s[4], s[5], 0, NULL, parameters, NULL));
        say_device_bytes(text("result %u", i), out, 1 << 16);
    }
}

CASE(launch_many_blocks)
{
    CUdeviceptr out = 0;
    void *parameters[] = {&out};

    MUST(cuMemAlloc, &out, 65536 * 4 * 4);
    DO(cuLaunchKernel, function_of("shape"), 65536, 1, 1, 4, 1, 1, 0, NULL, parameters, NULL);
    say_device_bytes("result", out, 65536 * 4 * 4);
}

CASE(launch_limits_of_dimensions)
{
    static const unsigned int shapes[][6] = {
        {0, 1, 1, 1, 1, 1},    {1, 0, 1, 1, 1, 1},        {1, 1, 0, 1, 1, 1},        {1, 1, 1, 0, 1, 1},
        {1, 1, 1, 1, 0, 1},    {1, 1, 1, 1, 1, 0},        {1, 1, 1, 1025, 1, 1},     {1, 1, 1, 1, 1025, 1},
        {1, 1, 1, 1, 1, 65},   {1, 1, 1, 32, 33, 1},      {1, 65536, 1, 1, 1, 1},    {1, 1, 65536, 1, 1, 1},
        {1, 1, 1, 4096, 1, 1}, {1u << 31, 1, 1, 1, 1, 1}, {1, 1, 1, 1u << 31, 2, 1},
    };

    for (unsigned int i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const unsigned int *s = shapes[i];

        row(text("launch of %u %u %u by %u %u %u", s[0], s[1], s[2], s[3], s[4], s[5]),
            CU(cuLaunchKernel)(function_of("empty"), s[0], s[1], s[2], s[3], s[4], s[5], 0, NULL, NULL, NULL));
    }
}

CASE(launch_static_shared_memory)
{
    CUdeviceptr words = device_bytes(1024, 3);
    void *parameters[] = {&words};

    say("launch", launch("reverse_static", 1, 256, NULL, parameters));
    say_device_bytes("reversed", words, 1024);
}

CASE(launch_dynamic_shared_memory)
{
    CUdeviceptr words = device_bytes(1024, 3);
    void *parameters[] = {&words};

    DO(cuLaunchKernel, function_of("reverse_dynamic"), 1, 1, 1, 256, 1, 1, 1024, NULL, parameters, NULL);
    say_device_bytes("reversed", words, 1024);
    DO(cuLaunchKernel, function_of("reverse_dynamic"), 1, 1, 1, 256, 1, 1, 48 << 10, NULL, parameters, NULL);
    DO(cuLaunchKernel, function_of("reverse_dynamic"), 1, 1, 1, 256, 1, 1, (48 << 10) + 1, NULL, parameters, NULL);
    DO(cuLaunchKernel, function_of("reverse_dynamic"), 1, 1, 1, 256, 1, 1, 1 << 30, NULL, parameters, NULL);
    DO(cuCtxSynchronize);
}

CASE(launch_more_shared_memory_by_choice)
{
    CUdeviceptr words = device_bytes(1024, 3);
    CUfunction function = function_of("reverse_dynamic");
    void *parameters[] = {&words};
    int most = 0;

    MUST(cuDeviceGetAttribute, &most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0);
    DO(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10);
    DO(cuLaunchKernel, function, 1, 1, 1, 256, 1, 1, 64 << 10, NULL, parameters, NULL);
    DO(cuLaunchKernel, function, 1, 1, 1, 256, 1, 1, (64 << 10) + 4, NULL, parameters, NULL);
    DO(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most);
    DO(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most + 1);
    DO(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1);
    DO(cuCtxSynchronize);
}

struct mixed {
    char letter;
    double number;
    short list[3];
};

CASE(launch_parameters_of_all_kinds)
{
    CUdeviceptr out = device_bytes(64, 0);
    struct mixed mixed = {.letter = 'x', .number = 1234.5, .list = {100, 20, 3}};
    float single = 99.5f;
    unsigned char byte = 250;
    void *parameters[] = {&out, &mixed, &single, &byte};

    say("launch", launch("take_mixed", 1, 1, NULL, parameters));
    say_device_bytes("taken", out, 64);
}

CASE(launch_large_parameter)
{
    static unsigned int words[1000];
    CUdeviceptr out = device_bytes(400, 0);
    void *parameters[] = {&out, words};

    for (unsigned int i = 0; i < 1000; i++) {
        words[i] = i * i;
    }
    say("launch", launch("take_large", 1, 100, NULL, parameters));
    memset(words, 0, sizeof(words)); /* they were copied */
    say_device_bytes("taken", out, 400);
}

CASE(launch_with_extra)
{
    CUdeviceptr out = device_bytes(512, 0);
    struct {
        CUdeviceptr out;
        unsigned int value, nr_words;
    } buffer = {out, 7, 128};
    size_t size = sizeof(buffer), too_small = 4;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    void *parameters[] = {&out, &buffer.value, &buffer.nr_words};

    DO(cuLaunchKernel, function_of("fill"), 1, 1, 1, 128, 1, 1, 0, NULL, NULL, extra);
    say_device_bytes("filled", out, 512);
    DO(cuLaunchKernel, function_of("fill"), 1, 1, 1, 128, 1, 1, 0, NULL, parameters, extra);
    extra[3] = &too_small;
    DO(cuLaunchKernel, function_of("fill"), 1, 1, 1, 128, 1, 1, 0, NULL, NULL, extra);
    DO(cuLaunchKernel, function_of("fill"), 1, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL);
    DO(cuCtxSynchronize);
}

CASE(launch_bounds)
{
    CUdeviceptr out = device_bytes(2048, 0);
    void *parameters[] = {&out};

    say("as many as it was made for", launch("bounded", 1, 128, NULL, parameters));
    say("one more", launch("bounded", 1, 129, NULL, parameters));
    DO(cuCtxSynchronize);
    say_device_bytes("filled", out, 2048);
}

CASE(launch_extended)
{
    CUdeviceptr out = device_bytes(4096, 0);
    void *parameters[] = {&out, &(unsigned int){5}, &(unsigned int){1024}};
    CUlaunchConfig config = {
        .gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1};
    CUlaunchAttribute attribute = {0};

    DO(cuLaunchKernelEx, &config, function_of("fill"), parameters, NULL);
    say_device_bytes("filled", out, 4096);
    config.attrs = &attribute;
    config.numAttrs = 1;
    for (int id = 0; id < 20; id++) {
        memset(&attribute, 0, sizeof(attribute));
        attribute.id = (CUlaunchAttributeID)id;
        if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT || id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ||
            id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
            continue; /* zero is no event */
        }
        if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            attribute.value.clusterDim.x = attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
        }
        row(text("attribute %d", id), CU(cuLaunchKernelEx)(&config, function_of("fill"), parameters, NULL));
    }
    DO(cuLaunchKernelEx, NULL, function_of("fill"), parameters, NULL);
    config.attrs = NULL;
    DO(cuLaunchKernelEx, &config, function_of("fill"), parameters, NULL);
}

/* Each is refused at once, and what comes after it goes well. */
CASE(launch_with_events_that_will_not_do)
{
    static const CUlaunchAttributeID ids[] = {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
                                              CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
    CUlaunchAttribute attribute = {0};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = &attribute,
                             .numAttrs = 1};
    CUevent events[3] = {NULL}; /* none, one of timing, one that will do */

    MUST(cuEventCreate, &events[1], CU_EVENT_DEFAULT);
    MUST(cuEventCreate, &events[2], CU_EVENT_DISABLE_TIMING);
    for (unsigned int i = 0; i < 2; i++) {
        for (unsigned int e = 0; e < 3; e++) {
            attribute = (CUlaunchAttribute){.id = ids[i]};
            attribute.value.programmaticEvent.event = events[e]; /* the other has its event there, too */
            say(text("attribute %u, event %u", i, e), CU(cuLaunchKernelEx)(&config, function_of("empty"), NULL, NULL));
            DO(cuEventSynchronize, events[2]);
        }
    }
}

CASE(launch_cluster)
{
    CUlaunchConfig config = {
        .gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};

    config.attrs = &attribute;
    config.numAttrs = 1;
    attribute.value.clusterDim.x = 2;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    DO(cuLaunchKernelEx, &config, function_of("empty"), NULL, NULL);
    attribute.value.clusterDim.x = 3;
    DO(cuLaunchKernelEx, &config, function_of("empty"), NULL, NULL);
    DO(cuCtxSynchronize);
}

CASE(launch_cooperative)
{
    CUdeviceptr counts = device_bytes(64, 0);
    void *parameters[] = {&counts};

    MUST(cuMemsetD8, counts, 0, 64);
    DO(cuLaunchCooperativeKernel, function_of("meet_all"), 8, 1, 1, 64, 1, 1, 0, NULL, parameters);
    DO(cuCtxSynchronize);
    say_device_bytes("counted", counts, 64);
    DO(cuLaunchCooperativeKernel, function_of("meet_all"), 1 << 20, 1, 1, 1024, 1, 1, 0, NULL, parameters);
    DO(cuCtxSynchronize);
}

CASE(launch_cooperative_as_attribute)
{
    CUdeviceptr counts = device_bytes(64, 0);
    void *parameters[] = {&counts};
    CUlaunchConfig config = {
        .gridDimX = 6, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};

    MUST(cuMemsetD8, counts, 0, 64);
    config.attrs = &attribute;
    config.numAttrs = 1;
    DO(cuLaunchKernelEx, &config, function_of("meet_all"), parameters, NULL);
    DO(cuCtxSynchronize);
    say_device_bytes("counted", counts, 64);
}

CASE(launch_old_forms)
{
    CUfunction function = function_of("fill");

    DO(cuFuncSetBlockShape, function, 128, 1, 1);
    DO(cuParamSetSize, function, 16);
    DO(cuLaunchGrid, function, 1, 1);
}

CASE(launch_in_order)
{
    enum { NR = 4096 };
    CUdeviceptr words = device_bytes(NR * 4, 0);
    void *parameters[] = {&words, &(unsigned int){NR}};
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 20; i++) {
        must("fill", fill(words, 1000, NR, stream));
        for (int j = 0; j < 5; j++) {
            must("add_one", launch("add_one", NR / 128, 128, stream, parameters));
        }
    }
    DO(cuStreamSynchronize, stream);
    say_device_bytes("the last", words, NR * 4);
}

CASE(launch_atomics)
{
    enum { NR = 20000 };
    CUdeviceptr words = device_bytes(NR * 4, 0), total = device_bytes(4, 0);
    void *parameters[] = {&total, &words, &(unsigned int){NR}};

    must("fill", fill(words, 1, NR, NULL));
    MUST(cuMemsetD32, total, 0, 1);
    say("sum", launch("sum_atomic", (NR + 255) / 256, 256, NULL, parameters));
    say_device_bytes("total", total, 4);
}

CASE(launch_stack_and_heap)
{
    CUdeviceptr out = device_bytes(256, 0);
    void *parameters[] = {&out, &(unsigned int){3}};

    say("stack", launch("use_stack", 1, 64, NULL, parameters));
    say_device_bytes("from the stack", out, 256);
    say("heap", launch("allocate_inside", 1, 64, NULL, parameters));
    say_device_bytes("from the heap", out, 256);
}

CASE(launch_printf)
{
    for (int i = 0; i < 5; i++) {
        void *parameters[] = {&i};

        say("launch", launch("say_hello", 1, 1, NULL, parameters));
    }
    DO(cuCtxSynchronize);
    say_text("after it", "this line");
    void *parameters[] = {&(int){77}};
    say("launch", launch("say_hello", 1, 1, NULL, parameters));
    DO(cuStreamSynchronize, NULL);
}

/* Nobody waits for the kernels: the end of their context brings out what they printed. */
ALONE(launch_printf_before_the_context_goes)
{
    void *parameters[] = {&(int){5}};
    CUcontext own = NULL;
    CUmodule module;
    CUfunction function;

    function_of("say_hello");
    say("launch", launch("say_hello", 1, 1, NULL, parameters));
    say_text("before the reset", "this line");
    DO(cuDevicePrimaryCtxReset, 0);
    say_text("after it", "this line");
    MUST(cuCtxCreate, &own, NULL, 0, 0);
    MUST(cuModuleLoadData, &module, kernels_ptx);
    MUST(cuModuleGetFunction, &function, module, "say_hello");
    DO(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    say_text("before the context goes", "this line");
    DO(cuCtxDestroy, own);
    say_text("after that", "this line");
}
