/* What long convolutions read and write: sequences of real values, planes of complex ones. */
#ifndef LS_TENSOR_CUDA_LONG_CONV_OPERANDS_H
#define LS_TENSOR_CUDA_LONG_CONV_OPERANDS_H

#include "tensor/cuda/rows.cuh"

/* Real values of (sequence, time, channel); zeros before time `first`, after `count` more, and of
 * channels from D on. */
template <typename E> struct series {
    E *data;
    int64_t by_sequence, by_time, by_channel;
    int64_t first, count, D;

    __device__ __forceinline__ bool has(int64_t time, int64_t d) const {
        return time >= first && time - first < count && d < D;
    }
    __device__ __forceinline__ E *at(int64_t b, int64_t time, int64_t d) const {
        return data + b * by_sequence + (time - first) * by_time + d * by_channel;
    }
};

/* Complex ones: [sequence][N][width]. */
struct plane {
    float2 *data;
    int64_t N, width;

    __device__ __forceinline__ float2 *at(int64_t b, int64_t row, int64_t d) const {
        return data + (b * N + row) * width + d;
    }
};

/* Where results go; the gradient of `skip` is that of lag 0. */
template <typename E> struct real_target {
    series<E> to;
    float *dskip;

    __device__ __forceinline__ void put(int64_t b, int64_t time, int64_t d, float value) const {
        if (to.data != NULL && to.has(time, d)) *to.at(b, time, d) = ls_cuda_narrow<E>(value);
        if (dskip != NULL && time == 0 && d < to.D) dskip[d] += value;
    }
};

#endif
