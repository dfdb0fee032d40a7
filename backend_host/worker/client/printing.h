/* Kernels may print, or not, and what they print is passed on: see printing.c. */
#ifndef BACKEND_HOST_PRINTING_H
#define BACKEND_HOST_PRINTING_H

#include "client/state.h"

/* cffi: begin */
void fgw_worker_set_inspector(struct fgw_worker *worker, fgw_inspector_fn inspector);
/* From now on descriptor 2 is for the client. Returns another for the worker's own words, -1: as errno has it. */
int fgw_printing_open_errors(struct fgw_worker *worker);
/* Any thread may call it, once for an image that was FGW_PRINTS_UNKNOWN. */
void fgw_image_is_silent(void);
/* cffi: end */

bool fgw_printing_open(struct fgw_worker *worker);
/* It is for after a synchronisation: it tells the guest when kernels have printed. */
void fgw_printing_check(struct fgw_worker *worker);
/* The guest has got so many bytes more of a stream; `is_all`: and nothing is left. */
void fgw_printing_fetched(struct fgw_worker *worker, uint32_t stream, uint64_t bytes, bool is_all);
/* How much the device library has said on the standard error output, and its first line since then: to the guest, and
 * to the daemon's log. For calls that failed. Wrong when: a kernel's assertion fails meanwhile: its line is told in the
 * log. */
uint64_t fgw_printing_said_bytes(const struct fgw_worker *worker);
void fgw_printing_pass_on(struct fgw_worker *worker, uint64_t since_bytes);
/* Says, before an image is loaded, whether its kernels may print. */
void fgw_printing_note_image(struct fgw_worker *worker, const uint8_t *image, size_t bytes);
/* Images of which it is not known that their kernels do not print. */
extern _Atomic uint32_t fgw_nr_printing;
/* Some kernel might have printed: then synchronisations go to the driver, which writes it out. */
static inline bool fgw_may_print(void)
{
    return atomic_load_explicit(&fgw_nr_printing, memory_order_relaxed) != 0;
}

#endif
