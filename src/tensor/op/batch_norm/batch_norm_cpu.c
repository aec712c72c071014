/* Batch norm. Rows are cut in a fixed number of pieces, each with its own sums in double, which are
 * added in their order: any number of threads gives the same bits. */
#include "tensor/op/batch_norm/batch_norm.h"

#include <math.h>

#include "tensor/cpu/vector.h"

enum { X, VALID, WEIGHT, BIAS, MEAN, VARIANCE, STATISTICS, DY };
enum { PIECES = 32 };

typedef struct rows_of {
    int64_t rows, width;
    const uint8_t *valid; /* or NULL */
} rows_of;

static rows_of rows_in(const ls_node *node) {
    rows_of r;
    int64_t stride;
    ls_rows(node->in[X], &r.rows, &r.width, &stride);
    r.valid = ls_data_or_null(node->in[VALID]);
    return r;
}

static bool counts(const rows_of *r, int64_t row) {
    return r->valid == NULL || r->valid[row] != 0;
}

static int64_t count_rows(const rows_of *r) {
    int64_t count = r->valid == NULL ? r->rows : 0;
    for (int64_t row = 0; r->valid != NULL && row < r->rows; row++) count += r->valid[row] != 0;
    return count;
}

static void *gradient_of(const ls_run *run, const ls_tensor *parameter) {
    if (parameter == NULL || !parameter->needs_grad) return NULL;
    return ls_param_gradient(run, parameter);
}

static double at_or(const ls_tensor *x, int64_t i, double otherwise) {
    return x == NULL ? otherwise : ls_tensor_at(x, i);
}

/* Of `count` rows with these sums of squares around their mean. */
static double running_variance(const ls_batch_norm_attributes *about, double squares,
                               int64_t count) {
    return squares / (double)(about->unbiased && count > 1 ? count - 1 : count);
}

/* Nothing counts: what runs along stays as it is. */
static void keep_running(const ls_node *node, int64_t i) {
    const double variance = ls_tensor_at(node->in[VARIANCE], i);
    const double epsilon = ((const ls_batch_norm_attributes *)node->attributes)->epsilon;
    const int64_t width = node->in[X]->dim[2];
    ls_tensor_set(node->out[1], i, ls_tensor_at(node->in[MEAN], i));
    ls_tensor_set(node->out[1], width + i, 1 / sqrt(variance + epsilon));
    ls_tensor_set(node->out[1], 2 * width + i, variance);
}

static void set_statistics(const ls_node *node, int64_t i, int64_t count, double mean,
                           double squares) {
    const ls_batch_norm_attributes *about = node->attributes;
    const int64_t width = node->in[X]->dim[2];
    ls_tensor_set(node->out[1], i, mean);
    ls_tensor_set(node->out[1], width + i, 1 / sqrt(squares / (double)count + about->epsilon));
    ls_tensor_set(node->out[1], 2 * width + i, running_variance(about, squares, count));
}

/* Mean and 1/deviation that the node has normed by. */
static double mean_of(const ls_node *node, const ls_tensor *statistics, int64_t i) {
    return ls_tensor_at(statistics == NULL ? node->in[MEAN] : statistics, i);
}

static double scale_of(const ls_node *node, const ls_tensor *statistics, int64_t i) {
    const ls_batch_norm_attributes *about = node->attributes;
    if (statistics != NULL) return ls_tensor_at(statistics, node->in[X]->dim[2] + i);
    return 1 / sqrt(ls_tensor_at(node->in[VARIANCE], i) + about->epsilon);
}

/* ---- what the backward part leaves for parameters ---- */

static void add_gradients(const ls_run *run, const ls_node *node, int64_t i, double along,
                          double sum) {
    const ls_tensor *statistics = node->in[STATISTICS];
    const struct {
        void *to;
        double value;
    } part[] = {
        {gradient_of(run, node->in[WEIGHT]), along},
        {gradient_of(run, node->in[BIAS]), sum},
        {statistics == NULL ? NULL : ls_param_gradient(run, node->in[MEAN]),
         statistics == NULL ? 0 : ls_tensor_at(statistics, i)},
        {statistics == NULL ? NULL : ls_param_gradient(run, node->in[VARIANCE]),
         statistics == NULL ? 0 : ls_tensor_at(statistics, 2 * node->in[X]->dim[2] + i)},
    };
    const ls_dtype type = node->in[MEAN]->type;
    for (size_t k = 0; k < sizeof part / sizeof part[0]; k++)
        if (part[k].to != NULL)
            ls_element_set(part[k].to, type, i, ls_element(part[k].to, type, i) + part[k].value);
}

/* ---- reference: channel by channel, around the mean ---- */

static void statistics_f64(const ls_node *node, const rows_of *r, int64_t count, int64_t i) {
    int64_t rows, width, stride;
    ls_rows(node->in[X], &rows, &width, &stride);
    const double *x = ls_data(node->in[X]);
    double mean = 0, squares = 0;
    if (count == 0) {
        keep_running(node, i);
        return;
    }
    for (int64_t row = 0; row < rows; row++)
        if (counts(r, row)) mean += x[row * stride + i];
    mean /= (double)count;
    for (int64_t row = 0; row < rows; row++)
        if (counts(r, row)) squares += (x[row * stride + i] - mean) * (x[row * stride + i] - mean);
    set_statistics(node, i, count, mean, squares);
}

static void forward_f64(const ls_run *run, const ls_node *node) {
    const rows_of r = rows_in(node);
    const int64_t count = count_rows(&r), stride = node->in[X]->stride[1];
    const double *x = ls_data(node->in[X]);
    double *y = ls_data(node->out[0]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t i = 0; i < r.width; i++) {
        if (node->out[1] != NULL) statistics_f64(node, &r, count, i);
        const double mean = mean_of(node, node->out[1], i), scale = scale_of(node, node->out[1], i);
        const double weight = at_or(node->in[WEIGHT], i, 1), bias = at_or(node->in[BIAS], i, 0);
        for (int64_t row = 0; row < r.rows; row++)
            y[row * r.width + i] =
                counts(&r, row) ? (x[row * stride + i] - mean) * scale * weight + bias : 0;
    }
}

static void backward_f64(const ls_run *run, const ls_node *node) {
    const rows_of r = rows_in(node);
    const int64_t count = count_rows(&r);
    int64_t rows, width, x_stride, dy_stride;
    ls_rows(node->in[X], &rows, &width, &x_stride);
    ls_rows(node->in[DY], &rows, &width, &dy_stride);
    const double *x = ls_data(node->in[X]), *dy = ls_data(node->in[DY]);
    double *dx = ls_data(node->out[0]);
    const bool own = node->in[STATISTICS] != NULL && count > 0;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t i = 0; i < width; i++) {
        const double mean = mean_of(node, node->in[STATISTICS], i);
        const double scale = scale_of(node, node->in[STATISTICS], i);
        const double weight = at_or(node->in[WEIGHT], i, 1);
        double sum = 0, along = 0;
        for (int64_t row = 0; row < rows; row++) {
            if (!counts(&r, row)) continue;
            sum += dy[row * dy_stride + i];
            along += dy[row * dy_stride + i] * (x[row * x_stride + i] - mean) * scale;
        }
        add_gradients(run, node, i, along, sum);
        const double centre = own ? sum / (double)count : 0,
                     slope = own ? along / (double)count : 0;
        for (int64_t row = 0; row < rows; row++) {
            const double hat = counts(&r, row) ? (x[row * x_stride + i] - mean) * scale : 0;
            dx[row * width + i] =
                counts(&r, row) ? scale * weight * (dy[row * dy_stride + i] - centre - hat * slope)
                                : 0;
        }
    }
}

/* ---- f32 and bf16 ---- */

typedef double wide_lanes __attribute__((vector_size(LS_LANES * sizeof(double))));

/* Two sums of every channel in each piece, then four factors of every channel. */
static int64_t padded_width(const ls_node *node) {
    return ls_round_up(node->in[X]->dim[2], LS_LANES);
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)(ls_round_up(node->in[X]->dim[2], 64) * (2 * PIECES + 4)) * sizeof(double);
}

LS_INLINE void add_wide(double *to, ls_vec value) {
    wide_lanes sum;
    memcpy(&sum, to, sizeof sum);
    sum += __builtin_convertvector(value, wide_lanes);
    memcpy(to, &sum, sizeof sum);
}

/* Sums of all pieces of channel i. */
static double sum_of(const double *sums, int64_t padded, int which, int64_t i) {
    double sum = 0;
    for (int64_t piece = 0; piece < PIECES; piece++) sum += sums[(piece * 2 + which) * padded + i];
    return sum;
}

/* Sums of squares are exact enough in double: a mean of 1000 deviations costs six digits of
 * sixteen. */
LS_INLINE void statistics_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const rows_of r = rows_in(node);
    const int64_t count = count_rows(&r), padded = padded_width(node);
    int64_t rows, width, stride;
    ls_rows(node->in[X], &rows, &width, &stride);
    const void *x = ls_data(node->in[X]);
    double *sums = run->workspace;
    memset(sums, 0, (size_t)(2 * PIECES * padded) * sizeof *sums);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < PIECES; piece++) {
        double *sum = sums + piece * 2 * padded, *square = sum + padded;
        for (int64_t row = rows * piece / PIECES; row < rows * (piece + 1) / PIECES; row++)
            for (int64_t i = 0; counts(&r, row) && i < width; i += LS_LANES) {
                const ls_vec value = ls_load_left(x, type, row * stride + i, width - i);
                wide_lanes wide = __builtin_convertvector(value, wide_lanes), total;
                add_wide(sum + i, value);
                memcpy(&total, square + i, sizeof total);
                total += wide * wide; /* the product is exact */
                memcpy(square + i, &total, sizeof total);
            }
    }
    for (int64_t i = 0; i < width; i++) {
        if (count == 0) {
            keep_running(node, i);
            continue;
        }
        const double mean = sum_of(sums, padded, 0, i) / (double)count;
        const double squares = sum_of(sums, padded, 1, i) - (double)count * mean * mean;
        set_statistics(node, i, count, mean, squares > 0 ? squares : 0);
    }
}

/* y = factor (x - mean) + bias. */
LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    if (node->out[1] != NULL) statistics_typed(run, node, type);
    const rows_of r = rows_in(node);
    const int64_t padded = padded_width(node), width = r.width;
    int64_t rows, columns, stride;
    ls_rows(node->in[X], &rows, &columns, &stride);
    float *mean = run->workspace, *factor = mean + padded, *bias = factor + padded;
    for (int64_t i = 0; i < width; i++) {
        mean[i] = (float)mean_of(node, node->out[1], i);
        factor[i] = (float)(scale_of(node, node->out[1], i) * at_or(node->in[WEIGHT], i, 1));
        bias[i] = (float)at_or(node->in[BIAS], i, 0);
    }
    const void *x = ls_data(node->in[X]);
    void *y = ls_data(node->out[0]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i += LS_LANES) {
            ls_vec out = ls_vec_all(0);
            if (counts(&r, row))
                out = (ls_load_left(x, type, row * stride + i, width - i) -
                       ls_load_left(mean, LS_F32, i, width - i)) *
                          ls_load_left(factor, LS_F32, i, width - i) +
                      ls_load_left(bias, LS_F32, i, width - i);
            ls_store_left(y, type, row * width + i, width - i, out);
        }
}

/* dx = factor (dy - centre - (x - mean) slope); the slope has both factors 1/deviation. */
typedef struct factors {
    float *mean, *factor, *centre, *slope;
} factors;

LS_INLINE void sums_typed(const ls_run *run, const ls_node *node, ls_dtype type,
                          const float *mean) {
    const rows_of r = rows_in(node);
    const int64_t padded = padded_width(node);
    int64_t rows, width, x_stride, dy_stride;
    ls_rows(node->in[X], &rows, &width, &x_stride);
    ls_rows(node->in[DY], &rows, &width, &dy_stride);
    const void *x = ls_data(node->in[X]), *dy = ls_data(node->in[DY]);
    double *sums = run->workspace;
    memset(sums, 0, (size_t)(2 * PIECES * padded) * sizeof *sums);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < PIECES; piece++) {
        double *sum = sums + piece * 2 * padded, *along = sum + padded;
        for (int64_t row = rows * piece / PIECES; row < rows * (piece + 1) / PIECES; row++)
            for (int64_t i = 0; counts(&r, row) && i < width; i += LS_LANES) {
                const ls_vec d = ls_load_left(dy, type, row * dy_stride + i, width - i);
                const ls_vec off = ls_load_left(x, type, row * x_stride + i, width - i) -
                                   ls_load_left(mean, LS_F32, i, width - i);
                add_wide(sum + i, d);
                add_wide(along + i, d * off);
            }
    }
}

LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const rows_of r = rows_in(node);
    const int64_t count = count_rows(&r), padded = padded_width(node);
    int64_t rows, width, x_stride, dy_stride;
    ls_rows(node->in[X], &rows, &width, &x_stride);
    ls_rows(node->in[DY], &rows, &width, &dy_stride);
    const bool own = node->in[STATISTICS] != NULL && count > 0;
    double *sums = run->workspace;
    factors f = {.mean = (float *)(sums + 2 * PIECES * padded)};
    f.factor = f.mean + padded, f.centre = f.factor + padded, f.slope = f.centre + padded;
    for (int64_t i = 0; i < width; i++) f.mean[i] = (float)mean_of(node, node->in[STATISTICS], i);
    sums_typed(run, node, type, f.mean);
    for (int64_t i = 0; i < width; i++) {
        const double scale = scale_of(node, node->in[STATISTICS], i);
        const double sum = sum_of(sums, padded, 0, i), along = scale * sum_of(sums, padded, 1, i);
        add_gradients(run, node, i, along, sum);
        f.factor[i] = (float)(scale * at_or(node->in[WEIGHT], i, 1));
        f.centre[i] = own ? (float)(sum / (double)count) : 0;
        f.slope[i] = own ? (float)(along / (double)count * scale) : 0;
    }
    const void *x = ls_data(node->in[X]), *dy = ls_data(node->in[DY]);
    void *dx = ls_data(node->out[0]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i += LS_LANES) {
            const int64_t left = width - i;
            ls_vec out = ls_vec_all(0);
            if (counts(&r, row)) {
                const ls_vec off = ls_load_left(x, type, row * x_stride + i, left) -
                                   ls_load_left(f.mean, LS_F32, i, left);
                out = ls_load_left(f.factor, LS_F32, i, left) *
                      (ls_load_left(dy, type, row * dy_stride + i, left) -
                       ls_load_left(f.centre, LS_F32, i, left) -
                       off * ls_load_left(f.slope, LS_F32, i, left));
            }
            ls_store_left(dx, type, row * width + i, left, out);
        }
}

LS_KERNEL_FAST(forward)
LS_KERNEL_FAST(backward)

const ls_kernel LS_CPU_TABLE(batch_norm)[] = {
    {"batch_norm", LS_KERNEL_BY_TYPE(forward), workspace},
    {"batch_norm_grad", LS_KERNEL_BY_TYPE(backward), workspace},
    {0},
};
