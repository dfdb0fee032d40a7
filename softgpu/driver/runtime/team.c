/*
 * What a running block needs: stacks for its fibers or memory for what its threads keep, and shared memory.
 *
 * Each stack ends in a page without access, as long as the process has mappings to spare (Linux allows 65,530): a
 * kernel that recurses too deep faults instead of writing into its neighbour. Stacks start at staggered offsets: at
 * equal ones, the tops of all stacks would compete for the same few lines of the cache. Shared memory lies at the
 * end of its pages, so that a kernel that leaves it upwards faults.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/reach.h"
#include "runtime/records.h"

#define MAX_GUARDS          24000u
#define STAGGER_BYTES       128u
#define NR_STAGGERS         32u
#define SHARED_MEMORY_BYTES 167936u
#define SHARED_ALIGNMENT    256u

static uint32_t nr_guards; /* of all teams */
static pthread_mutex_t guards_lock = PTHREAD_MUTEX_INITIALIZER;

extern char sgp_fiber_start[];

void *sgp_fiber_prepare(void *stack_top, void (*entry)(void *), void *argument)
{
    uintptr_t *at = (uintptr_t *)((uintptr_t)stack_top & ~(uintptr_t)15);

    *--at = 0; /* where the entry would return to, and the 16-byte alignment of calls */
    *--at = 0;
    *--at = (uintptr_t)sgp_fiber_start;
    *--at = 0;                   /* rbp */
    *--at = 0;                   /* rbx */
    *--at = (uintptr_t)entry;    /* r12 */
    *--at = (uintptr_t)argument; /* r13 */
    *--at = 0;                   /* r14 */
    *--at = 0;                   /* r15 */
    return at;
}

struct sgp_team *sgp_team_new(struct sgp_runner *runner)
{
    struct sgp_team *team = calloc(1, sizeof(*team));
    uint64_t bytes = SHARED_MEMORY_BYTES + SGP_PAGE_BYTES;

    if (!team) {
        return NULL;
    }
    team->runner = runner;
    team->multiprocessor = SGP_NO_PLACE;
    team->shared_memory = sgp_reach_map(bytes, PROT_NONE, MAP_NORESERVE);
    if (!team->shared_memory) {
        free(team);
        return NULL;
    }
    if (mprotect(team->shared_memory, SHARED_MEMORY_BYTES, PROT_READ | PROT_WRITE)) {
        sgp_reach_unmap(team->shared_memory, bytes);
        free(team);
        return NULL;
    }
    return team;
}

/* Of this many more guards, how many the process can afford. */
static uint32_t guards_reserve(uint32_t nr)
{
    pthread_mutex_lock(&guards_lock);
    if (nr_guards + nr > MAX_GUARDS) {
        nr = 1;
    }
    nr_guards += nr;
    pthread_mutex_unlock(&guards_lock);
    return nr;
}

static void guards_release(uint32_t nr)
{
    pthread_mutex_lock(&guards_lock);
    nr_guards -= nr;
    pthread_mutex_unlock(&guards_lock);
}

static void stacks_unmap(struct sgp_team *team)
{
    if (team->stacks) {
        sgp_reach_unmap(team->stacks, team->stack_mapping_bytes);
    }
    guards_release(team->nr_guards);
    free(team->free_stacks);
    team->stacks = NULL;
    team->free_stacks = NULL;
    team->nr_stacks = 0;
    team->nr_guards = 0;
}

static void context_unmap(struct sgp_team *team)
{
    if (team->context) {
        sgp_reach_unmap(team->context, team->context_bytes);
    }
}

void sgp_team_delete(struct sgp_team *team)
{
    stacks_unmap(team);
    sgp_reach_unmap(team->shared_memory, SHARED_MEMORY_BYTES + SGP_PAGE_BYTES);
    context_unmap(team);
    free(team);
}

static bool stacks_map(struct sgp_team *team, uint32_t nr, uint64_t stack_bytes)
{
    uint64_t usable =
        (stack_bytes + NR_STAGGERS * STAGGER_BYTES + SGP_PAGE_BYTES - 1) / SGP_PAGE_BYTES * SGP_PAGE_BYTES;
    uint64_t stride = usable + SGP_PAGE_BYTES;

    stacks_unmap(team);
    team->free_stacks = malloc(nr * sizeof(*team->free_stacks));
    team->stacks = sgp_reach_map(nr * stride, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    team->stack_mapping_bytes = nr * stride;
    if (!team->free_stacks || !team->stacks) {
        stacks_unmap(team);
        return false;
    }
    team->nr_stacks = nr;
    team->stack_bytes = stack_bytes;
    team->nr_guards = guards_reserve(nr);
    for (uint32_t i = 0; i < team->nr_guards; i++) {
        if (mprotect(team->stacks + i * stride, SGP_PAGE_BYTES, PROT_NONE)) {
            break;
        }
    }
    return true;
}

static void stacks_all_free(struct sgp_team *team)
{
    uint64_t stride = team->stack_mapping_bytes / team->nr_stacks;

    team->left_stack = NULL;
    team->nr_free_stacks = team->nr_stacks;
    for (uint32_t i = 0; i < team->nr_stacks; i++) { /* the last one is taken first */
        team->free_stacks[team->nr_stacks - 1 - i] =
            team->stacks + (i + 1) * stride - (i % NR_STAGGERS) * STAGGER_BYTES;
    }
}

static bool context_reserve(struct sgp_team *team, uint64_t bytes)
{
    if (bytes <= team->context_bytes) {
        return true;
    }
    bytes = (bytes + SGP_PAGE_BYTES - 1) / SGP_PAGE_BYTES * SGP_PAGE_BYTES;
    context_unmap(team);
    team->context = sgp_reach_map(bytes, PROT_READ | PROT_WRITE, 0);
    team->context_bytes = team->context ? bytes : 0;
    return team->context;
}

bool sgp_team_prepare(struct sgp_team *team, const struct sgp_grid *grid)
{
    uint32_t nr = grid->block_dim[0] * grid->block_dim[1] * grid->block_dim[2];

    team->kernel = grid->kernel;
    memset(team->barriers, 0, sizeof(team->barriers));
    for (uint32_t i = 0; i < nr; i++) {
        team->threads[i].team = team;
        team->threads[i].index = i;
        team->threads[i].place = 0;
    }
    if (!grid->kernel->needs_threads) {
        return context_reserve(team, (uint64_t)nr * grid->kernel->context_bytes);
    }
    if ((team->nr_stacks < nr || team->stack_bytes < grid->stack_bytes) && !stacks_map(team, nr, grid->stack_bytes)) {
        return false;
    }
    stacks_all_free(team);
    return true;
}

uint8_t *sgp_team_shared(const struct sgp_team *team, uint64_t bytes)
{
    return team->shared_memory + (SHARED_MEMORY_BYTES - bytes) / SHARED_ALIGNMENT * SHARED_ALIGNMENT;
}
