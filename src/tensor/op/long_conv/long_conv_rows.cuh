/* What is left of long sequences between the passes there and back: rows of R complex values that
 * are transformed, multiplied, and transformed back, each where it lies. */
#ifndef LS_TENSOR_CUDA_LONG_CONV_ROWS_H
#define LS_TENSOR_CUDA_LONG_CONV_ROWS_H

#include "tensor/op/long_conv/block_transform.cuh"

/* Rows of sequences, [sequence][rows][R], and of what they share, [rows][R]. Results are products of
 * the sequences with the kernels, in the sequences' place; and with SUMS the sums of the products
 * with the others' conjugates. */
struct row_work {
    float2 *sequences;
    const float2 *kernels; /* NULL: only sums are asked for */
    const float2 *others;
    float2 *sums;
    const float *skip;           /* of channels up to D; NULL: none */
    int64_t rows, by_channel, D; /* by_channel: rows of one channel */
    int count;                   /* sequences */
    float scale;
    bool conjugate;   /* of the kernels; the sums are conjugated where these are not */
    bool first, last; /* of several calls that sum in turn, all sequences of the batch together */
};

template <int R> struct row_sizes {
    enum {
        LINES = transform_sizes<R>::LINES,
        THREADS = LINES > 32 ? LINES : 128,
        ROWS = THREADS / LINES, /* of a block */
        PADDED = R + R / TRANSFORM_VALUES
    };
};
template <int R, bool SUMS> struct row_memory {
    enum { THREADS = row_sizes<R>::THREADS };
    float2 exchange[row_sizes<R>::ROWS * row_sizes<R>::PADDED];
    transform_turns<R> turns;
    /* what a thread writes it alone reads: spectra of the kernels, and of others */
    float2 spectra[SUMS ? 2 : 1][TRANSFORM_VALUES][THREADS];
};

template <int R>
static __device__ __forceinline__ void take_row(const float2 *from, float2 (&v)[TRANSFORM_VALUES]) {
#pragma unroll
    for (int k = 0; k < TRANSFORM_VALUES; k++) v[k] = from[k * transform_sizes<R>::LINES];
}
template <int R>
static __device__ __forceinline__ void put_row(float2 *to, const float2 (&v)[TRANSFORM_VALUES]) {
#pragma unroll
    for (int k = 0; k < TRANSFORM_VALUES; k++) to[k * transform_sizes<R>::LINES] = v[k];
}

template <int R, bool SUMS>
static __global__ void __launch_bounds__(row_sizes<R>::THREADS,
                                         (SUMS ? 512 : 768) / row_sizes<R>::THREADS)
    rows_through(const row_work w) {
    enum { LINES = row_sizes<R>::LINES, VALUES = TRANSFORM_VALUES };
    extern __shared__ float4 memory[];
    row_memory<R, SUMS> &shared = *(row_memory<R, SUMS> *)memory;
    const int in_block = (int)threadIdx.x / LINES, line = (int)threadIdx.x % LINES;
    const int64_t row = (int64_t)blockIdx.x * row_sizes<R>::ROWS + in_block, at = row * R + line;
    float2 v[VALUES], sum[VALUES];
    if (w.kernels != NULL) take_row<R>(w.kernels + at, v);
    shared.turns.template make<false>();
    __syncthreads();
    const transformer<R, 1, false> by = {line, 0, shared.exchange + in_block * row_sizes<R>::PADDED,
                                         shared.turns};
    if (w.kernels != NULL) {
        by.forward(v);
        const int64_t d = row / w.by_channel;
        const float straight = w.skip != NULL && d < w.D ? w.skip[d] : 0;
        const float sign = w.conjugate ? -w.scale : w.scale;
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            shared.spectra[0][i][threadIdx.x] =
                make_float2(w.scale * (v[i].x + straight), sign * v[i].y);
    }
    if constexpr (SUMS) {
#pragma unroll
        for (int i = 0; i < VALUES; i++) sum[i] = make_float2(0, 0);
        if (!w.first) take_row<R>(w.sums + at, sum);
    }
#pragma unroll 1
    for (int b = 0; b < w.count; b++) {
        const int64_t here = (int64_t)b * w.rows * R + at;
        if constexpr (SUMS) {
            take_row<R>(w.others + here, v);
            by.wait();
            by.forward(v);
#pragma unroll
            for (int i = 0; i < VALUES; i++) shared.spectra[1][i][threadIdx.x] = v[i];
        }
        take_row<R>(w.sequences + here, v);
        by.wait();
        by.forward(v);
        if constexpr (SUMS)
#pragma unroll
            for (int i = 0; i < VALUES; i++)
                sum[i] = add_conjugate_times(sum[i], shared.spectra[1][i][threadIdx.x], v[i]);
        if (w.kernels == NULL) continue;
#pragma unroll
        for (int i = 0; i < VALUES; i++) v[i] = times(v[i], shared.spectra[0][i][threadIdx.x]);
        by.back(v);
        put_row<R>(w.sequences + here, v);
    }
    if constexpr (SUMS) {
        if (w.last) {
            const float sign = w.conjugate ? w.scale : -w.scale;
#pragma unroll
            for (int i = 0; i < VALUES; i++)
                sum[i] = make_float2(w.scale * sum[i].x, sign * sum[i].y);
            by.wait();
            by.back(sum);
        }
        put_row<R>(w.sums + at, sum);
    }
}

#endif
