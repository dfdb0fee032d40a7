/*
 * Records of events that programs share, and waits for them.
 *
 * To record one is to have its next number written in the stream, and then the ordinary event recorded. To wait for the
 * record of another program is to wait for its number: in a stream by cuStreamWaitValue64, else by looking. The record
 * of this very event is waited for by the ordinary one, with all that follows from it: errors, and what kernels
 * printed.
 *
 * A program that dies leaves nobody waiting: once its worker has ended the daemon writes the numbers that it owes. Its
 * worker does so after a fault.
 *
 * Wrong when: a graph has a node that records a shared event or waits for it; in a graph it is this program's own. And
 * when the program lives on without its daemon and another program dies: waits for that one last until there is a
 * daemon.
 */
#include <pthread.h>
#include <time.h>

#include "base/thread.h"
#include "call/call.h"
#include "context/capture_rules.h"
#include "context/shared_event.h"
#include "context/stream.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"
#include "ivshmem/event.h"

#define NR_SPINS   200u
#define NR_SHORT   32u
#define NAP_MIN_NS 20000
#define NAP_MAX_NS 500000

/* Numbers of this program are given and sent in one order, or a word might go back. */
static pthread_mutex_t recording = PTHREAD_MUTEX_INITIALIZER;

/* Whether what is outstanding may be written: the worker is there, and there was no fault. Looked at once the numbers
 * are claimed, since whoever changes either finishes what is claimed then. */
static bool is_served(void)
{
    return atomic_load(&fgv_guest.client->state) == FGV_CLIENT_READY && fgv_call_sticky_error() == CUDA_SUCCESS;
}

static CUresult write_number(struct fgv_event *row, const struct fgv_event_place *place, uint64_t after,
                             CUstream stream)
{
    const CUdeviceptr word = (CUdeviceptr)(uintptr_t)&row->words[place->word].done;
    CUresult result = CUDA_SUCCESS;
    if (after != 0) {
        result = cuStreamWaitValue64_v2(stream, word, after, CU_STREAM_WAIT_VALUE_GEQ);
    }
    return result == CUDA_SUCCESS ? cuStreamWriteValue64_v2(stream, word, place->number, 0) : result;
}

static CUresult record_in_order(struct fgv_shared_event *shared, CUstream stream, uint64_t wire)
{
    struct fgv_event *row = fgv_shared_event_row(shared);
    struct fgv_event_place place;
    uint64_t own[FGV_NR_EVENT_WORDS], after;
    for (uint32_t i = 0; i < FGV_NR_EVENT_WORDS; i++) {
        const struct fgv_shared_lane *lane = &shared->lanes[i];
        own[i] = lane->stream == wire && lane->context == fgv_thread.current ? lane->number : 0;
    }
    if (!fgv_event_claim(row, fgv_guest.index, own, &place, &after)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = write_number(row, &place, after, stream);
    /* Also where it failed: a number before it may still be written, and only a later one of this stream mends that. */
    shared->lanes[place.word] =
        (struct fgv_shared_lane){.number = place.number, .context = fgv_thread.current, .stream = wire};
    if (result == CUDA_SUCCESS) {
        shared->nr_recorded = place.number;
        shared->is_captured = false;
        fgv_event_publish(row, &place);
    }
    if (result != CUDA_SUCCESS || !is_served()) {
        fgv_event_finish(row, &place);
    }
    return result;
}

/* The ordinary event is recorded behind it, so that its end tells that the number is written. */
static bool record(CUevent event, CUstream stream, CUresult *answer)
{
    struct fgv_shared_event *shared = fgv_shared_event_find(event);
    if (__builtin_expect(!shared, 1) || !fgv_shared_event_has_row(shared)) {
        return false;
    }
    const uint64_t wire = fgv_stream_wire(stream);
    if (fgv_capture_is_active(wire)) {
        shared->is_captured = true;
        return false;
    }
    pthread_mutex_lock(&recording);
    *answer = record_in_order(shared, stream, wire);
    pthread_mutex_unlock(&recording);
    return *answer != CUDA_SUCCESS;
}

bool fgv_before_cuEventRecord(CUevent hEvent, CUstream hStream, CUresult *answer)
{
    return record(hEvent, hStream, answer);
}

/* With a flag it is for captures, or an error. */
bool fgv_before_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags, CUresult *answer)
{
    return flags == CU_EVENT_RECORD_DEFAULT && record(hEvent, hStream, answer);
}

/* The record that counts, where the ordinary event knows nothing of it. */
static bool is_elsewhere(const struct fgv_shared_event *shared, struct fgv_event_place *place)
{
    if (!shared || shared->is_captured || !fgv_shared_event_has_row(shared)) {
        return false;
    }
    *place = fgv_event_last(fgv_shared_event_row(shared));
    return place->number != shared->nr_recorded;
}

bool fgv_before_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags, CUresult *answer)
{
    struct fgv_event_place place;
    const struct fgv_shared_event *shared = fgv_shared_event_find(hEvent);
    if (!is_elsewhere(shared, &place) || Flags != 0 || fgv_capture_is_active(fgv_stream_wire(hStream))) {
        return false;
    }
    const struct fgv_event *row = fgv_shared_event_row(shared);
    const CUdeviceptr word = (CUdeviceptr)(uintptr_t)&row->words[place.word].done;
    *answer = fgv_event_is_done(row, &place)
                  ? fgv_call_healthy()
                  : cuStreamWaitValue64_v2(hStream, word, place.number, CU_STREAM_WAIT_VALUE_GEQ);
    return true;
}

bool fgv_before_cuEventQuery(CUevent hEvent, CUresult *answer)
{
    struct fgv_event_place place;
    const struct fgv_shared_event *shared = fgv_shared_event_find(hEvent);
    if (!is_elsewhere(shared, &place)) {
        return false;
    }
    *answer = fgv_call_healthy();
    if (*answer == CUDA_SUCCESS && !fgv_event_is_done(fgv_shared_event_row(shared), &place)) {
        *answer = CUDA_ERROR_NOT_READY;
    }
    return true;
}

static void rest(uint32_t nr_looks)
{
    if (nr_looks < NR_SPINS) {
        __builtin_ia32_pause();
        return;
    }
    const long nap_ns = nr_looks - NR_SPINS < NR_SHORT ? NAP_MIN_NS : NAP_MAX_NS;
    nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
}

/* Nobody rings for a number that another program's device writes. */
bool fgv_before_cuEventSynchronize(CUevent hEvent, CUresult *answer)
{
    struct fgv_event_place place;
    const struct fgv_shared_event *shared = fgv_shared_event_find(hEvent);
    if (!is_elsewhere(shared, &place)) {
        return false;
    }
    *answer = fgv_call_healthy();
    const struct fgv_event *row = fgv_shared_event_row(shared);
    for (uint32_t i = 0; *answer == CUDA_SUCCESS && !fgv_event_is_done(row, &place); i++) {
        if (!fgv_client_keep_waiting(NULL, i)) {
            *answer = fgv_client_lost();
        } else if (fgv_call_sticky_error() != CUDA_SUCCESS) {
            *answer = fgv_call_healthy();
        } else {
            rest(i);
        }
    }
    return true;
}
