/*
 * The control page: what the daemon and the workers share, and no guest ever maps. Grants are handed over here, in C,
 * by the workers themselves; the daemon only says beforehand how everybody stands.
 *
 * A vGPU holds the grant while it runs its slice. Each of its workers sets its bit in `users` while it has GPU work in
 * flight. When the slice is over, or the last of them has nothing to submit, the grant is closed: no worker starts new
 * work, each clears its bit once its work is done, and whoever then finds no user left makes the next one the holder
 * and wakes it. When nobody waits the grant is free and the first to ask takes it.
 *
 * A device that preempts runs what two vGPUs have on it in turn. There a worker may clear its bit a moment before its
 * work is done, so that the next one's is there when it ends, or in the midst of a kernel that outlives its slice by
 * far. Who has work on the device is in `running`, and the time that several have is charged to each in equal parts.
 * Where the driver lets it, such a worker takes its work off the device once the next one uses it, and waits as others
 * do (withdraw.c).
 *
 * The next one is, of those that wait, the vGPU of the least standing: a number that the policy gives each vGPU, and
 * that grows by a rate of its own with the GPU time it is charged (start tag and 1/weight, for fair queuing). So the
 * choice is made with the last slice's charge in it, and a daemon that is late, or dead, makes it stale only by what a
 * policy does besides.
 *
 * Workers tell of themselves by bits with a named owner, never by counts, so that a death between any two instructions
 * leaves nothing ambiguous: the daemon, which learns of every death, clears the dead one's bits (which may be clear
 * already) and hands over in its place. Entering is the Dekker way round: set the bit, then look at the grant; closing:
 * close the grant, then look at the bits; both sequentially consistent.
 *
 * The page is laid out by who may write what, each part in a shared memory object of its own:
 *
 *   decided   what the daemon decides: who there is, quotas, standings, slice, commands. Workers map it read-only.
 *   grant     what a hand-over changes. All map it writable, as a hand-over passes through no daemon. A worker that its
 *             guest took over can keep the GPU until it is evicted, hand it on wrongly, and wake others for nothing.
 *   account   one for each vGPU, and in the pages behind it what its workers tell of themselves. Its own workers map it
 *             writable, all others read the account alone. It says what the vGPU is charged, and nobody else's.
 *   lives     nothing but locks, by which the kernel tells who is alive (lives.h).
 *
 * Since all write the grant, nothing in it tells who wrote it. While somebody writes there what none of them may, vGPUs
 * are apart: each has a grant of its own, in its own object, and the daemon hands over among them (apart.h).
 *
 * So a worker that was taken over changes no standing, no quota and no account but its vGPU's. It learns nothing of
 * others' data: there is no pointer in it, and the daemon reads it as it reads a region: once, bounded.
 */
#ifndef BACKEND_HOST_LAYOUT_H
#define BACKEND_HOST_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "generated/counters.h"

#define FGW_CONTROL_MAGIC   UINT64_C(0x314c525456474600)
#define FGW_CONTROL_VERSION 24u
#define FGW_MAX_VGPUS       64u
#define FGW_MAX_WORKERS     256u
#define FGW_PAGE_BYTES      4096u
#define FGW_WORKER_WORDS    (FGW_MAX_WORKERS / 64u)
#define FGW_NOBODY          0u /* vGPU numbers in `grant` are index + 1 */

/* The grant word: holder in bits 0..15, closed flag in bit 16, why it was closed in bits 17..19 and in which phase the
 * worker was that closed it in bits 20..23, a sequence number in the upper half that changes with every hand-over. */
#define FGW_GRANT_CLOSED                 (UINT64_C(1) << 16)
#define FGW_GRANT_WHY(word)              ((uint32_t)((word) >> 17) & 7u)
#define FGW_GRANT_PHASE(word)            ((uint32_t)((word) >> 20) & 15u)
#define FGW_GRANT_CLOSED_FOR(why, phase) (FGW_GRANT_CLOSED | (uint64_t)(why) << 17 | (uint64_t)((phase) & 15u) << 20)
#define FGW_GRANT_SEQUENCE(word)         ((uint32_t)((word) >> 32))
#define FGW_GRANT_WORD(sequence, holder) (((uint64_t)(uint32_t)(sequence) << 32) | (uint64_t)(holder))

/* Gives the number of the vGPU that holds the grant. Any worker may have written any number: that of no vGPU is nobody,
 * so the grant is free for whoever asks next. */
static inline uint32_t fgw_grant_holder(uint64_t word)
{
    const uint32_t number = (uint32_t)word & 0xffffu;
    return number <= FGW_MAX_VGPUS ? number : FGW_NOBODY;
}

/* It has a bit for each worker slot. */
struct fgw_worker_set {
    _Atomic uint64_t words[FGW_WORKER_WORDS];
};

/* ---- decided ---- */

/* Of these a vGPU may have so many, all of its workers together. */
enum fgw_limited {
    FGW_LIMITED_CONTEXTS = 0,
    FGW_LIMITED_STREAMS = 1,
    FGW_LIMITED_MODULES = 2,
    FGW_LIMITED_IMAGE_BYTES = 3, /* of host memory */
    FGW_NR_LIMITED = 4,
};

/* What a vGPU is to those of its space: see space.h. */
enum fgw_class { FGW_CLASS_FAIR = 0, FGW_CLASS_CRITICAL = 1, FGW_CLASS_BEST_EFFORT = 2 };

/* How far the workers of a vGPU that changes its Gpu are to go: see motion.h. */
enum fgw_motion {
    FGW_MOTION_NONE = 0,
    FGW_MOTION_PREPARE = 1, /* by a checkpoint */
    FGW_MOTION_STAND = 2,
    FGW_MOTION_COPY = 3, /* by replay */
    FGW_MOTION_CHANGE = 4,
};

/* at_none + per_ns * what it was charged: the least goes first. Of equals, who has waited longest. One of a vGPU's two
 * counts while the next one is written into the other: parts of two would be wrong by what its growth changed by, times
 * all that it was ever charged. */
struct fgw_decided_standing {
    _Atomic double at_none, per_ns;
};

struct fgw_decided_vgpu {
    _Alignas(64) _Atomic uint32_t is_used;
    _Atomic uint32_t generation;   /* another one for each vGPU that has had this place, from 1 on */
    _Atomic uint64_t quota_bytes;  /* of the memory that its workers allocate together; 0: none */
    struct fgw_worker_set members; /* its workers */
    struct fgw_decided_standing standings[2];
    _Atomic uint32_t nr_standings;         /* so many were told: standings[nr_standings % 2] counts */
    _Atomic uint32_t is_urgent;            /* a critical one: what it is ahead of its turns is below its bound */
    _Atomic uint64_t budget_ns;            /* how long its turn may last while others wait; 0: a slice */
    _Atomic uint64_t most[FGW_NR_LIMITED]; /* 0: no limit */
    _Atomic uint32_t limit_permille;       /* of the GPU it uses at most so many thousandths; 0: no limit */
    _Atomic uint32_t suspension;           /* odd: its memory is to leave the device; see room.h */
    _Atomic uint32_t motion;               /* enum fgw_motion */
    _Atomic uint16_t class_number;         /* enum fgw_class */
    _Atomic uint16_t space;                /* its number, which vGPUs of one space share; 0: it is in none */
    _Atomic uint32_t split;                /* a critical one: what its rounds ask of best effort; see space.h */
};
_Static_assert(sizeof(struct fgw_decided_vgpu) == 192, "vGPU");

enum fgw_worker_state { FGW_WORKER_FREE = 0, FGW_WORKER_WARM = 1, FGW_WORKER_SERVING = 2, FGW_WORKER_ENDED = 3 };

/* How far a suspended worker is to go whose contexts leave the device, too: see sleep.h. */
enum fgw_sleep {
    FGW_SLEEP_NONE = 0,
    FGW_SLEEP_STAND = 1,  /* it is to stand: they leave, or come back */
    FGW_SLEEP_ASLEEP = 2, /* they have left */
};

/* PATIENT: the VM is paused, a beat that stands still means nothing. */
enum fgw_worker_command { FGW_WORKER_RUN = 0, FGW_WORKER_PATIENT = 1 };

struct fgw_decided_worker {
    _Atomic uint32_t state;          /* enum fgw_worker_state: SERVING once it has a vGPU and a client */
    _Atomic uint32_t pid;            /* as the daemon sees it, for people; 0: not known yet */
    _Atomic uint32_t vgpu;           /* index */
    _Atomic uint32_t client;         /* index in the region */
    _Atomic uint32_t command;        /* enum fgw_worker_command */
    _Atomic uint32_t motion_device;  /* where a motion leads to: the ordinal of a device, as this worker counts them */
    _Atomic uint64_t target_bytes;   /* so much of its linear memory may be on the device: room.h */
    _Atomic uint64_t withheld_bytes; /* of what may be on the device, that others have for good */
    _Atomic uint64_t laid_bytes;     /* that its contexts took of the device, as they left it */
    _Atomic uint32_t sleep;          /* enum fgw_sleep */
    uint32_t reserved;
};

struct fgw_decided {
    uint64_t magic;
    uint32_t version;
    uint32_t is_preemptive;   /* the device */
    uint64_t counters_layout; /* FGW_COUNTERS_LAYOUT */
    _Atomic uint64_t slice_ns;
    _Atomic uint32_t epoch; /* of the grant: odd while vGPUs are apart */
    uint32_t reserved;
    /* Linear memory of all workers together: so much may be on the device, and so much may be allocated; 0: whatever
     * the driver has. */
    _Atomic uint64_t capacity_bytes, allocatable_bytes;
    _Atomic uint64_t spare_bytes; /* beside each program's memory, as the daemon last saw it: room.h */
    struct fgw_decided_vgpu vgpus[FGW_MAX_VGPUS];
    struct fgw_decided_worker workers[FGW_MAX_WORKERS];
};

/* ---- grant ---- */

/* What a hand-over changes of a vGPU. */
struct fgw_seat {
    /* Futex of its workers that wait for the grant: changes when the vGPU gets it, or it became free */
    _Atomic uint32_t bell;
    _Atomic uint32_t nr_unused; /* grants that it did not use: it pays for the time that each kept others waiting */
    _Atomic uint64_t nr_grants;
    _Atomic uint64_t spared_until_ns; /* as the holder: another vGPU's work kept it off the device; CLOCK_MONOTONIC */
    uint64_t reserved;
};

/* Why a grant went on. */
enum fgw_why {
    FGW_WHY_FREE = 0,    /* nobody had it */
    FGW_WHY_SLICE = 1,   /* the slice was over */
    FGW_WHY_IDLE = 2,    /* the holder had nothing more to submit */
    FGW_WHY_UNUSED = 3,  /* none of the holder's workers came for it */
    FGW_WHY_EVICTED = 4, /* the daemon took it */
    FGW_WHY_DIED = 5,    /* the holder's last user died */
    FGW_WHY_LIMIT = 6,   /* the holder had what its limit lets it have */
    FGW_WHY_LAST = FGW_WHY_LIMIT,
};

/* One hand-over, kept under its sequence number. Whoever handed over writes it, and the first worker that enters adds
 * when. */
struct fgw_hand_over {
    _Atomic uint32_t sequence;     /* of the grant that came of it */
    _Atomic uint16_t why;          /* enum fgw_why */
    _Atomic uint16_t phase;        /* of the worker that closed it, 0 where none of the giver's did */
    _Atomic uint32_t giver, taker; /* vGPU index + 1, 0 for nobody */
    _Atomic uint64_t at_ns;        /* CLOCK_MONOTONIC */
    _Atomic uint64_t entered;      /* bits as in slice_start */
};
_Static_assert(sizeof(struct fgw_hand_over) == 32, "hand-over");

#define FGW_NR_HAND_OVERS 256u /* that are kept; divides 2^32 */

struct fgw_grant {
    /* Looked at for every launch. */
    _Atomic uint64_t word;
    /* When the holder got it: low 16 bits of the sequence above 48 bits of CLOCK_MONOTONIC */
    _Atomic uint64_t slice_start;
    struct fgw_worker_set users; /* workers that may submit, or whose work has to end before others may */
    uint8_t pad0[16];
    /* Looked at by a holder to learn whether anybody else wants the GPU. */
    struct fgw_worker_set waiting; /* workers that want the grant and do not have it */
    /* Futex the daemon sleeps on: changes when somebody waits or the grant changed hands */
    _Atomic uint32_t daemon_bell;
    _Atomic uint32_t boost_bell; /* Futex of the daemon's booster: changes when the GPU goes to an interactive vGPU */
    uint8_t pad1[24];
    struct fgw_worker_set running;     /* workers with work on the device, with the grant or without */
    struct fgw_worker_set interactive; /* workers whose clients wait for the GPU so often that coscheduling pays */
    struct fgw_seat seats[FGW_MAX_VGPUS];
    struct fgw_hand_over hand_overs[FGW_NR_HAND_OVERS];
};
_Static_assert(sizeof(struct fgw_grant) ==
                   192 + FGW_MAX_VGPUS * sizeof(struct fgw_seat) + FGW_NR_HAND_OVERS * sizeof(struct fgw_hand_over),
               "grant");

/* ---- account ---- */

/* Memory that several of a vGPU's workers have, each of which counts all of it: see shares.h. */
struct fgw_share {
    _Atomic uint64_t name; /* 0: this place is free */
    _Atomic uint64_t bytes;
    struct fgw_worker_set holders;
};

#define FGW_MAX_SHARES 1024u

/* All workers may read it. */
struct fgw_account {
    _Atomic uint64_t used_ns;          /* GPU time charged so far */
    _Atomic uint64_t held_ns;          /* that it kept the grant from others without using the GPU */
    _Atomic uint64_t charged_until_ns; /* the union of its workers' busy times is charged up to here; CLOCK_MONOTONIC */
    _Atomic uint64_t waiting_since_ns; /* when its first worker began to wait; CLOCK_MONOTONIC */
    _Atomic uint64_t limited_until_ns; /* what it was charged lasts so long at its limit: see allowance.h */
    _Atomic uint64_t out_of_turn_ns;   /* of used_ns, by a critical one: see account.c */
    _Atomic uint32_t has_long_turns;   /* its last turn took its slice, or nearly */
    _Atomic uint32_t
        split; /* a critical one: what stands in the split word of its space; another: that leaves it no place */
    _Atomic uint64_t allocated_bytes[FGW_MAX_WORKERS]; /* by the client of each of its workers */
    struct fgw_share shares[FGW_MAX_SHARES];
    _Atomic uint32_t nr_shares; /* of their places, that were ever used: the first ones */
    uint8_t pad[FGW_PAGE_BYTES - 60 - 8 * FGW_MAX_WORKERS];
};
_Static_assert(sizeof(struct fgw_account) == FGW_PAGE_BYTES + sizeof(struct fgw_share) * FGW_MAX_SHARES, "account");
_Static_assert(sizeof(struct fgw_account) % FGW_PAGE_BYTES == 0, "of whole pages");

/* Why a worker's memory has to stay on the device. */
enum fgw_keeps {
    FGW_KEEPS_NOT = 0,
    FGW_KEEPS_FOR_WORK = 1,    /* it has work there, or what waits in a stream */
    FGW_KEEPS_SHARED = 2,      /* other programs have it open, or it has theirs */
    FGW_KEEPS_FOR_CAPTURE = 3, /* it makes a graph */
    FGW_KEEPS_FOR_HOST = 4,    /* the host has no memory for it, or no call of the driver's went well */
    FGW_KEEPS_LAST = FGW_KEEPS_FOR_HOST,
};

/* Why replay does not move a worker's program: bits. */
enum fgw_bound {
    FGW_BOUND_VARIABLES = 1u << 0, /* of modules, at addresses that the driver chose */
    FGW_BOUND_FUNCTIONS = 1u << 1, /* whose addresses it took */
    FGW_BOUND_HEAP = 1u << 2,      /* of the device */
    FGW_BOUND_NESTED = 1u << 3,    /* kernels that launch kernels */
    FGW_BOUND_IMAGES = 1u << 4,    /* one was not kept, or cannot be read */
    FGW_BOUND_GRAPHS = 1u << 5,
    FGW_BOUND_ARRAYS = 1u << 6, /* and textures, surfaces */
    FGW_BOUND_MEMORY = 1u << 7, /* that the driver placed */
    FGW_BOUND_SHARED = 1u << 8, /* memory of several programs */
    FGW_BOUND_LINKS = 1u << 9,
    FGW_BOUND_DEVICE = 1u << 10,    /* its process does not reach the other one */
    FGW_BOUND_OBJECTS = 1u << 11,   /* one did not come out equal */
    FGW_BOUND_ADDRESSES = 1u << 12, /* of module variables, which it passed to kernels or has in memory */
    FGW_BOUND_MANAGED = 1u << 13,   /* module variables that no checkpoint takes either */
};

/* How far a worker is whose vGPU changes its Gpu. */
enum fgw_stage { FGW_STAGE_RUNS = 0, FGW_STAGE_PREPARED = 1, FGW_STAGE_STANDS = 2, FGW_STAGE_LAST = FGW_STAGE_STANDS };

#define FGW_NR_ROUNDS 32u /* that are kept; divides 2^64 */

/* Of a critical program: from its first submission when it had nothing on the device to the end of all of it. */
struct fgw_round {
    _Atomic uint64_t what; /* by what it did, a hash, above the split that it asked for */
    _Atomic uint64_t took_ns;
};

/* What a worker tells of itself. Slots share no line of the cache. */
struct fgw_worker_slot {
    _Alignas(64) _Atomic uint32_t state; /* enum fgw_worker_state: SERVING or ENDED once it is */
    _Atomic uint32_t asker;              /* who of the guest waited last, as the guest says: see struct fgv_client */
    _Atomic uint64_t stalled_since_ns;   /* work is on the device, and none has ended since; 0: there is none */
    FGW_COUNTERS;                        /* of counters.toml */
    char program[64];
    _Atomic uint32_t phase;         /* as fgw_phase_word names them */
    _Atomic uint32_t epoch;         /* of the grant that it goes by: see apart.h */
    _Atomic uint32_t is_in;         /* it uses that, or looks whether it may */
    _Atomic uint32_t keeps;         /* enum fgw_keeps */
    _Atomic uint32_t returned;      /* the suspension that it came back from by itself */
    _Atomic uint32_t stage;         /* enum fgw_stage */
    _Atomic uint32_t bound;         /* enum fgw_bound */
    _Atomic uint64_t refused_bytes; /* the driver has no room for these, which the target allows; 0: it has */
    _Atomic uint64_t
        displaced_since_ns;       /* it has something to submit, and its memory is not on the device; 0: not so */
    _Atomic uint64_t ahead_bytes; /* of its memory, that are on the device that it goes to, too */
    _Atomic uint64_t
        uncharged_since_ns;       /* it has work on the device, which is not charged from then on; 0: it has none */
    _Atomic uint64_t fixed_bytes; /* of the device, that it takes beside linear memory */
    struct fgw_round rounds[FGW_NR_ROUNDS]; /* the newest of nr_rounds */
};

/* A vGPU's own pages. */
struct fgw_own {
    struct fgw_account account;
    struct fgw_worker_slot workers[FGW_MAX_WORKERS];
    struct fgw_grant grant; /* that it goes by while vGPUs are apart */
};

/* ---- as one process sees it ---- */

struct fgw_control {
    struct fgw_decided *decided;
    struct fgw_grant *_Atomic grant; /* that this process goes by: `shared`, or another while vGPUs are apart */
    struct fgw_grant *shared;
    struct fgw_account *accounts[FGW_MAX_VGPUS]; /* a worker may write its own vGPU's alone */
    struct fgw_own *own[FGW_MAX_VGPUS];          /* NULL: not this process's to see */
    int lives;                                   /* the file by which the kernel tells who is alive (lives.h) */
    int life;                                    /* this process's own */
    /* A daemon's: how often it has set each vGPU's limit, counted once that is done */
    _Atomic uint32_t nr_limits[FGW_MAX_VGPUS];
};

#endif
