#include "tensor/op/long_conv/long_conv.h"

#include <omp.h>

#include "base/memory.h"
#include "tensor/cpu/vector.h"

enum { DIRECT = LS_CONV_DIRECT, SPLIT = LS_CONV_SPLIT };

/* The operands of both ways. Towards the future everything runs backwards in time, and the kernel
 * begins one step later: y[t] = sum_s k[s] u[t+1+s]. */
typedef struct conv {
    int64_t B, T, D, taps; /* taps: kernel values that can meet an input */
    int64_t delay;         /* 1 towards the future, else 0 */
    bool future;
    int64_t u_stride, k_stride;
    const void *u, *k, *skip;
    const float *roots;
    int64_t longest, root_count;
} conv;

static conv conv_of(const ls_node *node) {
    const ls_tensor *u = node->in[0], *k = node->in[1];
    const ls_long_conv_attributes *about = node->attributes;
    int64_t rows, width, delay = about->future ? 1 : 0;
    conv c = {
        .B = u->dim[0],
        .T = u->dim[1],
        .D = u->dim[2],
        .taps = ls_min(k->dim[1], u->dim[1] - delay),
        .delay = delay,
        .future = about->future,
        .k_stride = k->dim[1],
        .u = ls_data(u),
        .k = ls_data(k),
        .skip = node->in[2] == NULL ? NULL : ls_data(node->in[2]),
        .roots = node->in[3] == NULL ? NULL : ls_data(node->in[3]),
        .longest = ls_conv_longest(u->dim[1]),
    };
    c.root_count = 4 * c.longest;
    ls_rows(u, &rows, &width, &c.u_stride);
    return c;
}

static int64_t stride_of(const ls_tensor *tensor) {
    int64_t rows, width, stride = 0;
    if (tensor != NULL) ls_rows(tensor, &rows, &width, &stride);
    return stride;
}

/* ---- reference: the definition ---- */

/* Where the input stands that value s of the kernel meets at time t; out of range for none. */
static int64_t met(const conv *c, int64_t t, int64_t s) {
    return c->future ? t + 1 + s : t - s;
}

static void forward_f64(const ls_run *run, const ls_node *node) {
    const conv c = conv_of(node);
    const double *u = c.u, *k = c.k, *skip = c.skip;
    double *y = ls_data(node->out[0]);
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t t = 0; t < c.T; t++)
            for (int64_t d = 0; d < c.D; d++) {
                int64_t here = b * c.T + t;
                double sum = skip == NULL ? 0 : skip[d] * u[here * c.u_stride + d];
                for (int64_t s = 0; s < c.taps; s++) {
                    int64_t at = met(&c, t, s);
                    if (at < 0 || at >= c.T) break;
                    sum += k[d * c.k_stride + s] * u[(b * c.T + at) * c.u_stride + d];
                }
                y[here * c.D + d] = sum;
            }
}

static void backward_f64(const ls_run *run, const ls_node *node) {
    const conv c = conv_of(node);
    const double *u = c.u, *k = c.k, *skip = c.skip, *dy = ls_data(node->in[4]);
    const int64_t dy_stride = stride_of(node->in[4]), du_stride = stride_of(node->out[0]);
    double *du = ls_data_or_null(node->out[0]), *dk = ls_data_or_null(node->out[1]);
    double *dskip = skip == NULL ? NULL : ls_param_gradient(run, node->in[2]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < c.D; d++) {
        for (int64_t s = 0; dk != NULL && s < c.k_stride; s++) dk[d * c.k_stride + s] = 0;
        for (int64_t row = 0; row < c.B * c.T; row++) {
            double in = u[row * c.u_stride + d], g = dy[row * dy_stride + d];
            if (du != NULL) du[row * du_stride + d] = skip == NULL ? 0 : skip[d] * g;
            if (dskip != NULL) dskip[d] += in * g;
        }
        for (int64_t row = 0; row < c.B * c.T; row++)
            for (int64_t s = 0; s < c.taps; s++) {
                int64_t at = met(&c, row % c.T, s), from = row / c.T * c.T + at;
                if (at < 0 || at >= c.T) break;
                double g = dy[row * dy_stride + d];
                if (du != NULL) du[from * du_stride + d] += g * k[d * c.k_stride + s];
                if (dk != NULL) dk[d * c.k_stride + s] += g * u[from * c.u_stride + d];
            }
    }
}

/* ---- transforms ----
 *
 * Channels lie in the lanes; time runs over vectors. Blocks of m = 8^n vectors are
 * multiplied as polynomials modulo x^m - i: the element at x^j is weighted by the j-th power of a
 * 4m-th root of unity, which makes the product cyclic. Two real blocks have a real part (the first
 * m values of their convolution) and an imaginary part (the m values after): transforms of m
 * complex values do, nothing is padded. Forward they leave their values in the order of reversed
 * digits, and the way back takes them so. */

typedef struct complex_vec {
    ls_vec re, im;
} complex_vec;

LS_INLINE complex_vec plus(complex_vec a, complex_vec b) {
    return (complex_vec){a.re + b.re, a.im + b.im};
}
LS_INLINE complex_vec minus(complex_vec a, complex_vec b) {
    return (complex_vec){a.re - b.re, a.im - b.im};
}
LS_INLINE complex_vec transposed(complex_vec a, float re, float im) {
    return (complex_vec){a.re * re - a.im * im, a.re * im + a.im * re};
}
/* times i * sign */
LS_INLINE complex_vec quarter(complex_vec a, float sign) {
    return (complex_vec){-sign * a.im, sign * a.re};
}

/* out[q] = sum_k x[k] exp(sign 2 pi i k q / 8), in place. */
LS_INLINE void transform_8(complex_vec x[8], float sign) {
    const float half = 0.70710678118654752f;
    complex_vec even[4], odd[4];
    for (int k = 0; k < 4; k++) {
        even[k] = plus(x[k], x[k + 4]);
        odd[k] = minus(x[k], x[k + 4]);
    }
    odd[1] = transposed(odd[1], half, sign * half);
    odd[2] = quarter(odd[2], sign);
    odd[3] = transposed(odd[3], -half, sign * half);
    for (int part = 0; part < 2; part++) {
        const complex_vec *four = part == 0 ? even : odd;
        complex_vec a = plus(four[0], four[2]), b = minus(four[0], four[2]);
        complex_vec c = plus(four[1], four[3]), d = quarter(minus(four[1], four[3]), sign);
        x[part] = plus(a, c);
        x[part + 2] = plus(b, d);
        x[part + 4] = minus(a, c);
        x[part + 6] = minus(b, d);
    }
}

static void transform(const conv *c, complex_vec *x, int64_t m) {
    for (int64_t n = m; n > 1; n /= 8) {
        int64_t part = n / 8, step = 2 * (c->root_count / n);
        for (int64_t j = 0; j < part; j++)
            for (complex_vec *at = x + j; at < x + m; at += n) {
                complex_vec v[8];
                for (int k = 0; k < 8; k++) v[k] = at[k * part];
                transform_8(v, -1);
                at[0] = v[0];
                for (int q = 1; q < 8; q++) {
                    const float *root = c->roots + j * q * step;
                    at[q * part] = j == 0 ? v[q] : transposed(v[q], root[0], -root[1]);
                }
            }
    }
}

/* The way back, without the factor 1/m. */
static void transform_back(const conv *c, complex_vec *x, int64_t m) {
    for (int64_t n = 8; n <= m; n *= 8) {
        int64_t part = n / 8, step = 2 * (c->root_count / n);
        for (int64_t j = 0; j < part; j++)
            for (complex_vec *at = x + j; at < x + m; at += n) {
                complex_vec v[8];
                v[0] = at[0];
                for (int q = 1; q < 8; q++) {
                    const float *root = c->roots + j * q * step;
                    v[q] = j == 0 ? at[q * part] : transposed(at[q * part], root[0], root[1]);
                }
                transform_8(v, 1);
                for (int k = 0; k < 8; k++) at[k * part] = v[k];
            }
    }
}

/* ---- causal convolution of the channels of a vector ---- */

LS_INLINE ls_vec at_or_zero(const ls_vec *x, int64_t count, int64_t i) {
    return i >= 0 && i < count ? x[i] : ls_vec_all(0);
}

/* Spectra of a kernel: for every level and every distance r = 1..7 in blocks, that of
 * k_r - i k_{r-1}, whose product with a block of inputs has in its real part all that these inputs
 * give to the block r further on. */
static void make_spectra(const conv *c, const ls_vec *kernel, int64_t taps, complex_vec *spectra) {
    for (int64_t m = DIRECT; m < c->T; m *= SPLIT) {
        const int64_t step = 2 * (c->root_count / (4 * m));
        const float scale = 1 / (float)m;
        for (int64_t r = 1; r < ls_min(SPLIT, ls_ceil_div(c->T, m)); r++, spectra += m) {
            if ((r - 1) * m >= taps) continue; /* nothing that far: not read either */
            for (int64_t j = 0; j < m; j++) {
                complex_vec value = {at_or_zero(kernel, taps, r * m + j),
                                     -at_or_zero(kernel, taps, (r - 1) * m + j)};
                const float *root = c->roots + j * step;
                spectra[j] = transposed(value, scale * root[0], scale * root[1]);
            }
            transform(c, spectra, m);
        }
    }
}

/* y += what stands in the same block, by the definition; 8 outputs at a time. */
static void add_direct(int64_t T, const ls_vec *x, const ls_vec *kernel, int64_t taps, ls_vec *y) {
    enum { ROW = 8 };
    for (int64_t start = 0; start < T; start += DIRECT)
        for (int64_t first = start; first < ls_min(start + DIRECT, T); first += ROW) {
            int64_t rows = ls_min(ROW, T - first);
            int64_t from = ls_max(start, first - taps + 1); /* the first input that is reached */
            ls_vec sum[ROW];
            for (int i = 0; i < ROW; i++) sum[i] = ls_vec_all(0);
            int64_t s = from;
            if (rows == ROW && first + ROW - start <= taps)
                for (; s < first; s++)
#pragma GCC unroll 8
                    for (int i = 0; i < ROW; i++) sum[i] += kernel[first + i - s] * x[s];
            for (; s < first + rows; s++)
                for (int64_t i = ls_max(0, s - first); i < rows && first + i - s < taps; i++)
                    sum[i] += kernel[first + i - s] * x[s];
            for (int64_t i = 0; i < rows; i++) y[first + i] += sum[i];
        }
}

/* What a thread works with, in vectors: see scratch_at. */
typedef struct scratch {
    ls_vec *x, *y, *kernel;
    complex_vec *spectra, *blocks, *sum; /* blocks: spectra of the blocks of one group */
    /* backward: the inputs, in the place of a kernel, and what comes of them */
    ls_vec *other, *dkernel;
    complex_vec *other_spectra;
} scratch;

static void add_group(const conv *c, const scratch *w, int64_t m, int64_t start,
                      const complex_vec *spectra, int64_t taps, ls_vec *y) {
    const int64_t blocks = ls_min(SPLIT, ls_ceil_div(c->T - start, m));
    const int64_t step = 2 * (c->root_count / (4 * m)), furthest = ls_ceil_div(taps, m);
    for (int64_t s = 1; s < blocks; s++) {
        for (int64_t j = 0; j < m; j++) {
            complex_vec sum = {ls_vec_all(0), ls_vec_all(0)};
            for (int64_t r = 1; r <= ls_min(s, furthest); r++) {
                complex_vec a = w->blocks[(s - r) * m + j], b = spectra[(r - 1) * m + j];
                sum.re += a.re * b.re - a.im * b.im;
                sum.im += a.re * b.im + a.im * b.re;
            }
            w->sum[j] = sum;
        }
        transform_back(c, w->sum, m);
        ls_vec *out = y + start + s * m;
        for (int64_t j = 0; j < ls_min(m, c->T - start - s * m); j++) {
            const float *root = c->roots + j * step;
            out[j] += w->sum[j].re * root[0] + w->sum[j].im * root[1];
        }
    }
}

/* The spectra of all blocks of a group that have another behind them. */
static void transform_group(const conv *c, const scratch *w, int64_t m, int64_t start) {
    const int64_t blocks = ls_min(SPLIT, ls_ceil_div(c->T - start, m));
    const int64_t step = 2 * (c->root_count / (4 * m));
    for (int64_t s = 0; s < blocks - 1; s++) {
        complex_vec *block = w->blocks + s * m;
        const ls_vec *x = w->x + start + s * m;
        for (int64_t j = 0; j < m; j++) {
            const float *root = c->roots + j * step;
            block[j] = (complex_vec){x[j] * root[0], x[j] * root[1]};
        }
        transform(c, block, m);
    }
}

/* y[t] += sum_{s <= t} kernel[s] x[t - s] for x = w->x; with a second kernel also to a second
 * result, at little more than half the cost. */
typedef struct against {
    const ls_vec *kernel;
    int64_t taps;
    const complex_vec *spectra;
    ls_vec *y;
} against;

static void convolve(const conv *c, const scratch *w, const against *with, int count) {
    for (int i = 0; i < count; i++) add_direct(c->T, w->x, with[i].kernel, with[i].taps, with[i].y);
    int64_t done = 0;
    for (int64_t m = DIRECT; m < c->T; m *= SPLIT) {
        for (int64_t start = 0; start + m < c->T; start += SPLIT * m) {
            transform_group(c, w, m, start);
            for (int i = 0; i < count; i++)
                add_group(c, w, m, start, with[i].spectra + done, with[i].taps, with[i].y);
        }
        done += m * (ls_min(SPLIT, ls_ceil_div(c->T, m)) - 1);
    }
}

/* ---- between tensors and lanes ---- */

/* Elements of the parts of scratch memory, which are vectors or pairs of them. */
typedef struct scratch_size {
    int64_t spectra, blocks, sum, vectors;
} scratch_size;

static scratch_size scratch_size_of(const conv *c, bool backward) {
    scratch_size size = {.sum = c->longest};
    for (int64_t m = DIRECT; m < c->T; m *= SPLIT) {
        int64_t behind = m * (ls_min(SPLIT, ls_ceil_div(c->T, m)) - 1);
        size.spectra += behind;
        size.blocks = ls_max(size.blocks, behind);
    }
    int64_t lines = backward ? 5 : 3, pairs = (backward ? 2 : 1) * size.spectra;
    size.vectors = lines * c->T + 2 * (pairs + size.blocks + size.sum);
    return size;
}

static scratch scratch_at(const conv *c, const scratch_size *size, ls_vec *at, bool backward) {
    scratch w = {.x = at, .y = at + c->T, .kernel = at + 2 * c->T};
    at += 3 * c->T;
    if (backward) {
        w.other = at;
        w.dkernel = at + c->T;
        at += 2 * c->T;
    }
    w.spectra = (complex_vec *)at;
    w.blocks = w.spectra + size->spectra;
    w.sum = w.blocks + size->blocks;
    w.other_spectra = backward ? w.sum + size->sum : NULL;
    return w;
}

/* Rows of the channels of a vector in the order of time, or backwards. */
typedef struct columns {
    void *data;
    int64_t stride, first, left; /* first channel, and how many there are from it */
} columns;

LS_INLINE void take_columns(const conv *c, ls_dtype type, columns from, int64_t b, bool reversed,
                            ls_vec *to) {
    for (int64_t i = 0; i < c->T; i++) {
        int64_t row = b * c->T + (reversed ? c->T - 1 - i : i);
        to[i] = ls_load_left(from.data, type, row * from.stride + from.first, from.left);
    }
}

/* Adds skip times x, whose order of time is that of y. */
LS_INLINE void give_columns(const conv *c, ls_dtype type, columns to, int64_t b, bool reversed,
                            const ls_vec *y, const ls_vec *x) {
    ls_vec skip =
        c->skip == NULL ? ls_vec_all(0) : ls_load_left(c->skip, LS_F32, to.first, to.left);
    for (int64_t i = 0; i < c->T; i++) {
        int64_t row = b * c->T + (reversed ? c->T - 1 - i : i);
        ls_vec value = c->skip == NULL ? y[i] : y[i] + skip * x[i];
        ls_store_left(to.data, type, row * to.stride + to.first, to.left, value);
    }
}

/* Kernels [D, length] of the channels into lanes, behind the delay. */
static int64_t take_kernel(const conv *c, int64_t first, ls_vec *to) {
    const float *k = c->k;
    int64_t channels = ls_min(LS_LANES, c->D - first);
    for (int64_t s = 0; s < c->delay; s++) to[s] = ls_vec_all(0);
    for (int64_t s = 0; s < c->taps; s++) {
        ls_vec value = ls_vec_all(0);
        for (int64_t i = 0; i < channels; i++) value[i] = k[(first + i) * c->k_stride + s];
        to[c->delay + s] = value;
    }
    return c->taps + c->delay;
}

static void clear(ls_vec *x, int64_t count) {
    memset(x, 0, (size_t)count * sizeof *x);
}

/* ---- the kernels ---- */

enum { SEQUENCES = 4 }; /* that share a kernel's spectra in one piece of work */

static size_t forward_workspace(const ls_node *node, int threads) {
    if (node->in[0]->type == LS_F64) return 0;
    conv c = conv_of(node);
    return (size_t)(threads * scratch_size_of(&c, false).vectors) * sizeof(ls_vec);
}

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const conv c = conv_of(node);
    const scratch_size size = scratch_size_of(&c, false);
    const int64_t slices = ls_ceil_div(c.B, SEQUENCES);
#pragma omp parallel num_threads(run->threads)
    {
        const scratch w = scratch_at(
            &c, &size, (ls_vec *)run->workspace + omp_get_thread_num() * size.vectors, false);
        uint64_t subnormals = ls_subnormals_flush(); /* kernels end in them */
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < ls_ceil_div(c.D, LS_LANES) * slices; piece++) {
            int64_t first = piece / slices * LS_LANES, b = piece % slices * SEQUENCES;
            const columns u = {(void *)c.u, c.u_stride, first, c.D - first};
            const columns y = {ls_data(node->out[0]), c.D, first, c.D - first};
            const against with = {w.kernel, take_kernel(&c, first, w.kernel), w.spectra, w.y};
            make_spectra(&c, w.kernel, with.taps, w.spectra);
            for (int64_t end = ls_min(b + SEQUENCES, c.B); b < end; b++) {
                take_columns(&c, type, u, b, c.future, w.x);
                clear(w.y, c.T);
                convolve(&c, &w, &with, 1);
                give_columns(&c, type, y, b, c.future, w.y, w.x);
            }
        }
        ls_subnormals_restore(subnormals);
    }
}

static size_t backward_workspace(const ls_node *node, int threads) {
    if (node->in[0]->type == LS_F64) return 0;
    conv c = conv_of(node);
    return (size_t)(threads * scratch_size_of(&c, true).vectors) * sizeof(ls_vec);
}

/* The gradient's kernel, which came out backwards. */
static void give_kernel(const conv *c, int64_t first, const ls_vec *backwards, float *dk) {
    for (int64_t i = 0; i < ls_min(LS_LANES, c->D - first); i++)
        for (int64_t s = 0; s < c->k_stride; s++)
            dk[(first + i) * c->k_stride + s] =
                s < c->taps ? backwards[c->T - 1 - s - c->delay][i] : 0;
}

/* With g the gradient backwards in time: du is g * k, dk is g * u, both backwards again. */
LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const conv c = conv_of(node);
    const scratch_size size = scratch_size_of(&c, true);
    const ls_tensor *du = node->out[0], *dk = node->out[1];
    float *dskip = c.skip == NULL ? NULL : ls_param_gradient(run, node->in[2]);
#pragma omp parallel num_threads(run->threads)
    {
        const scratch w = scratch_at(
            &c, &size, (ls_vec *)run->workspace + omp_get_thread_num() * size.vectors, true);
        uint64_t subnormals = ls_subnormals_flush();
#pragma omp for schedule(dynamic)
        for (int64_t first = 0; first < c.D; first += LS_LANES) {
            const columns u = {(void *)c.u, c.u_stride, first, c.D - first};
            const columns g = {ls_data(node->in[4]), stride_of(node->in[4]), first, c.D - first};
            const columns to = {ls_data_or_null(du), stride_of(du), first, c.D - first};
            const against both[2] = {
                {w.kernel, take_kernel(&c, first, w.kernel), w.spectra, w.y},
                {w.other, c.T, w.other_spectra, w.dkernel},
            };
            if (du != NULL) make_spectra(&c, w.kernel, both[0].taps, w.spectra);
            clear(w.dkernel, c.T);
            ls_vec along = ls_vec_all(0);
            for (int64_t b = 0; b < c.B; b++) {
                take_columns(&c, type, g, b, !c.future, w.x);
                take_columns(&c, type, u, b, c.future, w.other);
                for (int64_t i = 0; i < c.T; i++) along += w.x[i] * w.other[c.T - 1 - i];
                if (dk != NULL) make_spectra(&c, w.other, c.T, w.other_spectra);
                clear(w.y, c.T);
                convolve(&c, &w, both + (du == NULL), (du != NULL) + (dk != NULL));
                if (du != NULL) give_columns(&c, type, to, b, !c.future, w.y, w.x);
            }
            if (dk != NULL) give_kernel(&c, first, w.dkernel, ls_data(dk));
            if (dskip != NULL)
                for (int64_t i = 0; i < ls_min(LS_LANES, c.D - first); i++)
                    dskip[first + i] += along[i];
        }
        ls_subnormals_restore(subnormals);
    }
}

LS_KERNEL_FAST(forward)
LS_KERNEL_FAST(backward)

const ls_kernel LS_CPU_TABLE(long_conv)[] = {
    {"long_conv", LS_KERNEL_BY_TYPE(forward), forward_workspace},
    {"long_conv_grad", LS_KERNEL_BY_TYPE(backward), backward_workspace},
    {0},
};
