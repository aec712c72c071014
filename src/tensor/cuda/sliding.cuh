/* Sums of products of weights with a window that slides along time, a channel to a thread. Weights
 * and rows are read in bands, so that each value that is read serves many sums. */
#ifndef LS_TENSOR_CUDA_SLIDING_H
#define LS_TENSOR_CUDA_SLIDING_H

#include "tensor/cuda/cuda.cuh"

enum { LS_SLIDE_BAND = 8 }; /* weights that are read at once */

/* One channel of a sequence: rows 0 .. count, `step` elements apart; all others are 0. */
template <typename T> struct ls_slide_rows {
    const T *data;
    int64_t step, count;
    template <int COUNT>
    __device__ __forceinline__ void read(int64_t first, float (&to)[COUNT]) const {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            to[i] =
                first + i >= 0 && first + i < count ? ls_cuda_wide(data[(first + i) * step]) : 0.0f;
    }
};

/* sum[j] += the sum over a band of weights s, from `first` on, of w[s] x[row + j + WAY s]. */
template <int WAY, int ROWS, typename T>
static __device__ __forceinline__ void ls_slide(const ls_slide_rows<float> &w, int64_t first,
                                                const ls_slide_rows<T> &x, int64_t row,
                                                float (&sum)[ROWS]) {
    enum { BAND = LS_SLIDE_BAND };
    float weight[BAND], window[ROWS + BAND - 1];
    w.read(first, weight);
    x.read(WAY > 0 ? row + first : row - first - (BAND - 1), window);
#pragma unroll
    for (int i = 0; i < BAND; i++)
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            sum[j] += weight[i] * window[WAY > 0 ? j + i : j + BAND - 1 - i];
}

/* The gradient of that band: sum[i] += the sum over rows j of dy[row + j] x[at + j + WAY i]. */
template <int WAY, int ROWS, typename T>
static __device__ __forceinline__ void ls_slide_weights(const ls_slide_rows<T> &dy, int64_t row,
                                                        const ls_slide_rows<T> &x, int64_t at,
                                                        float (&sum)[LS_SLIDE_BAND]) {
    enum { BAND = LS_SLIDE_BAND };
    float slope[ROWS], window[ROWS + BAND - 1];
    dy.read(row, slope);
    x.read(WAY > 0 ? at : at - (BAND - 1), window);
#pragma unroll
    for (int i = 0; i < BAND; i++)
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            sum[i] += slope[j] * window[WAY > 0 ? j + i : j + BAND - 1 - i];
}

#endif
