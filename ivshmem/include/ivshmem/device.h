/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * What the guest's kernel module offers through /dev/fairgvN, one device for each region: frontend_guest/kmod is the
 * one end, ivshmem/src/guest_bell.c the other. Included by both, so it needs nothing but the kernel's own headers.
 *
 * Memory: the region at offset 0, mapped write-back; at FGV_DEVICE_RUNG_OFFSET one page, read-only, with a count for
 * each interrupt vector (__u32 each), which grows by one whenever the host rings it.
 */
#ifndef IVSHMEM_DEVICE_H
#define IVSHMEM_DEVICE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define FGV_DEVICE_ABI         1
#define FGV_DEVICE_MAX_VECTORS 64
#define FGV_DEVICE_RUNG_OFFSET (1ull << 40)

struct fgv_device_info {
    __u32 abi;
    __u32 nr_vectors; /* 0: a device without doorbell (ivshmem-plain), or interrupts that the guest could not get */
    __u64 region_bytes;
    __u32 position; /* of this VM among the peers of its server */
    __u32 reserved;
};

/* Sleeps while the count of the vector is `seen`. 0: it is another one now. ETIME: `timeout_ns` have passed. EINTR: a
 * signal. ENODEV: the device was taken out. */
struct fgv_device_wait {
    __u32 vector;
    __u32 seen;
    __u64 timeout_ns;
};

#define FGV_DEVICE_INFO _IOR(0xf6, 1, struct fgv_device_info)
#define FGV_DEVICE_WAIT _IOW(0xf6, 2, struct fgv_device_wait)
/* Rings vector 0 of the peer in the argument. */
#define FGV_DEVICE_RING _IO(0xf6, 3)

#endif
