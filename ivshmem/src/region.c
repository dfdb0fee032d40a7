/*
 * Laying out a region, checking one, and reading a client's entry. region.h tells what it is, docs/region.md the limits
 * and their reasons.
 *
 * The layout follows from the size alone, so a check compares the header with what the layout must be and takes nothing
 * from it but the wake method and the length of the facts, both bounded.
 *
 * Wrong when: somebody who can open the shared memory object truncates it. Whoever touches a page beyond the end then
 * gets SIGBUS, unless it watches for that (cut.h). A VM cannot, its memory is QEMU's mapping; QEMU's user can.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "ivshmem/region.h"

#include <string.h>

#include "ivshmem/bell.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"
#include "wait.h"

#define FGV_OWNERS_PER_PAGE     (FGV_PAGE_BYTES / 2u)
#define FGV_ADDRESS_MIN         UINT64_C(0x10000)            /* below, Linux maps nothing (vm.mmap_min_addr) */
#define FGV_ADDRESS_END         UINT64_C(0x00007ffffffff000) /* of user space with 47-bit addresses */
#define FGV_SPAN_ALIGN          64u                          /* ring, responses and chunks: a cache line */
#define FGV_ANNOUNCE_NAP_MAX_NS UINT64_C(10000000)

static bool is_wake(uint32_t wake)
{
    return wake == FGV_WAKE_POLL || wake == FGV_WAKE_FUTEX || wake == FGV_WAKE_BELL;
}

static uint64_t round_up_page(uint64_t bytes)
{
    return (bytes + FGV_PAGE_BYTES - 1) & ~(uint64_t)(FGV_PAGE_BYTES - 1);
}

/* Fills `region` with the layout for this size; false when no region has this size or place. */
static bool lay_out(uint8_t *base, uint64_t bytes, uint64_t table_hash, struct fgv_region *region)
{
    if (!base || (uintptr_t)base % FGV_PAGE_BYTES != 0 || bytes < FGV_REGION_MIN_BYTES || bytes % FGV_PAGE_BYTES != 0 ||
        bytes > FGV_ADDRESS_END) {
        return false;
    }
    const uint64_t facts = FGV_PAGE_BYTES;
    const uint64_t clients = facts + FGV_FACTS_BYTES;
    const uint64_t events = clients + round_up_page(FGV_NR_CLIENTS * sizeof(struct fgv_client));
    const uint64_t owners = events + FGV_EVENTS_BYTES;
    const uint64_t nr_pages = (bytes - owners) / FGV_PAGE_BYTES;
    /* A page of owners describes FGV_OWNERS_PER_PAGE pages of heap. */
    const uint64_t nr_owner_pages = (nr_pages + FGV_OWNERS_PER_PAGE) / (FGV_OWNERS_PER_PAGE + 1);
    *region = (struct fgv_region){
        .base = base,
        .region_bytes = bytes,
        .table_hash = table_hash,
        .nr_heap_pages = nr_pages - nr_owner_pages,
        .header = (struct fgv_region_header *)base,
        .clients = (struct fgv_client *)(base + clients),
        .events = (struct fgv_event *)(base + events),
        .owners = (_Atomic uint16_t *)(base + owners),
        .facts = base + facts,
        .heap = base + owners + nr_owner_pages * FGV_PAGE_BYTES,
    };
    return true;
}

static uint64_t offset_of(const struct fgv_region *region, const void *place)
{
    return (uint64_t)((const uint8_t *)place - region->base);
}

bool fgv_region_format(uint8_t *base, uint64_t bytes, uint64_t table_hash, enum fgv_wake wake, const void *facts,
                       uint32_t facts_bytes, struct fgv_region *region)
{
    if (facts_bytes > FGV_FACTS_BYTES || !is_wake((uint32_t)wake) || !lay_out(base, bytes, table_hash, region)) {
        return false;
    }
    region->wake = (uint32_t)wake;
    region->facts_bytes = facts_bytes;
    struct fgv_region_header *header = region->header;
    /* Sequentially consistent: a guest that checks an old region meanwhile finds no magic rather than half of two
     * layouts. */
    atomic_store_explicit(&header->magic, 0, memory_order_seq_cst);
    memset(base + sizeof(header->magic), 0, offset_of(region, region->heap) - sizeof(header->magic));
    if (facts_bytes != 0) {
        memcpy(region->facts, facts, facts_bytes);
    }
    header->layout_version = FGV_LAYOUT_VERSION;
    header->wake = (uint32_t)wake;
    header->table_hash = table_hash;
    header->region_bytes = bytes;
    header->facts_offset = offset_of(region, region->facts);
    header->clients_offset = offset_of(region, region->clients);
    header->events_offset = offset_of(region, region->events);
    header->owners_offset = offset_of(region, region->owners);
    header->heap_offset = offset_of(region, region->heap);
    header->nr_heap_pages = region->nr_heap_pages;
    header->facts_bytes = facts_bytes;
    atomic_store_explicit(&header->host_state, FGV_HOST_DOWN, memory_order_relaxed);
    /* Release: pairs with the acquire in fgv_region_check. */
    atomic_store_explicit(&header->magic, FGV_REGION_MAGIC, memory_order_release);
    return true;
}

enum fgv_region_status fgv_region_check(uint8_t *base, uint64_t bytes, uint64_t table_hash, struct fgv_region *region)
{
    struct fgv_region expected;
    if (!lay_out(base, bytes, table_hash, &expected)) {
        return FGV_REGION_DAMAGED;
    }
    struct fgv_region_header *header = expected.header;
    /* Acquire: pairs with the release in fgv_region_format. */
    if (atomic_load_explicit(&header->magic, memory_order_acquire) != FGV_REGION_MAGIC) {
        return FGV_REGION_NO_MAGIC;
    }
    if (__atomic_load_n(&header->layout_version, __ATOMIC_RELAXED) != FGV_LAYOUT_VERSION) {
        return FGV_REGION_WRONG_VERSION;
    }
    if (__atomic_load_n(&header->table_hash, __ATOMIC_RELAXED) != table_hash) {
        return FGV_REGION_WRONG_TABLE;
    }
    expected.wake = __atomic_load_n(&header->wake, __ATOMIC_RELAXED);
    expected.facts_bytes = __atomic_load_n(&header->facts_bytes, __ATOMIC_RELAXED);
    if (!is_wake(expected.wake) || expected.facts_bytes > FGV_FACTS_BYTES ||
        __atomic_load_n(&header->region_bytes, __ATOMIC_RELAXED) != bytes ||
        __atomic_load_n(&header->facts_offset, __ATOMIC_RELAXED) != offset_of(&expected, expected.facts) ||
        __atomic_load_n(&header->clients_offset, __ATOMIC_RELAXED) != offset_of(&expected, expected.clients) ||
        __atomic_load_n(&header->events_offset, __ATOMIC_RELAXED) != offset_of(&expected, expected.events) ||
        __atomic_load_n(&header->owners_offset, __ATOMIC_RELAXED) != offset_of(&expected, expected.owners) ||
        __atomic_load_n(&header->heap_offset, __ATOMIC_RELAXED) != offset_of(&expected, expected.heap) ||
        __atomic_load_n(&header->nr_heap_pages, __ATOMIC_RELAXED) != expected.nr_heap_pages) {
        return FGV_REGION_DAMAGED;
    }
    *region = expected;
    return FGV_REGION_OK;
}

const char *fgv_region_status_text(enum fgv_region_status status)
{
    switch (status) {
    case FGV_REGION_OK:
        return "the region is in order";
    case FGV_REGION_NO_MAGIC:
        return "the region is not initialised: start the daemon on the host (fairgv-host start)";
    case FGV_REGION_WRONG_VERSION:
        return "the region has another layout version: install the same FairGV release in the guest and on the host";
    case FGV_REGION_WRONG_TABLE:
        return "the region was made for another table of CUDA calls: install the same FairGV release in the guest and "
               "on the host";
    case FGV_REGION_DAMAGED:
        return "the region's header does not fit its size: detach and attach the device again (fairgv-host detach, "
               "attach)";
    }
    return "unknown region status";
}

uint64_t fgv_window_front_bytes(uint64_t bytes)
{
    return round_up_page(bytes / FGV_PAGE_BYTES * sizeof(uint16_t));
}

bool fgv_window_is_sound(uint64_t bytes, uint64_t mapped_bytes)
{
    return bytes >= FGV_WINDOW_MIN_BYTES && bytes <= FGV_WINDOW_MAX_BYTES && (bytes & (bytes - 1)) == 0 &&
           mapped_bytes <= bytes && mapped_bytes % FGV_PAGE_BYTES == 0;
}

struct fgv_heap_area fgv_region_area(const struct fgv_region *region, uint32_t number)
{
    if (number == 0) {
        return (struct fgv_heap_area){region->owners, region->nr_heap_pages, offset_of(region, region->heap)};
    }
    const struct fgv_window *window = &region->window;
    /* Acquire: pairs with the release of whoever mapped it, the owners' place is set before. */
    const uint64_t mapped_bytes = atomic_load_explicit(&window->mapped_bytes, memory_order_acquire);
    const uint64_t front_bytes = fgv_window_front_bytes(window->bytes);
    if (mapped_bytes <= front_bytes) {
        return (struct fgv_heap_area){0};
    }
    return (struct fgv_heap_area){
        .owners = window->owners + front_bytes / FGV_PAGE_BYTES,
        .nr_pages = (mapped_bytes - front_bytes) / FGV_PAGE_BYTES,
        .offset = region->region_bytes + front_bytes,
    };
}

bool fgv_region_find_area(const struct fgv_region *region, uint64_t offset, uint64_t bytes, struct fgv_heap_area *area)
{
    for (uint32_t i = 0; i < FGV_NR_HEAP_AREAS; i++) {
        *area = fgv_region_area(region, i);
        const uint64_t area_bytes = area->nr_pages * FGV_PAGE_BYTES;
        if (area_bytes != 0 && offset >= area->offset && offset - area->offset <= area_bytes &&
            bytes <= area_bytes - (offset - area->offset)) {
            return true;
        }
    }
    return false;
}

bool fgv_region_in_heap(const struct fgv_region *region, uint64_t offset, uint64_t bytes)
{
    struct fgv_heap_area area;
    return fgv_region_find_area(region, offset, bytes, &area);
}

bool fgv_region_is_owned(const struct fgv_region *region, uint32_t client_index, uint64_t offset, uint64_t bytes)
{
    struct fgv_heap_area area;
    if (bytes == 0 || !fgv_region_find_area(region, offset, bytes, &area)) {
        return false;
    }
    const uint64_t last = (offset + bytes - 1 - area.offset) / FGV_PAGE_BYTES;
    for (uint64_t page = (offset - area.offset) / FGV_PAGE_BYTES; page <= last; page++) {
        if (atomic_load_explicit(&area.owners[page], memory_order_relaxed) != client_index + 1) {
            return false;
        }
    }
    return true;
}

void fgv_announce(const struct fgv_region *region)
{
    /* Release: pairs with the acquire in fgv_announce_wait; the state that changed was written before. */
    atomic_fetch_add_explicit(&region->header->announce, 1, memory_order_release);
    if (region->wake == FGV_WAKE_FUTEX) {
        fgv_futex_wake(&region->header->announce);
    } else if (region->wake == FGV_WAKE_BELL && region->guest_bell) {
        fgv_guest_bell_ring(region->guest_bell, FGV_PEER_DAEMON);
    }
}

uint32_t fgv_announce_wait(const struct fgv_region *region, uint32_t seen, uint64_t timeout_ns)
{
    _Atomic uint32_t *word = &region->header->announce;
    uint32_t now = atomic_load_explicit(word, memory_order_acquire); /* pairs with the release in fgv_announce */
    if (now != seen || timeout_ns == 0) {
        return now;
    }
    if (region->wake == FGV_WAKE_FUTEX) {
        fgv_futex_wait(word, seen, timeout_ns);
        return atomic_load_explicit(word, memory_order_acquire);
    }
    const uint64_t begun_ns = fgv_now_ns();
    uint64_t nap_ns = FGV_NAP_MAX_NS;
    for (uint64_t passed_ns = 0; now == seen && passed_ns < timeout_ns; passed_ns = fgv_now_ns() - begun_ns) {
        struct timespec spec = fgv_timespec(nap_ns < timeout_ns - passed_ns ? nap_ns : timeout_ns - passed_ns);
        bool is_interrupted = nanosleep(&spec, NULL) != 0;
        now = atomic_load_explicit(word, memory_order_acquire);
        if (is_interrupted) {
            break;
        }
        nap_ns = nap_ns * 2 < FGV_ANNOUNCE_NAP_MAX_NS ? nap_ns * 2 : FGV_ANNOUNCE_NAP_MAX_NS;
    }
    return now;
}

/* The part of a client entry that the guest fills, every byte read once. */
static void copy_entry(const struct fgv_client *shared, struct fgv_client *copy)
{
    _Static_assert(offsetof(struct fgv_client, beat) % sizeof(uint64_t) == 0, "copied in words");
    for (size_t i = 0; i < offsetof(struct fgv_client, beat); i += sizeof(uint64_t)) {
        uint64_t word = __atomic_load_n((const uint64_t *)((const char *)shared + i), __ATOMIC_RELAXED);
        memcpy((char *)copy + i, &word, sizeof(word));
    }
}

static bool are_spans_sound(const struct fgv_region *region, const struct fgv_client_layout *layout)
{
    const struct fgv_span spans[] = {layout->ring, layout->responses, layout->chunks, layout->arena};
    const size_t nr_spans = sizeof(spans) / sizeof(spans[0]);
    for (size_t i = 0; i < nr_spans; i++) {
        if (!fgv_region_in_heap(region, spans[i].offset, spans[i].bytes) || spans[i].offset % FGV_SPAN_ALIGN != 0 ||
            spans[i].offset >= region->region_bytes) { /* the window may go while the client stays */
            return false;
        }
        for (size_t j = 0; j < i; j++) {
            if (spans[i].offset < spans[j].offset + spans[j].bytes &&
                spans[j].offset < spans[i].offset + spans[i].bytes) {
                return false;
            }
        }
    }
    /* The driver pins the arena by pages. */
    if (layout->arena.offset % FGV_PAGE_BYTES != 0) {
        return false;
    }
    for (size_t i = 0; i < nr_spans; i++) {
        if (!fgv_region_is_owned(region, layout->index, spans[i].offset, spans[i].bytes)) {
            return false;
        }
    }
    return true;
}

static bool are_sizes_sound(const struct fgv_client *entry)
{
    return entry->ring_bytes >= FGV_RING_MIN_BYTES && entry->ring_bytes <= FGV_RING_MAX_BYTES &&
           (entry->ring_bytes & (entry->ring_bytes - 1)) == 0 && entry->nr_responses >= 1 &&
           entry->nr_responses <= FGV_MAX_RESPONSES && entry->nr_chunks >= 1 && entry->nr_chunks <= FGV_MAX_CHUNKS &&
           entry->chunk_bytes >= FGV_CHUNK_MIN_BYTES && entry->chunk_bytes <= FGV_CHUNK_MAX_BYTES &&
           entry->chunk_bytes % FGV_PAGE_BYTES == 0;
}

static void copy_program(const char *from, char *to)
{
    for (size_t i = 0; i < FGV_PROGRAM_BYTES; i++) {
        to[i] = from[i] == '\0' || (from[i] >= ' ' && from[i] <= '~') ? from[i] : '?';
    }
    to[FGV_PROGRAM_BYTES - 1] = '\0';
}

bool fgv_client_read_layout(const struct fgv_region *region, uint32_t index, struct fgv_client_layout *layout)
{
    if (index >= FGV_NR_CLIENTS) {
        return false;
    }
    struct fgv_client *shared = &region->clients[index];
    struct fgv_client entry;
    /* Acquire: pairs with the guest's release of HELLO, after which its fields stand still if it is honest. */
    (void)atomic_load_explicit(&shared->state, memory_order_acquire);
    copy_entry(shared, &entry);
    if (!are_sizes_sound(&entry)) {
        return false;
    }
    if (entry.address % FGV_PAGE_BYTES != 0 || entry.address < FGV_ADDRESS_MIN ||
        entry.address > FGV_ADDRESS_END - region->region_bytes) {
        return false;
    }
    *layout = (struct fgv_client_layout){
        .index = index,
        .address = entry.address,
        .commit_key = entry.commit_key,
        .ring = {entry.ring_offset, sizeof(struct fgv_ring_control) + (uint64_t)entry.ring_bytes},
        .responses = {entry.responses_offset, (uint64_t)entry.nr_responses * sizeof(struct fgv_response)},
        .chunks = {entry.chunks_offset, (uint64_t)entry.nr_chunks * sizeof(struct fgv_chunk)},
        .arena = {entry.arena_offset, (uint64_t)entry.nr_chunks * entry.chunk_bytes},
        .ring_bytes = entry.ring_bytes,
        .nr_responses = entry.nr_responses,
        .nr_chunks = entry.nr_chunks,
        .chunk_bytes = entry.chunk_bytes,
        .pid = entry.pid,
        .has_bell = atomic_load_explicit(&entry.has_bell, memory_order_relaxed) == 1,
        .bell_vector = entry.bell_vector,
    };
    copy_program(entry.program, layout->program);
    return are_spans_sound(region, layout);
}
