/*
 * What a worker gives up once it knows its guest, before it looks at anything that the guest wrote: see start.h for the
 * walls that it had from its start.
 */
#ifndef BACKEND_HOST_WALLS_ENTER_H
#define BACKEND_HOST_WALLS_ENTER_H

#include <stdbool.h>
#include <stdint.h>

/* cffi: begin */
struct fgw_walls_tenant {
    const char *cache; /* the tenant's folder in the folder of all; NULL: it has none */
    uint32_t uid;      /* becomes this user and its group, where the worker is root; 0: stays who it is */
    bool is_soft;      /* the device library is softgpu, which starts a compiler */
    bool has_filter;
    const char *const *nodes; /* of devices, that it reaches no more from now on; the last one is NULL */
    bool is_there;            /* this user it became at its start: fgw_walls_become */
};
/* The first half of it, for a worker whose tenant is known before its guest is: before it opens the device library, so
 * that no thread of that keeps a privilege. 0 or an errno, as below. */
int fgw_walls_become(const struct fgw_walls_tenant *tenant, const char **step);
/* 0 or an errno; `step` says then at what. To be called once, in whatever thread: it holds for all. */
int fgw_walls_enter(const struct fgw_walls_tenant *tenant, const char **step);
/* cffi: end */

/* Where a worker's root has the caches of all tenants, until it enters; and where it has its own from then on. */
#define FGW_WALLS_CACHES_AT "/.caches"
#define FGW_WALLS_CACHE_AT  "/cache"

/* filter.c: the kernel refuses, in all threads, what is not on the list. False: errno. */
bool fgw_walls_filter(bool is_soft);

#endif
