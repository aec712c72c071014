/* A product along time, of every sequence; heads with weights of their own make a batch. */
#include "tensor/cuda/lib/product.h"

/* Columns that share a weight: all heads' where there is one for all, else those of a head. */
typedef struct columns {
    int64_t groups, width;
} columns;

static columns columns_of(const ls_tensor *x, const ls_tensor *weight) {
    const bool own = weight->rank == 3;
    return {own ? x->dim[2] : 1, own ? x->dim[3] : x->dim[2] * x->dim[3]};
}

static char *sequence_of(const ls_tensor *x, int64_t b) {
    return (char *)ls_data(x) + b * x->stride[0] * (int64_t)ls_dtype_size(x->type);
}

/* The rows of one sequence; the next of the batch is the next group of columns. */
static ls_cuda_matrix rows_of(const ls_tensor *x, int64_t b, columns c, bool turned) {
    return {sequence_of(x, b), x->type, x->stride[1], turned, c.width};
}

static ls_cuda_matrix weight_of(const ls_tensor *weight, bool turned) {
    const int64_t *dim = weight->dim + weight->rank - 2;
    return {ls_data(weight), weight->type, dim[1], turned, dim[0] * dim[1]};
}

/* from [B,k,H,W] to [B,m,H,W]; forward the weight's rows are summed over, backward its columns. */
static void multiply(const ls_run *run, const ls_node *node, bool forward) {
    const ls_tensor *from = node->in[0], *weight = node->in[1], *to = node->out[0];
    const columns c = columns_of(from, weight);
    for (int64_t b = 0; b < from->dim[0]; b++) {
        ls_cuda_product g = {0};
        g.m = to->dim[1], g.n = c.width, g.k = from->dim[1];
        g.a = weight_of(weight, forward);
        g.b = rows_of(from, b, c, false);
        g.c = sequence_of(to, b);
        g.c_type = to->type;
        g.c_stride = to->stride[1];
        g.batch = c.groups;
        g.c_step = c.width;
        ls_cuda_product_run(run, &g, NULL);
    }
}

static void forward(const ls_run *run, const ls_node *node) {
    multiply(run, node, true);
}

static void input_grad(const ls_run *run, const ls_node *node) {
    multiply(run, node, false);
}

/* Sequences are added one after the other. */
static void weight_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[0], *x = node->in[1], *weight = node->in[2];
    const columns c = columns_of(x, weight);
    for (int64_t b = 0; b < x->dim[0]; b++) {
        ls_cuda_product g = {0};
        g.m = x->dim[1], g.n = dy->dim[1], g.k = c.width;
        g.a = rows_of(x, b, c, false);
        g.b = rows_of(dy, b, c, true);
        g.c = ls_param_gradient(run, weight);
        g.c_type = LS_F32;
        g.c_stride = g.n;
        g.add = true;
        g.batch = c.groups;
        g.c_step = ls_count(weight) / c.groups;
        ls_cuda_product_run(run, &g, NULL);
    }
}

LS_CUDA_DECLARE_TABLE(time_linear);
const ls_kernel LS_CUDA_TABLE(time_linear)[] = {
    {"time_linear", {NULL, forward, forward}, NULL},
    {"time_linear_input_grad", {NULL, input_grad, input_grad}, NULL},
    {"time_linear_weight_grad", {NULL, weight_grad, weight_grad}, NULL},
    {},
};
