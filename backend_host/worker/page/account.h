/* Accounts for what a vGPU used: GPU time, and device memory against its quota; see account.c. */
#ifndef BACKEND_HOST_ACCOUNT_H
#define BACKEND_HOST_ACCOUNT_H

#include "page/grantee.h"

/* cffi: begin */
/* The GPU worked for this worker in [from_ns, to_ns]. What another worker of the vGPU was charged for the same time is
 * not charged again; where other vGPUs have work on the device too, it is charged in part. Time before that in which
 * another worker of the vGPU has work there is charged as that one's first. */
void fgw_grant_charge(struct fgw_grantee *grantee, uint64_t from_ns, uint64_t to_ns);
/* Its work on the device is not charged from then on; 0: it has none there. */
void fgw_grant_show_uncharged(struct fgw_grantee *grantee, uint64_t since_ns);
/* Charges half of it, whoever else has work on the device. */
void fgw_grant_charge_half(struct fgw_grantee *grantee, uint64_t from_ns, uint64_t to_ns);
/* The holder, of another vGPU, is not charged for the time until then, or for 2 ms of a turn: it is kept off the
 * device.
 */
void fgw_grant_spare_holder(struct fgw_grantee *grantee, uint64_t until_ns);
/* The grant was kept from others for so long with nothing on the GPU: no use of the GPU, and paid for all the same. */
void fgw_grant_charge_hold(struct fgw_grantee *grantee, uint64_t held_ns);

/* Memory against the vGPU's quota: false, and nothing counted, when it would not fit. */
bool fgw_quota_take(struct fgw_grantee *grantee, uint64_t bytes);
void fgw_quota_give(struct fgw_grantee *grantee, uint64_t bytes);
/* Tells what the vGPU's workers have together, and the quota (0: none). */
uint64_t fgw_quota_used(const struct fgw_grantee *grantee, uint64_t *quota_bytes);

/* So much more of what a vGPU may have so much of: false, and nothing counted, when that is too many. */
bool fgw_limit_take(struct fgw_grantee *grantee, uint32_t limited, uint64_t more);
void fgw_limit_give(struct fgw_grantee *grantee, uint32_t limited, uint64_t more);
/* cffi: end */

/* Tells the same of a vGPU of which this process sees the own pages. */
uint64_t fgw_vgpu_memory_bytes(const struct fgw_control *control, uint32_t index, uint64_t *quota_bytes);

#endif
