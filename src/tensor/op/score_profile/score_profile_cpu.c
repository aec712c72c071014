/* Attention scores by distance. A head is one thread's, from the first pair to the last, so that
 * sums have one order for any number of threads. */
#include <math.h>
#include <omp.h>

#include "tensor/op/attention/attention_tile_cpu.h"

/* What one thread works in. */
typedef struct thread_space {
    float *transposed, *relative_transposed; /* [padded K][QUERIES] */
    float *rows, *decay;                     /* [KEYS][padded K] */
    float *band, *meet;
    float *s; /* [KEYS][QUERIES] */
} thread_space;

static size_t lay_out(const ls_attention_job *job, char *base, thread_space *to) {
    const int64_t k = padded(job->K);
    space from = {.base = base};
    to->transposed = space_take(&from, k * QUERIES);
    to->relative_transposed = space_take(&from, k * QUERIES);
    to->rows = space_take(&from, KEYS * k);
    to->decay = space_take(&from, KEYS * k);
    to->band = space_take(&from, BAND * k);
    to->meet = space_take(&from, BAND * QUERIES);
    to->s = space_take(&from, KEYS * QUERIES);
    return from.used;
}

typedef struct profile {
    int64_t distances;
    double *sum, *count; /* [distances] of one head */
} profile;

/* Scores are in units of log 2; those of pairs that are not admitted are -infinity. */
static void add_tile(const query_tile *queries, const key_tile *keys, const float *s,
                     const profile *to) {
    const double unit = 1 / (double)LOG2_E;
    for (int64_t j = 0; j < keys->count; j++) {
        int64_t nearest = queries->positions.first - queries->set->held.first - keys->row - j;
        int64_t first = ls_max(0, -nearest), end = ls_min(queries->count, to->distances - nearest);
        for (int64_t r = first; r < end; r++) { /* without branches, so that it goes by vectors */
            double score = (double)s[j * QUERIES + r];
            bool admitted = score != -INFINITY;
            to->sum[nearest + r] += admitted ? unit * score : 0;
            to->count[nearest + r] += admitted ? 1 : 0;
        }
    }
}

/* A tile of queries against all keys of all sets. */
static void add_queries(const ls_attention_job *job, int64_t b, int64_t h, int64_t row,
                        const thread_space *scratch, const profile *to) {
    query_tile queries = {.transposed = scratch->transposed,
                          .relative_transposed = scratch->relative_transposed};
    for (int s = 0; s < job->sets; s++) {
        const ls_key_set_run *set = &job->set[s];
        const ls_tile_rule *rule = &set->about->rule;
        ls_tile_run runs[LS_TILE_RUNS_MAX];
        ls_tile_queries(&queries, job, set, b, h, row, score_factor(job), scratch->rows);
        int count = ls_tile_runs_of_queries(rule, queries.positions, set->held, runs);
        for (int i = 0; i < count; i++)
            for (int64_t t = tile_next_keys(&queries, runs[i].first); t < runs[i].end;
                 t = tile_next_keys(&queries, t + 1)) {
                int64_t left = ls_interval_length(set->held) - t * KEYS;
                key_tile keys = {.row = t * KEYS,
                                 .count = ls_min(KEYS, left),
                                 .full = runs[i].full,
                                 .band = scratch->band,
                                 .meet = scratch->meet};
                ls_tile_scores(&queries, &keys, scratch->rows, scratch->decay, scratch->s);
                add_tile(&queries, &keys, scratch->s, to);
            }
    }
}

/* Clears the result and finds its two halves, [H, distances] each. */
static int64_t clear(const ls_node *node, double **sum, double **count) {
    const ls_tensor *out = node->out[0];
    *sum = memset(ls_data(out), 0, (size_t)ls_count(out) * sizeof(double));
    *count = *sum + ls_count(out) / 2;
    return out->dim[2];
}

static void profile_reference(const ls_run *run, const ls_node *node) {
    ls_attention_job job;
    double *sum, *count;
    ls_attention_resolve(run, node, &job);
    int64_t distances = clear(node, &sum, &count);
    ls_attention_reference_profile(&job, distances, sum, count);
}

static void profile_tiled(const ls_run *run, const ls_node *node) {
    ls_attention_job job;
    double *sum, *count;
    thread_space measured;
    ls_attention_resolve(run, node, &job);
    const int64_t distances = clear(node, &sum, &count);
    const size_t bytes = lay_out(&job, NULL, &measured);
#pragma omp parallel num_threads(job.threads)
    {
        thread_space scratch;
        lay_out(&job, (char *)job.workspace + (size_t)omp_get_thread_num() * bytes, &scratch);
#pragma omp for schedule(dynamic)
        for (int64_t h = 0; h < job.H; h++) {
            const profile to = {distances, sum + h * distances, count + h * distances};
            for (int64_t b = 0; b < job.B; b++)
                for (int64_t row = 0; row < job.T; row += QUERIES)
                    add_queries(&job, b, h, row, &scratch, &to);
        }
    }
}

static size_t workspace(const ls_node *node, int threads) {
    ls_attention_job job;
    thread_space each;
    ls_attention_resolve(NULL, node, &job);
    if (job.set[0].q.type == LS_F64) return 0;
    return lay_out(&job, NULL, &each) * (size_t)threads;
}

const ls_kernel LS_CPU_TABLE(score_profile)[] = {
    {"score_profile", {profile_reference, profile_tiled, profile_tiled}, workspace},
    {"listed_score_profile", {profile_reference, profile_tiled, profile_tiled}, workspace},
    {0},
};
