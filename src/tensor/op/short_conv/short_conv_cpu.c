#include "tensor/op/short_conv/short_conv.h"

#include <math.h>
#include <omp.h>

#include "tensor/cpu/vector.h"

typedef struct conv {
    int64_t B, T, E, taps, x_stride;
    bool silu;
    const void *x, *before;
} conv;

static conv conv_of(const ls_node *node) {
    const ls_short_conv_attributes *about = node->attributes;
    const ls_tensor *x = node->in[0];
    conv c = {.B = x->dim[0], .T = x->dim[1], .taps = node->in[1]->dim[1], .silu = about->silu};
    int64_t rows;
    ls_rows(x, &rows, &c.E, &c.x_stride);
    c.x = ls_data(x);
    c.before = node->in[3] == NULL ? NULL : ls_data(node->in[3]);
    return c;
}

/* Where row t of sequence b begins; rows before the chunk have t < 0. */
LS_INLINE const void *row_of(const conv *c, int64_t b, int64_t t, int64_t *at) {
    *at = t < 0 ? (b * (c->taps - 1) + c->taps - 1 + t) * c->E : (b * c->T + t) * c->x_stride;
    return t < 0 ? c->before : c->x;
}

/* The rows that the next chunk needs: the last of what was before and of this chunk. */
static void keep_tail(const conv *c, const ls_tensor *after) {
    if (after == NULL) return;
    size_t size = ls_dtype_size(after->type);
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t i = 0; i < c->taps - 1; i++) {
            int64_t at;
            const char *row = row_of(c, b, c->T - c->taps + 1 + i, &at);
            memcpy((char *)ls_data(after) + (size_t)((b * (c->taps - 1) + i) * c->E) * size,
                   row + (size_t)at * size, (size_t)c->E * size);
        }
}

/* ---- reference ---- */

static double value_at(const conv *c, int64_t b, int64_t t, int64_t e) {
    int64_t at;
    const double *row = row_of(c, b, t, &at);
    return row[at + e];
}

/* The sum before the activation. */
static double inner_at(const conv *c, const double *weight, const double *bias, int64_t b,
                       int64_t t, int64_t e) {
    double sum = bias == NULL ? 0 : bias[e];
    for (int64_t k = 0; k < c->taps; k++)
        sum += weight[e * c->taps + k] * value_at(c, b, t - c->taps + 1 + k, e);
    return sum;
}

static void forward_f64(const ls_run *run, const ls_node *node) {
    const conv c = conv_of(node);
    const double *weight = ls_data(node->in[1]);
    const double *bias = node->in[2] == NULL ? NULL : ls_data(node->in[2]);
    double *y = ls_data(node->out[0]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < c.B * c.T; row++)
        for (int64_t e = 0; e < c.E; e++) {
            double inner = inner_at(&c, weight, bias, row / c.T, row % c.T, e);
            y[row * c.E + e] = c.silu ? inner / (1 + exp(-inner)) : inner;
        }
    keep_tail(&c, node->out[1]);
}

static void backward_f64(const ls_run *run, const ls_node *node) {
    const conv c = conv_of(node);
    int64_t rows, width, dy_stride, dx_stride;
    ls_rows(node->in[4], &rows, &width, &dy_stride);
    ls_rows(node->out[0], &rows, &width, &dx_stride);
    const double *weight = ls_data(node->in[1]), *dy = ls_data(node->in[4]);
    const double *bias = node->in[2] == NULL ? NULL : ls_data(node->in[2]);
    double *dx = ls_data(node->out[0]), *dweight = ls_param_gradient(run, node->in[1]);
    double *dbias = bias == NULL ? NULL : ls_param_gradient(run, node->in[2]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t e = 0; e < c.E; e++)
        for (int64_t b = 0; b < c.B; b++) {
            for (int64_t t = 0; t < c.T; t++) dx[(b * c.T + t) * dx_stride + e] = 0;
            for (int64_t t = 0; t < c.T; t++) {
                double inner = inner_at(&c, weight, bias, b, t, e), s = 1 / (1 + exp(-inner));
                double d = dy[(b * c.T + t) * dy_stride + e];
                if (c.silu) d *= s * (1 + inner * (1 - s));
                if (dbias != NULL) dbias[e] += d;
                for (int64_t k = 0; k < c.taps; k++) {
                    int64_t from = t - c.taps + 1 + k;
                    dweight[e * c.taps + k] += d * value_at(&c, b, from, e);
                    if (from >= 0)
                        dx[(b * c.T + from) * dx_stride + e] += d * weight[e * c.taps + k];
                }
            }
        }
}

/* ---- f32 and bf16: rows in pieces of 64, whole rows at a time ---- */

enum { ROWS = 64, PARTS = 32 };

static int64_t padded(int64_t E) {
    return ls_round_up(E, LS_LANES);
}

/* Taps one row each, [taps][padded E], so that neighbouring channels are neighbours. */
static void transpose_weights(const conv *c, const float *weight, float *out) {
    for (int64_t e = 0; e < padded(c->E); e++)
        for (int64_t k = 0; k < c->taps; k++)
            out[k * padded(c->E) + e] = e < c->E ? weight[e * c->taps + k] : 0;
}

LS_INLINE ls_vec inner_of(const conv *c, ls_dtype type, const float *weight, const float *bias,
                          int64_t b, int64_t t, int64_t e) {
    ls_vec sum = bias == NULL ? ls_vec_all(0) : ls_load_left(bias, LS_F32, e, c->E - e);
    for (int64_t k = 0; k < c->taps; k++) {
        int64_t at;
        const void *row = row_of(c, b, t - c->taps + 1 + k, &at);
        sum += ls_load(weight, LS_F32, k * padded(c->E) + e) *
               ls_load_left(row, type, at + e, c->E - e);
    }
    return sum;
}

static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)(node->in[1]->dim[1] * padded(node->in[1]->dim[0])) * sizeof(float);
}

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const conv c = conv_of(node);
    const float *bias = node->in[2] == NULL ? NULL : ls_data(node->in[2]);
    float *weight = run->workspace;
    void *y = ls_data(node->out[0]);
    transpose_weights(&c, ls_data(node->in[1]), weight);
#pragma omp parallel for schedule(static) num_threads(run->threads) if (c.B * c.T > ROWS)
    for (int64_t row = 0; row < c.B * c.T; row++)
        for (int64_t e = 0; e < c.E; e += LS_LANES) {
            ls_vec out = inner_of(&c, type, weight, bias, row / c.T, row % c.T, e);
            if (c.silu) out *= ls_vec_sigmoid(out);
            ls_store_left(y, type, row * c.E + e, c.E - e, out);
        }
    keep_tail(&c, node->out[1]);
}

/* Floats of: the transposed weights; sums of each part, taps and bias one row each; per thread the
 * gradients before the activation of a piece's rows and of those after it that reach back. */
typedef struct backward_room {
    int64_t weights, part, scratch;
} backward_room;

static backward_room room_of(int64_t E, int64_t taps) {
    return (backward_room){taps * padded(E), (taps + 1) * padded(E), (ROWS + taps - 1) * padded(E)};
}

static size_t backward_workspace(const ls_node *node, int threads) {
    const backward_room room = room_of(node->in[1]->dim[0], node->in[1]->dim[1]);
    return (size_t)(room.weights + PARTS * room.part + threads * room.scratch) * sizeof(float);
}

typedef struct gradient_rows {
    const void *dy;
    void *dx;
    int64_t dy_stride, dx_stride;
} gradient_rows;

/* Rows first..end of sequence b: their dx, and what they add to the sums. */
LS_INLINE void backward_piece(const conv *c, ls_dtype type, const gradient_rows *g,
                              const float *weight, const float *bias, int64_t b, int64_t first,
                              float *sums, float *scratch) {
    int64_t width = padded(c->E), end = ls_min(first + ROWS, c->T);
    int64_t reach = ls_min(end + c->taps - 1, c->T);
    for (int64_t t = first; t < reach; t++)
        for (int64_t e = 0; e < c->E; e += LS_LANES) {
            ls_vec d = ls_load_left(g->dy, type, (b * c->T + t) * g->dy_stride + e, c->E - e);
            if (c->silu) {
                ls_vec inner = inner_of(c, type, weight, bias, b, t, e), s = ls_vec_sigmoid(inner);
                d *= s * (1.0f + inner * (1.0f - s));
            }
            ls_store(scratch, LS_F32, (t - first) * width + e, d);
        }
    for (int64_t t = first; t < end; t++)
        for (int64_t e = 0; e < c->E; e += LS_LANES) {
            ls_vec dx = ls_vec_all(0), d = ls_load(scratch, LS_F32, (t - first) * width + e);
            for (int64_t k = 0; k < c->taps; k++) {
                int64_t at, later = t + c->taps - 1 - k;
                if (later < reach)
                    dx += ls_load(weight, LS_F32, k * width + e) *
                          ls_load(scratch, LS_F32, (later - first) * width + e);
                const void *row = row_of(c, b, t - c->taps + 1 + k, &at);
                ls_store(sums, LS_F32, k * width + e,
                         ls_load(sums, LS_F32, k * width + e) +
                             d * ls_load_left(row, type, at + e, c->E - e));
            }
            ls_store(sums, LS_F32, c->taps * width + e,
                     ls_load(sums, LS_F32, c->taps * width + e) + d);
            ls_store_left(g->dx, type, (b * c->T + t) * g->dx_stride + e, c->E - e, dx);
        }
}

LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const conv c = conv_of(node);
    const backward_room room = room_of(c.E, c.taps);
    const float *bias = node->in[2] == NULL ? NULL : ls_data(node->in[2]);
    gradient_rows g = {.dy = ls_data(node->in[4]), .dx = ls_data(node->out[0])};
    int64_t rows, E;
    ls_rows(node->in[4], &rows, &E, &g.dy_stride);
    ls_rows(node->out[0], &rows, &E, &g.dx_stride);
    float *weight = run->workspace, *parts = weight + room.weights;
    float *scratches = parts + PARTS * room.part;
    int64_t pieces = ls_ceil_div(c.T, ROWS), all = c.B * pieces;
    transpose_weights(&c, ls_data(node->in[1]), weight);
    memset(parts, 0, (size_t)(PARTS * room.part) * sizeof *parts);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t part = 0; part < PARTS; part++)
        for (int64_t i = all * part / PARTS; i < all * (part + 1) / PARTS; i++)
            backward_piece(&c, type, &g, weight, bias, i / pieces, i % pieces * ROWS,
                           parts + part * room.part,
                           scratches + omp_get_thread_num() * room.scratch);
    float *dweight = ls_param_gradient(run, node->in[1]);
    float *dbias = bias == NULL ? NULL : ls_param_gradient(run, node->in[2]);
    for (int64_t part = 0; part < PARTS; part++) {
        const float *sums = parts + part * room.part;
        for (int64_t e = 0; e < c.E; e++) {
            for (int64_t k = 0; k < c.taps; k++)
                dweight[e * c.taps + k] += sums[k * padded(c.E) + e];
            if (dbias != NULL) dbias[e] += sums[c.taps * padded(c.E) + e];
        }
    }
}

LS_KERNEL_FAST(forward)
LS_KERNEL_FAST(backward)

const ls_kernel LS_CPU_TABLE(short_conv)[] = {
    {"short_conv", LS_KERNEL_BY_TYPE(forward), forward_workspace},
    {"short_conv_grad", LS_KERNEL_BY_TYPE(backward), backward_workspace},
    {0},
};
