/* What modules, libraries and links share. */
#ifndef SOFTGPU_LOADING_H
#define SOFTGPU_LOADING_H

#include "base/driver.h"

/* Images to link, as cuda_api/fatbin.h lays them out. */
struct sgp_image_set {
    uint8_t *start;
    size_t bytes;
};

CUresult sgp_set_append(struct sgp_image_set *set, const void *image, size_t bytes);
/* With a zero at its end, for PTX. The caller frees. */
CUresult sgp_file_read(const char *name, void **data, size_t *bytes);
/* Options that CUDA has, with places for their values. */
bool sgp_jit_options_are_ok(unsigned int nr_options, const CUjit_option *options, void *const *values);
/* The program's buffers for the compiler's words, if it gave any. */
void sgp_jit_log(unsigned int nr_options, const CUjit_option *options, void **values, const char *text);

#endif
