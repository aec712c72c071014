#include "tensor/op/past_conv/past_conv.h"

#include <omp.h>

#include "base/memory.h"
#include "tensor/cpu/vector.h"

/* Where a tensor's rows are: b * batch + row * row elements from its start. */
typedef struct rows {
    void *data;
    int64_t batch, row;
} rows;

static rows rows_of(const ls_tensor *tensor) {
    if (tensor == NULL) return (rows){0};
    return (rows){ls_data(tensor), tensor->stride[0], tensor->stride[1]};
}

/* Row `newest` of u is that of the chunk's first token; the one of lag s lies s rows before. Of a
 * cache in parts there may be neither: rows 0 to `held` are. */
typedef struct conv {
    int64_t B, T, D, lags, newest, held;
    int64_t before; /* rows before the chunk that have a gradient */
    rows u, k;
    const void *skip;
} conv;

static conv conv_of(const ls_run *run, const ls_node *node, const ls_tensor *y) {
    const ls_tensor *u = node->in[0], *k = node->in[1];
    return (conv){
        .B = y->dim[0],
        .T = y->dim[1],
        .D = y->dim[2],
        .lags = k->port >= 0 ? ls_cache_extent(run, k).count : k->dim[1],
        .newest = run->start - ls_cache_extent(run, u).first,
        .held = ls_cache_extent(run, u).count,
        .u = rows_of(u),
        .k = rows_of(k),
        .skip = node->in[2] == NULL ? NULL : ls_data(node->in[2]),
    };
}

static double *spot(rows x, int64_t b, int64_t row, int64_t d) {
    return (double *)x.data + b * x.batch + row * x.row + d;
}

/* ---- reference: the definition ---- */

static void forward_f64(const ls_run *run, const ls_node *node) {
    const conv c = conv_of(run, node, node->out[0]);
    const rows y = rows_of(node->out[0]);
    const double *skip = c.skip;
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t t = 0; t < c.T; t++)
            for (int64_t d = 0; d < c.D; d++) {
                int64_t here = c.newest + t;
                const bool own = here >= 0 && here < c.held;
                double sum = skip == NULL || !own ? 0 : skip[d] * *spot(c.u, b, here, d);
                for (int64_t s = ls_max(0, here - c.held + 1); s <= here && s < c.lags; s++)
                    sum += *spot(c.k, 0, s, d) * *spot(c.u, b, here - s, d);
                *spot(y, b, t, d) = sum;
            }
}

static conv backward_of(const ls_run *run, const ls_node *node) {
    const ls_past_conv_attributes *about = node->attributes;
    conv c = conv_of(run, node, node->in[3]);
    c.before = about->past ? c.newest : 0;
    return c;
}

static void backward_f64(const ls_run *run, const ls_node *node) {
    const conv c = backward_of(run, node);
    const rows dy = rows_of(node->in[3]), du = rows_of(node->out[0]), dk = rows_of(node->out[1]);
    const double *skip = c.skip;
    double *dskip = skip == NULL ? NULL : ls_param_gradient(run, node->in[2]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < c.D; d++) {
        for (int64_t s = 0; dk.data != NULL && s < node->out[1]->dim[1]; s++)
            *spot(dk, 0, s, d) = 0;
        for (int64_t b = 0; b < c.B; b++) {
            for (int64_t m = 0; du.data != NULL && m < node->out[0]->dim[1]; m++)
                *spot(du, b, m, d) = 0;
            for (int64_t t = 0; t < c.T; t++) {
                int64_t here = c.newest + t;
                double g = *spot(dy, b, t, d);
                if (dskip != NULL) dskip[d] += g * *spot(c.u, b, here, d);
                if (du.data != NULL && skip != NULL) *spot(du, b, here, d) += g * skip[d];
                for (int64_t s = 0; s <= here && s < c.lags; s++) {
                    if (dk.data != NULL) *spot(dk, 0, s, d) += g * *spot(c.u, b, here - s, d);
                    if (du.data != NULL && s <= t + c.before)
                        *spot(du, b, here - s, d) += g * *spot(c.k, 0, s, d);
                }
            }
        }
    }
}

/* ---- f32 and bf16: channels in the lanes, eight rows of a result at a time ----
 *
 * Every one of the three sums slides one sequence of rows along another:
 *   y[t]  = sum_m u[m] k[newest + t - m]
 *   du[t] = sum_s k[s] dy[t + s]            (of the rows that have a gradient)
 *   dk[s] = sum_m u[m] dy[m - newest + s] */

enum { BLOCK = 8 };

/* sum[i] += c[m] a[first + i + direction m] for m in [low, high), where a has that row. */
typedef struct sliding {
    rows a, c;
    int64_t b_a, b_c; /* sequences */
    int64_t first, direction, low, high, end;
} sliding;

LS_INLINE ls_vec load(rows x, ls_dtype type, int64_t b, int64_t row, int64_t d, int64_t left) {
    return ls_load_left(x.data, type, b * x.batch + row * x.row + d, left);
}

LS_INLINE void slide(const sliding *s, ls_dtype a_type, ls_dtype c_type, int64_t d, int64_t left,
                     int count, ls_vec *sum) {
    for (int64_t m = s->low; m < s->high; m++) {
        const int64_t from = s->first + s->direction * m;
        const ls_vec c = load(s->c, c_type, s->b_c, m, d, left);
        if (from >= 0 && from + count <= s->end) {
#pragma GCC unroll 8
            for (int i = 0; i < count; i++)
                sum[i] += load(s->a, a_type, s->b_a, from + i, d, left) * c;
        } else {
            for (int i = 0; i < count; i++)
                if (from + i >= 0 && from + i < s->end)
                    sum[i] += load(s->a, a_type, s->b_a, from + i, d, left) * c;
        }
    }
}

/* The same for a block of rows, or for one; whole vectors need not look where they end. */
LS_INLINE void slide_rows(const sliding *s, ls_dtype a_type, ls_dtype c_type, int64_t d,
                          int64_t left, int64_t count, ls_vec *sum) {
    if (count == BLOCK && left >= LS_LANES)
        slide(s, a_type, c_type, d, LS_LANES, BLOCK, sum);
    else if (count == BLOCK)
        slide(s, a_type, c_type, d, left, BLOCK, sum);
    else if (left >= LS_LANES)
        slide(s, a_type, c_type, d, LS_LANES, 1, sum);
    else
        slide(s, a_type, c_type, d, left, 1, sum);
}

/* How many rows from `row` on are taken together. */
LS_INLINE int64_t rows_at(int64_t row, int64_t total) {
    return total - row >= BLOCK ? BLOCK : 1;
}

LS_INLINE void clear(ls_vec *sum) {
    for (int i = 0; i < BLOCK; i++) sum[i] = ls_vec_all(0);
}

LS_INLINE ls_vec skip_of(const conv *c, int64_t d, int64_t left) {
    return c->skip == NULL ? ls_vec_all(0) : ls_load_left(c->skip, LS_F32, d, left);
}

/* to[at + i] = sum[i] + skip * along[from + i]. */
typedef struct finish {
    rows to, along;
    int64_t b, at, from, count, held; /* held: rows of `along` */
} finish;

LS_INLINE void store_rows(const finish *f, ls_dtype type, int64_t d, int64_t left, ls_vec skip,
                          const ls_vec *sum) {
    for (int64_t i = 0; i < f->count; i++) {
        const int64_t from = f->from + i;
        ls_vec y = sum[i];
        if (from >= 0 && from < f->held) y += skip * load(f->along, type, f->b, from, d, left);
        ls_store_left(f->to.data, type, f->b * f->to.batch + (f->at + i) * f->to.row + d, left, y);
    }
}

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const conv c = conv_of(run, node, node->out[0]);
    const rows y = rows_of(node->out[0]);
    const int64_t blocks = ls_ceil_div(c.D, LS_LANES), spans = ls_ceil_div(c.T, BLOCK);
#pragma omp parallel num_threads(run->threads)
    {
        uint64_t subnormals = ls_subnormals_flush(); /* kernels end in them */
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < c.B * spans * blocks; piece++) {
            const int64_t d = piece % blocks * LS_LANES, left = c.D - d;
            const int64_t b = piece / blocks / spans, first = piece / blocks % spans * BLOCK;
            const int64_t end = ls_min(first + BLOCK, c.T);
            for (int64_t t = first, count; t < end; t += count) {
                count = rows_at(t, end);
                const int64_t here = c.newest + t;
                const sliding s = {c.k,
                                   c.u,
                                   0,
                                   b,
                                   here,
                                   -1,
                                   ls_max(0, here - c.lags + 1),
                                   ls_min(here + count, c.held),
                                   c.lags};
                ls_vec sum[BLOCK];
                clear(sum);
                slide_rows(&s, LS_F32, type, d, left, count, sum);
                const finish f = {y, c.u, b, t, here, count, c.held};
                store_rows(&f, type, d, left, skip_of(&c, d, left), sum);
            }
        }
        ls_subnormals_restore(subnormals);
    }
}

/* du of one sequence: of the chunk's rows, and of those before it that have a gradient. */
LS_INLINE void input_gradient(const conv *c, ls_dtype type, rows dy, rows du, int64_t held,
                              int64_t b, int64_t d) {
    const int64_t left = c->D - d;
    for (int64_t m = 0; m < held; m++)
        if (m < c->newest - c->before || m >= c->newest + c->T)
            ls_store_left(du.data, type, b * du.batch + m * du.row + d, left, ls_vec_all(0));
    for (int64_t t = -c->before, count; t < 0; t += count) {
        count = rows_at(t, 0);
        const sliding s = {dy, c->k, b, 0, t, 1, 1 - t - count, ls_min(c->lags, c->T - t), c->T};
        ls_vec sum[BLOCK];
        clear(sum);
        slide_rows(&s, type, LS_F32, d, left, count, sum);
        for (int64_t i = 0; i < count; i++)
            ls_store_left(du.data, type, b * du.batch + (c->newest + t + i) * du.row + d, left,
                          sum[i]);
    }
    for (int64_t t = 0, count; t < c->T; t += count) {
        count = rows_at(t, c->T);
        const sliding s = {dy, c->k, b, 0, t, 1, 0, ls_min(c->lags, c->T - t), c->T};
        ls_vec sum[BLOCK];
        clear(sum);
        slide_rows(&s, type, LS_F32, d, left, count, sum);
        const finish f = {du, dy, b, c->newest + t, t, count, c->T};
        store_rows(&f, type, d, left, skip_of(c, d, left), sum);
    }
}

/* What a thread works with: the channels of a vector, of one sequence's inputs and gradients, row
 * after row, and the kernel's gradient so far. */
typedef struct scratch {
    float *u, *dy, *dk;
} scratch;

static int64_t scratch_rows(const ls_node *node) {
    return node->in[0]->dim[1] + node->in[3]->dim[1] + node->in[1]->dim[1];
}

static size_t backward_workspace(const ls_node *node, int threads) {
    return (size_t)(threads * scratch_rows(node) * LS_LANES) * sizeof(float);
}

static scratch scratch_at(const ls_run *run, const ls_node *node) {
    float *at = (float *)run->workspace + omp_get_thread_num() * scratch_rows(node) * LS_LANES;
    scratch w = {.u = at};
    w.dy = w.u + node->in[0]->dim[1] * LS_LANES;
    w.dk = w.dy + node->in[3]->dim[1] * LS_LANES;
    return w;
}

/* Rows first..end of the channels of a vector of a sequence. */
LS_INLINE void take(rows from, ls_dtype type, int64_t b, int64_t first, int64_t end, int64_t d,
                    int64_t left, float *to) {
    for (int64_t row = first; row < end; row++)
        ls_store(to, LS_F32, row * LS_LANES, load(from, type, b, row, d, left));
}

/* Adds one sequence's share to the gradient of the kernel. */
static void kernel_gradient(const conv *c, const scratch *w) {
    const rows u = {w->u, 0, LS_LANES}, dy = {w->dy, 0, LS_LANES};
    for (int64_t lag = 0, count; lag < c->lags; lag += count) {
        count = rows_at(lag, c->lags);
        const int64_t first = lag - c->newest, low = ls_max(0, 1 - first - count);
        const sliding s = {dy, u, 0, 0, first, 1, low, c->T - first, c->T};
        ls_vec sum[BLOCK];
        for (int64_t i = 0; i < count; i++) sum[i] = ls_load(w->dk, LS_F32, (lag + i) * LS_LANES);
        slide_rows(&s, LS_F32, LS_F32, 0, LS_LANES, count, sum);
        for (int64_t i = 0; i < count; i++) ls_store(w->dk, LS_F32, (lag + i) * LS_LANES, sum[i]);
    }
}

LS_INLINE void kernel_gradients(const conv *c, const scratch *w, ls_dtype type, rows dy, rows dk,
                                int64_t held, int64_t d) {
    const int64_t left = c->D - d;
    memset(w->dk, 0, (size_t)(held * LS_LANES) * sizeof *w->dk);
    for (int64_t b = 0; b < c->B; b++) {
        take(c->u, type, b, ls_max(0, c->newest - c->lags + 1), c->newest + c->T, d, left, w->u);
        take(dy, type, b, 0, c->T, d, left, w->dy);
        kernel_gradient(c, w);
    }
    for (int64_t lag = 0; lag < held; lag++)
        ls_store_left(dk.data, LS_F32, lag * dk.row + d, left,
                      ls_load(w->dk, LS_F32, lag * LS_LANES));
}

LS_INLINE void skip_gradient(const conv *c, ls_dtype type, rows dy, float *dskip, int64_t d) {
    const int64_t left = c->D - d;
    ls_vec sum = ls_load_left(dskip, LS_F32, d, left);
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t t = 0; t < c->T; t++)
            sum += load(dy, type, b, t, d, left) * load(c->u, type, b, c->newest + t, d, left);
    ls_store_left(dskip, LS_F32, d, left, sum);
}

LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const conv c = backward_of(run, node);
    const ls_tensor *du = node->out[0], *dk = node->out[1];
    const rows dy = rows_of(node->in[3]);
    float *dskip = c.skip == NULL ? NULL : ls_param_gradient(run, node->in[2]);
#pragma omp parallel num_threads(run->threads)
    {
        const scratch w = scratch_at(run, node);
        uint64_t subnormals = ls_subnormals_flush();
#pragma omp for schedule(static)
        for (int64_t d = 0; d < c.D; d += LS_LANES) {
            for (int64_t b = 0; du != NULL && b < c.B; b++)
                input_gradient(&c, type, dy, rows_of(du), du->dim[1], b, d);
            if (dk != NULL) kernel_gradients(&c, &w, type, dy, rows_of(dk), dk->dim[1], d);
            if (dskip != NULL) skip_gradient(&c, type, dy, dskip, d);
        }
        ls_subnormals_restore(subnormals);
    }
}

LS_KERNEL_FAST(forward)
LS_KERNEL_FAST(backward)

const ls_kernel LS_CPU_TABLE(past_conv)[] = {
    {"past_conv", LS_KERNEL_BY_TYPE(forward), NULL},
    {"past_conv_grad", LS_KERNEL_BY_TYPE(backward), backward_workspace},
    {0},
};
