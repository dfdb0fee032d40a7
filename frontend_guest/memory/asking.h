/* Asking the host for what the machine's programs share. It answers CUDA_ERROR_NOT_READY while it looks for it. */
#ifndef FRONTEND_GUEST_ASKING_H
#define FRONTEND_GUEST_ASKING_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

/* Around all questions for one thing: the worker looks for one at a time. */
void fgv_asking_begin(void);
void fgv_asking_end(void);
/* Whether to ask once more, which it is time for when this returns. `nr_naps`: 0 at first. */
bool fgv_asking_again(CUresult result, uint32_t *nr_naps);
/* What the program is told. */
CUresult fgv_asking_settled(CUresult result);

#endif
