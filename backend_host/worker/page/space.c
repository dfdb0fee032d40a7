/* See space.h. */
#include "page/space.h"

#include "base/count.h"
#include "page/bell.h"
#include "page/outlook.h"
#include "page/sets.h"

_Static_assert(FGW_MAX_VGPUS <= 64, "a bit for each space, and for each vGPU without one");

static uint32_t space_of(const struct fgw_control *control, uint32_t number)
{
    return atomic_load_explicit(&control->decided->vgpus[number - 1].space, memory_order_relaxed);
}

static uint32_t class_of(const struct fgw_control *control, uint32_t number)
{
    return atomic_load_explicit(&control->decided->vgpus[number - 1].class_number, memory_order_relaxed);
}

bool fgw_space_are_companions(const struct fgw_control *control, uint32_t number, uint32_t other)
{
    return fgw_is_vgpu(number) && fgw_is_vgpu(other) && number != other && space_of(control, number) != 0 &&
           space_of(control, number) == space_of(control, other);
}

bool fgw_space_is_urgent(const struct fgw_control *control, uint32_t number)
{
    return atomic_load_explicit(&control->decided->vgpus[number - 1].is_urgent, memory_order_relaxed) != 0;
}

bool fgw_space_has_grant(const struct fgw_grantee *grantee)
{
    const uint64_t word = atomic_load_explicit(&grantee->control->grant->word, memory_order_relaxed);
    return fgw_space_are_companions(grantee->control, fgw_grant_holder(word), grantee->number);
}

/* Who has work on the device beside a vGPU. */
struct company {
    uint32_t nr_outside;           /* without a space in common: a space, or one that is in none, counts once */
    uint32_t nr_critical, nr_best; /* of its space, itself included */
    uint32_t split;                /* of a critical one there */
};

static void count_in(struct company *company, const struct fgw_control *control, uint32_t number)
{
    if (class_of(control, number) == FGW_CLASS_CRITICAL) {
        company->nr_critical++;
        company->split = atomic_load_explicit(&control->decided->vgpus[number - 1].split, memory_order_relaxed);
    } else {
        company->nr_best++;
    }
}

static bool runs(const struct fgw_control *control, uint32_t number)
{
    return fgw_set_has_common(&control->decided->vgpus[number - 1].members, &control->grant->running);
}

static struct company company_of(const struct fgw_grantee *grantee)
{
    const struct fgw_control *control = grantee->control;
    struct company company = {0};
    uint64_t spaces = 0;
    count_in(&company, control, grantee->number);
    for (uint32_t number = 1; number <= FGW_MAX_VGPUS; number++) {
        if (number == grantee->number || !runs(control, number)) {
            continue;
        }
        const uint32_t space = space_of(control, number);
        if (fgw_space_are_companions(control, number, grantee->number)) {
            count_in(&company, control, number);
        } else if (space == 0 || space >= 64) {
            company.nr_outside++;
        } else {
            spaces |= UINT64_C(1) << space;
        }
    }
    company.nr_outside += (uint32_t)__builtin_popcountll(spaces);
    return company;
}

static bool is_alone(const struct fgw_grantee *grantee)
{
    uint64_t others = 0;
    for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
        const uint64_t running = atomic_load_explicit(&grantee->control->grant->running.words[i], memory_order_relaxed);
        others |= running & ~atomic_load_explicit(&grantee->decided->members.words[i], memory_order_relaxed);
    }
    return others == 0;
}

/* Gives the part of one in its space. Where nobody knows how many multiprocessors there are all get the same. */
static struct fgw_fraction part_inside(const struct fgw_grantee *grantee, const struct company *company)
{
    const uint32_t nr_all = grantee->nr_multiprocessors, nr_given = FGW_SPLIT_N(company->split);
    const bool is_critical = fgw_space_is_critical(grantee);
    if (company->nr_critical == 0 || company->nr_best == 0 || nr_all == 0) {
        return (struct fgw_fraction){.of = 1, .in = company->nr_critical + company->nr_best};
    }
    const uint32_t nr_critical = nr_given < nr_all ? nr_given : nr_all;
    return (struct fgw_fraction){
        .of = is_critical ? nr_critical : nr_all - nr_critical,
        .in = (uint64_t)nr_all * (is_critical ? company->nr_critical : company->nr_best),
    };
}

struct fgw_fraction fgw_space_part(const struct fgw_grantee *grantee)
{
    if (is_alone(grantee)) {
        return (struct fgw_fraction){.of = 1, .in = 1};
    }
    const struct company company = company_of(grantee);
    struct fgw_fraction part = part_inside(grantee, &company);
    if (fgw_grant_is_preemptive(grantee)) {
        part.in *= 1 + company.nr_outside;
    }
    return part;
}

void fgw_space_know_device(struct fgw_grantee *grantee, uint32_t nr_multiprocessors)
{
    grantee->nr_multiprocessors = nr_multiprocessors;
}

/* Who is kept out said so before it looked at the split and went to sleep; here the split was written before. */
void fgw_control_let_in(struct fgw_control *control, uint32_t index)
{
    for (uint32_t number = 1; number <= FGW_MAX_VGPUS; number++) {
        if (fgw_space_are_companions(control, number, index + 1) &&
            atomic_load(&control->accounts[number - 1]->split) != 0) {
            fgw_bell_ring(&control->grant->seats[number - 1].bell);
        }
    }
}

void fgw_space_tell_split(const struct fgw_grantee *grantee, uint32_t split)
{
    atomic_store(&grantee->account->split, split);
    if (split == 0) {
        fgw_control_let_in(grantee->control, grantee->number - 1);
    }
}

/* Gives the number of the critical vGPU of this one's space, FGW_NOBODY: there is none. */
static uint32_t critical_of(const struct fgw_grantee *grantee)
{
    for (uint32_t number = 1; number <= FGW_MAX_VGPUS; number++) {
        if (fgw_space_are_companions(grantee->control, number, grantee->number) &&
            class_of(grantee->control, number) == FGW_CLASS_CRITICAL) {
            return number;
        }
    }
    return FGW_NOBODY;
}

uint32_t fgw_space_standing_split(const struct fgw_grantee *grantee)
{
    const uint32_t number = critical_of(grantee);
    return number != FGW_NOBODY ? atomic_load(&grantee->control->accounts[number - 1]->split) : 0;
}

uint32_t fgw_space_asked_split(const struct fgw_grantee *grantee)
{
    const uint32_t number = critical_of(grantee);
    return number != FGW_NOBODY && fgw_space_is_urgent(grantee->control, number)
               ? atomic_load(&grantee->control->accounts[number - 1]->split)
               : 0;
}

void fgw_space_tell_kept_out(const struct fgw_grantee *grantee, bool is_kept_out)
{
    if (fgw_space_is_best_effort(grantee)) { /* a critical one's account says there what it asks for */
        atomic_store(&grantee->account->split, is_kept_out);
    }
}

bool fgw_space_keeps_out(const struct fgw_grantee *grantee)
{
    const struct fgw_control *control = grantee->control;
    for (uint32_t number = 1; number <= FGW_MAX_VGPUS; number++) {
        if (fgw_space_are_companions(control, number, grantee->number) &&
            atomic_load_explicit(&control->accounts[number - 1]->split, memory_order_relaxed) != 0) {
            return true;
        }
    }
    return false;
}

void fgw_space_note_round(const struct fgw_grantee *grantee, uint32_t signature, uint32_t split, uint64_t took_ns)
{
    const uint64_t nr = atomic_load_explicit(&grantee->slot->nr_rounds, memory_order_relaxed);
    struct fgw_round *round = &grantee->slot->rounds[nr % FGW_NR_ROUNDS];
    atomic_store_explicit(&round->what, (uint64_t)signature << 32 | split, memory_order_relaxed);
    atomic_store_explicit(&round->took_ns, took_ns, memory_order_relaxed);
    atomic_store_explicit(&grantee->slot->nr_rounds, nr + 1, memory_order_release);
}

void fgw_control_set_class(struct fgw_control *control, uint32_t index, uint32_t class_number, uint32_t space)
{
    struct fgw_decided_vgpu *vgpu = &control->decided->vgpus[index];
    const bool is_elsewhere = atomic_exchange(&vgpu->space, (uint16_t)space) != space;
    const bool is_other = atomic_exchange(&vgpu->class_number, (uint16_t)class_number) != class_number;
    if (is_elsewhere || is_other) { /* else a round may go on, and what it asks for stands */
        atomic_store(&control->accounts[index]->split, 0);
    }
}

void fgw_control_set_urgent(struct fgw_control *control, uint32_t index, bool is_urgent)
{
    if (atomic_exchange(&control->decided->vgpus[index].is_urgent, is_urgent) != 0 && !is_urgent) {
        fgw_control_let_in(control, index);
    }
}

void fgw_control_set_split(struct fgw_control *control, uint32_t index, uint32_t split)
{
    atomic_store(&control->decided->vgpus[index].split, split);
}

void fgw_control_take_split_back(struct fgw_control *control, uint32_t index)
{
    atomic_store(&control->accounts[index]->split, 0);
    fgw_control_let_in(control, index);
}

/* A round that is written while it is read is one of those that the worker says anything of: it is believed as the
 * others are. */
uint32_t fgw_control_rounds_read(struct fgw_control *control, uint32_t slot, struct fgw_round_reading *readings,
                                 uint64_t *nr_rounds)
{
    const struct fgw_decided_worker *worker = &control->decided->workers[slot];
    *nr_rounds = 0;
    if (atomic_load(&worker->state) != FGW_WORKER_SERVING) {
        return 0;
    }
    const struct fgw_worker_slot *own = &control->own[atomic_load(&worker->vgpu)]->workers[slot];
    const uint64_t nr = atomic_load_explicit(&own->nr_rounds, memory_order_acquire);
    const uint32_t nr_kept = nr < FGW_NR_ROUNDS ? (uint32_t)nr : FGW_NR_ROUNDS;
    for (uint32_t i = 0; i < nr_kept; i++) {
        const struct fgw_round *round = &own->rounds[(nr - nr_kept + i) % FGW_NR_ROUNDS];
        const uint64_t what = atomic_load_explicit(&round->what, memory_order_relaxed);
        readings[i] = (struct fgw_round_reading){
            .signature = (uint32_t)(what >> 32),
            .split = (uint32_t)what,
            .took_ns = atomic_load_explicit(&round->took_ns, memory_order_relaxed),
        };
    }
    *nr_rounds = nr;
    return nr_kept;
}
