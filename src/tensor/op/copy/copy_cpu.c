/* Moving rows: copies, sums of gradients, caches. These go by the tensors' own types. */
#include <math.h>
#include <string.h>

#include "tensor/engine/program_internal.h"

/* Element i (counted in row-major order of `like`) of a possibly strided tensor. */
static int64_t place_of(const ls_tensor *tensor, int64_t index) {
    int64_t place = 0;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        place += index % tensor->dim[axis] * tensor->stride[axis];
        index /= tensor->dim[axis];
    }
    return place;
}

/* out = a (+ b), row by row; the common types have tight loops. */
static void combine(const ls_run *run, const ls_tensor *a, const ls_tensor *b,
                    const ls_tensor *out) {
    int64_t width = out->dim[out->rank - 1], rows = ls_count(out) / width;
    bool same = a->type == out->type && (b == NULL || b->type == out->type);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at_a = place_of(a, row * width), at_out = place_of(out, row * width);
        int64_t at_b = b == NULL ? 0 : place_of(b, row * width);
        if (same && b == NULL) {
            size_t size = ls_dtype_size(out->type);
            memcpy((char *)ls_data(out) + (size_t)at_out * size,
                   (const char *)ls_data(a) + (size_t)at_a * size, (size_t)width * size);
        } else if (same && out->type == LS_F32) {
            const float *x = (const float *)ls_data(a) + at_a,
                        *y = (const float *)ls_data(b) + at_b;
            float *z = (float *)ls_data(out) + at_out;
            for (int64_t i = 0; i < width; i++) z[i] = x[i] + y[i];
        } else if (same && out->type == LS_BF16) {
            const ls_bf16 *x = (const ls_bf16 *)ls_data(a) + at_a;
            const ls_bf16 *y = (const ls_bf16 *)ls_data(b) + at_b;
            ls_bf16 *z = (ls_bf16 *)ls_data(out) + at_out;
            for (int64_t i = 0; i < width; i++)
                z[i] = ls_bf16_from_f32(ls_bf16_to_f32(x[i]) + ls_bf16_to_f32(y[i]));
        } else {
            for (int64_t i = 0; i < width; i++)
                ls_tensor_set(out, at_out + i,
                              ls_tensor_at(a, at_a + i) +
                                  (b == NULL ? 0 : ls_tensor_at(b, at_b + i)));
        }
    }
}

static void copy(const ls_run *run, const ls_node *node) {
    combine(run, node->in[0], NULL, node->out[0]);
}

static void sum(const ls_run *run, const ls_node *node) {
    combine(run, node->in[0], node->in[1], node->out[0]);
}

static void accumulate(const ls_run *run, const ls_node *node) {
    ls_tensor gradient = *node->in[0]; /* contiguous, in the master's type */
    gradient.type = run->parameters->master_type;
    gradient.base = NULL;
    gradient.offset = 0;
    gradient.data = ls_param_gradient(run, node->in[0]);
    combine(run, &gradient, node->in[1], &gradient);
}

static void clear(const ls_run *run, const ls_node *node) {
    (void)run;
    const ls_tensor *out = node->out[0];
    int64_t width = out->dim[out->rank - 1], rows = ls_count(out) / width;
    size_t size = ls_dtype_size(out->type);
    for (int64_t row = 0; row < rows; row++)
        memset((char *)ls_data(out) + (size_t)place_of(out, row * width) * size, 0,
               (size_t)width * size);
}

/* One row of a cache or chunk: all axes after time. Caches and gradients are contiguous there; a
 * chunk may be a view whose inner axes are. */
static int64_t row_elements(const ls_tensor *tensor) {
    return ls_count(tensor) / tensor->dim[0] / tensor->dim[1];
}

/* Row i of those that are taken, of all sequences. */
static void append_row(const ls_tensor *x, const ls_tensor *cache, const ls_append_plan *plan,
                       int64_t i) {
    const size_t size = ls_dtype_size(cache->type), row = (size_t)row_elements(cache) * size;
    const int64_t b = i / plan->take, t = i % plan->take, from = plan->from + t;
    memcpy((char *)ls_data(cache) + (size_t)(b * cache->dim[1] + plan->kept + t) * row,
           (const char *)ls_data(x) + (size_t)(b * x->stride[0] + from * x->stride[1]) * size, row);
}

static void cache_append(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *cache = node->out[0];
    const ls_append_plan plan = ls__append_begin(run, node);
    size_t size = ls_dtype_size(cache->type), row = (size_t)row_elements(cache) * size;
    int64_t B = x->dim[0], capacity = cache->dim[1];
    char *to = ls_data(cache);
    for (int64_t b = 0; plan.drop > 0 && b < B; b++) {
        char *rows = to + (size_t)(b * capacity) * row;
        memmove(rows, rows + (size_t)plan.drop * row, (size_t)plan.kept * row);
    }
    const int64_t rows = B * plan.take;
    if (run->threads == 1 || rows <= 64) { /* a team takes longer */
        for (int64_t i = 0; i < rows; i++) append_row(x, cache, &plan, i);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t i = 0; i < rows; i++) append_row(x, cache, &plan, i);
}

static void cache_append_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *gradient = node->in[0], *out = node->out[0];
    ls_extent extent = ls_cache_extent(run, gradient);
    size_t size = ls_dtype_size(out->type), row = (size_t)row_elements(out) * size;
    for (int64_t b = 0; b < out->dim[0]; b++)
        for (int64_t t = 0; t < out->dim[1]; t++) {
            int64_t at = run->start + t - extent.first;
            char *to =
                (char *)ls_data(out) + (size_t)(b * out->stride[0] + t * out->stride[1]) * size;
            const char *from = (const char *)ls_data(gradient) +
                               (size_t)(b * gradient->stride[0] + at * gradient->stride[1]) * size;
            if (at >= 0 && at < extent.count)
                memcpy(to, from, row);
            else
                memset(to, 0, row);
        }
}

/* From the gradient of a cache's rows to that of the rows before this run: those that it dropped
 * had no part in it. */
static void cache_hand_back(const ls_run *run, const ls_node *node) {
    const ls_tensor *gradient = node->in[0], *out = node->in[1];
    const ls_append_plan plan = run->state->port[out->port].last;
    const size_t row = (size_t)row_elements(out) * ls_dtype_size(out->type);
    for (int64_t b = 0; b < out->dim[0]; b++) {
        const size_t first = (size_t)(b * out->dim[1]) * row, drop = (size_t)plan.drop * row;
        char *to = (char *)ls_data(out) + first;
        memmove(to + drop, (const char *)ls_data(gradient) + first, (size_t)plan.kept * row);
        memset(to, 0, drop);
    }
}

static void state_write(const ls_run *run, const ls_node *node) {
    (void)run;
    const ls_tensor *value = node->in[0], *state = node->in[1];
    int64_t width = state->dim[state->rank - 1], rows = ls_count(state) / width;
    size_t size = ls_dtype_size(state->type);
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)ls_data(state) + (size_t)(i * width) * size,
               (const char *)ls_data(value) + (size_t)place_of(value, i * width) * size,
               (size_t)width * size);
}

const ls_kernel LS_CPU_TABLE(copy)[] = {
    {"copy", {copy, copy, copy}, NULL},
    {"sum", {sum, sum, sum}, NULL},
    {"accumulate", {accumulate, accumulate, accumulate}, NULL},
    {"clear", {clear, clear, clear}, NULL},
    {"cache_append", {cache_append, cache_append, cache_append}, NULL},
    {"cache_append_grad", {cache_append_grad, cache_append_grad, cache_append_grad}, NULL},
    {"cache_hand_back", {cache_hand_back, cache_hand_back, cache_hand_back}, NULL},
    {"state_write", {state_write, state_write, state_write}, NULL},
    {0},
};
