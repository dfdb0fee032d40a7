/*
 * The window behind the region: memory that the VM's second device maps into the guest on request, in pieces.
 *
 * The daemon sends each piece to every worker of the VM before it gives it to the VM, so a guest that sees one finds it
 * here in the socket. It is mapped when the guest asks for it, at the address behind what is mapped, which is the
 * guest's too. Place and size are the daemon's word, and the guest has no say in them; until it is mapped an address
 * there is outside of the heap.
 *
 * Wrong when: something of this process lies where the window would. The guest then does without one.
 */
#define _GNU_SOURCE
#include "client/piece.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/log.h"
#include "client/ranges.h"
#include "client/state.h"
#include "ivshmem/region.h"

#define FGW_MAX_PIECES 65536u

/* What is wrong with a piece, NULL: nothing. */
static const char *check(const struct fgv_window *window, const struct fgv_piece *piece, int file)
{
    struct stat status;
    if (!fgv_window_is_sound(piece->window_bytes, piece->bytes) || piece->bytes == 0 ||
        (window->bytes != 0 && window->bytes != piece->window_bytes)) {
        return "is of no window, or of another one";
    }
    if (piece->offset != window->mapped_bytes || piece->bytes > piece->window_bytes - piece->offset ||
        (piece->offset == 0 && piece->bytes < fgv_window_front_bytes(piece->window_bytes))) {
        return "does not belong behind those that are mapped";
    }
    if (file < 0 || fstat(file, &status) != 0 || (uint64_t)status.st_size < piece->bytes ||
        (fcntl(file, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_WRITE)) != F_SEAL_SHRINK) {
        return "has no memory, or such that may go away";
    }
    return NULL;
}

/* Keeps the addresses of the whole window, so that whatever is mapped later stays out of them. */
static bool reserve(struct fgw_worker *worker, uint64_t bytes)
{
    struct fgv_window *window = &worker->region.window;
    uint8_t *wanted = worker->region.base + worker->region.region_bytes;
    void *placed =
        mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (placed != wanted) {
        if (placed != MAP_FAILED) {
            munmap(placed, bytes);
        }
        return false;
    }
    window->owners = (_Atomic uint16_t *)wanted;
    window->bytes = bytes;
    return true;
}

static bool map(struct fgw_worker *worker, const struct fgv_piece *piece, int file)
{
    struct fgv_window *window = &worker->region.window;
    if (!fgw_ranges_make_room(&worker->pieces, FGW_MAX_PIECES) ||
        (window->bytes == 0 && !reserve(worker, piece->window_bytes))) {
        return false;
    }
    void *wanted = worker->region.base + worker->region.region_bytes + piece->offset;
    if (mmap(wanted, piece->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != wanted) {
        return false;
    }
    fgw_ranges_insert(&worker->pieces,
                      (struct fgw_range){.address = (uint64_t)(uintptr_t)wanted, .bytes = piece->bytes});
    atomic_store_explicit(&window->mapped_bytes, piece->offset + piece->bytes, memory_order_relaxed);
    return true;
}

uint64_t fgw_piece_file_end(struct fgw_worker *worker, uint64_t address)
{
    const struct fgw_range *piece = fgw_ranges_around(&worker->pieces, address, 1);
    return piece ? piece->address + piece->bytes
                 : (uint64_t)(uintptr_t)worker->region.base + worker->region.region_bytes;
}

void fgw_piece_take(struct fgw_worker *worker, const struct fgv_piece *piece, int file)
{
    const char *wrong = check(&worker->region.window, piece, file);
    if (wrong || !map(worker, piece, file)) {
        fgw_log("a piece of the window %s", wrong ? wrong : "cannot be mapped");
    }
}
