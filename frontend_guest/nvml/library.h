/*
 * What the files of this library share: the region, and the devices in it. It maps the region as a program does, but is
 * no client: it takes no place in it and asks nobody. What it answers stands there: the facts, and in each client's
 * entry what its worker says of it. So it sees its own vGPU and nothing of others.
 *
 * Wrong when: a vGPU has no quota. Its free memory is then the device's size less its own use, while cuMemGetInfo also
 * leaves out what others use.
 */
#ifndef FRONTEND_GUEST_NVML_LIBRARY_H
#define FRONTEND_GUEST_NVML_LIBRARY_H

#include <stddef.h>

#include "cuda_api/facts.h"
#include "ivshmem/region.h"
#include "nvml/nvml.h"
#include "region/program.h"

struct nvml_device {
    uint32_t index; /* in the facts */
};

/* The region while the library is initialised, else NULL. */
const struct fgv_region *nvml_region(void);
/* A private copy of what the facts say of this device now: a quota may change. */
nvmlReturn_t nvml_device_facts(nvmlDevice_t device, struct fgv_device_facts *facts);
/* The devices' number, and the one of this index. */
uint32_t nvml_nr_devices(void);
nvmlDevice_t nvml_device(uint32_t index);

/* False for an entry that no program is served in. */
bool nvml_program_at(uint32_t index, struct fgv_program *program);

/* Copies a text with its end; INSUFFICIENT_SIZE when it does not fit. */
nvmlReturn_t nvml_text(char *to, unsigned int room, const char *text);
/* "GPU-..." */
void nvml_uuid_text(const uint8_t uuid[16], char text[41]);

#endif
