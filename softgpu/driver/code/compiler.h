/* The compiler runs as a child process. */
#ifndef SOFTGPU_COMPILER_H
#define SOFTGPU_COMPILER_H

#include <stddef.h>

#include "cuda_api/types.h"

#define SGP_CAPABILITY 80 /* 8.0, as the device's attributes say */

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

#endif
