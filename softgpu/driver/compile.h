/* From an image to a shared object on disk: the cache, and the compiler as a child process. */
#ifndef SOFTGPU_COMPILE_H
#define SOFTGPU_COMPILE_H

#include <limits.h>
#include <stddef.h>

#include "cuda_api/types.h"

#define SGP_CAPABILITY 80 /* 8.0, as the device's attributes say */

/* Writes the path of the object compiled from these bytes, compiled now if need be. error_text: what the compiler said.
 */
CUresult sgp_compile(const void *image, size_t bytes, char path[PATH_MAX], char *error_text, size_t error_text_bytes);

struct sgp_image_set;

/* Whether the images can be read and have no definition twice; what they lack may come with others. */
CUresult sgp_link_check(const struct sgp_image_set *set, char *error_text, size_t error_text_bytes);
/* The images as one PTX text, which the caller frees. */
CUresult sgp_link(const struct sgp_image_set *set, void **text, char *error_text, size_t error_text_bytes);

/* Runs the compiler on a file. mode: NULL, or "--link", or "--check", which writes nothing. */
CUresult sgp_compiler_run(const char *input, const char *output, const char *mode, char *error_text,
                          size_t error_text_bytes);

/* What tells one compiler from another, mixed into the key. */
void sgp_compiler_identify(void (*mix)(void *hash, const void *data, size_t bytes), void *hash);

#endif
