/* The comparisons of images.cu as plain loops. Of images that are equally near the first counts. */
#include "images.h"

static uint32_t distance(const uint8_t *one, const uint8_t *other)
{
    uint32_t sum = 0;
    for (int at = 0; at < IMAGES_BYTES; at++) {
        int difference = one[at] - other[at];
        sum += (uint32_t)(difference * difference);
    }
    return sum;
}

void images_loops(const struct images *images)
{
#pragma omp parallel for schedule(dynamic, 1)
    for (int asked = 0; asked < images->nr_asked; asked++) {
        uint64_t nearest = UINT64_MAX;
        for (int known = 0; known < images->nr_known; known++) {
            uint64_t sum =
                distance(images->asked + (long)asked * IMAGES_BYTES, images->known + (long)known * IMAGES_BYTES);
            nearest = (sum << 32 | (uint32_t)known) < nearest ? sum << 32 | (uint32_t)known : nearest;
        }
        images->nearest[asked] = nearest;
    }
}
