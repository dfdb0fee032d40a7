/* A context is a record; a thread has one that is current, which the doors into the driver find. */
#ifndef SOFTGPU_CURRENT_H
#define SOFTGPU_CURRENT_H

#include "base/object.h"
#include "device/device.h"

struct CUctx_st {
    struct sgp_object object;
    struct sgp_device *device;
    struct CUctx_st *next;
    uint64_t id;
    unsigned int flags;
    unsigned int api_version;
    CUresult error; /* sticky: every later call of this context returns it */
    bool is_primary;
    bool is_active;
    bool is_ending; /* waits for values are given up */
    CUfunc_cache cache_config;
    uint64_t limits[SGP_NR_LIMITS];
    struct CUstream_st *legacy;
    struct CUstream_st *streams;
    struct CUevent_st *events;
    struct CUmod_st *modules;
    struct CUarray_st *arrays;
    struct CUmipmappedArray_st *mipmaps;
    struct sgp_printf_buffer *printf_buffer;
    uint64_t device_heap_bytes; /* handed out by malloc in kernels */
};

/* Of the calling thread. */
struct CUctx_st *sgp_context_current(void);
CUresult sgp_context_push(struct CUctx_st *context);
void sgp_context_pop(void);
CUresult sgp_enter(struct CUctx_st **context); /* as sgp_enter_driver; finds the current context, in good health */
CUresult sgp_enter_unchecked(struct CUctx_st **context); /* as sgp_enter, in good health or not */
/* As sgp_enter; where no context is current, that of the object is taken. */
CUresult sgp_enter_by(const void *handle, struct CUctx_st **context);

/* With the lock. */
extern struct CUctx_st *sgp_contexts;
struct CUctx_st *sgp_context_new(struct sgp_device *device);     /* NULL: no memory */
struct CUctx_st *sgp_context_primary(struct sgp_device *device); /* NULL: no memory */
/* After a fault nothing of this process runs on the device any more: all its contexts have the error, and no other is
 * made. */
void sgp_device_fail(struct sgp_device *device, CUresult fault);
/* Where a failure was injected (state.h) since this process made its contexts, they have its error. Looks at times. */
void sgp_device_find_failures(void);

#endif
