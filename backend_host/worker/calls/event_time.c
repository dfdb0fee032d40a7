/*
 * See event_time.h. While nothing is kept a call costs one load more.
 *
 * Wrong when: two events lie so far apart that the driver's answer, a float of milliseconds, does not tell nanoseconds.
 */
#include "calls/event_time.h"

#include <stdlib.h>
#include <string.h>

#include "page/bell.h"

#define NS_PER_MS 1e6

struct kept {
    CUevent event;
    double at_ns; /* CLOCK_MONOTONIC; before the host began it is less than 0 */
};

static struct fgv_driver real; /* the driver's own calls, of the one device library of this process */
static struct fgw_event_mark home;
static struct kept *all; /* by event */
static uint32_t nr, room;

static uint32_t place_of(CUevent event)
{
    uint32_t low = 0, high = nr;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if ((uintptr_t)all[middle].event < (uintptr_t)event) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct kept *find(CUevent event)
{
    const uint32_t place = nr != 0 ? place_of(event) : 0;
    return place < nr && all[place].event == event ? &all[place] : NULL;
}

static void forget(CUevent event)
{
    struct kept *kept = find(event);
    if (kept) {
        const uint32_t place = (uint32_t)(kept - all);
        memmove(kept, kept + 1, (--nr - place) * sizeof(*kept));
    }
}

static void keep(CUevent event, double at_ns)
{
    if (nr == room) {
        struct kept *grown = realloc(all, (room * 2 + 64) * sizeof(*grown));
        if (!grown) {
            return;
        }
        all = grown;
        room = room * 2 + 64;
    }
    const uint32_t place = place_of(event);
    memmove(&all[place + 1], &all[place], (nr++ - place) * sizeof(*all));
    all[place] = (struct kept){.event = event, .at_ns = at_ns};
}

/* ---- in front of the driver ---- */

static CUresult record(CUevent event, CUstream stream)
{
    forget(event);
    return real.cuEventRecord(event, stream);
}

static CUresult record_with_flags(CUevent event, CUstream stream, unsigned int flags)
{
    forget(event);
    return real.cuEventRecordWithFlags(event, stream, flags);
}

static CUresult destroy(CUevent event)
{
    forget(event);
    return real.cuEventDestroy_v2(event);
}

/* By the host's clock. */
static CUresult time_of(CUevent event, double *at_ns)
{
    const struct kept *kept = find(event);
    float ms = 0;
    if (kept) {
        *at_ns = kept->at_ns;
        return CUDA_SUCCESS;
    }
    const CUresult result = home.event ? real.cuEventElapsedTime(&ms, home.event, event) : CUDA_ERROR_INVALID_HANDLE;
    *at_ns = home.at_ns + ms * NS_PER_MS;
    return result;
}

static bool is_of_before(CUevent start, CUevent end)
{
    return find(start) || find(end);
}

static CUresult elapsed_by_host(float *ms, CUevent start, CUevent end)
{
    double start_ns, end_ns;
    CUresult result = time_of(start, &start_ns);
    if (result == CUDA_SUCCESS) {
        result = time_of(end, &end_ns);
    }
    if (result == CUDA_SUCCESS) {
        *ms = (float)((end_ns - start_ns) / NS_PER_MS);
    }
    return result;
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
    return is_of_before(start, end) ? elapsed_by_host(ms, start, end) : real.cuEventElapsedTime(ms, start, end);
}

static CUresult elapsed_v2(float *ms, CUevent start, CUevent end)
{
    return is_of_before(start, end) ? elapsed_by_host(ms, start, end) : real.cuEventElapsedTime_v2(ms, start, end);
}

void fgw_event_time_wrap(struct fgv_driver *driver)
{
    real = *driver;
    driver->cuEventRecord = record;
    driver->cuEventDestroy_v2 = destroy;
    driver->cuEventRecordWithFlags = real.cuEventRecordWithFlags ? record_with_flags : NULL;
    driver->cuEventElapsedTime = real.cuEventElapsedTime ? elapsed : NULL;
    driver->cuEventElapsedTime_v2 = real.cuEventElapsedTime_v2 ? elapsed_v2 : NULL;
}

/* ---- of a change of devices ---- */

struct fgw_event_mark fgw_event_mark(void)
{
    struct fgw_event_mark mark = {0};
    if (!real.cuEventElapsedTime || real.cuEventCreate(&mark.event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        return (struct fgw_event_mark){0};
    }
    if (real.cuEventRecord(mark.event, NULL) != CUDA_SUCCESS || real.cuStreamSynchronize(NULL) != CUDA_SUCCESS) {
        real.cuEventDestroy_v2(mark.event);
        return (struct fgw_event_mark){0};
    }
    mark.at_ns = (double)fgw_clock_ns();
    return mark;
}

void fgw_event_time_keep(CUevent now, CUevent before, struct fgw_event_mark *mark)
{
    const struct kept *kept = find(before);
    float ms = 0;
    if (kept) {
        const double at_ns = kept->at_ns;
        forget(before);
        keep(now, at_ns);
    } else if (mark->event && real.cuEventElapsedTime(&ms, before, mark->event) == CUDA_SUCCESS) {
        *mark = (struct fgw_event_mark){.event = before, .at_ns = mark->at_ns - ms * NS_PER_MS};
        keep(now, mark->at_ns);
    }
}

void fgw_event_time_forget(void)
{
    nr = 0;
    home = (struct fgw_event_mark){0};
}

struct fgw_event_mark fgw_event_time_go_by(struct fgw_event_mark mark)
{
    const struct fgw_event_mark before = home;
    home = mark;
    return before;
}
