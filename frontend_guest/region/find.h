/* Where the region is, and where it is mapped: see find.c. */
#ifndef FRONTEND_GUEST_FIND_H
#define FRONTEND_GUEST_FIND_H

#include "cuda_api/types.h"
#include "ivshmem/region.h"
#include "region/bell.h"
#include "region/growth.h"

/* Finds, maps and checks the region. Any error has been told on stderr. `bells` is filled, and the region refers to it,
 * where there are any: region->wake is FGV_WAKE_BELL then, and never otherwise. NULL: none are wanted. `growth`
 * likewise, where the virtual machine has the device for it: the window's addresses behind the region are kept. */
CUresult fgv_find_region(struct fgv_region *region, struct fgv_bells *bells, struct fgv_growth *growth);
/* The same file, opened again; -1: it is not there any more. */
int fgv_find_reopen(void);
/* Undoes it. */
void fgv_find_release(struct fgv_region *region, struct fgv_bells *bells, struct fgv_growth *growth);

#endif
