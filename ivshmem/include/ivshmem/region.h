/*
 * The layout of a region: the memory that one VM and its host share. One ivshmem device, one POSIX shared memory
 * object.
 *
 * The host writes the header once, magic last, and never believes it again: it keeps what it wrote in private memory.
 * Everything here can be rewritten by the guest at any time, so host code takes a shared word with one atomic load,
 * bounds it, and uses the copy.
 *
 * Parts, in order:
 *
 *   the region                                  header (one page) | facts | client table | events | page owners | heap
 *   behind it, where the VM has the device      a window: page owners | more heap
 *   for it
 *
 * Rings, responses and arenas of the clients lie in the heap: a client takes what it needs when it starts and the
 * daemon takes it back, page by page, by the owner's number. docs/region.md tells the same as a table.
 */
#ifndef IVSHMEM_REGION_H
#define IVSHMEM_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FGV_REGION_MAGIC     UINT64_C(0x3156475249414600) /* "\0FAIRGV1", little endian */
#define FGV_LAYOUT_VERSION   2u
#define FGV_PAGE_BYTES       4096u
#define FGV_NR_CLIENTS       64u
#define FGV_FACTS_BYTES      (64u * 1024u) /* room for 16 devices; what is in it is cuda_api's business */
#define FGV_REGION_MIN_BYTES (16u * 1024u * 1024u)
#define FGV_PROGRAM_BYTES    64u
#define FGV_NR_EVENTS        4096u
#define FGV_NR_EVENT_WORDS   6u
#define FGV_WINDOW_MIN_BYTES (UINT64_C(1) << 20) /* as the device has them */
#define FGV_WINDOW_MAX_BYTES (UINT64_C(1) << 40)

/* How to wake a peer that sleeps. POLL: nobody can be woken across the VM's border, both sides sleep in short naps.
 * BELL: with the doorbell of the ivshmem device, see bell.h; in force for clients that say so (`has_bell`), the others
 * of the region are served as under POLL. */
enum fgv_wake { FGV_WAKE_POLL = 1, FGV_WAKE_FUTEX = 2, FGV_WAKE_BELL = 3 };

enum fgv_host_state { FGV_HOST_DOWN = 0, FGV_HOST_UP = 1 };

struct fgv_region_header {
    _Atomic uint64_t magic; /* release by the host when all below is in place */
    uint32_t layout_version;
    uint32_t wake;       /* enum fgv_wake */
    uint64_t table_hash; /* of the calls' table both ends were built from */
    uint64_t region_bytes;
    uint64_t facts_offset;
    uint64_t clients_offset;
    uint64_t owners_offset; /* _Atomic uint16_t per heap page: 0 free, else client index + 1 */
    uint64_t heap_offset;
    uint64_t nr_heap_pages;
    uint32_t facts_bytes; /* how much of the facts is filled */
    uint32_t reserved;
    uint64_t events_offset;
    uint8_t pad0[128 - 88];
    /* Changes while the region lives, on a cache line of its own. */
    _Atomic uint32_t host_state; /* enum fgv_host_state */
    _Atomic uint32_t announce;   /* a guest adds one when a client changed state; a futex under FGV_WAKE_FUTEX */
    _Atomic uint64_t host_beat;  /* the daemon adds one at least every FGV_BEAT_NS */
    _Atomic uint32_t grower;     /* client index + 1 of who asks for more of the window; 0: nobody */
    _Atomic uint32_t nr_events;  /* guests raise it: events from here on were never anybody's */
    uint8_t pad1[64 - 24];
};

#define FGV_BEAT_NS      UINT64_C(250000000)  /* both ends beat this often */
#define FGV_BEAT_LOST_NS UINT64_C(5000000000) /* a client whose beat stood still this long is gone */
#define FGV_HOST_LOST_NS UINT64_C(3000000000) /* a daemon likewise */

/*
 * Life of a client entry. Who may make each step is part of the name of the game; the host checks nothing but the value
 * it read.
 *
 * - FREE -> CLAIMED (guest, compare and exchange) -> HELLO (guest, fields filled) -> READY (worker) -> CLOSING (guest)
 * - HELLO -> REFUSED (host; `refusal` says why) -> CLOSING (guest)
 * - READY -> DEAD (host: the worker died) -> CLOSING (guest, when it noticed)
 * - CLOSING -> FREE, and any state whose beat was lost -> FREE (daemon, after the worker ended and the pages were taken
 *   back)
 *
 * A new client of another boot moves entries of an earlier boot to CLOSING, so that a reset guest needs not wait for
 * lost beats.
 */
enum fgv_client_state {
    FGV_CLIENT_FREE = 0,
    FGV_CLIENT_CLAIMED = 1,
    FGV_CLIENT_HELLO = 2,
    FGV_CLIENT_READY = 3,
    FGV_CLIENT_REFUSED = 4,
    FGV_CLIENT_DEAD = 5,
    FGV_CLIENT_CLOSING = 6,
};

struct fgv_client {
    /* Written by the guest between CLAIMED and HELLO. */
    _Atomic uint32_t state;
    uint32_t pid; /* in the guest: for people and logs only */
    uint8_t boot_id[16];
    uint64_t address;    /* where the guest program mapped the region's first byte; the worker maps it there too */
    uint64_t commit_key; /* random; see ring.h */
    uint64_t ring_offset;
    uint64_t responses_offset;
    uint64_t chunks_offset;
    uint64_t arena_offset;
    uint32_t ring_bytes; /* of data, a power of two */
    uint32_t nr_responses;
    uint32_t nr_chunks;
    uint32_t chunk_bytes;
    char program[FGV_PROGRAM_BYTES]; /* file name of the program, for people and logs only */
    /* Under FGV_WAKE_BELL: whether this program rings when the worker is parked, and sleeps until it is rung for. It
     * may take that back at any time, with 0. */
    _Atomic uint32_t has_bell;
    uint32_t bell_vector; /* the interrupt that wakes it */
    uint8_t pad0[192 - 160];
    /* The guest's beat. */
    _Atomic uint64_t beat;
    /* Who waits, told before each request that is waited for: the vCPU's number + 1, under FGV_WAKE_FUTEX the thread's
     * id; 0: unknown. A hint. */
    _Atomic uint32_t asker;
    uint8_t pad1[64 - 12];
    /* Written by the host. */
    _Atomic uint32_t refusal; /* CUresult with which HELLO was refused */
    _Atomic uint32_t
        deferred_error; /* CUresult of an async call that failed, for the next call; the guest exchanges it for 0 */
    _Atomic uint32_t sticky_error; /* CUresult that every further call gives */
    _Atomic uint32_t
        output_pending; /* a bit for each stream that kernels printed to: fetch it after the next synchronisation */
    /* For the guest's questions about itself; nobody on the host reads them. */
    _Atomic uint64_t memory_bytes; /* of the device, that the client holds */
    _Atomic uint32_t gpu_permille; /* of the last second that its work was on the device */
    uint8_t pad2[64 - 28];
};

/* A word that one stream at a time writes to. */
struct fgv_event_word {
    _Atomic uint64_t claim; /* number of the last record there << 8 | client index + 1 */
    _Atomic uint64_t done;  /* number of the last one that is over: what devices write and wait for */
};

/* An event that programs of the guest share: see event.h. */
struct fgv_event {
    _Atomic uint64_t key;     /* random << 8 | its maker's client index + 1; another one is of another life; 0: none */
    _Atomic uint64_t holders; /* a bit for each client */
    _Atomic uint64_t issued;  /* numbers that were given to records; never back to 0 */
    _Atomic uint64_t last;    /* record that counts: its number << 8 | its word */
    struct fgv_event_word words[FGV_NR_EVENT_WORDS];
};

#define FGV_EVENTS_BYTES (FGV_NR_EVENTS * (uint32_t)sizeof(struct fgv_event))

/* Which part of a region, as offset and length in bytes, after all checks. */
struct fgv_span {
    uint64_t offset;
    uint64_t bytes;
};

_Static_assert(sizeof(struct fgv_region_header) == 192, "header");
_Static_assert(offsetof(struct fgv_region_header, host_state) == 128, "header line");
_Static_assert(sizeof(struct fgv_client) == 320, "client");
_Static_assert(sizeof(struct fgv_event) == 128, "two lines for each event");
_Static_assert(FGV_EVENTS_BYTES % FGV_PAGE_BYTES == 0, "devices map pages");
_Static_assert(offsetof(struct fgv_client, has_bell) == 152, "bell");
_Static_assert(offsetof(struct fgv_client, beat) == 192, "beat line");
_Static_assert(offsetof(struct fgv_client, refusal) == 256, "host line");

struct fgv_guest_bell;
struct fgv_host_bell;

/*
 * Memory behind the region, which the VM's device fairgv-memory maps piece by piece on request: more heap, at offsets
 * from the region's end on. The owners of all its pages lie in its first pages, so that how much is mapped is all there
 * is to know of the pieces.
 */
struct fgv_window {
    _Atomic uint16_t *owners;      /* as those of the region; NULL while nothing is mapped */
    uint64_t bytes;                /* that it can have at most; 0: there is no window */
    _Atomic uint64_t mapped_bytes; /* that may be used on this side */
};

/* What a side knows about a region it has mapped: private memory, filled after checks, the only thing further code
 * reads lengths from. */
struct fgv_region {
    uint8_t *base;
    uint64_t region_bytes;
    uint64_t table_hash;
    uint64_t nr_heap_pages;
    struct fgv_region_header *header;
    struct fgv_client *clients;
    struct fgv_event *events;
    _Atomic uint16_t *owners;
    uint8_t *facts;
    uint8_t *heap;
    uint32_t wake; /* enum fgv_wake; a client's own code replaces BELL by POLL where it has none */
    uint32_t facts_bytes;
    struct fgv_window window;
    /* Under FGV_WAKE_BELL, the own side's; set by the owner after the check. */
    const struct fgv_guest_bell *guest_bell;
    const struct fgv_host_bell *host_bell;
};

enum fgv_region_status {
    FGV_REGION_OK = 0,
    FGV_REGION_NO_MAGIC,      /* nobody has initialised it (yet) */
    FGV_REGION_WRONG_VERSION, /* another layout version */
    FGV_REGION_WRONG_TABLE,   /* another table of calls */
    FGV_REGION_DAMAGED,       /* offsets or sizes that do not fit */
};

/* Host: lays out a region of `bytes` (a multiple of the page, at least FGV_REGION_MIN_BYTES) in mapped, zeroed or old
 * memory. Everything that was in it is gone. `facts` is copied. Returns false when sizes do not fit. host_state is left
 * DOWN. */
bool fgv_region_format(uint8_t *base, uint64_t bytes, uint64_t table_hash, enum fgv_wake wake, const void *facts,
                       uint32_t facts_bytes, struct fgv_region *region);

/* Either side: checks the header of mapped memory of `bytes` and fills `region`. Offsets are compared with those that
 * the layout gives for this size: nothing in the header is free to choose. */
enum fgv_region_status fgv_region_check(uint8_t *base, uint64_t bytes, uint64_t table_hash, struct fgv_region *region);

/* What a person reads for a status, one sentence, naming the remedy. */
const char *fgv_region_status_text(enum fgv_region_status status);

/* Pages side by side, each with its owner: the heap is one such area in the region, and one in the window. */
struct fgv_heap_area {
    _Atomic uint16_t *owners;
    uint64_t nr_pages;
    uint64_t offset; /* of the first page, from the region's start */
};
#define FGV_NR_HEAP_AREAS 2u
/* Area 0 or 1; one without pages where nothing is mapped. */
struct fgv_heap_area fgv_region_area(const struct fgv_region *region, uint32_t number);
/* The area that all of [offset, offset+bytes) lies in; false when there is none. No overflow for any input. */
bool fgv_region_find_area(const struct fgv_region *region, uint64_t offset, uint64_t bytes, struct fgv_heap_area *area);
/* True when [offset, offset+bytes) lies in the heap. No overflow for any input. */
bool fgv_region_in_heap(const struct fgv_region *region, uint64_t offset, uint64_t bytes);
/* True when it does, has at least a byte, and each of its pages belongs to this client at the moment. */
bool fgv_region_is_owned(const struct fgv_region *region, uint32_t client_index, uint64_t offset, uint64_t bytes);

/* How many bytes of a window of `bytes` hold its owners, before the first page of its heap. */
uint64_t fgv_window_front_bytes(uint64_t bytes);
/* Whether a window may have this size and this much of it be mapped. */
bool fgv_window_is_sound(uint64_t bytes, uint64_t mapped_bytes);

/* Guest: tells the daemon that a client changed state; the state was written before. Under FGV_WAKE_BELL it rings, if
 * it has a bell. */
void fgv_announce(const struct fgv_region *region);
/* Host: waits until the announcements differ from `seen`, for at most `timeout_ns` or until a signal; returns their
 * number now. */
uint32_t fgv_announce_wait(const struct fgv_region *region, uint32_t seen, uint64_t timeout_ns);

/* Where a client's things are, checked and copied: what both ends use for the rest of the client's life. */
struct fgv_client_layout {
    uint32_t index;
    uint64_t address;
    uint64_t commit_key;
    struct fgv_span ring; /* control block and data */
    struct fgv_span responses;
    struct fgv_span chunks;
    struct fgv_span arena;
    uint32_t ring_bytes;
    uint32_t nr_responses;
    uint32_t nr_chunks;
    uint32_t chunk_bytes;
    char program[FGV_PROGRAM_BYTES]; /* NUL-terminated, only printable characters left */
    uint32_t pid;
    bool has_bell;
    uint32_t bell_vector; /* any number at all: to be bounded by how many the host has */
};

/* Host: reads a client entry once and checks every field: sizes within limits, powers of two, alignment, inside the
 * heap, parts not overlapping, pages owned by this client. */
bool fgv_client_read_layout(const struct fgv_region *region, uint32_t index, struct fgv_client_layout *layout);

#endif
