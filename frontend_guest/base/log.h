/*
 * What the library tells a person, on stderr: one line for a cause that stops the program, each cause once per process;
 * more when asked.
 *
 * FAIRGV_LOG=off says nothing at all; `calls` prints counts when the program ends; `handshake` prints what the runtime
 * asked for in vain (cuda_api/common/handshake does that); `all` is both, and each name that was looked up in vain.
 * Words may be joined with commas.
 */
#ifndef FRONTEND_GUEST_LOG_H
#define FRONTEND_GUEST_LOG_H

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
    FGV_CAUSE_UNTRACED,
    FGV_CAUSE_MANAGED_VARIABLE,
    FGV_CAUSE_MANAGED,
    FGV_CAUSE_MANAGED_TRAP,
    FGV_CAUSE_MANAGED_WAIT,
    FGV_CAUSE_MANAGED_PLACE,
    FGV_CAUSE_TOOL,
    FGV_CAUSE_NO_WINDOW,
    FGV_CAUSE_REGION_FULL,
    FGV_CAUSE_NR
};

void fgv_log_cause(enum fgv_cause cause, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Counted only when somebody wants it: under FAIRGV_LOG=calls and =all, and while calls are traced (trace.h). */
enum fgv_counter {
    FGV_COUNT_CALLS,         /* records sent */
    FGV_COUNT_ROUND_TRIPS,   /* ... that somebody waited for */
    FGV_COUNT_REQUEST_BYTES, /* in the ring */
    FGV_COUNT_REPLY_BYTES,   /* in response slots */
    FGV_COUNT_TO_DEVICE_BYTES,
    FGV_COUNT_FROM_DEVICE_BYTES,
    FGV_COUNT_REFUSED_LOOKUPS, /* names asked of cuGetProcAddress that we do not have */
    FGV_COUNT_NR
};
extern bool fgv_counting; /* set before main */
/* FGV_COUNT_NR sums of the call that the thread is in, which the same is added to. NULL while it is in none. */
extern _Thread_local uint64_t *fgv_counting_call __attribute__((tls_model("initial-exec")));

void fgv_count_add(enum fgv_counter counter, uint64_t amount);

static inline void fgv_count(enum fgv_counter counter, uint64_t amount)
{
    if (__builtin_expect(fgv_counting, 0)) {
        fgv_count_add(counter, amount);
    }
}

void fgv_log_name(const char *what, const char *name); /* under `all`: one line about one name */
void fgv_log_counts(void);                             /* under `calls`: the counts, at the end */

#endif
