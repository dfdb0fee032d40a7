/*
 * The request ring, both ends. ring.h tells what it is; docs/region.md argues why no wake-up is lost.
 *
 * A record that does not fit before the end is preceded by a pad, reserved on its own: pad and record together may be
 * longer than the smallest ring, one after the other they always find room.
 *
 * Atomics, and who pairs with whom:
 *
 * - commit: producer exchange seq_cst (store release when nobody can be kicked) <-> consumer load acquire in peek,
 *   seq_cst in park_prepare.
 * - head: consumer store release <-> producer load acquire. What the consumer read is read before it is overwritten.
 * - tail: producers only. The order in the ring needs no more than relaxed. It is seq_cst for the producers' own sake:
 *   what one wrote before its reservation is seen by those whose reservations follow.
 * - parked: consumer exchange seq_cst, then load of commit <-> producer exchange of commit seq_cst, then load of
 *   parked. One of them sees the other.
 *
 * The two seq_cst exchanges stand where others put a fence: on x86 they cost the same, and ThreadSanitizer understands
 * them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "ivshmem/ring.h"

#include "ivshmem/bell.h"
#include "wait.h"

/*
 * How far ahead of a reservation the next cache lines are fetched for writing. The consumer read them a lap ago, and a
 * commit waits until its own line has come over: with the line already here an enqueue took 32 ns instead of 60
 * (ivshmem/bench). Closer than three records and it would take the line that the consumer polls.
 */
#define FGV_PREFETCH_BYTES 256u
#define FGV_FULL_SPIN_NS   UINT64_C(20000) /* how long a producer spins on a full ring before it naps */

static inline void prefetch_for_write(const uint8_t *place)
{
#if defined(__x86_64__)
    /* By hand, gcc would fetch for reading. Does nothing on processors older than the instruction. */
    __asm__ volatile("prefetchw %0" : : "m"(*place));
#else
    __builtin_prefetch(place, 1);
#endif
}

static inline uint64_t record_bytes(uint32_t payload_bytes)
{
    uint64_t bytes = sizeof(struct fgv_record) + (uint64_t)payload_bytes;
    return (bytes + FGV_RECORD_ALIGN - 1) & ~(uint64_t)(FGV_RECORD_ALIGN - 1);
}

/* How much a reservation at `tail` takes: the record, or the pad before it. */
static inline uint64_t claim_bytes(uint64_t tail, uint64_t mask, uint64_t bytes)
{
    uint64_t to_end = mask + 1 - (tail & mask);
    return bytes <= to_end ? bytes : to_end;
}

void fgv_producer_init(struct fgv_producer *producer, uint8_t *ring, uint32_t ring_bytes, uint64_t start,
                       uint64_t commit_key, uint32_t wake)
{
    struct fgv_ring_control *control = (struct fgv_ring_control *)ring;
    producer->control = control;
    producer->data = ring + sizeof(*control);
    producer->mask = (uint64_t)ring_bytes - 1;
    producer->commit_key = commit_key;
    producer->wake = wake;
    producer->bell = NULL;
    producer->keep_waiting = NULL;
    producer->keep_waiting_context = NULL;
    /* Relaxed: the client's state, released when it says HELLO, publishes all of this. */
    atomic_store_explicit(&producer->head_seen, start, memory_order_relaxed);
    atomic_store_explicit(&control->tail, start, memory_order_relaxed);
    atomic_store_explicit(&control->head, start, memory_order_relaxed);
    atomic_store_explicit(&control->parked, 0, memory_order_relaxed);
}

/* True when a record of `bytes`, or the pad before it, has room now; false when keep_waiting gave up. */
static bool wait_for_room(struct fgv_producer *producer, uint64_t bytes)
{
    struct fgv_patience patience = {.keep_waiting = producer->keep_waiting, .context = producer->keep_waiting_context};
    uint64_t begun_ns = 0;
    uint64_t nap_ns = FGV_NAP_MIN_NS;
    for (uint32_t nr_pauses = 0;; nr_pauses++) {
        /* Acquire: pairs with the release in publish_head. The tail is read after the head, an older one could lie
         * behind it. */
        uint64_t head = atomic_load_explicit(&producer->control->head, memory_order_acquire);
        uint64_t tail = atomic_load_explicit(&producer->control->tail, memory_order_relaxed);
        /* Release: hands the acquired head on to the threads that read head_seen. It may step back, which only costs
         * them a look. */
        atomic_store_explicit(&producer->head_seen, head, memory_order_release);
        if (tail + claim_bytes(tail, producer->mask, bytes) - head <= producer->mask + 1) {
            return true;
        }
        fgv_cpu_pause();
        if ((nr_pauses & (FGV_PAUSES_PER_CLOCK - 1)) != 0) {
            continue;
        }
        uint64_t now_ns = fgv_now_ns();
        if (begun_ns == 0) {
            begun_ns = now_ns;
        }
        if (now_ns - begun_ns < FGV_FULL_SPIN_NS) {
            continue;
        }
        if (!fgv_patience_lasts(&patience, now_ns)) {
            return false;
        }
        fgv_nap(nap_ns);
        nap_ns = fgv_nap_longer(nap_ns);
        nr_pauses = UINT32_MAX; /* after a nap, look once and read the clock again */
    }
}

static inline struct fgv_record *fill_header(struct fgv_producer *producer, uint64_t position, uint32_t payload_bytes,
                                             uint16_t kind)
{
    struct fgv_record *record = (struct fgv_record *)(producer->data + (position & producer->mask));
    record->payload_bytes = payload_bytes;
    record->kind = kind;
    record->response = FGV_NO_RESPONSE;
    return record;
}

struct fgv_record *fgv_producer_reserve(struct fgv_producer *producer, uint32_t payload_bytes, uint64_t *position)
{
    if (payload_bytes > FGV_RECORD_MAX_BYTES - sizeof(struct fgv_record)) {
        return NULL;
    }
    const uint64_t mask = producer->mask;
    const uint64_t bytes = record_bytes(payload_bytes);
    uint64_t tail = atomic_load_explicit(&producer->control->tail, memory_order_relaxed);
    for (;;) {
        uint64_t claim = claim_bytes(tail, mask, bytes);
        /* Acquire: pairs with the release in wait_for_room, and through it with the consumer's. */
        uint64_t head = atomic_load_explicit(&producer->head_seen, memory_order_acquire);
        if (__builtin_expect(tail + claim - head > mask + 1, 0)) {
            if (!wait_for_room(producer, bytes)) {
                return NULL;
            }
            tail = atomic_load_explicit(&producer->control->tail, memory_order_relaxed);
            continue;
        }
        /* A failure has loaded the new tail. */
        if (!atomic_compare_exchange_weak_explicit(&producer->control->tail, &tail, tail + claim, memory_order_seq_cst,
                                                   memory_order_relaxed)) {
            continue;
        }
        if (__builtin_expect(claim == bytes, 1)) {
            *position = tail;
            prefetch_for_write(producer->data + ((tail + FGV_PREFETCH_BYTES) & mask));
            return fill_header(producer, tail, payload_bytes, FGV_RECORD_MESSAGE);
        }
        uint32_t pad_bytes = (uint32_t)(claim - sizeof(struct fgv_record));
        fgv_producer_commit(producer, fill_header(producer, tail, pad_bytes, FGV_RECORD_PAD), tail);
        tail = atomic_load_explicit(&producer->control->tail, memory_order_relaxed);
    }
}

/* Of several producers that see a parked consumer one makes the system call. */
static __attribute__((noinline)) void kick(struct fgv_producer *producer)
{
    /* Relaxed: the system calls order by themselves, and the consumer, once awake, finds the records by their commit
     * words. */
    if (atomic_exchange_explicit(&producer->control->parked, 0, memory_order_relaxed) == 0) {
        return;
    }
    if (producer->wake == FGV_WAKE_FUTEX) {
        fgv_futex_wake(&producer->control->parked);
    } else if (producer->bell) {
        fgv_guest_bell_ring(producer->bell, producer->bell->worker_peer);
    }
}

void fgv_producer_commit(struct fgv_producer *producer, struct fgv_record *record, uint64_t position)
{
    const uint64_t commit = position ^ producer->commit_key;
    if (producer->wake == FGV_WAKE_POLL) {
        atomic_store_explicit(&record->commit, commit, memory_order_release); /* pairs with the acquire in peek */
        return;
    }
    /* Sequentially consistent, both: pair with park_prepare, which writes `parked` and then reads the commit word. */
    atomic_exchange_explicit(&record->commit, commit, memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&producer->control->parked, memory_order_seq_cst) != 0, 0)) {
        kick(producer);
    }
}

void fgv_consumer_init(struct fgv_consumer *consumer, uint8_t *ring, uint32_t ring_bytes, uint64_t commit_key,
                       uint32_t wake)
{
    struct fgv_ring_control *control = (struct fgv_ring_control *)ring;
    /* Relaxed: the caller acquired the client's state. Whatever the guest put here, it becomes an offset only through
     * the mask. */
    uint64_t head = atomic_load_explicit(&control->head, memory_order_relaxed) & ~(uint64_t)(FGV_RECORD_ALIGN - 1);
    *consumer = (struct fgv_consumer){
        .control = control,
        .data = ring + sizeof(*control),
        .mask = (uint64_t)ring_bytes - 1,
        .commit_key = commit_key,
        .head = head,
        .released = head,
        .wake = wake,
    };
}

static inline struct fgv_record *record_at_head(const struct fgv_consumer *consumer)
{
    return (struct fgv_record *)(consumer->data + (consumer->head & consumer->mask));
}

/* Release: pairs with wait_for_room. All reads of the records before `head` are done. */
static inline void publish_head(struct fgv_consumer *consumer)
{
    atomic_store_explicit(&consumer->control->head, consumer->head, memory_order_release);
    consumer->released = consumer->head;
}

enum fgv_consume_status fgv_consumer_peek(struct fgv_consumer *consumer, struct fgv_consumed *out)
{
    for (;;) {
        struct fgv_record *record = record_at_head(consumer);
        const uint64_t expected = consumer->head ^ consumer->commit_key;
        /* Acquire: pairs with the producer's commit. */
        if (atomic_load_explicit(&record->commit, memory_order_acquire) != expected) {
            if (consumer->released != consumer->head) {
                publish_head(consumer);
            }
            return FGV_CONSUME_EMPTY;
        }
        /* Each read once, into private memory: the guest may rewrite them at any time. Relaxed: ordered by the commit
         * word. */
        const uint32_t payload_bytes = __atomic_load_n(&record->payload_bytes, __ATOMIC_RELAXED);
        const uint16_t kind = __atomic_load_n(&record->kind, __ATOMIC_RELAXED);
        const uint16_t response = __atomic_load_n(&record->response, __ATOMIC_RELAXED);
        const uint64_t offset = consumer->head & consumer->mask;
        const uint64_t to_end = consumer->mask + 1 - offset;
        const uint64_t bytes = record_bytes(payload_bytes);
        if (__builtin_expect(kind == FGV_RECORD_MESSAGE, 1)) {
            if (bytes > to_end || bytes > FGV_RECORD_MAX_BYTES) {
                return FGV_CONSUME_HOSTILE;
            }
            consumer->peeked_bytes = bytes;
            *out = (struct fgv_consumed){
                .payload = (const uint8_t *)(record + 1), .payload_bytes = payload_bytes, .response = response};
            return FGV_CONSUME_RECORD;
        }
        /* A pad ends where the ring ends and is never needed at its start: two in a row cannot be, and nobody is kept
         * in this loop. */
        if (kind != FGV_RECORD_PAD || bytes != to_end || offset == 0) {
            return FGV_CONSUME_HOSTILE;
        }
        consumer->head += bytes;
    }
}

bool fgv_consumer_has(const struct fgv_consumer *consumer)
{
    /* Relaxed: peek looks again. */
    return atomic_load_explicit(&record_at_head(consumer)->commit, memory_order_relaxed) ==
           (consumer->head ^ consumer->commit_key);
}

void fgv_consumer_release(struct fgv_consumer *consumer)
{
    if (consumer->peeked_bytes == 0) {
        return;
    }
    consumer->head += consumer->peeked_bytes;
    consumer->nr_bytes += consumer->peeked_bytes;
    consumer->nr_records++;
    consumer->peeked_bytes = 0;
    /* In steps: producers look at this cache line only when the head they know leaves no room. */
    if (consumer->head - consumer->released > consumer->mask >> 3) {
        publish_head(consumer);
    }
}

bool fgv_consumer_park_prepare(struct fgv_consumer *consumer)
{
    if (consumer->released != consumer->head) {
        publish_head(consumer);
    }
    /* Sequentially consistent, both: pair with fgv_producer_commit, which writes the commit word and then reads
     * `parked`. */
    atomic_exchange_explicit(&consumer->control->parked, 1, memory_order_seq_cst);
    uint64_t commit = atomic_load_explicit(&record_at_head(consumer)->commit, memory_order_seq_cst);
    if (commit != (consumer->head ^ consumer->commit_key)) {
        return true;
    }
    fgv_consumer_park_cancel(consumer);
    return false;
}

void fgv_consumer_park_sleep(struct fgv_consumer *consumer, uint64_t timeout_ns)
{
    consumer->nr_parks++;
    if (consumer->wake == FGV_WAKE_FUTEX) {
        fgv_futex_wait(&consumer->control->parked, 1, timeout_ns);
    } else if (consumer->wake == FGV_WAKE_BELL && consumer->bell) {
        fgv_host_bell_wait(consumer->bell, timeout_ns);
    } else {
        fgv_nap(timeout_ns);
    }
    fgv_consumer_park_cancel(consumer);
}

void fgv_consumer_park_cancel(struct fgv_consumer *consumer)
{
    /* Relaxed: a producer that still sees 1 makes one needless system call. */
    atomic_store_explicit(&consumer->control->parked, 0, memory_order_relaxed);
}
