/*
 * One step of one process: each access to what is shared, with what follows from it in private, is one step. All
 * accesses of the worker's to the grant word and to the sets are sequentially consistent (grant.c), so that all that
 * several processes can do together is some order of their steps.
 */

#include "making.h"

static uint32_t slot_of(const struct making *making, const struct model_instruction *step)
{
    return step->who == MODEL_SLOT ? self(making)->slot - 1u : making->process;
}

/* Tells the vGPU's number as in the grant word. The daemon has none of its own. */
static uint32_t number_of(const struct making *making, const struct model_instruction *step)
{
    if (step->who == MODEL_HOLDER) {
        return self(making)->words[step->word].holder;
    }
    const uint32_t slot = slot_of(making, step);
    return slot < making->setting->nr_workers ? making->setting->vgpu_of[slot] + 1u : MODEL_MAX_WORKERS + 1u;
}

static uint32_t read_word(const struct making *making, const struct model_instruction *step)
{
    const struct model_word *word = &self(making)->words[step->word];
    if (word->holder == 0) {
        return 0;
    }
    return (word->holder == number_of(making, step) ? 1u : 3u) + word->is_closed;
}

static uint32_t load_grant(const struct making *making, const struct model_instruction *step)
{
    const struct model_state *state = making->state;
    self(making)->words[step->word] = (struct model_word){.holder = state->holder, .is_closed = state->is_closed};
    return read_word(making, step);
}

/* Compares and exchanges the grant word. What is not changed of it is read instead. */
static bool exchange(struct making *making, const struct model_instruction *step, struct model_word wanted)
{
    struct model_state *state = making->state;
    struct model_word *word = &self(making)->words[step->word];
    const bool is_same = word->holder == state->holder && word->is_closed == state->is_closed &&
                         (!word->is_stale || step->flags & MODEL_IGNORES_SEQUENCE);
    if (is_same && step->op != MODEL_CLOSE) {
        for (uint32_t i = 0; i <= making->setting->nr_workers && !(step->flags & MODEL_KEEPS_SEQUENCE); i++) {
            const uint8_t live = making->setting->program[state->processes[i].pc].live;
            state->processes[i].words[0].is_stale |= (live & MODEL_WORD) != 0;
            state->processes[i].words[1].is_stale |= (live & MODEL_KEPT) != 0;
        }
        making->fault = step->flags & MODEL_KEEPS_SEQUENCE ? MODEL_SAME_SEQUENCE : making->fault;
    }
    if (is_same) {
        state->holder = wanted.holder;
        state->is_closed = wanted.is_closed;
    }
    *word = (struct model_word){.holder = state->holder, .is_closed = state->is_closed};
    return is_same;
}

static uint32_t hand_on(struct making *making, const struct model_instruction *step)
{
    struct model_state *state = making->state;
    const uint8_t next = self(making)->next ? (uint8_t)(__builtin_ctz(self(making)->next) + 1) : 0;
    const uint8_t before = members_of(making, state->holder);
    const bool is_done = exchange(making, step, (struct model_word){.holder = next});
    self(making)->next = is_done ? self(making)->next : 0;
    if (!is_done) {
        return 2;
    }
    for (uint32_t worker = 0; worker < making->setting->nr_workers && step->flags & MODEL_EVICTS; worker++) {
        state->processes[worker].is_evicted |= (before & state->sets[MODEL_USERS]) >> worker & 1;
    }
    if (next == 0) {
        return 1;
    }
    if (making->setting->is_giving_checked && !(members_of(making, next) & state->sets[MODEL_WAITING])) {
        making->fault = MODEL_GIVEN_TO_NOBODY;
    }
    return 0;
}

static void change_bit(struct making *making, const struct model_instruction *step)
{
    const uint32_t slot = slot_of(making, step);
    const uint8_t bit = (uint8_t)(1u << slot), set = making->state->sets[step->set];
    const bool is_set = step->op == MODEL_ADD;
    making->state->sets[step->set] = (uint8_t)(is_set ? set | bit : set & ~bit);
    if (step->set == MODEL_USERS && !is_set) {
        making->state->processes[slot].is_evicted = 0;
    }
    if (step->who != MODEL_OWN) {
        return;
    }
    if (step->set == MODEL_USERS && !is_set) {
        self(making)->is_user = 0;
    }
    if (step->set == MODEL_WAITING) {
        self(making)->is_waiting = is_set;
    }
}

static void ring(const struct making *making)
{
    const struct model_setting *setting = making->setting;
    for (uint32_t worker = 0; worker < setting->nr_workers; worker++) {
        struct model_process *process = &making->state->processes[worker];
        if (self(making)->next >> setting->vgpu_of[worker] & 1) {
            const struct model_instruction *at = &setting->program[process->pc];
            process->is_rung |= (at->live & MODEL_BELL) != 0;
            process->pc = at->op == MODEL_ASLEEP ? at->to[0] : process->pc;
        }
    }
    self(making)->next = 0;
}

static uint16_t private_step(struct making *making, const struct model_instruction *step)
{
    struct model_process *process = self(making);
    switch (step->op) {
    case MODEL_ENTERED:
        process->is_user = 1;
        return step->to[process->is_waiting ? 0 : 1];
    case MODEL_IF_WAITING:
        return step->to[process->is_waiting ? 0 : 1];
    case MODEL_IF_WORD:
        return step->to[read_word(making, step)];
    default: /* MODEL_REPAIRED */
        making->state->unknown &= (uint8_t)~(1u << (process->slot - 1u));
        return step->to[0];
    }
}

/* Ends a program: of a worker that ended by itself the daemon hears as of one that died. A dead daemon knows nothing.
 */
static void note_end(const struct making *making)
{
    if (is_gone(making->setting, making->state, making->setting->nr_workers)) {
        making->state->unknown = 0;
        return;
    }
    if (making->process < making->setting->nr_workers && is_gone(making->setting, making->state, making->process)) {
        making->state->unknown |= (uint8_t)(1u << making->process);
    }
}

/* A new daemon takes all that are gone for dead ones that nobody has repaired. */
static uint16_t come_back(struct making *making, const struct model_instruction *step)
{
    const struct model_setting *setting = making->setting;
    if (making->process < setting->nr_workers) {
        return step->to[0];
    }
    for (uint32_t worker = 0; worker < setting->nr_workers; worker++) {
        making->state->unknown |= (uint8_t)(is_gone(setting, making->state, worker) << worker);
    }
    return setting->daemon;
}

static uint16_t shared_step(struct making *making, const struct model_instruction *step)
{
    struct model_process *process = self(making);
    const struct model_word word = process->words[step->word];
    uint8_t *sets = making->state->sets;
    switch (step->op) {
    case MODEL_LOAD_GRANT:
        return step->to[load_grant(making, step)];
    case MODEL_CLOSE:
        return step->to[exchange(making, step, (struct model_word){.holder = word.holder, .is_closed = 1}) ? 0 : 1];
    case MODEL_HAND_ON:
        return step->to[hand_on(making, step)];
    case MODEL_TAKE:
        return step->to[exchange(making, step, (struct model_word){.holder = number_of(making, step)}) ? 0 : 1];
    case MODEL_ADD:
    case MODEL_REMOVE:
        change_bit(making, step);
        return step->to[0];
    case MODEL_HAS_USERS:
        return step->to[members_of(making, number_of(making, step)) & sets[MODEL_USERS] ? 0 : 1];
    case MODEL_WAITS:
        return step->to[members_of(making, number_of(making, step)) & sets[MODEL_WAITING] ? 0 : 1];
    case MODEL_ANYBODY:
        return step->to[sets[MODEL_WAITING] ? 0 : 1];
    case MODEL_RING:
        ring(making);
        return step->to[0];
    case MODEL_LOAD_BELL:
        process->is_rung = 0;
        return step->to[0];
    case MODEL_SLEEP:
        return step->to[process->is_rung ? 1 : 0];
    case MODEL_ASK_DAEMON:
        return step->to[is_gone(making->setting, making->state, making->setting->nr_workers) ? 1 : 0];
    case MODEL_IS_MEMBER:
        return step->to[sets[MODEL_MEMBERS] >> slot_of(making, step) & 1 ? 0 : 1];
    case MODEL_GONE:
        return come_back(making, step);
    default: /* MODEL_ASLEEP; MODEL_LEARN and MODEL_LOOK_FOR_DEAD, whose slot is known already */
        return step->to[0];
    }
}

static bool is_inside(const struct model_setting *setting, const struct model_state *state, uint32_t worker)
{
    const struct model_process *process = &state->processes[worker];
    return !is_gone(setting, state, worker) && process->is_user && !process->is_evicted;
}

static uint8_t fault_of(const struct model_setting *setting, const struct model_state *state)
{
    for (uint32_t one = 0; one < setting->nr_workers; one++) {
        const struct model_process *process = &state->processes[one];
        const bool has_bit = state->sets[MODEL_USERS] >> one & 1, waits = state->sets[MODEL_WAITING] >> one & 1;
        if (!is_gone(setting, state, one) && ((process->is_user && !has_bit) || process->is_waiting != waits)) {
            return MODEL_LOST_BIT;
        }
        for (uint32_t other = 0; other < one; other++) {
            if (setting->vgpu_of[one] != setting->vgpu_of[other] && is_inside(setting, state, one) &&
                is_inside(setting, state, other)) {
                return MODEL_TWO_INSIDE;
            }
        }
    }
    return MODEL_NO_FAULT;
}

/* Forgets what no later step of the process looks at, so that states that differ by it alone are one. */
static void forget(const struct making *making)
{
    struct model_process *process = self(making);
    const uint8_t live = making->setting->program[process->pc].live;
    for (uint32_t word = 0; word < 2; word++) {
        if (!(live & (word ? MODEL_KEPT : MODEL_WORD))) {
            process->words[word] = (struct model_word){0};
        }
    }
    process->next = live & MODEL_NEXT ? process->next : 0;
    process->slot = live & MODEL_NUMBER ? process->slot : 0;
    process->is_rung = live & MODEL_BELL ? process->is_rung : 0;
}

void model_finish_step(struct making *making, struct model_successor *made)
{
    const struct model_setting *setting = making->setting;
    while (setting->program[self(making)->pc].op >= MODEL_FIRST_PRIVATE) {
        self(making)->pc = private_step(making, &setting->program[self(making)->pc]);
    }
    note_end(making);
    forget(making);
    made->fault = making->fault ? making->fault : fault_of(setting, making->state);
}

struct making model_begin_step(const struct model_setting *setting, const struct model_state *state,
                               struct model_successor *made)
{
    made->state = *state;
    struct making making = {.setting = setting, .state = &made->state, .process = made->process};
    self(&making)->pc = made->pc;
    return making;
}

void model_make_step(const struct model_setting *setting, const struct model_state *state, struct model_successor *made)
{
    struct making making = model_begin_step(setting, state, made);
    self(&making)->pc = shared_step(&making, &setting->program[made->pc]);
    model_finish_step(&making, made);
}
