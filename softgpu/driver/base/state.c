/* See state.h: the shared file of one device. How its kernels take turns is turn.c. */
#include "base/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/driver.h"

#define FIRST_SLOT 1                     /* before it one that says how many there are */
#define FILE_BYTES SGP_STATE_RUNS_OFFSET /* it grows with the first runs */

_Static_assert(sizeof(struct sgp_state_header) == 64, "the header's size is the slots' offset");

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

/* A failure counts in a file that has a header. */
static void header_make(struct sgp_state *state)
{
    struct sgp_state_header header;

    sgp_state_lock_counts(state);
    if (!sgp_state_header_read(state, &header) && pwrite(state->fd, &header, sizeof(header), 0) >= 0) {
        sgp_log("device", "a new header in the device's shared file");
    }
    sgp_state_unlock_counts(state);
}

struct sgp_state *sgp_state_open(const char *path)
{
    struct sgp_state *state = calloc(1, sizeof(*state));
    struct stat status;

    if (!state) {
        return NULL;
    }
    state->slot = -1;
    pthread_mutex_init(&state->counts, NULL);
    state->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
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
    state->identity[0] = status.st_dev;
    state->identity[1] = status.st_ino;
    header_make(state);
    return state;
}

void sgp_state_identity(const struct sgp_state *state, uint64_t identity[2])
{
    memcpy(identity, state->identity, sizeof(state->identity));
}

void sgp_state_close(struct sgp_state *state)
{
    close(state->fd);
    pthread_mutex_destroy(&state->counts);
    free(state);
}

void sgp_state_close_in_child(struct sgp_state *state)
{
    /* The locks belong to the open file, which a forked child shares: it would keep a dead parent's turn and memory. */
    close(state->fd);
    state->fd = -1;
}

static off_t slot_offset(int slot)
{
    return SGP_STATE_SLOTS_OFFSET + (off_t)slot * (off_t)sizeof(struct sgp_state_slot);
}

static void slot_write(const struct sgp_state *state, int slot, const struct sgp_state_slot *content)
{
    if (pwrite(state->fd, content, sizeof(*content), slot_offset(slot)) < 0) {
        return;
    }
}

static struct sgp_state_slot slot_read(const struct sgp_state *state, int slot)
{
    struct sgp_state_slot content = {0};

    if (pread(state->fd, &content, sizeof(content), slot_offset(slot)) != (ssize_t)sizeof(content)) {
        return (struct sgp_state_slot){0};
    }
    return content;
}

/* How many slots there are up to the last that was ever taken, which the one that is nobody's says. */
static int nr_slots(const struct sgp_state *state)
{
    uint64_t nr = slot_read(state, 0).bytes;

    return nr < SGP_STATE_NR_SLOTS ? (int)nr : SGP_STATE_NR_SLOTS;
}

static bool slot_is_own(const struct sgp_state *state, int slot)
{
    return slot == state->slot || state->nr_holds[slot];
}

/* Own locks do not show. */
static bool slot_is_alive(const struct sgp_state *state, int slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot_offset(slot), .l_len = 1};

    return slot_is_own(state, slot) || (fcntl(state->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK);
}

/* With the counts locked: what is used. With a look at who lives, the slots of the dead are emptied on the way. */
static uint64_t used_bytes(struct sgp_state *state, bool looks_who_lives)
{
    const struct sgp_state_slot empty = {0};
    const struct sgp_state_slot *slots = state->slots;
    ssize_t got = pread(state->fd, state->slots, (size_t)nr_slots(state) * sizeof(slots[0]), SGP_STATE_SLOTS_OFFSET);
    uint64_t sum = state->own.bytes; /* the file may say otherwise */

    for (int i = FIRST_SLOT; (ssize_t)((size_t)(i + 1) * sizeof(slots[0])) <= got; i++) {
        if ((!slots[i].bytes && !slots[i].id) || i == state->slot) {
            continue;
        }
        if (!looks_who_lives || slot_is_alive(state, i)) {
            sum = sum + slots[i].bytes < sum ? UINT64_MAX : sum + slots[i].bytes;
        } else {
            slot_write(state, i, &empty);
        }
    }
    return sum;
}

/* With the counts locked: a slot that nobody has, locked as `type`, under a new id; -1: none. */
static int slot_take(const struct sgp_state *state, short type, struct sgp_state_slot *content)
{
    uint64_t random;

    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return -1;
    }
    for (int i = FIRST_SLOT; i < SGP_STATE_NR_SLOTS; i++) {
        if (slot_is_own(state, i) || sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_WRLCK, slot_offset(i), 1)) {
            continue;
        }
        if (type != F_WRLCK) {
            sgp_state_lock_bytes(state->fd, F_OFD_SETLK, type, slot_offset(i), 1);
        }
        *content =
            (struct sgp_state_slot){.id = (random | SGP_STATE_NR_SLOTS) - random % SGP_STATE_NR_SLOTS + (uint64_t)i};
        slot_write(state, i, content);
        if (i >= nr_slots(state)) {
            slot_write(state, 0, &(const struct sgp_state_slot){.bytes = (uint64_t)i + 1});
        }
        return i;
    }
    return -1;
}

static bool own_slot_take(struct sgp_state *state)
{
    if (state->slot < 0) {
        state->slot = slot_take(state, F_WRLCK, &state->own);
    }
    return state->slot >= 0;
}

bool sgp_state_reserve(struct sgp_state *state, uint64_t bytes, uint64_t capacity_bytes)
{
    bool fits;

    sgp_state_lock_counts(state);
    fits = own_slot_take(state) && bytes <= capacity_bytes &&
           (used_bytes(state, false) <= capacity_bytes - bytes || used_bytes(state, true) <= capacity_bytes - bytes);
    if (fits) {
        state->own.bytes += bytes;
        slot_write(state, state->slot, &state->own);
    }
    sgp_state_unlock_counts(state);
    return fits;
}

void sgp_state_give_back(struct sgp_state *state, uint64_t bytes)
{
    sgp_state_lock_counts(state);
    state->own.bytes -= bytes;
    slot_write(state, state->slot, &state->own);
    sgp_state_unlock_counts(state);
}

uint64_t sgp_state_used_bytes(struct sgp_state *state)
{
    uint64_t used;

    sgp_state_lock_counts(state);
    used = used_bytes(state, true);
    sgp_state_unlock_counts(state);
    return used;
}

uint64_t sgp_state_own_bytes(struct sgp_state *state)
{
    uint64_t bytes;

    pthread_mutex_lock(&state->counts);
    bytes = state->own.bytes;
    pthread_mutex_unlock(&state->counts);
    return bytes;
}

/* ---- shared memory ---- */

static bool share(struct sgp_state *state, struct sgp_state_holder *shared, uint64_t bytes)
{
    struct sgp_state_slot content;
    int slot = slot_take(state, F_RDLCK, &content);

    if (slot < 0) {
        return false;
    }
    content.bytes = bytes;
    slot_write(state, slot, &content);
    state->nr_holds[slot]++;
    *shared = (struct sgp_state_holder){.slot = (uint64_t)slot, .id = content.id};
    return true;
}

bool sgp_state_share(struct sgp_state *state, struct sgp_state_holder *shared)
{
    bool is_shared;

    sgp_state_lock_counts(state);
    is_shared = share(state, shared, 0);
    sgp_state_unlock_counts(state);
    return is_shared;
}

void sgp_state_move(struct sgp_state *state, const struct sgp_state_holder *shared, int64_t bytes)
{
    struct sgp_state_slot content;

    sgp_state_lock_counts(state);
    content = slot_read(state, (int)shared->slot);
    content.id = shared->id;
    content.bytes += (uint64_t)bytes;
    slot_write(state, (int)shared->slot, &content);
    state->own.bytes -= (uint64_t)bytes;
    slot_write(state, state->slot, &state->own);
    sgp_state_unlock_counts(state);
}

bool sgp_state_join(struct sgp_state *state, struct sgp_state_holder *shared, uint64_t bytes)
{
    const int slot = shared->slot < SGP_STATE_NR_SLOTS ? (int)shared->slot : -1;
    bool is_joined;

    sgp_state_lock_counts(state);
    if (slot >= 0 && slot != state->slot && shared->id && slot_read(state, slot).id == shared->id &&
        (state->nr_holds[slot] || !sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_RDLCK, slot_offset(slot), 1))) {
        state->nr_holds[slot]++;
        is_joined = true;
    } else {
        is_joined = share(state, shared, bytes);
    }
    sgp_state_unlock_counts(state);
    return is_joined;
}

void sgp_state_part(struct sgp_state *state, const struct sgp_state_holder *shared)
{
    const struct sgp_state_slot empty = {0};
    const int slot = (int)shared->slot;

    sgp_state_lock_counts(state);
    if (--state->nr_holds[slot] == 0) {
        sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_UNLCK, slot_offset(slot), 1);
        if (!slot_is_alive(state, slot)) {
            slot_write(state, slot, &empty);
        }
    }
    sgp_state_unlock_counts(state);
}

bool sgp_state_has_shared(struct sgp_state *state)
{
    bool has_shared = false;

    pthread_mutex_lock(&state->counts);
    for (int i = 0; i < SGP_STATE_NR_SLOTS; i++) {
        has_shared = has_shared || state->nr_holds[i];
    }
    pthread_mutex_unlock(&state->counts);
    return has_shared;
}

bool sgp_state_self(struct sgp_state *state, struct sgp_state_holder *self)
{
    bool is_there;

    sgp_state_lock_counts(state);
    is_there = own_slot_take(state);
    *self = (struct sgp_state_holder){.slot = (uint64_t)state->slot, .id = state->own.id};
    sgp_state_unlock_counts(state);
    return is_there;
}

bool sgp_state_lives(struct sgp_state *state, const struct sgp_state_holder *holder)
{
    bool lives;

    sgp_state_lock_counts(state);
    lives = holder->slot < SGP_STATE_NR_SLOTS && slot_read(state, (int)holder->slot).id == holder->id &&
            slot_is_alive(state, (int)holder->slot);
    sgp_state_unlock_counts(state);
    return lives;
}
