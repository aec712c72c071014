/* What the CUDA kernels of the selective scan share: a run of the operation as a plain value, and
 * the functions of one token.
 *
 * Two ways compute it: in tiles of tokens and channels for 16 real states (scan_tiles.cuh), and a
 * warp per channel for any number of them, real or complex (scan_warps.cu). Complex states, B and C
 * are pairs of floats. Both leave sums for the gradients of B and C by group of channels and of the
 * parameters by sequence; selective_scan_cuda.cu adds those up.
 *
 * Few long sequences leave most of a device idle. Tiles then cut the time into strips that are
 * walked side by side. A state decays over a strip by exp(A times the sum of its steps), so a first
 * walk finds what each strip adds and that sum, one pass over these the states before the strips,
 * and a second walk computes the results. The gradient of the state comes back the same way. */
#ifndef LS_TENSOR_CUDA_SCAN_H
#define LS_TENSOR_CUDA_SCAN_H

#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/selective_scan/selective_scan.h"
}

#define LS_SCAN_LOG2_E 1.4426950408889634f
#define LS_SCAN_LN_2 0.6931471805599453f

/* Rows [batch * length][width] at one stride; NULL data: absent. */
template <typename T> struct ls_cuda_scan_rows {
    T *data;
    int64_t stride;
    __device__ __forceinline__ T *at(int64_t row) const { return data + row * stride; }
};

template <typename T> struct ls_cuda_scan {
    int64_t batch, length, chunks;
    int E, N;
    int M; /* floats of a channel's states: N, or 2 N where they are complex */
    ls_cuda_scan_rows<T> u, delta, B, C, z;
    const float *A_log, *D, *bias; /* the last two may be NULL */
    const float *A_im;             /* NULL: real states */
    const float *before;           /* [batch,E,M] */
    bool plain_step;
    /* forward */
    ls_cuda_scan_rows<T> y;
    float *after, *kept; /* [batch,E,M]; [batch,chunks,E,M] or NULL */
    /* backward */
    ls_cuda_scan_rows<T> dy, du, ddelta, dB, dC, dz;
    const float *starts, *dafter; /* what was kept; NULL: no gradient comes through the state */
    float *dbefore;               /* may be NULL */
    /* and its sums, in the workspace */
    int groups;     /* of channels */
    float *sums_BC; /* [groups][2][batch * length][M] */
    float *sums_A;  /* [batch][E][N], of dA_log; then those of dA_im */
    float *sums_D;  /* [batch][E] */
    float *sums_bias;
    float *states; /* of channels that are being walked through */
    /* strips, of tiles alone */
    int strips;
    int64_t strip_rows;  /* whole chunks; the last strip has the rest */
    float *strip_states; /* [strips][batch,E,N]: what strips add, then the states that enter them */
    float *strip_steps;  /* [strips][batch,E]: sums of their steps */
};

/* ---- on the host ---- */

template <typename T> bool ls_cuda_scan_tiles_fit(const ls_cuda_scan<T> *job);
template <typename T> void ls_cuda_scan_tiles(const ls_run *run, const ls_cuda_scan<T> *job);
template <typename T> void ls_cuda_scan_tiles_grad(const ls_run *run, ls_cuda_scan<T> *job);
/* Parts of the two: cuts the time, with strip_states where there is room for all that strips need;
 * what each strip adds becomes the state that enters it. */
template <typename T> void ls_cuda_scan_cut(ls_cuda_scan<T> *job);
template <typename T>
void ls_cuda_scan_join(const ls_run *run, const ls_cuda_scan<T> *job, const float *first,
                       bool backwards);
template <typename T> void ls_cuda_scan_warps(const ls_run *run, const ls_cuda_scan<T> *job);
template <typename T> void ls_cuda_scan_warps_grad(const ls_run *run, ls_cuda_scan<T> *job);

/* What a backward pass needs: groups of channels, and floats for states. */
typedef struct ls_cuda_scan_room {
    int64_t groups, states;
} ls_cuda_scan_room;
/* Whether tiles would be tried at all: their alignment is known later. */
static inline bool ls_cuda_scan_tiles_shape(int64_t E, int64_t N) {
    return N == 16 && E % 4 == 0;
}
ls_cuda_scan_room ls_cuda_scan_tiles_room(int64_t batch, int64_t length, int64_t E);
/* By the shape alone; the floats that several of them need in either direction. */
int64_t ls_cuda_scan_strips(int64_t batch, int64_t length, int64_t E);
int64_t ls_cuda_scan_strip_floats(int64_t batch, int64_t length, int64_t E);
/* `alone`: tiles are not tried before it, so that it is worth room. */
ls_cuda_scan_room ls_cuda_scan_warps_room(int64_t batch, int64_t length, int64_t E, int64_t M,
                                          bool alone);
/* Floats of a warp: the states before a chunk and after its tokens, and the
 * gradient of the state. */
static __host__ __device__ __forceinline__ int64_t ls_cuda_scan_warp_floats(int64_t M) {
    return (LS_SCAN_CHUNK + 2) * M;
}

/* ---- on the device ---- */

/* 2^x by the unit for special functions; results below the smallest normal number are 0. */
static __device__ __forceinline__ float ls_scan_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x by the same unit. */
static __device__ __forceinline__ float ls_scan_inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float ls_scan_sigmoid(float x) {
    return ls_scan_inverse(1.0f + ls_scan_exp2(-LS_SCAN_LOG2_E * x));
}

/* log(1 + e^x) and its slope: with e = e^-|x| and s = e / (2 + e) it is max(x, 0) + 2 artanh(s),
 * which keeps small steps exact; s <= 1/3 makes the series short. Its coefficients are those of the
 * polynomial in s^2 that is nowhere off by more than 4e-9. */
static __device__ __forceinline__ float ls_scan_softplus(float x, float *slope) {
    const float e = ls_scan_exp2(-LS_SCAN_LOG2_E * fabsf(x));
    const float one = 1.0f + e, two = 2.0f + e, inverse = ls_scan_inverse(one * two);
    const float s = e * (one * inverse), q = s * s;
    float near = 0.140873286f;
    near = near * q + 0.139807094f;
    near = near * q + 0.200124269f;
    near = near * q + 0.33333158f;
    near = near * q + 1.0f;
    *slope = (x < 0 ? e : 1.0f) * (two * inverse);
    return fmaxf(x, 0.0f) + 2.0f * s * near;
}

/* The step that x = delta + bias stands for, and its slope. */
template <typename T>
static __device__ __forceinline__ float ls_scan_step(const ls_cuda_scan<T> &job, float x,
                                                     float *slope) {
    float its_slope;
    const float step = ls_scan_softplus(x, &its_slope);
    *slope = job.plain_step ? 1.0f : its_slope; /* both are computed: a branch would cost more */
    return job.plain_step ? x : step;
}

/* One token of one channel. */
struct ls_scan_token {
    float u, step, slope, z, open;
};

template <typename T>
static __device__ __forceinline__ ls_scan_token ls_scan_token_at(const ls_cuda_scan<T> &job,
                                                                 int64_t row, int e) {
    ls_scan_token here = {};
    float bias = job.bias == NULL ? 0.0f : job.bias[e];
    here.u = ls_cuda_wide(job.u.at(row)[e]);
    here.step = ls_scan_step(job, ls_cuda_wide(job.delta.at(row)[e]) + bias, &here.slope);
    if (job.z.data == NULL) return here;
    here.z = ls_cuda_wide(job.z.at(row)[e]);
    here.open = ls_scan_sigmoid(here.z);
    return here;
}

/* A in units of log 2, so that a decay is one exp2. */
static __device__ __forceinline__ float ls_scan_rate(float A_log) {
    return -LS_SCAN_LOG2_E * expf(A_log);
}

#endif
