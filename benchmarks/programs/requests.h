/* Requests of a server: when they come, and how long those of a stretch took. */
#ifndef BENCHMARKS_PROGRAMS_REQUESTS_H
#define BENCHMARKS_PROGRAMS_REQUESTS_H

#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <vector>

#include "stretch.h"

/* From its arrival, or its begin where nothing queues up, to its end, on seconds_now()'s clock. */
struct request {
    double begin_s, end_s;
};

/* What so many of a hundred do not exceed, of times in their order. */
static double not_exceeded_s(const std::vector<double> &times_s, double percent)
{
    return times_s.empty() ? 0 : times_s[(size_t)ceil(percent / 100 * times_s.size()) - 1];
}

/* Of those that ended within the stretch: how many, and in us their mean time and what 50, 95 and 99 in 100 do not
 * exceed. */
static void print_requests(const std::vector<struct request> &requests, const struct stretch &stretch)
{
    std::vector<double> times_s;
    double sum_s = 0;
    for (const struct request &request : requests) {
        if (request.end_s >= stretch.begin_s && request.end_s < stretch.end_s) {
            times_s.push_back(request.end_s - request.begin_s);
            sum_s += times_s.back();
        }
    }
    const size_t nr = times_s.size();
    std::sort(times_s.begin(), times_s.end());
    printf(", \"requests\": %zu, \"request_us\": %.9g", nr, nr ? 1e6 * sum_s / nr : 0);
    for (int percent : {50, 95, 99}) {
        printf(", \"request_p%d_us\": %.9g", percent, 1e6 * not_exceeded_s(times_s, percent));
    }
}

#endif
