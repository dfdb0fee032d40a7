/* What modules and libraries share. With the lock but for the first four. */
#ifndef SOFTGPU_LOADING_H
#define SOFTGPU_LOADING_H

#include "driver.h"

/* Images to link, as cuda_api/fatbin.h lays them out. */
struct sgp_image_set {
    uint8_t *start;
    size_t bytes;
};

CUresult sgp_set_append(struct sgp_image_set *set, const void *image, size_t bytes);
CUresult sgp_file_read(const char *name, void **data, size_t *bytes);
/* Options that CUDA has, with places for their values. */
bool sgp_jit_options_are_ok(unsigned int nr_options, const CUjit_option *options, void *const *values);
/* The program's buffers for the compiler's words, if it gave any. */
void sgp_jit_log(unsigned int nr_options, const CUjit_option *options, void **values, const char *text);
CUresult sgp_module_global(const struct CUmod_st *module, const char *name, CUdeviceptr *address, size_t *bytes);
/* An attribute of a kernel under the settings of one of its handles. */
CUresult sgp_function_attribute_get(const struct sgp_image *image, const struct sgp_kernel *kernel,
                                    const struct sgp_function_settings *settings, CUfunction_attribute attribute,
                                    int *value);
CUresult sgp_function_attribute_set(const struct sgp_kernel *kernel, struct sgp_function_settings *settings,
                                    CUfunction_attribute attribute, int value);
CUresult sgp_parameter_info(const struct sgp_kernel *kernel, size_t index, size_t *offset, size_t *bytes);

#endif
