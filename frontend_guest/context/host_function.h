/*
 * Host functions: what a program puts into a stream to be called here (cuLaunchHostFunc, cuStreamAddCallback).
 *
 * The worker knows a function by a number. One thread of this library, made when the first function is put anywhere,
 * waits at a response slot of its own for the next number, calls the function, and sets the slot to WAITING again,
 * which tells the worker that it has returned. So functions run one at a time, in the order of their streams.
 */
#ifndef FRONTEND_GUEST_HOST_FUNCTION_H
#define FRONTEND_GUEST_HOST_FUNCTION_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"
#include "cuda_api/values.h"

/* The thread that runs them, as the kernel knows it; 0: there is none yet. */
uint32_t fgv_host_function_thread(void);
/* Whether a function that was put into the stream has not returned yet. */
bool fgv_host_function_is_ahead(uint64_t stream);
/* For a node of a graph: the number stands for the function, with this data, until it is dropped as often as it was
 * kept, however often it is run. `forgotten`, or NULL, is called with the data then. */
CUresult fgv_host_function_keep(CUhostFn function, void *data, void (*forgotten)(void *data), uint64_t *number);
void fgv_host_function_drop(uint64_t number);
/* Puts one that was kept into the graph that the stream captures, which has it from then on; if that fails it is
 * dropped. */
CUresult fgv_host_function_capture(uint64_t stream, uint64_t number, enum fgv_host_node kind);
/* The owner, a graph or what was instantiated of one, has a node with the function of this number, which was kept for
 * it. */
void fgv_host_function_own(uint64_t owner, uint64_t number);
/* Whether the owner has a function whose number is such a one. */
bool fgv_host_function_is_owned(uint64_t owner, bool (*is_one)(uint64_t number));
/* The function of such a number; false when there is none. */
bool fgv_host_function_find(uint64_t number, CUDA_HOST_NODE_PARAMS *params);

#endif
