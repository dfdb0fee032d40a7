/* Questions about pointers, answered from the table of what the program allocated. */
#include <string.h>

#include "call/call.h"
#include "call/current.h"
#include "cuda_api/prototypes.h"
#include "memory/physical.h"
#include "memory/pool_table.h"
#include "memory/ranges.h"
#include "region/client.h"

/* As what of it can be passed on. */
static uint64_t handle_types(const struct fgv_range *range)
{
    CUmemAllocationProp properties;
    if (range->kind == FGV_MEMORY_MAPPED) {
        return fgv_physical_of_mapping(range->owner, &properties) ? properties.requestedHandleTypes : 0;
    }
    const struct fgv_memory_pool *pool =
        range->kind == FGV_MEMORY_POOLED ? fgv_memory_pool_find((CUmemoryPool)(uintptr_t)range->owner) : NULL;
    return pool && pool->is_shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
}

/* One attribute into `data`. CUDA_ERROR_INVALID_VALUE when this memory has none of the kind. */
static CUresult attribute_get(void *data, CUpointer_attribute attribute, uint64_t address,
                              const struct fgv_range *range)
{
    const bool is_device = fgv_memory_is_device(range->kind);
    const bool is_shared = fgv_memory_is_shared(range->kind);
    const bool is_known = is_device || is_shared || range->kind == FGV_MEMORY_REGISTERED;
    if (!is_known && attribute != CU_POINTER_ATTRIBUTE_IS_MANAGED && attribute != CU_POINTER_ATTRIBUTE_MAPPED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = fgv_context_public(range->context_handle);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)data =
            is_device || range->kind == FGV_MEMORY_MANAGED_HEAP ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (range->kind == FGV_MEMORY_REGISTERED && range->owner != 0) {
            *(CUdeviceptr *)data = range->owner + (address - range->address);
            return CUDA_SUCCESS;
        }
        if (!is_device && !is_shared) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *(CUdeviceptr *)data = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (is_device && range->kind != FGV_MEMORY_MANAGED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *(void **)data = (void *)(uintptr_t)address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(int *)data = range->is_sync_memops;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)data = range->kind == FGV_MEMORY_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(int *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)data = handle_types(range);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(uint64_t *)data = range->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(int *)data = fgv_memory_is_managed(range->kind);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = range->context ? (int)range->context->ordinal : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(uint64_t *)data = range->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = range->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = is_device || is_shared || (range->kind == FGV_MEMORY_REGISTERED && range->owner != 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(int *)data =
            range->kind == FGV_MEMORY_MAPPED ? (int)range->flags : (int)CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = range->kind == FGV_MEMORY_POOLED || range->kind == FGV_MEMORY_IMPORTED
                                    ? (CUmemoryPool)(uintptr_t)range->owner
                                    : (CUmemoryPool)NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* What stands in for an attribute that the memory does not have, in the call that asks for many. */
static void attribute_default(void *data, CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = CU_DEVICE_INVALID;
        return;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(int *)data = 0;
        return;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        memset(data, 0, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS));
        return;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return; /* the driver leaves this one as it was */
    default:
        *(uint64_t *)data = 0;
    }
}

static bool is_attribute(CUpointer_attribute attribute)
{
    return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT && attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct fgv_range range;
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!data || !is_attribute(attribute)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!fgv_memory_find(ptr, &range)) {
        return CUDA_ERROR_INVALID_VALUE; /* whatever is asked about it */
    }
    return attribute_get(data, attribute, ptr, &range);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr ptr)
{
    struct fgv_range range;
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (numAttributes == 0 || !attributes || !data) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < numAttributes; i++) {
        if (!data[i] || !is_attribute(attributes[i])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    fgv_memory_find(ptr, &range);
    for (unsigned i = 0; i < numAttributes; i++) {
        if (attribute_get(data[i], attributes[i], ptr, &range) != CUDA_SUCCESS) {
            attribute_default(data[i], attributes[i]);
        }
    }
    return CUDA_SUCCESS;
}

/* Copies that begin on this memory already wait as CUDA's do; the flag changes no more than the answer. */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct fgv_range range;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !fgv_memory_find(ptr, &range) ||
        (!fgv_memory_is_device(range.kind) && range.kind != FGV_MEMORY_MANAGED_HEAP)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fgv_memory_set_sync(ptr, *(const unsigned int *)value != 0);
    return CUDA_SUCCESS;
}
