/* See told.h. */
#define _GNU_SOURCE
#include "client/told.h"

#include <stdlib.h>
#include <string.h>

#include "client/state.h"

#define AREA_STEP_BYTES UINT64_C(256) /* as drivers align variables */

/* The index of the first one that begins after `address`. */
static uint32_t after(const struct fgw_told *told, uint64_t address)
{
    uint32_t low = 0, high = told->nr;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (told->items[middle].told <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct fgw_told_variable *fgw_told_find(struct fgw_told *told, uint64_t address)
{
    if (address - told->low >= told->bytes) {
        return NULL;
    }
    const uint32_t index = after(told, address);
    struct fgw_told_variable *found = index > 0 ? &told->items[index - 1] : NULL;
    return found && address - found->told < found->bytes ? found : NULL;
}

static bool overlaps(const struct fgw_told *told, uint64_t address, uint64_t bytes)
{
    const uint32_t index = after(told, address);
    return (index > 0 && address - told->items[index - 1].told < told->items[index - 1].bytes) ||
           (index < told->nr && told->items[index].told - address < bytes);
}

bool fgw_told_hides(const struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    const struct fgw_told *told = &worker->told;
    for (uint32_t i = 0; i < told->nr; i++) {
        const struct fgw_told_variable *one = &told->items[i];
        if (one->told != one->now && one->told < address + bytes && address < one->told + one->bytes) {
            return true;
        }
    }
    return false;
}

void fgw_told_watch(struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    if (fgw_told_hides(worker, address, bytes)) {
        fgw_worker_end(worker, "the driver placed memory where the program knows a module variable");
    }
}

uint64_t fgw_told_as_told(const struct fgw_worker *worker, uint64_t address)
{
    for (uint32_t i = 0; i < worker->told.nr; i++) {
        const struct fgw_told_variable *one = &worker->told.items[i];
        if (address - one->now < one->bytes) {
            return one->told + (address - one->now);
        }
    }
    return address;
}

static void measure(struct fgw_told *told)
{
    const struct fgw_told_variable *last = told->nr > 0 ? &told->items[told->nr - 1] : NULL;
    told->low = last ? told->items[0].told : 0;
    told->bytes = last ? last->told + last->bytes - told->low : 0;
}

/* ---- what is told ---- */

void fgw_told_want(struct fgw_worker *worker, bool is_wanted)
{
    worker->told.is_wanted = is_wanted;
}

/* The same variable may have been asked for by a library and by its module. */
static const struct fgw_told_variable *find_same(const struct fgw_told *told, const struct fgw_told_variable *variable)
{
    for (uint32_t i = 0; i < told->nr; i++) {
        const struct fgw_told_variable *one = &told->items[i];
        if (one->now == variable->now && one->bytes == variable->bytes) {
            return one;
        }
    }
    return NULL;
}

/* Addresses for so many bytes at which there never is memory; 0: there are no more. */
static uint64_t take_area(struct fgw_worker *worker, uint64_t bytes)
{
    struct fgw_told *told = &worker->told;
    const struct fgv_driver *driver = &worker->driver;
    const uint64_t whole_bytes = (bytes + AREA_STEP_BYTES - 1) / AREA_STEP_BYTES * AREA_STEP_BYTES;
    if (told->area == 0 && driver->cuMemAddressReserve) {
        CUdeviceptr area;
        if (driver->cuMemAddressReserve(&area, FGW_TOLD_AREA_BYTES, 0, 0, 0) == CUDA_SUCCESS) {
            told->area = area;
            told->area_left_bytes = FGW_TOLD_AREA_BYTES;
        }
    }
    if (whole_bytes > told->area_left_bytes) {
        return 0;
    }
    told->area_left_bytes -= whole_bytes;
    return told->area + told->area_left_bytes;
}

static bool make_room(struct fgw_told *told)
{
    if (told->nr == FGW_MAX_TOLD) {
        return false;
    }
    if (told->nr == told->room) {
        const uint32_t room = told->room * 2 + 16;
        struct fgw_told_variable *grown = realloc(told->items, room * sizeof(*grown));
        if (!grown) {
            return false;
        }
        told->items = grown;
        told->room = room;
    }
    return true;
}

static bool insert(struct fgw_told *told, const struct fgw_told_variable *variable, uint64_t address)
{
    char *name = make_room(told) ? strdup(variable->name) : NULL;
    if (!name) {
        return false;
    }
    const uint32_t index = after(told, address);
    memmove(&told->items[index + 1], &told->items[index], (told->nr - index) * sizeof(*told->items));
    told->items[index] = *variable;
    told->items[index].told = address;
    told->items[index].name = name;
    told->nr++;
    measure(told);
    return true;
}

bool fgw_told_tell(struct fgw_worker *worker, const struct fgw_told_variable *variable, uint64_t *address)
{
    struct fgw_told *told = &worker->told;
    *address = variable->now;
    if (!told->is_wanted || variable->bytes == 0) {
        return true;
    }
    const struct fgw_told_variable *same = find_same(told, variable);
    if (same) {
        *address = same->told;
        return true;
    }
    if (overlaps(told, variable->now, variable->bytes)) {
        *address = take_area(worker, variable->bytes);
    }
    if (*address != 0 && insert(told, variable, *address)) {
        return true;
    }
    told->is_lost = true;
    return *address == variable->now;
}

/* ---- what goes ---- */

static void erase(struct fgw_told *told, uint32_t index)
{
    told->nr_passed -= told->items[index].is_passed;
    free(told->items[index].name);
    told->nr--;
    memmove(&told->items[index], &told->items[index + 1], (told->nr - index) * sizeof(*told->items));
    if (told->nr == 0) {
        free(told->items);
        told->items = NULL;
        told->room = 0;
    }
    measure(told);
}

void fgw_told_forget(struct fgw_worker *worker, enum fgv_handle_kind owner_kind, uint64_t owner)
{
    for (uint32_t i = worker->told.nr; i-- > 0;) {
        if (worker->told.items[i].owner_kind == owner_kind && worker->told.items[i].owner == owner) {
            erase(&worker->told, i);
        }
    }
}

void fgw_told_forget_context(struct fgw_worker *worker, uint64_t context)
{
    for (uint32_t i = worker->told.nr; i-- > 0;) {
        if (worker->told.items[i].owner_kind == FGV_HANDLE_LIBRARY && worker->told.items[i].context == context) {
            erase(&worker->told, i);
        }
    }
}

/* ---- what is led ---- */

void fgw_told_exchange(struct fgw_worker *worker)
{
    for (uint32_t i = 0; i < worker->told.nr; i++) {
        struct fgw_told_variable *one = &worker->told.items[i];
        const uint64_t before = one->now;
        one->now = one->other;
        one->other = before;
    }
}

uint64_t fgw_worker_address(struct fgw_worker *worker, uint64_t address)
{
    const struct fgw_told_variable *variable = fgw_told_find(&worker->told, address);
    return variable ? variable->now + (address - variable->told) : address;
}

uint64_t fgw_told_pass(struct fgw_worker *worker, uint64_t address)
{
    struct fgw_told_variable *variable = fgw_told_find(&worker->told, address);
    if (!variable) {
        return address;
    }
    worker->told.nr_passed += !variable->is_passed;
    variable->is_passed = true;
    return variable->now + (address - variable->told);
}
