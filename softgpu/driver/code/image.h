/* An image is compiled code, loaded into the process once and shared by every module made of it. */
#ifndef SOFTGPU_IMAGE_H
#define SOFTGPU_IMAGE_H

#include "code/code.h"

struct sgp_image {
    uint32_t nr_references;
    struct sgp_code code;
    const struct sgp_module *module; /* the tables of `code` */
    struct sgp_tier *tier;           /* code that takes its place once it is there; NULL: this is as fast as it gets */
};

/* Without the lock. error_text: what the compiler said, if anything. */
CUresult sgp_image_load(const void *data, struct sgp_image **image, char *error_text, size_t error_text_bytes);
void sgp_image_release(struct sgp_image *image); /* with the lock */

#endif
