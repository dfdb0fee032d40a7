/* A module is code with a copy of its globals in a context. With the lock. */
#ifndef SOFTGPU_MODULE_H
#define SOFTGPU_MODULE_H

#include "base/object.h"
#include "code/image.h"
#include "code/settings.h"

struct CUfunc_st {
    struct sgp_object object;
    struct CUmod_st *module;
    const struct sgp_kernel *kernel;
    struct sgp_function_settings settings;
    bool is_loaded; /* as NVIDIA's driver would have it: told, and nothing else */
};

struct CUmod_st {
    struct sgp_object object;
    struct CUmod_st *next;    /* in the context */
    struct CUlib_st *library; /* NULL: loaded by cuModuleLoad* */
    struct sgp_image *image;
    uint8_t *globals;
    struct CUfunc_st *functions;
};

CUresult sgp_module_new(struct CUctx_st *context, struct sgp_image *image, struct CUlib_st *library,
                        struct CUmod_st **module);
void sgp_module_delete(struct CUmod_st *module);
CUresult sgp_module_global(const struct CUmod_st *module, const char *name, CUdeviceptr *address, size_t *bytes);

#endif
