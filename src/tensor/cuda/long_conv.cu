/* Convolution along time with kernels as long as the sequence, and its gradients.
 *
 * As on the processor a block of inputs acts only on outputs behind it, so that results are causal
 * to the bit: pairs of times in one block of 64 are summed as defined; blocks of 64 act on the
 * later ones of their span of 512, and blocks of 512 on all later ones, through transforms modulo
 * x^m - i (m = 64, 512: see tensor/cpu/long_conv.c), whose real part is what we want and which need
 * no padding. A block of threads has some neighbouring channels and four blocks of results: it
 * transforms one block of inputs after the other in registers, eight values to a thread, and adds
 * its products with the kernel's spectra to four sums, which are then transformed back. Spectra of
 * inputs are never stored, and each input is read by few.
 *
 * The kernel's gradient has no causality to keep: it is a correlation of blocks of 512, whose
 * spectra are summed over the batch, so that only the sums are transformed back.
 *
 * At 2,048 tokens that is about 190 operations and 150 bytes through shared memory for each value
 * forward, while memory moves 17 bytes: arithmetic should be what it takes, half a millisecond for
 * 32 x 768 sequences of f32 on an H200 by this count. The work on blocks of 512 grows with the
 * square of the length and is most of it from some ten thousand tokens on.
 * Workspace: 8 bytes for each value of the kernels (of their first 512 twice that), backward as
 * much again for every 8 sequences; in bf16, from 513 tokens on, 4 for each value of the output. */
#include "tensor/cuda/lib/rows.h"

extern "C" {
#include "tensor/long_conv.h"
}

enum {
    NEAR = 64,
    FAR = 512,
    TILE = 4, /* blocks of results that are summed at once */
    ROOTS = 4 * FAR,
    SLICE = 8 /* sequences whose spectra are summed by one block of threads */
};

static __host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Lines of CHANNELS threads; line l has the values l, l + LINES, ... of a block of m. */
template <int M> struct shape_of {
    static constexpr int DIGITS = M == NEAR ? 2 : 3, CHANNELS = M == NEAR ? 16 : 4;
    static constexpr int LINES = M / 8, THREADS = LINES * CHANNELS;
    /* complex values through which threads exchange theirs; without gaps in the lines, fours of
     * channels would meet in the same banks */
    static constexpr int EXCHANGE = CHANNELS * (CHANNELS < 16 ? M + M / 8 : M);
    /* complex values of one spectrum, of all its channels */
    static constexpr int64_t SPECTRUM = M * CHANNELS;
};

/* Time runs backwards where `reversed`: towards the future, and in gradients of the past. The
 * kernel then begins `delay` steps later. */
template <typename T> struct conv_job {
    int64_t B, length, D;
    int64_t taps, delay; /* taps: kernel values that can meet an input */
    bool reversed;
    const T *x;
    int64_t x_stride;
    const float *k, *skip;
    int64_t k_stride;
    T *y;
    int64_t y_stride;
    float *sum; /* what blocks of 512 give to later ones: in the place of y if that is f32 */
    int64_t sum_stride;
    float2 *roots; /* exp(2 pi i j / ROOTS) */
    float2 *near_spectra, *far_spectra;
    int64_t near_reach, far_reach; /* how many blocks further on a kernel reaches */
    /* of the kernel */
    const T *g; /* gradients of the outputs */
    int64_t g_stride, slices;
    float2 *partial; /* [slices][channel groups][blocks] spectra */
    float *dk, *dskip;
};

/* ---- complex numbers ---- */

static __device__ __forceinline__ float2 plus(float2 a, float2 b) {
    return make_float2(a.x + b.x, a.y + b.y);
}
static __device__ __forceinline__ float2 minus(float2 a, float2 b) {
    return make_float2(a.x - b.x, a.y - b.y);
}
static __device__ __forceinline__ float2 times(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
/* sum + a b */
static __device__ __forceinline__ float2 add_times(float2 sum, float2 a, float2 b) {
    return make_float2(fmaf(a.x, b.x, fmaf(-a.y, b.y, sum.x)),
                       fmaf(a.x, b.y, fmaf(a.y, b.x, sum.y)));
}
/* The conjugate of a, times b. */
static __device__ __forceinline__ float2 conjugate_times(float2 a, float2 b) {
    return make_float2(a.x * b.x + a.y * b.y, a.x * b.y - a.y * b.x);
}
template <int SIGN> static __device__ __forceinline__ float2 quarter(float2 a) {
    return SIGN > 0 ? make_float2(-a.y, a.x) : make_float2(a.y, -a.x);
}

/* out[q] = sum_k v[k] exp(SIGN 2 pi i k q / 8), in place. */
template <int SIGN> static __device__ __forceinline__ void eight(float2 (&v)[8]) {
    const float half = 0.70710678118654752f;
    float2 part[2][4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        part[0][k] = plus(v[k], v[k + 4]);
        part[1][k] = minus(v[k], v[k + 4]);
    }
    part[1][1] = times(part[1][1], make_float2(half, SIGN * half));
    part[1][2] = quarter<SIGN>(part[1][2]);
    part[1][3] = times(part[1][3], make_float2(-half, SIGN * half));
#pragma unroll
    for (int odd = 0; odd < 2; odd++) {
        const float2 a = plus(part[odd][0], part[odd][2]), b = minus(part[odd][0], part[odd][2]);
        const float2 c = plus(part[odd][1], part[odd][3]);
        const float2 d = quarter<SIGN>(minus(part[odd][1], part[odd][3]));
        v[odd] = plus(a, c);
        v[odd + 2] = plus(b, d);
        v[odd + 4] = minus(a, c);
        v[odd + 6] = minus(b, d);
    }
}

/* ---- transforms of blocks of M, by radix 8; spectra are in the order of reversed digits ---- */

template <int M> struct transformer {
    using shape = shape_of<M>;
    static constexpr int DIGITS = shape::DIGITS, CHANNELS = shape::CHANNELS;
    int line, channel;
    float2 weight[8]; /* makes products modulo x^M - i cyclic */
    float2 turn[DIGITS - 1][7];
    float2 *exchange;

    __device__ __forceinline__ transformer(const float2 *roots, float2 *shared)
        : line((int)threadIdx.x / CHANNELS), channel((int)threadIdx.x % CHANNELS),
          exchange(shared) {
#pragma unroll
        for (int k = 0; k < 8; k++)
            weight[k] = __ldg(roots + (line + k * shape::LINES) * (ROOTS / (4 * M)));
#pragma unroll
        for (int digit = 0; digit + 1 < DIGITS; digit++) {
            const int n = M >> (3 * digit), j = line % (n / 8);
#pragma unroll
            for (int q = 1; q < 8; q++) turn[digit][q - 1] = __ldg(roots + j * q * (ROOTS / n));
        }
    }

    /* Where value k of this line's share of a pass over parts of n is. With gaps each eighth value
     * is followed by one; written so that k adds a constant. */
    __device__ __forceinline__ int place(int n, int k) const {
        const int part = n / 8, at = line / part * n + line % part;
        const bool gaps = CHANNELS < 16;
        return ((gaps ? at + at / 8 : at) + k * (gaps ? part + part / 8 : part)) * CHANNELS +
               channel;
    }
    __device__ __forceinline__ void move(int from, int to, float2 (&v)[8]) const {
#pragma unroll
        for (int k = 0; k < 8; k++) exchange[place(from, k)] = v[k];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = exchange[place(to, k)];
        __syncthreads();
    }
    __device__ __forceinline__ void forward(float2 (&v)[8]) const {
#pragma unroll
        for (int digit = 0; digit < DIGITS; digit++) {
            const int n = M >> (3 * digit);
            if (digit > 0) move(8 * n, n, v);
            eight<-1>(v);
#pragma unroll
            for (int q = 1; q < 8; q++)
                if (digit + 1 < DIGITS) v[q] = conjugate_times(turn[digit][q - 1], v[q]);
        }
    }
    __device__ __forceinline__ void forward(const float (&x)[8], float2 (&v)[8]) const {
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = make_float2(x[k] * weight[k].x, x[k] * weight[k].y);
        forward(v);
    }
    /* The real part of the way back, without the factor 1/M. */
    __device__ __forceinline__ void back(float2 (&v)[8], float (&x)[8]) const {
#pragma unroll
        for (int digit = DIGITS - 1; digit >= 0; digit--) {
            const int n = M >> (3 * digit);
            if (digit + 1 < DIGITS) move(n / 8, n, v);
#pragma unroll
            for (int q = 1; q < 8; q++)
                if (digit + 1 < DIGITS) v[q] = times(turn[digit][q - 1], v[q]);
            eight<1>(v);
        }
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = v[k].x * weight[k].x + v[k].y * weight[k].y;
    }
};

static __global__ void __launch_bounds__(LS_CUDA_THREADS) make_roots(float2 *roots) {
    const int j = (int)(blockIdx.x * LS_CUDA_THREADS + threadIdx.x);
    double re, im;
    sincospi(2.0 * j / ROOTS, &im, &re);
    if (j < ROOTS) roots[j] = make_float2((float)re, (float)im);
}

/* ---- spectra of the kernels ---- */

template <typename T>
static __device__ __forceinline__ float kernel_at(const conv_job<T> &job, int64_t d, int64_t s) {
    s -= job.delay;
    return d < job.D && s >= 0 && s < job.taps ? job.k[d * job.k_stride + s] : 0.0f;
}

/* For every distance r = 1..reach in blocks the spectrum of k_r - i k_{r-1}, whose product with a
 * block of inputs has in its real part all that these give to the block r further on. */
template <int M, typename T>
static __global__ void __launch_bounds__(shape_of<M>::THREADS)
    make_spectra(const conv_job<T> job, float2 *spectra, int64_t reach) {
    using shape = shape_of<M>;
    __shared__ float2 exchange[shape::EXCHANGE];
    const transformer<M> by(job.roots, exchange);
    const int64_t group = blockIdx.x / reach, r = 1 + blockIdx.x % reach;
    const int64_t d = group * shape::CHANNELS + by.channel;
    float2 v[8];
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const int64_t s = r * M + by.line + k * shape::LINES;
        const float2 value = make_float2(kernel_at(job, d, s), -kernel_at(job, d, s - M));
        v[k] = times(make_float2(by.weight[k].x / M, by.weight[k].y / M), value);
    }
    by.forward(v);
    float2 *to = spectra + (group * reach + r - 1) * shape::SPECTRUM + threadIdx.x;
#pragma unroll
    for (int q = 0; q < 8; q++) to[q * shape::THREADS] = v[q];
}

/* ---- blocks on later blocks ---- */

/* A channel of a sequence: time i, in the order of the job, is at first[i * step]. */
template <typename E> struct series {
    E *first;
    int64_t step;
};
template <typename E, typename T>
static __device__ __forceinline__ series<E> series_of(const conv_job<T> &job, E *data,
                                                      int64_t stride, int64_t b, int64_t d) {
    const int64_t row = b * job.length + (job.reversed ? job.length - 1 : 0);
    return {data + row * stride + d, job.reversed ? -stride : stride};
}

/* A thread's values of the block that begins at `start`; zeros past the end. */
template <int M, typename T>
static __device__ __forceinline__ void take(const conv_job<T> &job, const series<const T> &from,
                                            int64_t d, int64_t start, int line, float (&x)[8]) {
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const int64_t i = start + line + k * shape_of<M>::LINES;
        x[k] = d < job.D && i < job.length ? ls_cuda_wide(from.first[i * from.step]) : 0.0f;
    }
}

/* The results of one block of threads: blocks first..last of M, among those that begin at `begin`,
 * for the channels of a group. */
struct tile {
    int64_t group, b, begin, first, last;
};

/* Blocks of NEAR stay within their span of FAR, blocks of FAR have the whole sequence. */
template <int M, typename T>
static __host__ __device__ inline int64_t tiles_of_span(const conv_job<T> &job) {
    return ceil_div(M == NEAR ? (int64_t)FAR : job.length, TILE * M);
}
template <int M, typename T>
static __host__ __device__ inline int64_t tiles_of(const conv_job<T> &job) {
    const int64_t spans = M == NEAR ? ceil_div(job.length, FAR) : 1;
    return ceil_div(job.D, shape_of<M>::CHANNELS) * tiles_of_span<M>(job) * spans * job.B;
}

template <int M, typename T>
static __device__ __forceinline__ tile tile_of(const conv_job<T> &job) {
    const unsigned groups = (unsigned)ceil_div(job.D, shape_of<M>::CHANNELS);
    const unsigned tiles = (unsigned)tiles_of_span<M>(job);
    const unsigned spans = M == NEAR ? (unsigned)ceil_div(job.length, FAR) : 1;
    unsigned rest = blockIdx.x;
    tile t;
    t.group = rest % groups;
    rest /= groups;
    t.first = (int64_t)(rest % tiles) * TILE;
    rest /= tiles;
    t.begin = (int64_t)(rest % spans) * FAR;
    t.b = rest / spans;
    const int64_t end = M == NEAR && t.begin + FAR < job.length ? t.begin + FAR : job.length;
    const int64_t blocks = ceil_div(end - t.begin, M);
    t.last = t.first + TILE < blocks ? t.first + TILE - 1 : blocks - 1;
    return t;
}

/* Spectra of the tile's results: those of all inputs before them, times the kernel's. */
template <int M, typename T>
static __device__ __forceinline__ void
sum_products(const conv_job<T> &job, const transformer<M> &by, const tile &t,
             const series<const T> &inputs, int64_t d, const float2 *spectra, int64_t reach,
             float2 (&sum)[TILE][8]) {
    using shape = shape_of<M>;
#pragma unroll
    for (int i = 0; i < TILE; i++)
#pragma unroll
        for (int q = 0; q < 8; q++) sum[i][q] = make_float2(0, 0);
    spectra += t.group * reach * shape::SPECTRUM + threadIdx.x;
#pragma unroll 1
    for (int64_t j = t.first > reach ? t.first - reach : 0; j < t.last; j++) {
        float x[8];
        float2 v[8];
        take<M>(job, inputs, d, t.begin + j * M, by.line, x);
        by.forward(x, v);
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            const int64_t r = t.first + i - j;
            if (r < 1 || r > reach || t.first + i > t.last) continue;
            const float2 *k = spectra + (r - 1) * shape::SPECTRUM;
#pragma unroll
            for (int q = 0; q < 8; q++)
                sum[i][q] = add_times(sum[i][q], v[q], __ldg(k + q * shape::THREADS));
        }
    }
}

/* The first sum back to times, or zeros for block 0, which has nothing before it; the others move
 * up: so the loop over results is not unrolled and has one copy of the code. */
template <int M>
static __device__ __forceinline__ void next_result(const transformer<M> &by, int64_t block,
                                                   float2 (&sum)[TILE][8], float (&x)[8]) {
#pragma unroll
    for (int k = 0; k < 8; k++) x[k] = 0;
    if (block > 0) by.back(sum[0], x);
#pragma unroll
    for (int i = 0; i + 1 < TILE; i++)
#pragma unroll
        for (int q = 0; q < 8; q++) sum[i][q] = sum[i + 1][q];
}

template <typename T>
static __global__ void __launch_bounds__(shape_of<FAR>::THREADS, 2)
    far_kernel(const conv_job<T> job) {
    using shape = shape_of<FAR>;
    __shared__ float2 exchange[shape::EXCHANGE];
    const tile t = tile_of<FAR>(job);
    const transformer<FAR> by(job.roots, exchange);
    const int64_t d = t.group * shape::CHANNELS + by.channel;
    float2 sum[TILE][8];
    sum_products(job, by, t, series_of(job, job.x, job.x_stride, t.b, d), d, job.far_spectra,
                 job.far_reach, sum);
    const series<float> results = series_of(job, job.sum, job.sum_stride, t.b, d);
#pragma unroll 1
    for (int64_t s = t.first; s <= t.last; s++) {
        float y[8];
        next_result(by, s, sum, y);
        if (s == 0) continue;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int64_t i = s * FAR + by.line + k * shape::LINES;
            if (d < job.D && i < job.length) results.first[i * results.step] = y[k];
        }
    }
}

/* y += what stands in the same block of 64, by the definition; a thread has the outputs l + 8 k.
 * Inputs are taken by their rest modulo 8, so that each value of the kernel serves many. */
static __device__ __forceinline__ void add_direct(const float *x, const float *kernel, int line,
                                                  float (&y)[8]) {
    constexpr int CHANNELS = shape_of<NEAR>::CHANNELS;
#pragma unroll 2
    for (int rest = 0; rest < 8; rest++) {
        float in[8];
#pragma unroll
        for (int i = 0; i < 8; i++) in[i] = x[(rest + 8 * i) * CHANNELS];
#pragma unroll
        for (int j = 1; j < 8; j++) {
            const float tap = kernel[(line - rest + 8 * j) * CHANNELS];
#pragma unroll
            for (int k = j; k < 8; k++) y[k] += tap * in[k - j];
        }
        if (rest > line) continue; /* these inputs are later */
        const float tap = kernel[(line - rest) * CHANNELS];
#pragma unroll
        for (int k = 0; k < 8; k++) y[k] += tap * in[k];
    }
}

template <typename T>
static __global__ void __launch_bounds__(shape_of<NEAR>::THREADS, 4)
    near_kernel(const conv_job<T> job) {
    using shape = shape_of<NEAR>;
    constexpr int CHANNELS = shape::CHANNELS;
    __shared__ float2 exchange[shape::EXCHANGE];
    __shared__ float inputs[NEAR * CHANNELS], kernel[NEAR * CHANNELS];
    const tile t = tile_of<NEAR>(job);
    if (t.first > t.last) return;
    for (int at = (int)threadIdx.x; at < NEAR * CHANNELS; at += shape::THREADS)
        kernel[at % NEAR * CHANNELS + at / NEAR] =
            kernel_at(job, t.group * CHANNELS + at / NEAR, at % NEAR);
    const transformer<NEAR> by(job.roots, exchange);
    const int64_t d = t.group * CHANNELS + by.channel;
    const float skip = job.skip != NULL && d < job.D ? job.skip[d] : 0.0f;
    float2 sum[TILE][8];
    const series<const T> from = series_of(job, job.x, job.x_stride, t.b, d);
    const series<float> so_far = series_of(job, job.sum, job.sum_stride, t.b, d);
    const series<T> to = series_of(job, job.y, job.y_stride, t.b, d);
    sum_products(job, by, t, from, d, job.near_spectra, job.near_reach, sum);
#pragma unroll 1
    for (int64_t s = t.first; s <= t.last; s++) {
        const int64_t start = t.begin + s * NEAR;
        float x[8], y[8];
        take<NEAR>(job, from, d, start, by.line, x);
        next_result(by, s, sum, y);
        __syncthreads(); /* the block before has been read */
#pragma unroll
        for (int k = 0; k < 8; k++) inputs[(by.line + 8 * k) * CHANNELS + by.channel] = x[k];
        __syncthreads();
        add_direct(inputs + by.channel, kernel + by.channel, by.line, y);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int64_t i = start + by.line + k * shape::LINES;
            if (d >= job.D || i >= job.length) continue;
            if (t.begin > 0) y[k] += so_far.first[i * so_far.step];
            if (job.skip != NULL) y[k] += skip * x[k];
            to.first[i * to.step] = ls_cuda_narrow<T>(y[k]);
        }
    }
}

/* ---- the kernel's gradient ----
 *
 * Lags 512 p .. 512 p + 511 have the real part of the sum over sequences and blocks j of
 * conj(U_j) (G_{j+p} + i G_{j+p+1}), with the spectra U of the inputs, G of the gradients: of a
 * lag that is too short by up to 512, or too long, the power of x is i or -i times another. */

enum { RING = TILE + 1 }; /* spectra of gradients that a block of inputs meets */

/* Where a thread's first value of the spectrum of a block is. */
static __device__ __forceinline__ unsigned ring_place(int64_t block) {
    return (unsigned)block % RING * (unsigned)shape_of<FAR>::SPECTRUM + threadIdx.x;
}

template <typename T>
static __global__ void __launch_bounds__(shape_of<FAR>::THREADS, 2)
    correlate(const conv_job<T> job) {
    using shape = shape_of<FAR>;
    __shared__ float2 exchange[shape::EXCHANGE];
    extern __shared__ float2 ring[]; /* [RING][8][THREADS]: what a thread writes it alone reads */
    const int64_t blocks = ceil_div(job.length, FAR);
    const unsigned groups = (unsigned)ceil_div(job.D, shape::CHANNELS);
    const unsigned tiles = (unsigned)ceil_div(blocks, TILE);
    const int64_t group = blockIdx.x % groups, slice = blockIdx.x / groups / tiles;
    const int64_t first = (int64_t)(blockIdx.x / groups % tiles) * TILE; /* distance in blocks */
    const transformer<FAR> by(job.roots, exchange);
    const int64_t d = group * shape::CHANNELS + by.channel;
    const int64_t end = (slice + 1) * SLICE < job.B ? (slice + 1) * SLICE : job.B;
    float2 sum[TILE][8];
#pragma unroll
    for (int i = 0; i < TILE; i++)
#pragma unroll
        for (int q = 0; q < 8; q++) sum[i][q] = make_float2(0, 0);
#pragma unroll 1
    for (int64_t b = slice * SLICE; b < end; b++) {
        const series<const T> inputs = series_of(job, job.x, job.x_stride, b, d);
        const series<const T> gradients = series_of(job, job.g, job.g_stride, b, d);
#pragma unroll 1
        for (int64_t step = -TILE; first + step < blocks; step++) {
            /* the gradients run TILE blocks ahead of the inputs */
            const int64_t ahead = first + step + TILE;
            float x[8];
            float2 v[8];
            if (ahead < blocks) {
                take<FAR>(job, gradients, d, ahead * FAR, by.line, x);
                by.forward(x, v);
            }
            float2 *to = ring + ring_place(ahead);
#pragma unroll
            for (int q = 0; q < 8; q++)
                to[q * shape::THREADS] = ahead < blocks ? v[q] : make_float2(0, 0);
            if (step < 0) continue;
            take<FAR>(job, inputs, d, step * FAR, by.line, x);
            by.forward(x, v);
#pragma unroll
            for (int q = 0; q < 8; q++) {
                float2 later = to[q * shape::THREADS];
#pragma unroll
                for (int i = TILE - 1; i >= 0; i--) {
                    const float2 here = ring[ring_place(first + step + i) + q * shape::THREADS];
                    const float2 both = make_float2(here.x - later.y, here.y + later.x);
                    sum[i][q] = add_times(sum[i][q], make_float2(v[q].x, -v[q].y), both);
                    later = here;
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        if (first + i >= blocks) break;
        float2 *to =
            job.partial + ((slice * groups + group) * blocks + first + i) * shape::SPECTRUM;
#pragma unroll
        for (int q = 0; q < 8; q++) to[q * shape::THREADS + threadIdx.x] = sum[i][q];
    }
}

/* One block of lags: the slices in their order, and back. Lag 0 is the gradient of skip, too. */
template <typename T>
static __global__ void __launch_bounds__(shape_of<FAR>::THREADS)
    finish_kernel_gradient(const conv_job<T> job) {
    using shape = shape_of<FAR>;
    __shared__ float2 exchange[shape::EXCHANGE];
    const transformer<FAR> by(job.roots, exchange);
    const int64_t groups = ceil_div(job.D, shape::CHANNELS);
    const int64_t blocks = ceil_div(job.length, FAR);
    const int64_t group = blockIdx.x / blocks, block = blockIdx.x % blocks;
    const int64_t d = group * shape::CHANNELS + by.channel;
    float2 v[8];
    float lags[8];
#pragma unroll
    for (int q = 0; q < 8; q++) v[q] = make_float2(0, 0);
    for (int64_t slice = 0; slice < job.slices; slice++) {
        const float2 *from =
            job.partial + ((slice * groups + group) * blocks + block) * shape::SPECTRUM;
#pragma unroll
        for (int q = 0; q < 8; q++) v[q] = plus(v[q], from[q * shape::THREADS + threadIdx.x]);
    }
    by.back(v, lags);
    if (d >= job.D) return;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const int64_t lag = block * FAR + by.line + k * shape::LINES, s = lag - job.delay;
        const float value = lags[k] / FAR;
        if (job.dk != NULL && s >= 0 && s < job.taps) job.dk[d * job.k_stride + s] = value;
        if (job.dskip != NULL && lag == 0) job.dskip[d] += value;
    }
}

/* ---- on the host ---- */

static int64_t stride_of(const ls_tensor *tensor) {
    int64_t rows, width, stride = 0;
    ls_rows(tensor, &rows, &width, &stride);
    return stride;
}

/* Sizes alone: what the workspace depends on. */
template <typename T> static conv_job<T> sizes_of(const ls_node *node) {
    const ls_long_conv_attributes *about = (const ls_long_conv_attributes *)node->attributes;
    const ls_tensor *u = node->in[0], *k = node->in[1];
    conv_job<T> job = {};
    job.B = u->dim[0];
    job.length = u->dim[1];
    job.D = u->dim[2];
    job.delay = about->future ? 1 : 0;
    job.reversed = about->future;
    job.taps = ls_min(k->dim[1], job.length - job.delay);
    job.k_stride = k->dim[1];
    const int64_t reach = job.taps + job.delay;
    job.near_reach =
        ls_min(ls_min(FAR / NEAR, ceil_div(job.length, NEAR)) - 1, ceil_div(reach, NEAR));
    job.far_reach = ls_min(ceil_div(job.length, FAR) - 1, ceil_div(reach, FAR));
    job.slices = ceil_div(job.B, SLICE);
    return job;
}

/* Complex values of the spectra of the kernels, of a batch's sums; floats of sums of bf16. */
struct room {
    int64_t near_spectra, far_spectra, partial, sum;
};

template <typename T> static room room_of(const conv_job<T> *job, bool backward) {
    const int64_t near_groups = ceil_div(job->D, shape_of<NEAR>::CHANNELS);
    const int64_t far_groups = ceil_div(job->D, shape_of<FAR>::CHANNELS);
    room r = {};
    r.near_spectra = near_groups * job->near_reach * shape_of<NEAR>::SPECTRUM;
    r.far_spectra = far_groups * job->far_reach * shape_of<FAR>::SPECTRUM;
    if (backward)
        r.partial = job->slices * far_groups * ceil_div(job->length, FAR) * shape_of<FAR>::SPECTRUM;
    if (sizeof(T) != sizeof(float) && job->length > FAR) r.sum = job->B * job->length * job->D;
    return r;
}

template <typename T> static size_t bytes_of(const ls_node *node, bool backward) {
    const conv_job<T> job = sizes_of<T>(node);
    const room r = room_of(&job, backward);
    return (size_t)(ROOTS + r.near_spectra + r.far_spectra + r.partial) * sizeof(float2) +
           (size_t)r.sum * sizeof(float);
}

static size_t workspace_of(const ls_node *node, bool backward) {
    return node->in[0]->type == LS_BF16 ? bytes_of<ls_cuda_bf16>(node, backward)
                                        : bytes_of<float>(node, backward);
}
static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return workspace_of(node, false);
}
static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return workspace_of(node, true);
}

/* The job with its addresses, and the roots of unity. */
template <typename T>
static conv_job<T> begin(const ls_run *run, const ls_node *node, bool backward, const char *what) {
    conv_job<T> job = sizes_of<T>(node);
    const room r = room_of(&job, backward);
    job.k = (const float *)ls_data(node->in[1]);
    job.skip = node->in[2] == NULL ? NULL : (const float *)ls_data(node->in[2]);
    job.roots = (float2 *)run->workspace;
    job.near_spectra = job.roots + ROOTS;
    job.far_spectra = job.near_spectra + r.near_spectra;
    job.partial = job.far_spectra + r.far_spectra;
    job.sum = r.sum == 0 ? NULL : (float *)(job.partial + r.partial);
    job.sum_stride = job.D;
    make_roots<<<ROOTS / LS_CUDA_THREADS, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(job.roots);
    ls_cuda_launched(run, what);
    return job;
}

template <int M, typename T>
static void transform_kernels(const ls_run *run, const conv_job<T> *job, float2 *spectra,
                              int64_t reach, const char *what) {
    if (reach == 0) return;
    const int64_t blocks = ceil_div(job->D, shape_of<M>::CHANNELS) * reach;
    make_spectra<M><<<(unsigned)blocks, shape_of<M>::THREADS, 0, ls_cuda_of(run)->stream>>>(
        *job, spectra, reach);
    ls_cuda_launched(run, what);
}

/* y = x * k + skip x, in the job's order of time. */
static float *floats_at(float *y) {
    return y;
}
static float *floats_at(ls_cuda_bf16 *y) {
    (void)y;
    return NULL;
}
template <typename T>
static void convolve(const ls_run *run, conv_job<T> job, const ls_tensor *x, const ls_tensor *y,
                     const char *what) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    job.x = (const T *)ls_data(x);
    job.x_stride = stride_of(x);
    job.y = (T *)ls_data(y);
    job.y_stride = stride_of(y);
    if (job.sum == NULL) {
        job.sum = floats_at(job.y);
        job.sum_stride = job.y_stride;
    }
    transform_kernels<NEAR>(run, &job, job.near_spectra, job.near_reach, what);
    transform_kernels<FAR>(run, &job, job.far_spectra, job.far_reach, what);
    if (job.length > FAR) {
        far_kernel<<<(unsigned)tiles_of<FAR>(job), shape_of<FAR>::THREADS, 0, stream>>>(job);
        ls_cuda_launched(run, what);
    }
    near_kernel<<<(unsigned)tiles_of<NEAR>(job), shape_of<NEAR>::THREADS, 0, stream>>>(job);
    ls_cuda_launched(run, what);
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    conv_job<T> job = begin<T>(run, node, false, "long_conv");
    convolve(run, job, node->in[0], node->out[0], "long_conv");
}

template <typename T>
static void kernel_gradient(const ls_run *run, conv_job<T> job, const ls_node *node) {
    const ls_tensor *skip = node->in[2], *dk = node->out[1];
    ls_cuda *cuda = ls_cuda_of(run);
    if (skip != NULL && skip->needs_grad) job.dskip = (float *)ls_param_gradient(run, skip);
    if (dk != NULL) job.dk = (float *)ls_data(dk);
    if (job.dskip == NULL && job.dk == NULL) return;
    job.x = (const T *)ls_data(node->in[0]);
    job.x_stride = stride_of(node->in[0]);
    job.g = (const T *)ls_data(node->in[4]);
    job.g_stride = stride_of(node->in[4]);
    if (job.dk != NULL && job.taps < job.k_stride)
        ls_cuda_note(cuda,
                     cudaMemsetAsync(job.dk, 0, (size_t)(job.D * job.k_stride) * sizeof(float),
                                     cuda->stream),
                     "long_conv_grad");
    const int64_t groups = ceil_div(job.D, shape_of<FAR>::CHANNELS);
    const int64_t blocks = ceil_div(job.length, FAR), tiles = ceil_div(blocks, TILE);
    const size_t ring = RING * (size_t)shape_of<FAR>::SPECTRUM * sizeof(float2);
    ls_cuda_note(
        cuda,
        cudaFuncSetAttribute(correlate<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)ring),
        "long_conv_grad");
    correlate<<<(unsigned)(groups * tiles * job.slices), shape_of<FAR>::THREADS, ring,
                cuda->stream>>>(job);
    ls_cuda_launched(run, "long_conv_grad");
    finish_kernel_gradient<<<(unsigned)(groups * blocks), shape_of<FAR>::THREADS, 0,
                             cuda->stream>>>(job);
    ls_cuda_launched(run, "long_conv_grad");
}

/* du is the gradient convolved with the kernel, backwards in time. */
template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    conv_job<T> job = begin<T>(run, node, true, "long_conv_grad");
    if (node->out[0] != NULL) {
        conv_job<T> back = job;
        back.reversed = !job.reversed;
        convolve(run, back, node->in[4], node->out[0], "long_conv_grad");
    }
    kernel_gradient(run, job, node);
}

LS_CUDA_DECLARE_TABLE(long_conv);
const ls_kernel LS_CUDA_TABLE(long_conv)[] = {
    {"long_conv", {NULL, forward<float>, forward<ls_cuda_bf16>}, forward_workspace},
    {"long_conv_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
