/* Outer products within heads, and their way back to vectors. */
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/head_pairs/head_pairs.h"
}

/* A vector of every head in rows of one stride. */
template <typename T> struct vectors {
    T *data;
    int64_t row, head, element; /* strides */
    __device__ __forceinline__ T &at(int64_t r, int64_t h, int64_t i) const {
        return data[r * row + h * head + i * element];
    }
};

template <typename T>
static vectors<T> vectors_of(const ls_tensor *x, int64_t heads, bool interleaved) {
    int64_t rows, width, stride;
    ls_rows(x, &rows, &width, &stride);
    return {(T *)ls_data(x), stride, interleaved ? 1 : width / heads, interleaved ? heads : 1};
}

/* The matrices s[(b,i,j),t,h]. */
template <typename T> struct matrices {
    T *data;
    int64_t stride, B, T_count, H, W;
    __device__ __forceinline__ T &at(int64_t b, int64_t i, int64_t j, int64_t t, int64_t h) const {
        return data[(((b * W + i) * W + j) * T_count + t) * stride + h];
    }
};

template <typename T>
static matrices<T> matrices_of(const ls_tensor *s, const ls_tensor *vector, int64_t heads) {
    int64_t rows, width, stride;
    ls_rows(s, &rows, &width, &stride);
    return {(T *)ls_data(s), stride, vector->dim[0], vector->dim[1], heads, vector->dim[2] / heads};
}

/* A thread has one element of s. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    outer_kernel(const vectors<T> x, const vectors<T> z, const matrices<T> s) {
    int64_t index = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    int64_t h = index % s.H, left = index / s.H, t = left % s.T_count;
    left /= s.T_count;
    int64_t j = left % s.W, i = left / s.W % s.W, b = left / (s.W * s.W);
    if (b >= s.B) return;
    int64_t row = b * s.T_count + t;
    s.at(b, i, j, t, h) =
        ls_cuda_narrow<T>(ls_cuda_wide(x.at(row, h, i)) * ls_cuda_wide(z.at(row, h, j)));
}

/* A thread has one element of the result. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    contract_kernel(const vectors<T> x, const matrices<T> s, const vectors<T> y, bool over_second) {
    int64_t index = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    int64_t h = index % s.H, left = index / s.H, t = left % s.T_count;
    left /= s.T_count;
    int64_t kept = left % s.W, b = left / s.W;
    if (b >= s.B) return;
    int64_t row = b * s.T_count + t;
    float sum = 0;
    for (int64_t gone = 0; gone < s.W; gone++)
        sum += ls_cuda_wide(x.at(row, h, gone)) *
               ls_cuda_wide(over_second ? s.at(b, kept, gone, t, h) : s.at(b, gone, kept, t, h));
    y.at(row, h, kept) = ls_cuda_narrow<T>(sum);
}

template <typename T> static void outer(const ls_run *run, const ls_node *node) {
    const ls_head_pairs_attributes *about = (const ls_head_pairs_attributes *)node->attributes;
    const matrices<T> s = matrices_of<T>(node->out[0], node->in[0], about->heads);
    outer_kernel<<<ls_cuda_blocks(ls_count(node->out[0]), LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                   ls_cuda_of(run)->stream>>>(
        vectors_of<T>(node->in[0], about->heads, about->interleaved[0]),
        vectors_of<T>(node->in[1], about->heads, about->interleaved[1]), s);
    ls_cuda_launched(run, "head_outer");
}

template <typename T> static void contract(const ls_run *run, const ls_node *node) {
    const ls_head_pairs_attributes *about = (const ls_head_pairs_attributes *)node->attributes;
    const int over = about->over_second;
    const matrices<T> s = matrices_of<T>(node->in[1], node->in[0], about->heads);
    contract_kernel<<<ls_cuda_blocks(ls_count(node->out[0]), LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                      ls_cuda_of(run)->stream>>>(
        vectors_of<T>(node->in[0], about->heads, about->interleaved[over]), s,
        vectors_of<T>(node->out[0], about->heads, about->interleaved[1 - over]), over);
    ls_cuda_launched(run, "head_contract");
}

LS_CUDA_DECLARE_TABLE(head_pairs);
const ls_kernel LS_CUDA_TABLE(head_pairs)[] = {
    {"head_outer", {NULL, outer<float>, outer<ls_cuda_bf16>}, NULL},
    {"head_contract", {NULL, contract<float>, contract<ls_cuda_bf16>}, NULL},
    {},
};
