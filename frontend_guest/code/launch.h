/* A kernel's parameters as the program passes them, for launches and for nodes of graphs. */
#ifndef FRONTEND_GUEST_LAUNCH_H
#define FRONTEND_GUEST_LAUNCH_H

#include <stdint.h>

#include "cuda_api/types.h"

struct fgv_function;

/* The buffer that `extra` names instead of single parameters; it must hold wanted_bytes. */
CUresult fgv_extra_read(void **extra, uint32_t wanted_bytes, const void **buffer);
/* Brings parameters that lie in managed memory back. Between the beginning of a call and its sending nothing can be. */
void fgv_parameters_touch(const struct fgv_function *function, void **parameters, const void *buffer);
/* Puts each parameter where the function expects it. */
void fgv_parameters_pack(uint8_t *packed, const struct fgv_function *function, void **parameters);

#endif
