/* The running softmax of tiles whose rows are queries. */
#ifndef LS_TENSOR_CUDA_ATTENTION_SOFTMAX_H
#define LS_TENSOR_CUDA_ATTENTION_SOFTMAX_H

#include "tensor/op/attention/attention_split.cuh"

/* What a lane holds: for each band two rows, g and g + 8. */
template <int D, int M> struct ls_tile_running {
    float out[M][D / 8][4];
    float most[M][2], sum[M][2]; /* the sums are of this lane's columns only */
};

template <int D, int M>
__device__ static inline void ls_tile_begin(ls_tile_running<D, M> &state, bool off_by_one) {
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) state.out[m][n][i] = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            state.most[m][half] = off_by_one ? 0 : -INFINITY;
            /* the extra 1 is counted by one of the four lanes of a row */
            state.sum[m][half] = off_by_one && threadIdx.x % 4 == 0 ? 1 : 0;
        }
    }
}

/* Scores, which `unit` takes to units of log 2, become weights; the output so far is rescaled to
 * their base. */
template <int D, int M, int COLUMNS>
__device__ static inline void ls_tile_soften(float s[M][COLUMNS / 8][4], float unit,
                                             ls_tile_running<D, M> &state) {
    float rescale[M][2];
    bool same = true;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float most = -INFINITY;
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
                most = fmaxf(most, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            most = fmaxf(most * unit, state.most[m][half]);
            const float base = most == -INFINITY ? 0 : most;
            rescale[m][half] = ls_exp2(state.most[m][half] - base);
            same = same && state.most[m][half] == most;
            float sum = state.sum[m][half] * rescale[m][half];
            state.most[m][half] = most;
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float *at = &s[m][n][2 * half + c];
                    *at = ls_exp2(*at * unit - base);
                    sum += *at;
                }
            state.sum[m][half] = sum;
        }
    if (__all_sync(0xffffffffu, same)) return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) state.out[m][n][i] *= rescale[m][i / 2];
}

/* Where rows go that are to be joined with others: row `first` is the first of them. */
typedef struct ls_part_rows {
    float *out, *lse; /* NULL: rows are whole and go to the output */
    int first;
} ls_part_rows;

template <typename T, int D, int M>
__device__ static inline void ls_tile_store(const ls_cuda_attention &job,
                                            ls_tile_running<D, M> &state, int b, int h, int row,
                                            const ls_part_rows &part) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int width = ls_cuda_pass_width(job, job.pass);
    const int64_t head = ((int64_t)b * job.H + h) * job.T;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = row + m * 16 + g + 8 * half;
            float sum = state.sum[m][half], most = state.most[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (i < 0 || i >= job.T) continue;
            const float unit = sum == 0 ? 0 : 1 / sum;
            const float lse = sum == 0 ? -INFINITY : most + log2f(sum);
            if (part.out != NULL) {
                float *to = part.out + (int64_t)(i - part.first) * job.V + 2 * t;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    if (n * 8 + 2 * t >= width) break;
                    to[n * 8] = state.out[m][n][2 * half] * unit;
                    to[n * 8 + 1] = state.out[m][n][2 * half + 1] * unit;
                }
                if (t == 0) part.lse[i - part.first] = lse;
                continue;
            }
            T *to = ls_cuda_row<T>(job.out, b, i, h) + 2 * t;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                if (n * 8 + 2 * t >= width) break;
                ls_tile_put(to + n * 8, state.out[m][n][2 * half] * unit,
                            state.out[m][n][2 * half + 1] * unit);
            }
            if (t == 0) job.lse[head + i] = lse * LS_CUDA_LN_2;
        }
}

#endif
