/*
 * A device library that stands in for the driver's while the worker is fuzzed: it computes nothing, keeps a list of
 * what is alive, and stops the fuzzer at a handle that is dead or of another kind. Any call may fail, or say that work
 * is not ready, as the input's dice have it.
 */
#ifndef TESTS_FUZZ_STAND_IN_H
#define TESTS_FUZZ_STAND_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api/driver.h"
#include "cuda_api/types.h"
#include "cuda_api/wire.h"
#include "stand_in_calls.h"

struct stand_dice {
    uint64_t seed;
    uint32_t fails_of_256;
    uint32_t busy_of_256; /* how often work has not ended */
    int64_t fail_at;      /* this call of all fails, -1: none */
    bool can_fault;       /* an error may be a sticky one */
    bool tells;           /* which call failed, with STAND_ERROR */
};

#define STAND_ERROR ((CUresult)7777)

/* Begins an execution. `shared` is memory that the guest may write at any time. */
void stand_begin(const struct stand_dice *dice, uint8_t *shared, size_t shared_bytes);
/* Others from here on; a worker that begins needs what it asks for. */
void stand_dice_cast(const struct stand_dice *dice, uint8_t *shared, size_t shared_bytes);
/* From here on nothing fails and all work has ended. */
void stand_calm(void);
/* Stops the fuzzer at an object that is alive and not known. */
typedef bool (*stand_is_known)(void *data, uint32_t kind, const void *object);
void stand_look(stand_is_known is_known, void *data);
/* Stops the fuzzer at a context that is alive. Ends the rest, as the driver does with the process. */
void stand_finish(void);
uint64_t stand_nr_calls(void);
/* Runs the function of the host that a stream came to first, as a thread of the driver would. False: there is none. */
bool stand_run_host(void);
/* Whether the other side of something is not as far yet. */
bool stand_is_busy(void);

/* What the generated calls ask. */
CUresult stand_call(unsigned int index, const char *name);
void stand_need(enum fgv_handle_kind kind, const void *handle);
void *stand_make(enum fgv_handle_kind kind, void *parent);
void stand_end(void *object);
void stand_excuse(void *object);
/* What a call answers that asks for a number: the same whenever it is asked. */
uint64_t stand_number(unsigned int index);
_Noreturn void stand_stop(const char *why, const char *what);

#endif
