/* Where the compiler is: found when it runs. */
#ifndef SOFTGPU_COMPILER_COMMAND_H
#define SOFTGPU_COMPILER_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

/* The folder that has the packages softgpu and cuda_api. */
const char *sgp_compiler_root(void);
/* The variable that makes a Python find them: PYTHONPATH=... */
const char *sgp_compiler_python_path(void);
/* The command, its words separated by spaces. False: there is no room for it. */
bool sgp_compiler_command(char *command, size_t bytes);
/* What tells one compiler from another, mixed into the key. */
void sgp_compiler_identify(void (*mix)(void *hash, const void *data, size_t bytes), void *hash);

#endif
