/* Sets of address ranges: see ranges.h. */
#include "client/ranges.h"

#include <stdlib.h>
#include <string.h>

uint32_t fgw_ranges_after(const struct fgw_ranges *ranges, uint64_t address)
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

struct fgw_range *fgw_ranges_find(struct fgw_ranges *ranges, uint64_t address)
{
    uint32_t index = fgw_ranges_after(ranges, address);
    return index != 0 && ranges->items[index - 1].address == address ? &ranges->items[index - 1] : NULL;
}

struct fgw_range *fgw_ranges_around(struct fgw_ranges *ranges, uint64_t address, uint64_t bytes)
{
    uint32_t index = fgw_ranges_after(ranges, address);
    struct fgw_range *range = index != 0 ? &ranges->items[index - 1] : NULL;
    bool is_inside =
        range && address - range->address < range->bytes && bytes <= range->bytes - (address - range->address);
    return is_inside ? range : NULL;
}

bool fgw_ranges_overlap(const struct fgw_ranges *ranges, uint64_t address, uint64_t bytes)
{
    uint32_t index = fgw_ranges_after(ranges, address);
    if (index < ranges->nr && ranges->items[index].address - address < bytes) {
        return true;
    }
    return index != 0 && address - ranges->items[index - 1].address < ranges->items[index - 1].bytes;
}

bool fgw_ranges_fill(const struct fgw_ranges *ranges, uint64_t address, uint64_t bytes)
{
    uint32_t index = fgw_ranges_after(ranges, address);
    while (bytes != 0) {
        const struct fgw_range *range = index != 0 && index <= ranges->nr ? &ranges->items[index - 1] : NULL;
        if (!range || range->address != address || range->bytes > bytes) {
            return false;
        }
        address += range->bytes;
        bytes -= range->bytes;
        index++;
    }
    return true;
}

bool fgw_ranges_make_room(struct fgw_ranges *ranges, uint32_t limit)
{
    if (ranges->nr < ranges->room) {
        return true;
    }
    uint32_t room = ranges->room ? ranges->room * 2 : 64;
    struct fgw_range *items = ranges->nr < limit ? realloc(ranges->items, room * sizeof(*items)) : NULL;
    if (!items) {
        return false;
    }
    ranges->items = items;
    ranges->room = room;
    return true;
}

void fgw_ranges_insert(struct fgw_ranges *ranges, struct fgw_range range)
{
    uint32_t index = fgw_ranges_after(ranges, range.address);
    memmove(&ranges->items[index + 1], &ranges->items[index], (ranges->nr - index) * sizeof(range));
    ranges->items[index] = range;
    ranges->nr++;
}

void fgw_ranges_erase(struct fgw_ranges *ranges, struct fgw_range *range)
{
    fgw_ranges_erase_some(ranges, (uint32_t)(range - ranges->items), 1);
}

void fgw_ranges_erase_some(struct fgw_ranges *ranges, uint32_t first, uint32_t nr)
{
    if (nr != 0) {
        memmove(&ranges->items[first], &ranges->items[first + nr],
                (ranges->nr - first - nr) * sizeof(ranges->items[0]));
        ranges->nr -= nr;
    }
}
