/*
 * A process that rewrites the region all the time, while this one does to it all that a host does: checks, looks, reads
 * layouts, consumes, answers, allocates, counts, reclaims, events included.
 *
 * Plain noise would be refused at the first check. The peer therefore keeps writing what a good guest writes (the same
 * entry, its pages, a ring full of commits that are right) and, between, wrong numbers into it: at random places, and
 * at those where numbers decide. Everything the host is given back is checked against the region's bounds here, since a
 * sanitizer does not know where a ring ends; the pages around the region are not accessible.
 *
 * Usage: hostile_peer NR_ROUNDS SEED. Prints counts of what came through and exits 0; any crash, wrong answer or
 * endless loop is a failure.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ivshmem/client.h"
#include "ivshmem/event.h"
#include "ivshmem/heap.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"

#define REGION_BYTES    FGV_REGION_MIN_BYTES
#define WINDOW_BYTES    FGV_WINDOW_MIN_BYTES
#define MAPPED_BYTES    (WINDOW_BYTES / 2) /* of the window */
#define GUARD_BYTES     (1u << 20)
#define INDEX           3u
#define NR_RESPONSES    64u
#define NR_CHUNKS       16u
#define CHUNK_BYTES     65536u
#define PEEKS_PER_ROUND 32u

static const uint64_t key = UINT64_C(0x8ebc6af09c88c6e3);
static struct fgv_region region; /* private copy, made before the peer started */
static struct fgv_region_header good_header;
static uint64_t random_state;

static uint64_t draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* A number that an attacker would try. */
static uint64_t draw_number(void)
{
    static const uint64_t tried[] = {0,          1,          63,         64,         4095,           4096,
                                     0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, UINT64_MAX - 63};
    uint64_t dice = draw();
    switch (dice % 4) {
    case 0:
        return tried[(dice >> 8) % (sizeof(tried) / sizeof(tried[0]))];
    case 1:
        return (dice >> 8) % (2 * REGION_BYTES);
    case 2:
        return ((dice >> 8) % (2 * REGION_BYTES)) & ~UINT64_C(4095);
    default:
        return draw();
    }
}

static uint64_t page_offset(uint64_t page)
{
    return (uint64_t)(region.heap - region.base) + page * FGV_PAGE_BYTES;
}

/* What a good guest would write. */
static void write_good_entry(void)
{
    struct fgv_client *entry = &region.clients[INDEX];
    memcpy(region.base, &good_header, sizeof(good_header));
    entry->address = UINT64_C(0x200000000000);
    entry->commit_key = key;
    entry->ring_bytes = FGV_RING_MIN_BYTES;
    entry->nr_responses = NR_RESPONSES;
    entry->nr_chunks = NR_CHUNKS;
    entry->chunk_bytes = CHUNK_BYTES;
    entry->ring_offset = page_offset(0);
    entry->responses_offset = page_offset(32);
    entry->chunks_offset = page_offset(48);
    entry->arena_offset = page_offset(64);
    for (uint32_t page = 0; page < 64 + NR_CHUNKS * (CHUNK_BYTES / FGV_PAGE_BYTES); page++) {
        atomic_store_explicit(&region.owners[page], INDEX + 1, memory_order_relaxed);
    }
}

static void write_ring(void)
{
    struct fgv_ring_control *control = (struct fgv_ring_control *)(region.base + page_offset(0));
    uint8_t *data = (uint8_t *)(control + 1);
    uint64_t lap = draw() % 2 == 0 ? 0 : UINT64_MAX - FGV_RING_MIN_BYTES + 1;
    atomic_store_explicit(&control->head, lap + (draw() % 8 == 0 ? draw_number() : 0), memory_order_relaxed);
    for (uint64_t offset = 0; offset < FGV_RING_MIN_BYTES; offset += FGV_RECORD_ALIGN) {
        struct fgv_record *record = (struct fgv_record *)(data + offset);
        uint64_t dice = draw();
        record->payload_bytes = dice % 16 == 0 ? (uint32_t)draw_number() : (uint32_t)(dice >> 8) % 256;
        record->kind = dice % 256 < 250 ? FGV_RECORD_MESSAGE : (uint16_t)(dice >> 32) % 4;
        record->response = (uint16_t)(dice >> 48);
        if (dice % 512 == 0) {
            record->kind = FGV_RECORD_PAD;
            record->payload_bytes = (uint32_t)(FGV_RING_MIN_BYTES - offset - sizeof(*record));
        }
        atomic_store_explicit(&record->commit, (lap + offset) ^ key, memory_order_relaxed);
    }
}

static void scribble(void)
{
    static volatile uint64_t *target;
    uint64_t dice = draw();
    switch (dice % 9) {
    case 0:
        write_good_entry();
        return;
    case 1:
        write_ring();
        return;
    case 2: /* a field of the entry */
        target = (uint64_t *)&region.clients[INDEX] + (dice >> 8) % (sizeof(struct fgv_client) / 8);
        break;
    case 3: /* the header */
        target = (uint64_t *)region.header + (dice >> 8) % (sizeof(struct fgv_region_header) / 8);
        break;
    case 4: /* the owners */
        if (dice % 16 == 4) {
            target = (uint64_t *)region.window.owners + (dice >> 8) % (FGV_PAGE_BYTES / 8);
            break;
        }
        target = (uint64_t *)((uint8_t *)region.owners + ((dice >> 8) % (region.nr_heap_pages / 4)) * 8);
        break;
    case 5: /* ring control and records */
    case 6:
        target = (uint64_t *)(region.base + page_offset(0)) + (dice >> 8) % ((FGV_RING_MIN_BYTES + 192) / 8);
        break;
    case 7: /* events, and how many there are */
        atomic_store_explicit(&region.header->nr_events, (uint32_t)draw_number(), memory_order_relaxed);
        target = (uint64_t *)region.events + (dice >> 8) % (FGV_EVENTS_BYTES / 8);
        break;
    default:
        target = (uint64_t *)region.base + (dice >> 8) % ((REGION_BYTES + MAPPED_BYTES) / 8);
    }
    *target = draw_number();
}

static void require(bool is_true, const char *what)
{
    if (is_true) {
        return;
    }
    fprintf(stderr, "the host was misled: %s\n", what);
    exit(1);
}

static void require_span(const struct fgv_span *span, uint64_t bytes, const char *what)
{
    require(span->bytes == bytes && span->offset >= page_offset(0) && span->bytes <= REGION_BYTES &&
                span->offset <= REGION_BYTES - span->bytes,
            what);
}

static uint64_t nr_layouts, nr_records, nr_hostile, nr_empty, nr_owned, nr_checked, sum;

static void consume(const struct fgv_client_layout *layout)
{
    struct fgv_consumer consumer;
    uint8_t *ring = region.base + layout->ring.offset;
    fgv_consumer_init(&consumer, ring, layout->ring_bytes, layout->commit_key, FGV_WAKE_POLL);
    for (uint32_t i = 0; i < PEEKS_PER_ROUND; i++) {
        struct fgv_consumed record;
        uint8_t copy[FGV_RECORD_MAX_BYTES];
        enum fgv_consume_status status = fgv_consumer_peek(&consumer, &record);
        if (status == FGV_CONSUME_EMPTY) {
            nr_empty++;
            if (fgv_consumer_park_prepare(&consumer)) {
                fgv_consumer_park_cancel(&consumer);
            }
            return;
        }
        if (status == FGV_CONSUME_HOSTILE) {
            nr_hostile++;
            return;
        }
        require(record.payload >= ring + sizeof(struct fgv_ring_control) && record.payload_bytes <= sizeof(copy) &&
                    record.payload + record.payload_bytes <= ring + layout->ring.bytes,
                "a payload outside the ring");
        memcpy(copy, record.payload, record.payload_bytes);
        sum += record.payload_bytes != 0 ? copy[record.payload_bytes - 1] : 0;
        fgv_respond(&region, layout, record.response, 0, copy, record.payload_bytes);
        fgv_chunk_complete(&region, layout, record.response, 0);
        fgv_consumer_release(&consumer);
        nr_records++;
    }
}

static void serve_once(uint64_t round)
{
    struct fgv_client_layout layout;
    struct fgv_client_view view;
    struct fgv_region again;
    for (uint32_t index = 0; index < FGV_NR_CLIENTS + 1; index += index == INDEX ? 61 : 1) {
        if (!fgv_client_look(&region, index, &view)) {
            continue;
        }
        require(memchr(view.program, '\0', sizeof(view.program)) != NULL, "a program name without an end");
    }
    if (fgv_client_read_layout(&region, INDEX, &layout)) {
        nr_layouts++;
        require_span(&layout.ring, sizeof(struct fgv_ring_control) + (uint64_t)layout.ring_bytes, "ring");
        require_span(&layout.responses, (uint64_t)layout.nr_responses * FGV_RESPONSE_BYTES, "responses");
        require_span(&layout.chunks, (uint64_t)layout.nr_chunks * sizeof(struct fgv_chunk), "chunks");
        require_span(&layout.arena, (uint64_t)layout.nr_chunks * layout.chunk_bytes, "arena");
        require((layout.ring_bytes & (layout.ring_bytes - 1)) == 0 && layout.ring_bytes >= FGV_RING_MIN_BYTES,
                "ring size");
        consume(&layout);
    }
    if (fgv_region_check(region.base, REGION_BYTES, region.table_hash, &again) == FGV_REGION_OK) {
        nr_checked++;
        require(again.nr_heap_pages == region.nr_heap_pages && again.heap == region.heap &&
                    again.owners == region.owners && again.events == region.events,
                "a layout of the guest's choice");
        require(again.facts_bytes <= FGV_FACTS_BYTES, "too many facts");
    }
    if (round % 64 == 0) {
        struct fgv_heap_census census;
        fgv_heap_count(&region, &census);
        for (uint32_t i = 0; i < FGV_NR_CLIENTS; i++) {
            nr_owned += census.nr_owned[i];
        }
        uint64_t offset = fgv_heap_allocate(&region, 7, 5 * FGV_PAGE_BYTES);
        require(offset == FGV_HEAP_NONE || fgv_region_in_heap(&region, offset, 5 * FGV_PAGE_BYTES),
                "an allocation outside the heap");
        uint64_t named = draw_number(), named_bytes = draw_number();
        require(!fgv_region_is_owned(&region, INDEX, named, named_bytes) ||
                    (named_bytes != 0 && named < REGION_BYTES + MAPPED_BYTES &&
                     named_bytes <= REGION_BYTES + MAPPED_BYTES - named),
                "memory of its own outside the heap");
        require(fgv_window_end_bytes(&region) < MAPPED_BYTES, "more free than is mapped");
        fgv_heap_free(&region, 7, draw_number(), draw_number());
        fgv_heap_reclaim(&region, 7);
        fgv_heap_reclaim(&region, INDEX);
        fgv_events_finish(&region, INDEX);
        fgv_events_reclaim(&region, INDEX);
        fgv_events_reclaim(&region, FGV_NR_CLIENTS);
        fgv_client_refuse(&region, INDEX, 803);
        fgv_client_release(&region, INDEX, view.state);
        fgv_announce_wait(&region, (uint32_t)draw(), 1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        return 2;
    }
    uint64_t nr_rounds = strtoull(argv[1], NULL, 0);
    random_state = strtoull(argv[2], NULL, 0) * 2 + 1;
    const uint64_t bytes = REGION_BYTES + MAPPED_BYTES;
    uint8_t *place = mmap(NULL, bytes + 2 * GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *base =
        mmap(place + GUARD_BYTES, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (place == MAP_FAILED || base == MAP_FAILED ||
        !fgv_region_format(base, REGION_BYTES, 0x7ab1e, FGV_WAKE_POLL, "facts", 5, &region)) {
        return 2;
    }
    region.window.owners = (_Atomic uint16_t *)(region.base + REGION_BYTES);
    region.window.bytes = WINDOW_BYTES;
    atomic_store(&region.window.mapped_bytes, MAPPED_BYTES);
    memcpy(&good_header, region.base, sizeof(good_header));
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        random_state = random_state * UINT64_C(0x9e3779b97f4a7c15) | 1;
        for (;;) {
            scribble();
        }
    }
    for (uint64_t round = 0; round < nr_rounds; round++) {
        serve_once(round);
    }
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    require(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the peer itself ended early");
    printf("layouts=%" PRIu64 " records=%" PRIu64 " hostile=%" PRIu64 " empty=%" PRIu64 " checked=%" PRIu64
           " owned=%" PRIu64 " sum=%" PRIu64 "\n",
           nr_layouts, nr_records, nr_hostile, nr_empty, nr_checked, nr_owned, sum);
    return 0;
}
