/*
 * The smallest library that the handshake can live in: its ops answer from variables that a test sets.
 */
#include "../../cuda_api/common/handshake/internal.h"
#include "../../cuda_api/common/handshake/md2.h"
#include "cuda_api/fatbin.h"
#include "cuda_api/handshake.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int nr_devices;
EXPORT int driver_version = 13000;
EXPORT CUuuid device_uuids[4];
EXPORT int device_addresses[4][3];
EXPORT CUresult device_result;
EXPORT _Thread_local CUcontext current_context;
EXPORT const void *loaded_image;

static int op_driver_version(void)
{
    return driver_version;
}

static int op_device_count(void)
{
    return nr_devices;
}

static CUresult op_device_uuid(int ordinal, CUuuid *uuid)
{
    *uuid = device_uuids[ordinal];
    return device_result;
}

static CUresult op_device_pci(int ordinal, int address[3])
{
    memcpy(address, device_addresses[ordinal], sizeof(device_addresses[ordinal]));
    return CUDA_SUCCESS;
}

static CUresult op_current_context(CUcontext *context)
{
    *context = current_context;
    return CUDA_SUCCESS;
}

static CUresult op_primary_context(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)(uintptr_t)(0x1000 + device);
    return CUDA_SUCCESS;
}

static CUresult op_module_load(CUmodule *module, const void *image)
{
    loaded_image = image;
    *module = (CUmodule)(uintptr_t)0x2000;
    return CUDA_SUCCESS;
}

static CUresult op_context_id(CUcontext context, uint64_t *id)
{
    *id = (uint64_t)(uintptr_t)context + 1;
    return CUDA_SUCCESS;
}

static CUresult op_stream_object(CUcontext context, CUstream stream, void **object)
{
    (void)context;
    *object = (void *)stream;
    return CUDA_SUCCESS;
}

static CUresult op_stream_object_id(CUcontext context, void *object, uint64_t *id)
{
    *id = (uint64_t)(uintptr_t)context + (uint64_t)(uintptr_t)object;
    return CUDA_SUCCESS;
}

static const struct fgv_handshake_ops ops = {
    .driver_version = op_driver_version,
    .device_count = op_device_count,
    .device_uuid = op_device_uuid,
    .device_pci = op_device_pci,
    .current_context = op_current_context,
    .primary_context = op_primary_context,
    .module_load = op_module_load,
    .context_id = op_context_id,
    .stream_object = op_stream_object,
    .stream_object_id = op_stream_object_id,
};

EXPORT void embedder_start(void)
{
    fgv_handshake_set_ops(&ops);
}

EXPORT void embedder_set_current(CUcontext context)
{
    current_context = context;
}

EXPORT CUresult embedder_table(const void **table, const CUuuid *id)
{
    return fgv_handshake_table(table, id);
}

EXPORT void embedder_context_destroyed(CUcontext context)
{
    fgv_handshake_context_destroyed(context);
}

EXPORT void embedder_statistics(struct fgv_handshake_statistics *out)
{
    *out = fgv_handshake_statistics();
}

EXPORT CUresult embedder_integrity_hash(const struct fgv_integrity_subject *subject, uint64_t result[2])
{
    return fgv_integrity_hash(&ops, subject, result);
}

EXPORT void embedder_md2(const void *data, size_t bytes, uint8_t digest[FGV_MD2_BLOCK_BYTES])
{
    struct fgv_md2 md2;
    fgv_md2_begin(&md2);
    fgv_md2_update(&md2, data, bytes);
    fgv_md2_end(&md2, digest);
}

EXPORT CUresult embedder_image_bytes(const void *image, size_t *bytes, int *kind)
{
    enum fgv_image_kind found = 0;
    CUresult result = fgv_image_bytes(image, bytes, &found);
    *kind = (int)found;
    return result;
}

EXPORT CUresult embedder_image_measure(const void *start, size_t limit_bytes, size_t *bytes, int *kind)
{
    enum fgv_image_kind found = 0;
    CUresult result = fgv_image_measure(start, limit_bytes, bytes, &found);
    *kind = (int)found;
    return result;
}
