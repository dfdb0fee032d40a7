/*
 * Copies beside other vGPUs' kernels. A GPU has engines of their own for what goes between host and device, so such
 * copies need no turn: those of 64 KiB and more take as long beside another process' kernels as alone, and the kernels
 * lose next to nothing (docs/lab/copies.md). A program that stages its data by the CPU uses these engines for a quarter
 * of the time that its copies take; were that part of its turn, the rest of the GPU would stand still.
 *
 * So a copy of a worker whose kernels are done goes to the device although another vGPU has its turn, and is not
 * charged. Who holds the grant and has nothing but copies left hands it on, if it will have it back soon after.
 *
 * Copies do take from other copies, so they are on credit; without it they take turns, and are charged, as kernels are.
 * Those that a CPU stages have as much as a CPU can stage, a third of what an engine can do. Those of a guest's pinned
 * memory can take all of an engine, and their credit comes back only while a worker does not copy.
 *
 * Wrong when: kernels need what the copies do, the host's memory say. They are slowed down, and nobody is charged for
 * it.
 */
#ifndef BACKEND_HOST_BESIDE_H
#define BACKEND_HOST_BESIDE_H

#include "client/service.h"
#include "page/outlook.h"
#include "turn/state.h"

void fgw_beside_init(struct fgw_worker *worker);
/* Tells whether this copy may be submitted now without a turn. One that holds the grant may lose it. */
bool fgw_beside_begin(struct fgw_worker *worker, const struct fgw_request *request);
/* So many are on their way that the next one has to wait for them. */
bool fgw_beside_is_full(const struct fgw_worker *worker);
/* The copy that was asked for has been submitted, in a turn or in none. */
void fgw_beside_submitted(struct fgw_worker *worker);
/* Something of the kind at hand is about to be submitted to the stream. */
void fgw_beside_prepare(struct fgw_worker *worker, struct fgw_stream *stream);
/* Tells whether copies are on their way in this stream: what comes next in it would have a turn and wait for them. */
bool fgw_beside_is_before(const struct fgw_stream *stream);
/* A look at each round. True: the worker has handed its turn on, and all stand differently now. */
bool fgw_beside_poll(struct fgw_worker *worker, struct fgw_outlook *outlook);

#endif
