/*
 * __managed__ variables: program and device write them in turn, in variables side by side, a large one, and through a
 * pointer; copies and sets reach them too. With an argument it adds to one for each line of its input instead.
 */
#include <cstring>
#include <iostream>
#include <string>

#include "check.h"

const int NR = 300000;

__managed__ int counter = 5;
__managed__ char letters[7] = "abcdef";
__managed__ double untouched = 2.5;
__managed__ int large[NR];

__global__ void work(int add)
{
    counter += add;
    letters[0]++;
    for (int i = threadIdx.x; i < NR; i += blockDim.x) {
        large[i] += i;
    }
}

__global__ void through_a_pointer(int *value)
{
    *value *= 2;
}

static bool large_is(int factor, int more)
{
    for (int i = 0; i < NR; i++) {
        if (large[i] != factor * i + (i == 7 ? more : 0)) {
            return false;
        }
    }
    return true;
}

static int add_for_each_line()
{
    puts("ready");
    fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
        work<<<1, 1>>>(1);
        CHECK(cudaDeviceSynchronize());
        printf("%d\n", counter);
        fflush(stdout);
    }
    puts("PASS");
    return 0;
}

int main(int argc, char **)
{
    if (argc > 1) {
        return add_for_each_line();
    }
    printf("at first: %d %s %.1f %d\n", counter, letters, untouched, large[NR - 1]);
    counter = 10;
    letters[3] = 'x';
    large[7] = 1000;
    work<<<1, 1>>>(3);
    CHECK(cudaDeviceSynchronize());
    printf("after a kernel: %d %s %.1f %d\n", counter, letters, untouched, large_is(1, 1000));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (int i = 0; i < 5; i++) {
        counter++;
        work<<<1, 1, 0, stream>>>(100);
        through_a_pointer<<<1, 1, 0, stream>>>(&counter);
        CHECK(cudaStreamSynchronize(stream));
    }
    printf("in turn: %d %s %d\n", counter, letters, large_is(6, 1000));
    counter = 77;
    int copied = 0;
    CHECK(cudaMemcpy(&copied, &counter, sizeof(copied), cudaMemcpyDefault));
    printf("copied: %d\n", copied);
    CHECK(cudaMemset(letters, 'z', 3));
    CHECK(cudaDeviceSynchronize());
    printf("set: %s\n", letters);
    copied = -4;
    CHECK(cudaMemcpy(&counter, &copied, sizeof(copied), cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    printf("copied to: %d, beside it: %.1f\n", counter, untouched);
    puts("PASS");
    return 0;
}
