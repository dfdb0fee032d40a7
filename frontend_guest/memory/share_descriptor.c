/*
 * Physical memory that is passed on as a file descriptor. The file is this library's own: sealed, and in it the key by
 * which the host knows the memory. It goes the ways of descriptors, and only programs of this machine can use it.
 *
 * Wrong when: the program that made the memory has let go of all of it, or has ended, before another one imports it. A
 * descriptor of NVIDIA's keeps the memory; this one does not.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "call/call.h"
#include "cuda_api/prototypes.h"
#include "memory/asking.h"
#include "memory/physical.h"
#include "region/client.h"

#define MAGIC UINT64_C(0x6d656d7079687646)
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

struct content {
    uint64_t magic;
    uint64_t key[2];
};

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

/* -1: there is none to be had. */
static int make_file(const struct content *content)
{
    const int file = memfd_create("fairgv-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) {
        return -1;
    }
    if (write(file, content, sizeof(*content)) != (ssize_t)sizeof(*content) || fcntl(file, F_ADD_SEALS, SEALS) != 0) {
        close(file);
        return -1;
    }
    return file;
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
    const struct content content = {.magic = MAGIC, .key = {reply.key[0], reply.key[1]}};
    const int file = make_file(&content);
    if (file < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)shareableHandle = file;
    return CUDA_SUCCESS;
}

/* The seals first: no other kind of file has any, and reading one may take from it. */
static bool read_file(int file, struct content *content)
{
    const int seals = fcntl(file, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS &&
           pread(file, content, sizeof(*content), 0) == (ssize_t)sizeof(*content) && content->magic == MAGIC;
}

static CUresult ask_import(uint64_t handle, const struct content *content)
{
    struct fgv_call call;
    struct fgv_request_physical_import *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_physical_import, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_physical_import){.handle = handle, .key = {content->key[0], content->key[1]}};
    return fgv_call_wait(&call, NULL, 0);
}

/* Who imports memory cannot pass it on: it has no type. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    struct content content;
    uint64_t number;
    uint32_t nr_naps = 0;
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!read_file((int)(uintptr_t)osHandle, &content)) {
        return CUDA_ERROR_UNKNOWN;
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
