/* See state_records.h. */
#include "base/state_records.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

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

bool sgp_state_header_read(const struct sgp_state *state, struct sgp_state_header *header)
{
    memset(header, 0, sizeof(*header));
    if (pread(state->fd, header, sizeof(*header), 0) == (ssize_t)sizeof(*header) && header->magic == SGP_STATE_MAGIC) {
        return true;
    }
    memset(header, 0, sizeof(*header));
    header->magic = SGP_STATE_MAGIC;
    return false;
}

void sgp_state_header_write(const struct sgp_state *state, const struct sgp_state_header *header)
{
    /* A count that cannot be written is lost; nothing rests on it. */
    if (pwrite(state->fd, header, offsetof(struct sgp_state_header, failure), 0) < 0) {
        return;
    }
}
