/*
 * One step of one process: each access to what is shared, with what follows from it in private, is one step. All
 * accesses of the worker's to the grant word and to the sets are sequentially consistent (grant.c), so that all that
 * several processes can do together is some order of their steps.
 */
#include <string.h>

#include "model.h"

/* Says what a step is made in: the state that it makes, and whether it did what is never right. */
struct making {
    const struct model_setting *setting;
    struct model_state *state;
    uint32_t process;
    uint8_t fault;
};

static struct model_process *self(const struct making *making)
{
    return &making->state->processes[making->process];
}

static bool is_gone(const struct model_setting *setting, const struct model_state *state, uint32_t worker)
{
    return state->processes[worker].pc == setting->gone;
}

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

static uint8_t members_of(const struct making *making, uint32_t number)
{
    uint8_t members = 0;
    for (uint32_t worker = 0; worker < making->setting->nr_workers; worker++) {
        members |= (uint8_t)((making->setting->vgpu_of[worker] + 1u == number) << worker);
    }
    return members & making->state->sets[MODEL_MEMBERS];
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

/* Tells which vGPUs wait: a bit for each. */
static uint8_t waiting_vgpus(const struct making *making)
{
    uint8_t found = 0;
    for (uint32_t vgpu = 0; vgpu < making->setting->nr_vgpus; vgpu++) {
        const bool waits = members_of(making, vgpu + 1u) & making->state->sets[MODEL_WAITING];
        found |= (uint8_t)(waits << vgpu);
    }
    return found;
}

/* Tells the bit of the vGPU that a walk leaves out. */
static uint8_t left_out(const struct making *making, const struct model_instruction *step)
{
    const uint8_t holder = self(making)->words[step->word].holder;
    return holder && step->flags & MODEL_PASSES_OVER ? (uint8_t)(1u << (holder - 1u)) : 0;
}

/* Leaves of several vGPUs the one that stands first, where ranks say which. */
static uint8_t first_of(const struct model_setting *setting, uint8_t vgpus)
{
    uint32_t best = 0;
    for (uint32_t vgpu = 1; vgpu < setting->nr_vgpus; vgpu++) {
        const bool is_before = !(vgpus >> best & 1) || setting->rank[vgpu] < setting->rank[best];
        best = vgpus >> vgpu & 1 && is_before ? vgpu : best;
    }
    return setting->rank[0] != 0 ? vgpus & (uint8_t)(1u << best) : vgpus;
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

static void finish(struct making *making, struct model_successor *made)
{
    const struct model_setting *setting = making->setting;
    while (setting->program[self(making)->pc].op >= MODEL_FIRST_PRIVATE) {
        self(making)->pc = private_step(making, &setting->program[self(making)->pc]);
    }
    note_end(making);
    forget(making);
    made->fault = making->fault ? making->fault : fault_of(setting, making->state);
}

/* Begins the step at `made->pc`. */
static struct making begin(const struct model_setting *setting, const struct model_state *state,
                           struct model_successor *made)
{
    made->state = *state;
    struct making making = {.setting = setting, .state = &made->state, .process = made->process};
    self(&making)->pc = made->pc;
    return making;
}

static void make(const struct model_setting *setting, const struct model_state *state, struct model_successor *made)
{
    struct making making = begin(setting, state, made);
    self(&making)->pc = shared_step(&making, &setting->program[made->pc]);
    finish(&making, made);
}

/* Makes a step of a walk over the vGPUs that ends with, or goes on without, these ones. */
static void make_walk(const struct model_setting *setting, const struct model_state *state,
                      struct model_successor *made, uint8_t next, uint32_t outcome)
{
    struct making making = begin(setting, state, made);
    self(&making)->next = next;
    self(&making)->pc = setting->program[made->pc].to[outcome];
    finish(&making, made);
}

/* Makes the steps of a walk over the vGPUs in search of the next one. In C it looks at all of them and takes the first
 * by standing; that may be any of those that it finds waiting, so the walk may as well end at the one that it takes.
 * It goes on past one that does not wait while another does, which may give up meanwhile. Where none of the others
 * waits, it ends at once: to look later finds this process no other than it is now. In C the order is that of the
 * numbers; here it is any. */
static uint32_t walk(const struct model_setting *setting, const struct model_state *state,
                     struct model_successor *found, struct model_successor like)
{
    const struct model_instruction *step = &setting->program[like.pc];
    found[0] = like;
    struct making making = begin(setting, state, &found[0]);
    const uint8_t passed = self(&making)->next | left_out(&making, step), waiting = waiting_vgpus(&making);
    const uint8_t wanted = first_of(setting, waiting & (uint8_t)~passed);
    const uint32_t is_free = self(&making)->words[step->word].holder == 0 ? 1u : 0u;
    if (!wanted) {
        make_walk(setting, state, &found[0], 0, 2u + is_free);
        return 1;
    }
    uint32_t nr = 0;
    for (uint32_t vgpu = 0; vgpu < setting->nr_vgpus; vgpu++) {
        const uint8_t bit = (uint8_t)(1u << vgpu);
        found[nr] = like;
        if (wanted & bit) {
            make_walk(setting, state, &found[nr++], bit, is_free);
        } else if (!((passed | waiting) & bit) && setting->rank[0] == 0) {
            make_walk(setting, state, &found[nr++], passed | bit, 4);
        }
    }
    return nr;
}

/* Makes the steps of one that finds somebody dead: the daemon, which hears of it, or a worker that looks for dead users
 * of the holder's because the daemon is dead, and may not see one that died behind its look. */
static uint32_t find_dead(const struct model_setting *setting, const struct model_state *state,
                          struct model_successor *found, struct model_successor like)
{
    const struct model_instruction *step = &setting->program[like.pc];
    struct model_state copy = *state;
    const struct making making = {.setting = setting, .state = &copy, .process = like.process};
    const bool is_daemon = step->op == MODEL_LEARN;
    const uint8_t users = members_of(&making, self(&making)->words[step->word].holder) & state->sets[MODEL_USERS];
    uint32_t nr = 0;
    for (uint8_t slot = 0; slot < setting->nr_workers; slot++) {
        const bool is_dead = is_gone(setting, state, slot) || step->flags & MODEL_TRUSTS_NO_DEATH;
        if (is_daemon ? state->unknown >> slot & 1 : is_dead && users >> slot & 1) {
            self(&making)->slot = slot + 1;
            found[nr] = like;
            make(setting, &copy, &found[nr++]);
        }
    }
    if (!is_daemon) {
        found[nr] = like;
        struct making none = begin(setting, state, &found[nr]);
        self(&none)->pc = step->to[1];
        finish(&none, &found[nr++]);
    }
    return nr;
}

/* A slot is given out again by the daemon, once it has repaired it. */
static bool may_return(const struct model_setting *setting, const struct model_state *state, uint32_t process)
{
    if (process == setting->nr_workers) {
        return setting->can_daemon_return;
    }
    return setting->can_return && !(state->unknown >> process & 1) && !is_gone(setting, state, setting->nr_workers);
}

/* Makes all steps that the process can make at `like.pc`, which is no choice. */
static uint32_t steps_at(const struct model_setting *setting, const struct model_state *state,
                         struct model_successor *found, struct model_successor like)
{
    const struct model_instruction *step = &setting->program[like.pc];
    if (step->op == MODEL_GONE && !may_return(setting, state, like.process)) {
        return 0;
    }
    if (step->op == MODEL_LEARN || step->op == MODEL_LOOK_FOR_DEAD) {
        return find_dead(setting, state, found, like);
    }
    if (step->op == MODEL_CONSIDER) {
        return walk(setting, state, found, like);
    }
    found[0] = like;
    if (step->op == MODEL_ASLEEP) {
        found[0].kind = MODEL_TIMED;
    }
    if (step->op == MODEL_GONE) {
        found[0].kind = MODEL_FREE;
    }
    make(setting, state, &found[0]);
    return 1;
}

static uint32_t steps_of(const struct model_setting *setting, const struct model_state *state,
                         struct model_successor *found, uint8_t process)
{
    struct model_successor like = {.process = process, .choice = MODEL_NO_CHOICE, .pc = state->processes[process].pc};
    const struct model_instruction *step = &setting->program[like.pc];
    if (step->op != MODEL_CHOICE) {
        return steps_at(setting, state, found, like);
    }
    uint32_t nr = 0;
    for (uint8_t choice = 0; choice < step->nr_to; choice++) {
        like.choice = choice;
        like.kind = step->kinds[choice];
        like.pc = step->to[choice];
        nr += steps_at(setting, state, &found[nr], like);
    }
    return nr;
}

static bool may_die(const struct model_setting *setting, const struct model_state *state, uint32_t process)
{
    return state->nr_deaths != 0 && !is_gone(setting, state, process) &&
           (process < setting->nr_workers || setting->can_daemon_die);
}

static void die(const struct model_setting *setting, const struct model_state *state, struct model_successor *made,
                uint8_t process)
{
    *made = (struct model_successor){
        .state = *state,
        .pc = state->processes[process].pc,
        .process = process,
        .choice = MODEL_NO_CHOICE,
        .kind = MODEL_FREE,
        .is_death = true,
    };
    made->state.nr_deaths--;
    made->state.processes[process] = (struct model_process){.pc = setting->gone};
    struct making making = {.setting = setting, .state = &made->state, .process = process};
    finish(&making, made);
}

uint32_t model_successors(const struct model_setting *setting, const struct model_state *state,
                          struct model_successor *found)
{
    uint32_t nr = 0;
    for (uint8_t process = 0; process <= setting->nr_workers; process++) {
        nr += steps_of(setting, state, &found[nr], process);
        if (may_die(setting, state, process)) {
            die(setting, state, &found[nr++], process);
        }
    }
    return nr;
}

void model_begin(const struct model_setting *setting, struct model_state *state)
{
    *state = (struct model_state){.nr_deaths = setting->nr_deaths};
    for (uint32_t i = 0; i < setting->nr_workers; i++) {
        state->processes[i].pc = setting->worker;
        state->sets[MODEL_MEMBERS] |= (uint8_t)(1u << i);
    }
    state->processes[setting->nr_workers].pc = setting->daemon;
}

uint8_t model_phase(const struct model_setting *setting, const struct model_state *state, uint32_t worker)
{
    const struct model_process *process = &state->processes[worker];
    if (is_gone(setting, state, worker)) {
        return 4;
    }
    if (process->is_user) {
        return state->holder == setting->vgpu_of[worker] + 1u && !state->is_closed ? 2 : 3;
    }
    return process->is_waiting ? 1 : 0;
}
