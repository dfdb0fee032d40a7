/* See state_records.h. */
#include "base/state_records.h"

#include <errno.h>
#include <fcntl.h>

int sgp_state_lock_bytes(int fd, int command, short type, off_t start, off_t length)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    int result;

    do {
        result = fcntl(fd, command, &lock);
    } while (result < 0 && errno == EINTR);
    return result;
}

void sgp_state_lock_counts(struct sgp_state *state)
{
    pthread_mutex_lock(&state->counts);
    sgp_state_lock_bytes(state->fd, F_OFD_SETLKW, F_WRLCK, SGP_STATE_COUNTS_BYTE, 1);
}

void sgp_state_unlock_counts(struct sgp_state *state)
{
    sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_UNLCK, SGP_STATE_COUNTS_BYTE, 1);
    pthread_mutex_unlock(&state->counts);
}
