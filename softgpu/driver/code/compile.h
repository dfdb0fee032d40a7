/* From an image to a shared object on disk: the cache, and the compiler as a child process. */
#ifndef SOFTGPU_COMPILE_H
#define SOFTGPU_COMPILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda_api/types.h"

/* An object on disk, and where a faster one will be that does the same; "": this is as fast as they get. */
struct sgp_compiled {
    char path[PATH_MAX];
    char optimised[PATH_MAX];
};

/* Finds the object compiled from these bytes, compiled now if need be. error_text: what the compiler said. */
CUresult sgp_compile(const void *image, size_t bytes, struct sgp_compiled *compiled, char *error_text,
                     size_t error_text_bytes);
/* Whether the optimised object is there by now. */
bool sgp_compiled_look(const char *optimised);

struct sgp_image_set;

/* Whether the images can be read and have no definition twice; what they lack may come with others. */
CUresult sgp_link_check(const struct sgp_image_set *set, char *error_text, size_t error_text_bytes);
/* The images as one PTX text, which the caller frees. */
CUresult sgp_link(const struct sgp_image_set *set, void **text, char *error_text, size_t error_text_bytes);

#endif
