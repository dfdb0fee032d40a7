/* Each handle of a kernel has settings of its own. With the lock. */
#ifndef SOFTGPU_SETTINGS_H
#define SOFTGPU_SETTINGS_H

#include "base/driver.h"
#include "kernel_abi.h"

struct sgp_function_settings {
    int max_dynamic_shared_bytes;
    int shared_carveout;
    int cluster_policy;
    int non_portable_cluster;
};

void sgp_function_settings_reset(struct sgp_function_settings *settings, const struct sgp_kernel *kernel);
/* An attribute of a kernel under these settings. */
CUresult sgp_function_attribute_get(const struct sgp_module *code, const struct sgp_kernel *kernel,
                                    const struct sgp_function_settings *settings, CUfunction_attribute attribute,
                                    int *value);
CUresult sgp_function_attribute_set(const struct sgp_kernel *kernel, struct sgp_function_settings *settings,
                                    CUfunction_attribute attribute, int value);
CUresult sgp_parameter_info(const struct sgp_kernel *kernel, size_t index, size_t *offset, size_t *bytes);

#endif
