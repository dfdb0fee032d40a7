/*
 * Physical memory that is passed on as a file descriptor (key_file.h), in which the host's key to it is.
 *
 * Wrong when: the program that made the memory has let go of all of it, or has ended, before another one imports it. A
 * descriptor of NVIDIA's keeps the memory; this one does not.
 */
#include "call/call.h"
#include "cuda_api/prototypes.h"
#include "memory/asking.h"
#include "memory/key_file.h"
#include "memory/physical.h"
#include "region/client.h"

static CUresult ask_export(uint64_t handle, struct fgv_reply_physical_export *reply)
{
    struct fgv_call call;
    struct fgv_request_physical_export *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_physical_export, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->handle = handle;
    return fgv_call_wait(&call, reply, sizeof(*reply));
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags)
{
    CUmemAllocationProp properties;
    struct fgv_reply_physical_export reply;
    uint32_t nr_naps = 0;
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!shareableHandle || flags != 0 || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !fgv_physical_has(handle, &properties) || properties.requestedHandleTypes != handleType) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    do {
        result = ask_export(handle, &reply);
    } while (fgv_asking_again(result, &nr_naps));
    if (result != CUDA_SUCCESS) {
        return fgv_asking_settled(result);
    }
    const int file = fgv_key_file_new(FGV_KEY_PHYSICAL, reply.key);
    if (file < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)shareableHandle = file;
    return CUDA_SUCCESS;
}

static CUresult ask_import(uint64_t handle, const struct fgv_key_file *content)
{
    struct fgv_call call;
    struct fgv_request_physical_import *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_physical_import, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_physical_import){.handle = handle, .key = {content->words[0], content->words[1]}};
    return fgv_call_wait(&call, NULL, 0);
}

/* Who imports memory cannot pass it on: it has no type. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    struct fgv_key_file content;
    uint64_t number;
    uint32_t nr_naps = 0;
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!fgv_key_file_read((int)(uintptr_t)osHandle, &content)) {
        return CUDA_ERROR_UNKNOWN;
    }
    if (content.kind != FGV_KEY_PHYSICAL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    result = fgv_physical_new(&properties, &number);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fgv_asking_begin();
    do {
        result = ask_import(number, &content);
    } while (fgv_asking_again(result, &nr_naps));
    fgv_asking_end();
    if (result != CUDA_SUCCESS) {
        fgv_physical_give_up(number);
        return fgv_asking_settled(result);
    }
    *handle = number;
    return CUDA_SUCCESS;
}
