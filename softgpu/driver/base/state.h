/*
 * The one device that all processes of a machine share: a file, of which only the locks on its bytes can be relied on.
 *
 * What must hold even when a process is killed, or writes rubbish into the file (anybody may, as anybody may open
 * /dev/nvidia0), rests on open file description locks, which the kernel gives back at a process's end. What is written
 * in the file only counts, or says that the device has failed: rubbish there makes the counts rubbish or fails the
 * device, and nothing else. It is read and written with pread and pwrite, never mapped: a truncated file would
 * otherwise be a SIGBUS.
 *
 *     bytes of the file      what is there                       what a lock on it means
 *     0 .. 63                struct sgp_state_header             byte 0: the counts are being changed;
 *                                                                byte 1: a kernel runs
 *     64 .. 64 + 16 * 4096   struct sgp_state_slot; the first    the first byte of a slot: its holder lives
 *                            says how many were ever taken
 *     behind that            128 of struct sgp_state_run         the first byte: its kernel's process lives
 *     2^32 + n               nothing (past the end)              ticket n is waiting or being served
 *
 * Turns are first come, first served: a process takes the next ticket, locks its byte and then waits until all bytes
 * below are free.
 *
 * Kernels of a space run together; what more is locked for them stands in run.c.
 *
 * A slot is that of a process, which locks it for itself, or that of memory which processes share: each of them holds a
 * read lock on it, so that the memory counts once, and as long as one of them lives.
 *
 * Wrong when: the file system has no such locks (it must be a local one), or more than 4096 processes and shared pieces
 * of memory count at once (CUDA_ERROR_OUT_OF_MEMORY).
 */
#ifndef SOFTGPU_STATE_H
#define SOFTGPU_STATE_H

#include "base/state_records.h"

/* NULL: the file could not be opened or made; errno tells why. */
struct sgp_state *sgp_state_open(const char *path);
void sgp_state_close(struct sgp_state *state); /* which this process has counted nothing in any more */
void sgp_state_close_in_child(struct sgp_state *state);

/* Accounts `bytes` more to this process unless all processes together would pass capacity_bytes. */
bool sgp_state_reserve(struct sgp_state *state, uint64_t bytes, uint64_t capacity_bytes);
void sgp_state_give_back(struct sgp_state *state, uint64_t bytes);
uint64_t sgp_state_used_bytes(struct sgp_state *state);
uint64_t sgp_state_own_bytes(struct sgp_state *state); /* of this process */

/* Which device it is: the same in all processes. */
void sgp_state_identity(const struct sgp_state *state, uint64_t identity[2]);

/* A slot for memory that is to be shared, of no bytes yet; false: none is free. */
bool sgp_state_share(struct sgp_state *state, struct sgp_state_holder *shared);
/* Bytes of this process become the shared memory's, or with less than 0 the contrary. */
void sgp_state_move(struct sgp_state *state, const struct sgp_state_holder *shared, int64_t bytes);
/* Holds shared memory that another process made. If all let go of it before, it is made again, and `shared` is the new
 * one. False: no slot is free. */
bool sgp_state_join(struct sgp_state *state, struct sgp_state_holder *shared, uint64_t bytes);
void sgp_state_part(struct sgp_state *state, const struct sgp_state_holder *shared);
bool sgp_state_has_shared(struct sgp_state *state); /* this process holds shared memory */

/* This process, for others to ask whether it lives; false: no slot is free. */
bool sgp_state_self(struct sgp_state *state, struct sgp_state_holder *self);
bool sgp_state_lives(struct sgp_state *state, const struct sgp_state_holder *holder);

/* The CUresult that a test has injected; 0: the device is in order. Safe in any thread, without the lock. */
uint32_t sgp_state_failure(const struct sgp_state *state);

/* Blocks until it is this process's turn. One thread of a process at a time. */
void sgp_state_begin_kernel(struct sgp_state *state);
uint32_t sgp_state_end_kernel(struct sgp_state *state, uint64_t busy_ns); /* as sgp_state_failure() */

#endif
