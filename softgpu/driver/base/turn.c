/* Kernels of all processes take turns on a device (state.h), and none runs on one that has failed. Those of a space
 * run together: run.c. */
#include <fcntl.h>

#include "base/state.h"
#include "cuda_api/results.h"

/* Tickets wrap here; a wrap in the middle of a queue costs its order, not its exclusion. */
#define NR_TICKETS ((uint64_t)1 << 40)

static uint32_t failure_of(const struct sgp_state_header *header)
{
    return header->failure < CUDA_ERROR_UNKNOWN ? header->failure : CUDA_ERROR_UNKNOWN;
}

uint32_t sgp_state_failure(const struct sgp_state *state)
{
    struct sgp_state_header header;

    sgp_state_header_read(state, &header);
    return failure_of(&header);
}

uint64_t sgp_state_take_ticket(struct sgp_state *state)
{
    struct sgp_state_header header;
    uint64_t ticket;

    sgp_state_header_read(state, &header);
    ticket = header.next_ticket % NR_TICKETS;
    /* Another process may hold it already when the count was damaged. */
    for (int tries = 0; tries < 4096; tries++, ticket = (ticket + 1) % NR_TICKETS) {
        if (sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_WRLCK, SGP_STATE_TICKETS_OFFSET + (off_t)ticket, 1) == 0) {
            break;
        }
    }
    header.next_ticket = (ticket + 1) % NR_TICKETS;
    sgp_state_header_write(state, &header);
    return ticket;
}

void sgp_state_begin_kernel(struct sgp_state *state)
{
    uint64_t ticket;

    sgp_state_lock_counts(state);
    ticket = sgp_state_take_ticket(state);
    sgp_state_unlock_counts(state);
    if (ticket) {
        sgp_state_lock_bytes(state->fd, F_OFD_SETLKW, F_RDLCK, SGP_STATE_TICKETS_OFFSET, (off_t)ticket);
    }
    /* Contended by kernels of a space that are not the first of it, and after damage to the count: one kernel, or one
     * space's, holds even then. */
    sgp_state_lock_bytes(state->fd, F_OFD_SETLKW, F_WRLCK, SGP_STATE_RUNNING_BYTE, 1);
}

void sgp_state_count_kernel(struct sgp_state *state, uint64_t busy_ns)
{
    struct sgp_state_header header;

    sgp_state_header_read(state, &header);
    header.busy_ns += busy_ns;
    header.nr_kernels++;
    sgp_state_header_write(state, &header);
}

uint32_t sgp_state_end_kernel(struct sgp_state *state, uint64_t busy_ns)
{
    sgp_state_lock_counts(state);
    sgp_state_count_kernel(state, busy_ns);
    sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_UNLCK, SGP_STATE_TICKETS_OFFSET, 0);
    sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_UNLCK, SGP_STATE_RUNNING_BYTE, 1);
    sgp_state_unlock_counts(state);
    return sgp_state_failure(state);
}
