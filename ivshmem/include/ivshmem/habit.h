/*
 * How long something lasts as a rule: its mean and its mean deviation, as TCP's retransmission timer keeps them.
 * Whoever waits spins when an end is near and sleeps before that.
 *
 * The fields are atomic, so that threads may share a habit; a sample that is lost between two of them is missed by
 * nobody.
 *
 * Wrong when: what is measured alternates between few very different lengths. Mean and deviation then say "anything up
 * to the longest", and the deviation is all that is learnt; of waits, the shortest is.
 */
#ifndef IVSHMEM_HABIT_H
#define IVSHMEM_HABIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A sample is rarely further from the mean than so many deviations. */
#define FGV_HABIT_DEVIATIONS 4u
/* A wait that is more than so many times as long as the mean, or as short, is none of those before it. */
#define FGV_HABIT_OTHER 4u

struct fgv_habit {
    _Atomic uint64_t mean_ns; /* 0: nothing is known */
    _Atomic uint64_t deviation_ns;
    _Atomic uint64_t was_longer; /* of waits: the last one was no habit, or the first of another */
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
    if (mean_ns == 0) {
        fgv_habit_set(habit, sample_ns, sample_ns);
    } else {
        fgv_habit_set(habit, (mean_ns * 3 + sample_ns) / 4, (deviation_ns * 3 + off_ns) / 4);
    }
}

/*
 * One more wait. After a much longer one, that of a module's loading say, shorter ones are not spoilt for long. A much
 * longer one alone tells nothing of the next, as that for a turn of the GPU; a second one in a row does.
 */
static inline void fgv_habit_note_wait(struct fgv_habit *wait, uint64_t waited_ns)
{
    const uint64_t mean_ns = fgv_habit_mean_ns(wait);
    const bool is_longer = mean_ns != 0 && waited_ns / FGV_HABIT_OTHER > mean_ns;
    const bool was_longer = atomic_load_explicit(&wait->was_longer, memory_order_relaxed) != 0;
    if (is_longer != was_longer) {
        atomic_store_explicit(&wait->was_longer, is_longer, memory_order_relaxed);
    }
    if (waited_ns < mean_ns / FGV_HABIT_OTHER) {
        fgv_habit_set(wait, waited_ns, waited_ns);
    } else if (!is_longer || was_longer) {
        fgv_habit_note(wait, waited_ns);
    }
}

#endif
