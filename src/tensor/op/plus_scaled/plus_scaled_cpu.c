#include "base/memory.h"
#include "tensor/cpu/vector.h"
#include "tensor/op/plus_scaled/plus_scaled.h"

typedef struct table {
    void *data;
    int64_t count, width, stride;
} table;

static table rows_of(const ls_tensor *tensor) {
    table r = {0};
    if (tensor == NULL) return r;
    ls_rows(tensor, &r.count, &r.width, &r.stride);
    r.data = ls_data(tensor);
    return r;
}

/* ---- reference ---- */

static void forward_f64(const ls_run *run, const ls_node *node) {
    const table y = rows_of(node->in[0]), x = rows_of(node->in[1]), out = rows_of(node->out[0]);
    const double *scale = ls_data(node->in[2]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < out.count; row++)
        for (int64_t i = 0; i < out.width; i++)
            ((double *)out.data)[row * out.stride + i] =
                (y.data == NULL ? 0 : ((const double *)y.data)[row * y.stride + i]) +
                scale[i] * ((const double *)x.data)[row * x.stride + i];
}

static void backward_f64(const ls_run *run, const ls_node *node) {
    const table dy = rows_of(node->in[0]), x = rows_of(node->in[1]), dx = rows_of(node->out[0]);
    const double *scale = ls_data(node->in[2]);
    double *dscale = ls_param_gradient(run, node->in[2]);
    for (int64_t row = 0; row < x.count; row++)
        for (int64_t i = 0; i < x.width; i++) {
            double d = ((const double *)dy.data)[row * dy.stride + i];
            dscale[i] += d * ((const double *)x.data)[row * x.stride + i];
            if (dx.data != NULL) ((double *)dx.data)[row * dx.stride + i] = scale[i] * d;
        }
}

/* ---- f32 and bf16 ---- */

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const table y = rows_of(node->in[0]), x = rows_of(node->in[1]), out = rows_of(node->out[0]);
    const float *scale = ls_data(node->in[2]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < out.count; row++)
        for (int64_t i = 0; i < out.width; i += LS_LANES) {
            int64_t left = out.width - i;
            ls_vec sum = ls_load_left(scale, LS_F32, i, left) *
                         ls_load_left(x.data, type, row * x.stride + i, left);
            if (y.data != NULL) sum += ls_load_left(y.data, type, row * y.stride + i, left);
            ls_store_left(out.data, type, row * out.stride + i, left, sum);
        }
}

/* The channels of a vector walk down all rows; sums of PART rows are added up in double. */
LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    enum { PART = 64 };
    const table dy = rows_of(node->in[0]), x = rows_of(node->in[1]), dx = rows_of(node->out[0]);
    const float *scale = ls_data(node->in[2]);
    float *dscale = ls_param_gradient(run, node->in[2]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t first = 0; first < x.width; first += LS_LANES) {
        const int64_t left = x.width - first;
        const ls_vec factor = ls_load_left(scale, LS_F32, first, left);
        double sum[LS_LANES] = {0};
        for (int64_t start = 0; start < x.count; start += PART) {
            ls_vec part = ls_vec_all(0);
            for (int64_t row = start; row < ls_min(start + PART, x.count); row++) {
                ls_vec d = ls_load_left(dy.data, type, row * dy.stride + first, left);
                part += d * ls_load_left(x.data, type, row * x.stride + first, left);
                if (dx.data != NULL)
                    ls_store_left(dx.data, type, row * dx.stride + first, left, factor * d);
            }
            for (int i = 0; i < LS_LANES; i++) sum[i] += (double)part[i];
        }
        for (int64_t i = 0; i < ls_min(left, LS_LANES); i++) dscale[first + i] += (float)sum[i];
    }
}

LS_KERNEL_FAST(forward)
LS_KERNEL_FAST(backward)

const ls_kernel LS_CPU_TABLE(plus_scaled)[] = {
    {"plus_scaled", LS_KERNEL_BY_TYPE(forward), NULL},
    {"plus_scaled_grad", LS_KERNEL_BY_TYPE(backward), NULL},
    {0},
};
