/* See common.h. Calls nothing of CUDA: what the device does, a program's own functions do. */
#include "common.h"

#include <argp.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct options {
    const struct benchmark *benchmark;
    double seconds;
    size_t size;
    size_t nr_rounds; /* 0: as many as fit into `seconds` */
    bool is_json, is_loops, is_checked, is_together;
};

struct outcome {
    double first_round_s, seconds;
    double work;      /* of one round, in the benchmark's unit */
    double nr_rounds; /* whole ones, but for those at the edges of a stretch, or in parts of it that count less */
};

/* When rounds count, by this process's monotonic clock; told by whoever started all programs of a benchmark. */
struct stretch {
    double begin_s, end_s, edge_s;
    atomic_bool is_known, is_over;
};

enum { KEY_JSON = 0x100, KEY_LOOPS, KEY_NO_CHECK, KEY_TOGETHER, KEY_DIGEST };

/* More is no lead, but a time of the day. */
static const double longest_lead_s = 3600;

static const char *program_name = "benchmark";
static bool uses_device;
static bool is_digested;
static uint64_t digest = 0xcbf29ce484222325u;
static volatile sig_atomic_t was_interrupted;

bool benchmark_uses_device(void)
{
    return uses_device;
}

void benchmark_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fprintf(stderr, "%s: ", program_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

void *benchmark_allocate(size_t nr_elements, size_t element_bytes)
{
    size_t nr_bytes;
    void *memory = NULL;
    if (!__builtin_mul_overflow(nr_elements, element_bytes, &nr_bytes) && nr_bytes <= SIZE_MAX - 63) {
        memory = aligned_alloc(64, (nr_bytes + 63) / 64 * 64);
    }
    if (!memory) {
        benchmark_fail("no memory for %zu elements of %zu bytes", nr_elements, element_bytes);
    }
    return memset(memory, 0, nr_bytes);
}

/* SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014); its upper half. */
uint32_t benchmark_random(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return (mixed ^ (mixed >> 31)) >> 32;
}

float benchmark_random_float(uint64_t *state)
{
    return (benchmark_random(state) >> 8) * 0x1p-24f;
}

/* FNV-1a over all that is compared, in order. */
void benchmark_digest(const void *results, size_t nr_bytes)
{
    const unsigned char *bytes = results;
    for (size_t at = 0; is_digested && at < nr_bytes; at++) {
        digest = (digest ^ bytes[at]) * 0x100000001b3u;
    }
}

int benchmark_compare_floats(const char *what, const float *device, const float *loops, size_t nr, double tolerance,
                             char *why, size_t why_size)
{
    benchmark_digest(device, nr * sizeof(*device));
    for (size_t at = 0; at < nr; at++) {
        double allowed = tolerance * fmax(1, fabs((double)loops[at]));
        if (isfinite(loops[at]) && fabs((double)device[at] - loops[at]) <= allowed) {
            continue;
        }
        snprintf(why, why_size, "%s[%zu] is %.9g on the device and %.9g in the loops, which may differ by %.3g", what,
                 at, device[at], loops[at], allowed);
        return 1;
    }
    return 0;
}

int benchmark_compare_ints(const char *what, const int32_t *device, const int32_t *loops, size_t nr, char *why,
                           size_t why_size)
{
    benchmark_digest(device, nr * sizeof(*device));
    for (size_t at = 0; at < nr; at++) {
        if (device[at] == loops[at]) {
            continue;
        }
        snprintf(why, why_size, "%s[%zu] is %d on the device and %d in the loops", what, at, device[at], loops[at]);
        return 1;
    }
    return 0;
}

static size_t parse_count(struct argp_state *state, const char *text, const char *what)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || *end || end == text || *text == '-' || value == 0) {
        argp_error(state, "%s: %s is not a whole number above 0", what, text);
    }
    return value;
}

static double parse_seconds(struct argp_state *state, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || !isfinite(value) || value < 0) {
        argp_error(state, "--seconds: %s is not a time", text);
    }
    return value;
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct options *options = state->input;
    switch (key) {
    case 's':
        options->seconds = parse_seconds(state, argument);
        return 0;
    case 'n':
        options->size = parse_count(state, argument, "--size");
        return 0;
    case 'r':
        options->nr_rounds = parse_count(state, argument, "--rounds");
        return 0;
    case KEY_JSON:
        options->is_json = true;
        return 0;
    case KEY_LOOPS:
        options->is_loops = true;
        return 0;
    case KEY_DIGEST:
        is_digested = true;
        return 0;
    case KEY_NO_CHECK:
        options->is_checked = false;
        return 0;
    case KEY_TOGETHER:
        options->is_together = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "%s: there are only options", argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void parse(struct options *options, int argc, char **argv)
{
    char size_help[160], summary[320];
    snprintf(size_help, sizeof(size_help), "%s (%zu)", options->benchmark->size_help, options->size);
    snprintf(summary, sizeof(summary), "%s: %s.", options->benchmark->name, options->benchmark->summary);
    const struct argp_option known[] = {
        {"seconds", 's', "S", 0, "how long the timed part takes (2)", 0},
        {"size", 'n', "N", 0, size_help, 0},
        {"rounds", 'r', "N", 0, "how many rounds the timed part has, instead of a time", 0},
        {"json", KEY_JSON, NULL, 0, "report as one JSON object", 0},
        {"loops", KEY_LOOPS, NULL, 0, "time the same kernels as plain C loops, without a device", 0},
        {"no-check", KEY_NO_CHECK, NULL, 0, "do not compare the device's results with those of the loops", 0},
        {"together", KEY_TOGETHER, NULL, 0, "count in a window that standard input tells, see common.h", 0},
        {"digest", KEY_DIGEST, NULL, 0, "print a hash of the results that are compared on stderr", 0},
        {0},
    };
    const struct argp argp = {known, parse_option, NULL, summary, NULL, NULL, NULL};
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, options);
    options->is_checked &= !options->is_loops;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void note_interrupt(int signal_number)
{
    (void)signal_number;
    was_interrupted = 1;
}

/* The first Ctrl-C ends the timed part, the second the program. */
static void catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = SA_RESTART | SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

static void time_rounds(const struct options *options, void (*run_round)(void), struct outcome *outcome)
{
    double begin_s = now_s();
    do {
        run_round();
        outcome->nr_rounds++;
        outcome->seconds = now_s() - begin_s;
    } while (!was_interrupted &&
             (options->nr_rounds ? outcome->nr_rounds < options->nr_rounds : outcome->seconds < options->seconds));
}

/* Reads the stretch, then waits for one more line or the end of the input. */
static void *follow_stretch(void *argument)
{
    struct stretch *stretch = argument;
    double lead_s, length_s, edge_s;
    char *line = NULL;
    size_t line_size = 0;
    if (getline(&line, &line_size, stdin) >= 0 && sscanf(line, "%lf %lf %lf", &lead_s, &length_s, &edge_s) == 3 &&
        lead_s >= 0 && lead_s <= longest_lead_s && length_s > 0 && edge_s >= 0 && edge_s <= length_s / 2) {
        stretch->begin_s = now_s() + lead_s;
        stretch->end_s = stretch->begin_s + length_s;
        stretch->edge_s = edge_s;
        stretch->is_known = true;
        ssize_t nr_read = getline(&line, &line_size, stdin);
        (void)nr_read; /* a line or the end: both say that nobody waits for more rounds */
    }
    stretch->is_over = true;
    free(line);
    return NULL;
}

/* How much of the time until then counts, were there no second edge. */
static double counted_after(double passed_s, double edge_s)
{
    double within_s = fmin(fmax(passed_s, 0), edge_s);
    return (edge_s > 0 ? within_s * within_s / (2 * edge_s) : 0) + fmax(passed_s - edge_s, 0);
}

static double counted_until(const struct stretch *stretch, double at_s)
{
    return counted_after(at_s - stretch->begin_s, stretch->edge_s) -
           counted_after(at_s - (stretch->end_s - stretch->edge_s), stretch->edge_s);
}

/* Rounds before and after the stretch are made as well, so that the programs of a benchmark disturb each other
 * throughout. */
static void time_stretch(void (*run_round)(void), struct outcome *outcome)
{
    struct stretch stretch = {0};
    pthread_t follower;
    printf("ready\n");
    fflush(stdout);
    if (pthread_create(&follower, NULL, follow_stretch, &stretch)) {
        benchmark_fail("no thread to follow the window");
    }
    double begin_s = now_s();
    while (!stretch.is_over && !was_interrupted) {
        run_round();
        double end_s = now_s();
        if (stretch.is_known) {
            outcome->nr_rounds +=
                (counted_until(&stretch, end_s) - counted_until(&stretch, begin_s)) / fmax(end_s - begin_s, DBL_MIN);
        }
        begin_s = end_s;
    }
    if (!stretch.is_known) {
        benchmark_fail("a window is three numbers on standard input: when it begins, in s from now, how long it lasts, "
                       "and how much of that each edge takes, half of it at most");
    }
    if (now_s() < stretch.end_s) {
        benchmark_fail("ended before its window did");
    }
    outcome->seconds = counted_until(&stretch, stretch.end_s);
    pthread_join(follower, NULL);
}

static int check(const struct benchmark *benchmark)
{
    char why[512] = "no reason given";
    benchmark->loops_round();
    if (benchmark->fetch) {
        benchmark->fetch();
    }
    int is_wrong = benchmark->check(why, sizeof(why));
    if (is_digested) {
        fprintf(stderr, "digest %016llx\n", (unsigned long long)digest);
    }
    if (!is_wrong) {
        return 0;
    }
    fprintf(stderr, "%s: wrong result: %s\n", program_name, why);
    return 1;
}

static void report(const struct options *options, const struct outcome *outcome)
{
    const struct benchmark *benchmark = options->benchmark;
    double throughput = outcome->work * outcome->nr_rounds / fmax(outcome->seconds, DBL_MIN);
    if (options->is_json) {
        printf("{\"name\": \"%s\", \"size\": %zu, \"unit\": \"%s\", \"throughput\": %.9g, \"rounds\": %.9g, "
               "\"seconds\": %.9g, \"first_round_s\": %.9g, \"checked\": %s",
               benchmark->name, options->size, benchmark->unit, throughput, outcome->nr_rounds, outcome->seconds,
               outcome->first_round_s, options->is_checked ? "true" : "false");
        if (benchmark->report) {
            benchmark->report();
        }
        printf("}\n");
    } else {
        printf("%s: %.4g %s, %.6g rounds in %.3f s, first round %.3f s, %s\n", benchmark->name, throughput,
               benchmark->unit, outcome->nr_rounds, outcome->seconds, outcome->first_round_s,
               options->is_checked ? "results checked" : "results not checked");
    }
}

int benchmark_main(const struct benchmark *benchmark, int argc, char **argv)
{
    struct options options = {benchmark, .seconds = 2, .size = benchmark->default_size, .is_checked = true};
    struct outcome outcome = {0};
    program_name = benchmark->name;
    parse(&options, argc, argv);
    uses_device = !options.is_loops;
    void (*run_round)(void) = uses_device ? benchmark->device_round : benchmark->loops_round;

    outcome.work = benchmark->prepare(options.size);
    double begin_s = now_s();
    run_round();
    outcome.first_round_s = now_s() - begin_s;
    int status = options.is_checked ? check(benchmark) : 0;
    if (status == 0) {
        catch_interrupt();
        if (benchmark->reset) {
            benchmark->reset();
        }
        if (options.is_together) {
            time_stretch(run_round, &outcome);
        } else {
            time_rounds(&options, run_round, &outcome);
        }
        report(&options, &outcome);
    }
    benchmark->release();
    return status;
}
