/*
 * Several producer threads, one consumer, records of all lengths through a small ring; the consumer checks everything
 * there is to check: content, each thread's own order, and the order between threads.
 *
 * Order between threads: a producer counts what it committed in a word of its own (release). Before it reserves, it
 * reads the words of all (acquire) and writes what it saw into the record. What it saw happened before, so the consumer
 * must have had those records already.
 *
 * Usage: ring_stress threads|processes futex|poll NR_THREADS NR_RECORDS_EACH START
 * Prints "records=N bytes=N parks=N" and exits 0, or says what was wrong and exits 1.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ivshmem/ring.h"

#define MAX_THREADS 8u
#define RING_BYTES  FGV_RING_MIN_BYTES

struct message {
    uint64_t nr_before[MAX_THREADS]; /* records of each thread that this one knew of */
    uint64_t sequence;
    uint32_t thread;
    uint32_t nr_words; /* that follow */
};

static const uint64_t key = UINT64_C(0xd1b54a32d192ed03);
static uint32_t nr_threads;
static uint64_t nr_each;
static struct fgv_producer producer;
static struct {
    _Alignas(64) _Atomic uint64_t nr;
} committed[MAX_THREADS];

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t seed_of(uint32_t thread, uint64_t sequence)
{
    return mix(sequence * MAX_THREADS + thread + 1);
}

/* Mostly short, some of a few KiB, now and then the longest there may be. */
static uint32_t nr_words_of(uint64_t seed)
{
    uint32_t max = (FGV_RECORD_MAX_BYTES - sizeof(struct fgv_record) - sizeof(struct message)) / 8;
    if (seed % 4096 == 0) {
        return max;
    }
    return (uint32_t)((seed >> 20) % (seed % 64 == 0 ? 1024 : 16));
}

static void *produce(void *argument)
{
    uint32_t thread = (uint32_t)(uintptr_t)argument;
    for (uint64_t sequence = 0; sequence < nr_each; sequence++) {
        uint64_t seed = seed_of(thread, sequence);
        struct message message = {.sequence = sequence, .thread = thread, .nr_words = nr_words_of(seed)};
        for (uint32_t i = 0; i < nr_threads; i++) {
            message.nr_before[i] = atomic_load_explicit(&committed[i].nr, memory_order_acquire);
        }
        uint64_t position;
        struct fgv_record *record =
            fgv_producer_reserve(&producer, (uint32_t)sizeof(message) + message.nr_words * 8, &position);
        if (!record) {
            abort();
        }
        record->response = (uint16_t)seed;
        memcpy(fgv_record_payload(record), &message, sizeof(message));
        for (uint32_t i = 0; i < message.nr_words; i++) {
            uint64_t word = seed + i;
            memcpy(fgv_record_payload(record) + sizeof(message) + i * 8, &word, 8);
        }
        fgv_producer_commit(&producer, record, position);
        atomic_store_explicit(&committed[thread].nr, sequence + 1, memory_order_release);
    }
    return NULL;
}

static void fail(const char *what, const struct message *message)
{
    fprintf(stderr, "%s: thread %" PRIu32 " record %" PRIu64 "\n", what, message->thread, message->sequence);
    exit(1);
}

static void check(const struct fgv_consumed *record, uint64_t *nr_seen)
{
    struct message message;
    memcpy(&message, record->payload, sizeof(message));
    if (message.thread >= nr_threads) {
        fail("no such thread", &message);
    }
    if (message.sequence != nr_seen[message.thread]) {
        fail("out of its thread's order", &message);
    }
    uint64_t seed = seed_of(message.thread, message.sequence);
    if (message.nr_words != nr_words_of(seed) || record->payload_bytes != sizeof(message) + message.nr_words * 8 ||
        record->response != (uint16_t)seed) {
        fail("length or response", &message);
    }
    for (uint32_t i = 0; i < nr_threads; i++) {
        if (nr_seen[i] < message.nr_before[i]) {
            fail("came before something that happened before it", &message);
        }
    }
    for (uint32_t i = 0; i < message.nr_words; i++) {
        uint64_t word;
        memcpy(&word, record->payload + sizeof(message) + i * 8, 8);
        if (word != seed + i) {
            fail("content", &message);
        }
    }
    nr_seen[message.thread]++;
}

static void consume(struct fgv_consumer *consumer)
{
    uint64_t nr_seen[MAX_THREADS] = {0};
    uint32_t nr_empty = 0;
    while (consumer->nr_records < nr_threads * nr_each) {
        struct fgv_consumed record;
        switch (fgv_consumer_peek(consumer, &record)) {
        case FGV_CONSUME_RECORD:
            check(&record, nr_seen);
            fgv_consumer_release(consumer);
            nr_empty = 0;
            break;
        case FGV_CONSUME_EMPTY:
            /* Soon to bed: parking is what is tested. A lost wake-up would cost ten minutes, which no test run
             * survives. */
            if (++nr_empty > 20 && fgv_consumer_park_prepare(consumer)) {
                fgv_consumer_park_sleep(consumer, consumer->wake == FGV_WAKE_FUTEX ? UINT64_C(600000000000) : 20000);
            }
            break;
        default:
            fprintf(stderr, "hostile record\n");
            exit(1);
        }
    }
}

static void run_producers(bool is_joining)
{
    pthread_t threads[MAX_THREADS];
    for (uint32_t i = 0; i < nr_threads; i++) {
        if (pthread_create(&threads[i], NULL, produce, (void *)(uintptr_t)i) != 0) {
            abort();
        }
        if (!is_joining) {
            pthread_detach(threads[i]);
        }
    }
    for (uint32_t i = 0; is_joining && i < nr_threads; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        return 2;
    }
    uint32_t wake = strcmp(argv[2], "poll") == 0 ? FGV_WAKE_POLL : FGV_WAKE_FUTEX;
    nr_threads = (uint32_t)strtoul(argv[3], NULL, 0);
    nr_each = strtoull(argv[4], NULL, 0);
    uint64_t start = strtoull(argv[5], NULL, 0);
    size_t bytes = sizeof(struct fgv_ring_control) + RING_BYTES;
    uint8_t *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED || nr_threads == 0 || nr_threads > MAX_THREADS) {
        return 2;
    }
    fgv_producer_init(&producer, ring, RING_BYTES, start, key, wake);
    struct fgv_consumer consumer;
    fgv_consumer_init(&consumer, ring, RING_BYTES, key, wake);
    int status = 0;
    if (strcmp(argv[1], "threads") == 0) {
        run_producers(false);
        consume(&consumer);
    } else {
        pid_t child = fork();
        if (child == 0) {
            run_producers(true);
            _exit(0);
        }
        consume(&consumer);
        waitpid(child, &status, 0);
    }
    struct fgv_consumed record;
    if (fgv_consumer_peek(&consumer, &record) != FGV_CONSUME_EMPTY || status != 0) {
        return 1;
    }
    printf("records=%" PRIu64 " bytes=%" PRIu64 " parks=%" PRIu64 "\n", consumer.nr_records, consumer.nr_bytes,
           consumer.nr_parks);
    return 0;
}
