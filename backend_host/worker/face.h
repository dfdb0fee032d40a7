/*
 * What Python calls of the worker itself: main.py opens the library, waits for its client, and gives the thread to
 * `fgv_worker_run`.
 */
#ifndef BACKEND_HOST_FACE_H
#define BACKEND_HOST_FACE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/driver.h"
#include "cuda_api/facts.h"
#include "grant.h"

struct fgv_worker;

/* Opens a device library for this process and fills the table of its calls, cuInit included. A CUresult; `error` is one
 * line for a person. */
int fgv_worker_load(const char *library, struct fgv_driver *driver, char *error, uint32_t error_bytes);
/* Facts of all devices, or of device `only` when that is not negative. As fgv_worker_load. */
int fgv_worker_probe(const char *library, int only, struct fgv_facts *facts, char *error, uint32_t error_bytes);

/* cffi: begin */
/* Before any library is open: no core files, no new privileges, no descriptor but 0, 1, 2 and `kept`. 0 or an errno. */
int fgv_sandbox_early(int kept);
/* Before the first look at guest data: gives up root, and the calls that no worker needs. 0 or an errno. */
int fgv_sandbox_enter(uint32_t uid, uint32_t gid);

/* Facts as Python hands them on: the block as bytes, and what a person wants to see of the first device. */
struct fgv_facts_block {
    uint8_t bytes[65536];
    uint32_t nr_bytes;
    uint32_t nr_devices;
    uint64_t memory_bytes;
    int32_t capability_major;
    int32_t capability_minor;
    int32_t driver_version;
    int32_t preempts;
    char name[256];
};
int fgv_worker_probe_block(const char *library, int only, struct fgv_facts_block *block, char *error,
                           uint32_t error_bytes);

/* Opens the device library and retains the primary context of `device`. NULL: `error` is one line for a person. */
struct fgv_worker *fgv_worker_open(const char *library, int device, char *error, uint32_t error_bytes);

/* What a worker is to serve; descriptors are the caller's, and may be closed afterwards. */
struct fgv_assignment {
    int region_fd;
    uint64_t region_bytes;
    uint64_t table_hash;
    uint32_t client;
    uint32_t vgpu;
    uint32_t slot;
    int32_t device;
    int daemon; /* the socket on which pieces of the window come, see window.c; it must stay open */
    struct fgv_control *control;
    /* Eventfds, where the VM has bells (ivshmem/bell.h): the one that the guest rings for this worker, and those that
     * interrupt the guest, by vector. */
    int own_bell;
    uint32_t nr_guest_bells; /* 0: no bells */
    int guest_bells[16];
};

/* Maps the region, checks the client and makes it READY. 0, or the CUresult with which the client was refused. */
int fgv_worker_attach(struct fgv_worker *worker, const struct fgv_assignment *assignment, char *error,
                      uint32_t error_bytes);
/* Whether kernels of an image may print; without an inspector all may. */
enum fgv_printing {
    FGV_PRINTS_NOT = 0,
    FGV_MAY_PRINT = 1,
    FGV_PRINTS_UNKNOWN = 2, /* fgv_image_is_silent will say if it does not; until then it may */
};
/* Called from the loop, before a module is loaded; an enum fgv_printing. The image is there during the call only. */
typedef int32_t (*fgv_inspector_fn)(const uint8_t *image, uint64_t image_bytes, uint32_t capability);
void fgv_worker_set_inspector(struct fgv_worker *worker, fgv_inspector_fn inspector);
/* By any thread, once for an image that was FGV_PRINTS_UNKNOWN. */
void fgv_image_is_silent(void);
/* Serves until the client ends, then takes everything down. Why it ended, a static string. */
const char *fgv_worker_run(struct fgv_worker *worker);

/* For the daemon: of the table that worker and guests were built from. */
uint64_t fgv_table_hash(void);
/* Makes each device of a facts block no larger than `quota_bytes`; false when the block is none. */
bool fgv_facts_limit(void *facts, uint32_t nr_bytes, uint64_t quota_bytes);
/* cffi: end */

#endif
