/*
 * A program with much memory, all of which each of its kernels reads: for benchmarks/experiments/oversubscription.py
 * migration.py and ahead.py.
 *
 *   paging MIB CHANGED PASSES PAUSE_MS [LOOK_MS]
 *
 * A request is PASSES kernels that read all of MIB, and change the first CHANGED percent of it; they are waited for,
 * and a pause of PAUSE_MS follows, if there is one. Says "ready" after the first request, reads "SECONDS" from standard
 * input, and works for so long, or until there is another line. Prints one JSON object: how many passes ended within
 * that, how long they and the pauses took, how long the longest request took, and "wrong", how many words were not what
 * they should be at the end. With LOOK_MS also "looks", how many passes had ended each so many ms: pairs of seconds on
 * the monotonic clock and a number.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <vector>

#include "check.h"
#include "looks.h"
#include "stretch.h"

static const size_t piece_bytes = (size_t)1 << 30;

struct piece {
    uint4 *words;
    size_t nr, nr_changed;
};

__device__ unsigned first_word(size_t i)
{
    return (unsigned)i * 2654435761u + 1;
}

__global__ void fill(uint4 *words, size_t nr)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += (size_t)gridDim.x * blockDim.x) {
        words[i] = make_uint4(first_word(i), (unsigned)i, 7, 0);
    }
}

__global__ void pass(uint4 *words, size_t nr, size_t nr_changed, unsigned *sum)
{
    unsigned own = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += (size_t)gridDim.x * blockDim.x) {
        uint4 word = words[i];
        own += word.x ^ word.y ^ word.z;
        if (i < nr_changed) {
            word.w++;
            words[i] = word;
        }
    }
    if (own == 12345678) { /* so that all is read */
        atomicAdd(sum, own);
    }
}

__global__ void look(const uint4 *words, size_t nr, size_t nr_changed, unsigned nr_passes, unsigned *nr_wrong)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += (size_t)gridDim.x * blockDim.x) {
        const uint4 word = words[i];
        if (word.x != first_word(i) || word.y != (unsigned)i || word.z != 7 ||
            word.w != (i < nr_changed ? nr_passes : 0)) {
            atomicAdd(nr_wrong, 1);
        }
    }
}

/* Another line has come on standard input. Its end is none. */
static bool is_told_to_end(void)
{
    static bool has_ended = false;
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    char line[64];
    if (has_ended || poll(&input, 1, 0) <= 0) {
        return false;
    }
    has_ended = true;
    return read(STDIN_FILENO, line, sizeof(line)) > 0;
}

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "paging MIB CHANGED PASSES PAUSE_MS [LOOK_MS]\n");
        return 2;
    }
    size_t left = strtoul(argv[1], NULL, 10) << 20;
    const double changed = strtod(argv[2], NULL) / 100, pause_us = 1e3 * strtod(argv[4], NULL);
    const double look_s = argc == 6 ? strtod(argv[5], NULL) / 1e3 : 0;
    const int nr_passes = atoi(argv[3]);
    std::vector<struct piece> pieces;
    unsigned *words, nr_all = 0, nr_wrong = 0;
    CHECK(cudaMalloc(&words, 2 * sizeof(unsigned)));
    CHECK(cudaMemset(words, 0, 2 * sizeof(unsigned)));
    while (left != 0) {
        struct piece piece = {NULL, (left < piece_bytes ? left : piece_bytes) / sizeof(uint4), 0};
        piece.nr_changed = (size_t)((double)piece.nr * changed);
        CHECK(cudaMalloc(&piece.words, piece.nr * sizeof(uint4)));
        fill<<<1024, 256>>>(piece.words, piece.nr);
        left -= piece.nr * sizeof(uint4);
        pieces.push_back(piece);
    }
    CHECK(cudaDeviceSynchronize());
    printf("ready\n");
    fflush(stdout);
    char line[64];
    const double seconds = fgets(line, sizeof(line), stdin) ? strtod(line, NULL) : 0;
    const double begin_s = seconds_now(), end_s = begin_s + seconds;
    double longest_s = 0, now_s = begin_s;
    std::vector<struct look> looks(1, {begin_s, 0});
    while (now_s < end_s && !is_told_to_end()) {
        const double from_s = now_s;
        for (int i = 0; i < nr_passes; i++) {
            for (const struct piece &each : pieces) {
                pass<<<1024, 256>>>(each.words, each.nr, each.nr_changed, words);
            }
        }
        CHECK(cudaDeviceSynchronize());
        nr_all += nr_passes;
        now_s = seconds_now();
        longest_s = now_s - from_s > longest_s ? now_s - from_s : longest_s;
        if (look_s > 0 && now_s >= looks.back().at_s + look_s) {
            looks.push_back({now_s, nr_all});
        }
        if (pause_us > 0) {
            sleep_us(pause_us);
            now_s = seconds_now();
        }
    }
    for (const struct piece &each : pieces) {
        look<<<1024, 256>>>(each.words, each.nr, each.nr_changed, nr_all, words + 1);
    }
    CHECK(cudaMemcpy(&nr_wrong, words + 1, sizeof(nr_wrong), cudaMemcpyDeviceToHost));
    printf("{\"passes\": %u, \"seconds\": %.6g, \"longest_s\": %.6g, \"wrong\": %u", nr_all, now_s - begin_s, longest_s,
           nr_wrong);
    if (look_s > 0) {
        print_looks(looks);
    }
    printf("}\n");
    return nr_wrong != 0;
}
