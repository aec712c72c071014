#include "tensor/op/score_sums/score_sums.h"

#include <math.h>
#include <omp.h>

/* Row t of head h of sequence b, as an index. */
static int64_t row_at(const ls_tensor *x, int64_t b, int64_t t, int64_t h) {
    return b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
}

/* What one thread works in, in doubles: keys [K][T], scores [T]. */
static int64_t space_of(const ls_node *node) {
    const ls_tensor *k = node->in[LS_SCORE_SUMS_K];
    return (k->dim[3] + 1) * k->dim[1];
}

static size_t workspace(const ls_node *node, int threads) {
    return (size_t)(threads * space_of(node)) * sizeof(double);
}

/* The sum of a row's scores, with their decays, from the first key to the row's own. */
static double sum_of(const ls_node *node, int64_t b, int64_t t, int64_t h, double decay,
                     const double *keys, double *scores) {
    const ls_tensor *q = node->in[LS_SCORE_SUMS_Q];
    const int64_t K = q->dim[3], T = q->dim[1], row = row_at(q, b, t, h);
    for (int64_t m = 0; m <= t; m++) scores[m] = 0;
    for (int64_t i = 0; i < K; i++) {
        const double query = ls_tensor_at(q, row + i);
        for (int64_t m = 0; m <= t; m++) scores[m] += query * keys[i * T + m];
    }
    double sum = 0;
    for (int64_t m = 0; m <= t; m++) sum = decay * sum + fabs(scores[m]);
    return sum;
}

static void divide_head(const ls_node *node, int64_t b, int64_t h, double *space) {
    const ls_score_bounds *bounds = node->attributes;
    const ls_tensor *y = node->in[LS_SCORE_SUMS_Y], *k = node->in[LS_SCORE_SUMS_K];
    const ls_tensor *out = node->out[0];
    const int64_t T = k->dim[1], K = k->dim[3];
    const double log_decay = ls_tensor_at(node->in[LS_SCORE_SUMS_DECAY], h);
    double *scores = space + K * T;
    for (int64_t m = 0; m < T; m++)
        for (int64_t i = 0; i < K; i++) space[i * T + m] = ls_tensor_at(k, row_at(k, b, m, h) + i);
    for (int64_t t = 0; t < T; t++) {
        const double count = (double)(t + 1);
        const double kept = log_decay == 0 ? count : expm1(count * log_decay) / expm1(log_decay);
        const double sum = sum_of(node, b, t, h, exp(log_decay), space, scores) / sqrt(kept);
        const double divisor = fmin(fmax(sum, bounds->least), bounds->most);
        for (int64_t j = 0; j < y->dim[3]; j++)
            ls_element_set(ls_data(out), out->type, row_at(out, b, t, h) + j,
                           ls_tensor_at(y, row_at(y, b, t, h) + j) / divisor);
    }
}

static void divide(const ls_run *run, const ls_node *node) {
    const ls_tensor *y = node->in[LS_SCORE_SUMS_Y];
    double *spaces = run->workspace;
#pragma omp parallel for schedule(dynamic) num_threads(run->threads)
    for (int64_t head = 0; head < y->dim[0] * y->dim[2]; head++)
        divide_head(node, head / y->dim[2], head % y->dim[2],
                    spaces + omp_get_thread_num() * space_of(node));
}

const ls_kernel LS_CPU_TABLE(score_sums)[] = {
    {"divide_by_scores", {divide, divide, divide}, workspace},
    {0},
};
