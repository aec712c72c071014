#include "tensor/cpu/gemm.h"
#include "tensor/cpu/vector.h"
#include "tensor/op/linear/linear.h"

#include <string.h>

static ls_matrix matrix(const ls_tensor *tensor, bool transposed, int64_t *rows, int64_t *width) {
    ls_matrix m = {.data = ls_data(tensor), .type = tensor->type, .transposed = transposed};
    ls_rows(tensor, rows, width, &m.stride);
    return m;
}

static ls_gemm forward_product(const ls_node *node) {
    ls_gemm g = {.c = ls_data(node->out[0]), .c_type = node->out[0]->type};
    int64_t unused, other;
    g.a = matrix(node->in[0], false, &g.m, &g.k);
    g.b = matrix(node->in[1], true, &g.n, &unused);
    ls_rows(node->out[0], &other, &unused, &g.c_stride);
    g.bias = node->in[2] == NULL ? NULL : ls_data(node->in[2]);
    return g;
}

static ls_gemm input_grad_product(const ls_node *node) {
    ls_gemm g = {.c = ls_data(node->out[0]), .c_type = node->out[0]->type};
    int64_t unused, other;
    g.a = matrix(node->in[0], false, &g.m, &g.k);
    g.b = matrix(node->in[1], false, &other, &g.n);
    ls_rows(node->out[0], &other, &unused, &g.c_stride);
    return g;
}

static ls_gemm weight_grad_product(const ls_node *node) {
    ls_gemm g = {.add = true};
    int64_t rows;
    g.a = matrix(node->in[0], true, &g.k, &g.m);
    g.b = matrix(node->in[1], false, &rows, &g.n);
    g.c_type = node->in[0]->type == LS_F64 ? LS_F64 : LS_F32;
    g.c_stride = g.n;
    return g;
}

/* The rows of a cache that hold something, a sequence of the batch at a time; of any other tensor
 * all rows at once. */
typedef struct held_rows {
    int64_t pieces, step, count; /* piece i: rows [i * step, i * step + count) */
} held_rows;

static held_rows rows_held(const ls_run *run, const ls_tensor *x, int64_t rows) {
    if (x->port < 0 || x->rank < 3) return (held_rows){1, rows, rows};
    int64_t inner = rows / (x->dim[0] * x->dim[1]);
    return (held_rows){x->dim[0], x->dim[1] * inner, ls_cache_extent(run, x).count * inner};
}

static void *row_at(const void *data, ls_dtype type, int64_t row, int64_t stride) {
    return (char *)(uintptr_t)data + (size_t)(row * stride) * ls_dtype_size(type);
}

/* c = a b of the held rows. The others of c become 0: attention loads whole tiles, and gradients go
 * on through operations that take all rows. */
static void run_held(const ls_run *run, const ls_gemm *whole, held_rows held) {
    size_t size = ls_dtype_size(whole->c_type);
    for (int64_t i = 0; i < held.pieces; i++) {
        ls_gemm g = *whole;
        g.m = held.count;
        g.a.data = row_at(whole->a.data, whole->a.type, i * held.step, whole->a.stride);
        g.c = row_at(whole->c, whole->c_type, i * held.step, whole->c_stride);
        if (g.m > 0) ls_gemm_run(&g, run->threads, run->workspace);
        for (int64_t row = held.count; row < held.step; row++)
            memset(row_at(g.c, g.c_type, row, g.c_stride), 0, (size_t)g.n * size);
    }
}

_Static_assert((int)LS_TOGETHER_MOST <= (int)LS_GEMM_FEW_MOST, "a group's rows are few");
_Static_assert((int)LS_TOGETHER_MANY >= (int)LS_GEMM_FEW, "a sequence's rows are many alone too");

static void forward(const ls_run *run, const ls_node *node) {
    ls_gemm g = forward_product(node);
    g.few = run->rows_alone;
    run_held(run, &g, rows_held(run, node->in[0], g.m));
}

static void input_grad(const ls_run *run, const ls_node *node) {
    ls_gemm g = input_grad_product(node);
    run_held(run, &g, rows_held(run, node->out[0], g.m));
}

typedef struct column_sums {
    const char *data;
    ls_dtype type;
    int64_t stride; /* in bytes */
    held_rows held;
} column_sums;

static const void *held_row(const column_sums *c, int64_t i, int64_t column) {
    const int64_t row = i / c->held.count * c->held.step + i % c->held.count;
    return c->data + row * c->stride + column * (int64_t)ls_dtype_size(c->type);
}

/* sums[i] += the column `first` + i of all held rows, in order; a few rows at a time, since sums
 * are loaded and stored for each. */
LS_INLINE void add_columns(const column_sums *c, int64_t rows, int64_t first, int64_t count,
                           float *sums, ls_dtype type) {
    enum { TOGETHER = 4 };
    for (int64_t row = 0; row < rows; row += TOGETHER) {
        const int here = rows - row < TOGETHER ? (int)(rows - row) : TOGETHER;
        const void *x[TOGETHER];
        for (int r = 0; r < TOGETHER; r++) x[r] = held_row(c, row + (r < here ? r : 0), first);
        int64_t i = 0;
        for (; here == TOGETHER && i + LS_LANES <= count; i += LS_LANES) {
            ls_vec sum = ls_load(sums, LS_F32, i);
            for (int r = 0; r < TOGETHER; r++) sum += ls_load(x[r], type, i);
            ls_store(sums, LS_F32, i, sum);
        }
        for (; i < count; i++)
            for (int r = 0; r < here; r++) sums[i] += ls_load_one(x[r], type, i);
    }
}

/* db += column sums of dy: a piece of columns is summed over all rows in order. */
static void bias_grad(const ls_run *run, const ls_tensor *dy, held_rows held, void *gradient) {
    enum { PIECE = 512 };
    int64_t rows, width, stride;
    ls_rows(dy, &rows, &width, &stride);
    rows = held.pieces * held.count;
    const column_sums c = {ls_data(dy), dy->type, stride * (int64_t)ls_dtype_size(dy->type), held};
    int64_t piece = (width + run->threads - 1) / run->threads; /* long: memory is read in order */
    piece = (piece + LS_LANES - 1) / LS_LANES * LS_LANES;
    if (piece > PIECE) piece = PIECE;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t first = 0; first < width; first += piece) {
        const int64_t count = width - first < piece ? width - first : piece;
        if (dy->type == LS_F64) {
            double wide[PIECE] = {0};
            for (int64_t row = 0; row < rows; row++)
                for (int64_t i = 0; i < count; i++)
                    wide[i] += ((const double *)held_row(&c, row, first))[i];
            for (int64_t i = 0; i < count; i++) ((double *)gradient)[first + i] += wide[i];
            continue;
        }
        float sums[PIECE] = {0};
        if (dy->type == LS_F32)
            add_columns(&c, rows, first, count, sums, LS_F32);
        else
            add_columns(&c, rows, first, count, sums, LS_BF16);
        for (int64_t i = 0; i < count; i++) ((float *)gradient)[first + i] += sums[i];
    }
}

static void weight_grad(const ls_run *run, const ls_node *node) {
    ls_gemm g = weight_grad_product(node);
    g.c = ls_param_gradient(run, node->in[2]);
    const held_rows held = rows_held(run, node->in[1], g.k);
    const ls_matrix a = g.a, b = g.b;
    g.k = held.count;
    for (int64_t i = 0; i < held.pieces && g.k > 0; i++) {
        g.a.data = row_at(a.data, a.type, i * held.step, a.stride);
        g.b.data = row_at(b.data, b.type, i * held.step, b.stride);
        ls_gemm_run(&g, run->threads, run->workspace);
    }
    if (node->in[3] != NULL) bias_grad(run, node->in[0], held, ls_param_gradient(run, node->in[3]));
}

/* How many rows of x a run will hold is not known before, and fewer may take more: *rows, a size of
 * g, is tried with all numbers. */
static size_t workspace(ls_gemm *g, const ls_tensor *x, int64_t *rows, int threads) {
    size_t most = 0;
    int64_t whole = x->port < 0 || x->rank < 3 ? *rows : *rows / x->dim[0];
    int64_t inner = x->port < 0 || x->rank < 3 ? whole : whole / x->dim[1];
    for (*rows = inner; *rows <= whole; *rows += inner) {
        size_t bytes = ls_gemm_workspace(g, threads);
        if (bytes > most) most = bytes;
    }
    return most;
}
static size_t forward_workspace(const ls_node *node, int threads) {
    ls_gemm g = forward_product(node);
    return workspace(&g, node->in[0], &g.m, threads);
}
static size_t input_grad_workspace(const ls_node *node, int threads) {
    ls_gemm g = input_grad_product(node);
    return workspace(&g, node->out[0], &g.m, threads);
}
static size_t weight_grad_workspace(const ls_node *node, int threads) {
    ls_gemm g = weight_grad_product(node);
    return workspace(&g, node->in[1], &g.k, threads);
}

const ls_kernel LS_CPU_TABLE(linear)[] = {
    {"linear", {forward, forward, forward}, forward_workspace},
    {"linear_input_grad", {input_grad, input_grad, input_grad}, input_grad_workspace},
    {"linear_weight_grad", {weight_grad, weight_grad, weight_grad}, weight_grad_workspace},
    {0},
};
