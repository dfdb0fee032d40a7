/*
 * Threads that are clients of one region make, open, record, leave and forget events, and die, all at once. Most of the
 * table belongs to somebody else, so that there are never enough events.
 *
 * Each client has streams, which get to their records in order and late, also when the event is destroyed. Checked is
 * what devices rely on: no word goes back, whoever writes there. A client that dies writes nothing more; then nothing
 * of it is outstanding and nothing is held.
 *
 * Usage: event_stress NR_THREADS NR_STEPS_EACH
 * Prints "taken=N joined=N refused=N records=N crowded=N none=N later=N deaths=N" and exits 0, or says what was wrong.
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

#include "ivshmem/event.h"

#define MAX_THREADS 8u
#define KEEPER      63u
#define NR_LEFT     12u /* events that are not the keeper's */
#define NR_HELD     4u
#define NR_STREAMS  4u
#define NR_WRITES   16u /* that a stream has outstanding */

struct given {
    uint32_t index;
    uint64_t key;
};

struct held {
    struct given event; /* key 0: none */
    uint64_t own[NR_STREAMS][FGV_NR_EVENT_WORDS];
};

struct write {
    struct fgv_event *event;
    struct fgv_event_place place;
    uint64_t after;
};

struct stream {
    struct write writes[NR_WRITES];
    uint32_t first, nr;
};

struct client {
    pthread_t thread;
    uint32_t index;
    uint64_t random;
    struct held held[NR_HELD];
    struct stream streams[NR_STREAMS];
    uint64_t nr_taken, nr_joined, nr_refused, nr_records, nr_crowded, nr_none, nr_later, nr_deaths;
};

static struct fgv_region region;
static uint64_t nr_steps;
static uint32_t nr_threads;
static struct client clients[MAX_THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct given posted[MAX_THREADS]; /* a handle of each client */

static uint64_t draw(struct client *client)
{
    client->random ^= client->random << 13;
    client->random ^= client->random >> 7;
    client->random ^= client->random << 17;
    return client->random;
}

static void require(bool is_true, const char *what)
{
    if (!is_true) {
        printf("wrong: %s\n", what);
        exit(1);
    }
}

static void post(uint32_t index, struct given event)
{
    pthread_mutex_lock(&lock);
    posted[index] = event;
    pthread_mutex_unlock(&lock);
}

static struct given posted_by(uint32_t index)
{
    pthread_mutex_lock(&lock);
    const struct given event = posted[index];
    pthread_mutex_unlock(&lock);
    return event;
}

static bool has_row(const struct held *held)
{
    return held->event.key != 0 && atomic_load(&region.events[held->event.index].key) == held->event.key;
}

static bool holds_another(const struct client *client, const struct held *held)
{
    for (uint32_t i = 0; i < NR_HELD; i++) {
        if (&client->held[i] != held && client->held[i].event.key == held->event.key) {
            return true;
        }
    }
    return false;
}

static void leave(struct client *client, struct held *held)
{
    if (has_row(held) && !holds_another(client, held)) {
        fgv_event_leave(&region, client->index, held->event.index);
    }
    memset(held, 0, sizeof(*held));
}

static void take(struct client *client, struct held *held)
{
    uint64_t key = draw(client);
    const uint32_t index = fgv_event_take(&region, client->index, &key);
    client->nr_none += index == FGV_EVENT_NONE;
    client->nr_later += index == FGV_EVENT_LATER;
    if (index < FGV_NR_EVENTS) {
        const struct fgv_event *event = &region.events[index];
        require(atomic_load(&event->key) == key, "an event of another key");
        require((atomic_load(&event->holders) >> client->index & 1) != 0, "an event that is not held");
        held->event = (struct given){index, key};
        post(client->index, held->event);
        client->nr_taken++;
    }
}

static void join(struct client *client, struct held *held)
{
    const struct given event = posted_by((uint32_t)draw(client) % nr_threads);
    if (event.key != 0 && fgv_event_join(&region, client->index, event.index, event.key)) {
        held->event = event;
        client->nr_joined++;
    } else {
        client->nr_refused++;
    }
}

/* As a device does it: in order, and without a look, but for what it waits for. */
static void go_on(struct stream *stream)
{
    const struct write *write = &stream->writes[stream->first % NR_WRITES];
    if (stream->nr == 0) {
        return;
    }
    struct fgv_event_word *word = &write->event->words[write->place.word];
    const uint64_t done = atomic_load(&word->done);
    if (write->after != 0 && (int64_t)(done - write->after) < 0) {
        return;
    }
    require((int64_t)(done - write->place.number) < 0, "a word that goes back");
    atomic_store(&word->done, write->place.number);
    stream->first++;
    stream->nr--;
}

static void record(struct client *client, struct held *held, uint32_t number)
{
    struct stream *stream = &client->streams[number];
    struct write write;
    if (!has_row(held) || stream->nr == NR_WRITES) {
        return;
    }
    write.event = &region.events[held->event.index];
    if (!fgv_event_claim(write.event, client->index, held->own[number], &write.place, &write.after)) {
        return;
    }
    held->own[number][write.place.word] = write.place.number;
    stream->writes[(stream->first + stream->nr++) % NR_WRITES] = write;
    fgv_event_publish(write.event, &write.place);
    client->nr_records++;
    client->nr_crowded += write.after != 0;
}

static void die(struct client *client)
{
    memset(client->held, 0, sizeof(client->held));
    memset(client->streams, 0, sizeof(client->streams));
    fgv_events_reclaim(&region, client->index);
    for (uint32_t i = 0; i < FGV_NR_EVENTS; i++) {
        struct fgv_event *event = &region.events[i];
        require((atomic_load(&event->holders) >> client->index & 1) == 0, "a dead client holds an event");
        for (uint32_t word = 0; word < FGV_NR_EVENT_WORDS; word++) {
            const uint64_t claim = atomic_load(&event->words[word].claim);
            const struct fgv_event_place place = {claim >> 8, word};
            require((claim & 0xff) != client->index + 1 || fgv_event_is_done(event, &place), "a dead client owes");
        }
    }
    client->nr_deaths++;
}

static void *run(void *argument)
{
    struct client *client = argument;
    for (uint64_t step = 0; step < nr_steps; step++) {
        const uint64_t dice = draw(client);
        struct held *held = &client->held[(dice >> 8) % NR_HELD];
        const uint32_t stream = (uint32_t)(dice >> 16) % NR_STREAMS;
        if (dice % 4096 == 0) {
            die(client);
        } else if (held->event.key == 0) {
            (dice % 2 == 0 ? take : join)(client, held);
        } else if (dice % 16 == 1) {
            leave(client, held);
        } else if (dice % 2 == 0) {
            record(client, held, stream);
        } else {
            go_on(&client->streams[stream]);
        }
    }
    die(client);
    return NULL;
}

static void add(struct client *all, const struct client *one)
{
    all->nr_taken += one->nr_taken;
    all->nr_joined += one->nr_joined;
    all->nr_refused += one->nr_refused;
    all->nr_records += one->nr_records;
    all->nr_crowded += one->nr_crowded;
    all->nr_none += one->nr_none;
    all->nr_later += one->nr_later;
    all->nr_deaths += one->nr_deaths;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        return 2;
    }
    nr_threads = (uint32_t)atoi(argv[1]);
    nr_steps = strtoull(argv[2], NULL, 0);
    uint8_t *base = mmap(NULL, FGV_REGION_MIN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || nr_threads == 0 || nr_threads > MAX_THREADS ||
        !fgv_region_format(base, FGV_REGION_MIN_BYTES, 0x7ab1e, FGV_WAKE_FUTEX, "facts", 5, &region)) {
        return 2;
    }
    for (uint32_t i = 0; i < FGV_NR_EVENTS - NR_LEFT; i++) {
        uint64_t key = i + 1;
        require(fgv_event_take(&region, KEEPER, &key) == i, "the first events");
    }
    for (uint32_t i = 0; i < nr_threads; i++) {
        clients[i].index = i;
        clients[i].random = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        require(pthread_create(&clients[i].thread, NULL, run, &clients[i]) == 0, "no thread");
    }
    struct client all = {0};
    for (uint32_t i = 0; i < nr_threads; i++) {
        pthread_join(clients[i].thread, NULL);
        add(&all, &clients[i]);
    }
    printf("taken=%" PRIu64 " joined=%" PRIu64 " refused=%" PRIu64 " records=%" PRIu64 " crowded=%" PRIu64
           " none=%" PRIu64 " later=%" PRIu64 " deaths=%" PRIu64 "\n",
           all.nr_taken, all.nr_joined, all.nr_refused, all.nr_records, all.nr_crowded, all.nr_none, all.nr_later,
           all.nr_deaths);
    return 0;
}
