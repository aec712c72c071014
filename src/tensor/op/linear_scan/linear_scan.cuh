/* What the CUDA kernels of the linear recurrence share: one walk over time as a plain value.
 *
 * The result and the gradients of q, v and k are the same computation in other roles. With rows a
 * (queries), b (keys) and c (values) and a state R[depth,width] that comes from before
 *   R_m = g R_{m-1} + b_m c_m^T,   out_m = a_m R_m:
 *   y:  a = q,  b = k,  c = v,  forwards
 *   dq: a = dy, b = v,  c = k,  forwards, the state transposed over
 *   dv: a = k,  b = q,  c = dy, backwards from the gradient of the last state
 *   dk: a = v,  b = dy, c = q,  backwards, the state transposed over
 * Backwards the state that enters has had its decay already and the one that leaves has it as well
 * (`ahead`). In a chunk of n rows
 *   out_m = g^(m+1-ahead) a_m R + sum_{j<=m} g^(m-j) (a_m . b_j) c_j
 *   R'    = g^n R + sum_j g^(n-1-j+ahead) b_j c_j^T
 * Where features have decays f of their own and lie along the depth, a carries f^(m+1-ahead), b its
 * inverse and the state's rows f^n in the end; along the width c carries the inverse, out the power
 * and the state's columns f^n. All is a sum over the depth, so parts of it may be walked one after
 * the other, each adding to the results.
 *
 * Few long sequences leave most of a device idle. Then the time is cut into strips that are walked
 * side by side. A first walk finds what each strip adds to the state, R' = f^n g^n R + that; one
 * pass over these gives the state before each strip; a second walk computes the results from there.
 *
 * Two ways compute a walk: in tiles on the tensor units (linear_scan_tiles.cu), and with plain
 * arithmetic for everything else (linear_scan_plain.cu). */
#ifndef LS_TENSOR_CUDA_LINEAR_SCAN_H
#define LS_TENSOR_CUDA_LINEAR_SCAN_H

#include "tensor/cuda/cuda.cuh"

/* Rows [B,T,H,width] at any strides (in elements); without data they are zeros. Where `ended` there
 * is one more column: `ends`, f32 [B,T,H], or where that is absent the number `end`. */
typedef struct ls_linear_rows {
    void *data;
    int64_t batch, row, head;
    int width;
    bool ended;
    float *ends;
    int64_t ends_batch, ends_row, ends_head;
    float end;
} ls_linear_rows;

/* Which rows have the factors r. */
typedef enum { LS_LINEAR_NO_ROOTS, LS_LINEAR_QUERY_ROOTS, LS_LINEAR_SOURCE_ROOTS } ls_linear_roots;

typedef struct ls_linear_walk {
    int64_t T;
    ls_cuda_start start;
    int B, H;
    int depth, width; /* of the state, the column of sums included */
    int first, count; /* the part of the depth that is walked */
    bool backwards;
    bool add; /* to the results of the parts before */
    int strips;
    int64_t strip_rows; /* steps of a strip: whole chunks of either way; the last has the rest */
    int64_t apart;      /* from the state of a strip to that of the next; 0: there is one strip */
    bool states_only;   /* nothing but the states that the strips leave */
    ls_linear_roots roots;
    ls_linear_rows query, key, value; /* a source is a key with its value */
    ls_linear_rows out;               /* ends: NULL where its last column is of no use */
    const float *log_decay;           /* [H] */
    const float *feature;             /* [depth] or [width]: logarithms; NULL: none */
    bool feature_along_depth;
    const int32_t *begins;            /* [B]: where sequences began; NULL: at 0 */
    const float *before;              /* [B,H] states; NULL: zeros */
    float *after;                     /* may be NULL */
    int64_t along_depth, along_width; /* strides of the states */
} ls_linear_walk;

/* ---- on the host ---- */

/* Whether tiles take a walk; the depth that either way takes at once. */
bool ls_linear_tiles_fit(const ls_cuda *cuda, const ls_linear_walk *walk);
int ls_linear_tiles_depth(const ls_cuda *cuda);
void ls_linear_tiles(const ls_run *run, const ls_linear_walk *walk, const char *what);
int ls_linear_plain_depth(const ls_cuda *cuda);
template <typename T>
void ls_linear_plain(const ls_run *run, const ls_linear_walk *walk, const char *what);

/* ---- on the device ---- */

/* The row of a tensor that step m of a walk is at. */
static __device__ __forceinline__ int64_t ls_linear_time(const ls_linear_walk &walk, int64_t m) {
    return walk.backwards ? walk.T - 1 - m : m;
}

template <typename T>
static __device__ __forceinline__ T *ls_linear_row(const ls_linear_rows &x, int b, int64_t t,
                                                   int h) {
    return (T *)x.data + (b * x.batch + t * x.row + h * x.head);
}

static __device__ __forceinline__ float *ls_linear_end_place(const ls_linear_rows &x, int b,
                                                             int64_t t, int h) {
    return x.ends + (b * x.ends_batch + t * x.ends_row + h * x.ends_head);
}
static __device__ __forceinline__ float ls_linear_end(const ls_linear_rows &x, int b, int64_t t,
                                                      int h) {
    return x.ends == NULL ? x.end : *ls_linear_end_place(x, b, t, h);
}

/* exp(log * steps) as exact as f32 is: the whole part of the exponent is taken off in double. */
static __device__ __forceinline__ float ls_linear_power(float log, int steps) {
    if (steps == 0) return 1;
    const double exponent = fmax(1.4426950408889634 * (double)log * (double)steps, -2000.0);
    const double whole = rint(exponent);
    return ldexpf(exp2f((float)(exponent - whole)), (int)whole);
}

/* r of a sequence's row at time t. */
static __device__ __forceinline__ float ls_linear_root(const ls_linear_walk &walk, float log_decay,
                                                       int b, int64_t t) {
    const int64_t place = walk.start.at() + t - (walk.begins == NULL ? 0 : walk.begins[b]);
    const double count = (double)(place + 1), log = (double)log_decay;
    return (float)(1 / sqrt(log == 0 ? count : expm1(count * log) / expm1(log)));
}

/* The steps of a block's strip, begin to end - 1. */
typedef struct ls_linear_steps {
    int64_t begin, end;
} ls_linear_steps;
static __device__ __forceinline__ ls_linear_steps ls_linear_strip(const ls_linear_walk &walk) {
    const int64_t begin = (int64_t)blockIdx.y * walk.strip_rows, end = begin + walk.strip_rows;
    return {begin, end < walk.T ? end : walk.T};
}

/* Where element (0, 0) of a strip's state of a sequence lies, in the part that is walked. */
static __device__ __forceinline__ int64_t ls_linear_state(const ls_linear_walk &walk, int b,
                                                          int h) {
    return (int64_t)blockIdx.y * walk.apart + ((int64_t)b * walk.H + h) * walk.depth * walk.width +
           walk.first * walk.along_depth;
}

#endif
