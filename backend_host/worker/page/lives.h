/*
 * Who is alive, as the kernel tells it: a lock on a byte of a file that all may read and nobody writes.
 *
 * A life is a description of the file with a lock on the byte of its place, a worker's slot or the daemon's. The kernel
 * drops the lock when the last descriptor of the life is closed, and so when its process ends, however it ends. Whoever
 * asks needs no number of a process: numbers mean nothing across pid namespaces, and are given out again.
 *
 * Wrong when: a descriptor of the life is in another process too, such as a child that was forked and has not called
 * exec: the life lasts as long as that. Descriptors of lives are closed on exec.
 */
#ifndef BACKEND_HOST_LIVES_H
#define BACKEND_HOST_LIVES_H

#include "page/layout.h"

#define FGW_LIFE_OF_DAEMON FGW_MAX_WORKERS /* its place, behind those of all workers */

/* cffi: begin */
/* Begins a life of this place: its descriptor, or -1 with errno set. `lives` is the file. */
int fgw_life_begin(int lives, uint32_t place);
/* Tells whether no life of this place is left. False when the kernel does not say. */
bool fgw_life_has_ended(int lives, uint32_t place);
/* cffi: end */

#endif
