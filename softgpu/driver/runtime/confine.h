/* What the process behind the wall gives up: wall_records.h. */
#ifndef SOFTGPU_CONFINE_H
#define SOFTGPU_CONFINE_H

#include <stdbool.h>

/* This process keeps two descriptors, `socket` and the standard error output, its private memory and what kernels may
 * use; it ends with the thread that forked it. False: it must not run a kernel. */
bool sgp_confine(int socket, int parent);

#endif
