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
/* From a sequence and a channel on. */
template <typename E> static inline series<E> slab_of(series<E> all, int64_t b, int64_t d) {
    if (all.data != NULL) all.data += b * all.by_sequence + d * all.by_channel;
    all.D -= d;
    return all;
}

/* Where results go; the gradient of `skip` is that of lag 0. */
template <typename E> struct real_target {
    series<E> to;
    float *dskip;

    bool asked() const { return to.data != NULL || dskip != NULL; }
    __device__ __forceinline__ void put(int64_t b, int64_t time, int64_t d, float value) const {
        if (to.data != NULL && to.has(time, d)) *to.at(b, time, d) = ls_cuda_narrow<E>(value);
        if (dskip != NULL && time == 0 && d < to.D) dskip[d] += value;
    }
};
template <typename E>
static inline real_target<E> slab_of(real_target<E> all, int64_t b, int64_t d) {
    return {slab_of(all.to, b, d), all.dskip == NULL ? NULL : all.dskip + d};
}

#endif
