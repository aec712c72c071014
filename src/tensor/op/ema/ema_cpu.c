/* The damped moving average: kernels in double whatever the program's type, so that where a stream
 * is cut is of no consequence. */
#include "tensor/op/ema/ema.h"

#include <math.h>
#include <omp.h>

#include "base/memory.h"
#include "tensor/cpu/vector.h"

enum { LANES = 8 };
typedef double wide_vec __attribute__((vector_size(64)));

LS_INLINE wide_vec all(double value) {
    return (wide_vec){value, value, value, value, value, value, value, value};
}

/* ---- parameters ---- */

/* A dimension of a channel: h <- keep h + in x, y = out h. */
typedef struct mode {
    double keep, in, out;
} mode;

static double wide_at(const ls_tensor *tensor, int64_t i) {
    const void *data = ls_data(tensor);
    return tensor->type == LS_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void add_gradient(const ls_run *run, const ls_tensor *parameter, int64_t i, double value) {
    void *gradient = ls_param_gradient(run, parameter);
    if (parameter->type == LS_F64)
        ((double *)gradient)[i] += value;
    else
        ((float *)gradient)[i] += (float)value;
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static int64_t dims_of(const ls_node *node) {
    return node->in[LS_EMA_GAMMA]->dim[1];
}

/* Number i of all dimensions of all channels. */
static mode mode_of(const ls_node *node, int64_t i) {
    double p = sigmoid(wide_at(node->in[LS_EMA_DELTA], i));
    double a = sigmoid(wide_at(node->in[LS_EMA_ALPHA], i));
    return (mode){.keep = 1 - p * a,
                  .in = p * wide_at(node->in[LS_EMA_BETA], i),
                  .out = wide_at(node->in[LS_EMA_GAMMA], i) / sqrt((double)dims_of(node))};
}

/* From the gradient of a mode to those of the parameters. */
static void mode_gradient(const ls_run *run, const ls_node *node, int64_t i, mode d) {
    double p = sigmoid(wide_at(node->in[LS_EMA_DELTA], i));
    double a = sigmoid(wide_at(node->in[LS_EMA_ALPHA], i));
    double dp = d.in * wide_at(node->in[LS_EMA_BETA], i) - d.keep * a;
    add_gradient(run, node->in[LS_EMA_DELTA], i, dp * p * (1 - p));
    add_gradient(run, node->in[LS_EMA_ALPHA], i, -d.keep * p * a * (1 - a));
    add_gradient(run, node->in[LS_EMA_BETA], i, d.in * p);
    add_gradient(run, node->in[LS_EMA_GAMMA], i, d.out / sqrt((double)dims_of(node)));
}

/* ---- kernels ---- */

/* The impulse response of one channel on one side: element 0, and the further ones. Looking ahead,
 * element 0 belongs to the kernel of the past, which has its own in it. */
typedef struct response {
    void *first, *further;
    int64_t length;
} response;

static void *element(const ls_tensor *tensor, int64_t i) {
    return tensor == NULL ? NULL
                          : (char *)ls_data(tensor) + i * (int64_t)ls_dtype_size(tensor->type);
}

static response response_of(const ls_tensor *kernel, const ls_tensor *ahead, int64_t row) {
    const ls_tensor *some = kernel == NULL ? ahead : kernel;
    const int64_t L = kernel == NULL ? ahead->dim[1] + 1 : kernel->dim[1], D = some->dim[0];
    if (row < D)
        return (response){element(kernel, row * L), element(kernel, row * L + 1),
                          kernel == NULL ? 0 : L};
    row -= D;
    return (response){element(kernel, row * L), element(ahead, row * (L - 1)),
                      ahead == NULL ? 1 : L};
}

static void kernel_f64(const ls_run *run, const ls_node *node) {
    const int64_t N = dims_of(node), D = node->out[0]->dim[0];
    const int64_t sides = node->in[LS_EMA_GAMMA]->dim[0] / D;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < D; d++)
        for (int64_t side = 0; side < sides; side++) {
            const int64_t row = side * D + d;
            const response r = response_of(node->out[0], node->out[1], row);
            double *first = r.first, *further = r.further;
            if (side == 0) *first = 0;
            for (int64_t l = 1; l < r.length; l++) further[l - 1] = 0;
            for (int64_t n = 0; n < N; n++) {
                const mode m = mode_of(node, row * N + n);
                double power = m.out * m.in;
                *first += power;
                for (int64_t l = 1; l < r.length; l++) further[l - 1] += power *= m.keep;
            }
        }
}

/* Of sum_l dk_l keep^l =: sum and its derivative by keep. */
static mode gradient_of(mode m, double sum, double slope) {
    return (mode){.keep = m.out * m.in * slope, .in = m.out * sum, .out = m.in * sum};
}

static int64_t rows_of(const ls_node *node) {
    return node->in[LS_EMA_GAMMA]->dim[0];
}

static void kernel_grad_f64(const ls_run *run, const ls_node *node) {
    const int64_t N = dims_of(node);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows_of(node); row++) {
        const response r = response_of(node->in[LS_EMA_DKERNEL], node->in[LS_EMA_DAHEAD], row);
        const double *first = r.first, *further = r.further;
        for (int64_t n = 0; n < N; n++) {
            const mode m = mode_of(node, row * N + n);
            double sum = 0, slope = 0;
            for (int64_t l = r.length - 1; l >= 0; l--) {
                double dk = l > 0 ? further[l - 1] : first == NULL ? 0 : *first;
                slope = slope * m.keep + sum;
                sum = sum * m.keep + dk;
            }
            mode_gradient(run, node, row * N + n, gradient_of(m, sum, slope));
        }
    }
}

/* Fast: the further elements, eight at a time in the lanes, their powers eight steps apart. */

/* keep^0 .. keep^7, and keep^8 in all lanes. */
LS_INLINE wide_vec powers(double keep, wide_vec *next) {
    wide_vec power = all(1);
    double at = 1;
    for (int i = 0; i < LANES; i++) {
        power[i] = at;
        at *= keep;
    }
    *next = all(at);
    return power;
}

static void kernel_fast(const ls_run *run, const ls_node *node) {
    const int64_t N = dims_of(node), D = node->out[0]->dim[0];
    const int64_t sides = rows_of(node) / D;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < D; d++)
        for (int64_t side = 0; side < sides; side++) {
            const int64_t row = side * D + d;
            const response r = response_of(node->out[0], node->out[1], row);
            wide_vec power[LS_EMA_DIMS_MAX], step[LS_EMA_DIMS_MAX];
            double first = side == 0 ? 0 : (double)*(float *)r.first;
            for (int64_t n = 0; n < N; n++) {
                const mode m = mode_of(node, row * N + n);
                first += m.out * m.in;
                power[n] = powers(m.keep, &step[n]) * (m.out * m.in * m.keep);
            }
            *(float *)r.first = (float)first;
            for (int64_t l = 0; l < r.length - 1; l += LANES) {
                wide_vec sum = all(0);
                for (int64_t n = 0; n < N; n++) {
                    sum += power[n];
                    power[n] *= step[n];
                }
                for (int64_t i = 0; i < ls_min(LANES, r.length - 1 - l); i++)
                    ((float *)r.further)[l + i] = (float)sum[i];
            }
        }
}

LS_INLINE double total(wide_vec x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

static void kernel_grad_fast(const ls_run *run, const ls_node *node) {
    const int64_t N = dims_of(node);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows_of(node); row++) {
        const response r = response_of(node->in[LS_EMA_DKERNEL], node->in[LS_EMA_DAHEAD], row);
        /* sum_j dk_{8j+i} step^j in lane i, and its derivative by step */
        wide_vec sum[LS_EMA_DIMS_MAX], slope[LS_EMA_DIMS_MAX], step[LS_EMA_DIMS_MAX];
        for (int64_t n = 0; n < N; n++) {
            powers(mode_of(node, row * N + n).keep, &step[n]);
            sum[n] = slope[n] = all(0);
        }
        const int64_t further = r.length - 1;
        for (int64_t l = (further - 1) / LANES * LANES; further > 0 && l >= 0; l -= LANES) {
            wide_vec dk = all(0);
            for (int64_t i = 0; i < ls_min(LANES, further - l); i++)
                dk[i] = (double)((const float *)r.further)[l + i];
            for (int64_t n = 0; n < N; n++) {
                slope[n] = slope[n] * step[n] + sum[n];
                sum[n] = sum[n] * step[n] + dk;
            }
        }
        const double first = r.first == NULL || r.length == 0 ? 0 : (double)*(const float *)r.first;
        for (int64_t n = 0; n < N; n++) {
            const mode m = mode_of(node, row * N + n);
            /* lane i of `further` stands at keep^(i + 1) */
            wide_vec unused, power = powers(m.keep, &unused);
            wide_vec place = {1, 2, 3, 4, 5, 6, 7, 8};
            double eighth = 8 * power[7];
            double whole = total(sum[n] * power) * m.keep;
            double by_keep =
                total(sum[n] * power * place) + total(slope[n] * power) * m.keep * eighth;
            mode_gradient(run, node, row * N + n, gradient_of(m, first + whole, by_keep));
        }
    }
}

/* ---- scans ---- */

/* The modes of all channels, in the workspace: eight channels side by side, [block][N]. */
typedef struct modes {
    wide_vec keep, in, out;
} modes;

/* What a scan works on. */
typedef struct scan {
    int64_t B, T, D, N, blocks;
    ls_dtype type;
    const void *x, *before, *dy, *dafter; /* dafter: or NULL */
    void *y, *after;                      /* backward: dx and dbefore, or NULL */
    int64_t x_stride, y_stride, dy_stride;
    const ls_tensor *skip;
    modes *mode;
} scan;

static int64_t stride_of(const ls_tensor *tensor) {
    int64_t rows, width, stride = 0;
    if (tensor != NULL) ls_rows(tensor, &rows, &width, &stride);
    return stride;
}

static scan scan_of(const ls_run *run, const ls_node *node, bool gradient) {
    const ls_tensor *x = node->in[LS_EMA_X], *y = node->out[0];
    const ls_tensor *dy = gradient ? node->in[LS_EMA_DY] : NULL;
    scan s = {
        .B = x->dim[0],
        .T = x->dim[1],
        .D = x->dim[2],
        .N = dims_of(node),
        .type = x->type,
        .x = ls_data(x),
        .before = ls_data(node->in[LS_EMA_BEFORE]),
        .dy = dy == NULL ? NULL : ls_data(dy),
        .y = y == NULL ? NULL : ls_data(y),
        .dafter = gradient ? ls_data_or_null(node->in[LS_EMA_DAFTER]) : NULL,
        .after = ls_data_or_null(node->out[1]),
        .x_stride = stride_of(x),
        .y_stride = stride_of(y),
        .dy_stride = stride_of(dy),
        .skip = node->in[LS_EMA_SKIP],
        .mode = run->workspace,
    };
    s.blocks = ls_ceil_div(s.D, LANES);
    return s;
}

static size_t scratch_vectors(const ls_node *node) {
    return (size_t)((node->in[LS_EMA_X]->dim[1] + 2) * dims_of(node));
}
static size_t modes_bytes(const ls_node *node) {
    return (size_t)(ls_ceil_div(node->in[LS_EMA_X]->dim[2], LANES) * dims_of(node)) * sizeof(modes);
}
static size_t scan_workspace(const ls_node *node, int threads) {
    (void)threads;
    return node->in[LS_EMA_X]->type == LS_F64 ? 0 : modes_bytes(node);
}
static size_t scan_grad_workspace(const ls_node *node, int threads) {
    if (node->in[LS_EMA_X]->type == LS_F64)
        return scratch_vectors(node) * sizeof(double) * (size_t)threads;
    return modes_bytes(node) + scratch_vectors(node) * sizeof(wide_vec) * (size_t)threads;
}

static double skip_at(const scan *s, int64_t d) {
    return s->skip == NULL ? 0 : wide_at(s->skip, d);
}

static void scan_f64(const ls_run *run, const ls_node *node) {
    const scan s = scan_of(run, node, false);
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t d = 0; d < s.D; d++) {
            const double *x = (const double *)s.x + b * s.T * s.x_stride + d;
            double *y = (double *)s.y + b * s.T * s.y_stride + d;
            const double skip = skip_at(&s, d);
            for (int64_t t = 0; t < s.T; t++) y[t * s.y_stride] = skip * x[t * s.x_stride];
            for (int64_t n = 0; n < s.N; n++) {
                const mode m = mode_of(node, d * s.N + n);
                double h = ((const double *)s.before)[(b * s.D + d) * s.N + n];
                for (int64_t t = 0; t < s.T; t++) {
                    h = m.keep * h + m.in * x[t * s.x_stride];
                    y[t * s.y_stride] += m.out * h;
                }
                ((double *)s.after)[(b * s.D + d) * s.N + n] = h;
            }
        }
}

static void scan_grad_f64(const ls_run *run, const ls_node *node) {
    const scan s = scan_of(run, node, true);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < s.D; d++) {
        double *states =
            (double *)run->workspace + (size_t)omp_get_thread_num() * scratch_vectors(node);
        const double skip = skip_at(&s, d);
        for (int64_t b = 0; b < s.B; b++) {
            const double *x = (const double *)s.x + b * s.T * s.x_stride + d;
            const double *dy = (const double *)s.dy + b * s.T * s.dy_stride + d;
            double *dx = s.y == NULL ? NULL : (double *)s.y + b * s.T * s.y_stride + d, along = 0;
            for (int64_t t = 0; t < s.T; t++) {
                along += dy[t * s.dy_stride] * x[t * s.x_stride];
                if (dx != NULL) dx[t * s.y_stride] = skip * dy[t * s.dy_stride];
            }
            if (s.skip != NULL) add_gradient(run, s.skip, d, along);
            for (int64_t n = 0; n < s.N; n++) {
                const mode m = mode_of(node, d * s.N + n);
                mode g = {0};
                const int64_t at = (b * s.D + d) * s.N + n;
                double later = s.dafter == NULL ? 0 : ((const double *)s.dafter)[at];
                states[0] = ((const double *)s.before)[at];
                for (int64_t t = 0; t < s.T; t++)
                    states[t + 1] = m.keep * states[t] + m.in * x[t * s.x_stride];
                for (int64_t t = s.T - 1; t >= 0; t--) {
                    later = (t == s.T - 1 ? 1 : m.keep) * later + m.out * dy[t * s.dy_stride];
                    g.out += dy[t * s.dy_stride] * states[t + 1];
                    g.in += later * x[t * s.x_stride];
                    g.keep += later * states[t];
                    if (dx != NULL) dx[t * s.y_stride] += m.in * later;
                }
                if (s.after != NULL) ((double *)s.after)[at] = m.keep * later;
                mode_gradient(run, node, d * s.N + n, g);
            }
        }
    }
}

/* ---- f32 and bf16: eight channels in the lanes ---- */

static void load_modes(const ls_run *run, const ls_node *node, const scan *s) {
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t block = 0; block < s->blocks; block++)
        for (int64_t n = 0; n < s->N; n++) {
            modes *to = &s->mode[block * s->N + n];
            *to = (modes){all(0), all(0), all(0)};
            for (int64_t i = 0; i < ls_min(LANES, s->D - block * LANES); i++) {
                const mode m = mode_of(node, (block * LANES + i) * s->N + n);
                to->keep[i] = m.keep;
                to->in[i] = m.in;
                to->out[i] = m.out;
            }
        }
}

/* Eight channels from `at` on, or as many as are left. */
LS_INLINE wide_vec load(const void *data, ls_dtype type, int64_t at, int64_t left) {
    typedef float narrow_vec __attribute__((vector_size(32)));
    wide_vec value = all(0);
    if (type == LS_F32 && left >= LANES) {
        narrow_vec narrow;
        memcpy(&narrow, (const float *)data + at, sizeof narrow);
        return __builtin_convertvector(narrow, wide_vec);
    }
    for (int64_t i = 0; i < ls_min(LANES, left); i++)
        value[i] = (double)ls_load_one(data, type, at + i);
    return value;
}

LS_INLINE void store(void *data, ls_dtype type, int64_t at, int64_t left, wide_vec value) {
    for (int64_t i = 0; i < ls_min(LANES, left); i++)
        ls_store_one(data, type, at + i, (float)value[i]);
}

LS_INLINE wide_vec skips(const scan *s, int64_t first) {
    wide_vec value = all(0);
    for (int64_t i = 0; i < ls_min(LANES, s->D - first); i++) value[i] = skip_at(s, first + i);
    return value;
}

/* A state of sequence b, or the gradient of one; NULL: zeros. */
static void load_state(const scan *s, const float *from, int64_t b, int64_t first, wide_vec *h) {
    const int64_t channels = from == NULL ? 0 : ls_min(LANES, s->D - first);
    for (int64_t n = 0; n < s->N; n++) {
        h[n] = all(0);
        for (int64_t i = 0; i < channels; i++)
            h[n][i] = (double)from[(b * s->D + first + i) * s->N + n];
    }
}

static void store_state(const scan *s, const wide_vec *h, int64_t b, int64_t first, float *to) {
    for (int64_t n = 0; n < s->N; n++)
        for (int64_t i = 0; i < ls_min(LANES, s->D - first); i++)
            to[(b * s->D + first + i) * s->N + n] = (float)h[n][i];
}

LS_INLINE void scan_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const scan s = scan_of(run, node, false);
    load_modes(run, node, &s);
#pragma omp parallel num_threads(run->threads)
    {
        uint64_t subnormals = ls_subnormals_flush();
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < s.blocks * s.B; piece++) {
            const int64_t b = piece / s.blocks, first = piece % s.blocks * LANES,
                          left = s.D - first;
            const modes *m = s.mode + piece % s.blocks * s.N;
            const wide_vec skip = skips(&s, first);
            wide_vec h[LS_EMA_DIMS_MAX];
            load_state(&s, s.before, b, first, h);
            for (int64_t t = 0; t < s.T; t++) {
                wide_vec x = load(s.x, type, (b * s.T + t) * s.x_stride + first, left);
                wide_vec y = skip * x;
                for (int64_t n = 0; n < s.N; n++) {
                    h[n] = m[n].keep * h[n] + m[n].in * x;
                    y += m[n].out * h[n];
                }
                store(s.y, type, (b * s.T + t) * s.y_stride + first, left, y);
            }
            store_state(&s, h, b, first, s.after);
        }
        ls_subnormals_restore(subnormals);
    }
}

/* All sequences of a block of channels; scratch: the gradient of a state, then T + 1 states. */
LS_INLINE void block_grad(const ls_run *run, const ls_node *node, const scan *s, int64_t block,
                          ls_dtype type, wide_vec *scratch) {
    const int64_t first = block * LANES, left = s->D - first, N = s->N;
    const modes *m = s->mode + block * N;
    const wide_vec skip = skips(s, first);
    modes g[LS_EMA_DIMS_MAX];
    wide_vec along = all(0), *later = scratch, *states = scratch + N;
    for (int64_t n = 0; n < N; n++) g[n] = (modes){all(0), all(0), all(0)};
    for (int64_t b = 0; b < s->B; b++) {
        load_state(s, s->before, b, first, states);
        load_state(s, s->dafter, b, first, later);
        for (int64_t t = 0; t < s->T; t++) {
            wide_vec x = load(s->x, type, (b * s->T + t) * s->x_stride + first, left);
            for (int64_t n = 0; n < N; n++)
                states[(t + 1) * N + n] = m[n].keep * states[t * N + n] + m[n].in * x;
        }
        for (int64_t t = s->T - 1; t >= 0; t--) {
            wide_vec x = load(s->x, type, (b * s->T + t) * s->x_stride + first, left);
            wide_vec dy = load(s->dy, type, (b * s->T + t) * s->dy_stride + first, left);
            wide_vec dx = skip * dy;
            along += dy * x;
            for (int64_t n = 0; n < N; n++) {
                later[n] = (t == s->T - 1 ? all(1) : m[n].keep) * later[n] + m[n].out * dy;
                g[n].out += dy * states[(t + 1) * N + n];
                g[n].in += later[n] * x;
                g[n].keep += later[n] * states[t * N + n];
                dx += m[n].in * later[n];
            }
            if (s->y != NULL) store(s->y, type, (b * s->T + t) * s->y_stride + first, left, dx);
        }
        for (int64_t n = 0; n < N; n++) later[n] *= m[n].keep;
        if (s->after != NULL) store_state(s, later, b, first, s->after);
    }
    for (int64_t i = 0; i < ls_min(LANES, left); i++) {
        if (s->skip != NULL) add_gradient(run, s->skip, first + i, along[i]);
        for (int64_t n = 0; n < N; n++)
            mode_gradient(run, node, (first + i) * N + n,
                          (mode){g[n].keep[i], g[n].in[i], g[n].out[i]});
    }
}

LS_INLINE void scan_grad_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const scan s = scan_of(run, node, true);
    load_modes(run, node, &s);
    /* behind the modes, of each thread the gradient of a state and T + 1 states */
    wide_vec *scratches = (wide_vec *)(void *)(s.mode + s.blocks * s.N);
#pragma omp parallel num_threads(run->threads)
    {
        wide_vec *scratch = scratches + (size_t)omp_get_thread_num() * scratch_vectors(node);
        uint64_t subnormals = ls_subnormals_flush();
#pragma omp for schedule(static)
        for (int64_t block = 0; block < s.blocks; block++)
            block_grad(run, node, &s, block, type, scratch);
        ls_subnormals_restore(subnormals);
    }
}

LS_KERNEL_FAST(scan)
LS_KERNEL_FAST(scan_grad)

const ls_kernel LS_CPU_TABLE(ema)[] = {
    {"ema_kernel", {kernel_f64, kernel_fast, kernel_fast}, NULL},
    {"ema_kernel_grad", {kernel_grad_f64, kernel_grad_fast, kernel_grad_fast}, NULL},
    {"ema_scan", LS_KERNEL_BY_TYPE(scan), scan_workspace},
    {"ema_scan_grad", LS_KERNEL_BY_TYPE(scan_grad), scan_grad_workspace},
    {0},
};
