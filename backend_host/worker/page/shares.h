/*
 * Memory that several workers of a vGPU have. Each counts it among what it allocated, as it may outlive whoever made
 * it; the sum of all (room.h) counts it once. Who has it sets its bit at the name of it, the first word of its key: so
 * many bits, less one, count too much. A bit of a worker that died is none, as it is no member of its vGPU any more.
 *
 * A bit is set only while its worker counts the memory. So the sum may be too large for a moment, and is never too
 * small.
 *
 * Wrong when: there is no place. What is shared then counts once for each that has it.
 */
#ifndef BACKEND_HOST_SHARES_H
#define BACKEND_HOST_SHARES_H

#include "page/grantee.h"

/* cffi: begin */
/* The worker counts these bytes, which others may have, too; and, before it counts them no more, has them no more. */
void fgw_share_join(struct fgw_grantee *grantee, uint64_t name, uint64_t bytes);
void fgw_share_leave(struct fgw_grantee *grantee, uint64_t name);
/* cffi: end */

/* Tells what a vGPU's workers count beyond once, of each at most `most_bytes`. */
uint64_t fgw_shares_beyond_once(const struct fgw_control *control, uint32_t index, uint64_t most_bytes);
/* Another worker gets this slot of the vGPU's. */
void fgw_shares_clear(struct fgw_control *control, uint32_t index, uint32_t slot);

#endif
