/*
 * What a program passes on as a file descriptor: a file of this library's own, sealed, with the name of what is shared
 * in it. It goes the ways of descriptors, and only programs of this machine can use it.
 */
#ifndef FRONTEND_GUEST_KEY_FILE_H
#define FRONTEND_GUEST_KEY_FILE_H

#include <stdbool.h>
#include <stdint.h>

enum fgv_key_kind {
    FGV_KEY_PHYSICAL = 1, /* the host knows the memory by these words */
    FGV_KEY_POOL = 2,     /* the pool's name, see share_pool.c */
};

struct fgv_key_file {
    uint64_t magic;
    uint64_t kind;
    uint64_t words[2];
};

/* A descriptor of a new one, which exec closes; -1: there is none to be had. */
int fgv_key_file_new(enum fgv_key_kind kind, const uint64_t *words);
/* False: it is none. The kind may be any. */
bool fgv_key_file_read(int file, struct fgv_key_file *content);

#endif
