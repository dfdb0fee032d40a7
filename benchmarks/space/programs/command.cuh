/* What the measuring programs have in common: the clock, percentiles, and numbers in words of a command line. */
#ifndef BENCHMARKS_SPACE_COMMAND_CUH
#define BENCHMARKS_SPACE_COMMAND_CUH

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

static inline double now_us(void)
{
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

/* The least value that so large a part of them does not exceed. */
static inline double percentile(std::vector<double> values, double part)
{
    std::sort(values.begin(), values.end());
    return values[(size_t)std::max(0.0, ceil(part * (double)values.size()) - 1)];
}

static inline std::vector<std::string> parts_of(const char *text, char border)
{
    std::vector<std::string> found(1);
    for (; *text; text++) {
        if (*text == border) {
            found.emplace_back();
        } else {
            found.back() += *text;
        }
    }
    return found;
}

/* At least so much; else `usage`, which does not return. */
static inline double number_of(const char *text, double least, void (*usage)(void))
{
    char *end;
    double found = strtod(text, &end);
    if (end == text || *end || !(found >= least) || found > 1e9) {
        usage();
    }
    return found;
}

#endif
