#include "track/burst.h"

#include <stdlib.h>
#include <string.h>

/* So much of the mean burst may be a pause within one: 5 %, as in the paper. */
#define SHORT_DIVISOR 20u

static uint32_t nr_kept(const struct fgw_bursts *bursts)
{
    return bursts->nr < FGW_BURSTS_KEPT ? bursts->nr : FGW_BURSTS_KEPT;
}

static uint64_t mean(const uint64_t *values_ns, uint32_t nr)
{
    uint64_t sum_ns = 0;
    for (uint32_t i = 0; i < nr; i++) {
        sum_ns += values_ns[i];
    }
    return nr == 0 ? 0 : sum_ns / nr;
}

void fgw_burst_pause(struct fgw_bursts *bursts, uint64_t gpu_ns, uint64_t now_ns)
{
    bursts->quiet_gpu_ns = gpu_ns;
    bursts->quiet_since_ns = now_ns;
}

bool fgw_burst_resume(struct fgw_bursts *bursts, uint64_t switch_ns, uint64_t now_ns)
{
    const uint64_t since_ns = bursts->quiet_since_ns;
    bursts->quiet_since_ns = 0;
    if (since_ns == 0 || now_ns <= since_ns) {
        return false;
    }
    const uint64_t gap_ns = now_ns - since_ns;
    const uint64_t burst_ns = bursts->quiet_gpu_ns - bursts->begun_gpu_ns;
    if (burst_ns == 0 || gap_ns <= switch_ns) {
        return false; /* most pauses are as short as that, so the mean is not asked for each */
    }
    const uint64_t mean_ns = bursts->nr == 0 ? burst_ns : mean(bursts->burst_ns, nr_kept(bursts));
    if (gap_ns <= mean_ns / SHORT_DIVISOR) {
        return false;
    }
    const uint32_t place = bursts->nr++ % FGW_BURSTS_KEPT;
    bursts->burst_ns[place] = burst_ns;
    bursts->gap_ns[place] = gap_ns;
    bursts->begun_gpu_ns = bursts->quiet_gpu_ns;
    return true;
}

static int compare(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

struct fgw_burst_view fgw_burst_view(const struct fgw_bursts *bursts)
{
    const uint32_t nr = nr_kept(bursts);
    uint64_t sorted_ns[FGW_BURSTS_KEPT];
    if (nr == 0) {
        return (struct fgw_burst_view){.last_ns = 0};
    }
    memcpy(sorted_ns, bursts->burst_ns, sizeof(sorted_ns));
    qsort(sorted_ns, nr, sizeof(sorted_ns[0]), compare);
    return (struct fgw_burst_view){
        .percentile_ns = sorted_ns[(nr * 9u + 9u) / 10u - 1u],
        .last_ns = bursts->burst_ns[(bursts->nr - 1u) % FGW_BURSTS_KEPT],
        .gap_ns = mean(bursts->gap_ns, nr),
    };
}
