#include "bench/turns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ls_median(double *values, size_t count) {
    if (count == 0) return NAN;
    qsort(values, count, sizeof *values, by_value);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

void ls_turns_add(ls_turns *turns, double seconds) {
    if (turns->count < LS_TURNS_MAX) turns->seconds[turns->count++] = seconds;
}

void ls_times_add(ls_bench_times *times, const char *method, double seconds) {
    size_t i = 0;
    while (i < times->methods && strcmp(times->peer[i].name, method) != 0) i++;
    if (i == LS_METHODS_MAX || !(seconds > 0)) return;
    if (i == times->methods) {
        snprintf(times->peer[i].name, sizeof times->peer[i].name, "%s", method);
        times->methods++;
    }
    ls_turns_add(&times->peer[i].turns, seconds);
}

void ls_missing_add(ls_missing *missing, const char *method, const char *why) {
    if (missing->count == LS_METHODS_MAX) return;
    snprintf(missing->at[missing->count].name, sizeof missing->at[0].name, "%s", method);
    snprintf(missing->at[missing->count++].why, sizeof missing->at[0].why, "%s", why);
}

double ls_turns_median(const ls_turns *turns) {
    ls_turns sorted = *turns;
    return ls_median(sorted.seconds, sorted.count);
}

double ls_turns_spread(const ls_turns *turns) {
    ls_turns sorted = *turns;
    const double median = ls_median(sorted.seconds, sorted.count);
    return turns->count == 0 ? NAN
                             : (sorted.seconds[sorted.count - 1] - sorted.seconds[0]) / median;
}

double ls_turns_ratio(const ls_turns *ours, const ls_turns *theirs) {
    return ls_turns_median(theirs) / ls_turns_median(ours);
}

size_t ls_times_fastest(const ls_bench_times *times) {
    size_t best = LS_METHODS_MAX;
    for (size_t i = 0; i < times->methods; i++)
        if (best == LS_METHODS_MAX ||
            ls_turns_median(&times->peer[i].turns) < ls_turns_median(&times->peer[best].turns))
            best = i;
    return best;
}
