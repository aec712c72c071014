#include "tensor/cpu/vector.h"
#include "tensor/op/padding/padding.h"

static void valid_rows(const ls_run *run, const ls_node *node) {
    (void)run;
    const int32_t *ids = ls_data(node->in[0]);
    uint8_t *valid = ls_data(node->out[0]);
    for (int64_t i = 0; i < ls_count(node->in[0]); i++) valid[i] = ids[i] >= 0;
}

/* The result may lie over what it was made from. */
static void mask_rows(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const uint8_t *valid = ls_data(node->in[1]);
    const size_t size = ls_dtype_size(x->type);
    int64_t rows, width, from, to;
    ls_rows(x, &rows, &width, &from);
    ls_rows(y, &rows, &width, &to);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        const char *in = (const char *)ls_data(x) + (size_t)(row * from) * size;
        char *out = (char *)ls_data(y) + (size_t)(row * to) * size;
        if (valid[row] == 0)
            memset(out, 0, (size_t)width * size);
        else if (in != out)
            memcpy(out, in, (size_t)width * size);
    }
}

/* ---- pooling: y = sum_t weight_t x_t, and so dx_t = weight_t dy ---- */

typedef struct pool {
    ls_pool_kind kind;
    int64_t B, T, D, stride; /* of the rows of x or dx */
    const uint8_t *valid;    /* or NULL */
} pool;

/* The valid rows of a sequence. */
typedef struct span {
    int64_t first, last, count;
} span;

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)node->in[0]->dim[0] * sizeof(span);
}

static pool pool_of(const ls_run *run, const ls_node *node, const ls_tensor *x) {
    pool p = {.kind = *(const ls_pool_kind *)node->attributes, .B = x->dim[0], .T = x->dim[1]};
    int64_t rows;
    ls_rows(x, &rows, &p.D, &p.stride);
    if (node->in[1] != NULL) p.valid = ls_data(node->in[1]);
    span *spans = run->workspace;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < p.B; b++) {
        span s = {-1, -1, 0};
        for (int64_t t = 0; t < p.T; t++) {
            if (p.valid != NULL && p.valid[b * p.T + t] == 0) continue;
            if (s.count++ == 0) s.first = t;
            s.last = t;
        }
        spans[b] = s;
    }
    return p;
}

static double weight_of(const ls_run *run, const pool *p, int64_t b, int64_t t) {
    const span *s = (const span *)run->workspace + b;
    if (p->kind == LS_POOL_FIRST) return t == s->first ? 1 : 0;
    if (p->kind == LS_POOL_LAST) return t == s->last ? 1 : 0;
    return p->valid != NULL && p->valid[b * p->T + t] == 0 ? 0 : 1 / (double)s->count;
}

static void pool_f64(const ls_run *run, const ls_node *node) {
    const pool p = pool_of(run, node, node->in[0]);
    const double *x = ls_data(node->in[0]);
    double *y = ls_data(node->out[0]);
    for (int64_t b = 0; b < p.B; b++)
        for (int64_t i = 0; i < p.D; i++) {
            double sum = 0;
            for (int64_t t = 0; t < p.T; t++) {
                double weight = weight_of(run, &p, b, t);
                if (weight != 0) sum += weight * x[(b * p.T + t) * p.stride + i];
            }
            y[b * p.D + i] = sum;
        }
}

static void pool_grad_f64(const ls_run *run, const ls_node *node) {
    const pool p = pool_of(run, node, node->out[0]);
    int64_t rows, width, dy_stride;
    ls_rows(node->in[0], &rows, &width, &dy_stride);
    const double *dy = ls_data(node->in[0]);
    double *dx = ls_data(node->out[0]);
    for (int64_t row = 0; row < p.B * p.T; row++)
        for (int64_t i = 0; i < p.D; i++)
            dx[row * p.stride + i] =
                weight_of(run, &p, row / p.T, row % p.T) * dy[row / p.T * dy_stride + i];
}

/* Columns of a sequence belong to one thread; sums of blocks are summed, so that long sequences
 * lose nothing. */
LS_INLINE void pool_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    enum { BLOCK = 64 };
    const pool p = pool_of(run, node, node->in[0]);
    const void *x = ls_data(node->in[0]);
    const int64_t pieces = ls_ceil_div(p.D, LS_LANES);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < p.B * pieces; piece++) {
        const int64_t b = piece / pieces, i = piece % pieces * LS_LANES;
        ls_vec sum = ls_vec_all(0);
        for (int64_t first = 0; first < p.T; first += BLOCK) {
            ls_vec part = ls_vec_all(0);
            for (int64_t t = first; t < ls_min(p.T, first + BLOCK); t++) {
                float weight = (float)weight_of(run, &p, b, t);
                if (weight != 0)
                    part += weight * ls_load_left(x, type, (b * p.T + t) * p.stride + i, p.D - i);
            }
            sum += part;
        }
        ls_store_left(ls_data(node->out[0]), type, b * p.D + i, p.D - i, sum);
    }
}

LS_INLINE void pool_grad_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const pool p = pool_of(run, node, node->out[0]);
    int64_t rows, width, dy_stride;
    ls_rows(node->in[0], &rows, &width, &dy_stride);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < p.B * p.T; row++) {
        const int64_t b = row / p.T;
        const float weight = (float)weight_of(run, &p, b, row % p.T);
        for (int64_t i = 0; i < p.D; i += LS_LANES)
            ls_store_left(ls_data(node->out[0]), type, row * p.stride + i, p.D - i,
                          weight *
                              ls_load_left(ls_data(node->in[0]), type, b * dy_stride + i, p.D - i));
    }
}

LS_KERNEL_FAST(pool)
LS_KERNEL_FAST(pool_grad)

const ls_kernel LS_CPU_TABLE(padding)[] = {
    {"valid_rows", {valid_rows, valid_rows, valid_rows}, NULL},
    {"mask_rows", {mask_rows, mask_rows, mask_rows}, NULL},
    {"pool_rows", LS_KERNEL_BY_TYPE(pool), workspace},
    {"pool_rows_grad", LS_KERNEL_BY_TYPE(pool_grad), workspace},
    {0},
};
