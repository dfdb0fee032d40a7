/* The table of errors: streams and events. */
#include "case.h"

static void CUDA_CB nothing_to_do(void *data)
{
    (void)data;
}

CASE(errors_of_streams)
{
    CUstream stream = NULL;
    CUevent event = NULL;
    CUstreamAttrValue value = {{0}};
    CUcontext context = NULL;
    CUstreamCaptureStatus status;

    ROW("no result", cuStreamCreate, NULL, 0);
    ROW("flags 2", cuStreamCreate, &stream, 2);
    ROW("no result", cuStreamCreateWithPriority, NULL, 0, 0);
    ROW("flags 4", cuStreamCreateWithPriority, &stream, 4, 0);
    ROW("a priority of 1000", cuStreamCreateWithPriority, &stream, 0, 1000);
    ROW("no stream", cuStreamDestroy, NULL);
    ROW("the legacy stream", cuStreamDestroy, CU_STREAM_LEGACY);
    ROW("the per-thread stream", cuStreamDestroy, CU_STREAM_PER_THREAD);
    MUST(cuStreamCreate, &stream, 0);
    ROW("no result", cuStreamGetFlags, stream, NULL);
    ROW("no result", cuStreamGetPriority, stream, NULL);
    ROW("no result", cuStreamGetId, stream, NULL);
    ROW("no result", cuStreamGetCtx, stream, NULL);
    ROW("no result", cuStreamGetDevice, stream, NULL);
    ROW("no result", cuStreamIsCapturing, stream, NULL);
    ROW("all in order", cuStreamIsCapturing, stream, &status);
    ROW("all in order", cuStreamGetCtx, stream, &context);
    ROW("no event", cuStreamWaitEvent, stream, NULL, 0);
    MUST(cuEventCreate, &event, 0);
    ROW("flags 8", cuStreamWaitEvent, stream, event, 8);
    ROW("no function", cuLaunchHostFunc, stream, NULL, NULL);
    ROW("all in order", cuLaunchHostFunc, stream, nothing_to_do, NULL);
    ROW("no callback", cuStreamAddCallback, stream, NULL, NULL, 0);
    ROW("no value", cuStreamGetAttribute, stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, NULL);
    ROW("no value", cuStreamSetAttribute, stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, NULL);
    ROW("attribute 999", cuStreamGetAttribute, stream, (CUstreamAttrID)999, &value);
    ROW("attribute 999", cuStreamSetAttribute, stream, (CUstreamAttrID)999, &value);
    ROW("attribute -1", cuStreamGetAttribute, stream, (CUstreamAttrID)-1, &value);
    ROW("no capture", cuStreamEndCapture, stream, &(CUgraph){NULL});
    ROW("no result", cuStreamEndCapture, stream, NULL);
    ROW("the legacy stream", cuStreamBeginCapture, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ROW("mode 99", cuStreamBeginCapture, stream, (CUstreamCaptureMode)99);
}

CASE(errors_of_events)
{
    CUevent event = NULL, other = NULL;
    CUstream stream = NULL;
    float milliseconds = 0;

    ROW("no result", cuEventCreate, NULL, 0);
    ROW("flags 8", cuEventCreate, &event, 8);
    ROW("no event", cuEventDestroy, NULL);
    ROW("no event", cuEventRecord, NULL, NULL);
    ROW("no event", cuEventQuery, NULL);
    ROW("no event", cuEventSynchronize, NULL);
    MUST(cuEventCreate, &event, 0);
    MUST(cuEventCreate, &other, 0);
    MUST(cuStreamCreate, &stream, 0);
    ROW("flags 2", cuEventRecordWithFlags, event, stream, 2);
    ROW("no event", cuEventRecordWithFlags, NULL, stream, 0);
    ROW("no start", cuEventElapsedTime, &milliseconds, NULL, event);
    ROW("no end", cuEventElapsedTime, &milliseconds, event, NULL);
    ROW("nothing recorded", cuEventElapsedTime, &milliseconds, event, other);
    MUST(cuEventRecord, event, stream);
    MUST(cuEventRecord, other, stream);
    MUST(cuEventSynchronize, other);
    ROW("no result", cuEventElapsedTime, NULL, event, other);
    ROW("all in order", cuEventElapsedTime, &milliseconds, event, other);
    ROW("no event", cuIpcGetEventHandle, &(CUipcEventHandle){{0}}, NULL);
}

ALONE(errors_of_streams_that_are_none)
{
    CUstream none = (CUstream)0x123456780;
    CUevent event = NULL;
    unsigned int flags = 0;
    int priority = 0;

    MUST(cuEventCreate, &event, 0);
    ROW("an invented stream", cuStreamSynchronize, none);
    ROW("an invented stream", cuStreamQuery, none);
    ROW("an invented stream", cuStreamDestroy, none);
    ROW("an invented stream", cuStreamGetFlags, none, &flags);
    ROW("an invented stream", cuStreamGetPriority, none, &priority);
    ROW("an invented stream", cuStreamWaitEvent, none, event, 0);
    ROW("an invented stream", cuEventRecord, event, none);
    ROW("an invented stream", cuMemsetD8Async, device_bytes(16, 1), 1, 16, none);
    ROW("an invented stream", cuMemcpyDtoDAsync, device_bytes(16, 1), device_bytes(16, 1), 16, none);
    ROW("an invented stream", cuLaunchKernel, function_of("empty"), 1, 1, 1, 1, 1, 1, 0, none, NULL, NULL);
    ROW("an invented stream", cuLaunchHostFunc, none, nothing_to_do, NULL);
}

ALONE(errors_of_events_that_are_none)
{
    CUevent none = (CUevent)0x123456780, event = NULL;
    float milliseconds = 0;

    MUST(cuEventCreate, &event, 0);
    ROW("an invented event", cuEventRecord, none, NULL);
    ROW("an invented event", cuEventQuery, none);
    ROW("an invented event", cuEventSynchronize, none);
    ROW("an invented event", cuEventDestroy, none);
    ROW("an invented event", cuStreamWaitEvent, NULL, none, 0);
    ROW("an invented start", cuEventElapsedTime, &milliseconds, none, event);
}
