#include "tensor/op/scale_shift/scale_shift.h"

#include "tensor/cpu/vector.h"

/* A tensor as rows. */
typedef struct table {
    void *data;
    int64_t count, width, stride;
} table;

static table rows_of(const ls_tensor *tensor) {
    table r = {0};
    if (tensor == NULL) return r;
    r.data = ls_data(tensor);
    ls_rows(tensor, &r.count, &r.width, &r.stride);
    return r;
}

/* ---- reference ---- */

static void forward_f64(const ls_run *run, const ls_node *node) {
    const table x = rows_of(node->in[0]), y = rows_of(node->out[0]);
    const double *gain = ls_data(node->in[1]), *shift = ls_data(node->in[2]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x.count; row++)
        for (int64_t i = 0; i < y.width; i++)
            ((double *)y.data)[row * y.stride + i] =
                ((const double *)x.data)[row * x.stride + i % x.width] * gain[i] + shift[i];
}

static void backward_f64(const ls_run *run, const ls_node *node) {
    const table x = rows_of(node->in[0]), dy = rows_of(node->in[3]), dx = rows_of(node->out[0]);
    const double *gain = ls_data(node->in[1]);
    double *dgain = ls_param_gradient(run, node->in[1]);
    double *dshift = ls_param_gradient(run, node->in[2]);
    for (int64_t row = 0; row < x.count; row++) {
        const double *from = (const double *)x.data + row * x.stride;
        const double *d = (const double *)dy.data + row * dy.stride;
        double *to = dx.data == NULL ? NULL : (double *)dx.data + row * dx.stride;
        for (int64_t i = 0; to != NULL && i < x.width; i++) to[i] = 0;
        for (int64_t i = 0; i < dy.width; i++) {
            if (to != NULL) to[i % x.width] += d[i] * gain[i];
            dgain[i] += d[i] * from[i % x.width];
            dshift[i] += d[i];
        }
    }
}

/* ---- f32 and bf16 ---- */

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const table x = rows_of(node->in[0]), y = rows_of(node->out[0]);
    const float *gain = ls_data(node->in[1]), *shift = ls_data(node->in[2]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x.count; row++)
        for (int64_t first = 0; first < y.width; first += x.width)
            for (int64_t i = 0; i < x.width; i += LS_LANES) {
                const int64_t left = x.width - i;
                ls_store_left(y.data, type, row * y.stride + first + i, left,
                              ls_load_left(x.data, type, row * x.stride + i, left) *
                                      ls_load_left(gain, LS_F32, first + i, left) +
                                  ls_load_left(shift, LS_F32, first + i, left));
            }
}

/* Rows are cut in a fixed number of pieces, each with its own sums; those of a part of a row lie
 * from a whole vector on. */
enum { PIECES = 32 };

static int64_t sums_of(const ls_node *node) {
    return node->in[1]->dim[0] * ls_round_up(node->in[1]->dim[1], LS_LANES);
}

static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)(PIECES * 2 * sums_of(node)) * sizeof(float);
}

LS_INLINE void row_grad(const table *x, const table *dy, const table *dx, const float *gain,
                        int64_t row, ls_dtype type, float *dgain, float *dshift) {
    const int64_t padded = ls_round_up(x->width, LS_LANES);
    for (int64_t i = 0; i < x->width; i += LS_LANES) {
        const int64_t left = x->width - i;
        const ls_vec value = ls_load_left(x->data, type, row * x->stride + i, left);
        ls_vec back = ls_vec_all(0);
        for (int64_t part = 0; part < dy->width / x->width; part++) {
            const int64_t first = part * x->width + i, at = part * padded + i;
            const ls_vec d = ls_load_left(dy->data, type, row * dy->stride + first, left);
            back += d * ls_load_left(gain, LS_F32, first, left);
            ls_store(dgain, LS_F32, at, ls_load(dgain, LS_F32, at) + d * value);
            ls_store(dshift, LS_F32, at, ls_load(dshift, LS_F32, at) + d);
        }
        if (dx->data != NULL) ls_store_left(dx->data, type, row * dx->stride + i, left, back);
    }
}

LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const table x = rows_of(node->in[0]), dy = rows_of(node->in[3]), dx = rows_of(node->out[0]);
    const float *gain = ls_data(node->in[1]);
    const int64_t sums = sums_of(node), padded = ls_round_up(x.width, LS_LANES);
    float *partial = run->workspace;
    memset(partial, 0, (size_t)(PIECES * 2 * sums) * sizeof *partial);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < PIECES; piece++)
        for (int64_t row = x.count * piece / PIECES; row < x.count * (piece + 1) / PIECES; row++)
            row_grad(&x, &dy, &dx, gain, row, type, partial + piece * 2 * sums,
                     partial + (piece * 2 + 1) * sums);
    for (int which = 0; which < 2; which++) {
        float *gradient = ls_param_gradient(run, node->in[1 + which]);
        for (int64_t piece = 0; piece < PIECES; piece++)
            for (int64_t i = 0; i < dy.width; i++)
                gradient[i] +=
                    partial[(piece * 2 + which) * sums + i / x.width * padded + i % x.width];
    }
}

LS_KERNEL_FAST(forward)
LS_KERNEL_FAST(backward)

const ls_kernel LS_CPU_TABLE(scale_shift)[] = {
    {"scale_shift", LS_KERNEL_BY_TYPE(forward), NULL},
    {"scale_shift_grad", LS_KERNEL_BY_TYPE(backward), backward_workspace},
    {0},
};
