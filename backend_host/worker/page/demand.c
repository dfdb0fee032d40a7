#include "page/demand.h"

#include "page/sets.h"

static uint64_t counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static struct fgw_demand_reading read_one(struct fgw_control *control, uint32_t slot, uint32_t vgpu)
{
    const struct fgw_worker_slot *own = &control->own[vgpu]->workers[slot];
    return (struct fgw_demand_reading){
        .slot = slot,
        .vgpu = vgpu,
        .pid = atomic_load(&control->decided->workers[slot].pid),
        .waits = fgw_set_has(&control->grant->waiting, slot) || counted(&own->displaced_since_ns) != 0,
        .last_error = counted(&own->last_error),
        .gpu_ns = counted(&own->gpu_ns),
        .busy_ns = counted(&own->busy_ns),
        .waited_ns = counted(&own->wait_ns) + counted(&own->limited_ns) + counted(&own->displaced_ns),
        .stalled_since_ns = counted(&own->stalled_since_ns),
    };
}

uint32_t fgw_control_demands(struct fgw_control *control, struct fgw_demand_reading *readings)
{
    uint32_t nr = 0;
    for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
        uint32_t vgpu;
        if (fgw_slot_serves(control, slot, &vgpu)) {
            readings[nr++] = read_one(control, slot, vgpu);
        }
    }
    return nr;
}
