/* Sums and maxima over the threads of a warp or of a block. All of its threads ask, each gets the
 * same bits, and the order is fixed. */
#ifndef LS_TENSOR_CUDA_REDUCE_H
#define LS_TENSOR_CUDA_REDUCE_H

#include "tensor/cuda/cuda.cuh"

/* join(a, b) must be join(b, a). */
template <typename V, typename Join>
static __device__ __forceinline__ V ls_cuda_warp_join(V value, Join join) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        value = join(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
}

/* Of a block of THREADS threads in one line. */
template <int THREADS, typename V, typename Join>
static __device__ __forceinline__ V ls_cuda_block_join(V value, Join join) {
    static_assert(THREADS % 32 == 0, "whole warps");
    __shared__ V of_warp[THREADS / 32];
    value = ls_cuda_warp_join(value, join);
    __syncthreads(); /* what was there before has been read */
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
#pragma unroll
    for (int warp = 1; warp < THREADS / 32; warp++) value = join(value, of_warp[warp]);
    return value;
}

template <typename V> static __device__ __forceinline__ V ls_cuda_warp_sum(V value) {
    return ls_cuda_warp_join(value, [](V a, V b) { return a + b; });
}
template <typename V> static __device__ __forceinline__ V ls_cuda_warp_max(V value) {
    return ls_cuda_warp_join(value, [](V a, V b) { return fmax(a, b); });
}
template <int THREADS, typename V> static __device__ __forceinline__ V ls_cuda_block_sum(V value) {
    return ls_cuda_block_join<THREADS>(value, [](V a, V b) { return a + b; });
}
template <int THREADS, typename V> static __device__ __forceinline__ V ls_cuda_block_max(V value) {
    return ls_cuda_block_join<THREADS>(value, [](V a, V b) { return fmax(a, b); });
}

#endif
