/*
 * A program holds handles of objects.
 *
 * A handle is the address of the object, but it is looked up in a table before it is followed, so that a stale or
 * invented handle is CUDA_ERROR_INVALID_HANDLE and not a crash. What a queue still needs is held by a reference count.
 * All with the lock.
 */
#ifndef SOFTGPU_OBJECT_H
#define SOFTGPU_OBJECT_H

#include "base/driver.h"

enum sgp_kind {
    SGP_CONTEXT = 1,
    SGP_STREAM,
    SGP_EVENT,
    SGP_MODULE,
    SGP_LIBRARY,
    SGP_KERNEL,
    SGP_FUNCTION,
    SGP_LINK,
    SGP_ARRAY,
    SGP_MIPMAPPED_ARRAY,
    SGP_MEMORY_POOL,
    SGP_PHYSICAL,
    SGP_GRAPH,
    SGP_NODE,
    SGP_EXEC,
};

/* First member of every object that a program holds a handle of. */
struct sgp_object {
    enum sgp_kind kind;
    uint32_t nr_references;
    void (*destroy)(
        void *object);        /* called with the lock held when the last reference goes; NULL: part of another object */
    struct CUctx_st *context; /* it belongs to; NULL: to none, or it is one itself */
};

bool sgp_object_add(void *object, enum sgp_kind kind, void (*destroy)(void *));
bool sgp_object_is(const void *handle, enum sgp_kind kind);
struct CUctx_st *sgp_object_context(const void *handle); /* NULL: no object, or of no context */
void sgp_object_remove(void *object); /* the handle is no longer valid; the object lives on while referenced */
void sgp_object_keep(void *object);
void sgp_object_release(void *object);
/* As sgp_enter_driver, for a call on this object; `error` if the handle is none of the kind. */
CUresult sgp_enter_object(const void *handle, enum sgp_kind kind, CUresult error);

#endif
