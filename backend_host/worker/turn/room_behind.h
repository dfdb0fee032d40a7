/*
 * How long the room that a round asked for stands behind it.
 *
 * To give room and to take it back costs best effort tens of microseconds, and a round that finds blocks there waits
 * for one of them. While the room stands best effort does without it. So it stands for a moment, for rounds that follow
 * soon, and not at all where the next one is not expected within that moment.
 *
 * Wrong when: pauses change from long to short. The first short one finds best effort there.
 */
#ifndef BACKEND_HOST_ROOM_BEHIND_H
#define BACKEND_HOST_ROOM_BEHIND_H

#include "ivshmem/habit.h"

/* Where it stood for as long as the pauses between rounds usually last, rounds each 2 ms left best effort 0.2 of an
 * H100 where turns left it 0.57 (docs/lab/space.md). */
#define FGW_ROOM_NS UINT64_C(500000)

/* `pauses`: those between rounds. */
static inline uint64_t fgw_room_stands_ns(const struct fgv_habit *pauses)
{
    const uint64_t mean_ns = fgv_habit_mean_ns(pauses);
    const uint64_t deviation_ns = atomic_load_explicit(&pauses->deviation_ns, memory_order_relaxed);
    return mean_ns > deviation_ns && mean_ns - deviation_ns > FGW_ROOM_NS ? 0 : FGW_ROOM_NS;
}

#endif
