/*
 * Events that programs of one region share. event.h tells what they are.
 *
 * Nothing here waits for another program, which may die anywhere in between: who meets a change by another one takes
 * the next event or word, or leaves it. All orderings are sequentially consistent, since none of this is frequent.
 */
#include "ivshmem/event.h"

#define NUMBER_SHIFT 8u
#define LOW_MASK     UINT64_C(0xff)
#define NR_TRIES     16u

static uint64_t holder(uint32_t client_index)
{
    return UINT64_C(1) << client_index;
}

static uint64_t claim_of(uint64_t number, uint32_t client_index)
{
    return number << NUMBER_SHIFT | (client_index + 1);
}

/* As devices compare. */
static bool has_reached(const struct fgv_event_word *word, uint64_t number)
{
    return (int64_t)(atomic_load(&word->done) - number) >= 0;
}

/* A device may still write here what was recorded in an earlier life. */
static bool is_outstanding(const struct fgv_event *event)
{
    for (uint32_t i = 0; i < FGV_NR_EVENT_WORDS; i++) {
        if (!has_reached(&event->words[i], atomic_load(&event->words[i].claim) >> NUMBER_SHIFT)) {
            return true;
        }
    }
    return false;
}

/* Its maker left, and one other client has it, to which it is an event like any other. */
static bool is_abandoned(uint64_t key, uint64_t holders)
{
    const uint64_t maker = (key & LOW_MASK) - 1;
    return key != 0 && holders != 0 && (holders & (holders - 1)) == 0 && maker < FGV_NR_CLIENTS &&
           holders != holder((uint32_t)maker);
}

static bool begin_life(struct fgv_event *event, uint64_t holders, uint32_t client_index, uint64_t key)
{
    if (!atomic_compare_exchange_strong(&event->holders, &holders, holder(client_index))) {
        return false;
    }
    atomic_store(&event->last, 0);
    atomic_store(&event->key, key);
    return true;
}

static bool take_free(struct fgv_event *event, uint32_t client_index, uint64_t key)
{
    return atomic_load(&event->holders) == 0 && !is_outstanding(event) && begin_life(event, 0, client_index, key);
}

/* Without a key meanwhile, so that one takes it, and nobody joins who has the old one. */
static bool take_abandoned(struct fgv_event *event, uint32_t client_index, uint64_t key)
{
    uint64_t before = atomic_load(&event->key);
    const uint64_t holders = atomic_load(&event->holders);
    if (!is_abandoned(before, holders) || is_outstanding(event) ||
        !atomic_compare_exchange_strong(&event->key, &before, 0)) {
        return false;
    }
    if (!begin_life(event, holders, client_index, key)) {
        atomic_store(&event->key, before);
        return false;
    }
    return true;
}

/* Before anybody has the event, so that the host finds all that are somebody's. */
static void raise_used(const struct fgv_region *region, uint32_t nr)
{
    uint32_t used = atomic_load(&region->header->nr_events);
    while (used < nr && !atomic_compare_exchange_weak(&region->header->nr_events, &used, nr)) {
    }
}

uint32_t fgv_event_take(const struct fgv_region *region, uint32_t client_index, uint64_t *key)
{
    bool is_any = false;
    *key = *key << NUMBER_SHIFT | (client_index + 1);
    for (uint32_t i = 0; i < FGV_NR_EVENTS; i++) {
        if (atomic_load(&region->events[i].holders) == 0) {
            raise_used(region, i + 1);
            if (take_free(&region->events[i], client_index, *key)) {
                return i;
            }
            is_any = true;
        }
    }
    for (uint32_t i = 0; i < FGV_NR_EVENTS; i++) {
        struct fgv_event *event = &region->events[i];
        if (take_abandoned(event, client_index, *key)) {
            return i;
        }
        is_any |= is_abandoned(atomic_load(&event->key), atomic_load(&event->holders));
    }
    return is_any ? FGV_EVENT_LATER : FGV_EVENT_NONE;
}

/* The key of one that nobody holds is gone before somebody takes it: a key of its earlier life then opens nothing. */
static void give_up(struct fgv_event *event, uint32_t client_index)
{
    uint64_t key = atomic_load(&event->key);
    if (atomic_fetch_and(&event->holders, ~holder(client_index)) == holder(client_index)) {
        atomic_compare_exchange_strong(&event->key, &key, 0);
    }
}

bool fgv_event_join(const struct fgv_region *region, uint32_t client_index, uint32_t index, uint64_t key)
{
    if (index >= FGV_NR_EVENTS || key == 0) {
        return false;
    }
    struct fgv_event *event = &region->events[index];
    uint64_t holders = atomic_load(&event->holders);
    const bool is_held = (holders & holder(client_index)) != 0;
    do {
        if (holders == 0 || atomic_load(&event->key) != key) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&event->holders, &holders, holders | holder(client_index)));
    if (atomic_load(&event->key) != key) { /* it went, and somebody took it, meanwhile */
        if (!is_held) {
            give_up(event, client_index);
        }
        return false;
    }
    return true;
}

void fgv_event_leave(const struct fgv_region *region, uint32_t client_index, uint32_t index)
{
    if (index < FGV_NR_EVENTS) {
        give_up(&region->events[index], client_index);
    }
}

static bool claim_word(struct fgv_event_word *word, uint64_t seen, uint64_t wanted)
{
    return atomic_compare_exchange_strong(&word->claim, &seen, wanted);
}

/* For another stream: it is over there, or what is outstanding is this client's. A later number there is never gone
 * back behind: who was given it was quicker. */
static bool may_claim(const struct fgv_event_word *word, uint64_t claim, uint64_t wanted, bool is_over)
{
    return claim < wanted &&
           (is_over ? has_reached(word, claim >> NUMBER_SHIFT) : (claim & LOW_MASK) == (wanted & LOW_MASK));
}

static bool claim_with(struct fgv_event *event, uint64_t wanted, const uint64_t own[FGV_NR_EVENT_WORDS],
                       struct fgv_event_place *place, uint64_t *after)
{
    const uint32_t client_index = (uint32_t)(wanted & LOW_MASK) - 1;
    *after = 0;
    for (uint32_t i = 0; i < FGV_NR_EVENT_WORDS; i++) {
        *place = (struct fgv_event_place){.number = wanted >> NUMBER_SHIFT, .word = i};
        if (own[i] != 0 && claim_word(&event->words[i], claim_of(own[i], client_index), wanted)) {
            return true;
        }
    }
    for (uint32_t i = 0; i < 2 * FGV_NR_EVENT_WORDS; i++) {
        const bool is_over = i < FGV_NR_EVENT_WORDS;
        struct fgv_event_word *word = &event->words[i % FGV_NR_EVENT_WORDS];
        const uint64_t claim = atomic_load(&word->claim);
        place->word = i % FGV_NR_EVENT_WORDS;
        if (may_claim(word, claim, wanted, is_over) && claim_word(word, claim, wanted)) {
            *after = is_over ? 0 : claim >> NUMBER_SHIFT;
            return true;
        }
    }
    return false;
}

bool fgv_event_claim(struct fgv_event *event, uint32_t client_index, const uint64_t own[FGV_NR_EVENT_WORDS],
                     struct fgv_event_place *place, uint64_t *after)
{
    for (uint32_t i = 0; i < NR_TRIES; i++) { /* others may have been quicker each time */
        const uint64_t number = atomic_fetch_add(&event->issued, 1) + 1;
        if (claim_with(event, claim_of(number, client_index), own, place, after)) {
            return true;
        }
    }
    return false;
}

void fgv_event_publish(struct fgv_event *event, const struct fgv_event_place *place)
{
    const uint64_t wanted = place->number << NUMBER_SHIFT | place->word;
    uint64_t last = atomic_load(&event->last);
    while (last < wanted && !atomic_compare_exchange_weak(&event->last, &last, wanted)) {
    }
}

struct fgv_event_place fgv_event_last(const struct fgv_event *event)
{
    const uint64_t last = atomic_load(&event->last);
    return (struct fgv_event_place){.number = last >> NUMBER_SHIFT,
                                    .word = (uint32_t)(last & LOW_MASK) % FGV_NR_EVENT_WORDS};
}

bool fgv_event_is_done(const struct fgv_event *event, const struct fgv_event_place *place)
{
    return has_reached(&event->words[place->word], place->number);
}

/* Once: where the word changes meanwhile, somebody else writes there. */
static void finish_word(struct fgv_event_word *word, uint64_t number)
{
    uint64_t done = atomic_load(&word->done);
    if ((int64_t)(done - number) < 0) {
        atomic_compare_exchange_strong(&word->done, &done, number);
    }
}

void fgv_event_finish(struct fgv_event *event, const struct fgv_event_place *place)
{
    finish_word(&event->words[place->word], place->number);
}

static uint32_t nr_used(const struct fgv_region *region)
{
    const uint32_t nr = atomic_load(&region->header->nr_events);
    return nr < FGV_NR_EVENTS ? nr : FGV_NR_EVENTS;
}

static void finish_of(struct fgv_event *event, uint32_t client_index)
{
    for (uint32_t i = 0; i < FGV_NR_EVENT_WORDS; i++) {
        const uint64_t claim = atomic_load(&event->words[i].claim);
        if ((claim & LOW_MASK) == client_index + 1) {
            finish_word(&event->words[i], claim >> NUMBER_SHIFT);
        }
    }
}

void fgv_events_finish(const struct fgv_region *region, uint32_t client_index)
{
    const uint32_t nr = nr_used(region);
    for (uint32_t i = 0; i < nr; i++) {
        finish_of(&region->events[i], client_index);
    }
}

void fgv_events_reclaim(const struct fgv_region *region, uint32_t client_index)
{
    const uint32_t nr = client_index < FGV_NR_CLIENTS ? nr_used(region) : 0;
    for (uint32_t i = 0; i < nr; i++) {
        finish_of(&region->events[i], client_index);
        if ((atomic_load(&region->events[i].holders) & holder(client_index)) != 0) {
            give_up(&region->events[i], client_index);
        }
    }
}
