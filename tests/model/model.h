/*
 * The model of grants, as data: what a step is, what a state is. programs.py has the steps of each function of the
 * worker's, step.c what a step does to a state, successors.c which steps can come, search.c goes through all states.
 *
 * A sequence number has no number here, since it would make the states endless. Of each copy of the grant word that a
 * process keeps, the state knows whether the grant has been handed on since. That is all that a compare can find out,
 * as the number never comes back.
 *
 * Wrong when: a sequence number or a bell wraps between two steps of one process.
 */
#ifndef TESTS_MODEL_MODEL_H
#define TESTS_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define MODEL_MAX_WORKERS    3
#define MODEL_MAX_PROCESSES  (MODEL_MAX_WORKERS + 1) /* the daemon is the last one */
#define MODEL_MAX_TARGETS    5
#define MODEL_MAX_SUCCESSORS 64
#define MODEL_NO_CHOICE      255

/* Each of the first group is one access to what is shared. Those of the second touch private data alone, and happen
 * together with the step before them. */
enum model_op {
    MODEL_LOAD_GRANT,    /* to: free, mine open, mine closed, other open, other closed */
    MODEL_CLOSE,         /* compare and exchange: the closed flag. to: done, failed */
    MODEL_HAND_ON,       /* the same: to `next`. to: given, freed, failed */
    MODEL_TAKE,          /* the same: to the process's own vGPU. to: done, failed */
    MODEL_ADD,           /* sets a bit */
    MODEL_REMOVE,        /* clears a bit */
    MODEL_HAS_USERS,     /* to: some, none */
    MODEL_WAITS,         /* to: some, none */
    MODEL_ANYBODY,       /* whether anybody waits. to: some, none */
    MODEL_CHOOSE,        /* whether a vGPU waits. to: one held, one free, none held, none free, on */
    MODEL_RING,          /* changes the bell of `next` and wakes whoever sleeps on it */
    MODEL_LOAD_BELL,     /* of its own vGPU */
    MODEL_SLEEP,         /* unless the bell has changed. to: asleep, awake */
    MODEL_ASLEEP,        /* to: awake */
    MODEL_ASK_DAEMON,    /* whether it has ended. to: alive, ended */
    MODEL_LOOK_FOR_DEAD, /* whether a user of the holder is dead. to: dead, none */
    MODEL_IS_MEMBER,     /* to: yes, no */
    MODEL_LEARN,         /* the daemon hears of a death. to: next */
    MODEL_GONE,          /* no process: a new one may come in its place. to: the beginning of a worker's */
    MODEL_CHOICE,        /* what the process does next is not said by the page; each target has a kind */

    MODEL_FIRST_PRIVATE,
    MODEL_ENTERED = MODEL_FIRST_PRIVATE, /* it is in. to: it waited, it did not */
    MODEL_IF_WAITING,                    /* to: it waits, it does not */
    MODEL_IF_WORD,                       /* what its copy of the grant says. to: as LOAD_GRANT */
    MODEL_REPAIRED,                      /* the daemon is done with a dead one */
};

enum model_set { MODEL_USERS, MODEL_WAITING, MODEL_MEMBERS };

/* Whose bit, or whose vGPU: of the process itself, of the slot that it looks at, of the holder in its copy. */
enum model_who { MODEL_OWN, MODEL_SLOT, MODEL_HOLDER };

/* FAIR: it happens at last if it stays possible. TIMED: so it does, but only because time passes. FREE: it need not. */
enum model_kind { MODEL_FAIR, MODEL_TIMED, MODEL_FREE };

enum model_flag {
    MODEL_PASSES_OVER = 1,      /* CHOOSE leaves the holder out */
    MODEL_EVICTS = 2,           /* HAND_ON takes from users: they are inside no more */
    MODEL_IGNORES_SEQUENCE = 4, /* of mutants */
    MODEL_KEEPS_SEQUENCE = 8,   /* of mutants */
    MODEL_TRUSTS_NO_DEATH = 16, /* of mutants: LOOK_FOR_DEAD finds living users, too */
};

enum model_register { MODEL_WORD = 1, MODEL_KEPT = 2, MODEL_NEXT = 4, MODEL_NUMBER = 8, MODEL_BELL = 16 };

struct model_instruction {
    uint8_t op, set, who;
    uint8_t word;        /* which copy of the grant: 0 or 1 */
    uint8_t flags, live; /* live: registers whose content still matters before it */
    uint8_t nr_to, reserved;
    uint16_t to[MODEL_MAX_TARGETS];
    uint8_t kinds[MODEL_MAX_TARGETS];
};

struct model_word {
    uint8_t holder, is_closed, is_stale; /* holder: vGPU + 1 */
};

struct model_process {
    uint16_t pc;
    uint8_t next; /* the bit of the vGPU that was chosen; in a walk, bits of those that were found not to wait */
    uint8_t slot; /* worker + 1; 0: none */
    uint8_t is_user, is_waiting;
    uint8_t is_rung;    /* its bell has changed since it was loaded */
    uint8_t is_evicted; /* the grant was taken from it while its bit was set */
    struct model_word words[2];
};

struct model_state {
    uint8_t holder, is_closed;
    uint8_t sets[3];   /* a bit for each worker */
    uint8_t unknown;   /* dead ones that the daemon has not repaired */
    uint8_t nr_deaths; /* that may still come */
    uint8_t reserved;
    struct model_process processes[MODEL_MAX_PROCESSES];
};

/* Gives workers and vGPUs other names, under which all that they can do is the same: the new number (index + 1) by the
 * old one, and the new set of them, a bit for each, by the old one. */
struct model_names {
    uint8_t numbers[MODEL_MAX_WORKERS + 1], sets[1 << MODEL_MAX_WORKERS];
};

struct model_renaming {
    struct model_names workers, vgpus;
};

#define MODEL_MAX_RENAMINGS 6

struct model_setting {
    uint8_t nr_workers, nr_vgpus;
    uint8_t vgpu_of[MODEL_MAX_WORKERS];
    uint8_t rank[MODEL_MAX_WORKERS]; /* of each vGPU: the least goes first. All 0: any that waits may be chosen */
    uint8_t nr_deaths;
    uint8_t can_daemon_die, can_daemon_return; /* to the same page */
    uint8_t can_return;                        /* a slot gets a new worker */
    uint8_t is_giving_checked;                 /* who gets the grant waits for it at that moment */
    uint16_t worker, daemon, gone;             /* where their programs begin, and all end */
    uint16_t nr_renamings;
    struct model_renaming renamings[MODEL_MAX_RENAMINGS]; /* the first one leaves all as it is */
    const struct model_instruction *program;
};

enum model_fault {
    MODEL_NO_FAULT,
    MODEL_TWO_INSIDE,
    MODEL_LOST_BIT,
    MODEL_GIVEN_TO_NOBODY,
    MODEL_SAME_SEQUENCE,
    MODEL_WAITS_FOR_EVER,
};

struct model_successor {
    struct model_state state;
    uint16_t pc;     /* of the step; where a death struck, for deaths */
    uint8_t process; /* whose step */
    uint8_t choice;  /* which target of a CHOICE; MODEL_NO_CHOICE */
    uint8_t kind;
    uint8_t is_death;
    uint8_t fault;
};

void model_begin(const struct model_setting *setting, struct model_state *state);
uint32_t model_successors(const struct model_setting *setting, const struct model_state *state,
                          struct model_successor *found);

/* Names the phase of a worker: 0 out, 1 waiting, 2 in, 3 leaving; 4: there is none. */
uint8_t model_phase(const struct model_setting *setting, const struct model_state *state, uint32_t worker);

/* Packs a state into 128 bits, and back. */
struct model_key {
    uint64_t low, high;
};

struct model_key model_pack(const struct model_state *state);
struct model_state model_unpack(struct model_key key);
/* Packs the one that stands for a state and all that differ from it by names alone; says by which renaming. */
struct model_key model_pack_unnamed(const struct model_setting *setting, const struct model_state *state,
                                    uint32_t *renaming);

/* What a search found. Of a fault, `trace` is the way to it from the first state. */
struct model_found {
    uint64_t nr_states, nr_steps;
    uint8_t fault;
    uint8_t is_whole;     /* all states were seen */
    uint8_t phases[4][4]; /* changes of phase that were seen */
    uint32_t at, nr_trace;
};

/* Visits all states, breadth first, up to `max_states`. `is_timed`: steps that only time brings count as fair. False:
 * no memory. `trace` has room for `max_trace` steps. */
bool model_search(const struct model_setting *setting, uint64_t max_states, bool is_timed, struct model_found *found,
                  struct model_successor *trace, uint32_t max_trace);

#endif
