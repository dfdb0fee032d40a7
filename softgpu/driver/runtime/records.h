/* A runner and the blocks it runs: plain data, and what its files offer each other. Only runtime/ includes this. */
#ifndef SOFTGPU_RUNTIME_RECORDS_H
#define SOFTGPU_RUNTIME_RECORDS_H

#include <signal.h>

#include "device/device.h"
#include "runtime/runtime.h"

#define SGP_NR_BARRIERS       16u
#define SGP_BLOCK_STACK_BYTES (1u << 20) /* of a call that runs a whole block */
#define SGP_NR_WARPS          (SGP_MAX_BLOCK_THREADS / SGP_WARP_THREADS)
/* No device has more at once: 32 on each multiprocessor. */
#define SGP_MAX_RESIDENT_BLOCKS (32u * SGP_NR_MULTIPROCESSORS)

struct sgp_matrix_part;
struct sgp_runner;
struct sgp_team;

/* One CUDA thread, as a fiber. Compiled code knows the pointer alone. */
struct sgp_thread {
    void *stack_pointer;     /* while it does not run */
    struct sgp_thread *next; /* in the run queue, or among those who wait at a barrier */
    struct sgp_team *team;
    void *stack;    /* the top of it */
    uint32_t index; /* in the block */
    uint32_t predicate;
    uint32_t result; /* of what it waited for */
    uint32_t member_mask;
    uint64_t value;
    uint64_t *values;
    uint32_t nap_ns;              /* asked for since its last turn */
    uintptr_t place;              /* where it waits to see who comes along; 0: nowhere */
    struct sgp_matrix_part *part; /* what it brings to an operation on matrices; NULL: it is at none */
};

struct sgp_barrier {
    struct sgp_thread *waiting;
    struct sgp_thread **last;
    uint32_t nr_required; /* 0: every living thread */
    uint32_t nr_arrived;
    uint32_t nr_counted; /* as the hardware counts: whole warps, their missing and exited threads included */
    uint32_t all;
    uint32_t any;
    uint32_t population;
    uint32_t arrived_lanes[SGP_NR_WARPS];
};

struct sgp_warp_group {
    uint32_t member_mask;
    uint32_t arrived;
};

struct sgp_warp {
    uint32_t alive;
    uint32_t nr_groups;
    struct sgp_warp_group groups[SGP_WARP_THREADS];
};

/* A block that runs, and what it needs: fibers' stacks and shared memory. One after another, blocks use the same team.
 */
struct sgp_team {
    struct sgp_runner *runner;
    uint32_t multiprocessor; /* where it has a place, in a space; or SGP_NO_PLACE */
    const struct sgp_kernel *kernel;
    struct sgp_block block;
    void (*thread_main)(void *thread);
    struct sgp_thread *queue; /* threads that can go on */
    struct sgp_thread **queue_last;
    uint32_t nr_threads;
    uint32_t nr_alive;
    uint32_t nr_started;
    uint32_t nr_yields;       /* since the block last left the CPU to others */
    uint32_t nap_ns;          /* the least that these threads asked for */
    uint32_t active_barriers; /* bit per barrier that somebody arrived at */
    struct sgp_barrier barriers[SGP_NR_BARRIERS];
    struct sgp_warp warps[SGP_NR_WARPS];
    struct sgp_thread threads[SGP_MAX_BLOCK_THREADS];
    uint8_t *shared_memory;
    void *context; /* what threads keep across barriers in whole-block calls */
    uint64_t context_bytes;
    uint8_t *stacks;
    uint64_t stack_bytes;
    uint64_t stack_mapping_bytes;
    uint32_t nr_stacks;
    uint32_t nr_guards;
    uint32_t nr_free_stacks;
    void **free_stacks;
    void *left_stack; /* of the thread that ended last: free once it has been switched away from */
};

struct sgp_runner {
    struct sgp_runner *next_free;
    uint32_t index;
    struct sgp_grid *grid;
    /* Blocks of kernels that never spin use the first team alone; the others are made when they are needed. */
    struct sgp_team *teams[SGP_MAX_RESIDENT_BLOCKS];
    uint32_t nr_teams;
    void *home;                         /* stack pointer of the runner's own flow while a fiber runs */
    volatile sig_atomic_t is_in_kernel; /* a fault now is the kernel's */
    uint64_t asked_ns;                  /* when it last asked for a place */
    bool waits;                         /* and was refused */
    CUresult error;
    void *fault_address;  /* of the last fault, for the log */
    uint8_t *block_stack; /* for whole-block calls */
};

/* The runner of this thread while it runs blocks. Read by the signal handler: a static offset, never allocated late. */
extern __thread struct sgp_runner *sgp_runner_current __attribute__((tls_model("initial-exec")));

/* fiber.S: saves what a call must preserve on the stack, stores the stack pointer in *from and goes on at `to`. */
void sgp_fiber_switch(void **from, void *to);
/* Goes on at `to` for ever. Reached from a signal handler, too, through the changed context. */
__attribute__((noreturn)) void sgp_fiber_jump(void *to);
/* A stack on which the first switch calls entry(argument). */
void *sgp_fiber_prepare(void *stack_top, void (*entry)(void *), void *argument);

/* runner.c */
struct sgp_runner *sgp_runner_take(void); /* NULL: no memory */
void sgp_runner_give(struct sgp_runner *runner);
/* The runner's team of this number, ready for blocks of the runner's launch; NULL: no memory. */
struct sgp_team *sgp_runner_team(struct sgp_runner *runner, uint32_t number);
/* Ends the block that this runner runs: abandons its fibers and goes home. From inside a kernel. */
__attribute__((noreturn)) void sgp_runner_abandon(struct sgp_runner *runner, CUresult error);

/* team.c */
struct sgp_team *sgp_team_new(struct sgp_runner *runner);
void sgp_team_delete(struct sgp_team *team);
bool sgp_team_prepare(struct sgp_team *team, const struct sgp_grid *grid);
uint8_t *sgp_team_shared(const struct sgp_team *team, uint64_t bytes);

/* grid.c */
/* Runs all blocks, here. */
CUresult sgp_grid_run(struct sgp_grid *grid);

/* direct.c */
/* The whole launch in this process, by these services. */
CUresult sgp_launch_here(struct sgp_grid *grid, int device, const struct sgp_services *services);
/* The driver's own, which have the context. */
extern const struct sgp_services sgp_services_direct;

/* block.c */
enum sgp_progress {
    SGP_ENDED,
    SGP_SPINS, /* its threads wait for each other or for other blocks: let those run, then go on */
    SGP_FAILED /* the runner says why */
};

void sgp_block_begin(struct sgp_team *team, struct sgp_grid *grid, uint64_t number);
enum sgp_progress sgp_block_go_on(struct sgp_team *team);
void sgp_block_fail(const struct sgp_team *team, struct sgp_grid *grid); /* as its runner says */

/* thread.c */
struct sgp_thread *sgp_thread_next(struct sgp_team *team); /* takes the one to run; NULL: nobody can */
void sgp_thread_ready(struct sgp_team *team, struct sgp_thread *thread);
void sgp_thread_wait(struct sgp_thread *thread);             /* until somebody makes it ready */
void sgp_thread_yield(struct sgp_thread *thread);            /* until the others had their turn */
void sgp_thread_nap(struct sgp_thread *thread, uint32_t ns); /* with its next turn */

/* places.c; in spaces, elsewhere they do nothing */
/* Asks for a place, in exchange for the one that the team has; false: there is none yet, and it has none. */
bool sgp_place_try(struct sgp_grid *grid, struct sgp_runner *runner, struct sgp_team *team);
/* Sees to it that the team has a place for its next block, and waits if there is none; false: the launch has failed, or
 * the runner has no block yet and none is left. */
bool sgp_place_keep(struct sgp_grid *grid, struct sgp_runner *runner, struct sgp_team *team, bool has_block);
void sgp_place_leave(struct sgp_grid *grid, struct sgp_team *team);
/* The runner does not wait for a place any more. */
void sgp_place_give_up(struct sgp_grid *grid, struct sgp_runner *runner);

/* resident.c */
void sgp_resident_run(struct sgp_grid *grid, struct sgp_runner *runner);

/* barrier.c, warp.c */
enum { SGP_BARRIER_AND, SGP_BARRIER_OR, SGP_BARRIER_COUNT };

uint32_t sgp_barrier_wait(struct sgp_thread *self, uint32_t number, uint32_t nr_required, uint32_t operation,
                          uint32_t predicate);
void sgp_barrier_arrive(struct sgp_thread *self, uint32_t number, uint32_t nr_required);
void sgp_barrier_thread_exited(struct sgp_team *team, const struct sgp_thread *thread);
uint32_t sgp_warp_exchange(struct sgp_thread *self, uint32_t member_mask, uint64_t value, uint64_t values[32]);
uint32_t sgp_warp_converge(struct sgp_thread *self, uintptr_t place);
void sgp_warp_thread_exited(struct sgp_team *team, const struct sgp_thread *thread);

static inline uint32_t sgp_warp_size(const struct sgp_team *team, uint32_t warp) /* threads the block has in it */
{
    uint32_t rest = team->nr_threads - warp * SGP_WARP_THREADS;

    return rest < SGP_WARP_THREADS ? rest : SGP_WARP_THREADS;
}

/* texture.c, surface.c: of kernel_abi.h */
void sgp_texture_fetch(struct sgp_thread *self, uint64_t value, uint32_t form, const uint32_t *operands,
                       uint32_t *channels);
uint32_t sgp_texture_query(struct sgp_thread *self, uint64_t value, uint32_t query, uint32_t level);
void *sgp_surface_address(struct sgp_thread *self, uint64_t value, uint32_t form, const int32_t *operands,
                          uint32_t nr_bytes);

/* matrix.c, matrix_move.c: of kernel_abi.h */
void sgp_matrix_multiply(struct sgp_thread *self, uint64_t form, uint32_t *registers);
void sgp_matrix_move(struct sgp_thread *self, uint32_t form, void *row, uint32_t *registers);

/* services.c */
extern const struct sgp_runtime sgp_runtime_table;

/* format.c */
/* What vprintf of a kernel prints; the number of arguments, or -1 where there is no format. */
int sgp_printf_format(const char *format, const uint8_t *arguments, char *text, size_t text_bytes, size_t *length);

/* fault.c */
void sgp_fault_handlers_install(void);

#endif
