/* Attention weights as a view asks for them. A row of the result is one thread's, from the first
 * key to the last, so that sums have one order for any number of threads. */
#include "tensor/op/attention_pattern/attention_pattern.h"

#include <math.h>
#include <omp.h>

#include "tensor/op/attention/attention_scores_cpu.h"

static void pattern_reference(const ls_run *run, const ls_node *node) {
    ls_attention_job job;
    ls_attention_resolve(run, node, &job);
    ls_attention_reference_pattern(&job, ls_pattern_view_of(node), ls_data(node->out[0]));
}

/* What one thread works in; scores become weights where they lie. */
typedef struct thread_space {
    score_space scores;
    float *lse, *entropy, *distance; /* [QUERIES]: of a tile; lse in units of log 2 */
} thread_space;

static size_t lay_out(const ls_attention_job *job, char *base, thread_space *to) {
    space from = {.base = base};
    score_space_take(&from, job, &to->scores);
    to->lse = space_take(&from, QUERIES);
    to->entropy = space_take(&from, QUERIES);
    to->distance = space_take(&from, QUERIES);
    return from.used;
}

/* Where the values of a tile of queries go. */
typedef struct target {
    const thread_space *scratch;
    const ls_pattern_view *view;
    double *at; /* of the first query */
    int64_t stride, columns;
} target;

/* Scores to weights; the tile's part of each query's entropy and distance. Distances are taken from
 * the tile's first pair, so that they are small. */
static void weigh_tile(const key_tile *keys, const thread_space *scratch) {
    const vec unit = ls_vec_all(LN_2);
    for (int64_t r = 0; r < QUERIES; r += LS_LANES) {
        const vec lse = vec_load(scratch->lse + r);
        vec entropy = ls_vec_all(0), distance = ls_vec_all(0);
        for (int64_t j = 0; j < keys->count; j++) {
            float *at = scratch->scores.s + j * QUERIES + r;
            /* a score of -infinity has the weight 0, and 0 times it must be 0 */
            const vec log2_weight = ls_vec_max(ls_vec_all(-1000), vec_load(at) - lse);
            const vec weight = vec_exp2(log2_weight);
            entropy -= weight * log2_weight * unit;
            distance -= weight * ls_vec_all((float)j);
            vec_store(at, weight);
        }
        vec_store(scratch->entropy + r, entropy);
        vec_store(scratch->distance + r, distance);
    }
}

static void add_tile(const query_tile *queries, const key_tile *keys, const void *user) {
    const target *to = user;
    const thread_space *scratch = to->scratch;
    const ls_pattern_view *view = to->view;
    const int64_t first_key = queries->set->held.first + keys->row; /* its position */
    weigh_tile(keys, scratch);
    for (int64_t r = 0; r < queries->count; r++) {
        const int64_t n = queries->positions.first + r;
        const float *weight = scratch->scores.s + r;
        double *out = to->at + r * to->stride, sum = 0;
        for (int64_t j = 0; j < keys->count; j++) sum += (double)weight[j * QUERIES];
        out[to->columns - 2] += (double)scratch->entropy[r];
        out[to->columns - 1] += (double)scratch->distance[r] + sum * (double)(n - first_key);
        for (int64_t i = 0; i < view->distances; i++) {
            const int64_t j = n - view->distance[i] - first_key;
            if (j >= 0 && j < keys->count) out[i] += (double)weight[j * QUERIES];
        }
        for (int64_t m = ls_max(0, first_key);
             m < ls_min(view->first_keys, first_key + keys->count); m++)
            out[view->distances + m] += (double)weight[(m - first_key) * QUERIES];
    }
}

/* Of a tile of queries; one that sees no key has no weights. */
static void take_lse(const ls_attention_job *job, int64_t b, int64_t h, int64_t row, float *out) {
    const float *lse = (const float *)job->lse + (b * job->H + h) * job->T;
    for (int64_t r = 0; r < QUERIES; r++) {
        const float at = row + r < job->T ? lse[row + r] : 0;
        out[r] = at == -INFINITY ? 0 : at * LOG2_E;
    }
}

static void pattern_tiled(const ls_run *run, const ls_node *node) {
    ls_attention_job job;
    thread_space measured;
    ls_attention_resolve(run, node, &job);
    const ls_tensor *out = node->out[0];
    double *result = memset(ls_data(out), 0, (size_t)ls_count(out) * sizeof(double));
    const int64_t tiles = ls_ceil_div(job.T, QUERIES), columns = out->dim[3];
    const size_t bytes = lay_out(&job, NULL, &measured);
#pragma omp parallel num_threads(job.threads)
    {
        thread_space scratch;
        lay_out(&job, (char *)job.workspace + (size_t)omp_get_thread_num() * bytes, &scratch);
#pragma omp for schedule(dynamic)
        for (int64_t unit = 0; unit < job.B * job.H * tiles; unit++) {
            const int64_t b = unit / (job.H * tiles), h = unit / tiles % job.H;
            const int64_t row = unit % tiles * QUERIES;
            const target to = {.scratch = &scratch,
                               .view = ls_pattern_view_of(node),
                               .at = result + ((b * job.T + row) * job.H + h) * columns,
                               .stride = job.H * columns,
                               .columns = columns};
            take_lse(&job, b, h, row, scratch.lse);
            score_tiles(&job, b, h, row, &scratch.scores, add_tile, &to);
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

const ls_kernel LS_CPU_TABLE(attention_pattern)[] = {
    {"attention_pattern", {pattern_reference, pattern_tiled, pattern_tiled}, workspace},
    {"listed_attention_pattern", {pattern_reference, pattern_tiled, pattern_tiled}, workspace},
    {0},
};
