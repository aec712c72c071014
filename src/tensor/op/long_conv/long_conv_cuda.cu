/* Convolution along time with kernels as long as the sequence, and its gradients.
 *
 * Up to LS_CONV_DIRECT times products are summed as they are defined. Longer sequences go through
 * transforms of N values, the next power of 2: modulo x^N - i (see long_conv_cpu.c), where
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
#include "tensor/op/long_conv/long_conv_parts.cuh"
#include "tensor/op/long_conv/long_conv_passes.cuh"

extern "C" {
#include "tensor/op/long_conv/long_conv.h"
}

enum {
    SMALLEST = 512,
    SLICE = 8, /* sequences that a block of threads correlates and sums */
    /* complex values of all channels of a sequence in a slab, and sequences: 32 MiB in all */
    SLAB_VALUES = 1 << 20,
    SLAB_SEQUENCES = 4
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

static __global__ void __launch_bounds__(LS_CUDA_THREADS) make_roots(float2 *roots, int count) {
    const int j = (int)(blockIdx.x * LS_CUDA_THREADS + threadIdx.x);
    double re, im;
    sincospi(2.0 * j / count, &im, &re);
    if (j < count) roots[j] = make_float2((float)re, (float)im);
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
    s.channels = ls_ceil_div(s.D, CHANNELS) * CHANNELS;
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
    r.sequences = r.kernels + one * (backward ? ls_ceil_div(s.sequences, SLICE) : 1);
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
    ls_conv_passes passes() const { return {run, what, s.whole}; }
    plane kernels() const { return {at.kernels, s.N, s.channels}; }
    /* Blocks of threads for one sequence. */
    template <int M> int64_t blocks() const { return s.channels / CHANNELS * (s.N / M); }
};

static work begin(const ls_run *run, const ls_node *node, bool backward, const char *what) {
    const bool all_fits =
        ls_cuda_of(run)->shared_max >= bytes_for<WHOLE, from_series<WHOLE, float>>();
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
        const int64_t rounds = ls_ceil_div(blocks * ls_ceil_div(sequences, together), at_once);
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
    const unsigned blocks = (unsigned)(w.blocks<M>() * ls_ceil_div(sequences, together));
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
    const unsigned blocks = (unsigned)(w.blocks<M>() * ls_ceil_div(sequences, SLICE));
    w.allow_shared(correlate_parts<M, In>, bytes);
    correlate_parts<M><<<blocks, M / VALUES * CHANNELS, bytes, w.stream()>>>(
        inputs, gradients, in_plane<M>{w.kernels()}, add, (int)sequences, SLICE, w.at.roots);
    w.launched();
}

template <int M, typename Out> static void sums_to(const work &w, const Out &out, bool conjugate) {
    const size_t bytes = sizeof(transform_memory<M>);
    w.allow_shared(return_sums<M, Out>, bytes);
    return_sums<M><<<(unsigned)w.blocks<M>(), M / VALUES * CHANNELS, bytes, w.stream()>>>(
        in_plane<M>{w.kernels()}, (int)ls_ceil_div(w.s.sequences, SLICE), out,
        conjugate ? -1.0f : 1.0f, 1.0f / (float)w.s.N, w.at.roots);
    w.launched();
}

/* ---- whole operations ---- */

static unsigned threads_for(int64_t count) {
    return (unsigned)ls_ceil_div(count, LS_CUDA_THREADS);
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
        ls_conv_to_parts(w.passes(), slab_of(k, 0, d), kernels, 1);
        spectra_from<M>(w, in_plane<M>{kernels}, skip == NULL ? NULL : skip + d, w.s.D - d);
        for (int64_t b = 0; b < w.s.B; b += w.s.sequences) {
            const int64_t sequences = ls_min(w.s.sequences, w.s.B - b);
            ls_conv_to_parts(w.passes(), slab_of(x, b, d), between, sequences);
            convolve_from<M>(w, parts, parts, ahead, sequences);
            ls_conv_from_parts(w.passes(), between, real_target<T>{slab_of(y, b, d), NULL},
                               sequences);
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
            ls_conv_to_parts(w.passes(), slab_of(x, b, d), inputs, sequences);
            ls_conv_to_parts(w.passes(), slab_of(g, b, d), gradients, sequences);
            correlate_from<M>(w, in_plane<M>{inputs}, in_plane<M>{gradients}, b > 0, sequences);
        }
        sums_to<M>(w, in_plane<M>{w.kernels()}, ahead);
        ls_conv_from_parts(
            w.passes(), w.kernels(),
            real_target<float>{slab_of(dk.to, 0, d), dk.dskip == NULL ? NULL : dk.dskip + d}, 1);
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
