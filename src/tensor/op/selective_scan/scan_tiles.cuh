/* What the kernels of the selective scan for 16 states share: tiles of tokens of 128 channels.
 *
 * A block has one sequence and 128 channels. A thread has a square of some channels and four states
 * in its registers: lanes q = lane % 4 share the channels and divide the states, lanes lane / 4 the
 * other way round. Sums over states and over channels leave a thread in part, through shared
 * memory: whoever needs them adds up the parts, in the order of their places.
 *
 * What depends on a token and a channel only (step sizes, gates, results) is done for a tile by
 * threads that have four channels of a row each, of the same channels as their warp's squares: so
 * warps wait for one another only where they share B and C. Operands come while the tile before is
 * walked through. Tokens and channels past the end have steps and gradients of 0, which change
 * nothing. */
#ifndef LS_TENSOR_CUDA_SCAN_TILES_H
#define LS_TENSOR_CUDA_SCAN_TILES_H

#include "tensor/op/selective_scan/selective_scan.cuh"

enum {
    STATES = 16,
    SQUARE = 4,                /* channels of a thread, and states */
    SHARERS = STATES / SQUARE, /* lanes that divide the states of the same channels */
    WARP = 32,
    THREADS = 128,
    WARPS = THREADS / WARP,
    CHANNELS = THREADS / SHARERS * SQUARE, /* as many as threads */
    FOUR = 4,                              /* channels of a cell */
    PADDED = CHANNELS + 8, /* so that the parts of four sharers lie in banks of their own */
    BLOCKS_PER_PROCESSOR = 3
};

/* Where a block and a thread work. */
struct place {
    int64_t b;
    int64_t begin, end; /* tokens of its strip */
    int group, e0;      /* group of channels, and its first */
    int first, q;       /* of the square: channel in the block, and which four states */
    bool exists;        /* the square's channels (all or none) */
    int row, c, e;      /* of its first cell of a tile, which lies at c in the block */
};

template <typename T> static __device__ __forceinline__ place place_of(const ls_cuda_scan<T> &job) {
    place at;
    at.b = blockIdx.x / (unsigned)job.groups;
    at.begin = (int64_t)blockIdx.y * job.strip_rows;
    at.end = at.begin + job.strip_rows < job.length ? at.begin + job.strip_rows : job.length;
    at.group = (int)(blockIdx.x % (unsigned)job.groups);
    at.e0 = at.group * CHANNELS;
    at.first = (int)threadIdx.x / SHARERS * SQUARE;
    at.q = (int)threadIdx.x % SHARERS;
    at.exists = at.e0 + at.first < job.E;
    const int lane = (int)threadIdx.x % WARP, of_warp = CHANNELS / WARPS, cells = of_warp / FOUR;
    at.row = lane / cells;
    at.c = (int)threadIdx.x / WARP * of_warp + lane % cells * FOUR;
    at.e = at.e0 + at.c;
    return at;
}

static __device__ __forceinline__ int ls_cuda_least(int64_t a, int b) {
    return a < b ? (int)a : b;
}

typedef struct square {
    float at[SQUARE][SQUARE]; /* [channel][state] */
} square;

/* A strip's part of what lies [strips][batch][...]. */
template <typename T>
static __device__ __forceinline__ int64_t strip_row(const ls_cuda_scan<T> &job, const place &at) {
    return (int64_t)blockIdx.y * job.batch + at.b;
}

/* Between registers and rows [E][16]. */
static __device__ __forceinline__ void load_square(const place &at, const float *rows, square &to) {
#pragma unroll
    for (int k = 0; k < SQUARE; k++) {
        float zero[SQUARE] = {};
        if (at.exists)
            ls_cuda_load<SQUARE>(rows + (at.e0 + at.first + k) * STATES + at.q * SQUARE, to.at[k]);
        else
            memcpy(to.at[k], zero, sizeof zero);
    }
}
/* In one piece: the compiler takes an ordinary store of four floats apart here. */
static __device__ __forceinline__ void store_row(float *to, const float (&from)[SQUARE]) {
    __stcg((float4 *)to, make_float4(from[0], from[1], from[2], from[3]));
}
static __device__ __forceinline__ void store_square(const place &at, float *rows,
                                                    const square &from) {
    if (!at.exists) return;
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
        store_row(rows + (at.e0 + at.first + k) * STATES + at.q * SQUARE, from.at[k]);
}

static __device__ __forceinline__ void load_rates(const place &at, const float *A_log,
                                                  square &rate) {
    load_square(at, A_log, rate);
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
#pragma unroll
        for (int i = 0; i < SQUARE; i++) rate.at[k][i] = ls_scan_rate(rate.at[k][i]);
}

/* ---- operands of a tile ---- */

/* Four elements to shared memory, while the thread goes on; zeros where there are none. */
template <typename T>
static __device__ __forceinline__ void bring(T *to, const T *from, bool some) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "n"(FOUR * sizeof(T)),
                   "r"(some ? (int)(FOUR * sizeof(T)) : 0)
                 : "memory");
}
static __device__ __forceinline__ void bring_end(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* What this thread has asked for is there. */
static __device__ __forceinline__ void bring_wait(void) {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

template <typename T>
static __device__ __forceinline__ void wide_four(const T *from, float (&to)[FOUR]) {
    const T *const at = from;
    if (sizeof(T) == sizeof(float)) {
        ls_cuda_load<FOUR>((const float *)at, to);
    } else {
        const uint2 two = *(const uint2 *)at;
        const float2 low = ls_cuda_wide_two(two.x), high = ls_cuda_wide_two(two.y);
        to[0] = low.x, to[1] = low.y, to[2] = high.x, to[3] = high.y;
    }
}
static __device__ __forceinline__ void store_four(float *to, const float (&from)[FOUR]) {
    ls_cuda_store<FOUR>(to, from);
}
static __device__ __forceinline__ void store_four(ls_cuda_bf16 *to, const float (&from)[FOUR]) {
    *(uint2 *)to =
        make_uint2(ls_cuda_narrow_two(from[0], from[1]), ls_cuda_narrow_two(from[2], from[3]));
}

/* Channel e of the t-th row after `first`, which is the same for the whole block: for few rows an
 * int is enough. */
template <typename T>
static __device__ __forceinline__ T *cell(const ls_cuda_scan_rows<T> &rows, int64_t first, int t,
                                          int e) {
    return rows.data + first * rows.stride + (t * (int)rows.stride + e);
}

/* D and the bias of a block's channels; 0 where there is none. */
struct channel_parameters {
    float D[CHANNELS], bias[CHANNELS];

    template <typename T>
    __device__ __forceinline__ void take(const ls_cuda_scan<T> &job, const place &at) {
        const int own = (int)threadIdx.x, e = at.e0 + own;
        D[own] = e < job.E && job.D != NULL ? job.D[e] : 0.0f;
        bias[own] = e < job.E && job.bias != NULL ? job.bias[e] : 0.0f;
    }
};

/* Rows of B and C on their way to shared memory: a thread has one column of some rows. */
template <typename T, int ROWS> struct rows_BC {
    enum { APART = THREADS / (2 * STATES), COUNT = ROWS / APART };
    T value[COUNT]; /* widened only where it is needed: that would wait for it */

    static __device__ __forceinline__ int column() { return (int)threadIdx.x % (2 * STATES); }
    static __device__ __forceinline__ int row() { return (int)threadIdx.x / (2 * STATES); }
    static __device__ __forceinline__ int stride(const ls_cuda_scan<T> &job) {
        return (int)(column() < STATES ? job.B.stride : job.C.stride);
    }
    /* The thread's first element of rows from the t-th after `first` on. */
    static __device__ __forceinline__ const T *place(const ls_cuda_scan<T> &job, int64_t first,
                                                     int t) {
        const T *const from = column() < STATES ? job.B.at(first) : job.C.at(first);
        return from + ((t + row()) * stride(job) + column() % STATES);
    }
    /* The first `count` of these rows. */
    __device__ __forceinline__ void take(const T *from, int stride, int64_t count) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            value[i] = T();
            if (row() + i * APART < count) value[i] = from[i * APART * stride];
        }
    }
    __device__ __forceinline__ void put(float (*BC)[2 * STATES]) const {
#pragma unroll
        for (int i = 0; i < COUNT; i++) BC[row() + i * APART][column()] = ls_cuda_wide(value[i]);
    }
};

/* ---- one token ---- */

static __device__ __forceinline__ void advance(const square &rate, const float *step_row,
                                               const float *moved_row, const float *B_row,
                                               square &h) {
    float step[SQUARE], moved[SQUARE], B[SQUARE];
    ls_cuda_load<SQUARE>(step_row, step);
    ls_cuda_load<SQUARE>(moved_row, moved);
    ls_cuda_load<SQUARE>(B_row, B);
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
#pragma unroll
        for (int i = 0; i < SQUARE; i++)
            h.at[k][i] = ls_scan_exp2(step[k] * rate.at[k][i]) * h.at[k][i] + moved[k] * B[i];
}

/* What the thread's states add to the outputs of its channels. */
static __device__ __forceinline__ void outputs(const square &h, const float *C_row,
                                               float (&out)[SQUARE]) {
    float C[SQUARE];
    ls_cuda_load<SQUARE>(C_row, C);
#pragma unroll
    for (int k = 0; k < SQUARE; k++) {
        out[k] = h.at[k][0] * C[0];
#pragma unroll
        for (int i = 1; i < SQUARE; i++) out[k] += h.at[k][i] * C[i];
    }
}

/* Sums over the states of four channels from c on. */
static __device__ __forceinline__ void sum_of_states(const float (*parts)[PADDED], int c,
                                                     float (&sum)[FOUR]) {
    float part[SHARERS][FOUR];
#pragma unroll
    for (int q = 0; q < SHARERS; q++) ls_cuda_load<FOUR>(&parts[q][c], part[q]);
#pragma unroll
    for (int j = 0; j < FOUR; j++) sum[j] = (part[0][j] + part[1][j]) + (part[2][j] + part[3][j]);
}

#endif
