/* A library is code without a context. With the lock. */
#ifndef SOFTGPU_LIBRARY_H
#define SOFTGPU_LIBRARY_H

#include "code/module.h"
#include "device/device.h"

struct CUkern_st {
    struct sgp_object object;
    struct CUlib_st *library;
    const struct sgp_kernel *kernel;
    uint32_t index;
    struct sgp_function_settings settings[SGP_MAX_DEVICES];
};

struct CUlib_st {
    struct sgp_object object;
    struct sgp_image *image;
    struct CUkern_st *kernels;
};

/* The library's module in the context, made if there is none yet. */
CUresult sgp_library_module(struct CUctx_st *context, struct CUlib_st *library, struct CUmod_st **module);

#endif
