/*
 * What the library tells a person, on stderr: one line for a cause that stops the program, each cause once per process;
 * more when asked.
 *
 * FAIRGV_LOG=off says nothing at all; `calls` prints counts when the program ends; `handshake` prints what the runtime
 * asked for in vain (cuda_api/handshake does that); `all` is both, and each name that was looked up in vain. Words may
 * be joined with commas.
 */
#ifndef FRONTEND_GUEST_LOG_H
#define FRONTEND_GUEST_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Each of these is said at most once in a process. */
enum fgv_cause {
    FGV_CAUSE_NO_REGION,
    FGV_CAUSE_WRONG_VERSION,
    FGV_CAUSE_WRONG_TABLE,
    FGV_CAUSE_DAMAGED,
    FGV_CAUSE_HOST_DOWN,
    FGV_CAUSE_FULL,
    FGV_CAUSE_REFUSED,
    FGV_CAUSE_LOST,
    FGV_CAUSE_FORKED,
    FGV_CAUSE_SYSTEM,
    FGV_CAUSE_MANAGED_VARIABLE,
    FGV_CAUSE_NR
};

void fgv_log_cause(enum fgv_cause cause, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True under FAIRGV_LOG=calls and =all: somebody wants the counts below. */
bool fgv_log_wants_calls(void);

/* Counted only when wanted; relaxed, since they are read once, at the end. */
struct fgv_counts {
    _Atomic uint64_t nr_calls;         /* records sent */
    _Atomic uint64_t nr_round_trips;   /* ... that somebody waited for */
    _Atomic uint64_t nr_request_bytes; /* in the ring */
    _Atomic uint64_t nr_to_device_bytes;
    _Atomic uint64_t nr_from_device_bytes;
    _Atomic uint64_t nr_refused_lookups; /* names asked of cuGetProcAddress that we do not have */
};
extern struct fgv_counts fgv_counts;

static inline void fgv_count(_Atomic uint64_t *counter, uint64_t amount)
{
    if (fgv_log_wants_calls())
        atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

void fgv_log_name(const char *what, const char *name); /* under `all`: one line about one name */
void fgv_log_counts(void);                             /* under `calls`: the counts, at the end */

#endif
