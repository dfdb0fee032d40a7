/* How much a program had done by when, as "looks" of the JSON object that it prints. */
#ifndef BENCHMARKS_PROGRAMS_LOOKS_H
#define BENCHMARKS_PROGRAMS_LOOKS_H

#include <stdio.h>
#include <vector>

struct look {
    double at_s;
    unsigned long long nr_ended;
};

static void print_looks(const std::vector<struct look> &looks)
{
    printf(", \"looks\": [");
    for (size_t i = 0; i < looks.size(); i++) {
        printf("%s[%.4f, %llu]", i ? ", " : "", looks[i].at_s, looks[i].nr_ended);
    }
    printf("]");
}

#endif
