/*
 * What the ring costs, in nanoseconds, as one JSON object:
 *
 * - call_ns: reserve + commit + peek + release in one thread. Instructions only, no cache line travels.
 * - one_way_ns: per record, a producer process and a consumer process, both running flat out.
 * - enqueue_ns: reserve + commit alone, in bursts, while the other process consumes. What an async call pays.
 * - round_trip_ns: a record there, a response back, both sides spinning.
 *
 * Usage: ring_bench [PAYLOAD_BYTES] [NR_RECORDS]. Wrong when: the machine has a single core, or its two are
 * hyperthreads of one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ivshmem/response.h"
#include "ivshmem/ring.h"

#define RING_BYTES (1u << 20)
#define BURST      64u

struct shared {
    _Alignas(4096) uint8_t ring[sizeof(struct fgv_ring_control) + RING_BYTES];
    _Alignas(4096) struct fgv_response response;
};

static const uint64_t key = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static void produce(struct fgv_producer *producer, uint32_t payload_bytes, uint64_t value, uint16_t response)
{
    uint64_t position;
    struct fgv_record *record = fgv_producer_reserve(producer, payload_bytes, &position);
    if (!record) {
        abort();
    }
    memset(fgv_record_payload(record), (int)value, payload_bytes);
    record->response = response;
    fgv_producer_commit(producer, record, position);
}

/* Consumes `nr` records, answering those that want it. */
static void consume(struct fgv_consumer *consumer, struct shared *shared, uint32_t wake, uint64_t nr)
{
    const struct fgv_region region = {.wake = wake};
    struct fgv_consumed record;
    uint8_t copy[FGV_RECORD_MAX_BYTES];
    for (uint64_t i = 0; i < nr;) {
        if (fgv_consumer_peek(consumer, &record) != FGV_CONSUME_RECORD) {
            __builtin_ia32_pause();
            continue;
        }
        memcpy(copy, record.payload, record.payload_bytes);
        __asm__ volatile("" : : "r"(copy) : "memory");
        if (record.response != FGV_NO_RESPONSE) {
            fgv_slot_complete(&shared->response.state, &region);
        }
        fgv_consumer_release(consumer);
        i++;
    }
}

static double measure_call(struct shared *shared, uint32_t wake, uint32_t payload_bytes, uint64_t nr)
{
    struct fgv_producer producer;
    struct fgv_consumer consumer;
    fgv_producer_init(&producer, shared->ring, RING_BYTES, 0, key, wake);
    fgv_consumer_init(&consumer, shared->ring, RING_BYTES, key, wake);
    uint64_t begun = now_ns();
    for (uint64_t i = 0; i < nr; i++) {
        produce(&producer, payload_bytes, i, FGV_NO_RESPONSE);
        consume(&consumer, shared, wake, 1);
    }
    return (double)(now_ns() - begun) / (double)nr;
}

enum mode { ONE_WAY, BURSTS, ROUND_TRIP };

static double run_producer(struct fgv_producer *producer, struct shared *shared, enum mode mode, uint32_t payload_bytes,
                           uint64_t nr)
{
    const struct fgv_region region = {.wake = producer->wake};
    const struct fgv_spin spin = {.most_ns = UINT64_C(1000000000)};
    uint64_t spent = 0;
    uint64_t begun = now_ns();
    for (uint64_t i = 0; i < nr; i++) {
        bool is_waiting = mode == ROUND_TRIP || (mode == BURSTS && i % BURST == BURST - 1);
        if (mode == BURSTS && i % BURST == 0) {
            begun = now_ns();
        }
        if (is_waiting) {
            atomic_store_explicit(&shared->response.state, FGV_SLOT_WAITING, memory_order_relaxed);
        }
        produce(producer, payload_bytes, i, is_waiting ? 0 : FGV_NO_RESPONSE);
        if (mode == BURSTS && is_waiting) {
            spent += now_ns() - begun;
        }
        if (is_waiting) {
            fgv_slot_wait(&shared->response.state, &region, &spin, NULL, NULL);
        }
    }
    return (double)(mode == BURSTS ? spent : now_ns() - begun) / (double)nr;
}

static double measure_two(struct shared *shared, uint32_t wake, enum mode mode, uint32_t payload_bytes, uint64_t nr)
{
    struct fgv_producer producer;
    memset(shared, 0, sizeof(*shared));
    fgv_producer_init(&producer, shared->ring, RING_BYTES, 0, key, wake);
    pid_t child = fork();
    if (child == 0) {
        struct fgv_consumer consumer;
        pin(1);
        fgv_consumer_init(&consumer, shared->ring, RING_BYTES, key, wake);
        consume(&consumer, shared, wake, nr);
        _exit(0);
    }
    pin(0);
    double ns = run_producer(&producer, shared, mode, payload_bytes, nr);
    waitpid(child, NULL, 0);
    return ns;
}

int main(int argc, char **argv)
{
    uint32_t payload_bytes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 48;
    uint64_t nr = argc > 2 ? strtoull(argv[2], NULL, 10) : 2000000;
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || payload_bytes > FGV_RECORD_MAX_BYTES - sizeof(struct fgv_record)) {
        return 2;
    }
    static const struct {
        const char *name;
        uint32_t wake;
    } kinds[] = {{"futex", FGV_WAKE_FUTEX}, {"poll", FGV_WAKE_POLL}};
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("{\"payload_bytes\": %u", payload_bytes);
    for (size_t i = 0; i < 2; i++) {
        uint32_t wake = kinds[i].wake;
        printf(", \"%s\": {\"call_ns\": %.1f", kinds[i].name, measure_call(shared, wake, payload_bytes, nr));
        printf(", \"one_way_ns\": %.1f", measure_two(shared, wake, ONE_WAY, payload_bytes, nr));
        printf(", \"enqueue_ns\": %.1f", measure_two(shared, wake, BURSTS, payload_bytes, nr));
        printf(", \"round_trip_ns\": %.1f}", measure_two(shared, wake, ROUND_TRIP, payload_bytes, nr / 4));
    }
    printf("}\n");
    return 0;
}
