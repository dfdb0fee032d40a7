/*
 * Kernels that give way by themselves (docs/yield.md).
 *
 * A context may have one word in its device memory, which its kernels look at: not zero, it asks them to end soon, with
 * what they did so far kept. It is set when the turn is over, by the end of the slice or for a newcomer, and before the
 * client is paused; it is zero again before the next turn's first submission. Both are memory operations on a stream
 * of the worker's own, so they keep their order, and need no multiprocessor. A kernel that does not end is taken for
 * one without a word: nothing is ended for it.
 *
 * Whether the address is the client's is the caller's affair (calls/yield.c).
 *
 * Wrong when: the driver puts that stream on the device's queue of the kernel that is asked (there are 8 for a process
 * unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise). The word then comes behind its end, also where it was detached
 * meanwhile: to wait for that without a bound would hang a kernel that waits for the client.
 */
#ifndef BACKEND_HOST_YIELD_H
#define BACKEND_HOST_YIELD_H

#include "turn/state.h"

/* This word is the context's from now on; no other is. It is zero before anything more is submitted. */
void fgw_yield_attach(struct fgw_worker *worker, struct fgw_context *context, uint64_t word);
/* The word is the context's no more, if it lies in these bytes: nothing more is written there, and what was is waited
 * for, but not for ever. */
void fgw_yield_detach(struct fgw_worker *worker, struct fgw_context *context, uint64_t address, uint64_t bytes);
/* The same for any context: these bytes are about to be freed. */
void fgw_yield_forget(struct fgw_worker *worker, uint64_t address, uint64_t bytes);

/* Tells whether something is on the device that may look at a word. */
bool fgw_yield_can_ask(const struct fgw_worker *worker);
/* Sets all words that are not set, if there is. */
void fgw_yield_ask(struct fgw_worker *worker);
/* Tells whether all words are zero again, and sees to it that they soon are. */
bool fgw_yield_is_over(struct fgw_worker *worker);
/* Tells whether the device has come to all that was written. */
bool fgw_yield_is_settled(struct fgw_worker *worker);
/* The loop calls it after each look at the turn: it asks what has to pause, takes words back in a new turn, and counts
 * ends. */
void fgw_yield_poll(struct fgw_worker *worker);

#endif
