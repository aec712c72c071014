#include "tensor/op/pointwise/pointwise.h"

#include "tensor/cpu/vector.h"

/* Rows of the last axis at their place in a strided tensor. */
static int64_t row_place(const ls_tensor *tensor, int64_t row) {
    int64_t place = 0;
    for (int axis = tensor->rank - 2; axis >= 0; axis--) {
        place += row % tensor->dim[axis] * tensor->stride[axis];
        row /= tensor->dim[axis];
    }
    return place;
}

static void plus_broadcast(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *v = node->in[1], *y = node->out[0];
    int64_t width = x->dim[x->rank - 1], rows = ls_count(x) / width, repeat = ls_count(v) / width;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row_place(x, row), from = row_place(v, row % repeat);
        if (x->type == LS_F64) {
            double *out = (double *)ls_data(y) + row * width;
            for (int64_t i = 0; i < width; i++)
                out[i] = ((const double *)ls_data(x))[at + i] + ls_tensor_at(v, from + i);
        } else {
            for (int64_t i = 0; i < width; i += LS_LANES)
                ls_store_left(ls_data(y), y->type, row * width + i, width - i,
                              ls_load_left(ls_data(x), x->type, at + i, width - i) +
                                  ls_load_left(ls_data(v), v->type, from + i, width - i));
        }
    }
}

/* dv: each row of v sums its repetitions in order. */
static void plus_broadcast_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[0], *dv = node->out[0];
    int64_t width = dv->dim[dv->rank - 1], repeat = ls_count(dv) / width;
    int64_t rows = ls_count(dy) / width;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < repeat; row++) {
        int64_t to = row_place(dv, row);
        for (int64_t i = 0; i < width; i++) {
            double sum = 0;
            for (int64_t from = row; from < rows; from += repeat)
                sum += ls_tensor_at(dy, row_place(dy, from) + i);
            ls_tensor_set(dv, to + i, sum);
        }
    }
}

static void times(const ls_run *run, const ls_node *node) {
    double factor = *(const double *)node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    int64_t width = x->dim[x->rank - 1], rows = ls_count(x) / width;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row_place(x, row), to = row_place(y, row);
        for (int64_t i = 0; i < width; i += x->type == LS_F64 ? 1 : LS_LANES) {
            if (x->type == LS_F64)
                ((double *)ls_data(y))[to + i] = ((const double *)ls_data(x))[at + i] * factor;
            else
                ls_store_left(ls_data(y), y->type, to + i, width - i,
                              ls_load_left(ls_data(x), x->type, at + i, width - i) * (float)factor);
        }
    }
}

/* Rows of one of two tensors, or zeros. */
static void pick(const ls_run *run, const ls_node *node) {
    const ls_tensor *y = node->out[0];
    const uint8_t *which = ls_data(node->in[0]);
    int64_t width = y->dim[y->rank - 1], rows = ls_count(y) / width, each = rows / y->dim[0];
    size_t size = ls_dtype_size(y->type), bytes = (size_t)width * size;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        const ls_tensor *x = node->in[which[row / each] != 0 ? 1 : 2];
        char *to = (char *)ls_data(y) + (size_t)row_place(y, row) * size;
        if (x != NULL)
            memcpy(to, (const char *)ls_data(x) + (size_t)row_place(x, row) * size, bytes);
        else
            memset(to, 0, bytes);
    }
}

static void divide(const ls_run *run, const ls_node *node) {
    const ls_tensor *y = node->in[0], *by = node->in[1], *out = node->out[0];
    int64_t width = y->dim[y->rank - 1], rows = ls_count(y) / width;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row_place(y, row), to = row_place(out, row);
        double divisor = ls_tensor_at(by, row), factor = divisor == 0 ? 0 : 1 / divisor;
        if (y->type == LS_F64) {
            for (int64_t i = 0; i < width; i++)
                ls_tensor_set(out, to + i, ls_tensor_at(y, at + i) * factor);
            continue;
        }
        for (int64_t i = 0; i < width; i += LS_LANES)
            ls_store_left(ls_data(out), out->type, to + i, width - i,
                          ls_load_left(ls_data(y), y->type, at + i, width - i) * (float)factor);
    }
}

/* With r = y / by: dy = dr / by, dby = -(r . dr) / by. */
static double divide_row_back(const ls_tensor *r, int64_t r_at, const ls_tensor *dr, int64_t dr_at,
                              const ls_tensor *dy, int64_t to, double factor) {
    int64_t width = r->dim[r->rank - 1];
    double dot = 0;
    for (int64_t i = 0; r->type == LS_F64 && i < width; i++) {
        double d = ls_tensor_at(dr, dr_at + i);
        dot += ls_tensor_at(r, r_at + i) * d;
        ls_tensor_set(dy, to + i, d * factor);
    }
    ls_vec dots = ls_vec_all(0);
    for (int64_t i = 0; r->type != LS_F64 && i < width; i += LS_LANES) {
        ls_vec d = ls_load_left(ls_data(dr), dr->type, dr_at + i, width - i);
        dots += ls_load_left(ls_data(r), r->type, r_at + i, width - i) * d;
        ls_store_left(ls_data(dy), dy->type, to + i, width - i, d * (float)factor);
    }
    return dot + (double)ls_vec_sum(dots);
}

static void divide_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *r = node->in[0], *by = node->in[1], *dr = node->in[2];
    const ls_tensor *dy = node->out[0], *dby = node->out[1];
    int64_t rows = ls_count(r) / r->dim[r->rank - 1];
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        double divisor = ls_tensor_at(by, row), factor = divisor == 0 ? 0 : 1 / divisor;
        double dot = divide_row_back(r, row_place(r, row), dr, row_place(dr, row), dy,
                                     row_place(dy, row), factor);
        ls_tensor_set(dby, row, -dot * factor);
    }
}

static size_t redraw_workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)ls_count(node->in[0]) * sizeof(double);
}

static void redraw(const ls_run *run, const ls_node *node) {
    const ls_tensor *parameter = node->in[0];
    const ls_redraw_attributes *about = node->attributes;
    const int64_t step = run->step / about->runs;
    double *values = run->workspace;
    if (step == 0 || step % about->every != 0) return;
    ls_parameter_draw(&run->parameters->items[parameter->parameter], run->seed, (uint32_t)step,
                      values);
    for (int64_t i = 0; i < ls_count(parameter); i++) ls_tensor_set(parameter, i, values[i]);
}

static void dropout(const ls_run *run, const ls_node *node) {
    const ls_dropout_attributes *about = node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    int64_t width = x->dim[x->rank - 1], rows = ls_count(x) / width;
    ls_random key = {.seed = run->seed, .stream = about->stream, .step = run->step};
    uint32_t threshold = (uint32_t)(about->share * 4294967295.0);
    double scale = 1 / (1 - about->share);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row_place(x, row), to = row_place(y, row);
        uint32_t words[4] = {0};
        uint64_t block = UINT64_MAX;
        for (int64_t i = 0; i < width; i++) {
            uint64_t index = (uint64_t)(row / about->rows * width + i);
            if (index / 4 != block) ls_random_block(key, block = index / 4, words);
            double value = words[index % 4] < threshold ? 0 : ls_tensor_at(x, at + i) * scale;
            ls_tensor_set(y, to + i, value);
        }
    }
}

/* Row t of sequence b is kept or not by word b T + t of the stream. */
static void drop_rows(const ls_run *run, const ls_node *node) {
    const ls_drop_rows_attributes *about = node->attributes;
    const ls_tensor *kept = node->out[0];
    const int64_t rows = ls_count(kept), T = kept->dim[1];
    const ls_random key = {.seed = run->seed, .stream = about->drop.stream, .step = run->step};
    const uint32_t threshold = (uint32_t)(about->drop.share * 4294967295.0);
    uint8_t *to = ls_data(kept);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t block = 0; block < ls_ceil_div(rows, 4); block++) {
        uint32_t words[4];
        ls_random_block(key, (uint64_t)block, words);
        for (int64_t i = 4 * block; i < ls_min(4 * block + 4, rows); i++)
            to[i] = i % T >= about->count || words[i % 4] >= threshold;
    }
}

const ls_kernel LS_CPU_TABLE(pointwise)[] = {
    {"plus_broadcast", {plus_broadcast, plus_broadcast, plus_broadcast}, NULL},
    {"plus_broadcast_grad", {plus_broadcast_grad, plus_broadcast_grad, plus_broadcast_grad}, NULL},
    {"times", {times, times, times}, NULL},
    {"pick", {pick, pick, pick}, NULL},
    {"divide", {divide, divide, divide}, NULL},
    {"divide_grad", {divide_grad, divide_grad, divide_grad}, NULL},
    {"redraw", {redraw, redraw, redraw}, redraw_workspace},
    {"dropout", {dropout, dropout, dropout}, NULL},
    {"drop_rows", {drop_rows, drop_rows, drop_rows}, NULL},
    {0},
};
