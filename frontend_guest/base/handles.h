/*
 * Handles: what a program holds as CUstream, CUevent, CUmodule, ... is a number, and the same number goes over the
 * wire.
 *
 *   bits 56..63  0x40 + kind     no address of a program looks like this: it is not canonical, with four levels of
 *                                page tables or with five
 *   bits 24..55  generation      an old handle whose place was used again is told from the new one
 *   bits  0..23  index           place in the table of its kind
 *
 * Looking one up takes no lock: a launch does it once. Making and dropping takes the lock of the kind. What hangs on a
 * handle (`object`) is set before the program learns the number and stays readable until the drop; using a handle while
 * another thread destroys it is the program's error in CUDA as well.
 *
 * A graph that kernels launch is known to them by the driver's own number, so the program has that, too: such a handle
 * is renamed. Looking it up takes the lock.
 *
 * Wrong when: a program makes one handle of a kind more than 2^24 at a time.
 */
#ifndef FRONTEND_GUEST_HANDLES_H
#define FRONTEND_GUEST_HANDLES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"
#include "cuda_api/wire.h"

#define FGV_HANDLE_MAX_KINDS   16u
#define FGV_HANDLE_FIRST_BLOCK 256u /* entries; each further block is twice as large */
#define FGV_HANDLE_NR_BLOCKS   16u

struct fgv_handle_entry {
    _Atomic uint64_t handle; /* 0 while unused */
    void *object;
    uint32_t generation;
    uint32_t next_free; /* index + 1 */
};

struct fgv_handle_table {
    _Atomic(struct fgv_handle_entry *) blocks[FGV_HANDLE_NR_BLOCKS];
};
extern struct fgv_handle_table fgv_handle_tables[FGV_HANDLE_MAX_KINDS];

/* A new number of this kind. CUDA_ERROR_OUT_OF_MEMORY when there is no room for another. */
CUresult fgv_handle_new(enum fgv_handle_kind kind, uint64_t *handle);
/* `count` new numbers, first, first + 1, ... */
CUresult fgv_handle_new_run(enum fgv_handle_kind kind, uint32_t count, uint64_t *first);
/* CUDA_SUCCESS, or the error that CUDA gives for a bad handle of this kind. */
CUresult fgv_handle_check(enum fgv_handle_kind kind, uint64_t handle);
void fgv_handle_drop(enum fgv_handle_kind kind, uint64_t handle);
/* From now on this handle is known as `number` alone, which is no handle yet. */
CUresult fgv_handle_rename(enum fgv_handle_kind kind, uint64_t handle, uint64_t number);
/* The entry of one that was renamed, or NULL. */
struct fgv_handle_entry *fgv_handle_renamed(enum fgv_handle_kind kind, uint64_t number);
void fgv_handle_set_object(enum fgv_handle_kind kind, uint64_t handle, void *object);
/* Calls visit() for each handle of a kind, without the lock: it may drop the one that it is shown. */
void fgv_handle_each(enum fgv_handle_kind kind, void (*visit)(uint64_t handle, void *object, void *context),
                     void *context);

/* The number that a CUstream, a CUgraph and the like are. */
static inline uint64_t fgv_handle_number(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

/* The entry of a live handle, or NULL. */
static inline struct fgv_handle_entry *fgv_handle_entry(enum fgv_handle_kind kind, uint64_t handle)
{
    if (handle >> 56 != 0x40u + (uint32_t)kind) {
        return fgv_handle_renamed(kind, handle);
    }
    uint32_t place = (uint32_t)(handle & 0xffffffu) + FGV_HANDLE_FIRST_BLOCK;
    uint32_t block = 31u - (uint32_t)__builtin_clz(place / FGV_HANDLE_FIRST_BLOCK);
    if (block >= FGV_HANDLE_NR_BLOCKS) {
        return NULL;
    }
    /* acquire, with the release in block_get(): the block is zeroed before it is seen */
    struct fgv_handle_entry *entries =
        atomic_load_explicit(&fgv_handle_tables[kind].blocks[block], memory_order_acquire);
    if (!entries) {
        return NULL;
    }
    struct fgv_handle_entry *entry = &entries[place - (FGV_HANDLE_FIRST_BLOCK << block)];
    return atomic_load_explicit(&entry->handle, memory_order_acquire) == handle ? entry : NULL;
}

/* What hangs on a live handle; NULL for a bad one. */
static inline void *fgv_handle_object(enum fgv_handle_kind kind, uint64_t handle)
{
    struct fgv_handle_entry *entry = fgv_handle_entry(kind, handle);
    return !entry ? NULL : entry->object;
}

#endif
