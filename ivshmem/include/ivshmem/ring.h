/*
 * The request ring: many producers (threads of the guest program), one consumer (the worker). Lock-free; records keep
 * the order in which they were reserved, so what happened before in the guest, across its threads, comes before in the
 * ring.
 *
 * A record starts at a multiple of FGV_RECORD_ALIGN and never wraps: a producer that does not fit before the end fills
 * it with a PAD. A producer reserves by compare and exchange on `tail`, writes, and commits by storing `position ^
 * commit_key` (release) in the record's first word. Old bytes of an earlier lap cannot be taken for a commit: they
 * would have to equal a random 64-bit key combined with this very position. So nothing has to be cleared behind the
 * consumer.
 *
 * Wrong when: a thread dies between reserve and commit while its process lives on. The consumer then waits for it for
 * ever, and so does everybody in that process; CUDA calls cannot be cancelled there, and a process that dies is noticed
 * by its beat.
 *
 * The consumer is the host. It trusts nothing: positions are its own, a record's length is read once, checked against
 * the ring.
 */
#ifndef IVSHMEM_RING_H
#define IVSHMEM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ivshmem/region.h"

#define FGV_RECORD_ALIGN     64u
#define FGV_RING_MIN_BYTES   (64u * 1024u)
#define FGV_RING_MAX_BYTES   (16u * 1024u * 1024u)
#define FGV_RECORD_MAX_BYTES (40u * 1024u) /* header included; a ring is never smaller than this */
#define FGV_NO_RESPONSE      0xffffu

enum fgv_record_kind { FGV_RECORD_PAD = 1, FGV_RECORD_MESSAGE = 2 };

struct fgv_record {
    _Atomic uint64_t commit;
    uint32_t payload_bytes; /* without this header, without the filling up to the alignment */
    uint16_t kind;
    uint16_t response; /* index of the response slot that waits, or FGV_NO_RESPONSE */
};
_Static_assert(sizeof(struct fgv_record) == 16, "record header");

/* In shared memory, before the data. */
struct fgv_ring_control {
    _Atomic uint64_t tail; /* shared by the producers: where the next reservation starts */
    uint8_t pad0[56];
    _Atomic uint64_t head; /* written by the consumer: everything before it may be overwritten */
    uint8_t pad1[56];
    _Atomic uint32_t parked; /* the consumer sleeps, or is about to: kick it. A futex under FGV_WAKE_FUTEX,
                               the reason to ring under FGV_WAKE_BELL */
    uint8_t pad2[60];
};
_Static_assert(sizeof(struct fgv_ring_control) == 192, "ring control");

/* How a producer waits when the ring is full, and learns that nobody will ever make room: returns false to give up. */
typedef bool (*fgv_keep_waiting_fn)(void *context, uint32_t nr_rounds);

struct fgv_producer {
    struct fgv_ring_control *control;
    uint8_t *data;
    uint64_t mask;
    uint64_t commit_key;
    _Atomic uint64_t head_seen; /* the shared head as some producer last saw it: saves most looks at that line */
    uint32_t wake;
    const struct fgv_guest_bell *bell; /* under FGV_WAKE_BELL, set by the owner as what follows */
    fgv_keep_waiting_fn keep_waiting;
    void *keep_waiting_context;
};

/* Guest: a fresh ring in zeroed memory. `start` is the position of the first record (a multiple of FGV_RECORD_ALIGN;
 * tests start near the wrap). */
void fgv_producer_init(struct fgv_producer *producer, uint8_t *ring, uint32_t ring_bytes, uint64_t start,
                       uint64_t commit_key, uint32_t wake);

/* Room for one record with `payload_bytes`; NULL when keep_waiting gave up (without one: never) or the payload is
 * longer than a record may be. payload_bytes, kind and response (FGV_NO_RESPONSE) are filled; the caller sets response
 * if it waits, fills payload(), commits. */
struct fgv_record *fgv_producer_reserve(struct fgv_producer *producer, uint32_t payload_bytes, uint64_t *position);
/* Publishes the record and kicks the consumer if it is parked. */
void fgv_producer_commit(struct fgv_producer *producer, struct fgv_record *record, uint64_t position);

static inline uint8_t *fgv_record_payload(struct fgv_record *record)
{
    return (uint8_t *)(record + 1);
}

struct fgv_consumer {
    struct fgv_ring_control *control;
    uint8_t *data;
    uint64_t mask;
    uint64_t commit_key;
    uint64_t head;     /* the private one; the shared one is only ever written */
    uint64_t released; /* what has been written to the shared head, in steps of an eighth of the ring or when the ring
                          is empty */
    uint64_t peeked_bytes; /* of the record last peeked and not yet released, 0 for none */
    uint32_t wake;
    const struct fgv_host_bell *bell; /* under FGV_WAKE_BELL, set by the owner */
    uint64_t nr_records;
    uint64_t nr_bytes;
    uint64_t nr_parks;
};

enum fgv_consume_status {
    FGV_CONSUME_EMPTY = 0,
    FGV_CONSUME_RECORD,
    FGV_CONSUME_HOSTILE, /* a committed record with an impossible length or kind: the client is not to be served further
                          */
};

/* What the consumer knows of a record: `payload` points into shared memory (copy what you decide on), the rest is
 * private. */
struct fgv_consumed {
    const uint8_t *payload;
    uint32_t payload_bytes;
    uint16_t response;
};

/* Host: attaches to a ring whose span has been checked. The position starts at the shared head, rounded down, which the
 * guest chose. */
void fgv_consumer_init(struct fgv_consumer *consumer, uint8_t *ring, uint32_t ring_bytes, uint64_t commit_key,
                       uint32_t wake);
enum fgv_consume_status fgv_consumer_peek(struct fgv_consumer *consumer, struct fgv_consumed *record);
/* Whether there is anything to peek at: one load. */
bool fgv_consumer_has(const struct fgv_consumer *consumer);
/* Gives the room of the record just peeked back to the producers. */
void fgv_consumer_release(struct fgv_consumer *consumer);

/*
 * Going to sleep without losing a wake-up: prepare sets `parked` (sequentially consistent) and looks again; it returns
 * false when a record arrived meanwhile. sleep waits until kicked or until `timeout_ns` passed (under POLL it naps that
 * long). Any other source the worker watches bounds the timeout.
 */
bool fgv_consumer_park_prepare(struct fgv_consumer *consumer);
void fgv_consumer_park_sleep(struct fgv_consumer *consumer, uint64_t timeout_ns);
void fgv_consumer_park_cancel(struct fgv_consumer *consumer);

#endif
