/* What the program said about its managed memory. */
#ifndef FRONTEND_GUEST_MANAGED_H
#define FRONTEND_GUEST_MANAGED_H

#include <stdint.h>

/* The memory is gone. */
void fgv_managed_forget(uint64_t address, uint64_t bytes);

#endif
