"""Builds `ivshmem._ivshmem`, the C code of both ends behind cffi (API mode: the compiler checks these declarations
against the headers).

Run as `python ivshmem/build_ffi.py`; the module lands beside this file. CFLAGS from the environment come last, so that
`CFLAGS="-fsanitize=address,undefined" python ivshmem/build_ffi.py --to DIR` gives an instrumented one elsewhere.

Wrong when: a hot path is meant to run through it. Daemon and tests call it; workers and guests compile the C code
themselves.
"""

import argparse
import shlex
import shutil
import sysconfig
import tempfile
from os import environ
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
SOURCES = (
    "region",
    "ring",
    "response",
    "heap",
    "client",
    "guest_bell",
    "host_beat",
    "host_bell",
    "cut",
    "told",
    "event",
)

CDEF = """
#define FGV_LAYOUT_VERSION ...
#define FGV_PAGE_BYTES ...
#define FGV_NR_CLIENTS ...
#define FGV_FACTS_BYTES ...
#define FGV_REGION_MIN_BYTES ...
#define FGV_BEAT_NS ...
#define FGV_BEAT_LOST_NS ...
#define FGV_HOST_LOST_NS ...
#define FGV_RECORD_ALIGN ...
#define FGV_RECORD_MAX_BYTES ...
#define FGV_RING_MIN_BYTES ...
#define FGV_RING_MAX_BYTES ...
#define FGV_NO_RESPONSE ...
#define FGV_RESPONSE_BYTES ...
#define FGV_RESPONSE_PAYLOAD_BYTES ...
#define FGV_MAX_RESPONSES ...
#define FGV_MAX_CHUNKS ...
#define FGV_CHUNK_MIN_BYTES ...
#define FGV_CHUNK_MAX_BYTES ...
#define FGV_HEAP_NONE ...
#define FGV_NR_EVENTS ...
#define FGV_NR_EVENT_WORDS ...
#define FGV_EVENTS_BYTES ...
#define FGV_EVENT_NONE ...
#define FGV_EVENT_LATER ...
#define FGV_WINDOW_MIN_BYTES ...
#define FGV_WINDOW_MAX_BYTES ...
#define FGV_PEER_GUEST ...
#define FGV_PEER_DAEMON ...
#define FGV_PEER_WORKERS ...
#define FGV_NR_PEERS ...
#define FGV_NR_GUEST_VECTORS ...

enum fgv_wake { FGV_WAKE_POLL, FGV_WAKE_FUTEX, FGV_WAKE_BELL, ... };
enum fgv_host_state { FGV_HOST_DOWN, FGV_HOST_UP, ... };
enum fgv_client_state { FGV_CLIENT_FREE, FGV_CLIENT_CLAIMED, FGV_CLIENT_HELLO, FGV_CLIENT_READY, FGV_CLIENT_REFUSED,
    FGV_CLIENT_DEAD, FGV_CLIENT_CLOSING, ... };
enum fgv_region_status { FGV_REGION_OK, FGV_REGION_NO_MAGIC, FGV_REGION_WRONG_VERSION, FGV_REGION_WRONG_TABLE,
    FGV_REGION_DAMAGED, ... };
enum fgv_slot_state { FGV_SLOT_IDLE, FGV_SLOT_WAITING, FGV_SLOT_PARKED, FGV_SLOT_DONE, ... };
enum fgv_record_kind { FGV_RECORD_PAD, FGV_RECORD_MESSAGE, ... };
enum fgv_consume_status { FGV_CONSUME_EMPTY, FGV_CONSUME_RECORD, FGV_CONSUME_HOSTILE, ... };

struct fgv_span { uint64_t offset; uint64_t bytes; };
struct fgv_region { uint8_t *base; uint64_t region_bytes; uint64_t table_hash; uint64_t nr_heap_pages; uint8_t *facts;
    uint8_t *heap; uint32_t wake; uint32_t facts_bytes; ...; };
struct fgv_client_layout { uint32_t index; uint64_t address; uint64_t commit_key; struct fgv_span ring;
    struct fgv_span responses; struct fgv_span chunks; struct fgv_span arena; uint32_t ring_bytes;
    uint32_t nr_responses; uint32_t nr_chunks; uint32_t chunk_bytes; char program[...]; uint32_t pid; bool has_bell;
    uint32_t bell_vector; ...; };
struct fgv_client_view { uint64_t beat; uint32_t state; uint32_t pid; uint32_t refusal; uint32_t deferred_error;
    uint32_t sticky_error; uint8_t boot_id[16]; char program[...]; ...; };
struct fgv_heap_census { uint64_t nr_free; uint64_t nr_stray; uint64_t nr_owned[...]; ...; };

bool fgv_region_format(uint8_t *base, uint64_t bytes, uint64_t table_hash, enum fgv_wake wake, const void *facts,
    uint32_t facts_bytes, struct fgv_region *region);
enum fgv_region_status fgv_region_check(uint8_t *base, uint64_t bytes, uint64_t table_hash, struct fgv_region *region);
const char *fgv_region_status_text(enum fgv_region_status status);
bool fgv_region_in_heap(const struct fgv_region *region, uint64_t offset, uint64_t bytes);
void fgv_announce(const struct fgv_region *region);
uint32_t fgv_announce_wait(const struct fgv_region *region, uint32_t seen, uint64_t timeout_ns);
bool fgv_client_read_layout(const struct fgv_region *region, uint32_t index, struct fgv_client_layout *layout);

bool fgv_client_look(const struct fgv_region *region, uint32_t index, struct fgv_client_view *view);
uint64_t fgv_clients_in_use(const struct fgv_region *region);
bool fgv_client_step(const struct fgv_region *region, uint32_t index, uint32_t from, uint32_t to);
bool fgv_client_refuse(const struct fgv_region *region, uint32_t index, uint32_t code);
bool fgv_client_fail(const struct fgv_region *region, uint32_t index, uint32_t code);
bool fgv_client_release(const struct fgv_region *region, uint32_t index, uint32_t seen);
void fgv_heap_count(const struct fgv_region *region, struct fgv_heap_census *census);

uint64_t fgv_heap_allocate(const struct fgv_region *region, uint32_t client_index, uint64_t bytes);
uint64_t fgv_heap_free(const struct fgv_region *region, uint32_t client_index, uint64_t offset, uint64_t bytes);
uint64_t fgv_heap_reclaim(const struct fgv_region *region, uint32_t client_index);
bool fgv_region_is_owned(const struct fgv_region *region, uint32_t client_index, uint64_t offset, uint64_t bytes);
uint64_t fgv_window_front_bytes(uint64_t bytes);
bool fgv_window_is_sound(uint64_t bytes, uint64_t mapped_bytes);
uint64_t fgv_window_end_bytes(const struct fgv_region *region);
bool fgv_grower_take(const struct fgv_region *region, uint32_t client_index);
void fgv_grower_give(const struct fgv_region *region, uint32_t client_index);

struct fgv_event_place { uint64_t number; uint32_t word; };
struct fgv_event;
uint32_t fgv_event_take(const struct fgv_region *region, uint32_t client_index, uint64_t *key);
bool fgv_event_join(const struct fgv_region *region, uint32_t client_index, uint32_t index, uint64_t key);
void fgv_event_leave(const struct fgv_region *region, uint32_t client_index, uint32_t index);
bool fgv_event_claim(struct fgv_event *event, uint32_t client_index, const uint64_t *own,
    struct fgv_event_place *place, uint64_t *after);
void fgv_event_publish(struct fgv_event *event, const struct fgv_event_place *place);
struct fgv_event_place fgv_event_last(const struct fgv_event *event);
bool fgv_event_is_done(const struct fgv_event *event, const struct fgv_event_place *place);
void fgv_event_finish(struct fgv_event *event, const struct fgv_event_place *place);
void fgv_events_finish(const struct fgv_region *region, uint32_t client_index);
void fgv_events_reclaim(const struct fgv_region *region, uint32_t client_index);
struct fgv_event *fgv_face_event(const struct fgv_region *region, uint32_t index);

struct fgv_record { uint32_t payload_bytes; uint16_t kind; uint16_t response; ...; };
typedef bool (*fgv_keep_waiting_fn)(void *context, uint32_t nr_rounds);
struct fgv_producer { uint8_t *data; uint64_t mask; uint64_t commit_key; uint32_t wake;
    fgv_keep_waiting_fn keep_waiting; void *keep_waiting_context; ...; };
struct fgv_consumer { uint64_t head; uint64_t released; uint64_t mask; uint64_t nr_records; uint64_t nr_bytes;
    uint64_t nr_parks; const struct fgv_host_bell *bell; ...; };
struct fgv_host_bell { int guest; int own; int ready; uint64_t requests; };
void fgv_host_bell_prepare(struct fgv_host_bell *bell);
bool fgv_host_bell_open(struct fgv_host_bell *bell, int guest, int own);
void fgv_host_bell_ring(const struct fgv_host_bell *bell);
void fgv_host_bell_wait(const struct fgv_host_bell *bell, uint64_t timeout_ns);
struct fgv_consumed { const uint8_t *payload; uint32_t payload_bytes; uint16_t response; ...; };
void fgv_producer_init(struct fgv_producer *producer, uint8_t *ring, uint32_t ring_bytes, uint64_t start,
    uint64_t commit_key, uint32_t wake);
struct fgv_record *fgv_producer_reserve(struct fgv_producer *producer, uint32_t payload_bytes, uint64_t *position);
void fgv_producer_commit(struct fgv_producer *producer, struct fgv_record *record, uint64_t position);
void fgv_consumer_init(struct fgv_consumer *consumer, uint8_t *ring, uint32_t ring_bytes, uint64_t commit_key,
    uint32_t wake);
enum fgv_consume_status fgv_consumer_peek(struct fgv_consumer *consumer, struct fgv_consumed *record);
void fgv_consumer_release(struct fgv_consumer *consumer);
bool fgv_consumer_park_prepare(struct fgv_consumer *consumer);
void fgv_consumer_park_sleep(struct fgv_consumer *consumer, uint64_t timeout_ns);
void fgv_consumer_park_cancel(struct fgv_consumer *consumer);

struct fgv_free_set { uint32_t nr; ...; };
void fgv_free_set_init(struct fgv_free_set *set, uint32_t nr);
int32_t fgv_free_set_take(struct fgv_free_set *set, uint32_t hint);
void fgv_free_set_give(struct fgv_free_set *set, uint32_t index);
bool fgv_respond(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index,
    uint32_t result, const void *payload, uint32_t payload_bytes);
bool fgv_chunk_complete(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index,
    uint32_t result);
void fgv_respond_soon(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index);
void fgv_chunk_complete_soon(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index);

struct fgv_host_beat { ...; };
void fgv_host_beat_keep(struct fgv_host_beat *beat, const struct fgv_region *region, uint64_t for_ns);
void fgv_host_beat_stop(struct fgv_host_beat *beat);

bool fgv_cut_survive(void);
int32_t fgv_cut_watch(void *base, uint64_t bytes);
bool fgv_cut_happened(int32_t number);
void fgv_cut_forget(int32_t number);

#define FGV_TOLD_NOT_ACTIVE ...
struct fgv_told_values { uint32_t weight, request_permille, limit_permille, entitled_permille, used_permille;
    uint64_t quota_bytes, used_ns, wait_ns, nr_waits, memory_bytes; };
void fgv_told_write(const struct fgv_region *region, uint32_t number, const struct fgv_told_values *values);
bool fgv_told_read(const struct fgv_region *region, struct fgv_told_values *values);

/* Of the block below: what Python cannot do with plain loads and stores. */
void fgv_face_set_host_state(const struct fgv_region *region, uint32_t state);
uint32_t fgv_face_host_state(const struct fgv_region *region);
uint64_t fgv_face_host_beat(const struct fgv_region *region);
void fgv_face_set_window(struct fgv_region *region, void *owners, uint64_t bytes, uint64_t mapped_bytes);
struct fgv_face_habit {
    uint64_t mean_ns, deviation_ns, was_longer;
};
void fgv_face_habit_note(struct fgv_face_habit *habit, uint64_t sample_ns);
void fgv_face_habit_note_wait(struct fgv_face_habit *wait, uint64_t waited_ns);
bool fgv_face_slot_wait(void *state, uint32_t wake, uint64_t spin_ns, fgv_keep_waiting_fn keep_waiting, void *context);
bool fgv_face_slot_wait_learnt(void *state, uint32_t wake, uint64_t spin_ns, struct fgv_face_habit *wait,
    struct fgv_face_habit *oversleep);
bool fgv_face_slot_complete(void *state, uint32_t wake);
bool fgv_face_slot_rouse(void *state, uint32_t wake);
void fgv_face_slot_store(void *state, uint32_t value);
"""

FACE = """
#include "ivshmem/bell.h"
#include "ivshmem/client.h"
#include "ivshmem/cut.h"
#include "ivshmem/event.h"
#include "ivshmem/heap.h"
#include "ivshmem/host_beat.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"
#include "ivshmem/told.h"

static void fgv_face_set_host_state(const struct fgv_region *region, uint32_t state)
{
    atomic_store_explicit(&region->header->host_state, state, memory_order_release);
}
static uint32_t fgv_face_host_state(const struct fgv_region *region)
{
    return atomic_load_explicit(&region->header->host_state, memory_order_acquire);
}
static uint64_t fgv_face_host_beat(const struct fgv_region *region)
{
    return atomic_load_explicit(&region->header->host_beat, memory_order_relaxed);
}
static void fgv_face_set_window(struct fgv_region *region, void *owners, uint64_t bytes, uint64_t mapped_bytes)
{
    region->window.owners = owners;
    region->window.bytes = bytes;
    atomic_store_explicit(&region->window.mapped_bytes, mapped_bytes, memory_order_release);
}
static struct fgv_event *fgv_face_event(const struct fgv_region *region, uint32_t index)
{
    return &region->events[index];
}
/* cffi has no word for _Atomic. */
static bool fgv_face_slot_wait(void *state, uint32_t wake, uint64_t spin_ns, fgv_keep_waiting_fn keep_waiting,
                               void *context)
{
    const struct fgv_region region = {.wake = wake};
    const struct fgv_spin spin = {.most_ns = spin_ns};
    return fgv_slot_wait((_Atomic uint32_t *)state, &region, &spin, keep_waiting, context);
}
struct fgv_face_habit {
    uint64_t mean_ns, deviation_ns, was_longer;
};
_Static_assert(sizeof(struct fgv_face_habit) == sizeof(struct fgv_habit), "habit");
static void fgv_face_habit_note(struct fgv_face_habit *habit, uint64_t sample_ns)
{
    fgv_habit_note((struct fgv_habit *)habit, sample_ns);
}
static void fgv_face_habit_note_wait(struct fgv_face_habit *wait, uint64_t waited_ns)
{
    fgv_habit_note_wait((struct fgv_habit *)wait, waited_ns);
}
static bool fgv_face_slot_wait_learnt(void *state, uint32_t wake, uint64_t spin_ns, struct fgv_face_habit *wait,
                                      struct fgv_face_habit *oversleep)
{
    const struct fgv_region region = {.wake = wake};
    const struct fgv_spin spin = {spin_ns, (struct fgv_habit *)wait, (struct fgv_habit *)oversleep};
    return fgv_slot_wait((_Atomic uint32_t *)state, &region, &spin, NULL, NULL);
}
static bool fgv_face_slot_complete(void *state, uint32_t wake)
{
    const struct fgv_region region = {.wake = wake};
    return fgv_slot_complete((_Atomic uint32_t *)state, &region);
}
static bool fgv_face_slot_rouse(void *state, uint32_t wake)
{
    const struct fgv_region region = {.wake = wake};
    return fgv_slot_rouse((_Atomic uint32_t *)state, &region);
}
static void fgv_face_slot_store(void *state, uint32_t value)
{
    atomic_store_explicit((_Atomic uint32_t *)state, value, memory_order_release);
}
"""


def build(to: Path) -> Path:
    """Compiles into `to` and returns the module's path. The file is replaced whole, so that a running process keeps its
    old one."""
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", *shlex.split(environ.get("CFLAGS", ""))]
    ffi = cffi.FFI()
    ffi.cdef(CDEF)
    ffi.set_source(
        "_ivshmem",
        FACE,
        sources=[str(HERE / "src" / f"{name}.c") for name in SOURCES],
        include_dirs=[str(HERE / "include")],
        extra_compile_args=flags,
        extra_link_args=[flag for flag in flags if flag.startswith("-fsanitize")],
    )
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        built = Path(ffi.compile(tmpdir=folder))
        target = to / f"_ivshmem{sysconfig.get_config_var('EXT_SUFFIX')}"
        staged = to / f".{target.name}.new"
        shutil.copy(built, staged)
        staged.replace(target)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--to", type=Path, default=HERE, metavar="DIR", help="where to put the module (default: beside this file)"
    )
    print(build(parser.parse_args().to))


if __name__ == "__main__":
    main()
