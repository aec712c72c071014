/* Attention scores by distance. A head is one thread's, from the first pair to the last, so that
 * sums have one order for any number of threads. */
#include <math.h>
#include <omp.h>

#include "tensor/op/attention/attention_scores_cpu.h"

static size_t lay_out(const ls_attention_job *job, char *base, score_space *to) {
    space from = {.base = base};
    score_space_take(&from, job, to);
    return from.used;
}

typedef struct profile {
    const float *s; /* scores of a tile */
    int64_t distances;
    double *sum, *count; /* [distances] of one head */
} profile;

static void add_tile(const query_tile *queries, const key_tile *keys, const void *user) {
    const profile *to = user;
    const double unit = 1 / (double)LOG2_E;
    for (int64_t j = 0; j < keys->count; j++) {
        int64_t nearest = queries->positions.first - queries->set->held.first - keys->row - j;
        int64_t first = ls_max(0, -nearest), end = ls_min(queries->count, to->distances - nearest);
        for (int64_t r = first; r < end; r++) { /* without branches, so that it goes by vectors */
            double score = (double)to->s[j * QUERIES + r];
            bool admitted = score != -INFINITY;
            to->sum[nearest + r] += admitted ? unit * score : 0;
            to->count[nearest + r] += admitted ? 1 : 0;
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
    score_space measured;
    ls_attention_resolve(run, node, &job);
    const int64_t distances = clear(node, &sum, &count);
    const size_t bytes = lay_out(&job, NULL, &measured);
#pragma omp parallel num_threads(job.threads)
    {
        score_space scratch;
        lay_out(&job, (char *)job.workspace + (size_t)omp_get_thread_num() * bytes, &scratch);
#pragma omp for schedule(dynamic)
        for (int64_t h = 0; h < job.H; h++) {
            const profile to = {scratch.s, distances, sum + h * distances, count + h * distances};
            for (int64_t b = 0; b < job.B; b++)
                for (int64_t row = 0; row < job.T; row += QUERIES)
                    score_tiles(&job, b, h, row, &scratch, add_tile, &to);
        }
    }
}

static size_t workspace(const ls_node *node, int threads) {
    ls_attention_job job;
    score_space each;
    ls_attention_resolve(NULL, node, &job);
    if (job.set[0].q.type == LS_F64) return 0;
    return lay_out(&job, NULL, &each) * (size_t)threads;
}

const ls_kernel LS_CPU_TABLE(score_profile)[] = {
    {"score_profile", {profile_reference, profile_tiled, profile_tiled}, workspace},
    {"listed_score_profile", {profile_reference, profile_tiled, profile_tiled}, workspace},
    {0},
};
