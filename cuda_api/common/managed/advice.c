/* Advice on managed memory: see advice.h. */
#include "cuda_api/advice.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANGES  65536u
#define MAX_DEVICES 63

struct said {
    bool is_read_mostly;
    CUmemLocation preferred; /* type INVALID: none */
    CUmemLocation prefetched;
    uint64_t accessed_by; /* bit 0: the CPU, bit n + 1: device n */
};

struct fgv_advice_range {
    uint64_t start, end;
    struct said said;
};

static uint32_t first_ending_after(const struct fgv_advice *advice, uint64_t address)
{
    uint32_t low = 0, high = advice->nr;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (advice->ranges[middle].end <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool make_room(struct fgv_advice *advice, uint32_t nr_more)
{
    if (advice->nr + nr_more <= advice->room) {
        return true;
    }
    uint32_t room = advice->room == 0 ? 16 : advice->room * 2;
    struct fgv_advice_range *grown =
        advice->nr + nr_more > MAX_RANGES ? NULL : realloc(advice->ranges, room * sizeof(*grown));
    if (!grown) {
        return false;
    }
    advice->ranges = grown;
    advice->room = room;
    return true;
}

static void insert_at(struct fgv_advice *advice, uint32_t i, struct fgv_advice_range range)
{
    memmove(&advice->ranges[i + 1], &advice->ranges[i], (advice->nr - i) * sizeof(range));
    advice->ranges[i] = range;
    advice->nr++;
}

/* No range lies on both sides of the address afterwards. */
static void split(struct fgv_advice *advice, uint64_t address)
{
    uint32_t i = first_ending_after(advice, address);
    if (i == advice->nr || advice->ranges[i].start >= address) {
        return;
    }
    struct fgv_advice_range behind = advice->ranges[i];
    behind.start = address;
    advice->ranges[i].end = address;
    insert_at(advice, i + 1, behind);
}

/* Calls change() for ranges that cover [address, end) without gaps. Each turn of the loop needs room for one more. */
static CUresult change_all(struct fgv_advice *advice, uint64_t address, uint64_t bytes,
                           void (*change)(struct said *said, const void *with), const void *with)
{
    const uint64_t end = address + bytes;
    if (!make_room(advice, 2)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    split(advice, address);
    split(advice, end);
    for (uint32_t i = first_ending_after(advice, address); address < end; i++) {
        uint64_t next = i < advice->nr && advice->ranges[i].start < end ? advice->ranges[i].start : end;
        if (next > address) {
            if (!make_room(advice, 1)) {
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
            insert_at(advice, i, (struct fgv_advice_range){.start = address, .end = next});
        }
        change(&advice->ranges[i].said, with);
        address = advice->ranges[i].end;
    }
    return CUDA_SUCCESS;
}

struct advised {
    CUmem_advise what;
    CUmemLocation location;
};

static uint64_t bit_of(CUmemLocation location)
{
    return UINT64_C(1) << (location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id + 1 : 0);
}

static void advise(struct said *said, const void *with)
{
    const struct advised *advised = with;
    switch (advised->what) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        said->is_read_mostly = advised->what == CU_MEM_ADVISE_SET_READ_MOSTLY;
        return;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        said->preferred = advised->location;
        return;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        said->preferred = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
        return;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        said->accessed_by |= bit_of(advised->location);
        return;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        said->accessed_by &= ~bit_of(advised->location);
        return;
    }
}

static CUresult check_location(CUmemLocation location, int nr_devices)
{
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location.id >= 0 && location.id < nr_devices && location.id < MAX_DEVICES ? CUDA_SUCCESS
                                                                                         : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool needs_location(CUmem_advise what)
{
    return what == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || what == CU_MEM_ADVISE_SET_ACCESSED_BY ||
           what == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

CUresult fgv_advice_set(struct fgv_advice *advice, uint64_t address, uint64_t bytes, CUmem_advise what,
                        CUmemLocation location, int nr_devices)
{
    if (what < CU_MEM_ADVISE_SET_READ_MOSTLY || what > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = needs_location(what) ? check_location(location, nr_devices) : CUDA_SUCCESS;
    const struct advised advised = {.what = what, .location = location};
    return result == CUDA_SUCCESS ? change_all(advice, address, bytes, advise, &advised) : result;
}

static void prefetch(struct said *said, const void *with)
{
    said->prefetched = *(const CUmemLocation *)with;
}

CUresult fgv_advice_prefetched(struct fgv_advice *advice, uint64_t address, uint64_t bytes, CUmemLocation location,
                               int nr_devices)
{
    CUresult result = check_location(location, nr_devices);
    return result == CUDA_SUCCESS ? change_all(advice, address, bytes, prefetch, &location) : result;
}

static bool is_same(CUmemLocation a, CUmemLocation b)
{
    return a.type == b.type && (a.type == CU_MEM_LOCATION_TYPE_INVALID || a.id == b.id);
}

/* What was said of all the bytes alike; the rest as if nothing had been. */
static struct said common(const struct fgv_advice *advice, uint64_t address, uint64_t bytes)
{
    const uint64_t end = address + bytes;
    const CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_INVALID};
    uint32_t i = first_ending_after(advice, address);
    if (i == advice->nr || advice->ranges[i].start > address) {
        return (struct said){0};
    }
    struct said all = advice->ranges[i].said;
    for (uint64_t covered = advice->ranges[i].end; covered < end; covered = advice->ranges[i].end) {
        if (++i == advice->nr || advice->ranges[i].start > covered) {
            return (struct said){0};
        }
        const struct said *one = &advice->ranges[i].said;
        all.is_read_mostly &= one->is_read_mostly;
        all.accessed_by &= one->accessed_by;
        all.preferred = is_same(all.preferred, one->preferred) ? all.preferred : nowhere;
        all.prefetched = is_same(all.prefetched, one->prefetched) ? all.prefetched : nowhere;
    }
    return all;
}

/* A place as the older attributes give it. */
static int place_of(CUmemLocation location)
{
    return location.type == CU_MEM_LOCATION_TYPE_INVALID  ? CU_DEVICE_INVALID
           : location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id
                                                          : CU_DEVICE_CPU;
}

static void list_accessed_by(uint64_t accessed_by, int *places, uint64_t nr)
{
    for (int bit = 0; bit <= MAX_DEVICES && nr > 0; bit++) {
        if ((accessed_by >> bit & 1) != 0) {
            *places++ = bit == 0 ? CU_DEVICE_CPU : bit - 1;
            nr--;
        }
    }
    while (nr-- > 0) {
        *places++ = CU_DEVICE_INVALID;
    }
}

CUresult fgv_advice_get(const struct fgv_advice *advice, uint64_t address, uint64_t bytes,
                        CUmem_range_attribute attribute, void *data, uint64_t data_bytes)
{
    const struct said said = common(advice, address, bytes);
    int *value = data;
    const bool is_list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    if (!data || data_bytes == 0 || data_bytes % sizeof(*value) != 0 || (!is_list && data_bytes != sizeof(*value))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *value = said.is_read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *value = place_of(said.preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        list_accessed_by(said.accessed_by, value, data_bytes / sizeof(*value));
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *value = place_of(said.prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *value = (int)said.preferred.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *value = said.preferred.id;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *value = (int)said.prefetched.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *value = said.prefetched.id;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static bool is_for_host(const struct said *said)
{
    return !said->is_read_mostly && said->preferred.type != CU_MEM_LOCATION_TYPE_INVALID &&
           said->preferred.type != CU_MEM_LOCATION_TYPE_DEVICE;
}

uint64_t fgv_advice_host_bytes(const struct fgv_advice *advice, uint64_t address, uint64_t bytes)
{
    const uint64_t end = address + bytes;
    uint64_t nr = 0;
    for (uint32_t i = advice->nr == 0 ? 0 : first_ending_after(advice, address);
         i < advice->nr && advice->ranges[i].start < end; i++) {
        const struct fgv_advice_range *range = &advice->ranges[i];
        const uint64_t from = range->start > address ? range->start : address;
        const uint64_t to = range->end < end ? range->end : end;
        nr += is_for_host(&range->said) ? to - from : 0;
    }
    return nr;
}

void fgv_advice_forget(struct fgv_advice *advice, uint64_t address, uint64_t bytes)
{
    if (advice->nr == 0) {
        return;
    }
    uint32_t first = first_ending_after(advice, address);
    uint32_t last = first;
    while (last < advice->nr && advice->ranges[last].start < address + bytes) {
        last++;
    }
    memmove(&advice->ranges[first], &advice->ranges[last], (advice->nr - last) * sizeof(*advice->ranges));
    advice->nr -= last - first;
}
