/*
 * A state in 128 bits. Where workers, and their vGPUs, differ by their names alone, one state stands for all that
 * become the same when they are renamed: each step that one can make the others can, too.
 */
#include "model.h"

static uint64_t pack_word(const struct model_word *word)
{
    return word->holder | word->is_closed << 2 | word->is_stale << 3;
}

static struct model_word unpack_word(uint64_t bits)
{
    return (struct model_word){.holder = bits & 3u, .is_closed = bits >> 2 & 1u, .is_stale = bits >> 3 & 1u};
}

/* Packs a process into 26 bits. */
static uint64_t pack_process(const struct model_process *process)
{
    return process->pc | process->next << 9 | process->slot << 12 | process->is_user << 14 | process->is_waiting << 15 |
           process->is_rung << 16 | process->is_evicted << 17 | pack_word(&process->words[0]) << 18 |
           pack_word(&process->words[1]) << 22;
}

static struct model_process unpack_process(uint64_t bits)
{
    return (struct model_process){
        .pc = bits & 511u,
        .next = bits >> 9 & 7u,
        .slot = bits >> 12 & 3u,
        .is_user = bits >> 14 & 1u,
        .is_waiting = bits >> 15 & 1u,
        .is_rung = bits >> 16 & 1u,
        .is_evicted = bits >> 17 & 1u,
        .words = {unpack_word(bits >> 18), unpack_word(bits >> 22)},
    };
}

struct model_key model_pack(const struct model_state *state)
{
    const struct model_process *processes = state->processes;
    return (struct model_key){
        .low = pack_process(&processes[0]) | pack_process(&processes[1]) << 26 | (uint64_t)state->unknown << 52 |
               (uint64_t)state->nr_deaths << 55 | (uint64_t)state->holder << 57 | (uint64_t)state->is_closed << 59,
        .high = pack_process(&processes[2]) | pack_process(&processes[3]) << 26 | (uint64_t)state->sets[0] << 52 |
                (uint64_t)state->sets[1] << 55 | (uint64_t)state->sets[2] << 58,
    };
}

struct model_state model_unpack(struct model_key key)
{
    return (struct model_state){
        .holder = key.low >> 57 & 3u,
        .is_closed = key.low >> 59 & 1u,
        .sets = {key.high >> 52 & 7u, key.high >> 55 & 7u, key.high >> 58 & 7u},
        .unknown = key.low >> 52 & 7u,
        .nr_deaths = key.low >> 55 & 3u,
        .processes = {unpack_process(key.low), unpack_process(key.low >> 26), unpack_process(key.high),
                      unpack_process(key.high >> 26)},
    };
}

static struct model_word renamed_word(const struct model_names *vgpus, struct model_word word)
{
    word.holder = vgpus->numbers[word.holder];
    return word;
}

static struct model_state renamed(const struct model_setting *setting, const struct model_state *state,
                                  const struct model_renaming *renaming)
{
    const struct model_names *workers = &renaming->workers, *vgpus = &renaming->vgpus;
    struct model_state made = *state;
    made.holder = vgpus->numbers[state->holder];
    made.unknown = workers->sets[state->unknown];
    for (uint32_t set = 0; set < 3; set++) {
        made.sets[set] = workers->sets[state->sets[set]];
    }
    for (uint32_t i = 0; i <= setting->nr_workers; i++) {
        struct model_process *process = &made.processes[i < setting->nr_workers ? workers->numbers[i + 1u] - 1u : i];
        *process = state->processes[i];
        process->next = vgpus->sets[process->next];
        process->slot = workers->numbers[process->slot];
        process->words[0] = renamed_word(vgpus, process->words[0]);
        process->words[1] = renamed_word(vgpus, process->words[1]);
    }
    return made;
}

/* Says whether a renaming puts the workers in the order of where they are in their program. */
static bool is_sorting(const struct model_setting *setting, const struct model_state *state,
                       const struct model_renaming *renaming)
{
    uint16_t pcs[MODEL_MAX_WORKERS] = {0};
    for (uint32_t i = 0; i < setting->nr_workers; i++) {
        pcs[renaming->workers.numbers[i + 1u] - 1u] = state->processes[i].pc;
    }
    for (uint32_t i = 1; i < setting->nr_workers && setting->nr_renamings == 6; i++) {
        if (pcs[i - 1] > pcs[i]) {
            return false;
        }
    }
    return true;
}

struct model_key model_pack_unnamed(const struct model_setting *setting, const struct model_state *state,
                                    uint32_t *renaming)
{
    struct model_key best = {.low = UINT64_MAX, .high = UINT64_MAX};
    for (uint32_t i = 0; i < setting->nr_renamings; i++) {
        if (is_sorting(setting, state, &setting->renamings[i])) {
            const struct model_state made = renamed(setting, state, &setting->renamings[i]);
            const struct model_key key = model_pack(&made);
            if (key.low < best.low || (key.low == best.low && key.high < best.high)) {
                best = key;
                *renaming = i;
            }
        }
    }
    return best;
}
