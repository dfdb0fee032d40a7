/*
 * What is copied ahead (replay/ahead.c), over devices whose memory is a number for each block of a fingerprint: what
 * test_ahead.py calls. Memory that is made has rubbish in it. Between any two pieces of a round, when the span's lock
 * is free, the test is asked: there it does what the program does meanwhile.
 */
#include <stdlib.h>

#include "calls/span.h"
#include "calls/state.h"
#include "client/ranges.h"
#include "page/layout.h"
#include "replay/ahead.h"

#define MAX_RANGES 1024u
#define RUBBISH    UINT64_C(0xbad)
#define WINDOWS    UINT64_C(0x700000000000)

/* By the handle. */
struct memory {
    uint64_t nr_blocks;
    uint64_t blocks[];
};

static struct fgw_calls calls;
static struct fgw_worker_slot slot;
static struct fgw_worker worker = {.calls = &calls, .slot = &slot};
static struct fgw_ranges mapped; /* whose owner is the handle */
static struct fgw_print prints[FGW_MOST_PRINTS];
static struct fgw_ahead_compared compared;
static struct fgw_ahead ahead;
static uint64_t last_window, nr_memories;
static bool is_locked;
static const _Atomic bool is_given_up;
static void (*meanwhile)(void);

/* ---- the devices ---- */

static uint64_t *block_at(uint64_t address)
{
    const struct fgw_range *range = fgw_ranges_around(&mapped, address, FGW_PRINT_BYTES);
    if (!range) {
        abort();
    }
    struct memory *memory = (struct memory *)(uintptr_t)range->owner;
    return &memory->blocks[(address - range->address) / FGW_PRINT_BYTES];
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *property,
                       unsigned long long flags)
{
    (void)property;
    (void)flags;
    const uint64_t nr_blocks = bytes / FGW_PRINT_BYTES;
    struct memory *memory = malloc(sizeof(*memory) + nr_blocks * sizeof(memory->blocks[0]));
    memory->nr_blocks = nr_blocks;
    for (uint64_t i = 0; i < nr_blocks; i++) {
        memory->blocks[i] = RUBBISH;
    }
    nr_memories++;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

static CUresult release_memory(CUmemGenericAllocationHandle handle)
{
    nr_memories--;
    free((struct memory *)(uintptr_t)handle);
    return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags)
{
    (void)alignment;
    (void)wanted;
    (void)flags;
    *address = last_window;
    last_window += bytes;
    return CUDA_SUCCESS;
}

static CUresult reserve_no_more(CUdeviceptr address, size_t bytes)
{
    return fgw_ranges_overlap(&mapped, address, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    (void)flags;
    if (offset != 0 || fgw_ranges_overlap(&mapped, address, bytes) || !fgw_ranges_make_room(&mapped, MAX_RANGES)) {
        abort();
    }
    fgw_ranges_insert(&mapped, (struct fgw_range){.address = address, .bytes = bytes, .owner = handle});
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    struct fgw_range *range = fgw_ranges_find(&mapped, address);
    if (!range || range->bytes != bytes) {
        abort();
    }
    fgw_ranges_erase(&mapped, range);
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t nr)
{
    (void)address;
    (void)bytes;
    (void)access;
    (void)nr;
    return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    for (uint64_t offset = 0; offset < bytes; offset += FGW_PRINT_BYTES) {
        *block_at(to + offset) = *block_at(from + offset);
    }
    return CUDA_SUCCESS;
}

static CUresult can_access(int *can, CUdevice device, CUdevice peer)
{
    *can = device != peer;
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *stream, unsigned int flags)
{
    (void)flags;
    *stream = (CUstream)&ahead;
    return CUDA_SUCCESS;
}

static CUresult stream_do(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

static const struct fgv_driver driver = {
    .cuDeviceCanAccessPeer = can_access,
    .cuMemcpyDtoDAsync_v2 = copy,
    .cuMemCreate = create,
    .cuMemRelease = release_memory,
    .cuMemAddressReserve = reserve,
    .cuMemAddressFree = reserve_no_more,
    .cuMemMap = map,
    .cuMemUnmap = unmap,
    .cuMemSetAccess = set_access,
    .cuStreamCreate = stream_create,
    .cuStreamSynchronize = stream_do,
    .cuStreamDestroy_v2 = stream_do,
};

/* ---- what the parts ask ---- */

bool fgw_printer_make(const struct fgv_driver *of, const void *code, struct fgw_printer *printer)
{
    (void)of;
    (void)code;
    printer->prints = prints;
    return true;
}

void fgw_printer_unmake(const struct fgv_driver *of, struct fgw_printer *printer)
{
    (void)of;
    *printer = (struct fgw_printer){0};
}

/* A block of zeros has zeros, as any other has what tells it from others. */
CUresult fgw_printer_submit(const struct fgv_driver *of, const struct fgw_printer *printer, uint64_t address,
                            uint64_t bytes, uint32_t place, CUstream stream)
{
    (void)of;
    (void)place;
    (void)stream;
    for (uint64_t i = 0; i < bytes / FGW_PRINT_BYTES; i++) {
        const uint64_t value = *block_at(address + i * FGW_PRINT_BYTES);
        printer->prints[i] = (struct fgw_print){.values = {value, value}, .bits = value};
    }
    return CUDA_SUCCESS;
}

void fgw_span_lock(void)
{
    if (is_locked) {
        abort();
    }
    is_locked = true;
}

void fgw_span_unlock(void)
{
    if (!is_locked) {
        abort();
    }
    is_locked = false;
    meanwhile();
}

/* ---- what the test asks ---- */

bool begin(void (*asked)(void))
{
    meanwhile = asked;
    last_window = WINDOWS;
    ahead = (struct fgw_ahead){.driver = &driver, .to = 1, .compared = &compared, .is_given_up = &is_given_up};
    return fgw_ahead_begin(&ahead, NULL) == NULL;
}

/* An extent, whose blocks are rubbish. */
void allocate(uint64_t address, uint64_t bytes)
{
    CUmemGenericAllocationHandle handle;
    create(&handle, bytes, NULL, 0);
    map(address, bytes, 0, handle, 0);
    if (!fgw_ranges_make_room(&calls.span.extents, MAX_RANGES)) {
        abort();
    }
    fgw_ranges_insert(&calls.span.extents, (struct fgw_range){.address = address, .bytes = bytes, .owner = handle});
    slot.resident_bytes += bytes;
}

void release(uint64_t address)
{
    struct fgw_range *extent = fgw_ranges_find(&calls.span.extents, address);
    slot.resident_bytes -= extent->bytes;
    unmap(address, extent->bytes);
    release_memory(extent->owner);
    fgw_ranges_erase(&calls.span.extents, extent);
}

void write_block(uint64_t address, uint64_t value)
{
    *block_at(address) = value;
}

uint64_t read_block(uint64_t address)
{
    return *block_at(address);
}

const char *take_round(void)
{
    uint64_t changed_bytes = 0;
    return fgw_ahead_round(&ahead, &worker, &changed_bytes);
}

const char *exchange(void)
{
    bool is_lost;
    return fgw_ahead_exchange(&ahead, &worker, &is_lost);
}

/* How much memory there is beside that of extents: none is lost. */
uint64_t end(void)
{
    fgw_ahead_end(&ahead);
    const uint64_t nr_others = nr_memories - calls.span.extents.nr;
    while (calls.span.extents.nr != 0) {
        release(calls.span.extents.items[0].address);
    }
    return nr_others + nr_memories + mapped.nr;
}
