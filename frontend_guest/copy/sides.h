/* What is copied: ranges, and boxes of rows and slices. */
#ifndef FRONTEND_GUEST_SIDES_H
#define FRONTEND_GUEST_SIDES_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ranges.h"

/* One end of a copy. */
struct fgv_side {
    uint64_t address;
    enum fgv_memory_kind kind;
};

/* One end of a box. In memory its first byte is at memory.address; in an array it is at (x_bytes, y, z). */
struct fgv_box_side {
    struct fgv_side memory;
    bool is_array;
    uint64_t array; /* the handle */
    uint64_t pitch_bytes;
    uint64_t plane_rows;
    uint64_t x_bytes;
    uint64_t y;
    uint64_t z;
};

struct fgv_box {
    uint64_t width_bytes;
    uint64_t height;
    uint64_t depth;
    struct fgv_box_side to;
    struct fgv_box_side from;
};

#endif
