/* Products of f32 tiles on the tensor units, as accurate as sums of f32 products.
 *
 * A number is the sum of two of tf32 (11 significant bits each): x = high + low, off by 2^-23 of x
 * at most. A product is low high + high low + high high; what is left out is 2^-24 of it. The units
 * cut off what they add instead of rounding it, so long sums would shrink. Therefore the small
 * products have sums of their own, and the units make sums over 32 columns at most, which are added
 * up in f32.
 *
 * How the 32 lanes hold the parts of m16n8k8: with g = lane / 4 and t = lane % 4 the left factor is
 * at rows g, g + 8, g, g + 8 and columns t, t, t + 4, t + 4, the right one at rows t, t + 4 and
 * column g, and a sum as in m16n8k16. Which columns of the left factor these are does not matter as
 * long as the right one's rows are the same: where sums become a left factor, t and t + 4 are the
 * columns 2t and 2t + 1 that the lane has. */
#ifndef LS_TENSOR_CUDA_ATTENTION_SPLIT_H
#define LS_TENSOR_CUDA_ATTENTION_SPLIT_H

#include "tensor/op/attention/attention_tiles.cuh"

/* c += a b, of 16 x 8 by 8 x 8. */
__device__ static inline void ls_multiply_tf32(float c[4], const uint32_t a[4], uint32_t b0,
                                               uint32_t b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Rounds half away from zero; what is not finite gives NaN in one of the two. The units read the
 * upper 19 bits of a word, so `low` is cut by them. */
__device__ static inline void ls_split(float x, uint32_t &high, uint32_t &low) {
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(x - __uint_as_float(high));
}

/* Left factors of M bands of 16 rows, 8 STEPS columns. */
template <int M, int STEPS> struct ls_split_left { uint32_t high[M][STEPS][4], low[M][STEPS][4]; };

/* sums[m] = a b; `right`: two rows of each step. */
template <int M, int STEPS>
__device__ static inline void ls_split_multiply(float sums[M][4],
                                                const ls_split_left<M, STEPS> &left,
                                                const float right[2 * STEPS]) {
    float large[M][4] = {}, small[M][4] = {}, other[M][4] = {};
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        uint32_t high[2], low[2];
        ls_split(right[2 * k], high[0], low[0]);
        ls_split(right[2 * k + 1], high[1], low[1]);
#pragma unroll
        for (int m = 0; m < M; m++) {
            ls_multiply_tf32(small[m], left.low[m][k], high[0], high[1]);
            ls_multiply_tf32(other[m], left.high[m][k], low[0], low[1]);
            ls_multiply_tf32(large[m], left.high[m][k], high[0], high[1]);
        }
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[m][i] = large[m][i] + (small[m][i] + other[m][i]);
}

/* As the same of bf16 (attention_tiles.cuh). */
template <int D, int M, int COLUMNS>
__device__ static inline void ls_tile_scores(float c[M][COLUMNS / 8][4], const float *a,
                                             const float *b) {
    enum { STRIDE = ls_tile_shape<float, D>::STRIDE, STEPS = 4 };
    const int lane = (int)threadIdx.x % 32;
    const float *a_lane = a + (lane % 16) * STRIDE + lane / 16 * 4;
    const float *b_lane = b + (lane % 8) * STRIDE + lane / 8 * 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[m][n][i] = 0;
#pragma unroll
    for (int column = 0; column < D; column += 8 * STEPS) {
        ls_split_left<M, STEPS> left;
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                uint32_t words[4];
                ls_load_matrices(words, a_lane + m * 16 * STRIDE + column + 8 * k);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    ls_split(__uint_as_float(words[i]), left.high[m][k][i], left.low[m][k][i]);
            }
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++) {
            float right[2 * STEPS], sums[M][4];
#pragma unroll
            for (int k = 0; k < STEPS; k += 2) {
                uint32_t words[4];
                ls_load_matrices(words, b_lane + n * 8 * STRIDE + column + 8 * k);
#pragma unroll
                for (int i = 0; i < 4; i++) right[2 * k + i] = __uint_as_float(words[i]);
            }
            ls_split_multiply<M, STEPS>(sums, left, right);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) c[m][n][i] += sums[m][i];
        }
    }
}

/* c[m][n] += a b: rows 2t and 2t + 1 of each step of 8 rows of b meet the left factor's columns t
 * and t + 4. */
template <int D, int M, int STEPS>
__device__ static inline void ls_split_gather(float c[M][D / 8][4],
                                              const ls_split_left<M, STEPS> &left, const float *b) {
    enum { STRIDE = ls_tile_shape<float, D>::STRIDE };
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float *b_lane = b + 2 * t * STRIDE + g;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        float right[2 * STEPS], sums[M][4];
#pragma unroll
        for (int k = 0; k < STEPS; k++)
#pragma unroll
            for (int i = 0; i < 2; i++) right[2 * k + i] = b_lane[(8 * k + i) * STRIDE + 8 * n];
        ls_split_multiply<M, STEPS>(sums, left, right);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[m][n][i] += sums[m][i];
    }
}

template <int D, int M, int COLUMNS>
__device__ static inline void ls_tile_gather(float c[M][D / 8][4], const float p[M][COLUMNS / 8][4],
                                             const float *b) {
    enum { STEPS = 4 };
#pragma unroll
    for (int first = 0; first < COLUMNS / 8; first += STEPS) {
        ls_split_left<M, STEPS> left;
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int k = 0; k < STEPS; k++)
#pragma unroll
                for (int i = 0; i < 4; i++) /* rows g, g + 8 of a column, then of the next */
                    ls_split(p[m][first + k][i % 2 * 2 + i / 2], left.high[m][k][i],
                             left.low[m][k][i]);
        ls_split_gather<D, M, STEPS>(c, left, b + 8 * first * ls_tile_shape<float, D>::STRIDE);
    }
}

#endif
