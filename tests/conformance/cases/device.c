/* Devices: what they say of themselves. */
#include <ctype.h>

#include "case.h"

CASE(device_attributes)
{
    for (int attribute = 1; attribute < CU_DEVICE_ATTRIBUTE_MAX; attribute++) {
        int value = -77;
        CUresult result = CU(cuDeviceGetAttribute)(&value, (CUdevice_attribute)attribute, 0);

        printf("attribute %d: %s %d\n", attribute, result_name(result), value);
    }
}

CASE(device_attributes_that_are_none)
{
    int value = -77;

    DO(cuDeviceGetAttribute, &value, (CUdevice_attribute)0, 0);
    DO(cuDeviceGetAttribute, &value, (CUdevice_attribute)-1, 0);
    DO(cuDeviceGetAttribute, &value, (CUdevice_attribute)1000, 0);
    DO(cuDeviceGetAttribute, &value, (CUdevice_attribute)0x7fffffff, 0);
    say_number("untouched", value);
}

CASE(device_name)
{
    char name[256] = "", cut[6] = "######";

    DO(cuDeviceGetName, name, sizeof(name), 0);
    say_text("name", name);
    DO(cuDeviceGetName, cut, 5, 0);
    say_text("first four letters agree", memcmp(cut, name, 4) == 0 && cut[4] == 0 && cut[5] == '#' ? "yes" : "no");
    DO(cuDeviceGetName, cut, 1, 0);
    say_number("length of one", (long long)strlen(cut));
}

CASE(device_count_and_ordinals)
{
    int count = -1;
    CUdevice device = -1;

    DO(cuDeviceGetCount, &count);
    say_number("count", count);
    for (int i = 0; i < count; i++) {
        say(text("device %d", i), CU(cuDeviceGet)(&device, i));
        say_number(text("device %d is", i), device);
    }
    say("one too many", CU(cuDeviceGet)(&device, count));
    DO(cuDeviceGet, &device, -1);
}

CASE(device_uuid_and_luid)
{
    CUuuid uuid = {{0}}, again = {{1}};
    char luid[8] = {0};
    unsigned int mask = 0;

    DO(cuDeviceGetUuid, &uuid, 0);
    DO(cuDeviceGetUuid, &again, 0);
    say_number("same each time", !memcmp(&uuid, &again, sizeof(uuid)));
    say_bytes("uuid", &uuid, sizeof(uuid));
    DO(cuDeviceGetLuid, luid, &mask, 0);
}

CASE(device_memory)
{
    size_t bytes = 0;

    DO(cuDeviceTotalMem, &bytes, 0);
    say_number("some", bytes > 0);
    say_number("total bytes", (long long)bytes);
}

CASE(device_compute_capability)
{
    int major = 0, minor = 0, attribute_major = 0, attribute_minor = 0;

    DO(cuDeviceComputeCapability, &major, &minor, 0);
    MUST(cuDeviceGetAttribute, &attribute_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
    MUST(cuDeviceGetAttribute, &attribute_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    printf("capability: %d.%d\n", major, minor);
    say_number("as the attributes say", major == attribute_major && minor == attribute_minor);
}

CASE(device_properties)
{
    CUdevprop properties;

    memset(&properties, 0, sizeof(properties));
    DO(cuDeviceGetProperties, &properties, 0);
    printf("threads of a block: %d, %d %d %d\n", properties.maxThreadsPerBlock, properties.maxThreadsDim[0],
           properties.maxThreadsDim[1], properties.maxThreadsDim[2]);
    printf("grid: %d %d %d\n", properties.maxGridSize[0], properties.maxGridSize[1], properties.maxGridSize[2]);
    printf("others: %d %d %d %d %d %d %d\n", properties.sharedMemPerBlock, properties.totalConstantMemory,
           properties.SIMDWidth, properties.memPitch, properties.regsPerBlock, properties.clockRate,
           properties.textureAlign);
}

CASE(device_pci_bus_id)
{
    char name[64] = "";
    CUdevice device = -1;

    DO(cuDeviceGetPCIBusId, name, sizeof(name), 0);
    say_text("bus id", name);
    DO(cuDeviceGetByPCIBusId, &device, name);
    say_number("is device", device);
    for (char *letter = name; *letter; letter++) {
        *letter = (char)tolower(*letter);
    }
    DO(cuDeviceGetByPCIBusId, &device, name);
    DO(cuDeviceGetByPCIBusId, &device, "ffff:ff:1f.7");
    DO(cuDeviceGetByPCIBusId, &device, "nonsense");
    DO(cuDeviceGetPCIBusId, name, 5, 0);
}

CASE(device_peers)
{
    int value = -77;

    DO(cuDeviceCanAccessPeer, &value, 0, 0);
    say_number("itself", value);
    DO(cuDeviceCanAccessPeer, &value, 0, 99);
    for (int attribute = 0; attribute < 7; attribute++) {
        say(text("peer attribute %d of itself", attribute),
            CU(cuDeviceGetP2PAttribute)(&value, (CUdevice_P2PAttribute)attribute, 0, 0));
    }
}

CASE(device_exec_affinity)
{
    int value = -77;

    DO(cuDeviceGetExecAffinitySupport, &value, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0);
    say_number("supported", value);
    DO(cuDeviceGetExecAffinitySupport, &value, (CUexecAffinityType)9, 0);
}

CASE(device_texture_widths)
{
    size_t elements = 0;

    DO(cuDeviceGetTexture1DLinearMaxWidth, &elements, CU_AD_FORMAT_FLOAT, 1, 0);
    say_number("elements", (long long)elements);
}

CASE(device_memory_pool_and_others)
{
    CUmemoryPool pool = NULL;

    DO(cuDeviceGetDefaultMemPool, &pool, 0);
    DO(cuDeviceGetMemPool, &pool, 0);
    DO(cuFlushGPUDirectRDMAWrites, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
       CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
}
