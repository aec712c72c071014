#include "tensor/op/residual_norm/residual_norm.h"

#include <math.h>

#include "tensor/cpu/vector.h"

/* ---- reference ---- */

static void forward_f64(const ls_run *run, const ls_node *node) {
    const ls_residual_norm_attributes *about = node->attributes;
    int64_t rows, width, x_stride, delta_stride = 0;
    ls_rows(node->in[0], &rows, &width, &x_stride);
    if (node->in[1] != NULL) ls_rows(node->in[1], &rows, &width, &delta_stride);
    const double *weight = node->in[2] == NULL ? NULL : ls_data(node->in[2]);
    const double *bias = node->in[3] == NULL ? NULL : ls_data(node->in[3]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        const double *x = (const double *)ls_data(node->in[0]) + row * x_stride;
        double *y = (double *)ls_data(node->out[0]) + row * width;
        if (node->in[1] != NULL) {
            const double *delta = (const double *)ls_data(node->in[1]) + row * delta_stride;
            double *total = (double *)ls_data(node->out[1]) + row * width;
            for (int64_t i = 0; i < width; i++) total[i] = x[i] + delta[i];
            x = total;
        }
        double mean = 0, square = 0;
        for (int64_t i = 0; i < width && about->kind == LS_NORM_LAYER; i++) mean += x[i];
        mean /= (double)width;
        for (int64_t i = 0; i < width; i++) square += (x[i] - mean) * (x[i] - mean);
        double scale = 1 / sqrt(square / (double)width + about->epsilon);
        for (int64_t i = 0; i < width; i++)
            y[i] = (x[i] - mean) * scale * (weight == NULL ? 1 : weight[i]) +
                   (bias == NULL ? 0 : bias[i]);
        double *statistics = (double *)ls_data(node->out[2]) + 2 * row;
        statistics[0] = mean;
        statistics[1] = scale;
    }
}

static void *gradient_of(const ls_run *run, const ls_tensor *parameter) {
    if (parameter == NULL || !parameter->needs_grad) return NULL;
    return ls_param_gradient(run, parameter);
}

static void backward_f64(const ls_run *run, const ls_node *node) {
    const ls_residual_norm_attributes *about = node->attributes;
    int64_t rows, width, x_stride, dy_stride, dsum_stride = 0;
    ls_rows(node->in[0], &rows, &width, &x_stride);
    ls_rows(node->in[4], &rows, &width, &dy_stride);
    if (node->in[5] != NULL) ls_rows(node->in[5], &rows, &width, &dsum_stride);
    const double *weight = node->in[1] == NULL ? NULL : ls_data(node->in[1]);
    double *dweight = gradient_of(run, node->in[1]), *dbias = gradient_of(run, node->in[2]);
    for (int64_t row = 0; row < rows; row++) {
        const double *x = (const double *)ls_data(node->in[0]) + row * x_stride;
        const double *dy = (const double *)ls_data(node->in[4]) + row * dy_stride;
        const double *statistics = (const double *)ls_data(node->in[3]) + 2 * row;
        double *dx = (double *)ls_data(node->out[0]) + row * width;
        double mean = 0, along = 0;
        for (int64_t i = 0; i < width; i++) {
            double hat = (x[i] - statistics[0]) * statistics[1];
            double d = dy[i] * (weight == NULL ? 1 : weight[i]);
            mean += d;
            along += d * hat;
            if (dweight != NULL) dweight[i] += dy[i] * hat;
            if (dbias != NULL) dbias[i] += dy[i];
        }
        mean = about->kind == LS_NORM_LAYER ? mean / (double)width : 0;
        along /= (double)width;
        for (int64_t i = 0; i < width; i++) {
            double hat = (x[i] - statistics[0]) * statistics[1];
            double through = node->in[5] == NULL
                                 ? 0
                                 : ((const double *)ls_data(node->in[5]))[row * dsum_stride + i];
            double d = dy[i] * (weight == NULL ? 1 : weight[i]);
            dx[i] = statistics[1] * (d - mean - hat * along) + through;
        }
    }
}

/* ---- f32 and bf16 ---- */

/* 1 in the lanes that exist, so that the tail of a row goes through the same code. */
LS_INLINE ls_vec lanes_below(int64_t left) {
    ls_vec ones = ls_vec_all(1);
    if (left >= LS_LANES) return ones;
    float lanes[LS_LANES];
    for (int i = 0; i < LS_LANES; i++) lanes[i] = i < left ? 1 : 0;
    memcpy(&ones, lanes, sizeof ones);
    return ones;
}

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const ls_residual_norm_attributes *about = node->attributes;
    int64_t rows, width, x_stride, delta_stride = 0;
    ls_rows(node->in[0], &rows, &width, &x_stride);
    if (node->in[1] != NULL) ls_rows(node->in[1], &rows, &width, &delta_stride);
    const float *weight = node->in[2] == NULL ? NULL : ls_data(node->in[2]);
    const float *bias = node->in[3] == NULL ? NULL : ls_data(node->in[3]);
    const void *x = ls_data(node->in[0]);
    const void *delta = node->in[1] == NULL ? NULL : ls_data(node->in[1]);
    void *total = node->in[1] == NULL ? NULL : ls_data(node->out[1]), *y = ls_data(node->out[0]);
    float *statistics = ls_data(node->out[2]);
    bool centred = about->kind == LS_NORM_LAYER;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        const void *in = x;
        int64_t at = row * x_stride;
        ls_vec sums = ls_vec_all(0), squares = ls_vec_all(0);
        if (delta != NULL) {
            for (int64_t i = 0; i < width; i += LS_LANES)
                ls_store_left(total, type, row * width + i, width - i,
                              ls_load_left(x, type, at + i, width - i) +
                                  ls_load_left(delta, type, row * delta_stride + i, width - i));
            in = total;
            at = row * width;
        }
        for (int64_t i = 0; i < width && centred; i += LS_LANES)
            sums += ls_load_left(in, type, at + i, width - i);
        float mean = ls_vec_sum(sums) / (float)width;
        for (int64_t i = 0; i < width; i += LS_LANES) {
            ls_vec off =
                (ls_load_left(in, type, at + i, width - i) - mean) * lanes_below(width - i);
            squares += off * off;
        }
        float scale = 1 / sqrtf(ls_vec_sum(squares) / (float)width + (float)about->epsilon);
        for (int64_t i = 0; i < width; i += LS_LANES) {
            ls_vec out = (ls_load_left(in, type, at + i, width - i) - mean) * scale;
            if (weight != NULL) out *= ls_load_left(weight, LS_F32, i, width - i);
            if (bias != NULL) out += ls_load_left(bias, LS_F32, i, width - i);
            ls_store_left(y, type, row * width + i, width - i, out);
        }
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = scale;
    }
}

/* Parameter gradients: rows are cut in a fixed number of pieces, each with its own sums. */
enum { PIECES = 32 };

static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    int64_t width = node->in[0]->dim[node->in[0]->rank - 1];
    return (size_t)(PIECES * 2 * ls_round_up(width, LS_LANES)) * sizeof(double);
}

LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const ls_residual_norm_attributes *about = node->attributes;
    int64_t rows, width, x_stride, dy_stride, dsum_stride = 0;
    ls_rows(node->in[0], &rows, &width, &x_stride);
    ls_rows(node->in[4], &rows, &width, &dy_stride);
    if (node->in[5] != NULL) ls_rows(node->in[5], &rows, &width, &dsum_stride);
    const float *weight = node->in[1] == NULL ? NULL : ls_data(node->in[1]);
    const float *statistics = ls_data(node->in[3]);
    const void *x = ls_data(node->in[0]), *dy = ls_data(node->in[4]);
    const void *dsum = node->in[5] == NULL ? NULL : ls_data(node->in[5]);
    void *dx = ls_data(node->out[0]);
    bool learned = node->in[1] != NULL || node->in[2] != NULL;
    int64_t padded = ls_round_up(width, LS_LANES);
    float *partial = run->workspace;
    memset(partial, 0, (size_t)(PIECES * 2 * padded) * sizeof *partial);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < PIECES; piece++) {
        float *dweight = partial + piece * 2 * padded, *dbias = dweight + padded;
        for (int64_t row = rows * piece / PIECES; row < rows * (piece + 1) / PIECES; row++) {
            float mean = statistics[2 * row], scale = statistics[2 * row + 1];
            ls_vec sums = ls_vec_all(0), alongs = ls_vec_all(0);
            for (int64_t i = 0; i < width; i += LS_LANES) {
                ls_vec g = ls_load_left(dy, type, row * dy_stride + i, width - i);
                ls_vec hat = (ls_load_left(x, type, row * x_stride + i, width - i) - mean) * scale;
                ls_vec d = weight == NULL ? g : g * ls_load_left(weight, LS_F32, i, width - i);
                sums += d;
                alongs += d * hat;
                if (!learned) continue;
                ls_store(dweight, LS_F32, i, ls_load(dweight, LS_F32, i) + g * hat);
                ls_store(dbias, LS_F32, i, ls_load(dbias, LS_F32, i) + g);
            }
            float centre = about->kind == LS_NORM_LAYER ? ls_vec_sum(sums) / (float)width : 0;
            float along = ls_vec_sum(alongs) / (float)width;
            for (int64_t i = 0; i < width; i += LS_LANES) {
                ls_vec g = ls_load_left(dy, type, row * dy_stride + i, width - i);
                ls_vec hat = (ls_load_left(x, type, row * x_stride + i, width - i) - mean) * scale;
                ls_vec d = weight == NULL ? g : g * ls_load_left(weight, LS_F32, i, width - i);
                ls_vec out = scale * (d - centre - hat * along);
                if (dsum != NULL) out += ls_load_left(dsum, type, row * dsum_stride + i, width - i);
                ls_store_left(dx, type, row * width + i, width - i, out);
            }
        }
    }
    for (int which = 0; which < 2; which++) {
        float *gradient = gradient_of(run, node->in[1 + which]);
        for (int64_t piece = 0; gradient != NULL && piece < PIECES; piece++)
            for (int64_t i = 0; i < width; i++)
                gradient[i] += partial[(piece * 2 + which) * padded + i];
    }
}

LS_KERNEL_FAST(forward)
LS_KERNEL_FAST(backward)

const ls_kernel LS_CPU_TABLE(residual_norm)[] = {
    {"residual_norm", LS_KERNEL_BY_TYPE(forward), NULL},
    {"residual_norm_grad", LS_KERNEL_BY_TYPE(backward), backward_workspace},
    {0},
};
