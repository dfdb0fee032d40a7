#include "page/hand_over.h"

#include "base/count.h"
#include "page/bell.h"
#include "page/outlook.h"

static struct fgw_hand_over *entry_of(struct fgw_control *control, uint32_t sequence)
{
    return &control->grant->hand_overs[sequence % FGW_NR_HAND_OVERS];
}

void fgw_hand_over_note(struct fgw_control *control, uint64_t word, uint64_t next, uint32_t why)
{
    const uint32_t sequence = FGW_GRANT_SEQUENCE(next);
    struct fgw_hand_over *entry = entry_of(control, sequence);
    atomic_store(&entry->sequence, sequence - 1); /* of another entry: whoever reads meanwhile finds none here */
    atomic_store_explicit(&entry->giver, fgw_grant_holder(word), memory_order_relaxed);
    atomic_store_explicit(&entry->taker, fgw_grant_holder(next), memory_order_relaxed);
    atomic_store_explicit(&entry->why, (uint16_t)why, memory_order_relaxed);
    atomic_store_explicit(&entry->phase, (uint16_t)FGW_GRANT_PHASE(word), memory_order_relaxed);
    atomic_store_explicit(&entry->at_ns, fgw_clock_ns(), memory_order_relaxed);
    atomic_store(&entry->sequence, sequence);
}

void fgw_hand_over_enter(struct fgw_control *control, uint64_t word, uint64_t now_ns)
{
    struct fgw_hand_over *entry = entry_of(control, FGW_GRANT_SEQUENCE(word));
    const uint64_t entered = fgw_stamp(FGW_GRANT_SEQUENCE(word), now_ns);
    const uint64_t before = atomic_load_explicit(&entry->entered, memory_order_relaxed);
    if (fgw_stamp_tag(before) != fgw_stamp_tag(entered)) {
        atomic_store_explicit(&entry->entered, entered, memory_order_relaxed);
    }
}

void fgw_hand_over_waited(struct fgw_worker_slot *slot, uint64_t waited_ns)
{
    static const uint64_t bounds_ns[] = FGV_NR_WAITS_BOUNDS_NS;
    uint32_t place = 0;
    if (waited_ns == 0) {
        return;
    }
    while (place < sizeof(bounds_ns) / sizeof(bounds_ns[0]) && waited_ns > bounds_ns[place]) {
        place++;
    }
    fgw_count(&slot->nr_waits[place], 1);
    fgw_count(&slot->wait_ns, waited_ns);
}

static bool read_entry(struct fgw_control *control, uint32_t sequence, struct fgw_hand_over_reading *reading)
{
    const struct fgw_hand_over *entry = entry_of(control, sequence);
    if (atomic_load(&entry->sequence) != sequence) {
        return false;
    }
    const uint64_t entered = atomic_load_explicit(&entry->entered, memory_order_relaxed);
    const uint32_t giver = atomic_load_explicit(&entry->giver, memory_order_relaxed);
    const uint32_t taker = atomic_load_explicit(&entry->taker, memory_order_relaxed);
    const uint32_t why = atomic_load_explicit(&entry->why, memory_order_relaxed);
    *reading = (struct fgw_hand_over_reading){
        .sequence = sequence,
        .giver = fgw_is_vgpu(giver) ? giver : FGW_NOBODY,
        .taker = fgw_is_vgpu(taker) ? taker : FGW_NOBODY,
        .why = why <= FGW_WHY_LAST ? why : FGW_WHY_FREE,
        .is_entered = fgw_stamp_tag(entered) == fgw_stamp_tag(fgw_stamp(sequence, 0)),
        .phase = atomic_load_explicit(&entry->phase, memory_order_relaxed),
        .at_ns = atomic_load_explicit(&entry->at_ns, memory_order_relaxed),
    };
    const uint64_t gap_ns = (entered - reading->at_ns) & FGW_SLICE_TIME_MASK;
    reading->gap_ns = gap_ns >> (FGW_SLICE_TIME_BITS - 1) ? 0 : gap_ns; /* it was in before that was written down */
    return atomic_load(&entry->sequence) == sequence;
}

uint32_t fgw_control_hand_overs(struct fgw_control *control, uint32_t sequence, struct fgw_hand_over_reading *readings)
{
    const uint32_t last = FGW_GRANT_SEQUENCE(atomic_load(&control->grant->word));
    uint32_t nr_more = last - sequence, nr = 0;
    nr_more = nr_more < FGW_NR_HAND_OVERS ? nr_more : FGW_NR_HAND_OVERS;
    for (uint32_t number = last - nr_more + 1; nr_more != 0; number++, nr_more--) {
        nr += read_entry(control, number, &readings[nr]);
    }
    return nr;
}
