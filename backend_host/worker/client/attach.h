/* Opening the device library, and taking a client: see attach.c. */
#ifndef BACKEND_HOST_ATTACH_H
#define BACKEND_HOST_ATTACH_H

#include "client/current.h"
#include "client/state.h"

/* cffi: begin */
/* It says what a worker is to serve; descriptors are the caller's, and may be closed afterwards. */
struct fgw_assignment {
    int region_fd;
    uint64_t region_bytes;
    uint64_t table_hash;
    uint32_t client;
    uint32_t vgpu;
    uint32_t slot;
    int32_t device;
    int daemon; /* the socket on which pieces of the window come, see window.c; it must stay open */
    struct fgw_control *control;
    /* Eventfds, where the VM has bells (ivshmem/bell.h): the one that the guest rings for this worker, and those that
     * interrupt the guest, by vector. */
    int own_bell;
    uint32_t nr_guest_bells; /* 0: no bells */
    int guest_bells[16];
};
/* For a client that may have a bell, before the walls: they refuse what a bell takes of the kernel. */
void fgw_client_expect_bell(struct fgw_worker *worker);
/* cffi: end */

/* Opens a device library for this process and fills the table of its calls, cuInit included. A CUresult; `error` is one
 * line for a person. */
int fgw_worker_load(const char *library, struct fgv_driver *driver, char *error, uint32_t error_bytes);
/* Loads the library and retains the primary context of this device of it. */
CUresult fgw_client_open(struct fgw_worker *worker, const char *library, int ordinal, char *error,
                         uint32_t error_bytes);
/* Maps the region, checks the client and makes the worker one of its vGPU's. A client that is not to be had is refused.
 */
CUresult fgw_client_take(struct fgw_worker *worker, const struct fgw_assignment *assignment, char *error,
                         uint32_t error_bytes);
/* Goes by another page from now on, of these objects, as this vGPU's worker in this slot. False, with errno, when it
 * cannot: it is where it was. */
bool fgw_client_change_page(struct fgw_worker *worker, const int *objects, uint64_t vgpu, uint64_t slot);
/* Tells a guest that waits for its state to change. */
void fgw_client_announce(struct fgw_worker *worker, uint32_t from, uint32_t to);

#endif
