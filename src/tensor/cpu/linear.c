#include "tensor/cpu/lib/gemm.h"
#include "tensor/cpu/lib/vector.h"
#include "tensor/ops.h"

static ls_matrix matrix(const ls_tensor *tensor, bool turned, int64_t *rows, int64_t *width) {
    ls_matrix m = {.data = ls_data(tensor), .type = tensor->type, .turned = turned};
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

static void forward(const ls_run *run, const ls_node *node) {
    ls_gemm g = forward_product(node);
    ls_gemm_run(&g, run->threads, run->workspace);
}

static void input_grad(const ls_run *run, const ls_node *node) {
    ls_gemm g = input_grad_product(node);
    ls_gemm_run(&g, run->threads, run->workspace);
}

/* db += column sums of dy: a piece of columns is summed over all rows in order. */
static void bias_grad(const ls_run *run, const ls_tensor *dy, void *gradient) {
    enum { PIECE = 64 };
    int64_t rows, width, stride;
    ls_rows(dy, &rows, &width, &stride);
    const void *data = ls_data(dy);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t first = 0; first < width; first += PIECE) {
        int64_t count = width - first < PIECE ? width - first : PIECE;
        double wide[PIECE] = {0};
        float sums[PIECE] = {0};
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = row * stride + first;
            if (dy->type == LS_F64)
                for (int64_t i = 0; i < count; i++) wide[i] += ((const double *)data)[at + i];
            else if (dy->type == LS_F32)
                for (int64_t i = 0; i < count; i++) sums[i] += ((const float *)data)[at + i];
            else
                for (int64_t i = 0; i < count; i++)
                    sums[i] += ls_bf16_to_f32(((const ls_bf16 *)data)[at + i]);
        }
        for (int64_t i = 0; i < count; i++) {
            if (dy->type == LS_F64)
                ((double *)gradient)[first + i] += wide[i];
            else
                ((float *)gradient)[first + i] += sums[i];
        }
    }
}

static void weight_grad(const ls_run *run, const ls_node *node) {
    ls_gemm g = weight_grad_product(node);
    g.c = ls_param_gradient(run, node->in[2]);
    ls_gemm_run(&g, run->threads, run->workspace);
    if (node->in[3] != NULL) bias_grad(run, node->in[0], ls_param_gradient(run, node->in[3]));
}

static size_t forward_workspace(const ls_node *node, int threads) {
    ls_gemm g = forward_product(node);
    return ls_gemm_workspace(&g, threads);
}
static size_t input_grad_workspace(const ls_node *node, int threads) {
    ls_gemm g = input_grad_product(node);
    return ls_gemm_workspace(&g, threads);
}
static size_t weight_grad_workspace(const ls_node *node, int threads) {
    ls_gemm g = weight_grad_product(node);
    return ls_gemm_workspace(&g, threads);
}

const ls_kernel LS_CPU_TABLE(linear)[] = {
    {"linear", {forward, forward, forward}, forward_workspace},
    {"linear_input_grad", {input_grad, input_grad, input_grad}, input_grad_workspace},
    {"linear_weight_grad", {weight_grad, weight_grad, weight_grad}, weight_grad_workspace},
    {0},
};
