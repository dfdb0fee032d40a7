/*
 * Records surfaces: for pairs of a best-effort and a critical program, how much slower rounds of the critical one get
 * and how much progress the best-effort one makes, for each split (n, k): it has k blocks fewer on each of the first n
 * multiprocessors.
 *
 * One process with streams of two priorities: the best-effort program runs persistently all the time, the critical one
 * makes rounds as plain launches, back to back. So this is what sharing in space costs by itself, without FairGV. What
 * MPS adds between two processes is not in it. A split stands for all of a configuration: what giving way at the
 * beginning of a round takes is not in it either.
 *
 * A round that takes more than `longest` times what it takes alone is cut: the device is given up to it, and it counts
 * as that much.
 *
 * Features are seven numbers of each program, from its persistent rates (blocks a second) of its first phase, alone and
 * beside a neighbour: 1 multiprocessors: with half of them, over all 2 half: with half of its blocks on each
 * multiprocessor, over all of them 3 quarter: with a quarter fewer on each 4 far memory: with three quarters of the
 * multiprocessors beside a program bound by memory on the others, over the same without it 5 near arithmetic: with half
 * of its blocks on each beside a program bound by arithmetic in the other places, over the same without it 6 near
 * memory: the same beside a program bound by memory, which takes its cache as well 7 length: the logarithm of the time
 * of a block, from 1 us (0) to 1 ms (1)
 *
 * --carveout: how much of a multiprocessor's memory all kernels want as shared memory. A block begins only where what
 * the ones there want agrees with what it wants; without the option the driver chooses for each kernel.
 *
 * Wrong when something else runs on the device. On a device where kernels never overlap (softgpu, --numbers) it shows
 * that it works, no more.
 *
 * Prints one line of JSON for each pair or program.
 */
#include <iterator>

#include "command.cuh"
#include "every.cuh"
#include "runner.cuh"

static struct {
    bool is_large = false;
    unsigned step = 4, rounds = 10, multiprocessors = 0;
    unsigned long long numbers = 0;
    std::vector<unsigned> ks = {1, 2, 3, 4, 5, 6, 7, 8};
    double configuration_us = 20000, window_us = 2000, longest = 40, carveout = 0;
} wanted;

static cudaStream_t critical;

/* 0 where nothing was counted, as may be on a device that does nothing else meanwhile. */
static double over(double some, double most)
{
    return most > 0 ? some / most : 0;
}

/* One round, in us; with a limit above 0, false when that was reached: then the round goes on. */
static bool makes_round(struct program *program, runner *beside, double limit_us, double *took_us)
{
    double begun_us = now_us();
    for (unsigned phase = 0; phase < program->nr_phases; phase++) {
        program->launch(phase, critical);
    }
    for (;;) {
        cudaError_t is_done = cudaStreamQuery(critical);
        *took_us = now_us() - begun_us;
        if (is_done != cudaErrorNotReady) {
            CUDA(is_done);
            return true;
        }
        if (beside) {
            beside->keep_going();
        }
        if (limit_us > 0 && *took_us > limit_us) {
            return false;
        }
    }
}

static double alone_us(struct program *program)
{
    std::vector<double> all;
    double took_us, begun_us = now_us();
    do { /* until the clock is up */
        makes_round(program, nullptr, 0, &took_us);
    } while (now_us() - begun_us < wanted.configuration_us);
    for (unsigned round = 0; round < 2 * wanted.rounds + 1; round++) {
        makes_round(program, nullptr, 0, &took_us);
        all.push_back(took_us);
    }
    return percentile(all, 0.5);
}

/* Blocks per us over a window. */
static double rate(runner *of, runner *beside, double window_us)
{
    unsigned long long first = of->count();
    double begun_us = now_us();
    while (now_us() - begun_us < window_us) {
        of->keep_going();
        if (beside) {
            beside->keep_going();
        }
    }
    unsigned long long last = of->count();
    return (double)(last - first) / (now_us() - begun_us);
}

struct found {
    std::vector<double> rounds_us;
    double progress, window_us;
    bool was_cut;
};

/* Rounds of the critical program while the split stands. */
static struct found configuration(struct program *program, runner *best_effort, double time_us, double rate_alone)
{
    struct found found = {{}, 0, 0, false};
    unsigned long long first = best_effort->count();
    double begun_us = now_us(), limit_us = wanted.longest * time_us;
    auto passed_us = [&] { return now_us() - begun_us; };
    do {
        double took_us;
        found.was_cut = !makes_round(program, best_effort, limit_us, &took_us);
        found.rounds_us.push_back(std::min(took_us, limit_us));
    } while (!found.was_cut && passed_us() < wanted.configuration_us &&
             (found.rounds_us.size() < wanted.rounds || passed_us() < wanted.window_us));
    found.progress = over((double)(best_effort->count() - first) / passed_us(), rate_alone);
    found.window_us = passed_us();
    if (found.was_cut) {
        best_effort->end();
        CUDA(cudaStreamSynchronize(critical));
    } else if (found.rounds_us.size() > 2) {
        found.rounds_us.erase(found.rounds_us.begin());
    }
    return found;
}

/* The last one is all blocks, asked for or not. */
static std::vector<unsigned> ks_up_to(unsigned most_each)
{
    std::vector<unsigned> found;
    std::copy_if(wanted.ks.begin(), wanted.ks.end(), std::back_inserter(found),
                 [&](unsigned k) { return k < most_each; });
    found.push_back(most_each);
    return found;
}

static void record_pair(const std::string &best_effort_name, const std::string &critical_name)
{
    struct program *lasting = program_called(best_effort_name, wanted.is_large);
    struct program *short_one = program_called(critical_name, wanted.is_large);
    static runner best_effort(wanted.multiprocessors, wanted.numbers);
    double time_us = alone_us(short_one);
    best_effort.begin(lasting);
    rate(&best_effort, nullptr, wanted.window_us);
    double rate_alone = rate(&best_effort, nullptr, 5 * wanted.window_us);
    unsigned unsettled = 0;
    const char *comma = "";
    printf("{\"best_effort\": \"%s\", \"critical\": \"%s\", \"multiprocessors\": %u, \"most_each\": %u, \"alone_us\": "
           "%.2f, \"blocks_per_us\": "
           "%.5g, \"surface\": [",
           best_effort_name.c_str(), critical_name.c_str(), wanted.multiprocessors, best_effort.most_each, time_us,
           rate_alone);
    bool runs = true;
    auto measure = [&](unsigned n, unsigned k) {
        if (!runs) {
            best_effort.begin(lasting);
        }
        best_effort.split(n, k);
        unsettled += !best_effort.settle();
        struct found found = configuration(short_one, &best_effort, time_us, rate_alone);
        runs = !found.was_cut;
        printf("%s[%u, %u, %.3f, %.3f, %.4f, %.0f]", comma, n, k, percentile(found.rounds_us, 0.5) / time_us,
               percentile(found.rounds_us, 0.95) / time_us, found.progress, found.window_us);
        comma = ", ";
    };
    measure(0, 0);
    for (unsigned k : ks_up_to(best_effort.most_each)) {
        if (runs) { /* the places that were given up are taken back by all blocks anew */
            best_effort.end();
            runs = false;
        }
        for (unsigned n = 0; n < wanted.multiprocessors;) {
            n = std::min(n + wanted.step, wanted.multiprocessors);
            measure(n, k);
        }
    }
    if (runs) {
        best_effort.end();
    }
    printf("], \"unsettled\": %u}\n", unsettled);
    fflush(stdout);
}

/* The rate of `program` under a split, beside a neighbour in the places that it gave up if there is one. */
static double rate_under(struct program *program, unsigned n, unsigned k, struct program *neighbour)
{
    static runner ours(wanted.multiprocessors, wanted.numbers), theirs(wanted.multiprocessors, wanted.numbers);
    ours.begin(program);
    ours.split(n, k);
    ours.settle();
    if (neighbour) {
        theirs.begin(neighbour, n * std::min(k, neighbour->most_each()));
    }
    rate(&ours, neighbour ? &theirs : nullptr, wanted.window_us / 4);
    double found = rate(&ours, neighbour ? &theirs : nullptr, wanted.window_us);
    ours.end(); /* first: a neighbour that found no place can end only then */
    if (neighbour) {
        theirs.end();
    }
    return found;
}

static void record_features(const std::string &name)
{
    struct program *program = program_called(name, wanted.is_large);
    struct program *memory = program_called("stride-8-overlap-0.0-iterations-1", wanted.is_large);
    struct program *arithmetic = program_called("stride-1-overlap-0.0-iterations-64", wanted.is_large);
    unsigned all = wanted.multiprocessors, each = program->most_each(), half = std::max(1u, each / 2);
    double whole = rate_under(program, 0, 0, nullptr), fewer = rate_under(program, all / 4, each, nullptr);
    double halved = rate_under(program, all, half, nullptr);
    double block_us = over(all * each, whole);
    const double features[] = {
        over(rate_under(program, all / 2, each, nullptr), whole),
        over(halved, whole),
        over(rate_under(program, all, std::max(1u, each / 4), nullptr), whole),
        over(rate_under(program, all / 4, each, memory), fewer),
        over(rate_under(program, all, half, arithmetic), halved),
        over(rate_under(program, all, half, memory), halved),
        log10(std::max(1.0, block_us)) / 3,
    };
    printf("{\"name\": \"%s\", \"most_each\": %u, \"block_us\": %.3f, \"features\": [", name.c_str(), each, block_us);
    for (unsigned at = 0; at < 7; at++) {
        printf("%s%.4f", at ? ", " : "", std::min(1.0, features[at]));
    }
    printf("]}\n");
    fflush(stdout);
}

/* A round as plain launches, and the first phase persistently, each from the beginning, beside the loops; small sizes.
 */
static bool is_right(const char *name)
{
    auto plainly = make_program(name, false), persistently = make_program(name, false);
    double took_us;
    makes_round(plainly.get(), nullptr, 0, &took_us);
    for (unsigned phase = 0; phase < plainly->nr_phases; phase++) {
        plainly->loops(phase);
    }
    runner whole(wanted.multiprocessors, persistently->nr_blocks);
    whole.begin(persistently.get());
    whole.wait();
    persistently->loops(0);
    if (!plainly->agrees() || !persistently->agrees() || whole.live() > 0) {
        return false;
    }
    printf("{\"name\": \"%s\", \"agrees\": true}\n", name);
    return true;
}

static void usage(void)
{
    fprintf(stderr,
            "surfaces [--large] [--step N] [--ks K,...] [--rounds NR] [--ms OF_A_CONFIGURATION] [--window-ms LEAST]\n"
            "         [--longest TIMES] [--numbers NR] [--carveout PERCENT] --check NAME,... | --features NAME,... | "
            "--pairs "
            "BEST_EFFORT:CRITICAL,...\n");
    exit(2);
}

static void set(const std::string &option, const char *value)
{
    if (option == "--step") {
        wanted.step = (unsigned)number_of(value, 1, usage);
    } else if (option == "--ks") {
        wanted.ks.clear();
        for (const std::string &k : parts_of(value, ',')) {
            wanted.ks.push_back((unsigned)number_of(k.c_str(), 1, usage));
        }
    } else if (option == "--rounds") {
        wanted.rounds = (unsigned)number_of(value, 1, usage);
    } else if (option == "--ms") {
        wanted.configuration_us = 1000 * number_of(value, 0.001, usage);
    } else if (option == "--window-ms") {
        wanted.window_us = 1000 * number_of(value, 0.001, usage);
    } else if (option == "--carveout") {
        wanted.carveout = number_of(value, 0.001, usage);
    } else if (option == "--longest") {
        wanted.longest = number_of(value, 0.001, usage);
    } else if (option == "--numbers") {
        wanted.numbers = (unsigned long long)number_of(value, 1, usage);
    } else {
        usage();
    }
}

/* Exit status: 0, 1 if a program differs from its loops, 2 for a wrong command line or a refusal of CUDA's. */
int main(int argc, char **argv)
{
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* a load while a persistent kernel runs may wait for its end */
    int at = 1, multiprocessors, highest;
    for (; at < argc && strcmp(argv[at], "--check") && strcmp(argv[at], "--features") && strcmp(argv[at], "--pairs");
         at++) {
        if (strcmp(argv[at], "--large") == 0) {
            wanted.is_large = true;
        } else if (at + 1 < argc) {
            set(argv[at], argv[at + 1]);
            at++;
        } else {
            usage();
        }
    }
    if (at + 2 != argc) {
        usage();
    }
    CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    wanted.multiprocessors = (unsigned)multiprocessors;
    CUDA(cudaDeviceGetStreamPriorityRange(nullptr, &highest));
    CUDA(cudaStreamCreateWithPriority(&critical, cudaStreamNonBlocking, highest));
    shared_memory_percent() = (int)wanted.carveout;
    const std::string what = argv[at];
    for (const std::string &name : parts_of(argv[at + 1], ',')) {
        if (what == "--pairs") {
            const auto pair = parts_of(name.c_str(), ':');
            if (pair.size() != 2) {
                usage();
            }
            record_pair(pair[0], pair[1]);
        } else if (what == "--features") {
            record_features(name);
        } else if (!is_right(name.c_str())) {
            return 1;
        }
    }
    return 0;
}
