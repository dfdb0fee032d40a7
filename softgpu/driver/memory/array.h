/* Arrays: texels in rows of the device's memory, rows in slices, at a pitch of the driver's own. */
#ifndef SOFTGPU_ARRAY_H
#define SOFTGPU_ARRAY_H

#include "base/object.h"
#include "cuda_api/array_format.h"

#define SGP_MAX_LEVELS 18u

struct CUarray_st {
    struct sgp_object object;
    struct CUarray_st *next;            /* in the context */
    struct CUmipmappedArray_st *mipmap; /* whose level it is, or NULL */
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct fgv_array_box box;
    uint8_t *base;
    uint64_t pitch_bytes;
    uint64_t slice_bytes;
};

struct CUmipmappedArray_st {
    struct sgp_object object;
    struct CUmipmappedArray_st *next;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    uint32_t nr_levels;
    uint8_t *base;
    struct CUarray_st *levels[SGP_MAX_LEVELS];
};

/* With the lock: the records of all arrays of a context go; their memory is the context's. */
void sgp_array_delete_context(struct CUctx_st *context);

#endif
