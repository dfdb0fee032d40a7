/* From an image to a shared object on disk: the cache, and the compiler as a child process. */
#ifndef SOFTGPU_COMPILE_H
#define SOFTGPU_COMPILE_H

#include <limits.h>
#include <stddef.h>

#include "cuda_api/types.h"

/* Writes the path of the object compiled from these bytes, compiled now if need be. error_text: what the compiler said.
 */
CUresult sgp_compile(const void *image, size_t bytes, char path[PATH_MAX], char *error_text, size_t error_text_bytes);

/* Runs the compiler on a file. */
CUresult sgp_compiler_run(const char *input, const char *output, char *error_text, size_t error_text_bytes);

/* What tells one compiler from another, mixed into the key. */
void sgp_compiler_identify(void (*mix)(void *hash, const void *data, size_t bytes), void *hash);

#endif
