/* Where the region is, and where it is mapped: see find.c. */
#ifndef FRONTEND_GUEST_FIND_H
#define FRONTEND_GUEST_FIND_H

#include "cuda_api/types.h"
#include "ivshmem/region.h"

/* Finds, maps and checks the region. Any error has been told on stderr. */
CUresult fgv_find_region(struct fgv_region *region);
/* The same file, opened again; -1: it is not there any more. */
int fgv_find_reopen(void);
/* Undoes it. */
void fgv_find_release(struct fgv_region *region);

#endif
