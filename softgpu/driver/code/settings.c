/* What kernels say of themselves, and the little that can be set. */
#include "code/settings.h"

#include "device/attributes.h"

#define BINARY_VERSION 80

void sgp_function_settings_reset(struct sgp_function_settings *settings, const struct sgp_kernel *kernel)
{
    *settings = (struct sgp_function_settings){
        .max_dynamic_shared_bytes = (int)(SGP_MAX_STATIC_SHARED_BYTES - kernel->static_shared_bytes),
        .shared_carveout = CU_SHAREDMEM_CARVEOUT_DEFAULT,
    };
}

CUresult sgp_function_attribute_get(const struct sgp_module *code, const struct sgp_kernel *kernel,
                                    const struct sgp_function_settings *settings, CUfunction_attribute attribute,
                                    int *value)
{
    if (!value) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)(kernel->max_threads && kernel->max_threads < SGP_MAX_BLOCK_THREADS ? kernel->max_threads
                                                                                          : SGP_MAX_BLOCK_THREADS);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)kernel->static_shared_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = 0;
        for (uint32_t i = 0; i < code->nr_globals; i++) {
            *value += code->globals[i].is_constant ? (int)code->globals[i].size_bytes : 0;
        }
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)kernel->local_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = (int)(kernel->nr_registers < 255 ? kernel->nr_registers : 255);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = (int)code->target;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = BINARY_VERSION;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = settings->max_dynamic_shared_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = settings->shared_carveout;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = settings->non_portable_cluster;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *value = settings->cluster_policy;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sgp_function_attribute_set(const struct sgp_kernel *kernel, struct sgp_function_settings *settings,
                                    CUfunction_attribute attribute, int value)
{
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || (uint32_t)value > SGP_MAX_SHARED_BYTES - kernel->static_shared_bytes) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        settings->max_dynamic_shared_bytes = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < CU_SHAREDMEM_CARVEOUT_DEFAULT || value > CU_SHAREDMEM_CARVEOUT_MAX_SHARED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        settings->shared_carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return CUDA_ERROR_NOT_SUPPORTED; /* no clusters before capability 9.0 */
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sgp_parameter_info(const struct sgp_kernel *kernel, size_t index, size_t *offset, size_t *bytes)
{
    if (!offset || index >= kernel->nr_parameters) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *offset = kernel->parameters[index].offset_bytes;
    if (bytes) {
        *bytes = kernel->parameters[index].size_bytes;
    }
    return CUDA_SUCCESS;
}
