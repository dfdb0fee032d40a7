/* The sides of a copied box as a program describes them. */
#ifndef FRONTEND_GUEST_BOX_SIDES_H
#define FRONTEND_GUEST_BOX_SIDES_H

#include "copy/sides.h"
#include "cuda_api/copy_calls.h"

/* Checks what is said of a side: positions within pitches, ends that are numbers, memory and arrays that
 * hold what is copied. The size is not 0. */
CUresult fgv_box_side_check(struct fgv_box_side *side, const struct fgv_copy_side *said,
                            const struct fgv_copy_size *size);

#endif
