/*
 * A call enters the driver by one door, which takes the one lock.
 *
 * One lock guards everything but the work itself: handles, allocations, queues. Kernels and copies run outside it. A
 * driver for a CPU has no use for finer locks, since the work it hands out takes the same cores; one lock leaves no
 * order of locks to get wrong.
 *
 * Wrong when: kernels become so short that the lock is the bottleneck (some 10 million driver calls a second).
 */
#ifndef SOFTGPU_DRIVER_H
#define SOFTGPU_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api/types.h"

#define SGP_EXPORT     __attribute__((visibility("default")))
#define SGP_PAGE_BYTES 4096ull

/* Whether calls get in. */
enum sgp_door {
    SGP_OPEN,
    SGP_CLOSING, /* no call begins; those that have begun go on, and so does work */
    SGP_CLOSED,  /* nobody gets the lock but who closed the door, wherever he stands */
};

struct sgp_driver {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a command completed, a turn ended, or the door opened */
    enum sgp_door door;
    uint32_t nr_waiting;
    bool is_initialised;
    bool is_forked; /* this is a child of the process that called cuInit: nothing works here, as with CUDA */
    uint64_t next_id;
    void (*find_failures)(void); /* each call begins with it, with the lock */
};

extern struct sgp_driver sgp_driver;
/* This thread is in a host function of the program's, which may ask of events and make no other calls: what waits for
 * it would wait for ever. */
extern _Thread_local bool sgp_is_called;

void sgp_lock(void);
void sgp_unlock(void);
void sgp_wait(void);              /* with the lock: until something completed */
bool sgp_wait_until(uint64_t ns); /* as sgp_wait, until then of sgp_now_ns(); false: it is then */
void sgp_lock_closed(void);       /* for who closes and opens the door: as sgp_lock, whether it is closed or not */
void sgp_door_open(void);         /* with the lock */
void sgp_notify(void);            /* with the lock */
CUresult sgp_enter_driver(void);  /* locks; on error nothing is locked */
CUresult sgp_enter_driver_anywhere(void); /* the same, for a call that a host function may make */
CUresult sgp_leave(CUresult result);      /* unlocks */
/* How entering went, for a call that needs this argument, too: where it is NULL, an error, and nothing is locked. */
static inline CUresult sgp_with_argument(CUresult entered, const void *argument)
{
    return entered || argument ? entered : sgp_leave(CUDA_ERROR_INVALID_VALUE);
}

uint64_t sgp_new_id(void);
uint64_t sgp_now_ns(void);
void sgp_log(const char *area, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
