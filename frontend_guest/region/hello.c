/*
 * Taking a place in the region: an entry of the client table, and memory for ring, response slots and arena out of the
 * heap.
 *
 * Both can be short for a moment while the daemon takes back what programs that just ended have held, so a full region
 * is looked at again for a while as long as some entry is closing.
 */
#include "region/hello.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "ivshmem/heap.h"

#define RING_BYTES       (1024u * 1024u)
#define RING_SMALL_BYTES (256u * 1024u)
#define NR_RESPONSES     256u
#define NR_CHUNKS        24u
#define ARENA_BYTES      (24u * 1024u * 1024u) /* chunks of 1 MiB: smaller ones cost bandwidth (bulk.h) */
#define ARENA_MIN_BYTES  (128u * 1024u)
#define HEAP_DIVISOR                                                                                                   \
    8u /* a client takes at most one part in so many of the heap, so that small regions serve several programs */
#define NR_FULL_LOOKS 200u
#define FULL_NAP_NS   10000000

static void boot_id_read(uint8_t boot_id[16])
{
    char text[64] = "";
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        ssize_t length = read(file, text, sizeof(text) - 1);
        close(file);
        text[length > 0 ? length : 0] = '\0';
    }
    memset(boot_id, 0, 16);
    unsigned nr_digits = 0;
    for (const char *c = text; *c != '\0' && nr_digits < 32; c++) {
        unsigned digit = (unsigned)*c - '0';
        if (digit > 9) {
            digit = (unsigned)*c - 'a' + 10;
        }
        if (digit > 15) {
            continue;
        }
        boot_id[nr_digits / 2] = (uint8_t)(boot_id[nr_digits / 2] << 4 | digit);
        nr_digits++;
    }
}

/* Entries of an earlier boot belong to programs that no longer exist. True when one is on its way to becoming free. */
static bool close_old_entries(const struct fgv_region *region, const uint8_t boot_id[16])
{
    bool is_closing = false;
    bool is_changed = false;
    for (uint32_t i = 0; i < FGV_NR_CLIENTS; i++) {
        struct fgv_client *client = &region->clients[i];
        uint32_t state = atomic_load_explicit(&client->state, memory_order_acquire);
        bool is_filled = state == FGV_CLIENT_HELLO || state == FGV_CLIENT_READY || state == FGV_CLIENT_REFUSED ||
                         state == FGV_CLIENT_DEAD;
        if (is_filled && memcmp(client->boot_id, boot_id, 16) != 0 &&
            atomic_compare_exchange_strong_explicit(&client->state, &state, FGV_CLIENT_CLOSING, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            is_changed = is_closing = true;
        }
        is_closing = is_closing || state == FGV_CLIENT_CLOSING;
    }
    if (is_changed) {
        fgv_announce(region);
    }
    return is_closing;
}

static bool entry_claim(struct fgv_guest *guest)
{
    for (uint32_t i = 0; i < FGV_NR_CLIENTS; i++) {
        uint32_t state = FGV_CLIENT_FREE;
        struct fgv_client *client = &guest->region.clients[i];
        if (!atomic_compare_exchange_strong_explicit(&client->state, &state, FGV_CLIENT_CLAIMED, memory_order_acq_rel,
                                                     memory_order_relaxed)) {
            continue;
        }
        guest->client = client;
        guest->index = i;
        return true;
    }
    return false;
}

/* FAIRGV_ARENA: bytes, or with K, M, G. */
static uint64_t arena_wanted_bytes(void)
{
    const char *text = getenv("FAIRGV_ARENA");
    uint64_t bytes = 0;
    if (text) {
        for (; *text >= '0' && *text <= '9' && bytes < UINT64_C(1) << 40; text++) {
            bytes = bytes * 10 + (uint64_t)(*text - '0');
        }
    }
    if (bytes == 0) {
        return ARENA_BYTES;
    }
    if (*text == 'K' || *text == 'k') {
        bytes <<= 10;
    } else if (*text == 'M' || *text == 'm') {
        bytes <<= 20;
    } else if (*text == 'G' || *text == 'g') {
        bytes <<= 30;
    }
    const uint64_t most = (uint64_t)NR_CHUNKS * FGV_CHUNK_MAX_BYTES;
    return bytes < ARENA_MIN_BYTES ? ARENA_MIN_BYTES : bytes > most ? most : bytes;
}

/* How the memory of a client is laid out, the arena first because it must begin with a page. */
struct belongings {
    uint64_t arena_bytes;
    uint32_t ring_bytes;
};

static uint64_t belongings_bytes(const struct belongings *belongings)
{
    return belongings->arena_bytes + sizeof(struct fgv_ring_control) + belongings->ring_bytes +
           NR_RESPONSES * sizeof(struct fgv_response) + NR_CHUNKS * sizeof(struct fgv_chunk);
}

static void place_belongings(struct fgv_guest *guest, const struct belongings *belongings, uint64_t offset)
{
    struct fgv_client *client = guest->client;
    client->arena_offset = offset;
    client->ring_offset = client->arena_offset + belongings->arena_bytes;
    client->responses_offset = client->ring_offset + sizeof(struct fgv_ring_control) + belongings->ring_bytes;
    client->chunks_offset = client->responses_offset + NR_RESPONSES * sizeof(struct fgv_response);
    client->ring_bytes = belongings->ring_bytes;
    client->nr_responses = NR_RESPONSES;
    client->nr_chunks = NR_CHUNKS;
    client->chunk_bytes = (uint32_t)(belongings->arena_bytes / NR_CHUNKS);
    uint8_t *base = guest->region.base;
    memset(base + client->ring_offset, 0, sizeof(struct fgv_ring_control));
    memset(base + client->responses_offset, 0, NR_RESPONSES * sizeof(struct fgv_response));
    memset(base + client->chunks_offset, 0, NR_CHUNKS * sizeof(struct fgv_chunk));
    guest->nr_responses = NR_RESPONSES;
    guest->nr_chunks = NR_CHUNKS;
    guest->chunk_bytes = client->chunk_bytes;
    guest->arena_offset = client->arena_offset;
    guest->arena = base + client->arena_offset;
    guest->responses = (struct fgv_response *)(void *)(base + client->responses_offset);
    guest->chunks = (struct fgv_chunk *)(void *)(base + client->chunks_offset);
    fgv_free_set_init(&guest->free_responses, NR_RESPONSES);
    fgv_free_set_init(&guest->free_chunks, NR_CHUNKS);
}

static bool memory_take(struct fgv_guest *guest)
{
    const uint64_t most = guest->region.nr_heap_pages * FGV_PAGE_BYTES / HEAP_DIVISOR;
    const uint64_t step = (uint64_t)NR_CHUNKS * FGV_PAGE_BYTES; /* a chunk is whole pages */
    struct belongings belongings = {.arena_bytes = (arena_wanted_bytes() + step - 1) / step * step,
                                    .ring_bytes = RING_BYTES};
    while (belongings.arena_bytes >= ARENA_MIN_BYTES) {
        if (belongings.arena_bytes < 2 * RING_BYTES) {
            belongings.ring_bytes = RING_SMALL_BYTES;
        }
        if (belongings_bytes(&belongings) <= most) {
            uint64_t offset = fgv_heap_allocate(&guest->region, guest->index, belongings_bytes(&belongings));
            if (offset != FGV_HEAP_NONE) {
                place_belongings(guest, &belongings, offset);
                return true;
            }
        }
        belongings.arena_bytes = belongings.arena_bytes / 2 / step * step;
    }
    return false;
}

static void random_fill(void *bytes, size_t nr_bytes)
{
    if (syscall(SYS_getrandom, bytes, nr_bytes, 0) == (long)nr_bytes) {
        return;
    }
    /* The key need only differ from what stands in old memory by chance; the guest does not defend itself against
     * itself. */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mixed =
        ((uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uint64_t)getpid() << 16) * UINT64_C(0x9e3779b97f4a7c15);
    memcpy(bytes, &mixed, nr_bytes < sizeof(mixed) ? nr_bytes : sizeof(mixed));
}

static void greet(struct fgv_guest *guest, const uint8_t boot_id[16])
{
    struct fgv_client *client = guest->client;
    client->pid = (uint32_t)getpid();
    memcpy(client->boot_id, boot_id, 16);
    client->address = (uint64_t)(uintptr_t)guest->region.base;
    random_fill(&client->commit_key, sizeof(client->commit_key));
    memset(client->program, 0, sizeof(client->program));
    strncpy(client->program, program_invocation_short_name, sizeof(client->program) - 1);
    atomic_store_explicit(&client->refusal, 0, memory_order_relaxed);
    atomic_store_explicit(&client->deferred_error, 0, memory_order_relaxed);
    atomic_store_explicit(&client->sticky_error, 0, memory_order_relaxed);
    atomic_store_explicit(&client->output_pending, 0, memory_order_relaxed);
    atomic_store_explicit(&client->memory_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&client->gpu_permille, 0, memory_order_relaxed);
    fgv_producer_init(&guest->producer, guest->region.base + client->ring_offset, client->ring_bytes, 0,
                      client->commit_key, guest->region.wake);
    if (guest->region.guest_bell) {
        fgv_bells_assign(&guest->bells, client, guest->index);
        guest->producer.bell = &guest->bells.bell;
    } else {
        atomic_store_explicit(&client->has_bell, 0, memory_order_relaxed);
    }
    /* release: the host reads the fields after it has read HELLO */
    atomic_store_explicit(&client->state, FGV_CLIENT_HELLO, memory_order_release);
    fgv_announce(&guest->region);
}

CUresult fgv_hello(struct fgv_guest *guest)
{
    uint8_t boot_id[16];
    boot_id_read(boot_id);
    const struct timespec nap = {.tv_nsec = FULL_NAP_NS};
    bool is_claimed = false;
    for (unsigned i = 0; i < NR_FULL_LOOKS; i++) {
        bool may_change = close_old_entries(&guest->region, boot_id);
        is_claimed = is_claimed || entry_claim(guest);
        if (is_claimed && memory_take(guest)) {
            greet(guest, boot_id);
            return CUDA_SUCCESS;
        }
        if (!may_change) {
            break;
        }
        nanosleep(&nap, NULL);
    }
    if (is_claimed) {
        atomic_store_explicit(&guest->client->state, FGV_CLIENT_CLOSING, memory_order_release);
        fgv_announce(&guest->region);
        fgv_log_cause(
            FGV_CAUSE_FULL,
            "the region is full: no memory is left in it for another program; end one, or attach a larger region "
            "on the host (fairgv-host attach DOMAIN --region SIZE)");
    } else {
        fgv_log_cause(FGV_CAUSE_FULL, "the region is full: %u programs use it already; end one of them",
                      FGV_NR_CLIENTS);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}
