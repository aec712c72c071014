/* One pair of query and key at a time: the whole contract of a set in one function. */
#ifndef LS_TENSOR_CUDA_ATTENTION_PLAIN_H
#define LS_TENSOR_CUDA_ATTENTION_PLAIN_H

#include "tensor/op/attention/attention_job.cuh"

__device__ static inline void ls_cuda_unpack(const uint4 &from, const float *, float to[4]) {
    to[0] = __uint_as_float(from.x);
    to[1] = __uint_as_float(from.y);
    to[2] = __uint_as_float(from.z);
    to[3] = __uint_as_float(from.w);
}

__device__ static inline void ls_cuda_unpack(const uint4 &from, const ls_cuda_bf16 *, float to[8]) {
    const uint32_t words[4] = {from.x, from.y, from.z, from.w};
    for (int i = 0; i < 4; i++) {
        to[2 * i] = __uint_as_float(words[i] << 16);
        to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}

template <typename T>
__device__ static inline float ls_cuda_dot(const T *a, const T *b, int width, bool vectors) {
    enum { EACH = 16 / sizeof(T) };
    float sum = 0;
    if (!vectors) {
        for (int e = 0; e < width; e++) sum += ls_cuda_wide(a[e]) * ls_cuda_wide(b[e]);
        return sum;
    }
    for (int at = 0; at < width; at += EACH) {
        float x[EACH], y[EACH];
        ls_cuda_unpack(*(const uint4 *)(a + at), a, x);
        ls_cuda_unpack(*(const uint4 *)(b + at), b, y);
#pragma unroll
        for (int e = 0; e < EACH; e++) sum += x[e] * y[e];
    }
    return sum;
}

/* How far the query's share of the decay of a pair reaches. */
__device__ static inline float ls_cuda_decay_distance(const ls_cuda_key_set &s, int b, int64_t n,
                                                      int64_t m) {
    return (float)(ls_cuda_query_at(s, b, n) -
                   ls_cuda_decay_reference(s, ls_cuda_map_at(s.key_at, m)));
}

__device__ static inline int ls_cuda_relative_row(const ls_cuda_key_set &s, int b, int64_t n,
                                                  int64_t m) {
    return (int)ls_cuda_clamp(ls_cuda_whole_query_at(s, b, n) - ls_cuda_whole_at(s.key_at, m), 0,
                              s.relative_rows - 1);
}

/* relative[row][h][e]. */
template <typename T>
__device__ static inline float ls_cuda_relative_at(const ls_cuda_key_set &s, int row, int h,
                                                   int e) {
    if (s.relative_wide) return ls_cuda_row<float>(s.relative, 0, row, h)[e];
    return ls_cuda_wide(ls_cuda_row<T>(s.relative, 0, row, h)[e]);
}

/* The score of query row i and key row j, in units of log 2, with the logarithm of how often the
 * key counts; whether it is admitted is not looked at. */
template <typename T>
__device__ static inline float ls_cuda_score(const ls_cuda_attention &job, const ls_cuda_key_set &s,
                                             int b, int h, int i, int j, int times) {
    const int64_t n = job.start + i, m = s.key_position + j;
    const T *q = ls_cuda_row<T>(s.q, b, i, h);
    const T *k = ls_cuda_row<T>(s.k, b, j, h / (job.H / job.G));
    float content = 0, bias = 0;
    if (s.log_decay == NULL) {
        content = ls_cuda_dot(q, k, job.K, job.vectors);
    } else {
        const float distance = ls_cuda_decay_distance(s, b, n, m);
        for (int e = 0; e < job.K; e++)
            content += ls_cuda_wide(q[e]) * ls_cuda_wide(k[e]) * ls_cuda_decay(s, e, distance);
    }
    if (s.relative.data != NULL) {
        const T *u = ls_cuda_row<T>(s.relative_q, b, i, h);
        const int row = ls_cuda_relative_row(s, b, n, m);
        if (s.relative_vectors)
            content += ls_cuda_dot(u, ls_cuda_row<const T>(s.relative, 0, row, h), job.K, true);
        else
            for (int e = 0; e < job.K; e++)
                content += ls_cuda_wide(u[e]) * ls_cuda_relative_at<T>(s, row, h, e);
    }
    if (s.slopes != NULL) {
        double distance = ls_cuda_query_at(s, b, n) - ls_cuda_map_at(s.key_at, m);
        if (s.lo < 0) distance = fabs(distance);
        bias -= s.slopes[h] * (float)distance;
    }
    if (s.table != NULL) {
        const int64_t column =
            ls_cuda_whole_query_at(s, b, n) - ls_cuda_whole_at(s.key_at, m) + s.table_zero;
        bias += s.table[h * s.table_stride + ls_cuda_clamp(column, 0, s.table_rows - 1)];
    }
    float score = (job.scale * content + bias) * LS_CUDA_LOG2_E;
    if (job.cap > 0) score = ls_cuda_cap(score, job.cap);
    return times > 1 ? score + log2f((float)times) : score;
}

#endif
