#include "tensor/op/activate/activate.h"

#include <math.h>

#include "tensor/cpu/vector.h"

/* A tensor as rows, or a part of each row. */
typedef struct table {
    void *data;
    int64_t count, width, stride, first;
} table;

static table rows_of(const ls_tensor *tensor) {
    table r = {.data = ls_data(tensor)};
    ls_rows(tensor, &r.count, &r.width, &r.stride);
    return r;
}

static double *spot(table x, int64_t row, int64_t i) {
    return (double *)x.data + row * x.stride + i;
}

/* ---- reference: value and slope at one point ---- */

static double value_at(ls_act_kind kind, double x, double *slope) {
    const double pi = 3.14159265358979323846;
    switch (kind) {
    case LS_ACT_NONE:
        *slope = 1;
        return x;
    case LS_ACT_GELU: {
        double cdf = 0.5 * erfc(-x / sqrt(2.0));
        *slope = cdf + x * exp(-x * x / 2) / sqrt(2 * pi);
        return x * cdf;
    }
    case LS_ACT_GELU_TANH: {
        double c = sqrt(2 / pi), t = tanh(c * (x + 0.044715 * x * x * x));
        *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
        return 0.5 * x * (1 + t);
    }
    case LS_ACT_SILU: {
        double s = 1 / (1 + exp(-x));
        *slope = s * (1 + x * (1 - s));
        return x * s;
    }
    case LS_ACT_RELU:
        *slope = x > 0;
        return x > 0 ? x : 0;
    case LS_ACT_RELU2:
        *slope = x > 0 ? 2 * x : 0;
        return x > 0 ? x * x : 0;
    case LS_ACT_SIGMOID: {
        double s = 1 / (1 + exp(-x));
        *slope = s * (1 - s);
        return s;
    }
    case LS_ACT_TANH: {
        double t = tanh(x);
        *slope = 1 - t * t;
        return t;
    }
    }
    *slope = 0;
    return 0;
}

static void forward_f64(const ls_run *run, const ls_node *node) {
    const ls_activate_attributes *about = node->attributes;
    int64_t rows, width, x_stride;
    ls_rows(node->in[0], &rows, &width, &x_stride);
    int64_t out = node->out[0]->dim[node->out[0]->rank - 1];
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        const double *x = (const double *)ls_data(node->in[0]) + row * x_stride;
        double *y = (double *)ls_data(node->out[0]) + row * out, slope;
        for (int64_t i = 0; i < out; i++)
            y[i] = value_at(about->kind, x[i], &slope) * (about->gated ? x[out + i] : 1);
    }
}

static void backward_f64(const ls_run *run, const ls_node *node) {
    const ls_activate_attributes *about = node->attributes;
    int64_t rows, width, x_stride, dy_stride, dx_stride;
    ls_rows(node->in[1], &rows, &width, &dy_stride);
    ls_rows(node->in[0], &rows, &width, &x_stride);
    ls_rows(node->out[0], &rows, &width, &dx_stride);
    int64_t out = about->gated ? width / 2 : width;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        const double *x = (const double *)ls_data(node->in[0]) + row * x_stride;
        const double *dy = (const double *)ls_data(node->in[1]) + row * dy_stride;
        double *dx = (double *)ls_data(node->out[0]) + row * dx_stride, slope;
        for (int64_t i = 0; i < out; i++) {
            double value = value_at(about->kind, x[i], &slope);
            dx[i] = dy[i] * slope * (about->gated ? x[out + i] : 1);
            if (about->gated) dx[out + i] = dy[i] * value;
        }
    }
}

static void gate_f64(const ls_run *run, const ls_node *node) {
    ls_act_kind kind = *(const ls_act_kind *)node->attributes;
    const table x = rows_of(node->in[0]), v = rows_of(node->in[1]), y = rows_of(node->out[0]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x.count; row++)
        for (int64_t i = 0; i < x.width; i++) {
            double slope;
            *spot(y, row, i) = value_at(kind, *spot(x, row, i), &slope) * *spot(v, row, i);
        }
}

static void gate_grad_f64(const ls_run *run, const ls_node *node) {
    ls_act_kind kind = *(const ls_act_kind *)node->attributes;
    const table x = rows_of(node->in[0]), v = rows_of(node->in[1]), dy = rows_of(node->in[2]);
    const table dx = rows_of(node->out[0]), dv = rows_of(node->out[1]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x.count; row++)
        for (int64_t i = 0; i < x.width; i++) {
            double slope, value = value_at(kind, *spot(x, row, i), &slope), d = *spot(dy, row, i);
            *spot(dx, row, i) = d * slope * *spot(v, row, i);
            *spot(dv, row, i) = d * value;
        }
}

/* ---- f32 and bf16 ---- */

LS_INLINE ls_vec value_of(ls_act_kind kind, ls_vec x, ls_vec *slope) {
    switch (kind) {
    case LS_ACT_GELU: {
        ls_vec density, cdf = ls_vec_normal_cdf(x, &density);
        *slope = cdf + x * density * 0.39894228040143268f;
        return x * cdf;
    }
    case LS_ACT_GELU_TANH: {
        ls_vec inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
        ls_vec t = ls_vec_tanh(inner);
        *slope = 0.5f * (1.0f + t) +
                 0.5f * x * (1.0f - t * t) * (0.79788456080286536f * (1.0f + 0.134145f * x * x));
        return 0.5f * x * (1.0f + t);
    }
    case LS_ACT_SILU: {
        ls_vec s = ls_vec_sigmoid(x);
        *slope = s * (1.0f + x * (1.0f - s));
        return x * s;
    }
    case LS_ACT_RELU:
        *slope = ls_vec_pick(x > 0.0f, ls_vec_all(1), ls_vec_all(0));
        return ls_vec_pick(x > 0.0f, x, ls_vec_all(0));
    case LS_ACT_RELU2: {
        ls_vec positive = ls_vec_pick(x > 0.0f, x, ls_vec_all(0));
        *slope = 2.0f * positive;
        return positive * positive;
    }
    case LS_ACT_SIGMOID: {
        ls_vec s = ls_vec_sigmoid(x);
        *slope = s * (1.0f - s);
        return s;
    }
    case LS_ACT_TANH: {
        ls_vec t = ls_vec_tanh(x);
        *slope = 1.0f - t * t;
        return t;
    }
    case LS_ACT_NONE:
        break;
    }
    *slope = ls_vec_all(1);
    return x;
}

/* A row of a tensor: where it begins. */
typedef struct place {
    void *data; /* NULL: there is none */
    int64_t at;
} place;

LS_INLINE void forward_row(ls_act_kind kind, ls_dtype type, place x, place gated, place y,
                           int64_t width) {
    ls_vec slope;
    for (int64_t i = 0; i < width; i += LS_LANES) {
        int64_t left = width - i;
        ls_vec out = value_of(kind, ls_load_left(x.data, type, x.at + i, left), &slope);
        if (gated.data != NULL) out *= ls_load_left(gated.data, type, gated.at + i, left);
        ls_store_left(y.data, type, y.at + i, left, out);
    }
}

LS_INLINE void backward_row(ls_act_kind kind, ls_dtype type, place x, place gated, place dy,
                            place dx, place dgated, int64_t width) {
    ls_vec slope;
    for (int64_t i = 0; i < width; i += LS_LANES) {
        int64_t left = width - i;
        ls_vec g = ls_load_left(dy.data, type, dy.at + i, left);
        ls_vec value = value_of(kind, ls_load_left(x.data, type, x.at + i, left), &slope);
        ls_vec out = g * slope;
        if (gated.data != NULL) {
            out *= ls_load_left(gated.data, type, gated.at + i, left);
            ls_store_left(dgated.data, type, dgated.at + i, left, g * value);
        }
        ls_store_left(dx.data, type, dx.at + i, left, out);
    }
}

/* A switch outside the loop, so that each function has its own tight one. */
#define FOR_EACH_KIND(CALL)                                                                        \
    switch (act) {                                                                                 \
    case LS_ACT_NONE:                                                                              \
        CALL(LS_ACT_NONE);                                                                         \
        break;                                                                                     \
    case LS_ACT_GELU:                                                                              \
        CALL(LS_ACT_GELU);                                                                         \
        break;                                                                                     \
    case LS_ACT_GELU_TANH:                                                                         \
        CALL(LS_ACT_GELU_TANH);                                                                    \
        break;                                                                                     \
    case LS_ACT_SILU:                                                                              \
        CALL(LS_ACT_SILU);                                                                         \
        break;                                                                                     \
    case LS_ACT_RELU:                                                                              \
        CALL(LS_ACT_RELU);                                                                         \
        break;                                                                                     \
    case LS_ACT_RELU2:                                                                             \
        CALL(LS_ACT_RELU2);                                                                        \
        break;                                                                                     \
    case LS_ACT_SIGMOID:                                                                           \
        CALL(LS_ACT_SIGMOID);                                                                      \
        break;                                                                                     \
    case LS_ACT_TANH:                                                                              \
        CALL(LS_ACT_TANH);                                                                         \
        break;                                                                                     \
    }

/* Half of each row: the gate, or what it gates; all of it where nothing is gated. */
static table part_of(table x, bool gated, int half) {
    if (gated) x.width /= 2;
    x.first = half * x.width;
    if (!gated && half > 0) x.data = NULL;
    return x;
}

static place place_of(table x, int64_t row) {
    return (place){x.data, row * x.stride + x.first};
}

LS_INLINE void forward_rows(const ls_run *run, ls_act_kind act, ls_dtype type, table x, table gated,
                            table y) {
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x.count; row++) {
#define CALL(kind)                                                                                 \
    forward_row(kind, type, place_of(x, row), place_of(gated, row), place_of(y, row), x.width)
        FOR_EACH_KIND(CALL)
#undef CALL
    }
}

LS_INLINE void backward_rows(const ls_run *run, ls_act_kind act, ls_dtype type, table x,
                             table gated, table dy, table dx, table dgated) {
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x.count; row++) {
#define CALL(kind)                                                                                 \
    backward_row(kind, type, place_of(x, row), place_of(gated, row), place_of(dy, row),            \
                 place_of(dx, row), place_of(dgated, row), x.width)
        FOR_EACH_KIND(CALL)
#undef CALL
    }
}

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const ls_activate_attributes *about = node->attributes;
    table x = rows_of(node->in[0]);
    forward_rows(run, about->kind, type, part_of(x, about->gated, 0), part_of(x, about->gated, 1),
                 rows_of(node->out[0]));
}

LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const ls_activate_attributes *about = node->attributes;
    table x = rows_of(node->in[0]), dx = rows_of(node->out[0]);
    backward_rows(run, about->kind, type, part_of(x, about->gated, 0), part_of(x, about->gated, 1),
                  rows_of(node->in[1]), part_of(dx, about->gated, 0), part_of(dx, about->gated, 1));
}

LS_INLINE void gate_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    forward_rows(run, *(const ls_act_kind *)node->attributes, type, rows_of(node->in[0]),
                 rows_of(node->in[1]), rows_of(node->out[0]));
}

LS_INLINE void gate_grad_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    backward_rows(run, *(const ls_act_kind *)node->attributes, type, rows_of(node->in[0]),
                  rows_of(node->in[1]), rows_of(node->in[2]), rows_of(node->out[0]),
                  rows_of(node->out[1]));
}

LS_KERNEL_FAST(forward)
LS_KERNEL_FAST(backward)
LS_KERNEL_FAST(gate)
LS_KERNEL_FAST(gate_grad)

const ls_kernel LS_CPU_TABLE(activate)[] = {
    {"activate", LS_KERNEL_BY_TYPE(forward), NULL},
    {"activate_grad", LS_KERNEL_BY_TYPE(backward), NULL},
    {"gate", LS_KERNEL_BY_TYPE(gate), NULL},
    {"gate_grad", LS_KERNEL_BY_TYPE(gate_grad), NULL},
    {0},
};
