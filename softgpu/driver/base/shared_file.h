/*
 * Memory that processes of one device share is a memory file: a head, which says what it is, and behind it the memory.
 *
 * Whoever has a descriptor may open it, and write anything into the head: it is read once, and checked. What the file's
 * seals say cannot be changed: it never shrinks, so that a mapping of it never faults.
 */
#ifndef SOFTGPU_SHARED_FILE_H
#define SOFTGPU_SHARED_FILE_H

#include "base/state.h"

/* The head's room: the memory behind it may have huge pages. */
#define SGP_SHARED_HEAD_BYTES (UINT64_C(2) << 20)
#define SGP_SHARED_WORDS_AT   UINT64_C(4096) /* of a file of few words */

enum sgp_shared_kind {
    SGP_SHARED_MEMORY = 1, /* one piece of physical memory */
    SGP_SHARED_POOL,
    SGP_SHARED_EVENT,    /* a head, and words behind it */
    SGP_SHARED_REQUESTS, /* likewise (context/remote.c) */
};

/* What stands before the memory. A file of few words is small: a process may be allowed no larger ones. */
static inline uint64_t sgp_shared_head_bytes(uint64_t kind)
{
    return kind == SGP_SHARED_REQUESTS ? SGP_SHARED_WORDS_AT : SGP_SHARED_HEAD_BYTES;
}

struct sgp_shared_head {
    uint64_t magic;
    uint64_t kind;
    uint64_t device[2]; /* sgp_state_identity() */
    uint64_t bytes;     /* of memory; a pool's grow */
    struct sgp_state_holder holder;
};

/* A new file with so many bytes of memory, which are zeros; its descriptor, or -1. */
int sgp_shared_new(struct sgp_shared_head *head, enum sgp_shared_kind kind, const struct sgp_state *state,
                   uint64_t bytes);
bool sgp_shared_write(int file, const struct sgp_shared_head *head);
/* Reads the head of a descriptor that anybody may have made; false: it is none of ours, or lies. */
bool sgp_shared_read(int file, struct sgp_shared_head *head);

/* Where a file is found by other processes of the same user, while this one lives. */
struct sgp_shared_place {
    uint64_t process;
    uint64_t descriptor;
    uint64_t inode;
};

bool sgp_shared_place_of(int file, struct sgp_shared_place *place);
/* A descriptor of the file there, which is the kind's; -1: there is none. */
int sgp_shared_open_at(uint64_t process, uint64_t descriptor, enum sgp_shared_kind kind, struct sgp_shared_head *head);
/* The same, and the file is the very one. */
int sgp_shared_open(const struct sgp_shared_place *place, enum sgp_shared_kind kind, struct sgp_shared_head *head);

#endif
