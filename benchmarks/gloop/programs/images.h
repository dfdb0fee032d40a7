/*
 * Approximate image matching of the GPUfs project (its `img`), written anew: to each of many images of a query the
 * nearest one of a large file of images, by the sum of squared differences. Sums are whole numbers, so the nearest one
 * is the same everywhere.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_IMAGES_H
#define BENCHMARKS_GLOOP_PROGRAMS_IMAGES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { IMAGES_BYTES = 4096 /* of an image, one for each pixel */ };

struct images {
    const uint8_t *known, *asked;
    uint64_t *nearest; /* of each that is asked for: the sum, and in the lower 32 bits the number of the image */
    int nr_known, nr_asked;
};

void images_loops(const struct images *images);

#ifdef __cplusplus
}
#endif

#endif
