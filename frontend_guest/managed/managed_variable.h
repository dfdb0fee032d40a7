/*
 * __managed__ variables. The host's driver puts them where it likes, in the worker. The program gets memory at the same
 * address, and both have it in turn, like all managed memory (granules.h).
 *
 * Wrong when: the address is taken in the program (CUDA_ERROR_NOT_SUPPORTED, and a line on stderr).
 */
#ifndef FRONTEND_GUEST_MANAGED_VARIABLE_H
#define FRONTEND_GUEST_MANAGED_VARIABLE_H

#include "managed/area.h"

/* The program may use this variable, which the current context's module has. */
CUresult fgv_managed_variable_use(const struct fgv_variable *variable, const char *name);
/* Those of a module or library are gone. */
void fgv_managed_variables_forget(uint64_t owner);

#endif
