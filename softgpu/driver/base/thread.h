/* Threads of the driver's own, and those of other processes. */
#ifndef SOFTGPU_THREAD_H
#define SOFTGPU_THREAD_H

#include <stdbool.h>

/* One that lives as long as the process; false: there can be none. */
bool sgp_thread_begin(void *(*run)(void *), void *argument);

/* Another process's thread, which has this number in its own pid namespace: a descriptor that stands for it, and its
 * number here; -1: the process has none. */
int sgp_thread_find(int process, int inner, int *number);
bool sgp_thread_lives(int descriptor);

#endif
