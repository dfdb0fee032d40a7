/* A context has a buffer of what its kernels print. */
#ifndef SOFTGPU_PRINTF_H
#define SOFTGPU_PRINTF_H

#include "base/driver.h"

struct sgp_printf_buffer *sgp_printf_new(uint64_t bytes);
bool sgp_printf_resize(struct sgp_printf_buffer *buffer, uint64_t bytes);
void sgp_printf_delete(struct sgp_printf_buffer *buffer);
void sgp_printf_append(struct sgp_printf_buffer *buffer, const char *text, size_t bytes);
/* With the lock, given up while the text is written to the standard output. The context must be held. */
void sgp_printf_flush(struct CUctx_st *context);

#endif
