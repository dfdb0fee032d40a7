/* Images that softgpu cannot run, in words. */
#ifndef SOFTGPU_REFUSAL_H
#define SOFTGPU_REFUSAL_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda_api/fatbin.h"

/* Whether it has machine code alone: then the text says for which GPUs. No compiler is asked. */
bool sgp_image_lacks_ptx(enum fgv_image_kind kind, const void *image, size_t bytes, char *text, size_t text_bytes);

/* Tells the user of the program, once, what an image that did not load wants. error_text: as for the error log. */
void sgp_refusal_tell(CUresult result, const char *error_text);

#endif
