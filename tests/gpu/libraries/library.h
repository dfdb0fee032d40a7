/* What programs of NVIDIA's libraries have in common: what each call gave, and digests of what they computed, which are
 * the same wherever they run on one device. */
#ifndef TESTS_GPU_LIBRARY_H
#define TESTS_GPU_LIBRARY_H

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../../programs/check.h"

/* Prints the call and its status, a number in all of these libraries. */
#define DO(call) printf("%s: %d\n", #call, (int)(call))

template <typename Number> static Number *on_device(const std::vector<Number> &values)
{
    Number *copy;
    CHECK(cudaMalloc(&copy, values.size() * sizeof(Number)));
    CHECK(cudaMemcpy(copy, values.data(), values.size() * sizeof(Number), cudaMemcpyHostToDevice));
    return copy;
}

template <typename Number> static std::vector<Number> from_device(const Number *device, size_t nr)
{
    std::vector<Number> values(nr);
    CHECK(cudaMemcpy(values.data(), device, nr * sizeof(Number), cudaMemcpyDeviceToHost));
    return values;
}

/* A digest of the bytes, and the first numbers for people. */
template <typename Number> static void say(const char *label, const std::vector<Number> &values)
{
    uint64_t digest = 14695981039346656037u;
    for (size_t i = 0; i < values.size() * sizeof(Number); i++) {
        digest = (digest ^ ((const unsigned char *)values.data())[i]) * 1099511628211u;
    }
    printf("%s: %016llx", label, (unsigned long long)digest);
    for (size_t i = 0; i < values.size() && i < 4; i++) {
        printf(" %.6g", (double)values[i]);
    }
    printf("\n");
}

static inline void say_floats(const char *label, const float *device, size_t nr)
{
    say(label, from_device(device, nr));
}

static inline void say_doubles(const char *label, const double *device, size_t nr)
{
    say(label, from_device(device, nr));
}

#endif
