/* Gains and shifts that make several rows of one, and their gradients. */
#include "tensor/cuda/column_products.cuh"
#include "tensor/cuda/column_sums.cuh"
#include "tensor/cuda/map.cuh"

/* [rows, parts, width] at these strides. */
static ls_cuda_axes parts_at(int64_t rows, int64_t parts, int64_t width, int64_t row,
                             int64_t part) {
    ls_cuda_axes axes = {3, {rows, parts, width}, {row, part, 1}};
    return axes;
}

struct scale_map {
    template <int LANES>
    __device__ __forceinline__ void operator()(uint64_t, const float (&in)[3][LANES],
                                               float (&out)[1][LANES]) const {
#pragma unroll
        for (int i = 0; i < LANES; i++) out[0][i] = in[0][i] * in[1][i] + in[2][i];
    }
};

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    int64_t rows;
    const ls_cuda_strided x = ls_cuda_strided_of(node->in[0], &rows),
                          y = ls_cuda_strided_of(node->out[0], &rows);
    const int64_t W = x.width, parts = y.width / W;
    ls_cuda_axes axes[] = {parts_at(rows, parts, W, y.stride, W),
                           parts_at(rows, parts, W, x.stride, 0), parts_at(rows, parts, W, 0, W),
                           parts_at(rows, parts, W, 0, W)};
    ls_cuda_layout layout;
    if (!ls_cuda_lay_out(run, 4, axes, &layout)) return;
    ls_cuda_map_operands<T, T, float> at = {
        {(T *)y.data},
        (const T *)x.data,
        {(const float *)ls_data(node->in[1]), (const float *)ls_data(node->in[2])}};
    ls_cuda_map<1, 3>(run, &layout, at, scale_map(), "scale_shift");
}

/* An element of dx is the sum over the parts. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    input_grad(int64_t rows, ls_cuda_strided dy, const float *gain, ls_cuda_strided dx) {
    int64_t index = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    int64_t row = index / dx.width, i = index % dx.width;
    if (row >= rows) return;
    const T *from = (const T *)dy.data + row * dy.stride;
    float sum = 0;
    for (int64_t at = i; at < dy.width; at += dx.width) sum += ls_cuda_wide(from[at]) * gain[at];
    ((T *)dx.data)[row * dx.stride + i] = ls_cuda_narrow<T>(sum);
}

static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    int64_t width = ls_count(node->in[1]), rows = ls_count(node->in[3]) / width;
    size_t products = ls_cuda_column_products_bytes(rows, width);
    size_t sums = ls_cuda_column_sums_bytes(rows, width);
    return products > sums ? products : sums;
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    int64_t rows;
    const ls_cuda_strided x = ls_cuda_strided_of(node->in[0], &rows),
                          dy = ls_cuda_strided_of(node->in[3], &rows);
    ls_cuda *cuda = ls_cuda_of(run);
    const ls_dtype type = node->in[3]->type;
    float *room = (float *)run->workspace;
    ls_cuda_column_products(cuda, type, rows, dy, x, (float *)ls_param_gradient(run, node->in[1]),
                            room);
    ls_cuda_column_sums(cuda, dy.data, type, rows, dy.width, dy.stride,
                        (float *)ls_param_gradient(run, node->in[2]), room);
    if (node->out[0] == NULL) return;
    const ls_cuda_strided dx = ls_cuda_strided_of(node->out[0], &rows);
    input_grad<T>
        <<<ls_cuda_blocks(rows * dx.width, LS_CUDA_THREADS), LS_CUDA_THREADS, 0, cuda->stream>>>(
            rows, dy, (const float *)ls_data(node->in[1]), dx);
    ls_cuda_launched(run, "scale_shift_grad");
}

LS_CUDA_DECLARE_TABLE(scale_shift);
const ls_kernel LS_CUDA_TABLE(scale_shift)[] = {
    {"scale_shift", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"scale_shift_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
