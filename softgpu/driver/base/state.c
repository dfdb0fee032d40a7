/* See state.h: the shared file of one device. */
#include "base/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNTS_BYTE    0
#define RUNNING_BYTE   1
#define SLOTS_OFFSET   ((off_t)sizeof(struct sgp_state_header))
#define TICKETS_OFFSET ((off_t)1 << 32)
#define NR_TICKETS                                                                                                     \
    ((uint64_t)1 << 40) /* tickets wrap here; a wrap in the middle of a queue costs its order, not its exclusion */
#define FILE_BYTES (SLOTS_OFFSET + (off_t)(SGP_STATE_NR_SLOTS * sizeof(uint64_t)))

_Static_assert(sizeof(struct sgp_state_header) == 64, "the header's size is the slots' offset");

struct sgp_state {
    int fd;
    int slot; /* -1: none yet */
    uint64_t used_bytes;
};

static int lock_bytes(int fd, int command, short type, off_t start, off_t length)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    int result;

    do {
        result = fcntl(fd, command, &lock);
    } while (result < 0 && errno == EINTR);
    return result;
}

static void lock_counts(const struct sgp_state *state)
{
    lock_bytes(state->fd, F_OFD_SETLKW, F_WRLCK, COUNTS_BYTE, 1);
}

static void unlock_counts(const struct sgp_state *state)
{
    lock_bytes(state->fd, F_OFD_SETLK, F_UNLCK, COUNTS_BYTE, 1);
}

static void header_read(const struct sgp_state *state, struct sgp_state_header *header)
{
    memset(header, 0, sizeof(*header));
    if (pread(state->fd, header, sizeof(*header), 0) != (ssize_t)sizeof(*header) || header->magic != SGP_STATE_MAGIC) {
        memset(header, 0, sizeof(*header));
        header->magic = SGP_STATE_MAGIC;
    }
}

static void header_write(const struct sgp_state *state, const struct sgp_state_header *header)
{
    /* A count that cannot be written is lost; nothing rests on it. */
    if (pwrite(state->fd, header, sizeof(*header), 0) < 0) {
        return;
    }
}

/*
 * Not open with O_CREAT: in a sticky directory Linux may refuse that for a file that another user made. Not open, then
 * fchmod: somebody may come in between. So a file with the right mode is made under another name, and linked.
 */
static int state_create(const char *path)
{
    char temporary[PATH_MAX];
    int fd;

    if (snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= (int)sizeof(temporary)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    if (fchmod(fd, 0666) < 0 || ftruncate(fd, FILE_BYTES) < 0 || (link(temporary, path) < 0 && errno != EEXIST)) {
        unlink(temporary);
        close(fd);
        return -1;
    }
    unlink(temporary);
    close(fd);
    return open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
}

struct sgp_state *sgp_state_open(const char *path)
{
    struct sgp_state *state = malloc(sizeof(*state));
    struct stat status;

    if (!state) {
        return NULL;
    }
    *state = (struct sgp_state){.fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW), .slot = -1};
    if (state->fd < 0 && errno == ENOENT) {
        state->fd = state_create(path);
    }
    if (state->fd < 0) {
        free(state);
        return NULL;
    }
    if (fstat(state->fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        close(state->fd);
        free(state);
        errno = EINVAL;
        return NULL;
    }
    return state;
}

void sgp_state_close_in_child(struct sgp_state *state)
{
    /* The locks belong to the open file, which a forked child shares: it would keep a dead parent's turn and memory. */
    close(state->fd);
    state->fd = -1;
}

static off_t slot_offset(int slot)
{
    return SLOTS_OFFSET + (off_t)slot * (off_t)sizeof(uint64_t);
}

static bool slot_is_alive(const struct sgp_state *state, int slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot_offset(slot), .l_len = 1};

    return fcntl(state->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* With the counts locked: what others use, the dead ones' slots emptied on the way. */
static uint64_t used_by_others(struct sgp_state *state)
{
    uint64_t slots[SGP_STATE_NR_SLOTS] = {0}, sum = 0, zero = 0;
    ssize_t got = pread(state->fd, slots, sizeof(slots), SLOTS_OFFSET);

    for (int i = 0; i < SGP_STATE_NR_SLOTS && (ssize_t)((size_t)i * sizeof(slots[0])) < got; i++) {
        if (!slots[i] || i == state->slot) {
            continue;
        }
        if (slot_is_alive(state, i)) {
            sum = sum + slots[i] < sum ? UINT64_MAX : sum + slots[i];
        } else if (pwrite(state->fd, &zero, sizeof(zero), slot_offset(i)) < 0) {
            break;
        }
    }
    return sum;
}

static bool slot_take(struct sgp_state *state)
{
    for (int i = 0; i < SGP_STATE_NR_SLOTS && state->slot < 0; i++) {
        if (lock_bytes(state->fd, F_OFD_SETLK, F_WRLCK, slot_offset(i), 1) == 0) {
            state->slot = i;
        }
    }
    return state->slot >= 0;
}

static void slot_write(const struct sgp_state *state)
{
    if (pwrite(state->fd, &state->used_bytes, sizeof(state->used_bytes), slot_offset(state->slot)) < 0) {
        return;
    }
}

bool sgp_state_reserve(struct sgp_state *state, uint64_t bytes, uint64_t capacity_bytes)
{
    uint64_t others;
    bool fits;

    lock_counts(state);
    others = used_by_others(state);
    fits = slot_take(state) && bytes <= capacity_bytes && state->used_bytes <= capacity_bytes - bytes &&
           others <= capacity_bytes - bytes - state->used_bytes;
    if (fits) {
        state->used_bytes += bytes;
        slot_write(state);
    }
    unlock_counts(state);
    return fits;
}

void sgp_state_give_back(struct sgp_state *state, uint64_t bytes)
{
    lock_counts(state);
    state->used_bytes -= bytes;
    slot_write(state);
    unlock_counts(state);
}

uint64_t sgp_state_used_bytes(struct sgp_state *state)
{
    uint64_t sum;

    lock_counts(state);
    sum = used_by_others(state);
    unlock_counts(state);
    return sum + state->used_bytes < sum ? UINT64_MAX : sum + state->used_bytes;
}

void sgp_state_begin_kernel(struct sgp_state *state)
{
    struct sgp_state_header header;
    uint64_t ticket;

    lock_counts(state);
    header_read(state, &header);
    ticket = header.next_ticket % NR_TICKETS;
    /* Another process may hold it already when the count was damaged. */
    for (int tries = 0; tries < 4096; tries++, ticket = (ticket + 1) % NR_TICKETS) {
        if (lock_bytes(state->fd, F_OFD_SETLK, F_WRLCK, TICKETS_OFFSET + (off_t)ticket, 1) == 0) {
            break;
        }
    }
    header.next_ticket = (ticket + 1) % NR_TICKETS;
    header_write(state, &header);
    unlock_counts(state);
    if (ticket) {
        lock_bytes(state->fd, F_OFD_SETLKW, F_RDLCK, TICKETS_OFFSET, (off_t)ticket);
    }
    /* Never contended but after damage to the count: one kernel at a time holds even then. */
    lock_bytes(state->fd, F_OFD_SETLKW, F_WRLCK, RUNNING_BYTE, 1);
}

void sgp_state_end_kernel(struct sgp_state *state, uint64_t busy_ns)
{
    struct sgp_state_header header;

    lock_counts(state);
    header_read(state, &header);
    header.busy_ns += busy_ns;
    header.nr_kernels++;
    header_write(state, &header);
    lock_bytes(state->fd, F_OFD_SETLK, F_UNLCK, TICKETS_OFFSET, 0);
    lock_bytes(state->fd, F_OFD_SETLK, F_UNLCK, COUNTS_BYTE, 2);
}
