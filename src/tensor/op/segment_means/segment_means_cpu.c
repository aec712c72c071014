#include "tensor/cpu/vector.h"
#include "tensor/op/segment_means/segment_means.h"

/* The rows of a text, and where each of its M pieces begins: rows bound[j] .. bound[j+1] - 1, of
 * which those that are padding do not count. */
typedef struct segments {
    int64_t T, M;
    const uint8_t *valid; /* of all texts, at valid_stride; NULL: every row counts */
    int64_t valid_stride;
    int64_t *bound; /* [B, M + 1] */
    int64_t *rows;  /* [B]: that count */
} segments;

static bool counts(const segments *s, int64_t b, int64_t t) {
    return s->valid == NULL || s->valid[b * s->valid_stride + t] != 0;
}

/* The first of n rows that belongs to piece j. */
static int64_t first_of(int64_t n, int64_t M, int64_t j) {
    if (n <= M) return ls_min(j, n);
    int64_t s = n / M, small = (s + 1) * M - n;
    return j <= small ? j * s : small * s + (j - small) * (s + 1);
}

static void find_bounds(const segments *s, int64_t b) {
    int64_t *bound = s->bound + b * (s->M + 1), n = 0, seen = 0, j = 1;
    for (int64_t t = 0; t < s->T; t++) n += counts(s, b, t);
    s->rows[b] = n;
    bound[0] = 0;
    for (int64_t t = 0; t < s->T; t++) {
        if (!counts(s, b, t)) continue;
        for (; j < s->M && first_of(n, s->M, j) == seen; j++) bound[j] = t;
        seen++;
    }
    for (; j <= s->M; j++) bound[j] = s->T;
}

static size_t workspace_of(int64_t B, int64_t M) {
    return (size_t)(B * (M + 2)) * sizeof(int64_t);
}

static segments pieces_of(const ls_run *run, const ls_tensor *x, const ls_tensor *means,
                          const ls_tensor *valid) {
    segments s = {.T = x->dim[1], .M = means->dim[1]};
    if (valid != NULL) s.valid = ls_data(valid), s.valid_stride = valid->stride[0];
    s.bound = run->workspace;
    s.rows = s.bound + x->dim[0] * (s.M + 1);
    for (int64_t b = 0; b < x->dim[0]; b++) find_bounds(&s, b);
    return s;
}

static int64_t rows_in(const segments *s, int64_t b, int64_t j) {
    return first_of(s->rows[b], s->M, j + 1) - first_of(s->rows[b], s->M, j);
}

static int64_t row_at(const ls_tensor *x, int64_t b, int64_t t) {
    return b * x->stride[0] + t * x->stride[1];
}

LS_INLINE void mean_row(const segments *s, const ls_tensor *x, const ls_tensor *y, int64_t b,
                        int64_t j, int64_t width) {
    const int64_t *bound = s->bound + b * (s->M + 1), n = rows_in(s, b, j), to = row_at(y, b, j);
    const double share = n == 0 ? 0 : 1 / (double)n;
    const void *from = ls_data(x);
    for (int64_t i = 0; x->type == LS_F64 && i < width; i++) {
        double sum = 0;
        for (int64_t t = bound[j]; t < bound[j + 1]; t++)
            if (counts(s, b, t)) sum += ((const double *)from)[row_at(x, b, t) + i];
        ((double *)ls_data(y))[to + i] = sum * share;
    }
    for (int64_t i = 0; x->type != LS_F64 && i < width; i += LS_LANES) {
        ls_vec sum = ls_vec_all(0);
        for (int64_t t = bound[j]; t < bound[j + 1]; t++)
            if (counts(s, b, t)) sum += ls_load_left(from, x->type, row_at(x, b, t) + i, width - i);
        ls_store_left(ls_data(y), y->type, to + i, width - i, sum * (float)share);
    }
}

static void forward(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const segments s = pieces_of(run, x, y, node->in[1]);
    uint8_t *used = node->out[1] == NULL ? NULL : ls_data(node->out[1]);
    uint8_t *few = node->out[2] == NULL ? NULL : ls_data(node->out[2]);
    const int64_t B = x->dim[0], width = x->dim[2] * x->dim[3];
    for (int64_t b = 0; few != NULL && b < B; b++) few[b] = s.rows[b] <= s.M;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < B * s.M; piece++) {
        int64_t b = piece / s.M, j = piece % s.M;
        mean_row(&s, x, y, b, j, width);
        if (used != NULL) used[piece] = rows_in(&s, b, j) > 0;
    }
}

/* Each row that counts gets its share of its piece's gradient. */
static void backward(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[0], *dx = node->out[0];
    const segments s = pieces_of(run, dx, dy, node->in[1]);
    const int64_t B = dx->dim[0], width = dx->dim[2] * dx->dim[3];
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < B * s.M; piece++) {
        int64_t b = piece / s.M, j = piece % s.M, n = rows_in(&s, b, j), from = row_at(dy, b, j);
        const int64_t *bound = s.bound + b * (s.M + 1);
        for (int64_t t = bound[j]; t < bound[j + 1]; t++) {
            double share = counts(&s, b, t) ? 1 / (double)n : 0;
            int64_t to = row_at(dx, b, t);
            for (int64_t i = 0; dx->type == LS_F64 && i < width; i++)
                ((double *)ls_data(dx))[to + i] = ((const double *)ls_data(dy))[from + i] * share;
            for (int64_t i = 0; dx->type != LS_F64 && i < width; i += LS_LANES)
                ls_store_left(ls_data(dx), dx->type, to + i, width - i,
                              ls_load_left(ls_data(dy), dy->type, from + i, width - i) *
                                  (float)share);
        }
    }
}

static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return workspace_of(node->in[0]->dim[0], node->out[0]->dim[1]);
}
static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return workspace_of(node->in[0]->dim[0], node->in[0]->dim[1]);
}

const ls_kernel LS_CPU_TABLE(segment_means)[] = {
    {"segment_means", {forward, forward, forward}, forward_workspace},
    {"segment_means_grad", {backward, backward, backward}, backward_workspace},
    {0},
};
