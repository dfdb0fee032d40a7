/*
 * What a lane owns: stacks for fibers, a window of shared memory, and the way home from a block that failed.
 *
 * Each stack ends in a page without access, as long as the process has mappings to spare (Linux allows 65,530): a
 * kernel that recurses too deep faults instead of writing into its neighbour. Stacks start at staggered offsets: at
 * equal ones, the tops of all stacks would compete for the same few lines of the cache. Shared memory ends where its
 * window ends, so that a kernel that leaves it upwards faults.
 */
#include "lane.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_GUARDS          24000u
#define STAGGER_BYTES       128u
#define NR_STAGGERS         32u
#define SHARED_WINDOW_BYTES 167936u
#define SHARED_ALIGNMENT    256u

__thread struct sgp_lane *sgp_lane_current __attribute__((tls_model("initial-exec")));

static struct sgp_lane *free_lanes;
static uint32_t nr_lanes;
static uint32_t nr_guards; /* of all lanes */
static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER;

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

static struct sgp_lane *lane_new(void)
{
    struct sgp_lane *lane = calloc(1, sizeof(*lane));
    uint64_t bytes = SHARED_WINDOW_BYTES + SGP_PAGE_BYTES + SGP_PAGE_BYTES + SGP_BLOCK_STACK_BYTES;
    uint8_t *mapping;

    if (!lane)
        return NULL;
    lane->team = malloc(sizeof(*lane->team));
    mapping = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!lane->team || mapping == MAP_FAILED)
        goto failed;
    lane->shared_mapping = mapping;
    lane->block_stack = mapping + SHARED_WINDOW_BYTES + 2 * SGP_PAGE_BYTES;
    if (mprotect(mapping, SHARED_WINDOW_BYTES, PROT_READ | PROT_WRITE) ||
        mprotect(lane->block_stack, SGP_BLOCK_STACK_BYTES, PROT_READ | PROT_WRITE)) {
        munmap(mapping, bytes);
        goto failed;
    }
    return lane;
failed:
    free(lane->team);
    free(lane);
    return NULL;
}

struct sgp_lane *sgp_lane_take(void)
{
    struct sgp_lane *lane;

    pthread_mutex_lock(&lanes_lock);
    lane = free_lanes;
    if (lane) {
        free_lanes = lane->next_free;
    } else {
        lane = lane_new();
        if (lane)
            lane->index = nr_lanes++;
    }
    pthread_mutex_unlock(&lanes_lock);
    return lane;
}

void sgp_lane_give(struct sgp_lane *lane)
{
    pthread_mutex_lock(&lanes_lock);
    lane->next_free = free_lanes;
    free_lanes = lane;
    pthread_mutex_unlock(&lanes_lock);
}

static void stacks_unmap(struct sgp_lane *lane)
{
    if (lane->stacks)
        munmap(lane->stacks, lane->stack_mapping_bytes);
    free(lane->free_stacks);
    lane->stacks = NULL;
    lane->free_stacks = NULL;
    lane->nr_stacks = 0;
}

static void guards_add(struct sgp_lane *lane, uint64_t stride)
{
    uint32_t nr = lane->nr_stacks;

    pthread_mutex_lock(&lanes_lock);
    if (nr_guards + nr > MAX_GUARDS)
        nr = 1;
    nr_guards += nr;
    pthread_mutex_unlock(&lanes_lock);
    for (uint32_t i = 0; i < nr; i++)
        if (mprotect(lane->stacks + i * stride, SGP_PAGE_BYTES, PROT_NONE))
            break;
}

static bool stacks_map(struct sgp_lane *lane, uint32_t nr, uint64_t stack_bytes)
{
    uint64_t usable =
        (stack_bytes + NR_STAGGERS * STAGGER_BYTES + SGP_PAGE_BYTES - 1) / SGP_PAGE_BYTES * SGP_PAGE_BYTES;
    uint64_t stride = usable + SGP_PAGE_BYTES;

    pthread_mutex_lock(&lanes_lock);
    nr_guards -= nr_guards < lane->nr_stacks ? nr_guards : lane->nr_stacks;
    pthread_mutex_unlock(&lanes_lock);
    stacks_unmap(lane);
    lane->free_stacks = malloc(nr * sizeof(*lane->free_stacks));
    lane->stack_mapping_bytes = nr * stride;
    lane->stacks = mmap(NULL, nr * stride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!lane->free_stacks || lane->stacks == MAP_FAILED) {
        if (lane->stacks == MAP_FAILED)
            lane->stacks = NULL;
        stacks_unmap(lane);
        return false;
    }
    lane->nr_stacks = nr;
    lane->stack_bytes = stack_bytes;
    guards_add(lane, stride);
    return true;
}

static void stacks_all_free(struct sgp_lane *lane)
{
    uint64_t stride = lane->stack_mapping_bytes / lane->nr_stacks;

    lane->left_stack = NULL;
    lane->nr_free_stacks = lane->nr_stacks;
    for (uint32_t i = 0; i < lane->nr_stacks; i++) /* the last one is taken first */
        lane->free_stacks[lane->nr_stacks - 1 - i] =
            lane->stacks + (i + 1) * stride - (i % NR_STAGGERS) * STAGGER_BYTES;
}

bool sgp_lane_prepare(struct sgp_lane *lane, struct sgp_grid *grid)
{
    uint32_t nr = grid->block_dim[0] * grid->block_dim[1] * grid->block_dim[2];

    lane->grid = grid;
    lane->error = CUDA_SUCCESS;
    lane->team->lane = lane;
    lane->team->kernel = grid->kernel;
    memset(lane->team->barriers, 0, sizeof(lane->team->barriers));
    for (uint32_t i = 0; i < nr; i++) {
        lane->team->threads[i].team = lane->team;
        lane->team->threads[i].index = i;
    }
    if (!grid->kernel->needs_threads)
        return true;
    if ((lane->nr_stacks < nr || lane->stack_bytes < grid->stack_bytes) && !stacks_map(lane, nr, grid->stack_bytes))
        return false;
    stacks_all_free(lane);
    return true;
}

uint8_t *sgp_lane_shared(struct sgp_lane *lane, uint64_t bytes)
{
    return lane->shared_mapping + (SHARED_WINDOW_BYTES - bytes) / SHARED_ALIGNMENT * SHARED_ALIGNMENT;
}

void sgp_lane_abandon(struct sgp_lane *lane, CUresult error)
{
    lane->error = error;
    lane->is_in_kernel = false;
    sgp_fiber_jump(lane->home);
}
