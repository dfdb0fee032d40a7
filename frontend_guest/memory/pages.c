/*
 * See pages.h. What is written between the copy and the replacement is lost. So both are made on another stack, where
 * the calling thread writes nothing to its own. Other threads are the caller's concern.
 */
#include "memory/pages.h"

#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK_BYTES (UINT64_C(64) << 10)

/* At the beginning of the other stack's pages. */
struct move {
    ucontext_t caller, own;
    void *at;
    void *copy; /* of what is there */
    uint64_t bytes;
    int file; /* -1: the copy itself is put there */
    off_t offset;
    bool is_done;
};

static void make(unsigned int high, unsigned int low)
{
    struct move *move = (struct move *)(uintptr_t)((uint64_t)high << 32 | low);
    memcpy(move->copy, move->at, move->bytes);
    const void *there =
        move->file >= 0
            ? mmap(move->at, move->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, move->file, move->offset)
            : mremap(move->copy, move->bytes, move->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, move->at);
    move->is_done = there == move->at;
}

static bool make_on_another_stack(uint64_t address, uint64_t bytes, void *copy, int file, uint64_t offset)
{
    uint8_t *pages = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return false;
    }
    struct move *move = (struct move *)(void *)pages;
    const uint64_t where = (uint64_t)(uintptr_t)move;
    move->at = (void *)(uintptr_t)address;
    move->copy = copy;
    move->bytes = bytes;
    move->file = file;
    move->offset = (off_t)offset;
    getcontext(&move->own);
    move->own.uc_stack.ss_sp = pages + sizeof(*move);
    move->own.uc_stack.ss_size = STACK_BYTES - sizeof(*move);
    move->own.uc_link = &move->caller;
    makecontext(&move->own, (void (*)(void))make, 2, (unsigned int)(where >> 32), (unsigned int)where);
    swapcontext(&move->caller, &move->own);
    const bool is_done = move->is_done;
    munmap(pages, STACK_BYTES);
    return is_done;
}

/* A second mapping of the same pages, which Linux makes of shared ones only. 0: there is none that can be written. */
static uint64_t map_again(uint64_t address, uint64_t bytes)
{
    void *again = mremap((void *)(uintptr_t)address, 0, bytes, MREMAP_MAYMOVE);
    if (again == MAP_FAILED) {
        return 0;
    }
    if (mprotect(again, bytes, PROT_READ | PROT_WRITE) != 0) {
        munmap(again, bytes);
        return 0;
    }
    return (uint64_t)(uintptr_t)again;
}

bool fgv_pages_replace(uint64_t address, uint64_t bytes, uint64_t copy, int file, uint64_t offset, uint64_t *aside)
{
    *aside = map_again(address, bytes);
    const bool is_done = make_on_another_stack(address, bytes, (void *)(uintptr_t)copy, file, offset);
    if (!is_done && *aside != 0) {
        munmap((void *)(uintptr_t)*aside, bytes);
    }
    return is_done;
}

bool fgv_pages_restore(uint64_t address, uint64_t bytes, uint64_t aside)
{
    void *own = aside != 0 ? (void *)(uintptr_t)aside
                           : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) {
        return false;
    }
    if (!make_on_another_stack(address, bytes, own, -1, 0)) {
        munmap(own, bytes);
        return false;
    }
    return true;
}
