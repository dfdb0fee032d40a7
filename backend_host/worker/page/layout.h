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
 * A worker can be taken over by its guest in the worst case. Every worker maps the page writable, so such a one can
 * keep the GPU until it is evicted, hand it on wrongly, and write standings and accounts, those of others too. It
 * learns nothing of others' data: the page has no pointer, and the daemon reads it as it reads a region: once, bounded.
 */
#ifndef BACKEND_HOST_LAYOUT_H
#define BACKEND_HOST_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "generated/counters.h"

#define FGW_CONTROL_MAGIC   UINT64_C(0x314c525456474600)
#define FGW_CONTROL_VERSION 8u
#define FGW_MAX_VGPUS       64u
#define FGW_MAX_WORKERS     256u
#define FGW_WORKER_WORDS    (FGW_MAX_WORKERS / 64u)
#define FGW_NOBODY          0u /* vGPU numbers in `grant` are index + 1 */

/* The grant word: holder in bits 0..15, closed flag in bit 16, a sequence number in the upper half that changes with
 * every hand-over. */
#define FGW_GRANT_HOLDER(word)           ((uint32_t)(word) & 0xffffu)
#define FGW_GRANT_CLOSED                 (UINT64_C(1) << 16)
#define FGW_GRANT_SEQUENCE(word)         ((uint32_t)((word) >> 32))
#define FGW_GRANT_WORD(sequence, holder) (((uint64_t)(uint32_t)(sequence) << 32) | (uint64_t)(holder))

/* It has a bit for each worker slot. */
struct fgw_worker_set {
    _Atomic uint64_t words[FGW_WORKER_WORDS];
};

struct fgw_vgpu_slot {
    _Atomic uint32_t is_used;
    /* Futex of its workers that wait for the grant: changes when the vGPU gets it, or it became free */
    _Atomic uint32_t bell;
    _Atomic uint32_t has_long_turns; /* its last turn took its slice, or nearly */
    uint32_t reserved0;
    _Atomic uint64_t waiting_since_ns; /* when its first worker began to wait; CLOCK_MONOTONIC */
    _Atomic uint64_t used_ns;          /* GPU time charged so far */
    _Atomic uint64_t charged_until_ns; /* the union of its workers' busy times is charged up to here; CLOCK_MONOTONIC */
    _Atomic uint64_t nr_grants;
    _Atomic uint64_t quota_bytes;  /* of the memory that its workers allocate together; 0: none */
    struct fgw_worker_set members; /* its workers */
    /* standing + standing_per_ns * (used_ns + held_ns): the least goes first. Of equals, who has waited longest. */
    _Atomic double standing;
    _Atomic double standing_per_ns;
    _Atomic uint64_t held_ns; /* that it kept the grant from others without using the GPU */
    uint8_t pad[16];
};
_Static_assert(sizeof(struct fgw_vgpu_slot) == 128, "vgpu slot");

enum fgw_worker_state { FGW_WORKER_FREE = 0, FGW_WORKER_WARM = 1, FGW_WORKER_SERVING = 2, FGW_WORKER_ENDED = 3 };

/* PATIENT: the VM is paused, a beat that stands still means nothing. */
enum fgw_worker_command { FGW_WORKER_RUN = 0, FGW_WORKER_PATIENT = 1 };

/* Slots share no line of the cache. */
struct fgw_worker_slot {
    _Alignas(64) _Atomic uint32_t state;
    _Atomic uint32_t pid;
    _Atomic uint32_t vgpu;             /* index */
    _Atomic uint32_t client;           /* index in the region */
    _Atomic uint32_t command;          /* enum fgw_worker_command, set by the daemon */
    _Atomic uint32_t asker;            /* who of the guest waited last, as the guest says: see struct fgv_client */
    _Atomic uint64_t stalled_since_ns; /* work is on the device, and none has ended since; 0: there is none */
    FGW_COUNTERS;                      /* of counters.toml */
    char program[64];
    _Atomic uint32_t phase; /* as fgw_phase_word names them */
};

struct fgw_control {
    uint64_t magic;
    uint32_t version;
    uint32_t is_preemptive; /* the device */
    _Atomic uint64_t slice_ns;
    uint64_t counters_layout; /* FGW_COUNTERS_LAYOUT */
    uint8_t pad0[32];
    /* Looked at for every launch. */
    _Atomic uint64_t grant;
    /* When the holder got it: low 16 bits of the sequence above 48 bits of CLOCK_MONOTONIC */
    _Atomic uint64_t slice_start;
    struct fgw_worker_set users; /* workers that may submit, or whose work has to end before others may */
    uint8_t pad1[16];
    /* Looked at by a holder to learn whether anybody else wants the GPU. */
    /* Futex the daemon sleeps on: changes when somebody waits or the grant changed hands */
    _Atomic uint32_t daemon_bell;
    _Atomic uint32_t daemon_pid;
    uint64_t reserved1;
    struct fgw_worker_set waiting; /* workers that want the grant and do not have it */
    _Atomic uint32_t boost_bell;   /* Futex of the daemon's booster: changes when the GPU goes to an interactive vGPU */
    uint8_t pad2[12];
    struct fgw_worker_set running;     /* workers with work on the device, with the grant or without */
    struct fgw_worker_set interactive; /* workers whose clients wait for the GPU so often that coscheduling pays */
    struct fgw_vgpu_slot vgpus[FGW_MAX_VGPUS];
    struct fgw_worker_slot workers[FGW_MAX_WORKERS];
};
_Static_assert(sizeof(struct fgw_control) == 256 + FGW_MAX_VGPUS * sizeof(struct fgw_vgpu_slot) +
                                                 FGW_MAX_WORKERS * sizeof(struct fgw_worker_slot),
               "control page");

#endif
