#include <math.h>

#include "tensor/cpu/vector.h"
#include "tensor/op/row_growth/row_growth.h"

/* The factor of row t of sequence b. */
static double growth(const ls_run *run, const ls_node *node, int64_t b, int64_t t) {
    const ls_growth_attributes *about = node->attributes;
    const double scale = log(about->growth.length);
    if (about->growth.whole) return log((double)(run->start + about->chunk)) / scale;
    const int32_t *begins = node->in[1] == NULL ? NULL : ls_data(node->in[1]);
    const int64_t position = run->start + t - (begins == NULL ? 0 : begins[b]);
    return fmax(1, log((double)(position + 1)) / scale);
}

static int64_t head_place(const ls_tensor *x, int64_t b, int64_t t, int64_t h) {
    return b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
}

static void grow_f64(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *y = node->out[0];
    for (int64_t row = 0; row < x->dim[0] * x->dim[1]; row++) {
        const int64_t b = row / x->dim[1], t = row % x->dim[1];
        const double factor = growth(run, node, b, t);
        for (int64_t h = 0; h < x->dim[2]; h++) {
            const double *from = (const double *)ls_data(x) + head_place(x, b, t, h);
            double *to = (double *)ls_data(y) + head_place(y, b, t, h);
            for (int64_t i = 0; i < x->dim[3]; i++) to[i] = from[i] * factor;
        }
    }
}

LS_INLINE void grow_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const void *in = ls_data(x);
    void *out = ls_data(y);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x->dim[0] * x->dim[1]; row++) {
        const int64_t b = row / x->dim[1], t = row % x->dim[1];
        const float factor = (float)growth(run, node, b, t);
        for (int64_t h = 0; h < x->dim[2]; h++) {
            const int64_t from = head_place(x, b, t, h), to = head_place(y, b, t, h);
            for (int64_t i = 0; i < x->dim[3]; i += LS_LANES) {
                const int64_t left = x->dim[3] - i;
                ls_store_left(out, type, to + i, left,
                              ls_load_left(in, type, from + i, left) * factor);
            }
        }
    }
}

LS_KERNEL_FAST(grow)

const ls_kernel LS_CPU_TABLE(row_growth)[] = {
    {"row_growth", LS_KERNEL_BY_TYPE(grow), NULL},
    {0},
};
