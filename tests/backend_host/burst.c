/* The monitor of bursts, for test_burst.py: functions that a library can be asked for. */
#include "track/burst.h"

static struct fgw_bursts bursts;

void begin(void)
{
    bursts = (struct fgw_bursts){.nr = 0};
}

void pause_at(uint64_t gpu_ns, uint64_t now_ns)
{
    fgw_burst_pause(&bursts, gpu_ns, now_ns);
}

bool resume_at(uint64_t switch_ns, uint64_t now_ns)
{
    return fgw_burst_resume(&bursts, switch_ns, now_ns);
}

uint64_t percentile_ns(void)
{
    return fgw_burst_view(&bursts).percentile_ns;
}

uint64_t last_ns(void)
{
    return fgw_burst_view(&bursts).last_ns;
}

uint64_t gap_ns(void)
{
    return fgw_burst_view(&bursts).gap_ns;
}
