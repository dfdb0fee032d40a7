/*
 * How large the parts of a launch in boxes are, and how many of them are out.
 *
 * A part has at least as many blocks as the host's settings say, and as many more as it takes to keep the device busy
 * for `part_ns`, by what the kernel's blocks took so far.
 *
 * One part fills the ragged end of the other (lane.h), so the next one is to be there when the last blocks of those
 * that are out have begun. Short parts: one more than what runs, and a third in the moment before the first ends, in
 * case that its end is seen late. Long ones: a newcomer would wait for every part that is out, so the next one goes out
 * in the last quarter of the one that runs. A newcomer then waits for two short parts or for one and a quarter of a
 * long one.
 *
 * Wrong when: a single block lasts longer than that quarter, or than a short part: then multiprocessors are idle.
 */
#include "parts/pace.h"

#include "client/state.h"
#include "page/bell.h"
#include "parts/state.h"

/* A part that lasts longer is long, and the next one goes out so long before its end: as long as a newcomer waits for
 * the device's own time slice anyway. */
#define FGW_LONG_PART_NS UINT64_C(2000000)
/* If that is more, the next one goes out in the last quarter: blocks that began by then end in time, as a rule. */
#define FGW_LONG_PART_DIVISOR 4u
/* The end of a part is seen within that, as a rule: what a nap is late. */
#define FGW_LATE_NS UINT64_C(50000)

static uint64_t part_ns(const struct fgw_variant *variant, uint64_t nr_blocks)
{
    return (uint64_t)((double)nr_blocks * (double)variant->block_ns_1024 / 1024.0);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t fgw_pace_blocks(const struct fgw_worker *worker)
{
    uint64_t block_ns_1024 = worker->slicing->parts.variant->block_ns_1024;
    uint64_t enough = block_ns_1024 == 0 ? 0 : worker->slicing->settings.part_ns * 1024 / block_ns_1024;
    return most(most(worker->slicing->settings.least_blocks, enough), 1);
}

uint64_t fgw_pace_begun_ns(const struct fgw_parts *parts)
{
    return parts->nr_in_flight == 0 ? 0 : most(parts->in_flight[0].submitted_ns, parts->done_ns);
}

/* How long the device will be at the parts that are out. */
static uint64_t left_ns(const struct fgw_parts *parts, uint64_t now_ns)
{
    uint64_t left = 0;
    for (uint32_t i = 0; i < parts->nr_in_flight; i++) {
        left += part_ns(parts->variant, parts->in_flight[i].nr_blocks);
    }
    uint64_t spent = now_ns - fgw_pace_begun_ns(parts);
    return left - least(spent, part_ns(parts->variant, parts->in_flight[0].nr_blocks));
}

bool fgw_pace_has_room(const struct fgw_worker *worker)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    if (parts->nr_in_flight == 0) {
        return true;
    }
    if (parts->variant->block_ns_1024 == 0 || parts->nr_in_flight == FGW_MAX_PARTS_IN_FLIGHT) {
        return false;
    }
    uint64_t next_ns = part_ns(parts->variant, fgw_pace_blocks(worker));
    uint64_t lead_ns = most(least(next_ns + FGW_LATE_NS, FGW_LONG_PART_NS), next_ns / FGW_LONG_PART_DIVISOR);
    return left_ns(parts, fgw_clock_ns()) < lead_ns;
}

void fgw_pace_learn(struct fgw_variant *variant, uint64_t nr_blocks, uint64_t took_ns)
{
    uint64_t sample = most((uint64_t)((double)took_ns * 1024.0 / (double)nr_blocks), 1);
    variant->block_ns_1024 = variant->block_ns_1024 == 0 ? sample : (variant->block_ns_1024 * 3 + sample) / 4;
}
