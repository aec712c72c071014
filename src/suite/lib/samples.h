/* samples.jsonl: a line for every item that was asked, from which all results follow, and which an
 * interrupted run goes on from. */
#ifndef LS_SUITE_LIB_SAMPLES_H
#define LS_SUITE_LIB_SAMPLES_H

#include <stdio.h>

#include "suite/suite.h"

typedef struct ls_samples {
    ls_ctx *ctx;
    char path[LS_TRAINED_PATH]; /* "": they are kept in memory alone */
    FILE *file;
    json_t **groups; /* [group_count]: arrays of records; NULL: none */
    int64_t group_count, items;
} ls_samples;

/* Opens the file of a folder (NULL: none), reading what is there. `identity` says what the samples
 * are of: LS_EUSE where those of the file are of something else. */
ls_status ls_samples_open(ls_ctx *ctx, const char *folder, const json_t *identity, int64_t groups,
                          ls_samples *out);
/* Whether all items of a group are there. */
bool ls_samples_has(const ls_samples *samples, int64_t group);
/* Adds the records of a group, an array that passes to the samples, and writes them. */
ls_status ls_samples_add(ls_samples *samples, int64_t group, json_t *records);
/* Whether an array has all records of a group, each with what the results need. */
bool ls_samples_fit(const ls_samples *samples, int64_t group, const json_t *records);
/* Drops the records of a group that are somebody else's from now on. */
void ls_samples_forget(ls_samples *samples, int64_t group);
/* Closes; clear in any case. */
ls_status ls_samples_close(ls_samples *samples);
void ls_samples_clear(ls_samples *samples);

/* Means, intervals and cells of all records: adds "n", "score", "metrics" and "cells" to an object,
 * and "shares", whether all scores say right or wrong. */
ls_status ls_samples_results(const ls_samples *samples, uint64_t seed, int64_t resamples,
                             json_t *results);

#endif
