/* Streams: kinds, order, questions, host functions. */
#include "case.h"

CASE(stream_create_and_destroy)
{
    CUstream stream = NULL;

    DO(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    DO(cuStreamQuery, stream);
    DO(cuStreamSynchronize, stream);
    DO(cuStreamDestroy, stream);
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuStreamDestroy, stream);
    DO(cuStreamCreate, &stream, 2);
    DO(cuStreamCreate, &stream, 0xff);
}

ALONE(destroyed_stream)
{
    CUevent event = NULL;
    CUstream stream = NULL;

    MUST(cuEventCreate, &event, 0);
    MUST(cuStreamCreate, &stream, 0);
    MUST(cuStreamDestroy, stream);
    DO(cuStreamSynchronize, stream);
    DO(cuStreamQuery, stream);
    DO(cuEventRecord, event, stream);
    DO(cuStreamWaitEvent, stream, event, 0);
    DO(cuStreamDestroy, stream);
}

CASE(stream_flags_and_priorities)
{
    for (unsigned int flags = 0; flags < 2; flags++) {
        for (int priority = -7; priority <= 2; priority++) {
            CUstream stream = NULL;
            unsigned int got_flags = 99;
            int got_priority = 99;

            say(text("create %u %d", flags, priority), CU(cuStreamCreateWithPriority)(&stream, flags, priority));
            MUST(cuStreamGetFlags, stream, &got_flags);
            MUST(cuStreamGetPriority, stream, &got_priority);
            printf("flags and priority of %u %d: %u %d\n", flags, priority, got_flags, got_priority);
            MUST(cuStreamDestroy, stream);
        }
    }
}

CASE(stream_questions_of_special_ones)
{
    CUstream special[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    static const char *const names[] = {"null", "legacy", "per thread"};

    for (unsigned int i = 0; i < 3; i++) {
        unsigned int flags = 99;
        int priority = 99;
        CUcontext context = NULL, current = NULL;
        CUdevice device = 99;
        unsigned long long id = 0;
        CUstreamCaptureStatus capture = 99;

        MUST(cuCtxGetCurrent, &current);
        say(text("flags of %s", names[i]), CU(cuStreamGetFlags)(special[i], &flags));
        say_number(text("flags of %s are", names[i]), flags);
        say(text("priority of %s", names[i]), CU(cuStreamGetPriority)(special[i], &priority));
        say_number(text("priority of %s is", names[i]), priority);
        say(text("context of %s", names[i]), CU(cuStreamGetCtx)(special[i], &context));
        say_number(text("context of %s is current", names[i]), context == current);
        say(text("device of %s", names[i]), CU(cuStreamGetDevice)(special[i], &device));
        say_number(text("device of %s is", names[i]), device);
        say(text("id of %s", names[i]), CU(cuStreamGetId)(special[i], &id));
        say(text("capture of %s", names[i]), CU(cuStreamIsCapturing)(special[i], &capture));
        say_number(text("capture of %s is", names[i]), capture);
        say(text("query of %s", names[i]), CU(cuStreamQuery)(special[i]));
        say(text("synchronise %s", names[i]), CU(cuStreamSynchronize)(special[i]));
        say(text("destroy %s", names[i]), CU(cuStreamDestroy)(special[i]));
    }
}

CASE(stream_ids_differ)
{
    unsigned long long first = 0, second = 0, again = 0;
    CUstream one, two;

    MUST(cuStreamCreate, &one, 0);
    MUST(cuStreamCreate, &two, 0);
    DO(cuStreamGetId, one, &first);
    DO(cuStreamGetId, two, &second);
    DO(cuStreamGetId, one, &again);
    say_number("they differ and stay", first != second && first == again);
}

CASE(stream_context)
{
    CUcontext context = NULL, current = NULL;
    CUgreenCtx green = (CUgreenCtx)1;
    CUstream stream;

    MUST(cuCtxGetCurrent, &current);
    MUST(cuStreamCreate, &stream, 0);
    DO(cuStreamGetCtx, stream, &context);
    DO(cuStreamGetCtx_v2, stream, &context, &green);
    say_number("current", context == current);
    say_number("green", green != NULL);
}

/* Which of several streams are held up by work in one of them. */
static void order_against(const char *what, CUstream busy)
{
    CUstream blocking, independent;
    struct held held;

    MUST(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    MUST(cuStreamCreate, &independent, CU_STREAM_NON_BLOCKING);
    held = hold(busy);
    say(text("%s: itself", what), CU(cuStreamQuery)(busy));
    say(text("%s: null, nothing in it", what), CU(cuStreamQuery)(NULL));
    say(text("%s: blocking, nothing in it", what), CU(cuStreamQuery)(blocking));
    say(text("%s: independent, nothing in it", what), CU(cuStreamQuery)(independent));
    let_go(held);
    MUST(cuCtxSynchronize);
    say(text("%s: itself afterwards", what), CU(cuStreamQuery)(busy));
    say(text("%s: null afterwards", what), CU(cuStreamQuery)(NULL));
}

CASE(stream_busy_legacy)
{
    order_against("legacy", NULL);
}

CASE(stream_busy_per_thread)
{
    order_against("per thread", CU_STREAM_PER_THREAD);
}

CASE(stream_busy_blocking)
{
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    order_against("blocking", stream);
}

CASE(stream_busy_non_blocking)
{
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    order_against("non blocking", stream);
}

CASE(stream_legacy_waits_for_blocking_ones)
{
    CUdeviceptr memory = device_bytes(4096, 1);
    CUstream stream;
    struct held held;

    MUST(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    held = hold(stream);
    say("fill behind it", fill(memory, 5, 1024, NULL));
    DO(cuStreamQuery, NULL);
    let_go(held);
    DO(cuStreamSynchronize, NULL);
    DO(cuStreamQuery, stream);
    say_device_bytes("filled", memory, 4096);
}

CASE(stream_blocking_one_waits_for_legacy)
{
    CUdeviceptr memory = device_bytes(4096, 1);
    CUstream stream;
    struct held held;

    MUST(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    held = hold(NULL);
    say("fill behind it", fill(memory, 5, 1024, stream));
    DO(cuStreamQuery, stream);
    let_go(held);
    DO(cuStreamSynchronize, stream);
    DO(cuStreamQuery, NULL);
    say_device_bytes("filled", memory, 4096);
}

CASE(stream_destroyed_with_work)
{
    CUdeviceptr memory = device_bytes(4 << 20, 1);
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (unsigned int i = 0; i < 10; i++) {
        must("fill", fill(memory, i, 1 << 20, stream));
    }
    DO(cuStreamDestroy, stream);
    DO(cuCtxSynchronize);
    say_device_bytes("all of it was done", memory, 4 << 20);
}

CASE(stream_many)
{
    enum { NR = 40 };
    CUstream streams[NR];
    CUdeviceptr memory = device_bytes(NR * 4096, 1);

    for (unsigned int i = 0; i < NR; i++) {
        MUST(cuStreamCreate, &streams[i], i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        must("fill", fill(memory + i * 4096, i, 1024, streams[i]));
    }
    for (unsigned int i = 0; i < NR; i++) {
        MUST(cuStreamSynchronize, streams[i]);
        MUST(cuStreamDestroy, streams[i]);
    }
    say_device_bytes("all", memory, NR * 4096);
}

static void count_call(void *data)
{
    ++*(int *)data;
}

CASE(stream_host_function)
{
    CUdeviceptr memory = device_bytes(4096, 1);
    CUstream stream;
    int nr_calls = 0;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    must("fill", fill(memory, 5, 1024, stream));
    DO(cuLaunchHostFunc, stream, count_call, &nr_calls);
    DO(cuLaunchHostFunc, NULL, count_call, &nr_calls);
    DO(cuCtxSynchronize);
    say_number("calls", nr_calls);
    DO(cuLaunchHostFunc, stream, NULL, NULL);
}

static void CUDA_CB on_stream(CUstream stream, CUresult status, void *data)
{
    printf("callback: %s %s\n", stream ? "of the stream" : "of none", result_name(status));
    ++*(int *)data;
}

CASE(stream_callback)
{
    CUstream stream;
    int nr_calls = 0;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    must("fill", fill(device_bytes(4096, 1), 5, 1024, stream));
    DO(cuStreamAddCallback, stream, on_stream, &nr_calls, 0);
    DO(cuStreamSynchronize, stream);
    say_number("calls", nr_calls);
    DO(cuStreamAddCallback, stream, on_stream, &nr_calls, 1);
    DO(cuStreamAddCallback, stream, NULL, NULL, 0);
}

CASE(stream_attributes)
{
    CUstream stream, other;

    MUST(cuStreamCreate, &stream, 0);
    MUST(cuStreamCreate, &other, 0);
    for (int attribute = 0; attribute < 20; attribute++) {
        CUstreamAttrValue value = {{0}};

        say(text("get %d", attribute), CU(cuStreamGetAttribute)(stream, (CUstreamAttrID)attribute, &value));
    }
    CUstreamAttrValue policy = {.syncPolicy = CU_SYNC_POLICY_YIELD}, got = {{0}};
    DO(cuStreamSetAttribute, stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy);
    DO(cuStreamGetAttribute, stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got);
    say_number("policy", got.syncPolicy);
    DO(cuStreamCopyAttributes, other, stream);
    DO(cuStreamGetAttribute, other, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got);
    say_number("policy of the copy", got.syncPolicy);
    policy.syncPolicy = (CUsynchronizationPolicy)99;
    DO(cuStreamSetAttribute, stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy);
    CUstreamAttrValue priority = {.priority = -2};
    DO(cuStreamSetAttribute, stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority);
    DO(cuStreamGetAttribute, stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got);
    say_number("priority", got.priority);
    int known = 0;
    DO(cuStreamGetPriority, stream, &known);
    say_number("which the stream tells", known);
}

CASE(stream_access_policy_window)
{
    CUdeviceptr memory = device_bytes(65536, 1);
    CUstreamAttrValue window = {{0}};
    CUstream stream;

    MUST(cuStreamCreate, &stream, 0);
    window.accessPolicyWindow.base_ptr = (void *)memory;
    window.accessPolicyWindow.num_bytes = 4096;
    window.accessPolicyWindow.hitRatio = 0.5f;
    window.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_STREAMING;
    window.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_NORMAL;
    DO(cuStreamSetAttribute, stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &window);
}

CASE(stream_wait_value)
{
    CUdeviceptr memory = device_bytes(64, 0);
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuStreamWriteValue32, stream, memory, 42, 0);
    DO(cuStreamWaitValue32, stream, memory, 42, CU_STREAM_WAIT_VALUE_EQ);
    DO(cuStreamWriteValue64, stream, memory + 8, 43, 0);
    DO(cuStreamSynchronize, stream);
    say_device_bytes("written", memory, 64);
}

/* Each is refused at once, and what comes after it goes well. */
CASE(stream_values_wrong)
{
    CUdeviceptr memory = device_bytes(64, 0), freed = device_bytes(8 << 20, 0), small = device_bytes(64, 0);
    CUstreamBatchMemOpParams both[2] = {{.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, memory, {5}, 0, 0}}};
    CUstream stream;
    CUevent event;
    unsigned int local = 0;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuMemFree, freed);
    MUST(cuMemFree, small);
    ROW("an odd address", cuStreamWriteValue32, stream, memory + 2, 7, 0);
    ROW("an odd address", cuStreamWriteValue64, stream, memory + 4, 7, 0);
    ROW("no address", cuStreamWriteValue32, stream, 0, 7, 0);
    ROW("memory that was freed", cuStreamWriteValue32, stream, freed, 7, 0);
    ROW("a little memory that was freed", cuStreamWriteValue32, stream, small, 7, 0);
    ROW("memory of the program", cuStreamWriteValue32, stream, (CUdeviceptr)(uintptr_t)&local, 7, 0);
    ROW("an odd address", cuStreamWaitValue32, stream, memory + 2, 7, 0);
    ROW("memory that was freed", cuStreamWaitValue64, stream, freed, 7, 0);
    DO(cuEventCreate, &event, 0);
    both[1] = both[0];
    both[1].writeValue.address = freed;
    DO(cuStreamBatchMemOp, stream, 2, both, 0);
    both[1].writeValue =
        (struct CUstreamMemOpWriteValueParams_st){CU_STREAM_MEM_OP_WAIT_VALUE_64, memory + 4, {0}, 0, 0};
    DO(cuStreamBatchMemOp, stream, 2, both, 0);
    both[1].operation = (CUstreamBatchMemOpType)77;
    DO(cuStreamBatchMemOp, stream, 2, both, 0);
    DO(cuStreamSynchronize, stream);
    DO(cuStreamDestroy, stream);
}

CASE(stream_attach_managed)
{
    CUstream stream;

    MUST(cuStreamCreate, &stream, 0);
    DO(cuStreamAttachMemAsync, stream, device_bytes(64, 0), 0, CU_MEM_ATTACH_SINGLE);
    CUdeviceptr managed = 0;
    MUST(cuMemAllocManaged, &managed, 8192, CU_MEM_ATTACH_GLOBAL);
    DO(cuStreamAttachMemAsync, stream, managed, 8192, CU_MEM_ATTACH_SINGLE);
    DO(cuStreamAttachMemAsync, stream, managed, 4096, CU_MEM_ATTACH_GLOBAL);
    DO(cuStreamAttachMemAsync, stream, managed, 8193, CU_MEM_ATTACH_GLOBAL);
}

CASE(stream_capture_modes)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    DO(cuThreadExchangeStreamCaptureMode, &mode);
    say_number("before", mode);
    DO(cuThreadExchangeStreamCaptureMode, &mode);
    say_number("after", mode);
    mode = (CUstreamCaptureMode)77;
    DO(cuThreadExchangeStreamCaptureMode, &mode);
    DO(cuThreadExchangeStreamCaptureMode, NULL);
}
