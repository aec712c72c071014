#include "tensor/cpu/gemm.h"
#include "tensor/op/time_linear/time_linear.h"

/* Columns that share a weight: all heads' where there is one for all, else those of a head. */
typedef struct columns {
    int64_t groups, width;
} columns;

static columns columns_of(const ls_tensor *x, const ls_tensor *weight) {
    bool own = weight->rank == 3;
    return (columns){own ? x->dim[2] : 1, own ? x->dim[3] : x->dim[2] * x->dim[3]};
}

/* Without an address yet (sizes alone are asked for) nothing is added to it. */
static const void *at(const void *data, ls_dtype type, int64_t elements) {
    return elements == 0 ? data : (const char *)data + elements * (int64_t)ls_dtype_size(type);
}

/* Rows of one sequence, a group's columns of each. */
static ls_matrix rows_of(const ls_tensor *x, int64_t b, int64_t column, bool transposed) {
    return (ls_matrix){.data = at(ls_data(x), x->type, b * x->stride[0] + column),
                       .type = x->type,
                       .stride = x->stride[1],
                       .transposed = transposed};
}

static ls_matrix weight_of(const ls_tensor *weight, int64_t group, bool transposed) {
    const int64_t *dim = weight->dim + weight->rank - 2;
    return (ls_matrix){.data = at(ls_data(weight), weight->type, group * dim[0] * dim[1]),
                       .type = weight->type,
                       .stride = dim[1],
                       .transposed = transposed};
}

static void put_result(ls_gemm *g, const ls_tensor *y, int64_t b, int64_t column) {
    g->c = (void *)(uintptr_t)rows_of(y, b, column, false).data;
    g->c_type = y->type;
    g->c_stride = y->stride[1];
}

static ls_gemm forward_product(const ls_node *node, int64_t b, int64_t group) {
    const ls_tensor *x = node->in[0], *weight = node->in[1], *y = node->out[0];
    const columns c = columns_of(x, weight);
    ls_gemm g = {.m = y->dim[1],
                 .n = c.width,
                 .k = x->dim[1],
                 .a = weight_of(weight, group, true),
                 .b = rows_of(x, b, group * c.width, false)};
    put_result(&g, y, b, group * c.width);
    return g;
}

static ls_gemm input_grad_product(const ls_node *node, int64_t b, int64_t group) {
    const ls_tensor *dy = node->in[0], *weight = node->in[1], *dx = node->out[0];
    const columns c = columns_of(dy, weight);
    ls_gemm g = {.m = dx->dim[1],
                 .n = c.width,
                 .k = dy->dim[1],
                 .a = weight_of(weight, group, false),
                 .b = rows_of(dy, b, group * c.width, false)};
    put_result(&g, dx, b, group * c.width);
    return g;
}

/* c is the gradient's place, which the caller knows. */
static ls_gemm weight_grad_product(const ls_node *node, int64_t b, int64_t group) {
    const ls_tensor *dy = node->in[0], *x = node->in[1], *weight = node->in[2];
    const columns c = columns_of(x, weight);
    return (ls_gemm){.m = x->dim[1],
                     .n = dy->dim[1],
                     .k = c.width,
                     .a = rows_of(x, b, group * c.width, false),
                     .b = rows_of(dy, b, group * c.width, true),
                     .c_type = x->type == LS_F64 ? LS_F64 : LS_F32,
                     .c_stride = dy->dim[1],
                     .add = true};
}

static void forward(const ls_run *run, const ls_node *node) {
    const columns c = columns_of(node->in[0], node->in[1]);
    for (int64_t i = 0; i < node->in[0]->dim[0] * c.groups; i++) {
        ls_gemm g = forward_product(node, i / c.groups, i % c.groups);
        ls_gemm_run(&g, run->threads, run->workspace);
    }
}

static void input_grad(const ls_run *run, const ls_node *node) {
    const columns c = columns_of(node->in[0], node->in[1]);
    for (int64_t i = 0; i < node->in[0]->dim[0] * c.groups; i++) {
        ls_gemm g = input_grad_product(node, i / c.groups, i % c.groups);
        ls_gemm_run(&g, run->threads, run->workspace);
    }
}

/* Sequences are added one after the other. */
static void weight_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *weight = node->in[2];
    const columns c = columns_of(node->in[1], weight);
    const int64_t elements = ls_count(weight) / c.groups;
    for (int64_t i = 0; i < node->in[1]->dim[0] * c.groups; i++) {
        ls_gemm g = weight_grad_product(node, i / c.groups, i % c.groups);
        g.c = (void *)(uintptr_t)at(ls_param_gradient(run, weight), g.c_type,
                                    i % c.groups * elements);
        ls_gemm_run(&g, run->threads, run->workspace);
    }
}

static size_t forward_workspace(const ls_node *node, int threads) {
    ls_gemm g = forward_product(node, 0, 0);
    return ls_gemm_workspace(&g, threads);
}
static size_t input_grad_workspace(const ls_node *node, int threads) {
    ls_gemm g = input_grad_product(node, 0, 0);
    return ls_gemm_workspace(&g, threads);
}
static size_t weight_grad_workspace(const ls_node *node, int threads) {
    ls_gemm g = weight_grad_product(node, 0, 0);
    return ls_gemm_workspace(&g, threads);
}

const ls_kernel LS_CPU_TABLE(time_linear)[] = {
    {"time_linear", {forward, forward, forward}, forward_workspace},
    {"time_linear_input_grad", {input_grad, input_grad, input_grad}, input_grad_workspace},
    {"time_linear_weight_grad", {weight_grad, weight_grad, weight_grad}, weight_grad_workspace},
    {0},
};
