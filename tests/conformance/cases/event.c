/* Events. */
#include "case.h"

CASE(event_create_flags)
{
    for (unsigned int flags = 0; flags < 9; flags++) {
        CUevent event = NULL;

        if (say(text("create %u", flags), CU(cuEventCreate)(&event, flags)) == CUDA_SUCCESS) {
            say(text("destroy %u", flags), CU(cuEventDestroy)(event));
        }
    }
}

CASE(event_never_recorded)
{
    CUevent event, other;
    float milliseconds = -1;
    CUstream stream;

    MUST(cuEventCreate, &event, 0);
    MUST(cuEventCreate, &other, 0);
    MUST(cuStreamCreate, &stream, 0);
    DO(cuEventQuery, event);
    DO(cuEventSynchronize, event);
    DO(cuStreamWaitEvent, stream, event, 0);
    DO(cuStreamSynchronize, stream);
    DO(cuEventElapsedTime, &milliseconds, event, other);
    MUST(cuEventRecord, event, stream);
    DO(cuEventElapsedTime, &milliseconds, event, other);
    DO(cuEventElapsedTime, &milliseconds, other, event);
}

CASE(event_record_and_query)
{
    CUstream stream;
    CUevent event;
    struct held held;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &event, 0);
    held = hold(stream);
    DO(cuEventRecord, event, stream);
    DO(cuEventQuery, event);
    let_go(held);
    DO(cuEventSynchronize, event);
    DO(cuEventQuery, event);
}

CASE(event_recorded_again)
{
    CUstream stream;
    CUevent event;
    struct held held;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &event, 0);
    MUST(cuEventRecord, event, stream);
    DO(cuEventSynchronize, event);
    held = hold(stream);
    DO(cuEventQuery, event);
    DO(cuEventRecord, event, stream);
    DO(cuEventQuery, event);
    let_go(held);
    DO(cuEventSynchronize, event);
}

CASE(event_elapsed_time)
{
    CUevent start, end;
    float milliseconds = -1, backwards = 1;

    MUST(cuEventCreate, &start, 0);
    MUST(cuEventCreate, &end, 0);
    MUST(cuEventRecord, start, NULL);
    for (int i = 0; i < 10; i++) {
        must("fill", fill(device_bytes(4096, 1), 5, 1024, NULL));
    }
    MUST(cuEventRecord, end, NULL);
    DO(cuEventSynchronize, end);
    DO(cuEventElapsedTime, &milliseconds, start, end);
    say_number("positive, less than a minute", milliseconds > 0 && milliseconds < 60000);
    DO(cuEventElapsedTime, &backwards, end, start);
    say_number("negative the other way", backwards == -milliseconds);
    DO(cuEventElapsedTime, &milliseconds, start, start);
    say_number("none", milliseconds == 0);
}

CASE(event_elapsed_time_not_ready)
{
    CUstream stream;
    CUevent start, end;
    float milliseconds = -1;
    struct held held;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &start, 0);
    MUST(cuEventCreate, &end, 0);
    MUST(cuEventRecord, start, stream);
    held = hold(stream);
    MUST(cuEventRecord, end, stream);
    DO(cuEventElapsedTime, &milliseconds, start, end);
    let_go(held);
    DO(cuStreamSynchronize, stream);
    DO(cuEventElapsedTime, &milliseconds, start, end);
}

CASE(event_elapsed_time_without_timing)
{
    CUevent start, end;
    float milliseconds = -1;

    MUST(cuEventCreate, &start, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventCreate, &end, CU_EVENT_DEFAULT);
    MUST(cuEventRecord, start, NULL);
    MUST(cuEventRecord, end, NULL);
    MUST(cuCtxSynchronize);
    DO(cuEventElapsedTime, &milliseconds, start, end);
    DO(cuEventElapsedTime, &milliseconds, end, start);
}

CASE(event_wait_across_streams)
{
    CUdeviceptr memory = device_bytes(4096, 1);
    CUstream first, second;
    CUevent event;
    struct held held;

    MUST(cuStreamCreate, &first, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &second, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    held = hold(first);
    must("fill", fill(memory, 100, 1024, first));
    MUST(cuEventRecord, event, first);
    DO(cuStreamWaitEvent, second, event, 0);
    void *parameters[] = {&memory, &(unsigned int){1024}};
    say("add_one behind it", launch("add_one", 8, 128, second, parameters));
    DO(cuStreamQuery, second);
    let_go(held);
    DO(cuStreamSynchronize, second);
    say_device_bytes("filled, then added", memory, 4096);
}

CASE(event_wait_flags)
{
    CUevent event;

    MUST(cuEventCreate, &event, 0);
    MUST(cuEventRecord, event, NULL);
    DO(cuStreamWaitEvent, NULL, event, CU_EVENT_WAIT_DEFAULT);
    DO(cuStreamWaitEvent, NULL, event, CU_EVENT_WAIT_EXTERNAL);
    DO(cuStreamWaitEvent, NULL, event, 2);
    DO(cuEventRecordWithFlags, event, NULL, CU_EVENT_RECORD_DEFAULT);
    DO(cuEventRecordWithFlags, event, NULL, CU_EVENT_RECORD_EXTERNAL);
    DO(cuEventRecordWithFlags, event, NULL, 2);
    DO(cuCtxSynchronize);
}

CASE(event_destroyed_while_pending)
{
    CUstream stream;
    CUevent event;
    struct held held;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &event, 0);
    held = hold(stream);
    MUST(cuEventRecord, event, stream);
    DO(cuEventDestroy, event);
    let_go(held);
    DO(cuStreamSynchronize, stream);
}

ALONE(destroyed_event)
{
    CUevent event = NULL;

    MUST(cuEventCreate, &event, 0);
    MUST(cuEventDestroy, event);
    DO(cuEventQuery, event);
    DO(cuEventSynchronize, event);
    DO(cuEventRecord, event, NULL);
    DO(cuStreamWaitEvent, NULL, event, 0);
    DO(cuEventDestroy, event);
}

CASE(event_interprocess)
{
    CUipcEventHandle handle;
    CUevent event = NULL;

    DO(cuEventCreate, &event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    DO(cuIpcGetEventHandle, &handle, event);
    DO(cuEventCreate, &event, CU_EVENT_INTERPROCESS);
}

CASE(event_memory_of_other_processes)
{
    CUipcMemHandle handle;

    DO(cuIpcGetMemHandle, &handle, device_bytes(4096, 1));
}

CASE(event_blocking_synchronise)
{
    CUevent event;

    MUST(cuEventCreate, &event, CU_EVENT_BLOCKING_SYNC);
    must("fill", fill(device_bytes(4096, 1), 5, 1024, NULL));
    DO(cuEventRecord, event, NULL);
    DO(cuEventSynchronize, event);
}

CASE(event_many)
{
    enum { NR = 200 };
    CUevent events[NR];
    int nr_done = 0;

    for (int i = 0; i < NR; i++) {
        MUST(cuEventCreate, &events[i], i % 2 ? CU_EVENT_DISABLE_TIMING : 0);
        MUST(cuEventRecord, events[i], NULL);
    }
    MUST(cuStreamSynchronize, NULL);
    for (int i = 0; i < NR; i++) {
        nr_done += CU(cuEventQuery)(events[i]) == CUDA_SUCCESS;
        MUST(cuEventDestroy, events[i]);
    }
    say_number("done", nr_done);
}
