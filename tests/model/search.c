/*
 * All states that can be reached, breadth first, so that the way to a fault is a shortest one. Then, from each of them,
 * whether whoever waits can still get what it waits for by steps that are sure to come.
 *
 * Fairness: a run in which a step stays possible again and again, and never comes, is no run. So who can always still
 * be served is served at last; and who is not, in a state from which no such steps lead to its service, waits for ever.
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define NOWHERE    UINT32_MAX
#define INDEX_BITS 29u /* above it is a renaming: less than 7 */
#define INDEX_MASK ((UINT32_C(1) << INDEX_BITS) - 1u)
#define NR_FIRST   (UINT64_C(1) << 20)

/* A set of states in the order in which they were found, each with the one that it was found from. Of each there are
 * the states that its sure steps lead to, up to where those of the next one begin. */
struct states {
    struct model_key *keys;
    uint32_t *parents, *places, *sure_ends;
    uint64_t nr, nr_room, nr_places;
    uint32_t *sure;
    uint64_t nr_sure, nr_sure_room;
};

static uint64_t hash_of(struct model_key key)
{
    uint64_t hash = (key.low ^ key.low >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 29 ^ key.high) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 32;
}

/* Finds the place of a key in the table: one that has it, or the free one where it belongs. */
static uint64_t place_of(const struct states *states, struct model_key key)
{
    uint64_t place = hash_of(key) & (states->nr_places - 1u);
    while (states->places[place] != NOWHERE && (states->keys[states->places[place]].low != key.low ||
                                                states->keys[states->places[place]].high != key.high)) {
        place = (place + 1u) & (states->nr_places - 1u);
    }
    return place;
}

/* Gives a larger array, or the old one without memory. */
static void *grown(void *old, uint64_t nr, size_t size, bool *has_memory)
{
    void *made = realloc(old, nr * size);
    *has_memory = *has_memory && made;
    return made ? made : old;
}

/* False: no memory. */
static bool make_room(struct states *states)
{
    const uint64_t nr_room = states->nr_room ? states->nr_room * 2u : NR_FIRST;
    bool has_memory = true;
    states->keys = grown(states->keys, nr_room, sizeof(*states->keys), &has_memory);
    states->parents = grown(states->parents, nr_room, sizeof(*states->parents), &has_memory);
    states->sure_ends = grown(states->sure_ends, nr_room, sizeof(*states->sure_ends), &has_memory);
    states->places = grown(states->places, 2u * nr_room, sizeof(*states->places), &has_memory);
    if (!has_memory) {
        return false;
    }
    states->nr_room = nr_room;
    states->nr_places = 2u * nr_room;
    memset(states->places, 0xff, states->nr_places * sizeof(*states->places));
    for (uint64_t i = 0; i < states->nr; i++) {
        states->places[place_of(states, states->keys[i])] = (uint32_t)i;
    }
    return true;
}

/* Says where a step led: the state's key, and by which renaming it became that one. */
struct arrival {
    struct model_key key;
    uint32_t renaming;
};

/* Gives the index of a state, which may be new, and above it its renaming; NOWHERE: no memory. */
static uint32_t add(struct states *states, const struct arrival *arrival, uint32_t parent)
{
    if (states->nr == states->nr_room && !make_room(states)) {
        return NOWHERE;
    }
    const uint64_t place = place_of(states, arrival->key);
    if (states->places[place] == NOWHERE) {
        states->places[place] = (uint32_t)states->nr;
        states->keys[states->nr] = arrival->key;
        states->parents[states->nr++] = parent;
    }
    return states->places[place] | arrival->renaming << INDEX_BITS;
}

/* Finds out where all steps of one state lead, and has what will be looked at of the table brought into the cache:
 * waiting for the memory would take half of the time. */
static void arrive(const struct model_setting *setting, const struct states *states,
                   const struct model_successor *steps, uint32_t nr_steps, struct arrival *arrivals)
{
    const uint64_t mask = states->nr_places - 1u;
    for (uint32_t i = 0; i < nr_steps; i++) {
        arrivals[i].key = model_pack_unnamed(setting, &steps[i].state, &arrivals[i].renaming);
        __builtin_prefetch(&states->places[hash_of(arrivals[i].key) & mask]);
    }
    for (uint32_t i = 0; i < nr_steps; i++) {
        const uint32_t index = states->places[hash_of(arrivals[i].key) & mask];
        __builtin_prefetch(&states->keys[index == NOWHERE ? 0 : index]);
    }
}

/* False: no memory. */
static bool add_sure(struct states *states, uint32_t to)
{
    bool has_memory = states->nr_sure < UINT32_MAX;
    if (states->nr_sure == states->nr_sure_room) {
        states->nr_sure_room = states->nr_sure_room ? 2u * states->nr_sure_room : NR_FIRST;
        states->sure = grown(states->sure, states->nr_sure_room, sizeof(*states->sure), &has_memory);
    }
    if (has_memory) {
        states->sure[states->nr_sure++] = to;
    }
    return has_memory;
}

static void note_phases(const struct model_setting *setting, const struct model_state *before,
                        const struct model_successor *step, struct model_found *found)
{
    for (uint32_t worker = 0; worker < setting->nr_workers; worker++) {
        const uint8_t from = model_phase(setting, before, worker), to = model_phase(setting, &step->state, worker);
        if (from < 4 && to < 4) {
            found->phases[from][to] = 1;
        }
    }
}

/* Takes the one step from `before` that leads to a state known by `key`. */
static void retrace(const struct model_setting *setting, const struct model_state *before, struct model_key key,
                    struct model_successor *step)
{
    struct model_successor steps[MODEL_MAX_SUCCESSORS];
    const uint32_t nr_steps = model_successors(setting, before, steps);
    for (uint32_t i = 0; i < nr_steps; i++) {
        uint32_t renaming = 0;
        const struct model_key made = model_pack_unnamed(setting, &steps[i].state, &renaming);
        if (made.low == key.low && made.high == key.high) {
            *step = steps[i];
            return;
        }
    }
}

/* Writes the way from the first state to the one at `at`, by the names that all had at first. */
static void trace_to(const struct model_setting *setting, const struct states *states, uint32_t at,
                     struct model_found *found, struct model_successor *trace, uint32_t max_trace)
{
    uint32_t nr = 0;
    for (uint32_t i = at; i != 0; i = states->parents[i]) {
        nr++;
    }
    if (nr >= max_trace) {
        return;
    }
    found->nr_trace = nr;
    struct model_state before;
    model_begin(setting, &before);
    for (uint32_t step = 0; step < nr; step++) {
        uint32_t i = at;
        for (uint32_t behind = step + 1u; behind < nr; behind++) {
            i = states->parents[i];
        }
        retrace(setting, &before, states->keys[i], &trace[step]);
        before = trace[step].state;
    }
}

/* Says for which workers nothing is to be waited for in a state: a bit for each. */
static uint8_t served_in(const struct model_setting *setting, struct model_key key)
{
    const struct model_state state = model_unpack(key);
    uint8_t served = 0;
    for (uint32_t worker = 0; worker < setting->nr_workers; worker++) {
        served |= (uint8_t)((state.processes[worker].is_waiting == 0) << worker);
    }
    return served;
}

static uint8_t served_after(const struct model_setting *setting, const struct states *states, uint64_t at,
                            const uint8_t *served)
{
    uint8_t after = served[at];
    for (uint64_t i = at ? states->sure_ends[at - 1u] : 0; i < states->sure_ends[at]; i++) {
        const uint8_t there = served[states->sure[i] & INDEX_MASK];
        const struct model_names *names = &setting->renamings[states->sure[i] >> INDEX_BITS].workers;
        for (uint32_t worker = 0; worker < setting->nr_workers; worker++) {
            after |= (uint8_t)((there >> (names->numbers[worker + 1u] - 1u) & 1u) << worker);
        }
    }
    return after;
}

/* Finds the first state from which somebody is never served, or NOWHERE. Service is carried back over steps that are
 * sure to come, from the last states to the first ones, until nothing changes. */
static uint32_t find_unserved(const struct model_setting *setting, const struct states *states, uint8_t *served,
                              uint32_t *left)
{
    const uint8_t all = (uint8_t)((1u << setting->nr_workers) - 1u);
    uint64_t nr_left = 0;
    for (uint64_t i = states->nr; i-- > 0;) {
        served[i] = served_in(setting, states->keys[i]);
        if (served[i] != all) {
            left[nr_left++] = (uint32_t)i;
        }
    }
    for (bool is_changed = true; is_changed;) {
        uint64_t nr_kept = 0;
        is_changed = false;
        for (uint64_t i = 0; i < nr_left; i++) {
            const uint8_t after = served_after(setting, states, left[i], served);
            is_changed = is_changed || after != served[left[i]];
            served[left[i]] = after;
            if (after != all) {
                left[nr_kept++] = left[i];
            }
        }
        nr_left = nr_kept;
    }
    return nr_left ? left[nr_left - 1u] : NOWHERE;
}

/* Takes the steps from one state. False: no memory. */
static bool explore_from(const struct model_setting *setting, struct states *states, uint32_t at, bool is_timed,
                         struct model_found *found)
{
    struct model_successor steps[MODEL_MAX_SUCCESSORS];
    const struct model_state state = model_unpack(states->keys[at]);
    const uint32_t nr_steps = model_successors(setting, &state, steps);
    struct arrival arrivals[MODEL_MAX_SUCCESSORS];
    arrive(setting, states, steps, nr_steps, arrivals);
    found->nr_steps += nr_steps;
    for (uint32_t step = 0; step < nr_steps; step++) {
        note_phases(setting, &state, &steps[step], found);
        const uint32_t to = add(states, &arrivals[step], at);
        const bool is_sure = steps[step].kind == MODEL_FAIR || (steps[step].kind == MODEL_TIMED && is_timed);
        if (to == NOWHERE || (is_sure && !add_sure(states, to))) {
            return false;
        }
        if (steps[step].fault != MODEL_NO_FAULT) {
            found->fault = steps[step].fault;
            found->at = to & INDEX_MASK;
            return true;
        }
    }
    states->sure_ends[at] = (uint32_t)states->nr_sure;
    return true;
}

/* Sees all states, up to a fault. False: no memory. */
static bool explore(const struct model_setting *setting, struct states *states, uint64_t max_states, bool is_timed,
                    struct model_found *found)
{
    struct model_state state;
    struct arrival first;
    model_begin(setting, &state);
    first.key = model_pack_unnamed(setting, &state, &first.renaming);
    bool has_memory = add(states, &first, 0) != NOWHERE;
    for (uint32_t i = 0; has_memory && i < states->nr && states->nr <= max_states && !found->fault; i++) {
        has_memory = explore_from(setting, states, i, is_timed, found);
    }
    found->is_whole = has_memory && !found->fault && states->nr <= max_states;
    return has_memory;
}

/* False: no memory. */
static bool look_for_unserved(const struct model_setting *setting, const struct states *states,
                              struct model_found *found)
{
    uint8_t *served = malloc(states->nr);
    uint32_t *left = malloc(states->nr * sizeof(*left));
    const bool has_memory = served && left;
    if (has_memory) {
        const uint32_t at = find_unserved(setting, states, served, left);
        found->fault = at != NOWHERE ? MODEL_WAITS_FOR_EVER : MODEL_NO_FAULT;
        found->at = at;
    }
    free(served);
    free(left);
    return has_memory;
}

bool model_search(const struct model_setting *setting, uint64_t max_states, bool is_timed, struct model_found *found,
                  struct model_successor *trace, uint32_t max_trace)
{
    struct states states = {0};
    *found = (struct model_found){0};
    bool has_memory = explore(setting, &states, max_states, is_timed, found);
    if (has_memory && found->is_whole) {
        has_memory = look_for_unserved(setting, &states, found);
    }
    if (has_memory && found->fault) {
        trace_to(setting, &states, found->at, found, trace, max_trace);
    }
    found->nr_states = states.nr;
    free(states.keys);
    free(states.parents);
    free(states.places);
    free(states.sure_ends);
    free(states.sure);
    return has_memory;
}
