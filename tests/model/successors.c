/*
 * All steps that can come next, of any process, and all deaths. Where the page does not say what a process does, each
 * way is one.
 */
#include "making.h"

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

/* Makes a step of a walk over the vGPUs that ends with, or goes on without, these ones. */
static void make_walk(const struct model_setting *setting, const struct model_state *state,
                      struct model_successor *made, uint8_t next, uint32_t outcome)
{
    struct making making = model_begin_step(setting, state, made);
    self(&making)->next = next;
    self(&making)->pc = setting->program[made->pc].to[outcome];
    model_finish_step(&making, made);
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
    struct making making = model_begin_step(setting, state, &found[0]);
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
            model_make_step(setting, &copy, &found[nr++]);
        }
    }
    if (!is_daemon) {
        found[nr] = like;
        struct making none = model_begin_step(setting, state, &found[nr]);
        self(&none)->pc = step->to[1];
        model_finish_step(&none, &found[nr++]);
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
    if (step->op == MODEL_CHOOSE) {
        return walk(setting, state, found, like);
    }
    found[0] = like;
    if (step->op == MODEL_ASLEEP) {
        found[0].kind = MODEL_TIMED;
    }
    if (step->op == MODEL_GONE) {
        found[0].kind = MODEL_FREE;
    }
    model_make_step(setting, state, &found[0]);
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
    model_finish_step(&making, made);
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
