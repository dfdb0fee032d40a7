/*
 * The part of a fat binary that is sent: what its devices can use (cuda_api/fatbin_choice.h), as pieces of the
 * program's memory, none of which is copied or unpacked. What is left out is not even read.
 */
#ifndef FRONTEND_GUEST_IMAGE_CUT_H
#define FRONTEND_GUEST_IMAGE_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/fatbin.h"
#include "cuda_api/fatbin_choice.h"

struct fgv_image_cut {
    struct fgv_fatbin_header header; /* of what is sent */
    struct fgv_fatbin_choice choice;
    const uint8_t *entries; /* the program's, all of them */
    uint64_t entries_bytes;
};

/* A container that has been measured, for devices of these capabilities (90 for 9.0). False: it must go whole. */
bool fgv_image_cut(struct fgv_image_cut *cut, const uint8_t *container, const uint32_t *capabilities,
                   uint32_t nr_capabilities);
/* The next run of chosen entries at or after *offset, which is moved behind it; they follow the header. 0: no more. */
uint64_t fgv_image_cut_next(const struct fgv_image_cut *cut, uint64_t *offset, const uint8_t **run);

#endif
