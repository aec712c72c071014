/* Attention in f64, pair by pair: the specification of the fast kernels.
 *
 *   s(i,j) = scale * (sum_e q_e k_e decay_e + relative_q . relative[distance]) + bias(distance),
 *            with a cap: cap tanh(s / cap)
 *   p      = softmax of s over the visible keys of all sets
 *   o_i    = sum_j p(i,j) v_j
 *
 * A rotated element's decay is exp(log_decay * (n - reference)) where the key already carries
 * exp(log_decay * (reference - m)): together exp(log_decay * (n - m)). */
#include <math.h>

#include "tensor/op/attention/attention_kernels_cpu.h"

typedef struct pair {
    const ls_key_set_run *set;
    int64_t b, h, g, i, j; /* batch, head, key head, query row, key row */
    int64_t n, m;          /* positions */
} pair;

static double *row_of(const ls_attention_array *x, int64_t b, int64_t row, int64_t head) {
    return (double *)x->data + b * x->batch + row * x->row + head * x->head;
}

static int64_t clamped(int64_t value, int64_t rows) {
    return ls_max(0, ls_min(value, rows - 1));
}

static int64_t whole_distance(const pair *at) {
    return (int64_t)llrint(ls_attention_query_at(at->set, at->b, at->n)) -
           (int64_t)llrint(ls_position_map_at(at->set->about->set.key_at, at->m));
}

static int64_t table_column(const pair *at) {
    return clamped(whole_distance(at) + at->set->about->set.table_zero, at->set->table_rows);
}

static int64_t relative_row(const pair *at) {
    return clamped(whole_distance(at), at->set->relative_rows);
}

/* The query's part of the decay of element e. */
static double decay(const pair *at, int64_t e) {
    const ls_key_set_plan *about = at->set->about;
    int64_t rotated = about->set.xpos.pairs > 0 ? ls_attention_decay_pair(about, e) : -1;
    if (rotated < 0) return 1;
    double block = (double)about->set.xpos.block;
    double reference = floor(ls_position_map_at(about->set.key_at, at->m) / block) * block;
    return exp(about->set.xpos.log_decay[rotated] *
               (ls_attention_query_at(at->set, at->b, at->n) - reference));
}

static double uncapped(const ls_attention_job *job, const pair *at) {
    const ls_key_set_run *set = at->set;
    const double *q = row_of(&set->q, at->b, at->i, at->h);
    const double *k = row_of(&set->k, at->b, at->j, at->g);
    double content = 0, bias = 0;
    int32_t times = ls_attention_times(set, at->h, at->n, at->m);
    if (times > 1) bias = log(times);
    for (int64_t e = 0; e < job->K; e++) content += q[e] * k[e] * decay(at, e);
    if (set->slopes != NULL) {
        double distance = ls_attention_query_at(set, at->b, at->n) -
                          ls_position_map_at(set->about->set.key_at, at->m);
        if (set->about->set.lo < 0) distance = fabs(distance);
        bias -= ((const double *)set->slopes)[at->h] * distance;
    }
    if (set->table != NULL)
        bias += ((const double *)set->table)[at->h * set->table_stride + table_column(at)];
    if (set->relative.data != NULL) {
        const double *u = row_of(&set->relative_q, at->b, at->i, at->h);
        const double *r = row_of(&set->relative, 0, relative_row(at), at->h);
        for (int64_t e = 0; e < job->K; e++) content += u[e] * r[e];
    }
    return job->scale * content + bias;
}

static double score(const ls_attention_job *job, const pair *at) {
    const double s = uncapped(job, at);
    return job->cap > 0 ? job->cap * tanh(s / job->cap) : s;
}

/* The derivative of a capped score by what it was before. */
static double cap_slope(const ls_attention_job *job, double s) {
    return 1 - s / job->cap * (s / job->cap);
}

/* Steps to the next admitted pair of query row i (start with j = -1 in set 0). */
static bool next_pair(const ls_attention_job *job, pair *at) {
    const ls_key_set_run *end = job->set + job->sets;
    for (; at->set < end; at->set++, at->j = -1)
        while (++at->j < ls_interval_length(at->set->held)) {
            at->m = at->set->held.first + at->j;
            if (at->set->valid != NULL && at->set->valid[at->b * at->set->valid_batch + at->j] == 0)
                continue;
            if (ls_attention_admits(at->set, at->h, at->n, at->m) &&
                ls_attention_times(at->set, at->h, at->n, at->m) > 0)
                return true;
        }
    return false;
}

static pair before_first(const ls_attention_job *job, int64_t b, int64_t h, int64_t i) {
    return (pair){.set = job->set,
                  .b = b,
                  .h = h,
                  .g = h / (job->H / job->G),
                  .i = i,
                  .j = -1,
                  .n = job->start + i};
}

static void forward_row(const ls_attention_job *job, int64_t b, int64_t h, int64_t i) {
    double *out = row_of(&job->out, b, i, h);
    double *lse = (double *)job->lse + (b * job->H + h) * job->T + i;
    double most = job->off_by_one ? 0 : -INFINITY, sum = 0;
    for (pair at = before_first(job, b, h, i); next_pair(job, &at);) {
        double s = score(job, &at);
        if (!(s <= most)) most = s;
    }
    for (int64_t e = 0; e < job->V; e++) out[e] = 0;
    if (job->off_by_one) sum = exp(-most);
    for (pair at = before_first(job, b, h, i); next_pair(job, &at);) {
        const double *v = row_of(&at.set->v, b, at.j, at.g);
        double weight = exp(score(job, &at) - most);
        sum += weight;
        for (int64_t e = 0; e < job->V; e++) out[e] += weight * v[e];
    }
    *lse = most == -INFINITY ? -INFINITY : most + log(sum);
    for (int64_t e = 0; e < job->V && sum != 0; e++) out[e] /= sum;
}

void ls_attention_reference(const ls_attention_job *job) {
    int64_t rows = job->B * job->H * job->T;
#pragma omp parallel for schedule(dynamic) num_threads(job->threads)
    for (int64_t row = 0; row < rows; row++)
        forward_row(job, row / (job->H * job->T), row / job->T % job->H, row % job->T);
}

void ls_attention_reference_profile(const ls_attention_job *job, int64_t distances, double *sum,
                                    double *count) {
#pragma omp parallel for schedule(dynamic) num_threads(job->threads)
    for (int64_t h = 0; h < job->H; h++)
        for (int64_t row = 0; row < job->B * job->T; row++)
            for (pair at = before_first(job, row / job->T, h, row % job->T); next_pair(job, &at);) {
                int64_t distance = at.n - at.m;
                if (distance < 0 || distance >= distances) continue;
                sum[h * distances + distance] += score(job, &at);
                count[h * distances + distance] += 1;
            }
}

static void pattern_row(const ls_attention_job *job, const ls_pattern_view *view, pair at,
                        double lse, double *out) {
    const int64_t columns = ls_pattern_columns(view);
    for (int64_t c = 0; c < columns; c++) out[c] = 0;
    while (next_pair(job, &at)) {
        const double s = score(job, &at) - lse, weight = exp(s);
        if (weight == 0) continue; /* its logarithm may be without bound */
        out[columns - 2] -= weight * s;
        out[columns - 1] += weight * (double)(at.n - at.m);
        for (int64_t i = 0; i < view->distances; i++)
            if (at.n - at.m == view->distance[i]) out[i] += weight;
        if (at.m >= 0 && at.m < view->first_keys) out[view->distances + at.m] += weight;
    }
}

void ls_attention_reference_pattern(const ls_attention_job *job, const ls_pattern_view *view,
                                    double *out) {
    const double *lse = job->lse;
    const int64_t rows = job->B * job->T * job->H;
#pragma omp parallel for schedule(dynamic) num_threads(job->threads)
    for (int64_t row = 0; row < rows; row++) {
        const int64_t b = row / (job->T * job->H), i = row / job->H % job->T, h = row % job->H;
        pattern_row(job, view, before_first(job, b, h, i), lse[(b * job->H + h) * job->T + i],
                    out + row * ls_pattern_columns(view));
    }
}

/* ---- gradients ---- */

static void clear(const ls_attention_array *x, int64_t batches, int64_t rows, int64_t head,
                  int64_t heads, int64_t width) {
    if (x->data == NULL) return;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t row = 0; row < rows; row++)
            for (int64_t h = head; h < head + heads; h++)
                memset(row_of(x, b, row, h), 0, (size_t)width * sizeof(double));
}

static void add(const ls_attention_array *x, int64_t b, int64_t row, int64_t head, int64_t width,
                double factor, const double *values) {
    if (x->data == NULL) return;
    double *to = row_of(x, b, row, head);
    for (int64_t e = 0; e < width; e++) to[e] += factor * values[e];
}

static void backward_pair(const ls_attention_job *job, const pair *at, double lse, double dot,
                          const double *dout) {
    const ls_key_set_run *set = at->set;
    const double *v = row_of(&set->v, at->b, at->j, at->g);
    const double s = score(job, at);
    double p = exp(s - lse), dp = 0;
    for (int64_t e = 0; e < job->V; e++) dp += dout[e] * v[e];
    double ds = p * (dp - dot);
    if (job->cap > 0) ds *= cap_slope(job, s);
    const double scaled = job->scale * ds;
    add(&set->dv, at->b, at->j, at->g, job->V, p, dout);
    const double *q = row_of(&set->q, at->b, at->i, at->h);
    const double *k = row_of(&set->k, at->b, at->j, at->g);
    for (int64_t e = 0; e < job->K; e++) {
        double factor = scaled * decay(at, e);
        if (set->dq.data != NULL) row_of(&set->dq, at->b, at->i, at->h)[e] += factor * k[e];
        if (set->dk.data != NULL) row_of(&set->dk, at->b, at->j, at->g)[e] += factor * q[e];
    }
    if (set->dtable != NULL)
        ((double *)set->dtable)[at->h * set->dtable_stride + table_column(at)] += ds;
    if (set->relative.data != NULL) {
        int64_t row = relative_row(at);
        add(&set->drelative_q, at->b, at->i, at->h, job->K, scaled,
            row_of(&set->relative, 0, row, at->h));
        add(&set->drelative, 0, row, at->h, job->K, scaled,
            row_of(&set->relative_q, at->b, at->i, at->h));
    }
}

/* All that belongs to key head g, so that no two threads write the same place. */
static void backward_group(const ls_attention_job *job, int64_t g) {
    int64_t shared = job->H / job->G;
    for (int s = 0; s < job->sets; s++) {
        const ls_key_set_run *set = &job->set[s];
        clear(&set->dq, job->B, job->T, g * shared, shared, job->K);
        clear(&set->dk, job->B, set->key_rows, g, 1, job->K);
        clear(&set->dv, job->B, set->key_rows, g, 1, job->V);
        clear(&set->drelative_q, job->B, job->T, g * shared, shared, job->K);
        clear(&set->drelative, 1, set->relative_rows, g * shared, shared, job->K);
        for (int64_t h = g * shared; set->dtable != NULL && h < (g + 1) * shared; h++)
            memset((double *)set->dtable + h * set->dtable_stride, 0,
                   (size_t)set->table_rows * sizeof(double));
    }
    for (int64_t b = 0; b < job->B; b++)
        for (int64_t h = g * shared; h < (g + 1) * shared; h++)
            for (int64_t i = 0; i < job->T; i++) {
                const double *out = row_of(&job->out, b, i, h), *dout = row_of(&job->dout, b, i, h);
                double lse = ((const double *)job->lse)[(b * job->H + h) * job->T + i], dot = 0;
                for (int64_t e = 0; e < job->V; e++) dot += out[e] * dout[e];
                for (pair at = before_first(job, b, h, i); next_pair(job, &at);)
                    backward_pair(job, &at, lse, dot, dout);
            }
}

void ls_attention_reference_grad(const ls_attention_job *job) {
#pragma omp parallel for schedule(dynamic) num_threads(job->threads)
    for (int64_t g = 0; g < job->G; g++) backward_group(job, g);
}
