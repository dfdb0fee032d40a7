/* Physical memory: what cuMemCreate makes, of which mappings are views. With the lock. */
#ifndef SOFTGPU_PHYSICAL_H
#define SOFTGPU_PHYSICAL_H

#include "base/object.h"
#include "memory/share.h"
#include "memory/store.h"

struct sgp_physical {
    struct sgp_object object; /* each mapping holds it, and so does the program */
    struct sgp_device *device;
    uint64_t bytes;
    uint32_t nr_retained; /* by the program: the handle is good while this is not 0 */
    int file;
    uint64_t offset;              /* in the file */
    struct sgp_store_place place; /* the file is a store's, of many pieces; or, without one: */
    struct sgp_share share;       /* it is its own, and may be shared */
    CUmemAllocationProp properties;
};

/* With the lock, and a handle that is the program's; on error nothing is locked. */
CUresult sgp_enter_physical(CUmemGenericAllocationHandle handle, struct sgp_physical **physical);
/* A reference of a mapping's, or the program's last one, goes. */
void sgp_physical_drop(struct sgp_physical *physical);
/* Where the process of kernels has inherited it, without access (view.h); 0: nowhere. */
uintptr_t sgp_physical_source(const struct sgp_physical *physical);

#endif
