/*
 * Addresses that a program reserves for mappings. They are addresses of the worker's process, not of this one. A
 * reservation is made here as well, without access: no allocation of the program's can then come to lie there, and one
 * that lies there already shows at once; then the host is asked for another.
 */
#include "memory/reservation.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "call/call.h"
#include "cuda_api/prototypes.h"
#include "memory/guard.h"
#include "region/client.h"

#define MAX_TRIES      8u
#define ROOM_ALIGNMENT (UINT64_C(1) << 21)

struct reservation {
    uint64_t address, bytes;
    bool is_guarded;
    struct reservation *next;
};

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static struct reservation *reservations;

static CUresult ask_for_addresses(uint64_t bytes, uint64_t alignment, uint64_t wanted, uint64_t *address)
{
    struct fgv_call call;
    struct fgv_reply_cuMemAddressReserve reply;
    struct fgv_request_cuMemAddressReserve *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuMemAddressReserve, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemAddressReserve){.bytes = bytes, .alignment = alignment, .address = wanted};
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result == CUDA_SUCCESS) {
        *address = reply.address;
    }
    return result;
}

static CUresult give_addresses(uint64_t address, uint64_t bytes)
{
    struct fgv_call call;
    struct fgv_request_cuMemAddressFree *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuMemAddressFree, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemAddressFree){.address = address, .bytes = bytes};
    return fgv_call_wait(&call, NULL, 0);
}

/* Where there is room here, as a wish to the host; 0: nowhere. */
static uint64_t room_here(uint64_t bytes, uint64_t alignment)
{
    void *at = MAP_FAILED;
    if (bytes + alignment > bytes) {
        at = mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (at == MAP_FAILED) {
        return 0;
    }
    munmap(at, bytes + alignment);
    return ((uint64_t)(uintptr_t)at + alignment - 1) / alignment * alignment;
}

/* Addresses that the program does not use itself. Those that it does are held until another try was better. */
static CUresult reserve(struct reservation *made, uint64_t alignment, uint64_t wanted)
{
    uint64_t unfit[MAX_TRIES];
    uint32_t nr_unfit = 0;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    while (nr_unfit < MAX_TRIES) {
        result = ask_for_addresses(made->bytes, alignment, wanted, &made->address);
        if (result != CUDA_SUCCESS) {
            break;
        }
        enum fgv_guard found = fgv_guard(made->address, made->bytes);
        made->is_guarded = found == FGV_GUARDED;
        if (found != FGV_TAKEN) {
            break;
        }
        unfit[nr_unfit++] = made->address;
        wanted = room_here(made->bytes, alignment > ROOM_ALIGNMENT ? alignment : ROOM_ALIGNMENT);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    while (nr_unfit > 0) {
        give_addresses(unfit[--nr_unfit], made->bytes);
    }
    return result;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!ptr || size == 0 || flags != 0 || (alignment & (alignment - 1)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct reservation *made = calloc(1, sizeof(*made));
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->bytes = size;
    result = reserve(made, alignment, addr);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    *ptr = made->address;
    pthread_mutex_lock(&books);
    made->next = reservations;
    reservations = made;
    pthread_mutex_unlock(&books);
    return CUDA_SUCCESS;
}

bool fgv_reservation_is_guarded(uint64_t address)
{
    pthread_mutex_lock(&books);
    const struct reservation *found = reservations;
    while (found && found->address != address) {
        found = found->next;
    }
    const bool is_guarded = found && found->is_guarded;
    pthread_mutex_unlock(&books);
    return is_guarded;
}

static struct reservation *take_out(uint64_t address)
{
    pthread_mutex_lock(&books);
    struct reservation **link = &reservations;
    while (*link && (*link)->address != address) {
        link = &(*link)->next;
    }
    struct reservation *found = *link;
    if (found) {
        *link = found->next;
    }
    pthread_mutex_unlock(&books);
    return found;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    CUresult result = fgv_client_is_open();
    if (result == CUDA_SUCCESS) {
        result = give_addresses(ptr, size);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct reservation *gone = take_out(ptr);
    if (gone && gone->is_guarded) {
        munmap((void *)(uintptr_t)gone->address, gone->bytes);
    }
    free(gone);
    return CUDA_SUCCESS;
}
