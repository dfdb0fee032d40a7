/* Pages of the heap in place of memory of the device: see placed.h. */
#include "memory/placed.h"

#include <sys/mman.h>
#include <unistd.h>

#include "call/call.h"
#include "memory/window.h"
#include "region/client.h"

CUresult fgv_placed_put(uint64_t address, uint64_t bytes, uint64_t heap, uint64_t context)
{
    struct fgv_call call;
    struct fgv_request_host_place *request =
        fgv_call_begin_for(&call, FGV_CALL_host_place, sizeof(*request), 0, context);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_host_place){.address = address, .bytes = bytes, .heap = heap};
    return fgv_call_wait(&call, NULL, 0);
}

CUresult fgv_placed_remove(uint64_t address, uint64_t allocation, uint64_t context)
{
    struct fgv_call call;
    struct fgv_request_host_unplace *request =
        fgv_call_begin_for(&call, FGV_CALL_host_unplace, sizeof(*request), 0, context);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_host_unplace){.address = address, .allocation = allocation};
    return fgv_call_wait(&call, NULL, 0);
}

bool fgv_placed_map(uint64_t address, uint64_t bytes, uint64_t heap)
{
    void *at = (void *)(uintptr_t)address;
    uint64_t offset = heap - (uint64_t)(uintptr_t)fgv_guest.region.base;
    const int file = fgv_window_reopen(&offset);
    if (file < 0) {
        return false;
    }
    const bool is_mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, (off_t)offset) == at;
    close(file);
    return is_mapped && madvise(at, bytes, MADV_DONTFORK) == 0;
}
