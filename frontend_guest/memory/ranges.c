/* The table of what the program may point at: see ranges.h. Sorted by address, no two ranges overlap but variables
 * inside one another's page. */
#include "memory/ranges.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "ivshmem/region.h"

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static struct fgv_range **ranges; /* moving them, as the table changes, is to move a pointer each */
static size_t nr_ranges;
static size_t room;
static uint64_t last_id;

/* Index of the first range that begins after `address`. Under the lock. */
static size_t first_after(uint64_t address)
{
    size_t low = 0, high = nr_ranges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle]->address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void remove_at(size_t index)
{
    free(ranges[index]);
    nr_ranges--;
    memmove(&ranges[index], &ranges[index + 1], (nr_ranges - index) * sizeof(*ranges));
}

bool fgv_memory_find(uint64_t address, struct fgv_range *range)
{
    pthread_mutex_lock(&books);
    size_t index = first_after(address);
    bool is_found = index > 0 && address - ranges[index - 1]->address < ranges[index - 1]->bytes;
    if (is_found) {
        *range = *ranges[index - 1];
    }
    pthread_mutex_unlock(&books);
    if (!is_found) {
        *range = (struct fgv_range){.kind = FGV_MEMORY_PAGEABLE};
    }
    return is_found;
}

bool fgv_memory_covers(uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&books);
    for (size_t index = first_after(address); bytes > 0 && index > 0 && index <= nr_ranges; index++) {
        const struct fgv_range *range = ranges[index - 1];
        uint64_t offset = address - range->address; /* huge when the range begins behind the address */
        const bool is_out_of_reach =
            range->kind == FGV_MEMORY_REGISTERED ||
            (range->kind == FGV_MEMORY_MAPPED && range->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        if (offset >= range->bytes || is_out_of_reach) {
            break;
        }
        uint64_t some_bytes = range->bytes - offset < bytes ? range->bytes - offset : bytes;
        address += some_bytes;
        bytes -= some_bytes;
    }
    pthread_mutex_unlock(&books);
    return bytes == 0;
}

/* Memory of a graph that is gone is known until its addresses are used again. Under the lock. */
static void displace(uint64_t address, uint64_t bytes)
{
    size_t index = first_after(address);
    while (index > 0 && ranges[index - 1]->kind == FGV_MEMORY_GRAPH &&
           address - ranges[index - 1]->address < ranges[index - 1]->bytes) {
        remove_at(--index);
    }
    while (index < nr_ranges && ranges[index]->kind == FGV_MEMORY_GRAPH && ranges[index]->address - address < bytes) {
        remove_at(index);
    }
}

bool fgv_memory_enter(uint64_t address, uint64_t bytes, enum fgv_memory_kind kind, uint32_t flags, uint64_t owner)
{
    bool is_entered = true;
    pthread_mutex_lock(&books);
    displace(address, bytes);
    size_t index = first_after(address);
    if (index > 0 && ranges[index - 1]->address == address) {
        remove_at(--index);
    }
    if (nr_ranges == room) {
        size_t more = room == 0 ? 64 : room * 2;
        struct fgv_range **grown = realloc(ranges, more * sizeof(struct fgv_range *));
        is_entered = grown != NULL;
        if (is_entered) {
            ranges = grown;
            room = more;
        }
    }
    struct fgv_range *range = is_entered ? malloc(sizeof(*range)) : NULL;
    is_entered = range != NULL;
    if (is_entered) {
        memmove(&ranges[index + 1], &ranges[index], (nr_ranges - index) * sizeof(*ranges));
        nr_ranges++;
        ranges[index] = range;
        const bool has_context = kind != FGV_MEMORY_MAPPED; /* as NVIDIA's driver says: it is of none */
        *range = (struct fgv_range){.address = address,
                                    .bytes = bytes,
                                    .kind = kind,
                                    .flags = flags,
                                    .context = has_context ? fgv_thread.context : NULL,
                                    .context_handle = has_context ? fgv_thread.current : 0,
                                    .owner = owner,
                                    .id = ++last_id};
    }
    pthread_mutex_unlock(&books);
    return is_entered;
}

bool fgv_memory_remove(uint64_t address, enum fgv_memory_kind kind, struct fgv_range *range)
{
    pthread_mutex_lock(&books);
    size_t index = first_after(address);
    bool is_found = index > 0 && ranges[index - 1]->address == address && ranges[index - 1]->kind == kind;
    if (is_found) {
        *range = *ranges[index - 1];
        remove_at(index - 1);
    }
    pthread_mutex_unlock(&books);
    return is_found;
}

static bool is_variable(const struct fgv_range *range)
{
    return range->kind == FGV_MEMORY_GLOBAL || (range->kind == FGV_MEMORY_MANAGED && range->owner != 0);
}

static void forget(const struct fgv_context *context, uint64_t owner)
{
    pthread_mutex_lock(&books);
    size_t kept = 0;
    for (size_t i = 0; i < nr_ranges; i++) {
        const bool outlives = ranges[i]->kind == FGV_MEMORY_REGISTERED || ranges[i]->kind == FGV_MEMORY_MAPPED;
        bool is_gone =
            context ? ranges[i]->context == context && !outlives : is_variable(ranges[i]) && ranges[i]->owner == owner;
        if (is_gone) {
            free(ranges[i]);
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    nr_ranges = kept;
    pthread_mutex_unlock(&books);
}

void fgv_memory_forget_context(struct fgv_context *context)
{
    forget(context, 0);
}

void fgv_memory_forget_owner(uint64_t owner)
{
    forget(NULL, owner);
}

bool fgv_memory_next_shared(const struct fgv_context *context, struct fgv_range *range)
{
    bool is_found = false;
    pthread_mutex_lock(&books);
    for (size_t i = 0; i < nr_ranges && !is_found; i++) {
        is_found = ranges[i]->context == context && fgv_memory_is_shared(ranges[i]->kind);
        if (is_found) {
            *range = *ranges[i];
        }
    }
    pthread_mutex_unlock(&books);
    return is_found;
}

bool fgv_memory_overlaps_registered(uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&books);
    bool overlaps = false;
    for (size_t i = 0; i < nr_ranges && ranges[i]->address < address + bytes; i++) {
        overlaps =
            overlaps || (ranges[i]->kind == FGV_MEMORY_REGISTERED && address < ranges[i]->address + ranges[i]->bytes);
    }
    pthread_mutex_unlock(&books);
    return overlaps;
}

bool fgv_memory_is_replaced(uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&books);
    bool is_replaced = false;
    for (size_t i = 0; i < nr_ranges && ranges[i]->address < address + bytes; i++) {
        const uint64_t end = (ranges[i]->address + ranges[i]->bytes + FGV_PAGE_BYTES - 1) / FGV_PAGE_BYTES;
        is_replaced |=
            ranges[i]->kind == FGV_MEMORY_REGISTERED && ranges[i]->owner != 0 && address < end * FGV_PAGE_BYTES;
    }
    pthread_mutex_unlock(&books);
    return is_replaced;
}

/* Whether whole mappings, side by side, make up the bytes. Under the lock. */
static bool is_filled(uint64_t address, uint64_t bytes)
{
    for (size_t i = first_after(address); bytes > 0; i++) {
        if (i == 0 || i > nr_ranges || ranges[i - 1]->kind != FGV_MEMORY_MAPPED || ranges[i - 1]->address != address ||
            ranges[i - 1]->bytes > bytes) {
            return false;
        }
        address += ranges[i - 1]->bytes;
        bytes -= ranges[i - 1]->bytes;
    }
    return true;
}

bool fgv_memory_is_mapped(uint64_t address, uint64_t bytes)
{
    bool is_mapped = true;
    pthread_mutex_lock(&books);
    for (size_t i = first_after(address); bytes > 0 && is_mapped; i++) {
        const struct fgv_range *range = i > 0 && i <= nr_ranges ? ranges[i - 1] : NULL;
        is_mapped = range && range->kind == FGV_MEMORY_MAPPED && range->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                    address - range->address < range->bytes;
        if (is_mapped) {
            uint64_t some_bytes = range->bytes - (address - range->address);
            some_bytes = some_bytes < bytes ? some_bytes : bytes;
            address += some_bytes;
            bytes -= some_bytes;
        }
    }
    pthread_mutex_unlock(&books);
    return is_mapped;
}

bool fgv_memory_unmap(uint64_t address, uint64_t bytes, void (*visit)(const struct fgv_range *range))
{
    pthread_mutex_lock(&books);
    const bool is_covered = is_filled(address, bytes);
    while (is_covered && bytes > 0) {
        const size_t index = first_after(address) - 1;
        const struct fgv_range range = *ranges[index];
        remove_at(index);
        visit(&range);
        address += range.bytes;
        bytes -= range.bytes;
    }
    pthread_mutex_unlock(&books);
    return is_covered;
}

bool fgv_memory_set_access(uint64_t address, uint64_t bytes, uint32_t access)
{
    pthread_mutex_lock(&books);
    const bool is_covered = is_filled(address, bytes);
    for (size_t i = first_after(address); is_covered && bytes > 0; i++) {
        ranges[i - 1]->flags = access;
        bytes -= ranges[i - 1]->bytes;
    }
    pthread_mutex_unlock(&books);
    return is_covered;
}

/* Under the lock. NULL: none. */
static struct fgv_range *range_at(uint64_t address)
{
    const size_t index = first_after(address);
    return index > 0 && address - ranges[index - 1]->address < ranges[index - 1]->bytes ? ranges[index - 1] : NULL;
}

void fgv_memory_set_sync(uint64_t address, bool is_sync)
{
    pthread_mutex_lock(&books);
    struct fgv_range *range = range_at(address);
    if (range) {
        range->is_sync_memops = is_sync;
    }
    pthread_mutex_unlock(&books);
}

void fgv_memory_set_aside(uint64_t address, uint64_t aside)
{
    pthread_mutex_lock(&books);
    struct fgv_range *range = range_at(address);
    if (range) {
        range->aside = aside;
    }
    pthread_mutex_unlock(&books);
}
