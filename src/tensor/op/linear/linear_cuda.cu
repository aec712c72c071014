#include "tensor/cuda/few_rows.cuh"
#include "tensor/cuda/product.cuh"

extern "C" {
#include "tensor/op/residual_norm/residual_norm.h"
}

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

static ls_cuda_product forward_product(const ls_node *node) {
    ls_cuda_product g = {0};
    int64_t width;
    g.a = matrix(node->in[0], false, &g.m, &g.k);
    g.b = matrix(node->in[1], true, &g.n, &width);
    into(&g, node->out[0]);
    if (node->in[2] != NULL) g.bias = (const float *)ls_data(node->in[2]);
    return g;
}
static void forward(const ls_run *run, const ls_node *node) {
    const ls_cuda_product g = forward_product(node);
    ls_cuda_product_run(run, &g, run->workspace);
}

static size_t forward_workspace(const ls_node *node, int threads) {
    return node->in[2] == NULL ? 0 : ls_cuda_product_bias_bytes(node->in[1]->dim[0]);
}

static ls_cuda_product input_grad_product(const ls_node *node) {
    ls_cuda_product g = {0};
    int64_t rows;
    g.a = matrix(node->in[0], false, &g.m, &g.k);
    g.b = matrix(node->in[1], false, &rows, &g.n);
    into(&g, node->out[0]);
    return g;
}
static void input_grad(const ls_run *run, const ls_node *node) {
    const ls_cuda_product g = input_grad_product(node);
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

/* ---- with the activation that follows: see engine/join.c ---- */

static bool row_fits(const ls_tensor *tensor, int64_t *stride) {
    int64_t rows, width;
    return ls_rows(tensor, &rows, &width, stride) && *stride % 8 == 0 && width % 8 == 0 &&
           (uintptr_t)ls_data(tensor) % 16 == 0;
}

/* A product and the activation, or its gradient, that takes it: in one step, where cuBLASLt has
 * that and it is faster. */
static void with_activation(const ls_run *run, const ls_node *second, const char *name,
                            ls_cuda_product *g, void *workspace) {
    const ls_activate_attributes *about = (const ls_activate_attributes *)second->attributes;
    const ls_kernel *kernel = ls_cuda_of(run)->device.kernel(&ls_cuda_of(run)->device, name);
    ls_cuda_gelu gelu = {};
    gelu.slopes = second->in_count == 2;
    gelu.c = ls_data(second->out[0]);
    gelu.inner = ls_data(second->in[0]);
    gelu.apart = kernel->by_type[LS_BF16];
    gelu.run = run;
    gelu.node = second;
    const bool joined = about->kind == LS_ACT_GELU_TANH && !about->gated && g->m > 1 &&
                        g->c_stride % 8 == 0 && row_fits(second->out[0], &gelu.c_stride) &&
                        row_fits(second->in[0], &gelu.inner_stride);
    if (joined) g->gelu = &gelu;
    ls_cuda_product_run(run, g, workspace);
    if (!joined) kernel->by_type[LS_BF16](run, second);
}

static void forward_activate(const ls_run *run, const ls_node *node) {
    ls_cuda_product g = forward_product(&node->parts[0]);
    with_activation(run, &node->parts[1], "activate", &g, run->workspace);
}

static void input_grad_activate(const ls_run *run, const ls_node *node) {
    ls_cuda_product g = input_grad_product(&node->parts[0]);
    with_activation(run, &node->parts[1], "activate_grad", &g, NULL);
}

/* ---- in a chain behind a norm, with or without an activation: see engine/join.c ---- */

static ls_cuda_few_norm few_norm(const ls_node *node) {
    const ls_residual_norm_attributes *about =
        (const ls_residual_norm_attributes *)node->attributes;
    ls_cuda_few_norm norm = {};
    int64_t rows, width;
    if (node->in[1] != NULL) {
        norm.delta = ls_data(node->in[1]);
        ls_rows(node->in[1], &rows, &width, &norm.delta_stride);
        norm.total = ls_data(node->out[1]);
    }
    norm.weight = ls_cuda_floats(node->in[2]);
    norm.bias = ls_cuda_floats(node->in[3]);
    norm.y = ls_data(node->out[0]);
    norm.statistics = (float2 *)ls_data(node->out[2]);
    norm.epsilon = (float)about->epsilon;
    norm.centred = about->kind == LS_NORM_LAYER;
    return norm;
}

static void norm_chain(const ls_run *run, const ls_node *node) {
    const ls_node *normed = &node->parts[0], *last = &node->parts[node->part_count - 1];
    const ls_cuda_few_norm norm = few_norm(normed);
    ls_cuda_few_activation act = {};
    ls_cuda_product g = forward_product(&node->parts[1]);
    g.a = matrix(normed->in[0], false, &g.m, &g.k);
    if (node->part_count == 3) {
        const ls_activate_attributes *about = (const ls_activate_attributes *)last->attributes;
        act.there = true;
        act.gated = about->gated;
        act.kind = about->kind;
        into(&g, last->out[0]);
    }
    if (!ls_cuda_few_rows_join(run, &g, &norm, &act)) ls_cuda_chain_apart(run, node);
}

LS_CUDA_DECLARE_TABLE(linear);
const ls_kernel LS_CUDA_TABLE(linear)[] = {
    {"linear", {NULL, forward, forward}, forward_workspace},
    {"linear_input_grad", {NULL, input_grad, input_grad}, NULL},
    {"linear_weight_grad", {NULL, weight_grad, weight_grad}, weight_grad_workspace},
    {"linear+activate", {NULL, NULL, forward_activate}, forward_workspace},
    {"linear_input_grad+activate_grad", {NULL, NULL, input_grad_activate}, NULL},
    {"residual_norm+linear", {NULL, norm_chain, norm_chain}, ls_cuda_chain_workspace},
    {"residual_norm+linear+activate", {NULL, norm_chain, norm_chain}, ls_cuda_chain_workspace},
    {0},
};
