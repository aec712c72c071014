/* Convolution along time with kernels as long as the sequence, and its gradients.
 *
 * Up to LS_CONV_DIRECT times products are summed as they are defined. Longer sequences go through
 * transforms of N values, the next power of 2: modulo x^N - i (see tensor/cpu/long_conv.c), where
 * the real part of a product is what we want and nothing is padded. Up to WHOLE values a block of
 * threads does all of it in shared memory, sequence after sequence, beside the kernel's spectra.
 * Longer ones are first cut into parts of WHOLE values by passes over all of them, of up to 16
 * values at a time. They are kept in a workspace that is small enough for the caches: a few
 * channels of a few sequences after the other. Time is n log n at any length.
 *
 * With the spectra U, K and G of inputs, kernels and gradients of the outputs, results are U K, the
 * inputs' gradients conj(K) G and the kernels' conj(U) G, summed over the batch; towards the future
 * the kernel is conj(K).
 *
 * A transform mixes all times: beyond LS_CONV_DIRECT of them an input moves earlier results, too,
 * by what they are rounded, and one that is no number spoils its whole channel. (On the processor
 * nothing of the future gets into the past.) */
#include "tensor/cuda/lib/block_transform.h"
#include "tensor/cuda/lib/rows.h"

extern "C" {
#include "tensor/long_conv.h"
}

enum {
    CHANNELS = TRANSFORM_CHANNELS,
    VALUES = TRANSFORM_VALUES,
    SMALLEST = 512,
    WHOLE = 2048, /* where there is enough shared memory, else half of it */
    SLICE = 8,    /* sequences that a block of threads correlates and sums */
    /* complex values of all channels of a sequence in a slab, and sequences: 32 MiB in all */
    SLAB_VALUES = 1 << 20,
    SLAB_SEQUENCES = 4
};

static __host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* ---- operands ---- */

/* Real values of (sequence, time, channel); zeros before time `first`, after `count` more, and of
 * channels from D on. */
template <typename E> struct series {
    E *data;
    int64_t by_sequence, by_time, by_channel;
    int64_t first, count, D;

    __device__ __forceinline__ bool has(int64_t time, int64_t d) const {
        return time >= first && time - first < count && d < D;
    }
    __device__ __forceinline__ E *at(int64_t b, int64_t time, int64_t d) const {
        return data + b * by_sequence + (time - first) * by_time + d * by_channel;
    }
};

/* Complex ones: [sequence][N][width]. */
struct plane {
    float2 *data;
    int64_t N, width;

    __device__ __forceinline__ float2 *at(int64_t b, int64_t row, int64_t d) const {
        return data + (b * N + row) * width + d;
    }
};

/* Where results go; the gradient of `skip` is that of lag 0. */
template <typename E> struct real_target {
    series<E> to;
    float *dskip;

    __device__ __forceinline__ void put(int64_t b, int64_t time, int64_t d, float value) const {
        if (to.data != NULL && to.has(time, d)) *to.at(b, time, d) = ls_cuda_narrow<E>(value);
        if (dskip != NULL && time == 0 && d < to.D) dskip[d] += value;
    }
};

/* ---- short sequences ---- */

/* y[t] = skip x[t] + sum_lag k[lag] x[t - lag], or x[t + lag]. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    convolve_short(series<const T> x, series<const float> k, const float *skip, series<T> y,
                   int64_t rows, bool ahead) {
    const int64_t at = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, d = at % x.D;
    const int64_t b = at / x.D / x.count, t = at / x.D % x.count;
    if (at >= rows * x.D) return;
    float sum = skip == NULL ? 0 : skip[d] * ls_cuda_wide(*x.at(b, t, d));
    const int64_t most = ahead ? x.count - 1 - t : t;
    for (int64_t lag = k.first; lag <= most && lag < k.first + k.count; lag++)
        sum += *k.at(0, lag, d) * ls_cuda_wide(*x.at(b, ahead ? t + lag : t - lag, d));
    *y.at(b, t, d) = ls_cuda_narrow<T>(sum);
}

/* dk[lag] = sum over the batch of g[t] x[t - lag], or x[t + lag]. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    correlate_short(series<const T> x, series<const T> g, int64_t B, real_target<float> dk,
                    bool ahead) {
    const int64_t at = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    const int64_t d = at % x.D, lag = at / x.D;
    if (lag >= x.count) return;
    float sum = 0;
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = lag; t < x.count; t++)
            sum += ls_cuda_wide(*g.at(b, ahead ? t - lag : t, d)) *
                   ls_cuda_wide(*x.at(b, ahead ? t : t - lag, d));
    dk.put(0, lag, d, sum);
}

/* ---- parts of M values ----
 *
 * What the kernels below take their values from and put them to, a thread's sixteen at a time. */

/* Four neighbouring channels as they lie in memory. */
template <typename E> struct alignas(4 * sizeof(E)) four { E value[4]; };

/* To shared memory, while the thread goes on; zeros if there are none. */
template <typename E>
static __device__ __forceinline__ void copy_behind(four<E> *to, const E *from, bool some) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "n"(sizeof(four<E>)),
                   "r"(some ? (int)sizeof(four<E>) : 0)
                 : "memory");
}

/* The rows of a warp's eight lines, 128 of them, are moved by all of its threads, four by each:
 * the first of them; the others are MOVE_APART lines further on each. */
enum { WARP_LINES = 32 / CHANNELS, MOVES = VALUES * WARP_LINES / 32, MOVE_APART = VALUES / MOVES };

static __device__ __forceinline__ int first_moved(int line, int lines) {
    const int lane = (int)threadIdx.x % 32;
    return lane / WARP_LINES * lines + line / WARP_LINES * WARP_LINES + lane % WARP_LINES;
}

/* Whole sequences. Values come to shared memory while those of the sequence before are
 * transformed; what a warp takes it alone uses. */
template <int M, typename T> struct from_series {
    enum { WEIGHTED = 1, LINES = M / VALUES, STAGE = M * CHANNELS * sizeof(T) };
    series<const T> from;
    bool in_fours;

    struct taken {
        four<T> *row;
        __device__ __forceinline__ explicit taken(void *stage) : row((four<T> *)stage) {}
    };
    __device__ __forceinline__ bool has(int row, int64_t d) const {
        return (unsigned)(row - (int)from.first) < (unsigned)(d < from.D ? (int)from.count : 0);
    }
    __device__ __forceinline__ void take(int64_t b, int64_t part, int line, int64_t d,
                                         taken &x) const {
        (void)part;
        __syncwarp(); /* all have used what was there */
        if (in_fours) {
            int row = first_moved(line, LINES);
            const T *at = from.at(b, row, d - (int)threadIdx.x % CHANNELS);
#pragma unroll
            for (int move = 0; move < MOVES; move++) {
                copy_behind(x.row + row, at, has(row, d));
                row += MOVE_APART * LINES;
                at += MOVE_APART * LINES * from.by_time;
            }
        } else {
#pragma unroll 1
            for (int row = line; row < M; row += LINES)
                x.row[row].value[threadIdx.x % CHANNELS] =
                    has(row, d) ? *from.at(b, row, d) : ls_cuda_narrow<T>(0);
        }
    }
    __device__ __forceinline__ void use(const taken &x, int line, float2 (&v)[VALUES]) const {
        asm volatile("cp.async.wait_all;" : : : "memory");
        __syncwarp();
        const four<T> *at = x.row + line;
#pragma unroll
        for (int k = 0; k < VALUES; k++)
            v[k] =
                scaled(ls_cuda_wide(at[k * LINES].value[threadIdx.x % CHANNELS]), sixty_fourth(k));
    }
};
template <int M, typename T> struct to_series {
    enum { WEIGHTED = 1, LINES = M / VALUES };
    real_target<T> to;
    bool in_fours;

    /* After the way back. */
    template <typename Transformer>
    __device__ __forceinline__ void put(const Transformer &by, int64_t b, int64_t part, int64_t d,
                                        const float2 (&v)[VALUES]) const {
        (void)part;
        const series<T> &all = to.to;
        const int count = d < all.D ? (int)all.count : 0;
        float y[VALUES];
#pragma unroll
        for (int k = 0; k < VALUES; k++)
            y[k] = v[k].x * sixty_fourth(k).x + v[k].y * sixty_fourth(k).y;
        if (in_fours) {
            __syncwarp(); /* all have read their far places */
#pragma unroll
            for (int k = 0; k < VALUES; k++)
                ((T *)by.far_row(by.line + k * LINES))[by.channel] = ls_cuda_narrow<T>(y[k]);
            __syncwarp();
            int row = first_moved(by.line, LINES);
            T *at = all.at(b, row, d - by.channel);
#pragma unroll
            for (int move = 0; move < MOVES; move++) {
                if (row < count) *(four<T> *)at = *(const four<T> *)by.far_row(row);
                row += MOVE_APART * LINES;
                at += MOVE_APART * LINES * all.by_time;
            }
            __syncwarp();
        } else if (all.data != NULL) {
            T *at = all.at(b, by.line, d);
#pragma unroll
            for (int k = 0; k < VALUES; k++, at += LINES * all.by_time)
                if ((unsigned)(by.line + k * LINES - (int)all.first) < (unsigned)count)
                    *at = ls_cuda_narrow<T>(y[k]);
        }
        if (to.dskip != NULL && by.line == 0 && d < all.D) to.dskip[d] += y[0];
    }
};

/* Parts of longer ones; spectra, too. */
template <int M> struct in_plane {
    enum { WEIGHTED = 0, LINES = M / VALUES, STAGE = 0 };
    plane in;

    struct taken {
        float2 value[VALUES];
        __device__ __forceinline__ explicit taken(void *stage) { (void)stage; }
    };
    __device__ __forceinline__ void take(int64_t b, int64_t part, int line, int64_t d,
                                         taken &x) const {
        const float2 *at = in.at(b, part * M + line, d);
#pragma unroll
        for (int k = 0; k < VALUES; k++) x.value[k] = at[k * LINES * in.width];
    }
    __device__ __forceinline__ void use(const taken &x, int line, float2 (&v)[VALUES]) const {
        (void)line;
#pragma unroll
        for (int k = 0; k < VALUES; k++) v[k] = x.value[k];
    }
    template <typename Transformer>
    __device__ __forceinline__ void put(const Transformer &by, int64_t b, int64_t part, int64_t d,
                                        const float2 (&v)[VALUES]) const {
        float2 *at = in.at(b, part * M + by.line, d);
#pragma unroll
        for (int k = 0; k < VALUES; k++) at[k * LINES * in.width] = v[k];
    }
};

/* A block of threads has four channels of a part, of some sequences: blocks of neighbouring
 * channels come one after the other. */
struct share {
    int64_t d, part;
    int slice, begin, end;

    __device__ __forceinline__ share(int64_t width, int64_t parts, int sequences, int together)
        : d(blockIdx.x % (width / CHANNELS) * CHANNELS + threadIdx.x % CHANNELS),
          part(blockIdx.x / (width / CHANNELS) % parts),
          slice((int)(blockIdx.x / (width / CHANNELS) / parts)), begin(slice * together),
          end(begin + together < sequences ? begin + together : sequences) {}
};

#define LS_CONV_BOUNDS(M) __launch_bounds__((M) / VALUES * CHANNELS, WHOLE / (M))

/* What a block of threads has in shared memory; STAGE bytes for what is taken follow. */
template <int M> struct part_memory {
    transform_memory<M> of_transforms;
    float2 spectra[VALUES][M / VALUES * CHANNELS]; /* what a thread writes it alone reads */
};
template <int M, typename In> static constexpr size_t bytes_for() {
    return sizeof(part_memory<M>) + In::STAGE;
}

/* The spectra of the kernels, with `skip` and the factor of the way back. */
template <int M, typename In>
static __global__ void LS_CONV_BOUNDS(M)
    find_spectra(const In in, const in_plane<M> out, const float *skip, int64_t D, float scale,
                 const float2 *roots) {
    extern __shared__ float4 memory[];
    part_memory<M> &shared = *(part_memory<M> *)memory;
    const transformer<M, In::WEIGHTED> by(roots, shared.of_transforms);
    const share own(out.in.width, out.in.N / M, 1, 1);
    typename In::taken x(&shared + 1);
    float2 v[VALUES];
    in.take(0, own.part, by.line, own.d, x);
    in.use(x, by.line, v);
    by.forward(v);
    const float straight = skip != NULL && own.d < D ? skip[own.d] : 0;
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        v[i] = make_float2(scale * (v[i].x + straight), scale * v[i].y);
    out.put(by, 0, own.part, own.d, v);
}

/* There, times the spectra or (`sign` -1) their conjugates, and back. */
template <int M, typename In, typename Out>
static __global__ void LS_CONV_BOUNDS(M)
    convolve_parts(const In in, const Out out, const in_plane<M> spectra, float sign, int sequences,
                   int together, const float2 *roots) {
    extern __shared__ float4 memory[];
    part_memory<M> &shared = *(part_memory<M> *)memory;
    const transformer<M, In::WEIGHTED> by(roots, shared.of_transforms);
    const share own(spectra.in.width, spectra.in.N / M, sequences, together);
    typename In::taken x(&shared + 1);
    in.take(own.begin, own.part, by.line, own.d, x);
    typename in_plane<M>::taken kernel(NULL);
    spectra.take(0, own.part, by.line, own.d, kernel);
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        shared.spectra[i][threadIdx.x] = make_float2(kernel.value[i].x, sign * kernel.value[i].y);
#pragma unroll 1
    for (int b = own.begin; b < own.end; b++) {
        float2 v[VALUES];
        in.use(x, by.line, v);
        if (b + 1 < own.end) in.take(b + 1, own.part, by.line, own.d, x);
        by.forward(v);
#pragma unroll
        for (int i = 0; i < VALUES; i++) v[i] = times(v[i], shared.spectra[i][threadIdx.x]);
        by.back(v);
        out.put(by, b, own.part, own.d, v);
    }
}

/* conj(U) G, summed over a slice of the batch; to what there is, if `add`. */
template <int M, typename In>
static __global__ void LS_CONV_BOUNDS(M)
    correlate_parts(const In inputs, const In gradients, const in_plane<M> sums, bool add,
                    int sequences, int together, const float2 *roots) {
    extern __shared__ float4 memory[];
    part_memory<M> &shared = *(part_memory<M> *)memory;
    const transformer<M, In::WEIGHTED> by(roots, shared.of_transforms);
    const share own(sums.in.width, sums.in.N / M, sequences, together);
    typename In::taken x(&shared + 1);
    inputs.take(own.begin, own.part, by.line, own.d, x);
    float2 sum[VALUES] = {};
#pragma unroll 1
    for (int b = own.begin; b < own.end; b++) {
        float2 v[VALUES];
        inputs.use(x, by.line, v);
        gradients.take(b, own.part, by.line, own.d, x);
        by.forward(v);
#pragma unroll
        for (int i = 0; i < VALUES; i++) shared.spectra[i][threadIdx.x] = v[i];
        gradients.use(x, by.line, v);
        if (b + 1 < own.end) inputs.take(b + 1, own.part, by.line, own.d, x);
        __syncthreads(); /* before the next of the same direction */
        by.forward(v);
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            sum[i] = add_conjugate_times(sum[i], shared.spectra[i][threadIdx.x], v[i]);
        __syncthreads();
    }
    if (add) {
        typename in_plane<M>::taken before(NULL);
        sums.take(own.slice, own.part, by.line, own.d, before);
#pragma unroll
        for (int i = 0; i < VALUES; i++) sum[i] = plus(sum[i], before.value[i]);
    }
    sums.put(by, own.slice, own.part, own.d, sum);
}

/* The way back of the slices' sum, in their order; sign as above. */
template <int M, typename Out>
static __global__ void LS_CONV_BOUNDS(M)
    return_sums(const in_plane<M> sums, int slices, const Out out, float sign, float scale,
                const float2 *roots) {
    extern __shared__ float4 memory[];
    const transformer<M, Out::WEIGHTED> by(roots, *(transform_memory<M> *)memory);
    const share own(sums.in.width, sums.in.N / M, 1, 1);
    float2 v[VALUES] = {};
    for (int slice = 0; slice < slices; slice++) {
        typename in_plane<M>::taken more(NULL);
        sums.take(slice, own.part, by.line, own.d, more);
#pragma unroll
        for (int i = 0; i < VALUES; i++) v[i] = plus(v[i], more.value[i]);
    }
#pragma unroll
    for (int i = 0; i < VALUES; i++) v[i] = make_float2(scale * v[i].x, scale * sign * v[i].y);
    by.back(v);
    out.put(by, 0, own.part, own.d, v);
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS) make_roots(float2 *roots, int count) {
    const int j = (int)(blockIdx.x * LS_CUDA_THREADS + threadIdx.x);
    double re, im;
    sincospi(2.0 * j / count, &im, &re);
    if (j < count) roots[j] = make_float2((float)re, (float)im);
}

/* ---- from sequences to parts and back ----
 *
 * A pass takes parts of n values to R parts each. Sequences are weighted as in block_transform.h:
 * what of it depends on the place in a part is in the turns of the first pass. */

/* exp(2 pi i j / order), a power of 2. */
static __device__ __forceinline__ float2 root(int64_t j, int64_t order) {
    float re, im;
    sincospif(2.0f * (float)(j & (order - 1)) / (float)order, &im, &re);
    return make_float2(re, im);
}

/* Result q of place l in a part. */
template <bool WEIGHTED>
static __device__ __forceinline__ float2 pass_turn(int q, int64_t l, int64_t n) {
    return WEIGHTED ? root((4 * q - 1) * l, 4 * n) : root(q * l, n);
}

struct pass_place {
    int64_t b, d, l, row; /* row: of the first of its values; the others are n / R apart */

    __device__ __forceinline__ pass_place(const plane &in, int64_t n, int R) {
        const int64_t at = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
        const int64_t line = at / in.width;
        d = at % in.width;
        l = line % (n / R);
        row = line / (n / R) % (in.N / n) * n + l;
        b = line / (in.N / R);
    }
};

template <int R, typename T>
static __device__ __forceinline__ void pass_take(const series<const T> &from, const pass_place &own,
                                                 int64_t apart, float2 (&v)[R]) {
#pragma unroll
    for (int k = 0; k < R; k++) {
        const int64_t time = own.row + k * apart;
        const float value = from.has(time, own.d) ? ls_cuda_wide(*from.at(own.b, time, own.d)) : 0;
        v[k] = scaled(value, sixty_fourth(k * (16 / R)));
    }
}
template <int R>
static __device__ __forceinline__ void pass_take(const plane &from, const pass_place &own,
                                                 int64_t apart, float2 (&v)[R]) {
#pragma unroll
    for (int k = 0; k < R; k++) v[k] = *from.at(own.b, own.row + k * apart, own.d);
}
template <int R, typename T>
static __device__ __forceinline__ void pass_put(const real_target<T> &to, const pass_place &own,
                                                int64_t apart, const float2 (&v)[R]) {
#pragma unroll
    for (int k = 0; k < R; k++) {
        const float2 weight = sixty_fourth(k * (16 / R));
        to.put(own.b, own.row + k * apart, own.d, v[k].x * weight.x + v[k].y * weight.y);
    }
}
template <int R>
static __device__ __forceinline__ void pass_put(const plane &to, const pass_place &own,
                                                int64_t apart, const float2 (&v)[R]) {
#pragma unroll
    for (int k = 0; k < R; k++) *to.at(own.b, own.row + k * apart, own.d) = v[k];
}

template <int R, bool WEIGHTED, typename In>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    pass_forward(const In in, const plane out, int64_t n, int64_t sequences) {
    const pass_place own(out, n, R);
    if (own.b >= sequences) return;
    float2 v[R];
    pass_take(in, own, n / R, v);
    transform<R, -1>(v);
#pragma unroll
    for (int q = 0; q < R; q++) v[q] = conjugate_times(pass_turn<WEIGHTED>(q, own.l, n), v[q]);
    pass_put(out, own, n / R, v);
}
template <int R, bool WEIGHTED, typename Out>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    pass_back(const plane in, const Out out, int64_t n, int64_t sequences) {
    const pass_place own(in, n, R);
    if (own.b >= sequences) return;
    float2 v[R];
    pass_take(in, own, n / R, v);
#pragma unroll
    for (int q = 0; q < R; q++) v[q] = times(pass_turn<WEIGHTED>(q, own.l, n), v[q]);
    transform<R, 1>(v);
    pass_put(out, own, n / R, v);
}

/* ---- on the host ---- */

static int64_t stride_of(const ls_tensor *tensor) {
    int64_t rows, width, stride = 0;
    ls_rows(tensor, &rows, &width, &stride);
    return stride;
}

/* Sizes, and how the work is divided. */
struct sizes {
    int64_t B, length, D;
    int64_t taps, delay;         /* kernel values that can meet an input; 1 towards the future */
    int64_t N;                   /* 0 where nothing is transformed */
    int64_t whole;               /* the longest that is transformed at once */
    int64_t channels, sequences; /* of one slab; channels are a multiple of CHANNELS */
};

static sizes sizes_of(const ls_node *node, int64_t whole) {
    const ls_long_conv_attributes *about = (const ls_long_conv_attributes *)node->attributes;
    const ls_tensor *u = node->in[0], *k = node->in[1];
    sizes s = {};
    s.B = u->dim[0];
    s.length = u->dim[1];
    s.D = u->dim[2];
    s.delay = about->future ? 1 : 0;
    s.taps = ls_min(k->dim[1], s.length - s.delay);
    s.whole = whole;
    if (s.length <= LS_CONV_DIRECT) return s;
    for (s.N = SMALLEST; s.N < s.length;) s.N *= 2;
    s.channels = ceil_div(s.D, CHANNELS) * CHANNELS;
    s.sequences = s.B;
    if (s.N <= whole) return s;
    s.channels = ls_min(s.channels, ls_max(CHANNELS, SLAB_VALUES / s.N));
    s.sequences = ls_max(1, ls_min(s.B, SLAB_SEQUENCES * SLAB_VALUES / (s.N * s.channels)));
    return s;
}

/* What the workspace has: roots, planes for the kernels of a slab (their spectra, or the sums of
 * the batch's slices), planes of its sequences and of their gradients. */
struct room {
    float2 *roots, *kernels, *sequences, *gradients;
    size_t bytes;
};
static room room_of(const sizes &s, bool backward, void *workspace) {
    const int64_t one = s.N * s.channels, in_passes = s.N > s.whole ? one * s.sequences : 0;
    room r = {};
    r.roots = (float2 *)workspace;
    r.kernels = r.roots + (s.N == 0 ? 0 : 4 * WHOLE);
    r.sequences = r.kernels + one * (backward ? ceil_div(s.sequences, SLICE) : 1);
    r.gradients = r.sequences + in_passes;
    r.bytes = (size_t)(r.gradients + (backward ? in_passes : 0) - r.roots) * sizeof(float2);
    return r;
}
/* For any device. */
static size_t workspace_of(const ls_node *node, bool backward) {
    const size_t bytes = room_of(sizes_of(node, WHOLE), backward, NULL).bytes;
    return ls_max(bytes, room_of(sizes_of(node, WHOLE / 2), backward, NULL).bytes);
}
static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return workspace_of(node, false);
}
static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return workspace_of(node, true);
}

template <typename E> static series<E> series_of(const ls_tensor *tensor, const sizes &s) {
    const int64_t stride = stride_of(tensor);
    return {(E *)ls_data(tensor), s.length * stride, stride, 1, 0, s.length, s.D};
}
template <typename E> static series<E> kernels_at(E *data, const ls_node *node, const sizes &s) {
    return {data, 0, 1, node->in[1]->dim[1], s.delay, s.taps, s.D};
}
/* From a sequence and a channel on. */
template <typename E> static series<E> slab_of(series<E> all, int64_t b, int64_t d) {
    if (all.data != NULL) all.data += b * all.by_sequence + d * all.by_channel;
    all.D -= d;
    return all;
}

/* Whether rows can be moved four channels at a time. */
template <typename E> static bool in_fours(const series<E> &all) {
    return all.data != NULL && all.by_channel == 1 && all.D % 4 == 0 && all.by_time % 4 == 0 &&
           all.by_sequence % 4 == 0 && (uintptr_t)all.data % sizeof(four<E>) == 0;
}

/* Of one node, on its way to the device. */
struct work {
    const ls_run *run;
    const char *what;
    sizes s;
    room at;

    void launched() const { ls_cuda_launched(run, what); }
    cudaStream_t stream() const { return ls_cuda_of(run)->stream; }
    template <typename K> void allow_shared(K *kernel, size_t bytes) const {
        cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
        if (error == cudaSuccess)
            error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                         cudaSharedmemCarveoutMaxShared);
        ls_cuda_note(ls_cuda_of(run), error, what);
    }
    plane kernels() const { return {at.kernels, s.N, s.channels}; }
    /* Blocks of threads for one sequence. */
    template <int M> int64_t blocks() const { return s.channels / CHANNELS * (s.N / M); }
};

static work begin(const ls_run *run, const ls_node *node, bool backward, const char *what) {
    const bool all_fits =
        ls_cuda_of(run)->shared_most >= bytes_for<WHOLE, from_series<WHOLE, float>>();
    work w = {run, what, sizes_of(node, all_fits ? WHOLE : WHOLE / 2), {}};
    w.at = room_of(w.s, backward, run->workspace);
    if (w.s.N == 0) return w;
    const int roots = (int)(4 * ls_min(w.s.N, w.s.whole));
    make_roots<<<(unsigned)(roots / LS_CUDA_THREADS), LS_CUDA_THREADS, 0, w.stream()>>>(w.at.roots,
                                                                                        roots);
    w.launched();
    return w;
}

/* ---- parts ---- */

template <int M, typename In>
static void spectra_from(const work &w, const In &in, const float *skip, int64_t D) {
    const size_t bytes = bytes_for<M, In>();
    w.allow_shared(find_spectra<M, In>, bytes);
    find_spectra<M><<<(unsigned)w.blocks<M>(), M / VALUES * CHANNELS, bytes, w.stream()>>>(
        in, in_plane<M>{w.kernels()}, skip, D, 1.0f / (float)w.s.N, w.at.roots);
    w.launched();
}

/* How many sequences a block of threads takes, so that the last of the rounds in which a device
 * takes `at_once` blocks is not nearly empty; to begin takes as long as a sequence, or less. */
static int64_t sequences_together(int64_t sequences, int64_t blocks, int64_t at_once) {
    int64_t best = 1, least = INT64_MAX;
    for (int64_t together = 1; together <= ls_min(sequences, 32); together++) {
        const int64_t rounds = ceil_div(blocks * ceil_div(sequences, together), at_once);
        if (rounds * (together + 1) >= least) continue;
        least = rounds * (together + 1);
        best = together;
    }
    return best;
}
template <int M, typename In, typename Out>
static void convolve_from(const work &w, const In &in, const Out &out, bool conjugate,
                          int64_t sequences) {
    const size_t bytes = bytes_for<M, In>();
    const int64_t at_once = WHOLE / M * ls_cuda_of(w.run)->processors;
    const int64_t together = sequences_together(sequences, w.blocks<M>(), at_once);
    const unsigned blocks = (unsigned)(w.blocks<M>() * ceil_div(sequences, together));
    w.allow_shared(convolve_parts<M, In, Out>, bytes);
    convolve_parts<M><<<blocks, M / VALUES * CHANNELS, bytes, w.stream()>>>(
        in, out, in_plane<M>{w.kernels()}, conjugate ? -1.0f : 1.0f, (int)sequences, (int)together,
        w.at.roots);
    w.launched();
}

template <int M, typename In>
static void correlate_from(const work &w, const In &inputs, const In &gradients, bool add,
                           int64_t sequences) {
    const size_t bytes = bytes_for<M, In>();
    const unsigned blocks = (unsigned)(w.blocks<M>() * ceil_div(sequences, SLICE));
    w.allow_shared(correlate_parts<M, In>, bytes);
    correlate_parts<M><<<blocks, M / VALUES * CHANNELS, bytes, w.stream()>>>(
        inputs, gradients, in_plane<M>{w.kernels()}, add, (int)sequences, SLICE, w.at.roots);
    w.launched();
}

template <int M, typename Out> static void sums_to(const work &w, const Out &out, bool conjugate) {
    const size_t bytes = sizeof(transform_memory<M>);
    w.allow_shared(return_sums<M, Out>, bytes);
    return_sums<M><<<(unsigned)w.blocks<M>(), M / VALUES * CHANNELS, bytes, w.stream()>>>(
        in_plane<M>{w.kernels()}, (int)ceil_div(w.s.sequences, SLICE), out,
        conjugate ? -1.0f : 1.0f, 1.0f / (float)w.s.N, w.at.roots);
    w.launched();
}

/* ---- passes ---- */

static int radix_of(const work &w, int64_t n) {
    return (int)ls_min(16, n / w.s.whole);
}
static unsigned pass_blocks(const plane &at, int R, int64_t sequences) {
    return (unsigned)ceil_div(sequences * at.N / R * at.width, LS_CUDA_THREADS);
}

template <bool WEIGHTED, typename In>
static void pass_there(const work &w, const In &in, const plane &out, int64_t n,
                       int64_t sequences) {
    const int R = radix_of(w, n);
    const unsigned blocks = pass_blocks(out, R, sequences);
    void (*kernel)(In, plane, int64_t, int64_t) = R == 2   ? pass_forward<2, WEIGHTED, In>
                                                  : R == 4 ? pass_forward<4, WEIGHTED, In>
                                                  : R == 8 ? pass_forward<8, WEIGHTED, In>
                                                           : pass_forward<16, WEIGHTED, In>;
    kernel<<<blocks, LS_CUDA_THREADS, 0, w.stream()>>>(in, out, n, sequences);
    w.launched();
}
template <bool WEIGHTED, typename Out>
static void pass_home(const work &w, const plane &in, const Out &out, int64_t n,
                      int64_t sequences) {
    const int R = radix_of(w, n);
    const unsigned blocks = pass_blocks(in, R, sequences);
    void (*kernel)(plane, Out, int64_t, int64_t) = R == 2   ? pass_back<2, WEIGHTED, Out>
                                                   : R == 4 ? pass_back<4, WEIGHTED, Out>
                                                   : R == 8 ? pass_back<8, WEIGHTED, Out>
                                                            : pass_back<16, WEIGHTED, Out>;
    kernel<<<blocks, LS_CUDA_THREADS, 0, w.stream()>>>(in, out, n, sequences);
    w.launched();
}

template <typename T>
static void to_parts(const work &w, const series<const T> &from, const plane &to,
                     int64_t sequences) {
    pass_there<true>(w, from, to, to.N, sequences);
    for (int64_t n = to.N / radix_of(w, to.N); n > w.s.whole; n /= radix_of(w, n))
        pass_there<false>(w, to, to, n, sequences);
}
/* The passes that to_parts made, the last one first. */
static void to_first_pass(const work &w, const plane &in, int64_t n, int64_t sequences) {
    if (n <= w.s.whole) return;
    to_first_pass(w, in, n / radix_of(w, n), sequences);
    pass_home<false>(w, in, in, n, sequences);
}
template <typename T>
static void from_parts(const work &w, const plane &from, const real_target<T> &to,
                       int64_t sequences) {
    to_first_pass(w, from, from.N / radix_of(w, from.N), sequences);
    pass_home<true>(w, from, to, from.N, sequences);
}

/* ---- whole operations ---- */

static unsigned threads_for(int64_t count) {
    return (unsigned)ceil_div(count, LS_CUDA_THREADS);
}

/* y = x * k + skip x; `ahead`: x[t + lag] in place of x[t - lag]. */
template <int M, typename T>
static void convolve_whole(const work &w, const series<const float> &k, const float *skip,
                           const series<const T> &x, const series<T> &y, bool ahead) {
    spectra_from<M>(w, from_series<M, float>{k, false}, skip, w.s.D);
    convolve_from<M>(w, from_series<M, T>{x, in_fours(x)}, to_series<M, T>{{y, NULL}, in_fours(y)},
                     ahead, w.s.B);
}
template <int M, typename T>
static void convolve_in_passes(const work &w, const series<const float> &k, const float *skip,
                               const series<const T> &x, const series<T> &y, bool ahead) {
    const plane kernels = w.kernels(), between = {w.at.sequences, w.s.N, w.s.channels};
    const in_plane<M> parts = {between};
    for (int64_t d = 0; d < w.s.D; d += w.s.channels) {
        to_parts(w, slab_of(k, 0, d), kernels, 1);
        spectra_from<M>(w, in_plane<M>{kernels}, skip == NULL ? NULL : skip + d, w.s.D - d);
        for (int64_t b = 0; b < w.s.B; b += w.s.sequences) {
            const int64_t sequences = ls_min(w.s.sequences, w.s.B - b);
            to_parts(w, slab_of(x, b, d), between, sequences);
            convolve_from<M>(w, parts, parts, ahead, sequences);
            from_parts(w, between, real_target<T>{slab_of(y, b, d), NULL}, sequences);
        }
    }
}
template <typename T>
static void convolve(const work &w, const series<const float> &k, const float *skip,
                     const series<const T> &x, const series<T> &y, bool ahead) {
    const int64_t N = w.s.N, rows = w.s.B * w.s.length;
    if (N == 0) {
        convolve_short<<<threads_for(rows * w.s.D), LS_CUDA_THREADS, 0, w.stream()>>>(x, k, skip, y,
                                                                                      rows, ahead);
        w.launched();
    } else if (N > w.s.whole && w.s.whole < WHOLE) {
        convolve_in_passes<WHOLE / 2>(w, k, skip, x, y, ahead);
    } else if (N > WHOLE) {
        convolve_in_passes<WHOLE>(w, k, skip, x, y, ahead);
    } else if (N == WHOLE) {
        convolve_whole<WHOLE>(w, k, skip, x, y, ahead);
    } else if (N == WHOLE / 2) {
        convolve_whole<WHOLE / 2>(w, k, skip, x, y, ahead);
    } else {
        convolve_whole<SMALLEST>(w, k, skip, x, y, ahead);
    }
}

/* dk[lag] = sum over the batch of g[t] x[t - lag], or x[t + lag]. */
template <int M, typename T>
static void correlate_whole(const work &w, const series<const T> &x, const series<const T> &g,
                            const real_target<float> &dk, bool ahead) {
    correlate_from<M>(w, from_series<M, T>{x, in_fours(x)}, from_series<M, T>{g, in_fours(g)},
                      false, w.s.B);
    sums_to<M>(w, to_series<M, float>{dk, false}, ahead);
}
template <int M, typename T>
static void correlate_in_passes(const work &w, const series<const T> &x, const series<const T> &g,
                                const real_target<float> &dk, bool ahead) {
    const plane inputs = {w.at.sequences, w.s.N, w.s.channels};
    const plane gradients = {w.at.gradients, w.s.N, w.s.channels};
    for (int64_t d = 0; d < w.s.D; d += w.s.channels) {
        for (int64_t b = 0; b < w.s.B; b += w.s.sequences) {
            const int64_t sequences = ls_min(w.s.sequences, w.s.B - b);
            to_parts(w, slab_of(x, b, d), inputs, sequences);
            to_parts(w, slab_of(g, b, d), gradients, sequences);
            correlate_from<M>(w, in_plane<M>{inputs}, in_plane<M>{gradients}, b > 0, sequences);
        }
        sums_to<M>(w, in_plane<M>{w.kernels()}, ahead);
        from_parts(w, w.kernels(),
                   real_target<float>{slab_of(dk.to, 0, d), dk.dskip == NULL ? NULL : dk.dskip + d},
                   1);
    }
}
template <typename T>
static void correlate(const work &w, const series<const T> &x, const series<const T> &g,
                      const real_target<float> &dk, bool ahead) {
    const int64_t N = w.s.N;
    if (N == 0) {
        correlate_short<<<threads_for(w.s.length * w.s.D), LS_CUDA_THREADS, 0, w.stream()>>>(
            x, g, w.s.B, dk, ahead);
        w.launched();
    } else if (N > w.s.whole && w.s.whole < WHOLE) {
        correlate_in_passes<WHOLE / 2>(w, x, g, dk, ahead);
    } else if (N > WHOLE) {
        correlate_in_passes<WHOLE>(w, x, g, dk, ahead);
    } else if (N == WHOLE) {
        correlate_whole<WHOLE>(w, x, g, dk, ahead);
    } else if (N == WHOLE / 2) {
        correlate_whole<WHOLE / 2>(w, x, g, dk, ahead);
    } else {
        correlate_whole<SMALLEST>(w, x, g, dk, ahead);
    }
}

static const float *skip_of(const ls_node *node) {
    return node->in[2] == NULL ? NULL : (const float *)ls_data(node->in[2]);
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    const work w = begin(run, node, false, "long_conv");
    const series<const float> k = kernels_at((const float *)ls_data(node->in[1]), node, w.s);
    convolve(w, k, skip_of(node), series_of<const T>(node->in[0], w.s),
             series_of<T>(node->out[0], w.s), w.s.delay > 0);
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    const work w = begin(run, node, true, "long_conv_grad");
    const ls_tensor *skip = node->in[2], *du = node->out[0], *dk = node->out[1];
    const bool ahead = w.s.delay > 0;
    const series<const T> g = series_of<const T>(node->in[4], w.s);
    if (du != NULL) {
        const series<const float> k = kernels_at((const float *)ls_data(node->in[1]), node, w.s);
        convolve(w, k, skip_of(node), g, series_of<T>(du, w.s), !ahead);
    }
    real_target<float> to = {kernels_at(dk == NULL ? NULL : (float *)ls_data(dk), node, w.s), NULL};
    if (skip != NULL && skip->needs_grad) to.dskip = (float *)ls_param_gradient(run, skip);
    if (to.to.data == NULL && to.dskip == NULL) return;
    if (to.to.data != NULL && w.s.taps < to.to.by_channel) {
        const size_t bytes = (size_t)(w.s.D * to.to.by_channel) * sizeof(float);
        ls_cuda_note(ls_cuda_of(run), cudaMemsetAsync(to.to.data, 0, bytes, w.stream()), w.what);
    }
    correlate(w, series_of<const T>(node->in[0], w.s), g, to, ahead);
}

LS_CUDA_DECLARE_TABLE(long_conv);
const ls_kernel LS_CUDA_TABLE(long_conv)[] = {
    {"long_conv", {NULL, forward<float>, forward<ls_cuda_bf16>}, forward_workspace},
    {"long_conv_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
