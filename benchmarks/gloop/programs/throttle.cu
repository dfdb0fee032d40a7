/*
 * What a scheduling point costs: GLoop's throttle, so many steps of one block with nothing between them. Plain they are
 * a loop, split a launch each, by gloop a callback each. Beside other programs it is the one that takes whatever they
 * leave.
 *
 * --threads N: of the block (1). --blocks N: that each do all steps (1), by gloop. --slots shared|global: where gloop
 * keeps the callbacks (shared). --requests: by gloop a step is a request to the host, and its answer.
 */
#include "throttle.cuh"

#include "port.cuh"

static struct {
    uint64_t nr_steps, expected;
    uint64_t *value; /* on the device */
    unsigned nr_threads, nr_blocks;
    bool is_global, is_asking;
} throttle;

static double prepare(size_t size)
{
    throttle.nr_steps = size;
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaMalloc(&throttle.value, throttle.nr_blocks * sizeof(*throttle.value)));
    }
    return (double)size * 1e-6;
}

static void begin_round(void)
{
    BENCHMARK_CUDA(cudaMemset(throttle.value, 0, throttle.nr_blocks * sizeof(*throttle.value)));
}

static void plain_round(void)
{
    begin_round();
    port_time([] { throttle_plain<<<1, throttle.nr_threads>>>(throttle.value, throttle.nr_steps); });
}

static void split_round(void)
{
    begin_round();
    port_time([] {
        for (uint64_t step = 0; step < throttle.nr_steps; step++) {
            throttle_plain<<<1, throttle.nr_threads>>>(throttle.value, 1);
        }
    });
}

template <class Slots> static void launch(void)
{
    volatile uint64_t *values = throttle.value;
    uint64_t nr_steps = throttle.nr_steps;
    bool is_asking = throttle.is_asking;
    port_host().launch<Slots>(throttle.nr_blocks, throttle.nr_threads, [=] __device__(gloop::DeviceLoop<Slots> *loop) {
        volatile uint64_t *value = values + loop->logicalBlockIdx().x;
        if (is_asking) {
            throttle_ask_on(loop, value, nr_steps);
        } else {
            throttle_on(loop, value, nr_steps);
        }
    });
}

static void gloop_round(void)
{
    begin_round();
    port_time([] {
        if (throttle.is_global) {
            launch<gloop::Global>();
        } else {
            launch<gloop::Shared>();
        }
    });
}

static void loops_round(void)
{
    throttle.expected = throttle_loops(throttle.nr_steps);
}

static int check(char *why, size_t why_size)
{
    std::vector<uint64_t> values(port_run.way == PORT_GLOOP ? throttle.nr_blocks : 1);
    size_t nr_bytes = values.size() * sizeof(values[0]);
    BENCHMARK_CUDA(cudaMemcpy(values.data(), throttle.value, nr_bytes, cudaMemcpyDeviceToHost));
    benchmark_digest(values.data(), nr_bytes);
    for (size_t block = 0; block < values.size(); block++) {
        if (values[block] != throttle.expected) {
            snprintf(why, why_size, "the value of block %zu is %llx on the device and %llx in the loops", block,
                     (unsigned long long)values[block], (unsigned long long)throttle.expected);
            return 1;
        }
    }
    return 0;
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree(throttle.value));
    }
}

int main(int argc, char **argv)
{
    struct port port = {{"throttle", "scheduling points with nothing between them", "Msteps/s", 0,
                         "steps, one after the other", prepare, NULL, loops_round, NULL, check, NULL, release},
                        2000,
                        1000000,
                        {plain_round, split_round, gloop_round}};
    throttle.nr_threads = (unsigned)port_take_number(&argc, argv, "--threads", 1, 1024);
    throttle.nr_blocks = (unsigned)port_take_number(&argc, argv, "--blocks", 1, 1 << 16);
    throttle.is_asking = port_take_flag(&argc, argv, "--requests");
    const char *slots = port_take(&argc, argv, "--slots");
    throttle.is_global = slots && strcmp(slots, "global") == 0;
    if (slots && !throttle.is_global && strcmp(slots, "shared") != 0) {
        benchmark_fail("--slots is shared or global, not %s", slots);
    }
    return port_main(&port, argc, argv);
}
