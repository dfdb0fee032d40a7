/* Programs of this machine as its region shows them: for who looks and is no client. */
#ifndef FRONTEND_GUEST_PROGRAM_H
#define FRONTEND_GUEST_PROGRAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "ivshmem/region.h"

/* A program that the region's host serves. */
struct fgv_program {
    uint32_t pid; /* in the guest */
    uint32_t gpu_permille;
    uint64_t memory_bytes;
    char name[FGV_PROGRAM_BYTES];
};

/* False for an entry that no program is served in. */
static inline bool fgv_program_read(const struct fgv_region *region, uint32_t index, struct fgv_program *program)
{
    const struct fgv_client *client = &region->clients[index];
    /* Acquire: the entry was filled before. */
    if (atomic_load_explicit(&client->state, memory_order_acquire) != FGV_CLIENT_READY) {
        return false;
    }
    *program = (struct fgv_program){
        .pid = client->pid,
        .gpu_permille = atomic_load_explicit(&client->gpu_permille, memory_order_relaxed),
        .memory_bytes = atomic_load_explicit(&client->memory_bytes, memory_order_relaxed),
    };
    memcpy(program->name, client->program, sizeof(program->name) - 1);
    return true;
}

#endif
