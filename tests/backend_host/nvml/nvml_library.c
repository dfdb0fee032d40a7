/* A libnvidia-ml.so.1 of one device, GPU-1, for the processes that ask NVML. What it does is said by NVML_CASE:
 * "answers", "hangs" or "crashes" when asked for power, "no driver", "lost" when asked for power, "gone" before that,
 * "unknown", "xid N" once, "ecc" once, "noisy" (it prints). After an Xid it hangs, too. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, IS_LOST = 15 };
enum { EVENT_ECC = 2, EVENT_XID = 8 };

struct event {
    void *device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
};

static int is_case(const char *name)
{
    const char *said = getenv("NVML_CASE");
    return said && strncmp(said, name, strlen(name)) == 0;
}

int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    if (is_case("noisy")) {
        puts("NVML says hello");
        fflush(stdout);
    }
    return is_case("no driver") ? DRIVER_NOT_LOADED : OK;
}

const char *nvmlErrorString(int error)
{
    return error == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "error";
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = (void *)16;
    if (strcmp(uuid, "GPU-1") != 0 || is_case("unknown")) {
        return NOT_FOUND;
    }
    return is_case("gone") ? IS_LOST : OK;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts)
{
    (void)device;
    if (is_case("hangs") || is_case("xid")) {
        pause();
    }
    if (is_case("crashes")) {
        abort();
    }
    *milliwatts = 123456;
    return is_case("lost") ? IS_LOST : OK;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    (void)device;
    *millijoules = 1ull << 40;
    return OK;
}

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned int *megahertz)
{
    (void)device;
    *megahertz = clock == 1 ? 1980 : 2619;
    return OK;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *celsius)
{
    (void)device, (void)sensor;
    *celsius = 41;
    return OK;
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *nr)
{
    (void)device, (void)type, (void)counter, (void)nr;
    return NOT_SUPPORTED;
}

int nvmlEventSetCreate(void **set)
{
    *set = (void *)32;
    return OK;
}

int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types)
{
    (void)device;
    *types = EVENT_ECC | EVENT_XID | 1u << 30;
    return OK;
}

static unsigned long long registered;

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
    (void)device, (void)set;
    registered = types;
    return OK;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned int timeout_ms)
{
    static int is_told;
    (void)set;
    if (!is_told && registered == (EVENT_ECC | EVENT_XID) && (is_case("xid") || is_case("ecc"))) {
        is_told = 1;
        event->device = (void *)16;
        event->type = is_case("ecc") ? EVENT_ECC : EVENT_XID;
        event->data = is_case("ecc") ? 0 : strtoul(getenv("NVML_CASE") + 3, NULL, 10);
        return OK;
    }
    usleep(timeout_ms * 20); /* a fiftieth of the time, so that no test waits */
    return TIMEOUT;
}
