/* What the driver knows of an address. */
#include <string.h>

#include "cuda_api/prototypes.h"
#include "memory/memory_map.h"
#include "memory/physical.h"
#include "memory/pool.h"

static bool is_device_kind(const struct sgp_allocation *allocation)
{
    return allocation->kind != SGP_MEMORY_HOST && allocation->kind != SGP_MEMORY_REGISTERED;
}

static bool is_managed(const struct sgp_allocation *allocation, CUdeviceptr ptr)
{
    return sgp_managed_bytes(allocation, ptr) != 0;
}

/* What is known of an address; memory that a pool keeps is nobody's. */
static struct sgp_allocation *find(CUdeviceptr address)
{
    struct sgp_allocation *allocation = sgp_memory_find(address);

    return allocation && allocation->is_kept ? NULL : allocation;
}

/* As what of it can be exported. */
static unsigned long long handle_types(const struct sgp_allocation *allocation)
{
    return allocation->kind == SGP_MEMORY_MAPPED   ? allocation->physical->properties.requestedHandleTypes
           : allocation->kind == SGP_MEMORY_POOLED ? allocation->pool->handle_types
                                                   : CU_MEM_HANDLE_TYPE_NONE;
}

/* The answer for memory the driver knows nothing of. cuPointerGetAttribute refuses; cuPointerGetAttributes writes
 * zeros. */
static CUresult attribute_of(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
                             const struct sgp_allocation *allocation)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = allocation->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)data = is_device_kind(allocation) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (is_device_kind(allocation) && !is_managed(allocation, ptr)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *(void **)data = (void *)(uintptr_t)ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned int *)data = allocation->is_sync_memops;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)data = is_managed(allocation, ptr);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned int *)data = allocation->kind == SGP_MEMORY_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(unsigned int *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = allocation->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = allocation->context ? allocation->context->device->ordinal : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = allocation->start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = allocation->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = handle_types(allocation);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(int *)data = allocation->kind == SGP_MEMORY_MAPPED ? (int)sgp_memory_access(allocation)
                                                             : (int)CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = allocation->pool;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static size_t attribute_bytes(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return 4;
    default:
        return 0;
    }
}

SGP_EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    const struct sgp_allocation *allocation;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    allocation = find(ptr);
    if (!data || !allocation) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return sgp_leave(attribute_of(data, attribute, ptr, allocation));
}

static CUresult attribute_or_zero(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
                                  const struct sgp_allocation *allocation)
{
    size_t bytes = attribute_bytes(attribute);

    if (!data || !bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!allocation && attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        return CUDA_SUCCESS; /* NVIDIA's driver leaves this one as it was */
    }
    memset(data, 0, bytes);
    if (allocation) {
        attribute_of(data, attribute, ptr, allocation); /* what does not apply to this memory stays zero */
    } else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
        *(int *)data = CU_DEVICE_INVALID;
    }
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                           CUdeviceptr ptr)
{
    const struct sgp_allocation *allocation;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!numAttributes || !attributes || !data) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    allocation = find(ptr);
    for (unsigned int i = 0; i < numAttributes && !result; i++) {
        result = attribute_or_zero(data[i], attributes[i], ptr, allocation);
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct sgp_allocation *allocation;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    allocation = find(ptr);
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !allocation || !is_device_kind(allocation)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    /* Copies of this driver are synchronous wherever it would make them so: only the answer changes. */
    allocation->is_sync_memops = *(const unsigned int *)value != 0;
    return sgp_leave(CUDA_SUCCESS);
}
