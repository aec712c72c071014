/* Groups of rows: gathering, keeping, blending. What only moves goes by the tensors' own types. */
#include "tensor/op/row_groups/row_groups.h"

#include "tensor/cpu/vector.h"

static char *row_at(const ls_tensor *tensor, int64_t b, int64_t row) {
    return (char *)ls_data(tensor) +
           (size_t)(b * tensor->stride[0] + row * tensor->stride[1]) * ls_dtype_size(tensor->type);
}

static size_t row_bytes(const ls_tensor *tensor) {
    return (size_t)(ls_count(tensor) / tensor->dim[0] / tensor->dim[1]) *
           ls_dtype_size(tensor->type);
}

/* The position of row r of group k. */
static int64_t position_of(const ls_groups *groups, int64_t k, int64_t r) {
    return (k + 1) * groups->rate - 1 - groups->dilation * (groups->rate - 1 - r);
}

static void row_groups(const ls_run *run, const ls_node *node) {
    const ls_groups_attributes *about = node->attributes;
    const ls_groups *groups = &about->groups;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const ls_extent held = ls_cache_extent(run, x);
    const int64_t first = ls_groups_due(*groups, run->start);
    const int64_t made = ls_groups_due(*groups, run->start + about->chunk) - first;
    const size_t bytes = row_bytes(x);
    ls_extent_set(run, y, first, made);
#pragma omp parallel for collapse(2) schedule(static)                                              \
    num_threads(run->threads) if (x->dim[0] * y->dim[1] > 16)
    for (int64_t b = 0; b < x->dim[0]; b++)
        for (int64_t g = 0; g < y->dim[1]; g++)
            for (int64_t r = 0; r < groups->rate; r++) {
                int64_t row = position_of(groups, first + g, r) - held.first;
                char *to = row_at(y, b, g) + (size_t)r * bytes;
                if (g < made && row >= 0 && row < held.count)
                    memcpy(to, row_at(x, b, row), bytes);
                else
                    memset(to, 0, bytes);
            }
}

/* A row's gradient is the sum of what it is in the groups that have it; in order. */
static void row_groups_grad(const ls_run *run, const ls_node *node) {
    const ls_groups_attributes *about = node->attributes;
    const ls_groups *groups = &about->groups;
    const ls_tensor *dy = node->in[0], *dx = node->out[0];
    const ls_extent held = ls_cache_extent(run, dx), made = ls_cache_extent(run, node->in[1]);
    const int64_t D = dx->dim[2], c = groups->rate;
    const int64_t due = ls_groups_due(*groups, run->start + about->chunk);
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < dx->dim[0]; b++)
        for (int64_t row = 0; row < dx->dim[1]; row++)
            for (int64_t i = 0; i < D; i++) {
                double sum = 0;
                for (int64_t r = 0; r < c && row < held.count; r++) {
                    int64_t end = held.first + row + 1 + groups->dilation * (c - 1 - r);
                    int64_t k = end / c - 1;
                    if (end % c == 0 && k >= made.first && k < due)
                        sum += ls_tensor_at(dy, b * dy->stride[0] +
                                                    (k - made.first) * dy->stride[1] + r * D + i);
                }
                ls_tensor_set(dx, b * dx->stride[0] + row * dx->stride[1] + i, sum);
            }
}

static void rows_append(const ls_run *run, const ls_node *node) {
    const int64_t keep = *(const int64_t *)node->attributes;
    const ls_tensor *x = node->in[0], *cache = node->out[0];
    const ls_extent fresh = ls_cache_extent(run, x);
    ls_extent held = ls_cache_extent(run, cache);
    if (fresh.count == 0) return;
    const int64_t drop = ls_max(0, ls_min(fresh.first - keep - held.first, held.count));
    const int64_t kept = held.count - drop;
    const size_t bytes = row_bytes(cache);
    for (int64_t b = 0; b < x->dim[0]; b++) {
        if (drop > 0) memmove(row_at(cache, b, 0), row_at(cache, b, drop), (size_t)kept * bytes);
        for (int64_t g = 0; g < fresh.count; g++)
            memcpy(row_at(cache, b, kept + g), row_at(x, b, g), bytes);
    }
    ls_extent_set(run, cache, fresh.first - kept, kept + fresh.count);
}

static void rows_append_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *gradient = node->in[0], *dx = node->out[0];
    const ls_extent held = ls_cache_extent(run, gradient),
                    fresh = ls_cache_extent(run, node->in[1]);
    const size_t bytes = row_bytes(dx);
    for (int64_t b = 0; b < dx->dim[0]; b++)
        for (int64_t g = 0; g < dx->dim[1]; g++)
            if (g < fresh.count)
                memcpy(row_at(dx, b, g), row_at(gradient, b, fresh.first + g - held.first), bytes);
            else
                memset(row_at(dx, b, g), 0, bytes);
}

/* Which of the rows side by side has the largest element i: the first of equals. */
static int64_t largest(const ls_tensor *x, int64_t at, int64_t rate, int64_t width) {
    int64_t best = 0;
    for (int64_t r = 1; r < rate; r++)
        if (ls_tensor_at(x, at + r * width) > ls_tensor_at(x, at + best * width)) best = r;
    return best;
}

static void blend(const ls_run *run, const ls_node *node) {
    const ls_blend_attributes *about = node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    int64_t rows, width, from, to, unused;
    ls_rows(x, &rows, &unused, &from);
    ls_rows(y, &rows, &width, &to);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i++) {
            int64_t at = row * from + i;
            double value = 0;
            if (about->kind == LS_BLEND_MAX) {
                value = ls_tensor_at(x, at + largest(x, at, about->rate, width) * width);
            } else {
                for (int64_t r = 0; r < about->rate; r++) value += ls_tensor_at(x, at + r * width);
                value /= (double)about->rate;
            }
            ls_tensor_set(y, row * to + i, value);
        }
}

static void blend_grad(const ls_run *run, const ls_node *node) {
    const ls_blend_attributes *about = node->attributes;
    const ls_tensor *dy = node->in[0], *x = node->in[1], *dx = node->out[0];
    int64_t rows, width, wide, from, in, to;
    ls_rows(x, &rows, &wide, &in);
    ls_rows(dx, &rows, &wide, &to);
    ls_rows(dy, &rows, &width, &from);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i++) {
            bool most = about->kind == LS_BLEND_MAX;
            int64_t best = most ? largest(x, row * in + i, about->rate, width) : 0;
            double value = ls_tensor_at(dy, row * from + i);
            for (int64_t r = 0; r < about->rate; r++)
                ls_tensor_set(dx, row * to + r * width + i,
                              most ? (r == best ? value : 0) : value / (double)about->rate);
        }
}

/* Copies the `wanted` of `count` rows of x with the largest use, in their order; of equals the
 * first. A row is taken if fewer than `wanted` come before it; what is not a number comes before
 * nothing, and too many of them are cut off. */
static void copy_most_used(const ls_tensor *x, const ls_tensor *y, int64_t b, int64_t first_row,
                           int64_t count, int64_t wanted, const ls_tensor *use) {
    const int64_t at = b * use->stride[0];
    for (int64_t i = 0, taken = 0; i < count && taken < wanted; i++) {
        const double own = ls_tensor_at(use, at + i);
        int64_t ahead = 0;
        for (int64_t j = 0; j < count && ahead < wanted; j++) {
            const double other = ls_tensor_at(use, at + j);
            ahead += other > own || (other == own && j < i);
        }
        if (ahead < wanted)
            memcpy(row_at(y, b, taken++), row_at(x, b, first_row + i), row_bytes(x));
    }
}

static void most_used(const ls_run *run, const ls_node *node) {
    const ls_groups_attributes *about = node->attributes;
    const ls_groups *groups = &about->groups;
    const ls_tensor *x = node->in[0], *received = node->in[1], *before = node->in[2];
    const ls_tensor *y = node->out[0], *after = node->out[1];
    const ls_extent rows = ls_cache_extent(run, x), keys = ls_cache_extent(run, received);
    const int64_t first = ls_groups_due(*groups, run->start);
    const int64_t made = ls_groups_due(*groups, run->start + about->chunk) - first;
    /* rows [low, high) leave when this segment ends */
    const int64_t end = run->start / groups->segment * groups->segment + groups->segment;
    const int64_t low = first * groups->rate, high = ls_groups_due(*groups, end) * groups->rate;
    ls_extent_set(run, y, first, made);
    memset(ls_data(y), 0, (size_t)ls_count(y) * ls_dtype_size(y->type));
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < x->dim[0]; b++) {
        for (int64_t i = 0; i < after->dim[1]; i++) {
            int64_t row = low + i - keys.first;
            double use = ls_tensor_at(before, b * before->stride[0] + i);
            for (int64_t h = 0;
                 low + i < high && row >= 0 && row < keys.count && h < received->dim[2]; h++)
                use += ls_tensor_at(received, b * received->stride[0] + row * received->stride[1] +
                                                  h * received->stride[2]);
            ls_tensor_set(after, b * after->stride[0] + i, use);
        }
        if (run->start + about->chunk < end) continue;
        if (made > 0) copy_most_used(x, y, b, low - rows.first, high - low, made, after);
        for (int64_t i = 0; i < after->dim[1]; i++)
            ls_tensor_set(after, b * after->stride[0] + i, 0);
    }
}

const ls_kernel LS_CPU_TABLE(row_groups)[] = {
    {"most_used", {most_used, most_used, most_used}, NULL},
    {"row_groups", {row_groups, row_groups, row_groups}, NULL},
    {"row_groups_grad", {row_groups_grad, row_groups_grad, row_groups_grad}, NULL},
    {"rows_append", {rows_append, rows_append, rows_append}, NULL},
    {"rows_append_grad", {rows_append_grad, rows_append_grad, rows_append_grad}, NULL},
    {"blend", {blend, blend, blend}, NULL},
    {"blend_grad", {blend_grad, blend_grad, blend_grad}, NULL},
    {0},
};
