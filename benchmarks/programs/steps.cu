/*
 * A program that does what it is told and ends: for benchmarks/experiments/arrivals.py.
 *
 *   steps MIB < STEPS
 *
 * Each line of its input is a row: a pause in us, and then lengths of kernels in us. It pauses, launches these kernels
 * one after the other, and waits for the last one. MIB of the device's memory are its own and filled once. Says "began"
 * when the first kernel has been launched, and at the end of its input "ended".
 */
#include <cuda_runtime.h>
#include <iostream>
#include <sstream>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <vector>

#include "check.h"
#include "device_clock.cuh"
#include "stretch.h"

static const size_t piece_bytes = (size_t)1 << 30;

static void say(const char *word)
{
    printf("%s\n", word);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const long mib = argc == 2 ? atol(argv[1]) : 0;
    if (mib < 1) {
        fprintf(stderr, "steps MIB < STEPS\n");
        return 2;
    }
    std::vector<std::vector<double>> rows;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::vector<double> row;
        for (double us; words >> us;) {
            row.push_back(us);
        }
        if (row.empty() || !words.eof()) {
            fprintf(stderr, "steps: a row is a pause and lengths of kernels, in us: %s\n", line.c_str());
            return 2;
        }
        rows.push_back(row);
    }
    for (size_t left = (size_t)mib << 20, bytes; left; left -= bytes) {
        void *piece;
        bytes = left < piece_bytes ? left : piece_bytes;
        CHECK(cudaMalloc(&piece, bytes));
        CHECK(cudaMemset(piece, 1, bytes));
    }
    CHECK(cudaDeviceSynchronize());
    bool has_begun = false;
    for (const std::vector<double> &row : rows) {
        sleep_us(row[0]);
        for (size_t i = 1; i < row.size(); i++) {
            spin<<<1, 1>>>((unsigned long long)(row[i] * 1e3));
            CHECK(cudaGetLastError());
            if (!has_begun) {
                say("began");
                has_begun = true;
            }
        }
        CHECK(cudaDeviceSynchronize());
    }
    say("ended");
    return 0;
}
