/*
 * What a scheduling point costs: GLoop's throttle, so many steps of one block with nothing between them. Plain they are
 * a loop, split a launch each, by gloop a callback each. Beside other programs it is the one that takes whatever they
 * leave.
 *
 * --threads N: of the block (1). --slots shared|global: where gloop keeps the callbacks (shared).
 */
#include "throttle.cuh"

#include "port.cuh"

static struct {
    uint64_t nr_steps, expected;
    uint64_t *value; /* on the device */
    unsigned nr_threads;
    bool is_global;
} throttle;

static double prepare(size_t size)
{
    throttle.nr_steps = size;
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaMalloc(&throttle.value, sizeof(*throttle.value)));
    }
    return (double)size * 1e-6;
}

static void begin_round(void)
{
    BENCHMARK_CUDA(cudaMemset(throttle.value, 0, sizeof(*throttle.value)));
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
    volatile uint64_t *value = throttle.value;
    uint64_t nr_steps = throttle.nr_steps;
    port_host().launch<Slots>(1, throttle.nr_threads,
                              [=] __device__(gloop::DeviceLoop<Slots> *loop) { throttle_on(loop, value, nr_steps); });
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
    uint64_t value;
    BENCHMARK_CUDA(cudaMemcpy(&value, throttle.value, sizeof(value), cudaMemcpyDeviceToHost));
    benchmark_digest(&value, sizeof(value));
    if (value == throttle.expected) {
        return 0;
    }
    snprintf(why, why_size, "the value is %llx on the device and %llx in the loops", (unsigned long long)value,
             (unsigned long long)throttle.expected);
    return 1;
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
    const char *slots = port_take(&argc, argv, "--slots");
    throttle.is_global = slots && strcmp(slots, "global") == 0;
    if (slots && !throttle.is_global && strcmp(slots, "shared") != 0) {
        benchmark_fail("--slots is shared or global, not %s", slots);
    }
    return port_main(&port, argc, argv);
}
