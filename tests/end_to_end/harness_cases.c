/*
 * A benchmark program without a device, for tests of benchmarks/programs/common.c: what is the device elsewhere is a
 * second loop here. --size says how its results differ: 1 not at all, then the last element, NaN, infinity on both
 * sides, integers.
 */
#include <math.h>
#include <stdio.h>

#include "common.h"

enum { RIGHT = 1, LAST_DIFFERS, IS_NAN, IS_INFINITE, INTS_DIFFER };
enum { NR = 1000 };

static size_t kind;
static float device[NR], loops[NR];
static int32_t device_ints[NR], loops_ints[NR];

static double prepare(size_t size)
{
    kind = size;
    return 2;
}

static void device_round(void)
{
    for (int i = 0; i < NR; i++) {
        device[i] = i;
    }
    if (kind == LAST_DIFFERS) {
        device[NR - 1] *= 1.1f;
    }
    if (kind == IS_NAN) {
        device[7] = NAN;
    }
    if (kind == IS_INFINITE) {
        device[7] = INFINITY;
    }
    device_ints[3] = kind == INTS_DIFFER;
}

static void loops_round(void)
{
    for (int i = 0; i < NR; i++) {
        loops[i] = kind == IS_INFINITE ? INFINITY : i + 1e-6f;
    }
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_floats("float", device, loops, NR, 1e-3, why, why_size) ||
           benchmark_compare_ints("int", device_ints, loops_ints, NR, why, why_size);
}

/* The last step before the timed part: from here on a test may interrupt it. */
static void reset(void)
{
    fputs("timed part\n", stderr);
}

static void release(void)
{
    fputs("released\n", stderr);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "harness_cases",
        .summary = "a device that is none",
        .unit = "Mthings/s",
        .default_size = RIGHT,
        .size_help = "which case",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .check = check,
        .reset = reset,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
