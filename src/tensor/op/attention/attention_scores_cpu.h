/* The scores of a tile of queries against all keys of all sets, for operations that look at scores
 * and compute no output. */
#ifndef LS_TENSOR_CPU_ATTENTION_SCORES_H
#define LS_TENSOR_CPU_ATTENTION_SCORES_H

#include "tensor/op/attention/attention_tile_cpu.h"

/* What one thread works in. */
typedef struct score_space {
    float *transposed, *relative_transposed; /* [padded K][QUERIES] */
    float *rows, *decay;                     /* [KEYS][padded K] */
    float *band, *meet;
    float *s; /* [KEYS][QUERIES] */
} score_space;

static inline void score_space_take(space *from, const ls_attention_job *job, score_space *to) {
    const int64_t k = padded(job->K);
    to->transposed = space_take(from, k * QUERIES);
    to->relative_transposed = space_take(from, k * QUERIES);
    to->rows = space_take(from, KEYS * k);
    to->decay = space_take(from, KEYS * k);
    to->band = space_take(from, BAND * k);
    to->meet = space_take(from, BAND * QUERIES);
    to->s = space_take(from, KEYS * QUERIES);
}

/* Calls `visit` for each tile of keys that some query of the tile at `row` sees; the scores are in
 * scratch->s, in units of log 2, and -infinity where a pair is not admitted. */
typedef void visit_scores(const query_tile *queries, const key_tile *keys, const void *user);
static inline void score_tiles(const ls_attention_job *job, int64_t b, int64_t h, int64_t row,
                               const score_space *scratch, visit_scores *visit, const void *user) {
    query_tile queries = {.transposed = scratch->transposed,
                          .relative_transposed = scratch->relative_transposed};
    for (int s = 0; s < job->sets; s++) {
        const ls_key_set_run *set = &job->set[s];
        ls_tile_run runs[LS_TILE_RUNS_MAX];
        ls_tile_queries(&queries, job, set, b, h, row, score_factor(job), scratch->rows);
        int count = ls_tile_runs_of_queries(&set->about->rule, queries.positions, set->held, runs);
        for (int i = 0; i < count; i++)
            for (int64_t t = tile_next_keys(&queries, runs[i].first); t < runs[i].end;
                 t = tile_next_keys(&queries, t + 1)) {
                const int64_t left = ls_interval_length(set->held) - t * KEYS;
                const key_tile keys = {.row = t * KEYS,
                                       .count = ls_min(KEYS, left),
                                       .full = runs[i].full,
                                       .first = true,
                                       .band = scratch->band,
                                       .meet = scratch->meet};
                tile_clear_absent(&queries, scratch->s);
                ls_tile_scores(&queries, &keys, scratch->rows, scratch->decay, scratch->s);
                visit(&queries, &keys, user);
            }
    }
}

#endif
