/*
 * The context of a thread that has none current, for the time of one call that names something of a context: CUDA asks
 * for a current one only where nothing else tells which is meant. generated/loans.c has the calls.
 */
#ifndef FRONTEND_GUEST_LOAN_H
#define FRONTEND_GUEST_LOAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/handles.h"
#include "base/thread.h"
#include "cuda_api/types.h"

static inline bool fgv_loan_is_due(void)
{
    return __builtin_expect(fgv_thread.current == 0, 0);
}
/* Makes the context of a stream, event, module, function or array the calling thread's; false where that has none: the
 * call then finds no context. */
bool fgv_loan_take(enum fgv_handle_kind kind, uint64_t handle);
/* The same with that of the memory at an address. */
bool fgv_loan_take_at(uint64_t address);
/* Takes it back, and passes on what the call gave. */
CUresult fgv_loan_return(CUresult result);

#endif
