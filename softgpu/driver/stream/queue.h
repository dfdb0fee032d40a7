/* Streams are queues, which threads of the driver empty. All with the lock. */
#ifndef SOFTGPU_QUEUE_H
#define SOFTGPU_QUEUE_H

#include "stream/records.h"

bool sgp_queue_start(void); /* the first executor thread */
/* Every thread that runs kernels begins with this, without the lock: a stack for the handlers of their faults. */
void sgp_queue_thread_start(void);
CUresult sgp_queue_submit(struct CUstream_st *stream, struct sgp_command *command, uint64_t *sequence);
CUresult sgp_queue_submit_and_wait(struct CUstream_st *stream, struct sgp_command *command);
CUresult sgp_queue_depend(struct sgp_command *command, struct CUstream_st *stream, uint64_t sequence);
void sgp_queue_wait(struct CUstream_st *stream, uint64_t sequence);
void sgp_queue_drain(struct CUctx_st *context); /* gives up the lock until all that was submitted so far is done */
void sgp_queue_rest(void); /* gives up the lock until no command runs that uses memory; others may begin after that */
bool sgp_queue_is_empty(void); /* nothing is to be run, in any stream */
bool sgp_queue_is_idle(const struct CUstream_st *stream);
CUresult sgp_command_in_order(struct sgp_command *command); /* run: nothing but to be in order, by an executor */
void sgp_command_free(struct sgp_command *command);         /* finish: of one that refers to nothing */

#endif
