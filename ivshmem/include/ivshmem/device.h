/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * What the guest's kernel module offers: frontend_guest/kmod is the one end, ivshmem/src/guest_bell.c and
 * frontend_guest/region/growth.c are the other. Included by both, so it needs nothing but the kernel's own headers.
 *
 * Mappings are shared ones, write-back. What is mapped may go: a device that is unbound or taken out, or memory that a
 * reset of its device took, costs whoever touches it a SIGBUS, and calls fail with ENODEV.
 */
#ifndef IVSHMEM_DEVICE_H
#define IVSHMEM_DEVICE_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* /dev/fairgvN, one for each region. Memory: the region at offset 0; at FGV_DEVICE_RUNG_OFFSET one page, read-only,
 * with a count for each interrupt vector (__u32 each), which grows by one whenever the host rings it. */
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

/* /dev/fairgv-memoryN, one for each device fairgv-memory of a patched QEMU. Memory: the device's window at offset 0, of
 * which the first `mapped_bytes` are there and can be mapped. */
#define FGV_MEMORY_ABI 1

struct fgv_memory_info {
    __u32 abi;
    __u32 reserved;
    __u64 window_bytes; /* how much there can be at most */
    __u64 mapped_bytes; /* how much there is now */
};

#define FGV_MEMORY_INFO _IOR(0xf6, 4, struct fgv_memory_info)
/* Asks the host for so many bytes in all, whole pages, and waits for its answer; one program at a time. 0: there are at
 * least so many. EINVAL: more than the window, or not pages. ENOMEM: the host refuses. ENOTCONN: no daemon is there.
 * EBUSY, EIO, ETIME: the device does not do it. EINTR: a signal; the question stands, and asking again waits for it. */
#define FGV_MEMORY_GROW _IOW(0xf6, 5, __u64)

#endif
