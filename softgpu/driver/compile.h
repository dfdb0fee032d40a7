/* From an image to a shared object on disk: the cache, and the compiler as a child process. */
#ifndef SOFTGPU_COMPILE_H
#define SOFTGPU_COMPILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda_api/types.h"

#define SGP_CAPABILITY 80 /* 8.0, as the device's attributes say */

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

/* What the compiler is to do with a file. quick: NULL, or where a large module's object goes that is made quickly, the
 * output following later. mode: NULL, or "--link"; "--check", which writes nothing; "--finish", when the quick object
 * is there. */
struct sgp_compiler_task {
    const char *input;
    const char *output;
    const char *quick;
    const char *mode;
};

CUresult sgp_compiler_run(const struct sgp_compiler_task *task, char *error_text, size_t error_text_bytes);

/* What tells one compiler from another, mixed into the key. */
void sgp_compiler_identify(void (*mix)(void *hash, const void *data, size_t bytes), void *hash);

#endif
