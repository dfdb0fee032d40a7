#include "memory/guard.h"

#include <errno.h>
#include <sys/mman.h>

enum fgv_guard fgv_guard(uint64_t address, uint64_t bytes)
{
    void *wanted = (void *)(uintptr_t)address;
    void *at = mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == wanted) {
        return FGV_GUARDED;
    }
    if (at == MAP_FAILED) {
        return errno == EEXIST ? FGV_TAKEN : FGV_UNGUARDED;
    }
    munmap(at, bytes); /* a kernel that does not know MAP_FIXED_NOREPLACE put it elsewhere */
    return FGV_TAKEN;
}
