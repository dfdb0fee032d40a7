/* cuInit: which devices there are for this program, and what each is opened with. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/space.h"
#include "base/state.h"
#include "context/checkpoint_steps.h"
#include "cuda_api/prototypes.h"
#include "cuda_api/visible.h"
#include "memory/memory_map.h"
#include "memory/pool.h"
#include "runtime/runtime.h"

#define DEFAULT_MEMORY_BYTES (4ull << 30)

static int nr_devices(void)
{
    const char *text = getenv("FAIRGV_SOFTGPU_DEVICES");
    char *end;
    long value;

    if (!text || !*text) {
        return 1;
    }
    value = strtol(text, &end, 10);
    if (*end || value < 0 || value > SGP_MAX_DEVICES) {
        sgp_log("device", "FAIRGV_SOFTGPU_DEVICES=%s is not a number from 0 to %d; there is 1 device", text,
                SGP_MAX_DEVICES);
        return 1;
    }
    return (int)value;
}

/* "4G", "512M", "1048576". */
static uint64_t memory_bytes(void)
{
    const char *text = getenv("FAIRGV_SOFTGPU_MEMORY");
    unsigned long long value;
    unsigned int shift = 0;
    char *end;

    if (!text || !*text) {
        return DEFAULT_MEMORY_BYTES;
    }
    value = strtoull(text, &end, 10);
    if (*end == 'K' || *end == 'k') {
        shift = 10;
    } else if (*end == 'M' || *end == 'm') {
        shift = 20;
    } else if (*end == 'G' || *end == 'g') {
        shift = 30;
    }
    end += shift != 0;
    if (!strcmp(end, "iB")) {
        end += 2;
    }
    if (*end || !value || value > (1ull << 44 >> shift)) {
        sgp_log("device", "FAIRGV_SOFTGPU_MEMORY=%s is not a size such as 4G; the device has 4 GiB", text);
        return DEFAULT_MEMORY_BYTES;
    }
    return (uint64_t)value << shift;
}

static CUresult device_open(struct sgp_device *device, int ordinal, int physical)
{
    if (device->reservation) {
        return CUDA_SUCCESS; /* an earlier cuInit got this far */
    }
    *device =
        (struct sgp_device){.ordinal = ordinal, .physical = physical, .bus = physical, .memory_bytes = memory_bytes()};
    device->state = sgp_device_state_open(physical);
    if (!device->state) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (!sgp_memory_reserve(device) || !sgp_launch_area_map(device->ordinal)) {
        sgp_log("device", "cannot reserve %llu bytes of address space: %s", (unsigned long long)device->memory_bytes,
                strerror(errno));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sgp_pool_open(device);
    return CUDA_SUCCESS;
}

static void forked_child(void)
{
    if (!sgp_driver.is_initialised) {
        return;
    }
    sgp_driver.is_forked = true;
    for (int i = 0; i < sgp_nr_devices; i++) {
        sgp_state_close_in_child(sgp_devices[i].state);
    }
    sgp_remote_close_in_child();
}

/* Which devices the program sees, in its order. */
static CUresult visible_devices(uint32_t physical[SGP_MAX_DEVICES], uint32_t *nr)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    uint8_t uuids[SGP_MAX_DEVICES][16];
    int nr_present = nr_devices();

    sgp_nr_physical_devices = nr_present;
    for (int i = 0; i < nr_present; i++) {
        physical[i] = (uint32_t)i;
        sgp_device_uuid(i, uuids[i]);
    }
    *nr = (uint32_t)nr_present;
    return list ? fgv_visible_devices(list, uuids, (uint32_t)nr_present, physical, nr) : CUDA_SUCCESS;
}

static CUresult initialise(void)
{
    uint32_t physical[SGP_MAX_DEVICES], nr;
    CUresult result = visible_devices(physical, &nr);

    if (result || !nr) {
        return result ? result : CUDA_ERROR_NO_DEVICE;
    }
    if (!sgp_space_open()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t i = 0; i < nr; i++) {
        result = device_open(&sgp_devices[i], (int)i, (int)physical[i]);
        if (result) {
            return result;
        }
    }
    if (!sgp_remote_open(sgp_checkpoint_serve) || pthread_atfork(NULL, NULL, forked_child)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sgp_device_lacks_wall = sgp_wall_is_missing;
    sgp_driver.find_failures = sgp_device_find_failures;
    sgp_nr_devices = (int)nr;
    sgp_driver.is_initialised = true;
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuInit(unsigned int Flags)
{
    CUresult result = CUDA_SUCCESS;

    if (Flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sgp_driver.is_forked) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    sgp_lock();
    if (!sgp_driver.is_initialised) {
        result = initialise();
    }
    return sgp_leave(result);
}
