/* A product along time, of every sequence. Where all heads share a weight, a sequence is
 * one product of the library; heads with weights of their own, and what is not aligned,
 * are products of heads. */
#include "tensor/cuda/head_product.cuh"
#include "tensor/cuda/product.cuh"

/* Columns that share a weight: all heads' where there is one for all, else those of a head. */
typedef struct columns {
    int64_t groups, width;
} columns;

static columns columns_of(const ls_tensor *x, const ls_tensor *weight) {
    const bool own = weight->rank == 3;
    return {own ? x->dim[2] : 1, own ? x->dim[3] : x->dim[2] * x->dim[3]};
}

/* Rows of every sequence, with a group's columns as a head's. */
template <typename T> static ls_cuda_head_matrix<T> groups_of(const ls_tensor *x, columns c) {
    return {(T *)ls_data(x), x->stride[0], c.width, x->stride[1]};
}

/* A weight [N,M] or [H,N,M], or its gradient: the same for all sequences. */
template <typename T> static ls_cuda_head_matrix<T> weight_of(const ls_tensor *weight, T *data) {
    const int64_t *dim = weight->dim + weight->rank - 2;
    return {data, 0, dim[0] * dim[1], dim[1]};
}

/* Matrix b as the library takes it. */
template <typename T>
static ls_cuda_matrix matrix_of(const ls_cuda_head_matrix<T> &x, int64_t b, bool transposed) {
    return {x.at(b, 0), sizeof(T) == 2 ? LS_BF16 : LS_F32, x.stride, transposed};
}

/* from [B,k,H,W] to [B,m,H,W]; forward the weight's rows are summed over, backward its columns. */
template <bool FORWARD, typename T> static void multiply(const ls_run *run, const ls_node *node) {
    const ls_tensor *from = node->in[0], *weight = node->in[1], *to = node->out[0];
    const columns c = columns_of(from, weight);
    ls_cuda_head_product<const T, const T, T> g = {};
    g.batch = from->dim[0], g.heads = c.groups;
    g.m = to->dim[1], g.n = c.width, g.k = from->dim[1];
    g.a = weight_of(weight, (const T *)ls_data(weight));
    g.b = groups_of<const T>(from, c);
    g.c = groups_of<T>(to, c);
    const bool aligned = g.a.in_lanes(0) && g.b.in_lanes(0) && g.c.in_lanes(0);
    if (c.groups > 1 || !aligned)
        return ls_cuda_head_product_run<FORWARD, false>(run, g, 1, "time_linear");
    for (int64_t b = 0; b < g.batch; b++) {
        ls_cuda_product one = {0};
        one.m = g.m, one.n = g.n, one.k = g.k;
        one.a = matrix_of(g.a, b, FORWARD);
        one.b = matrix_of(g.b, b, false);
        one.c = g.c.at(b, 0);
        one.c_type = to->type;
        one.c_stride = g.c.stride;
        ls_cuda_product_run(run, &one, NULL);
    }
}

/* Sequences are added one after the other. */
template <typename T> static void weight_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[0], *x = node->in[1], *weight = node->in[2];
    const columns c = columns_of(x, weight);
    const ls_cuda_head_matrix<const T> rows = groups_of<const T>(x, c);
    const ls_cuda_head_matrix<const T> downs = groups_of<const T>(dy, c);
    ls_cuda_head_product<const T, const T, float> g = {};
    g.batch = 1, g.heads = c.groups;
    g.m = x->dim[1], g.n = dy->dim[1], g.k = c.width;
    g.c = weight_of(weight, (float *)ls_param_gradient(run, weight));
    g.add = true;
    const bool aligned = rows.in_lanes(0) && downs.in_lanes(0) && g.c.in_lanes(0);
    for (int64_t b = 0; b < x->dim[0]; b++) {
        g.a = rows, g.b = downs;
        g.a.data = rows.at(b, 0), g.b.data = downs.at(b, 0);
        if (c.groups > 1 || !aligned) {
            ls_cuda_head_product_run<false, true>(run, g, 1, "time_linear_weight_grad");
            continue;
        }
        ls_cuda_product one = {0};
        one.m = g.m, one.n = g.n, one.k = g.k;
        one.a = matrix_of(rows, b, false);
        one.b = matrix_of(downs, b, true);
        one.c = g.c.data;
        one.c_type = LS_F32;
        one.c_stride = g.c.stride;
        one.add = true;
        ls_cuda_product_run(run, &one, NULL);
    }
}

LS_CUDA_DECLARE_TABLE(time_linear);
const ls_kernel LS_CUDA_TABLE(time_linear)[] = {
    {"time_linear", {NULL, multiply<true, float>, multiply<true, ls_cuda_bf16>}, NULL},
    {"time_linear_input_grad", {NULL, multiply<false, float>, multiply<false, ls_cuda_bf16>}, NULL},
    {"time_linear_weight_grad", {NULL, weight_grad<float>, weight_grad<ls_cuda_bf16>}, NULL},
    {},
};
