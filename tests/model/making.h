/* What is done to a state, of which step.c knows single steps, and successors.c which are possible. */
#ifndef TESTS_MODEL_MAKING_H
#define TESTS_MODEL_MAKING_H

#include "model.h"

/* Says what a step is made in: the state that it makes, and whether it did what is never right. */
struct making {
    const struct model_setting *setting;
    struct model_state *state;
    uint32_t process;
    uint8_t fault;
};

static inline struct model_process *self(const struct making *making)
{
    return &making->state->processes[making->process];
}

static inline bool is_gone(const struct model_setting *setting, const struct model_state *state, uint32_t process)
{
    return state->processes[process].pc == setting->gone;
}

/* Tells the members of a vGPU, by its number in the grant word: a bit for each. */
static inline uint8_t members_of(const struct making *making, uint32_t number)
{
    uint8_t members = 0;
    for (uint32_t worker = 0; worker < making->setting->nr_workers; worker++) {
        members |= (uint8_t)((making->setting->vgpu_of[worker] + 1u == number) << worker);
    }
    return members & making->state->sets[MODEL_MEMBERS];
}

/* Begins the step at `made->pc`. */
struct making model_begin_step(const struct model_setting *setting, const struct model_state *state,
                               struct model_successor *made);
/* Makes the whole step at `made->pc`. */
void model_make_step(const struct model_setting *setting, const struct model_state *state,
                     struct model_successor *made);
/* Does what follows in private once the process stands at the next place, and looks for faults. */
void model_finish_step(struct making *making, struct model_successor *made);

#endif
