/*
 * What the benchmark programs share: the command line, the order of steps, the clock, the report.
 *
 * A program is NAME.cu (a `struct benchmark` and main) and NAME_loops.c (the same kernels as plain C loops). The loops
 * are both the reference that results are checked against and the yardstick that softgpu's speed is measured with.
 * NAME.h holds what the two declare to each other.
 *
 * --together: all programs of a benchmark count rounds in the same stretch, while each of them works before and after
 * it. A program says "ready" after its first round, reads "LEAD LENGTH EDGE" from its standard input, in how many
 * seconds the stretch begins, how many it lasts and how many of them its edges take, and works on until another line
 * comes or the input ends.
 *
 * Work counts fully in the middle of the stretch, and less and less towards both ends of it, over EDGE each: who takes
 * turns with others has not had a turn more or less because the stretch ended just then. With an EDGE of 0 all counts
 * alike. The time that counts is LENGTH - EDGE.
 */
#ifndef BENCHMARKS_PROGRAMS_COMMON_H
#define BENCHMARKS_PROGRAMS_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct benchmark {
    const char *name, *summary; /* for --help */
    const char *unit;           /* of the throughput, such as "Mcells/s" */
    size_t default_size;
    const char *size_help; /* what --size counts */

    /*
     * Generates the same inputs for the same size, on the host and, where benchmark_uses_device(), on the device.
     * Returns the work of one round in the unit above without its "/s". A size the program cannot take is a
     * benchmark_fail(). Launches nothing and copies to no symbol: the module is to be loaded in the first round, which
     * is timed.
     */
    double (*prepare)(size_t size);
    void (*device_round)(void);               /* as the original does it; its last call waits for the device */
    void (*loops_round)(void);                /* the same in C; calls nothing of CUDA */
    void (*fetch)(void);                      /* the device's results to the host; may be NULL if the round does it */
    int (*check)(char *why, size_t why_size); /* after one round of each: 0 if equal, else 1 and a sentence in `why` */
    void (*reset)(void);                      /* NULL, or: device and loops back to the inputs; before the timed part */
    void (*release)(void);
    void (*report)(void); /* NULL, or: prints further members of the object that --json prints */
};

/* Everything a main does. Returns its exit status: 0, 1 if the results differ, 2 if CUDA or the command line failed. */
int benchmark_main(const struct benchmark *benchmark, int argc, char **argv);

/* False with --loops: then no call of CUDA may be made, so that the program runs without a driver. */
bool benchmark_uses_device(void);

/* Ends the program with status 2 and "NAME: " and the sentence on stderr. */
void benchmark_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Zeroed and aligned to 64 bytes; fails instead of returning NULL. Given back with free(). */
void *benchmark_allocate(size_t nr_elements, size_t element_bytes);

/* Deterministic pseudo-random numbers; any seed will do. The second is in [0, 1). */
uint32_t benchmark_random(uint64_t *state);
float benchmark_random_float(uint64_t *state);

/* For a check() that uses none of the two below: what is compared becomes part of what --digest prints. */
void benchmark_digest(const void *results, size_t nr_bytes);

/*
 * For check(): 0 if `device` and `loops` agree in each of `nr` elements, else 1 and a sentence that names the first
 * that does not. Floats agree if they differ by at most tolerance * max(1, |loops|); NaN and infinity agree with
 * nothing.
 */
int benchmark_compare_floats(const char *what, const float *device, const float *loops, size_t nr, double tolerance,
                             char *why, size_t why_size);
int benchmark_compare_ints(const char *what, const int32_t *device, const int32_t *loops, size_t nr, char *why,
                           size_t why_size);

#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
/* Around every call of the runtime; after a launch: BENCHMARK_CUDA(cudaGetLastError()). */
#define BENCHMARK_CUDA(call)                                                                                           \
    do {                                                                                                               \
        cudaError_t benchmark_error = (call);                                                                          \
        if (benchmark_error != cudaSuccess)                                                                            \
            benchmark_fail("%s gave %s: %s", #call, cudaGetErrorName(benchmark_error),                                 \
                           cudaGetErrorString(benchmark_error));                                                       \
    } while (0)
#endif

#endif
