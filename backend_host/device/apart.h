/*
 * The daemon's side of vGPUs that are apart (page/apart.h): it gathers what each says in the grant of its own, hands
 * over, and shows each what it may know, in a loop without Python.
 *
 * What the daemon's threads know as the grant is meanwhile a master in the daemon's own memory. A step gathers bits and
 * closings into it, hands on as workers do else, and shows the word and others' bits to each vGPU. The bits of a vGPU's
 * own workers and the closing of its own turn are all that they may write, so anything else there is evidence.
 *
 * At the beginning and at the end nobody gets the grant until nobody says that it has its turn, so that nobody is in by
 * both. What does not end in time is left to go on, as at an eviction.
 *
 * Wrong when: the daemon does not run. Nobody is handed the grant until it does, or is dead (page/apart.h).
 */
#ifndef BACKEND_HOST_DEVICE_APART_H
#define BACKEND_HOST_DEVICE_APART_H

#include "page/layout.h"

/* cffi: begin */
struct fgw_apart;
/* What it takes for this page; NULL: no memory. Nobody is waited for longer than `quiet_ns`. Freed when nobody looks at
 * the page any more. What follows is called by one thread. */
struct fgw_apart *fgw_apart_new(struct fgw_control *control, uint64_t quiet_ns);
void fgw_apart_free(struct fgw_apart *apart);
/* Begins an epoch in which vGPUs are apart. `nr_unused`, of FGW_MAX_VGPUS: how many grants each did not use. */
void fgw_apart_begin(struct fgw_apart *apart, const uint32_t *nr_unused);
/* Hands over until then, or until somebody has written what it may not. Gives the vGPUs that did, as bits. */
uint64_t fgw_apart_serve(struct fgw_apart *apart, uint64_t until_ns);
/* Begins an epoch in which all share the grant again, which is as the daemon knows it. */
void fgw_apart_end(struct fgw_apart *apart);
/* cffi: end */

#endif
