#include "tensor/cuda/product.cuh"

static ls_cuda_matrix matrix(const ls_tensor *tensor, bool transposed, int64_t *rows,
                             int64_t *width) {
    ls_cuda_matrix m = {ls_data(tensor), tensor->type, 0, transposed};
    ls_rows(tensor, rows, width, &m.stride);
    return m;
}

/* y and dx: where a product's result goes. */
static void into(ls_cuda_product *g, const ls_tensor *out) {
    int64_t rows, width;
    g->c = ls_data(out);
    g->c_type = out->type;
    ls_rows(out, &rows, &width, &g->c_stride);
}

static void forward(const ls_run *run, const ls_node *node) {
    ls_cuda_product g = {0};
    int64_t width;
    g.a = matrix(node->in[0], false, &g.m, &g.k);
    g.b = matrix(node->in[1], true, &g.n, &width);
    into(&g, node->out[0]);
    if (node->in[2] != NULL) g.bias = (const float *)ls_data(node->in[2]);
    ls_cuda_product_run(run, &g, run->workspace);
}

static size_t forward_workspace(const ls_node *node, int threads) {
    return node->in[2] == NULL ? 0 : ls_cuda_product_bias_bytes(node->in[1]->dim[0]);
}

static void input_grad(const ls_run *run, const ls_node *node) {
    ls_cuda_product g = {0};
    int64_t rows;
    g.a = matrix(node->in[0], false, &g.m, &g.k);
    g.b = matrix(node->in[1], false, &rows, &g.n);
    into(&g, node->out[0]);
    ls_cuda_product_run(run, &g, NULL);
}

static void weight_grad(const ls_run *run, const ls_node *node) {
    ls_cuda_product g = {0};
    int64_t rows;
    g.a = matrix(node->in[0], true, &g.k, &g.m);
    g.b = matrix(node->in[1], false, &rows, &g.n);
    g.c = ls_param_gradient(run, node->in[2]);
    g.c_type = LS_F32;
    g.c_stride = g.n;
    g.add = true;
    if (node->in[3] != NULL) g.sums = (float *)ls_param_gradient(run, node->in[3]);
    ls_cuda_product_run(run, &g, run->workspace);
}

static size_t weight_grad_workspace(const ls_node *node, int threads) {
    int64_t rows, width, stride;
    ls_rows(node->in[0], &rows, &width, &stride);
    return node->in[3] == NULL ? 0 : ls_cuda_product_sums_bytes(width, rows);
}

LS_CUDA_DECLARE_TABLE(linear);
const ls_kernel LS_CUDA_TABLE(linear)[] = {
    {"linear", {NULL, forward, forward}, forward_workspace},
    {"linear_input_grad", {NULL, input_grad, input_grad}, NULL},
    {"linear_weight_grad", {NULL, weight_grad, weight_grad}, weight_grad_workspace},
    {0},
};
