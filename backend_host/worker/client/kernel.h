/* A kernel's handle knows this of it: how its parameters lie, and its variant for parts of a grid. */
#ifndef BACKEND_HOST_KERNEL_H
#define BACKEND_HOST_KERNEL_H

#include "client/handles.h"
#include "client/state.h"
#include "cuda_api/variants.h"

#define FGW_MAX_PARAMETER_BYTES 32764u

struct fgw_making;
struct fgw_variant;

struct fgw_kernel {
    uint32_t nr_parameters;
    uint32_t parameter_bytes;
    uint32_t local_bytes;        /* of a thread */
    struct fgw_variant *variant; /* that runs a part of the grid; NULL: none was needed yet, or there is none */
    struct fgw_making *making;   /* of its variant, under way */
    enum fgv_whole why_whole;
};

/* Finds what hangs on the handle of a kernel or function, made when it is first asked for. */
CUresult fgw_kernel_layout(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_kernel **layout);
/* Walks the parameters, which go to `told` as struct fgv_parameter, at most `room` of them. */
CUresult fgw_kernel_walk(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_kernel *kernel,
                         uint8_t *told, uint32_t room);
/* Words of packed parameters that are addresses of module variables become those where these are now (told.h): of such
 * that lie in one parameter, at a multiple of 8. The driver is asked for each parameter once, if there are any. */
CUresult fgw_kernel_lead(struct fgw_worker *worker, const struct fgw_handle *handle, uint8_t *parameters,
                         uint32_t bytes);
/* It is for before a question about a kernel: some context is current afterwards. */
CUresult fgw_kernel_lend_context(struct fgw_worker *worker);
/* Finds a variable of a module or a library, in the current context. */
CUresult fgw_variable_find(struct fgw_worker *worker, enum fgv_handle_kind owner_kind, void *owner, const char *name,
                           CUdeviceptr *address, size_t *bytes);

#endif
