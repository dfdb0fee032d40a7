/*
 * How long something lasts as a rule: its mean and its mean deviation, as TCP's retransmission timer keeps them.
 * Whoever waits spins when an end is near and sleeps before that.
 *
 * The fields are atomic, so that threads may share a habit; a sample that is lost between two of them is missed by
 * nobody.
 *
 * Wrong when: what is measured alternates between few very different lengths. Mean and deviation then say "anything up
 * to the longest", and the deviation is all that is learnt.
 */
#ifndef IVSHMEM_HABIT_H
#define IVSHMEM_HABIT_H

#include <stdatomic.h>
#include <stdint.h>

/* A sample is rarely further from the mean than so many deviations. */
#define FGV_HABIT_DEVIATIONS 4u

struct fgv_habit {
    _Atomic uint64_t mean_ns; /* 0: nothing is known */
    _Atomic uint64_t deviation_ns;
};

static inline uint64_t fgv_habit_mean_ns(const struct fgv_habit *habit)
{
    return atomic_load_explicit(&habit->mean_ns, memory_order_relaxed);
}

/* How far from the mean a sample hardly ever is. */
static inline uint64_t fgv_habit_spread_ns(const struct fgv_habit *habit)
{
    return FGV_HABIT_DEVIATIONS * atomic_load_explicit(&habit->deviation_ns, memory_order_relaxed);
}

/* What a sample hardly ever exceeds; `unknown_ns` while nothing is known. */
static inline uint64_t fgv_habit_most_ns(const struct fgv_habit *habit, uint64_t unknown_ns)
{
    const uint64_t mean_ns = fgv_habit_mean_ns(habit);
    return mean_ns == 0 ? unknown_ns : mean_ns + fgv_habit_spread_ns(habit);
}

static inline void fgv_habit_set(struct fgv_habit *habit, uint64_t mean_ns, uint64_t deviation_ns)
{
    atomic_store_explicit(&habit->mean_ns, mean_ns, memory_order_relaxed);
    atomic_store_explicit(&habit->deviation_ns, deviation_ns, memory_order_relaxed);
}

/* One more sample, which counts for a quarter. After the first the deviation is as large as the mean. */
static inline void fgv_habit_note(struct fgv_habit *habit, uint64_t sample_ns)
{
    uint64_t mean_ns = fgv_habit_mean_ns(habit);
    uint64_t deviation_ns = atomic_load_explicit(&habit->deviation_ns, memory_order_relaxed);
    uint64_t off_ns = sample_ns > mean_ns ? sample_ns - mean_ns : mean_ns - sample_ns;
    if (mean_ns == 0)
        fgv_habit_set(habit, sample_ns, sample_ns);
    else
        fgv_habit_set(habit, (mean_ns * 3 + sample_ns) / 4, (deviation_ns * 3 + off_ns) / 4);
}

#endif
