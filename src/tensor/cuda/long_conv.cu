/* Convolution along time with kernels as long as the sequence, and its gradients.
 *
 * As on the processor a block of inputs acts only on outputs behind it, so that results are causal
 * to the bit. Within spans of 512 times products are summed as defined (lib/long_conv_near.cu);
 * spans act on all later ones here, through transforms modulo x^512 - i (see
 * tensor/cpu/long_conv.c), whose real part is what we want and which need no padding. A block of
 * threads has four neighbouring channels and a few spans of results: it transforms one span of
 * inputs after the other in registers, eight values to a thread, while the next one comes, and
 * multiplies with the kernel's spectra; the sums are then transformed back. Spectra of inputs are
 * never stored. It does so for a few sequences, one after the other, so that the kernel's spectra
 * are found in shared memory, where they fit, or in the nearest cache.
 *
 * The kernel's gradient has no causality to keep: it is a correlation of blocks of 512, whose
 * spectra are summed over the batch, so that only the sums are transformed back.
 *
 * The work on spans grows with the square of the length and is most of it from some ten thousand
 * tokens on.
 * Workspace: 8 bytes for each value of the kernels, backward as much again for every 8 sequences;
 * in bf16, from 513 tokens on, 4 for each value of the output. */
#include "tensor/cuda/lib/long_conv.h"

extern "C" {
#include "tensor/long_conv.h"
}

enum {
    FAR = LS_CONV_SPAN,
    CHANNELS = 4,
    LINES = FAR / 8, /* of CHANNELS threads; line l has the values l, l + LINES, ... of a block */
    THREADS = LINES * CHANNELS,
    SPECTRUM = FAR * CHANNELS, /* complex values of one spectrum, of all its channels */
    EXCHANGE = SPECTRUM + SPECTRUM / 8,
    ROOTS = 4 * FAR,
    SLICE = 8, /* sequences whose spectra are summed by one block of threads */
    LAGS = 4   /* blocks of lags that are summed at once */
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
/* a + part b */
static __device__ __forceinline__ float2 plus_part(float2 a, float part, float2 b) {
    return make_float2(fmaf(part, b.x, a.x), fmaf(part, b.y, a.y));
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
    float2 even[4], odd[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        even[k] = plus(v[k], v[k + 4]);
        odd[k] = minus(v[k], v[k + 4]);
    }
    const float2 a = plus(even[0], even[2]), b = minus(even[0], even[2]);
    const float2 c = plus(even[1], even[3]), d = quarter<SIGN>(minus(even[1], even[3]));
    v[0] = plus(a, c);
    v[2] = plus(b, d);
    v[4] = minus(a, c);
    v[6] = minus(b, d);
    /* odd[1] and odd[3] by an eighth and three eighths of a turn, without their factor `half` */
    const float2 once = plus(odd[1], quarter<SIGN>(odd[1]));
    const float2 thrice = minus(quarter<SIGN>(odd[3]), odd[3]);
    const float2 e = plus(odd[0], quarter<SIGN>(odd[2]));
    const float2 f = minus(odd[0], quarter<SIGN>(odd[2]));
    const float2 g = plus(once, thrice), h = quarter<SIGN>(minus(once, thrice));
    v[1] = plus_part(e, half, g);
    v[3] = plus_part(f, half, h);
    v[5] = plus_part(e, -half, g);
    v[7] = plus_part(f, -half, h);
}

/* ---- transforms of blocks of 512, by radix 8; spectra are in the order of reversed digits ---- */

/* Products modulo x^512 - i become cyclic by weights exp(2 pi i j / 2048): those of a thread's
 * values are these times the first's, which the first turns have in them. */
static __device__ __forceinline__ constexpr float2 weight(int k) {
    constexpr float cosine[9] = {1.0f,
                                 0.98078528040323045f,
                                 0.92387953251128676f,
                                 0.83146961230254524f,
                                 0.70710678118654752f,
                                 0.55557023301960222f,
                                 0.38268343236508977f,
                                 0.19509032201612827f,
                                 0.0f};
    return {cosine[k], cosine[8 - k]};
}

struct transform_memory {
    /* Through which threads exchange their values. One transform uses one half and the next the
     * other: so each has to wait for all threads only once. Without gaps in the lines, fours of
     * channels would meet in the same banks. */
    float2 exchange[2][EXCHANGE];
    float2 first_turn[8][LINES], second_turn[8][8];
};

/* HELD: the turns are kept in registers, where there are enough of them. */
template <bool HELD> struct transformer {
    int line, channel;
    transform_memory &shared;
    float2 first[8], second[8];

    __device__ __forceinline__ transformer(const float2 *roots, transform_memory &memory)
        : line((int)threadIdx.x / CHANNELS), channel((int)threadIdx.x % CHANNELS), shared(memory) {
        for (int at = (int)threadIdx.x; at < 8 * LINES; at += THREADS) {
            const int q = at / LINES, l = at % LINES;
            shared.first_turn[q][l] = roots[(4 * q - 1) * l & (ROOTS - 1)];
            if (at < 64)
                shared.second_turn[at / 8][at % 8] = roots[at / 8 * (at % 8) * (ROOTS / 64)];
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < 8; q++) {
            first[q] = shared.first_turn[q][line];
            second[q] = shared.second_turn[q][line % 8];
        }
    }
    __device__ __forceinline__ float2 first_turn(int q) const {
        return HELD ? first[q] : shared.first_turn[q][line];
    }
    __device__ __forceinline__ float2 second_turn(int q) const {
        return HELD ? second[q] : shared.second_turn[q][line % 8];
    }

    /* Where value k of this line's share of a pass over parts of n is: each eighth value is
     * followed by a gap; written so that k adds a constant. */
    __device__ __forceinline__ float2 &place(int half, int n, int k) const {
        const int part = n / 8, at = line / part * n + line % part;
        return shared
            .exchange[half][(at + at / 8) * CHANNELS + channel + k * (part + part / 8) * CHANNELS];
    }
    __device__ __forceinline__ void write(int half, int n, const float2 (&v)[8]) const {
#pragma unroll
        for (int k = 0; k < 8; k++) place(half, n, k) = v[k];
    }
    __device__ __forceinline__ void read(int half, int n, float2 (&v)[8]) const {
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = place(half, n, k);
    }
    /* Of values times `weight`, through a half of the memory. Parts of 64 of them are a warp's own:
     * threads of the others need not be waited for. */
    __device__ __forceinline__ void forward(float2 (&v)[8], int half) const {
        eight<-1>(v);
#pragma unroll
        for (int q = 0; q < 8; q++) v[q] = conjugate_times(first_turn(q), v[q]);
        write(half, FAR, v);
        __syncthreads();
        read(half, FAR / 8, v);
        eight<-1>(v);
#pragma unroll
        for (int q = 1; q < 8; q++) v[q] = conjugate_times(second_turn(q), v[q]);
        __syncwarp();
        write(half, FAR / 8, v);
        __syncwarp();
        read(half, FAR / 64, v);
        eight<-1>(v);
    }
    /* The real part of the way back, without the factor 1/512. */
    __device__ __forceinline__ void back(float2 (&v)[8], float (&x)[8], int half) const {
        eight<1>(v);
        write(half, FAR / 64, v);
        __syncwarp();
        read(half, FAR / 8, v);
#pragma unroll
        for (int q = 1; q < 8; q++) v[q] = times(second_turn(q), v[q]);
        eight<1>(v);
        __syncwarp();
        write(half, FAR / 8, v);
        __syncthreads();
        read(half, FAR, v);
#pragma unroll
        for (int q = 0; q < 8; q++) v[q] = times(first_turn(q), v[q]);
        eight<1>(v);
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = v[k].x * weight(k).x + v[k].y * weight(k).y;
    }
};

static __global__ void __launch_bounds__(LS_CUDA_THREADS) make_roots(float2 *roots) {
    const int j = (int)(blockIdx.x * LS_CUDA_THREADS + threadIdx.x);
    double re, im;
    sincospi(2.0 * j / ROOTS, &im, &re);
    if (j < ROOTS) roots[j] = make_float2((float)re, (float)im);
}

/* ---- spectra of the kernels ---- */

/* For every distance r = 1..reach in blocks the spectrum of k_r - i k_{r-1}, whose product with a
 * block of inputs has in its real part all that these give to the block r further on. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) make_spectra(const ls_conv_job<T> job) {
    __shared__ transform_memory memory;
    const transformer<false> by(job.roots, memory);
    const int64_t group = blockIdx.x / job.reach, r = 1 + blockIdx.x % job.reach;
    const int64_t d = group * CHANNELS + by.channel;
    float2 v[8];
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const int64_t s = r * FAR + by.line + k * LINES;
        const float2 value =
            make_float2(ls_conv_kernel_at(job, d, s), -ls_conv_kernel_at(job, d, s - FAR));
        v[k] = times(make_float2(weight(k).x / FAR, weight(k).y / FAR), value);
    }
    by.forward(v, 0);
    float2 *to = job.spectra + (group * job.reach + r - 1) * SPECTRUM + threadIdx.x;
#pragma unroll
    for (int q = 0; q < 8; q++) to[q * THREADS] = v[q];
}

/* ---- spans on later spans ---- */

/* A thread's values of a channel of a sequence, which begin at its line: value k of a block is
 * `k * apart` after the first. */
template <typename E> struct series {
    E *first;
    int64_t apart;
    int left; /* times from the first to the end; 0 where there is no such channel */

    __device__ __forceinline__ E *block(int number) const { return first + number * (8 * apart); }
};
template <typename E, typename T>
static __device__ __forceinline__ series<E>
series_of(const ls_conv_job<T> &job, E *data, int64_t stride, int64_t b, int64_t d, int line) {
    return {data + ls_conv_row(job, b, line) * stride + (d < job.D ? d : job.D - 1),
            job.reversed ? -LINES * stride : LINES * stride,
            d < job.D ? (int)job.length - line : 0};
}

/* A thread's values of a block that has them all. Each is needed once. They are as they come: to
 * use them would be to wait for them. */
template <typename T>
static __device__ __forceinline__ void take(const T *at, int64_t apart, T (&x)[8]) {
#pragma unroll
    for (int k = 0; k < 8; k++, at += apart) x[k] = __ldcs(at);
}
/* Of any block; zeros past the end. */
template <typename T>
static __device__ __forceinline__ void take_some(const series<const T> &from, int block,
                                                 T (&x)[8]) {
    const int left = from.left - block * FAR;
    const T *at = from.block(block);
#pragma unroll
    for (int k = 0; k < 8; k++, at += from.apart)
        x[k] = k * LINES < left ? __ldcs(at) : ls_cuda_narrow<T>(0);
}
/* Of one of BLOCKS blocks: only the last may end early. */
template <int BLOCKS, typename T>
static __device__ __forceinline__ void take_next(const series<const T> &from, int block,
                                                 T (&x)[8]) {
    if (block + 1 == BLOCKS)
        take_some(from, block, x);
    else
        take(from.block(block), from.apart, x);
}
static __device__ __forceinline__ void put(const series<float> &to, int block,
                                           const float (&y)[8]) {
    const int left = to.left - block * FAR;
    float *at = to.block(block);
#pragma unroll
    for (int k = 0; k < 8; k++, at += to.apart)
        if (k * LINES < left) *at = y[k];
}
template <typename T>
static __device__ __forceinline__ void weigh(const T (&x)[8], float2 (&v)[8]) {
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float value = ls_cuda_wide(x[k]);
        v[k] = make_float2(value * weight(k).x, value * weight(k).y);
    }
}
template <int N> static __device__ __forceinline__ void clear(float2 (&sum)[N][8]) {
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int q = 0; q < 8; q++) sum[i][q] = make_float2(0, 0);
}

/* Up to 2,048 tokens, SPANS of results: spectra of the inputs stay in registers, where they become
 * those of the results; v[s] is of inputs s and of results s + 1. REACH of the kernel's are kept in
 * shared memory: further ones are not multiplied by zero, as inputs may be no numbers. */
enum { SPANS_MOST = 3 };

template <int REACH, int SPANS>
static __device__ __forceinline__ void become_results(const float2 *kept, float2 (&v)[SPANS][8]) {
#pragma unroll
    for (int q = 0; q < 8; q++) {
        float2 k[REACH];
#pragma unroll
        for (int r = 0; r < REACH; r++) k[r] = kept[r * SPECTRUM + q * THREADS + threadIdx.x];
#pragma unroll
        for (int s = SPANS - 1; s >= 0; s--) {
            v[s][q] = times(v[s][q], k[0]);
#pragma unroll
            for (int r = 1; r <= s && r < REACH; r++)
                v[s][q] = add_times(v[s][q], v[s - r][q], k[r]);
        }
    }
}

template <int SPANS, typename T>
static __global__ void __launch_bounds__(THREADS, 2)
    few_spans_kernel(const ls_conv_job<T> job, int together) {
    __shared__ transform_memory memory;
    extern __shared__ float2 kept[]; /* [reach][8][THREADS]: what a thread writes it alone reads */
    const unsigned groups = (unsigned)ls_conv_ceil_div(job.D, CHANNELS);
    const int reach = (int)job.reach;
    const int64_t group = blockIdx.x % groups;
    const int begin = (int)(blockIdx.x / groups) * together;
    const int end = begin + together < job.B ? begin + together : (int)job.B;
    const transformer<true> by(job.roots, memory);
    const int64_t d = group * CHANNELS + by.channel;
    series<const T> inputs = series_of(job, job.x, job.x_stride, begin, d, by.line);
    series<float> results = series_of(job, job.sum, job.sum_stride, begin, d, by.line);
    T x[8]; /* the next block of inputs, which comes while this one is transformed */
    take(inputs.first, inputs.apart, x);
    const float2 *spectra = job.spectra + group * reach * SPECTRUM + threadIdx.x;
#pragma unroll 1
    for (int r = 0; r < reach; r++)
#pragma unroll
        for (int q = 0; q < 8; q++) {
            const int at = r * SPECTRUM + q * THREADS;
            kept[at + threadIdx.x] = spectra[at];
        }
#pragma unroll 1
    for (int b = begin; b < end; b++) {
        float2 v[SPANS][8];
        /* Results come in reversed order: so the halves of the memory change with each transform,
         * to the first of the next sequence, too. */
#pragma unroll
        for (int j = 0; j < SPANS; j++) {
            weigh(x, v[j]);
            if (j + 1 == SPANS && b + 1 < end) inputs.first += job.length * job.x_stride;
            take(inputs.block((j + 1) % SPANS), inputs.apart, x);
            by.forward(v[j], j % 2);
        }
        if (reach == SPANS)
            become_results<SPANS>(kept, v);
        else if (reach == 2)
            become_results<2>(kept, v);
        else
            become_results<1>(kept, v);
#pragma unroll
        for (int s = SPANS; s > 0; s--) {
            float y[8];
            by.back(v[s - 1], y, s % 2);
            put(results, s, y);
        }
        results.first += job.length * job.sum_stride;
    }
}

/* Any number of spans: TILE of results, from the second span on, of `together` sequences. */
enum { TILE = 4 };

template <typename T>
static __global__ void __launch_bounds__(THREADS, 2)
    many_spans_kernel(const ls_conv_job<T> job, int together) {
    __shared__ transform_memory memory;
    const unsigned groups = (unsigned)ls_conv_ceil_div(job.D, CHANNELS);
    const int reach = (int)job.reach, later = (int)ls_conv_ceil_div(job.length, FAR) - 1;
    const unsigned tiles = (unsigned)ls_conv_ceil_div(later, TILE);
    const int64_t group = blockIdx.x % groups;
    const int first = 1 + (int)(blockIdx.x / groups % tiles) * TILE;
    const int last = first + TILE <= later ? first + TILE - 1 : later;
    const int first_input = first > reach ? first - reach : 0;
    const int begin = (int)(blockIdx.x / groups / tiles) * together;
    const int end = begin + together < job.B ? begin + together : (int)job.B;
    const transformer<false> by(job.roots, memory);
    const int64_t d = group * CHANNELS + by.channel;
    const float2 *spectra = job.spectra + group * reach * SPECTRUM + threadIdx.x;
    series<const T> inputs = series_of(job, job.x, job.x_stride, begin, d, by.line);
    series<float> results = series_of(job, job.sum, job.sum_stride, begin, d, by.line);
    int half = 0;
    T x[8]; /* the next block of inputs, which comes while this one is transformed */
    take(inputs.block(first_input), inputs.apart, x);
#pragma unroll 1
    for (int b = begin; b < end; b++) {
        float2 sum[TILE][8];
        clear(sum);
#pragma unroll 1
        for (int j = first_input; j < last; j++) {
            float2 v[8];
            weigh(x, v);
            const bool more = j + 1 < last;
            if (!more) inputs.first += job.length * job.x_stride;
            if (more || b + 1 < end)
                take(inputs.block(more ? j + 1 : first_input), inputs.apart, x);
            by.forward(v, half);
            half ^= 1;
#pragma unroll
            for (int i = 0; i < TILE; i++) {
                const int r = first + i - j;
                if (r < 1 || r > reach || first + i > last) continue;
                const float2 *k = spectra + (int64_t)(r - 1) * SPECTRUM;
#pragma unroll
                for (int q = 0; q < 8; q++)
                    sum[i][q] = add_times(sum[i][q], v[q], __ldg(k + q * THREADS));
            }
        }
        /* the sums move up: so the loop is not unrolled and has one copy of the transform */
#pragma unroll 1
        for (int s = first; s <= last; s++) {
            float y[8];
            by.back(sum[0], y, half);
            half ^= 1;
#pragma unroll
            for (int i = 0; i + 1 < TILE; i++)
#pragma unroll
                for (int q = 0; q < 8; q++) sum[i][q] = sum[i + 1][q];
            put(results, s, y);
        }
        results.first += job.length * job.sum_stride;
    }
}

/* ---- the kernel's gradient ----
 *
 * Of the spectra U of the inputs and G of the gradients, P_p is the sum over sequences and blocks j
 * of conj(U_j) G_{j+p}. Lags 512 p .. 512 p + 511 have the real part of P_p + i P_{p+1}: of a lag
 * that is too short by up to 512, or too long, the power of x is i or -i times another. */

/* Where a thread has the first of its values of a block's spectrum in a ring of spectra
 * [LAGS][8][THREADS]; what a thread writes it alone reads. */
static __device__ __forceinline__ unsigned ring_place(int block) {
    return (unsigned)block % LAGS * (unsigned)SPECTRUM + threadIdx.x;
}
static __device__ __forceinline__ void keep(const float2 (&v)[8], float2 *ring, int block) {
    float2 *to = ring + ring_place(block);
#pragma unroll
    for (int q = 0; q < 8; q++) to[q * THREADS] = v[q];
}
/* sum += conj(v) times the spectrum of a block. */
static __device__ __forceinline__ void meet(const float2 (&v)[8], const float2 *ring, int block,
                                            float2 (&sum)[8]) {
    const float2 *from = ring + ring_place(block);
#pragma unroll
    for (int q = 0; q < 8; q++)
        sum[q] = add_times(sum[q], make_float2(v[q].x, -v[q].y), from[q * THREADS]);
}

/* A block of threads sums P_first, P_{first+1}, ... of a slice of the batch. */
struct correlation {
    unsigned groups, group, tile, slice;
    int64_t begin;
    int count;

    template <typename T>
    __device__ __forceinline__ correlation(const ls_conv_job<T> &job, unsigned tiles)
        : groups((unsigned)ls_conv_ceil_div(job.D, CHANNELS)), group(blockIdx.x % groups),
          tile(blockIdx.x / groups % tiles), slice(blockIdx.x / groups / tiles),
          begin((int64_t)slice * SLICE),
          count(begin + SLICE < job.B ? SLICE : (int)(job.B - begin)) {}

    template <typename T, int N>
    __device__ __forceinline__ void store(const ls_conv_job<T> &job, int first, int blocks,
                                          const float2 (&sum)[N][8]) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (first + i >= blocks) break;
            float2 *to =
                job.partial + (((int64_t)slice * groups + group) * blocks + first + i) * SPECTRUM;
#pragma unroll
            for (int q = 0; q < 8; q++) to[q * THREADS + threadIdx.x] = sum[i][q];
        }
    }
};

/* Up to 2,048 tokens: all BLOCKS of gradients, then all of inputs. */
template <int BLOCKS, typename T>
static __global__ void __launch_bounds__(THREADS, 2) correlate_few(const ls_conv_job<T> job) {
    __shared__ transform_memory memory;
    extern __shared__ float2 ring[];
    const correlation own(job, 1);
    const transformer<false> by(job.roots, memory);
    const int64_t d = (int64_t)own.group * CHANNELS + by.channel;
    series<const T> inputs = series_of(job, job.x, job.x_stride, own.begin, d, by.line);
    series<const T> gradients = series_of(job, job.g, job.g_stride, own.begin, d, by.line);
    T x[8]; /* the next block, which comes while this one is transformed */
    take_some(gradients, 0, x);
    float2 sum[BLOCKS][8];
    clear(sum);
#pragma unroll 1
    for (int b = 0; b < own.count; b++) {
#pragma unroll
        for (int n = 0; n < 2 * BLOCKS; n++) {
            float2 v[8];
            weigh(x, v);
            if (n + 1 < BLOCKS) {
                take_next<BLOCKS>(gradients, n + 1, x);
            } else if (n + 1 < 2 * BLOCKS) {
                take_next<BLOCKS>(inputs, n + 1 - BLOCKS, x);
            } else {
                if (b + 1 < own.count) {
                    inputs.first += job.length * job.x_stride;
                    gradients.first += job.length * job.g_stride;
                }
                take_next<BLOCKS>(gradients, 0, x);
            }
            by.forward(v, n % 2);
            if (n < BLOCKS) keep(v, ring, n);
#pragma unroll
            for (int block = n - BLOCKS; n >= BLOCKS && block < BLOCKS; block++)
                meet(v, ring, block, sum[block - n + BLOCKS]);
        }
    }
    own.store(job, 0, BLOCKS, sum);
}

/* Any number of blocks. */
template <typename T>
static __global__ void __launch_bounds__(THREADS, 2) correlate_many(const ls_conv_job<T> job) {
    __shared__ transform_memory memory;
    extern __shared__ float2 ring[];
    const int blocks = (int)ls_conv_ceil_div(job.length, FAR);
    const correlation own(job, (unsigned)ls_conv_ceil_div(blocks, LAGS));
    const int first = (int)own.tile * LAGS;
    const transformer<false> by(job.roots, memory);
    const int64_t d = (int64_t)own.group * CHANNELS + by.channel;
    series<const T> inputs = series_of(job, job.x, job.x_stride, own.begin, d, by.line);
    series<const T> gradients = series_of(job, job.g, job.g_stride, own.begin, d, by.line);
    T x[8], g[8]; /* the next blocks, which come while others are transformed */
    take_some(gradients, first, g);
    take_some(inputs, 0, x);
    float2 sum[LAGS][8];
    clear(sum);
    int half = 0;
#pragma unroll 1
    for (int b = 0; b < own.count; b++) {
#pragma unroll 1
        for (int step = 1 - LAGS; step < blocks - first; step++) {
            const int ahead = first + step + LAGS - 1; /* the gradients run ahead of the inputs */
            float2 v[8];
            if (ahead < blocks) {
                weigh(g, v);
                const bool more = ahead + 1 < blocks;
                if (!more && b + 1 < own.count) gradients.first += job.length * job.g_stride;
                take_some(gradients, more ? ahead + 1 : first, g);
                by.forward(v, half);
                half ^= 1;
                keep(v, ring, ahead);
            }
            if (step < 0) continue;
            weigh(x, v);
            const bool more = first + step + 1 < blocks;
            if (!more && b + 1 < own.count) inputs.first += job.length * job.x_stride;
            take_some(inputs, more ? step + 1 : 0, x);
            by.forward(v, half);
            half ^= 1;
#pragma unroll
            for (int i = 0; i < LAGS; i++)
                if (first + step + i < blocks) meet(v, ring, first + step + i, sum[i]);
        }
    }
    own.store(job, first, blocks, sum);
}

/* One block of lags: the slices in their order, and back. Lag 0 is the gradient of skip, too. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) finish_kernel_gradient(const ls_conv_job<T> job) {
    __shared__ transform_memory memory;
    const transformer<false> by(job.roots, memory);
    const int64_t groups = ls_conv_ceil_div(job.D, CHANNELS);
    const int64_t blocks = ls_conv_ceil_div(job.length, FAR);
    const int64_t group = blockIdx.x / blocks, block = blockIdx.x % blocks;
    const int64_t d = group * CHANNELS + by.channel;
    float2 sum[2][8]; /* P of this block and of the next */
    clear(sum);
    for (int64_t slice = 0; slice < job.slices; slice++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (block + i >= blocks) break;
            const float2 *from =
                job.partial + ((slice * groups + group) * blocks + block + i) * SPECTRUM;
#pragma unroll
            for (int q = 0; q < 8; q++)
                sum[i][q] = plus(sum[i][q], from[q * THREADS + threadIdx.x]);
        }
    float2 v[8];
    float lags[8];
#pragma unroll
    for (int q = 0; q < 8; q++) v[q] = plus(sum[0][q], quarter<1>(sum[1][q]));
    by.back(v, lags, 0);
    if (d >= job.D) return;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const int64_t lag = block * FAR + by.line + k * LINES, s = lag - job.delay;
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
template <typename T> static ls_conv_job<T> sizes_of(const ls_node *node) {
    const ls_long_conv_attributes *about = (const ls_long_conv_attributes *)node->attributes;
    const ls_tensor *u = node->in[0], *k = node->in[1];
    ls_conv_job<T> job = {};
    job.B = u->dim[0];
    job.length = u->dim[1];
    job.D = u->dim[2];
    job.delay = about->future ? 1 : 0;
    job.reversed = about->future;
    job.taps = ls_min(k->dim[1], job.length - job.delay);
    job.k_stride = k->dim[1];
    const int64_t reach = job.taps + job.delay;
    job.reach = ls_min(ls_conv_ceil_div(job.length, FAR) - 1, ls_conv_ceil_div(reach, FAR));
    job.slices = ls_conv_ceil_div(job.B, SLICE);
    return job;
}

/* Complex values of the spectra of the kernels, of a batch's sums; floats of sums of bf16. */
struct room {
    int64_t spectra, partial, sum;
};

template <typename T> static room room_of(const ls_conv_job<T> *job, bool backward) {
    const int64_t groups = ls_conv_ceil_div(job->D, CHANNELS);
    room r = {};
    r.spectra = groups * job->reach * SPECTRUM;
    if (backward) r.partial = job->slices * groups * ls_conv_ceil_div(job->length, FAR) * SPECTRUM;
    if (sizeof(T) != sizeof(float) && job->length > FAR) r.sum = job->B * job->length * job->D;
    return r;
}

template <typename T> static size_t bytes_of(const ls_node *node, bool backward) {
    const ls_conv_job<T> job = sizes_of<T>(node);
    const room r = room_of(&job, backward);
    return (size_t)(ROOTS + r.spectra + r.partial) * sizeof(float2) + (size_t)r.sum * sizeof(float);
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
static ls_conv_job<T> begin(const ls_run *run, const ls_node *node, bool backward,
                            const char *what) {
    ls_conv_job<T> job = sizes_of<T>(node);
    const room r = room_of(&job, backward);
    job.k = (const float *)ls_data(node->in[1]);
    job.skip = node->in[2] == NULL ? NULL : (const float *)ls_data(node->in[2]);
    job.roots = (float2 *)run->workspace;
    job.spectra = job.roots + ROOTS;
    job.partial = job.spectra + r.spectra;
    job.sum = r.sum == 0 ? NULL : (float *)(job.partial + r.partial);
    job.sum_stride = job.D;
    make_roots<<<ROOTS / LS_CUDA_THREADS, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(job.roots);
    ls_cuda_launched(run, what);
    return job;
}

/* Sequences of one block of threads, so that the last of the rounds in which a device takes
 * `at_once` blocks is not nearly empty; to begin a block takes as long as a sequence, or less. */
static int64_t sequences_together(int64_t B, int64_t blocks, int64_t at_once) {
    int64_t best = 1, least = INT64_MAX;
    for (int64_t together = 1; together <= ls_min(B, 32); together++) {
        const int64_t rounds = ls_conv_ceil_div(blocks * ls_conv_ceil_div(B, together), at_once);
        if (rounds * (together + 1) >= least) continue;
        least = rounds * (together + 1);
        best = together;
    }
    return best;
}

template <int SPANS, typename T>
static void convolve_few(const ls_run *run, const ls_conv_job<T> *job, const char *what) {
    ls_cuda *cuda = ls_cuda_of(run);
    const int64_t groups = ls_conv_ceil_div(job->D, CHANNELS);
    const int64_t together = sequences_together(job->B, groups, 2 * cuda->processors);
    const unsigned blocks = (unsigned)(groups * ls_conv_ceil_div(job->B, together));
    const size_t kept = (size_t)(job->reach * SPECTRUM) * sizeof(float2);
    ls_conv_allow_shared(run, few_spans_kernel<SPANS, T>, kept, what);
    few_spans_kernel<SPANS><<<blocks, THREADS, kept, cuda->stream>>>(*job, (int)together);
    ls_cuda_launched(run, what);
}
template <typename T>
static void convolve_many(const ls_run *run, const ls_conv_job<T> *job, int64_t spans,
                          const char *what) {
    ls_cuda *cuda = ls_cuda_of(run);
    const int64_t tiles = ls_conv_ceil_div(job->D, CHANNELS) * ls_conv_ceil_div(spans, TILE);
    /* a few sequences find the kernel's spectra in the nearest cache, as long as there are enough
     * blocks */
    const int64_t together = ls_max(1, ls_min(4, job->B * tiles / (8 * cuda->processors)));
    const unsigned blocks = (unsigned)(tiles * ls_conv_ceil_div(job->B, together));
    many_spans_kernel<<<blocks, THREADS, 0, cuda->stream>>>(*job, (int)together);
    ls_cuda_launched(run, what);
}

/* Spans on later spans. */
template <typename T>
static void convolve_far(const ls_run *run, const ls_conv_job<T> *job, const char *what) {
    const int64_t groups = ls_conv_ceil_div(job->D, CHANNELS);
    const int64_t spans = ls_conv_ceil_div(job->length, FAR) - 1; /* of results */
    if (spans == 0) return;
    make_spectra<<<(unsigned)(groups * job->reach), THREADS, 0, ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, what);
    if (spans == 1)
        convolve_few<1>(run, job, what);
    else if (spans == 2)
        convolve_few<2>(run, job, what);
    else if (spans == SPANS_MOST)
        convolve_few<SPANS_MOST>(run, job, what);
    else
        convolve_many(run, job, spans, what);
}

static float *floats_at(float *y) {
    return y;
}
static float *floats_at(ls_cuda_bf16 *y) {
    (void)y;
    return NULL;
}
template <typename E> static bool in_fours(const E *first, int64_t stride) {
    return (uintptr_t)first % (4 * sizeof(E)) == 0 && stride % 4 == 0;
}

/* y = x * k + skip x, in the job's order of time. */
template <typename T>
static void convolve(const ls_run *run, ls_conv_job<T> job, const ls_tensor *x, const ls_tensor *y,
                     const char *what) {
    job.x = (const T *)ls_data(x);
    job.x_stride = stride_of(x);
    job.y = (T *)ls_data(y);
    job.y_stride = stride_of(y);
    if (job.sum == NULL) {
        job.sum = floats_at(job.y);
        job.sum_stride = job.y_stride;
    }
    job.in_fours = job.D % 4 == 0 && in_fours(job.x, job.x_stride) &&
                   in_fours(job.y, job.y_stride) && in_fours(job.sum, job.sum_stride);
    convolve_far(run, &job, what);
    ls_cuda_conv_within_spans(run, &job, what);
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    ls_conv_job<T> job = begin<T>(run, node, false, "long_conv");
    convolve(run, job, node->in[0], node->out[0], "long_conv");
}

template <typename T>
static void correlate_with(const ls_run *run, void (*kernel)(ls_conv_job<T>),
                           const ls_conv_job<T> &job, int64_t blocks) {
    const size_t ring = LAGS * (size_t)SPECTRUM * sizeof(float2);
    ls_conv_allow_shared(run, kernel, ring, "long_conv_grad");
    kernel<<<(unsigned)blocks, THREADS, ring, ls_cuda_of(run)->stream>>>(job);
    ls_cuda_launched(run, "long_conv_grad");
}
template <typename T> static void correlate(const ls_run *run, const ls_conv_job<T> &job) {
    const int64_t blocks = ls_conv_ceil_div(job.length, FAR);
    const int64_t parts = ls_conv_ceil_div(job.D, CHANNELS) * job.slices;
    if (blocks == 1)
        correlate_with(run, correlate_few<1, T>, job, parts);
    else if (blocks == 2)
        correlate_with(run, correlate_few<2, T>, job, parts);
    else if (blocks == 3)
        correlate_with(run, correlate_few<3, T>, job, parts);
    else if (blocks == LAGS)
        correlate_with(run, correlate_few<LAGS, T>, job, parts);
    else
        correlate_with(run, correlate_many<T>, job, parts * ls_conv_ceil_div(blocks, LAGS));
}

template <typename T>
static void kernel_gradient(const ls_run *run, ls_conv_job<T> job, const ls_node *node) {
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
    const int64_t groups = ls_conv_ceil_div(job.D, CHANNELS);
    const int64_t blocks = ls_conv_ceil_div(job.length, FAR);
    correlate(run, job);
    finish_kernel_gradient<<<(unsigned)(groups * blocks), THREADS, 0, cuda->stream>>>(job);
    ls_cuda_launched(run, "long_conv_grad");
}

/* du is the gradient convolved with the kernel, backwards in time. */
template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    ls_conv_job<T> job = begin<T>(run, node, true, "long_conv_grad");
    if (node->out[0] != NULL) {
        ls_conv_job<T> back = job;
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
