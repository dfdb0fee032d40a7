/*
 * Rounds of a critical program, and the split word by which best effort of its space makes room for them.
 *
 * A round is from a first submission, when the program had nothing on the device, to the end of all of it. In front of
 * its first work, on the same stream, the word is set to what the daemon decided; one round in 53 asks for all of
 * the device, which is what others are compared with. The word is taken back by the worker behind the round
 * (room_behind.h). While other work of the program waits, for a value, a host function or a copy, the same stream may
 * have to wait, too, for ever: then the word is set in a stream of the worker's own. Work that had waited and goes on
 * begins a round as well, which is not told, as nobody knows since when it went on.
 *
 * One that takes turns as all do, as it is not urgent, asks for nothing, nor does one that was urgent when it began: a
 * round may last for ever.
 *
 * Others write the word, too: other programs of the vGPU, and the daemon for one that died. So what stands there is
 * what the account says, and a worker knows of itself whether it has to take it back.
 *
 * Wrong when: two programs of one critical vGPU have rounds at the same time. The word is taken back when one of them
 * is idle, unless the other still has work on the device.
 */
#ifndef BACKEND_HOST_ROUND_H
#define BACKEND_HOST_ROUND_H

#include "turn/state.h"

struct fgw_context;
struct fgw_request;
struct fgw_stream;

/* The split word of its space is here. */
void fgw_round_know_word(struct fgw_worker *worker, uint64_t address);
/* Work of this request is about to be submitted to the stream. */
void fgw_round_submit(struct fgw_worker *worker, struct fgw_stream *stream, const struct fgw_request *request);
/* Ends a round, begins one of work that had waited, and takes the word back in time. */
void fgw_round_poll(struct fgw_worker *worker, uint64_t now_ns);
/* Gives how long until the word is to be taken back, or until it is time to look whether another program of the vGPU
 * has ended its work, whose room it is, too; UINT64_MAX: it is not. */
uint64_t fgw_round_due_in_ns(const struct fgw_worker *worker, uint64_t now_ns);
/* This context, the current one, is about to be destroyed: without any nobody could take the word back. */
void fgw_round_context_ends(struct fgw_worker *worker, const struct fgw_context *context);
/* The program is at its end. */
void fgw_round_end(struct fgw_worker *worker);

#endif
