/* Memory of the program's own that it registered: see registered.c. */
#ifndef FRONTEND_GUEST_REGISTERED_H
#define FRONTEND_GUEST_REGISTERED_H

#include "memory.h"

/* What the device reaches `address` at, which lies in the range. */
CUresult fgv_registered_pointer(struct fgv_range *range, uint64_t address, CUdeviceptr *pointer);
/* Gives the program pages of its own again, where it has pages of the heap. False without memory. */
bool fgv_registered_restore(uint64_t address, uint64_t bytes);

#endif
