/* Sets of address ranges: see ranges.h. */
#include "client/ranges.h"

#include <stdlib.h>
#include <string.h>

uint32_t fgv_ranges_after(const struct fgv_ranges *ranges, uint64_t address)
{
    uint32_t low = 0;
    uint32_t high = ranges->nr;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ranges->items[middle].address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct fgv_range *fgv_ranges_find(struct fgv_ranges *ranges, uint64_t address)
{
    uint32_t index = fgv_ranges_after(ranges, address);
    return index != 0 && ranges->items[index - 1].address == address ? &ranges->items[index - 1] : NULL;
}

struct fgv_range *fgv_ranges_around(struct fgv_ranges *ranges, uint64_t address, uint64_t bytes)
{
    uint32_t index = fgv_ranges_after(ranges, address);
    struct fgv_range *range = index != 0 ? &ranges->items[index - 1] : NULL;
    bool is_inside =
        range && address - range->address < range->bytes && bytes <= range->bytes - (address - range->address);
    return is_inside ? range : NULL;
}

bool fgv_ranges_overlap(const struct fgv_ranges *ranges, uint64_t address, uint64_t bytes)
{
    uint32_t index = fgv_ranges_after(ranges, address);
    if (index < ranges->nr && ranges->items[index].address - address < bytes) {
        return true;
    }
    return index != 0 && address - ranges->items[index - 1].address < ranges->items[index - 1].bytes;
}

bool fgv_ranges_fill(const struct fgv_ranges *ranges, uint64_t address, uint64_t bytes)
{
    uint32_t index = fgv_ranges_after(ranges, address);
    while (bytes != 0) {
        const struct fgv_range *range = index != 0 && index <= ranges->nr ? &ranges->items[index - 1] : NULL;
        if (!range || range->address != address || range->bytes > bytes) {
            return false;
        }
        address += range->bytes;
        bytes -= range->bytes;
        index++;
    }
    return true;
}

bool fgv_ranges_make_room(struct fgv_ranges *ranges, uint32_t limit)
{
    if (ranges->nr < ranges->room) {
        return true;
    }
    uint32_t room = ranges->room ? ranges->room * 2 : 64;
    struct fgv_range *items = ranges->nr < limit ? realloc(ranges->items, room * sizeof(*items)) : NULL;
    if (!items) {
        return false;
    }
    ranges->items = items;
    ranges->room = room;
    return true;
}

void fgv_ranges_insert(struct fgv_ranges *ranges, struct fgv_range range)
{
    uint32_t index = fgv_ranges_after(ranges, range.address);
    memmove(&ranges->items[index + 1], &ranges->items[index], (ranges->nr - index) * sizeof(range));
    ranges->items[index] = range;
    ranges->nr++;
}

void fgv_ranges_erase(struct fgv_ranges *ranges, struct fgv_range *range)
{
    uint32_t index = (uint32_t)(range - ranges->items);
    memmove(range, range + 1, (ranges->nr - index - 1) * sizeof(*range));
    ranges->nr--;
}
