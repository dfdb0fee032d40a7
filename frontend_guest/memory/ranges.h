/*
 * What the program may point at: device memory that it allocated, variables of its modules, pinned and managed memory
 * in the heap, memory of its own that it registered. One sorted table, so that a copy knows what an address is, and a
 * question about a pointer needs no host.
 */
#ifndef FRONTEND_GUEST_RANGES_H
#define FRONTEND_GUEST_RANGES_H

#include <stdbool.h>
#include <stdint.h>

struct fgv_context;

enum fgv_memory_kind {
    FGV_MEMORY_PAGEABLE = 0, /* nothing is known about it: memory of the program, or nonsense */
    FGV_MEMORY_DEVICE,
    FGV_MEMORY_GLOBAL,       /* a variable of a module or library */
    FGV_MEMORY_PINNED,       /* in the heap: the same address in the program, in the worker, and on the device */
    FGV_MEMORY_MANAGED_HEAP, /* likewise: managed, and never on the device */
    FGV_MEMORY_MANAGED,      /* on the device, and in this process at the same address (managed/granules.h) */
    FGV_MEMORY_REGISTERED,   /* the program's own, by cuMemHostRegister */
    FGV_MEMORY_POOLED,       /* of a memory pool */
    FGV_MEMORY_MAPPED,       /* physical memory at reserved addresses; outlives contexts */
    FGV_MEMORY_IMPORTED,     /* another program's, which is open here */
    FGV_MEMORY_GRAPH,        /* that a node of a graph allocates: the address is the graph's, live or not */
};

struct fgv_range {
    uint64_t address;
    uint64_t bytes;
    enum fgv_memory_kind kind;
    uint32_t flags; /* with which it was allocated or registered; of MAPPED: its CUmemAccess_flags */
    bool is_sync_memops;
    struct fgv_context *context;
    uint64_t context_handle;
    uint64_t owner; /* place in a slab of a DEVICE one, 0: in none;
                     * handle: module or library of a GLOBAL and of a MANAGED variable, pool of POOLED
                     * and of IMPORTED ones that are of one, allocation of MAPPED;
                     * address: of the heap's pages for REGISTERED, of the program's for such PINNED ones, 0: none */
    uint64_t aside; /* of such PINNED ones: where the program's pages are meanwhile, 0: they are gone */
    uint64_t id;    /* never used twice in a process */
};

static inline bool fgv_memory_is_device(enum fgv_memory_kind kind)
{
    return kind == FGV_MEMORY_DEVICE || kind == FGV_MEMORY_GLOBAL || kind == FGV_MEMORY_POOLED ||
           kind == FGV_MEMORY_MAPPED || kind == FGV_MEMORY_IMPORTED || kind == FGV_MEMORY_GRAPH ||
           kind == FGV_MEMORY_MANAGED;
}
static inline bool fgv_memory_is_shared(enum fgv_memory_kind kind)
{
    return kind == FGV_MEMORY_PINNED || kind == FGV_MEMORY_MANAGED_HEAP;
}
static inline bool fgv_memory_is_managed(enum fgv_memory_kind kind)
{
    return kind == FGV_MEMORY_MANAGED || kind == FGV_MEMORY_MANAGED_HEAP;
}

/* What lies at `address`, copied; false and kind PAGEABLE when nothing known does. */
bool fgv_memory_find(uint64_t address, struct fgv_range *range);
/* True when all of it lies in ranges that the device reads and writes, one right after the other where there are
 * several. */
bool fgv_memory_covers(uint64_t address, uint64_t bytes);
/* Enters a range, `context` being the current one; false without memory. A range that begins at the same address is
 * replaced. */
bool fgv_memory_enter(uint64_t address, uint64_t bytes, enum fgv_memory_kind kind, uint32_t flags, uint64_t owner);
/* Removes the range of this kind that begins at `address`, and copies it; false when there is none. */
bool fgv_memory_remove(uint64_t address, enum fgv_memory_kind kind, struct fgv_range *range);
/* Some range of a context that lies in the heap; false when it has none left. */
bool fgv_memory_next_shared(const struct fgv_context *context, struct fgv_range *range);
void fgv_memory_forget_context(struct fgv_context *context);
void fgv_memory_forget_owner(uint64_t owner);
/* Whether mapped memory, side by side, is all of these bytes, and each may be read. */
bool fgv_memory_is_mapped(uint64_t address, uint64_t bytes);
/* Removes the mappings that make up these bytes; false, and nothing done, when whole ones do not. Each is shown. */
bool fgv_memory_unmap(uint64_t address, uint64_t bytes, void (*visit)(const struct fgv_range *range));
/* Sets what a mapping's flags are; the same condition. */
bool fgv_memory_set_access(uint64_t address, uint64_t bytes, uint32_t access);
void fgv_memory_set_sync(uint64_t address, bool is_sync);
void fgv_memory_set_aside(uint64_t address, uint64_t aside);
/* Whether a REGISTERED range of which the device reaches the pages lies in one of these pages. */
bool fgv_memory_is_replaced(uint64_t address, uint64_t bytes);
/* True when a REGISTERED range overlaps. */
bool fgv_memory_overlaps_registered(uint64_t address, uint64_t bytes);

#endif
