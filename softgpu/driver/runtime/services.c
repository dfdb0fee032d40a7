/* What compiled code may call: the table of kernel_abi.h. Everything here runs on a fiber's small stack. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/reach.h"
#include "runtime/records.h"

#define MAX_TEXT_BYTES   4096u
#define MAX_ASSERT_BYTES 1024u

static void barrier(struct sgp_thread *self, uint32_t number, uint32_t nr_threads)
{
    sgp_barrier_wait(self, number, nr_threads, SGP_BARRIER_AND, 0);
}

static int32_t print(struct sgp_thread *self, const char *format, const void *arguments)
{
    char text[MAX_TEXT_BYTES];
    size_t length = 0;
    /* All that may fault happens before the buffer is locked. */
    int nr = sgp_printf_format(format, arguments, text, sizeof(text), &length);

    if (nr >= 0 && length) {
        struct sgp_grid *grid = self->team->runner->grid;

        grid->services->print(grid, text, length);
    }
    return nr;
}

static void assert_fail(struct sgp_thread *self, const char *message, const char *file, uint32_t line,
                        const char *function, uint32_t x, uint32_t y, uint32_t z)
{
    const uint32_t *block = self->team->block.block_index;
    char text[MAX_ASSERT_BYTES];
    int length =
        snprintf(text, sizeof(text), "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file,
                 line, function, block[0], block[1], block[2], x, y, z, message);

    if (length > (int)sizeof(text) - 1) {
        length = sizeof(text) - 1;
    }
    if (write(STDERR_FILENO, text, (size_t)length) < 0) {
        length = 0; /* nobody reads: the error code still tells */
    }
    sgp_runner_abandon(self->team->runner, CUDA_ERROR_ASSERT);
}

static void trap(struct sgp_thread *self)
{
    sgp_runner_abandon(self->team->runner, CUDA_ERROR_LAUNCH_FAILED);
}

static void bad_address(struct sgp_thread *self, uint64_t bits)
{
    struct sgp_runner *runner = self->team->runner;

    if (bits & SGP_MISALIGNED_BITS) {
        sgp_runner_abandon(runner, CUDA_ERROR_MISALIGNED_ADDRESS);
    }
    if (sgp_reach_is_closed()) {
        runner->fault_address = NULL; /* which one is not known */
        sgp_runner_abandon(runner, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}

static void *device_malloc(struct sgp_thread *self, uint64_t size_bytes)
{
    struct sgp_grid *grid = self->team->runner->grid;

    return grid->services->allocate(grid, size_bytes);
}

static void device_free(struct sgp_thread *self, void *pointer)
{
    struct sgp_grid *grid = self->team->runner->grid;

    if (pointer && !grid->services->free(grid, pointer)) {
        sgp_runner_abandon(self->team->runner, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}

static uint32_t active_mask(struct sgp_thread *self)
{
    return sgp_warp_converge(self, (uintptr_t)__builtin_return_address(0));
}

static uint64_t current_graph(struct sgp_thread *self)
{
    const struct sgp_orders *orders = self->team->runner->grid->orders;

    return orders ? orders->graph : 0;
}

static uint32_t graph_launch(struct sgp_thread *self, uint64_t graph, uint64_t stream)
{
    struct sgp_orders *orders = self->team->runner->grid->orders;
    uint32_t place;

    if (!orders || !graph || (stream != SGP_ORDER_TAIL && stream != SGP_ORDER_CHILD && stream != SGP_ORDER_SIBLING)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    place = __atomic_fetch_add(&orders->nr, 1, __ATOMIC_RELAXED);
    if (place >= SGP_MAX_ORDERS) {
        return SGP_ERROR_TOO_MANY_ORDERS;
    }
    orders->orders[place] = (struct sgp_order){.graph = graph, .stream = stream};
    return CUDA_SUCCESS;
}

static uint64_t clock64(void)
{
    return __builtin_ia32_rdtsc();
}

static uint64_t global_timer_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const struct sgp_runtime sgp_runtime_table = {
    .abi_version = SGP_ABI_VERSION,
    .barrier = barrier,
    .barrier_reduce = sgp_barrier_wait,
    .warp_exchange = sgp_warp_exchange,
    .vprintf = print,
    .assert_fail = assert_fail,
    .trap = trap,
    .device_malloc = device_malloc,
    .device_free = device_free,
    .clock64 = clock64,
    .global_timer_ns = global_timer_ns,
    .barrier_arrive = sgp_barrier_arrive,
    .yield = sgp_thread_yield,
    .active_mask = active_mask,
    .bad_address = bad_address,
    .texture_fetch = sgp_texture_fetch,
    .surface_address = sgp_surface_address,
    .texture_query = sgp_texture_query,
    .matrix_multiply = sgp_matrix_multiply,
    .matrix_move = sgp_matrix_move,
    .nap = sgp_thread_nap,
    .current_graph = current_graph,
    .graph_launch = graph_launch,
};
