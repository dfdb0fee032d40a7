/*
 * What Python calls of the worker itself: main.py opens the library, waits for its client, and gives the thread to
 * `fgw_worker_run`.
 */
#ifndef BACKEND_HOST_FACE_H
#define BACKEND_HOST_FACE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/attach.h"

struct fgw_worker;

/* cffi: begin */
/* Facts of one device as Python hands them on: the block as bytes, and what a person wants to see of it. `nr_devices`
 * is how many the library has. */
struct fgw_facts_block {
    uint8_t bytes[65536];
    uint32_t nr_bytes;
    uint32_t nr_devices;
    uint8_t uuid[16];
    char pci_bus_id[16];
    uint64_t memory_bytes;
    int32_t capability_major;
    int32_t capability_minor;
    int32_t driver_version;
    int32_t preempts;
    int32_t reaches_host; /* a kernel may follow any pointer of the process that it runs for */
    char name[256];
};
/* Opens the library, and asks it for the device with this ordinal. As fgw_worker_load (attach.h). */
int fgw_worker_probe_block(const char *library, int ordinal, struct fgw_facts_block *block, char *error,
                           uint32_t error_bytes);

/* Weighs a device: free memory now, and what a stream takes, in bytes. NULL: `error` is one line for a person. */
struct fgw_scale;
struct fgw_scale *fgw_scale_open(const char *library, int ordinal, char *error, uint32_t error_bytes);
uint64_t fgw_scale_free_bytes(struct fgw_scale *scale);
uint64_t fgw_scale_stream_bytes(struct fgw_scale *scale);
void fgw_scale_close(struct fgw_scale *scale);

/* Opens the device library and retains the primary context of `device`. NULL: `error` is one line for a person. */
struct fgw_worker *fgw_worker_open(const char *library, int device, char *error, uint32_t error_bytes);

/* Maps the region, checks the client and makes it READY. 0, or the CUresult with which the client was refused. */
int fgw_worker_attach(struct fgw_worker *worker, const struct fgw_assignment *assignment, char *error,
                      uint32_t error_bytes);
/* Serves until the client ends, then takes everything down. Why it ended, a static string. */
const char *fgw_worker_run(struct fgw_worker *worker);

/* For the daemon: of the table that worker and guests were built from. */
uint64_t fgw_table_hash(void);
/* Makes each device of a facts block no larger than `quota_bytes`; false when the block is none. */
bool fgw_facts_limit(void *facts, uint32_t nr_bytes, uint64_t quota_bytes);
/* cffi: end */

#endif
