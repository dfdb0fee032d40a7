/*
 * Work that is counted in a stretch of time, for programs whose kernels count it themselves, in memory that the host
 * reads at any moment. Where the stretch lies they are told on standard input, as common.h says.
 */
#ifndef BENCHMARKS_PROGRAMS_STRETCH_H
#define BENCHMARKS_PROGRAMS_STRETCH_H

#include <stdio.h>
#include <time.h>

struct stretch {
    double begin_s, end_s, edge_s;
};

struct count {
    unsigned long long first, last; /* had ended when the stretch began, and when it ended */
    double nr;                      /* that count */
};

static const double longest_lead_s = 3600; /* more is no lead, but a time of the day */
static const double step_s = 0.001;        /* between looks at what has ended, in an edge */

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void sleep_us(double us)
{
    struct timespec nap = {(time_t)(us / 1e6), (long)((long long)(us * 1e3) % 1000000000)};
    nanosleep(&nap, NULL);
}

static void sleep_until(double at_s)
{
    double left_s = at_s - seconds_now();
    if (left_s > 0) {
        sleep_us(left_s * 1e6);
    }
}

/* Where the stretch lies, asked from whoever started all programs; false when that was no stretch. */
static bool ask(struct stretch *stretch)
{
    double lead_s, length_s, edge_s;
    char line[128];
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin) || sscanf(line, "%lf %lf %lf", &lead_s, &length_s, &edge_s) != 3 ||
        !(lead_s >= 0 && lead_s <= longest_lead_s) || !(length_s > 0) || !(edge_s >= 0 && edge_s <= length_s / 2)) {
        fprintf(stderr,
                "a window is three numbers on standard input: when it begins, in s from now, how long it lasts, and "
                "how much of that each edge takes, half of it at most\n");
        return false;
    }
    stretch->begin_s = seconds_now() + lead_s;
    stretch->end_s = stretch->begin_s + length_s;
    stretch->edge_s = edge_s;
    return true;
}

/* One more line, or the end of the input. */
static void wait_for_word(void)
{
    char line[128];
    (void)!fgets(line, sizeof(line), stdin);
}

/* The seconds that count. */
static double counted_s(struct stretch stretch)
{
    return stretch.end_s - stretch.begin_s - stretch.edge_s;
}

/* How many had ended in the mean of an edge. */
static double mean_ended(double begin_s, double end_s, const volatile unsigned long long *nr_ended)
{
    double sum = 0;
    long nr = 0;
    do {
        sum += (double)*nr_ended;
        nr++;
        sleep_until(begin_s + (double)nr * step_s);
    } while (seconds_now() < end_s);
    return sum / (double)nr;
}

/* What ended between the mean of the first edge and that of the last. */
static struct count count(struct stretch stretch, const volatile unsigned long long *nr_ended)
{
    struct count counted;
    sleep_until(stretch.begin_s);
    counted.first = *nr_ended;
    double begun = mean_ended(stretch.begin_s, stretch.begin_s + stretch.edge_s, nr_ended);
    sleep_until(stretch.end_s - stretch.edge_s);
    counted.nr = mean_ended(stretch.end_s - stretch.edge_s, stretch.end_s, nr_ended) - begun;
    counted.last = *nr_ended;
    return counted;
}

#endif
