/* A product along time, of every sequence. Where all heads share a weight, a sequence is one
 * product of the library; heads with weights of their own are products of heads. */
#include "tensor/cuda/lib/head_product.h"
#include "tensor/cuda/lib/product.h"

static bool has_own(const ls_tensor *weight) {
    return weight->rank == 3;
}

static char *sequence_of(const ls_tensor *x, int64_t b) {
    return (char *)ls_data(x) + b * x->stride[0] * (int64_t)ls_dtype_size(x->type);
}

/* The rows of one sequence. */
static ls_cuda_matrix rows_of(const ls_tensor *x, int64_t b, bool turned) {
    return {sequence_of(x, b), x->type, x->stride[1], turned};
}

/* from [B,k,H,W] to [B,m,H,W]; forward the weight's rows are summed over, backward its columns. */
template <bool FORWARD> static void multiply_shared(const ls_run *run, const ls_node *node) {
    const ls_tensor *from = node->in[0], *weight = node->in[1], *to = node->out[0];
    for (int64_t b = 0; b < from->dim[0]; b++) {
        ls_cuda_product g = {0};
        g.m = to->dim[1], g.n = from->dim[2] * from->dim[3], g.k = from->dim[1];
        g.a = {ls_data(weight), weight->type, weight->dim[1], FORWARD};
        g.b = rows_of(from, b, false);
        g.c = sequence_of(to, b);
        g.c_type = to->type;
        g.c_stride = to->stride[1];
        ls_cuda_product_run(run, &g, NULL);
    }
}

/* A weight [H,N,M], the same for all sequences. */
template <typename T> static ls_cuda_head_matrix<T> heads_of(const ls_tensor *weight, T *data) {
    return {data, 0, weight->dim[1] * weight->dim[2], weight->dim[2]};
}

template <bool FORWARD, typename T>
static void multiply_own(const ls_run *run, const ls_node *node) {
    const ls_tensor *from = node->in[0], *weight = node->in[1], *to = node->out[0];
    ls_cuda_head_product<const T, const T, T> g = {};
    g.batch = from->dim[0], g.heads = from->dim[2];
    g.m = to->dim[1], g.n = from->dim[3], g.k = from->dim[1];
    g.a = heads_of(weight, (const T *)ls_data(weight));
    g.b = ls_cuda_head_rows<const T>(from);
    g.c = ls_cuda_head_rows<T>(to);
    ls_cuda_head_product_run<FORWARD, false>(run, g, 1, "time_linear");
}

template <bool FORWARD, typename T> static void multiply(const ls_run *run, const ls_node *node) {
    if (has_own(node->in[1]))
        multiply_own<FORWARD, T>(run, node);
    else
        multiply_shared<FORWARD>(run, node);
}

/* Sequences are added one after the other. */
template <typename T> static void weight_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[0], *x = node->in[1], *weight = node->in[2];
    float *gradient = (float *)ls_param_gradient(run, weight);
    for (int64_t b = 0; !has_own(weight) && b < x->dim[0]; b++) {
        ls_cuda_product g = {0};
        g.m = x->dim[1], g.n = dy->dim[1], g.k = x->dim[2] * x->dim[3];
        g.a = rows_of(x, b, false);
        g.b = rows_of(dy, b, true);
        g.c = gradient;
        g.c_type = LS_F32;
        g.c_stride = g.n;
        g.add = true;
        ls_cuda_product_run(run, &g, NULL);
    }
    for (int64_t b = 0; has_own(weight) && b < x->dim[0]; b++) {
        ls_cuda_head_product<const T, const T, float> g = {};
        g.batch = 1, g.heads = x->dim[2];
        g.m = x->dim[1], g.n = dy->dim[1], g.k = x->dim[3];
        g.a = ls_cuda_head_rows<const T>(x);
        g.b = ls_cuda_head_rows<const T>(dy);
        g.a.data += b * x->stride[0];
        g.b.data += b * dy->stride[0];
        g.c = heads_of(weight, gradient);
        g.add = true;
        ls_cuda_head_product_run<false, true>(run, g, 1, "time_linear_weight_grad");
    }
}

LS_CUDA_DECLARE_TABLE(time_linear);
const ls_kernel LS_CUDA_TABLE(time_linear)[] = {
    {"time_linear", {NULL, multiply<true, float>, multiply<true, ls_cuda_bf16>}, NULL},
    {"time_linear_input_grad", {NULL, multiply<false, float>, multiply<false, ls_cuda_bf16>}, NULL},
    {"time_linear_weight_grad", {NULL, weight_grad<float>, weight_grad<ls_cuda_bf16>}, NULL},
    {},
};
