/* Durations of turns and what is made of them: ours and the peer's by the same arithmetic. */
#ifndef LS_BENCH_TURNS_H
#define LS_BENCH_TURNS_H

#include <stddef.h>

enum { LS_TURNS_MAX = 100, LS_METHODS_MAX = 8 };

/* Seconds that the work took, a number for each turn. */
typedef struct ls_turns {
    size_t count;
    double seconds[LS_TURNS_MAX];
} ls_turns;

/* Methods of a peer that have no figures, and why. */
typedef struct ls_missing {
    size_t count;
    struct {
        char name[32], why[256];
    } at[LS_METHODS_MAX];
} ls_missing;

/* Those of ours and of each of the peer's methods. */
typedef struct ls_bench_times {
    ls_turns ours;
    double seconds;                /* of a turn; 0: it has no length of its own */
    char torch[40], llama_cpp[40]; /* the peer's version; empty: not known */
    ls_missing missing;
    size_t methods;
    struct {
        char name[32];
        ls_turns turns;
    } peer[LS_METHODS_MAX];
} ls_bench_times;

/* The middle one, or the mean of the two in the middle; sorts the values. NaN of none. */
double ls_median(double *values, size_t count);

/* What does not fit is left out. */
void ls_turns_add(ls_turns *turns, double seconds);
void ls_times_add(ls_bench_times *times, const char *method, double seconds);
void ls_missing_add(ls_missing *missing, const char *method, const char *why);

double ls_turns_median(const ls_turns *turns);
/* Longest less shortest turn, as a share of the median. */
double ls_turns_spread(const ls_turns *turns);
/* How many times as fast ours is. */
double ls_turns_ratio(const ls_turns *ours, const ls_turns *theirs);
/* The peer's method with the lowest median; LS_METHODS_MAX where it has none. */
size_t ls_times_fastest(const ls_bench_times *times);

#endif
