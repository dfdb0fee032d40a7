/*
 * Copies of graphs from and to ordinary memory of the program, which the host cannot reach. Such a side gets a buffer
 * in the heap, and the copy is made from there, or to there; a host function, which the graph runs before the copy or
 * behind it, fills the buffer or drains it. So what the memory holds when the graph comes to the copy is what is
 * copied.
 *
 * NVIDIA's driver makes such copies in the thread that launches the graph, one after the other (docs/graphs.md): the
 * memory has been read, or written, when the launch returns. So a launch waits here.
 *
 * A buffer and its functions go with the last graph, or what was instantiated of one, that has them.
 *
 * Wrong when: what stands before the launch in its stream waits for something that the same thread does after it.
 */
#ifndef FRONTEND_GUEST_STAGING_H
#define FRONTEND_GUEST_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include "copy/sides.h"
#include "cuda_api/copy_calls.h"

/* Numbers of host functions (context/host_function.h), each kept once; 0: none is needed. */
struct fgv_staging {
    uint64_t fill, drain;
};

static inline bool fgv_staging_is_any(const struct fgv_staging *staging)
{
    return staging->fill != 0 || staging->drain != 0;
}

/* Whether this process has staged anything, ever. */
bool fgv_staging_is_used(void);
/* Whether a side of a copy must be staged. */
bool fgv_staging_is_needed(const struct fgv_box_side *side);
/*
 * Puts a buffer in place of a side that was checked, with its rows and slices without gaps, and gives the number of
 * what fills it, or drains it. `said`: as the program described the side, for who asks what is copied. `was`: an
 * address in a buffer that may be used again, as nothing else will be staged there, or 0.
 */
CUresult fgv_staging_put(struct fgv_box_side *side, const struct fgv_copy_size *size, bool fills,
                         const struct fgv_copy_side *said, uint64_t was, uint64_t *number);
/* Fills a buffer with the rows of a side, or drains it into them. */
void fgv_staging_rows(const struct fgv_box_side *side, const struct fgv_copy_size *size, uint8_t *in_buffer,
                      bool fills);
/* As the program described the side that is staged so; false: the number is of no such function. */
bool fgv_staging_said(uint64_t number, struct fgv_copy_side *said);
/* Whether the function of this number fills a buffer or drains one. */
bool fgv_staging_runs(uint64_t number);
/* Both numbers are the owner's now: a graph, or what was instantiated of one. */
void fgv_staging_own(const struct fgv_staging *staging, uint64_t owner);
void fgv_staging_drop(const struct fgv_staging *staging);

#endif
