/*
 * Linked into a benchmark program with --wrap=benchmark_main, it takes away the device's round: the results keep what
 * their memory was prepared with, and a check that compares anything must fail.
 */
#include "common.h"

int __real_benchmark_main(const struct benchmark *benchmark, int argc, char **argv);
int __wrap_benchmark_main(const struct benchmark *benchmark, int argc, char **argv);

static void do_nothing(void) {}

int __wrap_benchmark_main(const struct benchmark *benchmark, int argc, char **argv)
{
    struct benchmark idle = *benchmark;
    idle.device_round = do_nothing;
    return __real_benchmark_main(&idle, argc, argv);
}
