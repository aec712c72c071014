/* Convolution along time with kernels as long as the sequence, and its gradients.
 *
 * Up to LS_CONV_DIRECT times products are summed as they are defined. Longer sequences go through
 * transforms of N values, the next power of 2: modulo x^N - i (see long_conv_cpu.c), where
 * the real part of a product is what we want and nothing is padded. Up to WHOLE values a block of
 * threads does all of it in shared memory, sequence after sequence, beside the kernel's spectra.
 * Longer ones go through three passes over memory: transforms of 256 values that lie far apart,
 * transforms of rows of up to 4,096 values with the products and the way back, and the way back of
 * the first (four or more passes beyond 1,048,576 values). What lies between the passes is kept in
 * a workspace that is small enough for the caches: a few channels of a few sequences after the
 * other. Time is n log n at any length.
 *
 * With the spectra U, K and G of inputs, kernels and gradients of the outputs, results are U K, the
 * inputs' gradients conj(K) G and the kernels' conj(U) G, summed over the batch; towards the future
 * the kernel is conj(K).
 *
 * A transform mixes all times: beyond LS_CONV_DIRECT of them an input moves earlier results, too,
 * by what they are rounded, and one that is no number spoils its whole channel. (On the processor
 * nothing of the future gets into the past.) */
#include "tensor/op/long_conv/long_conv_passes.cuh"
#include "tensor/op/long_conv/long_conv_whole.cuh"

extern "C" {
#include "tensor/op/long_conv/long_conv.h"
}

enum {
    SMALLEST = 512,
    SLICE = 8 /* sequences that a block of threads correlates and sums */
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

/* ---- on the host ---- */

static int64_t stride_of(const ls_tensor *tensor) {
    int64_t rows, width, stride = 0;
    ls_rows(tensor, &rows, &width, &stride);
    return stride;
}

struct sizes {
    int64_t B, length, D;
    int64_t taps, delay; /* kernel values that can meet an input; 1 towards the future */
    int64_t N;           /* 0 where nothing is transformed, or not as a whole */
    int64_t channels;    /* a multiple of CHANNELS */
    bool in_passes;
};

/* `whole`: the longest that is transformed at once. */
static sizes sizes_of(const ls_node *node, int64_t whole) {
    const ls_long_conv_attributes *about = (const ls_long_conv_attributes *)node->attributes;
    const ls_tensor *u = node->in[0], *k = node->in[1];
    sizes s = {};
    s.B = u->dim[0];
    s.length = u->dim[1];
    s.D = u->dim[2];
    s.delay = about->future ? 1 : 0;
    s.taps = ls_min(k->dim[1], s.length - s.delay);
    s.channels = ls_ceil_div(s.D, CHANNELS) * CHANNELS;
    s.in_passes = s.length > whole;
    if (s.length <= LS_CONV_DIRECT || s.in_passes) return s;
    for (s.N = SMALLEST; s.N < s.length;) s.N *= 2;
    return s;
}

/* The spectra of the kernels, or the sums of the batch's slices; or what the passes need. */
static size_t bytes_of(const ls_node *node, int64_t whole, bool backward) {
    const sizes s = sizes_of(node, whole);
    if (s.in_passes)
        return ls_conv_slab_bytes(ls_conv_slab_of(s.B, s.length, s.D, backward), backward);
    const int64_t planes = backward ? ls_ceil_div(s.B, SLICE) : 1;
    return (size_t)(planes * s.N * s.channels) * sizeof(float2);
}
/* For any device. */
static size_t workspace_of(const ls_node *node, bool backward) {
    return ls_max(bytes_of(node, WHOLE, backward), bytes_of(node, WHOLE / 2, backward));
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
    template <int M> spectra_plane<M> spectra() const {
        return {(float2 *)run->workspace, s.channels};
    }
    /* Blocks of threads for one sequence. */
    int64_t blocks() const { return s.channels / CHANNELS; }
};

static work begin(const ls_run *run, const ls_node *node, const char *what) {
    const bool all_fits =
        ls_cuda_of(run)->shared_max >= bytes_for<WHOLE, from_series<WHOLE, float>>();
    return {run, what, sizes_of(node, all_fits ? WHOLE : WHOLE / 2)};
}

/* ---- sequences as a whole ---- */

template <int M, typename In>
static void spectra_from(const work &w, const In &in, const float *skip) {
    const size_t bytes = bytes_for<M, In>();
    w.allow_shared(find_spectra<M, In>, bytes);
    find_spectra<M><<<(unsigned)w.blocks(), M / VALUES * CHANNELS, bytes, w.stream()>>>(
        in, w.spectra<M>(), skip, w.s.D, 1.0f / (float)M);
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
static void convolve_from(const work &w, const In &in, const Out &out, bool conjugate) {
    const size_t bytes = bytes_for<M, In>();
    const int64_t at_once = WHOLE / M * ls_cuda_of(w.run)->processors;
    const int64_t together = sequences_together(w.s.B, w.blocks(), at_once);
    const unsigned blocks = (unsigned)(w.blocks() * ls_ceil_div(w.s.B, together));
    w.allow_shared(convolve_whole<M, In, Out>, bytes);
    convolve_whole<M><<<blocks, M / VALUES * CHANNELS, bytes, w.stream()>>>(
        in, out, w.spectra<M>(), conjugate ? -1.0f : 1.0f, (int)w.s.B, (int)together);
    w.launched();
}

template <int M, typename In>
static void correlate_from(const work &w, const In &inputs, const In &gradients) {
    const size_t bytes = bytes_for<M, In>();
    const unsigned blocks = (unsigned)(w.blocks() * ls_ceil_div(w.s.B, SLICE));
    w.allow_shared(correlate_whole<M, In>, bytes);
    correlate_whole<M><<<blocks, M / VALUES * CHANNELS, bytes, w.stream()>>>(
        inputs, gradients, w.spectra<M>(), (int)w.s.B, SLICE);
    w.launched();
}

template <int M, typename Out> static void sums_to(const work &w, const Out &out, bool conjugate) {
    const size_t bytes = sizeof(transform_memory<M, CHANNELS>);
    w.allow_shared(return_sums<M, Out>, bytes);
    return_sums<M><<<(unsigned)w.blocks(), M / VALUES * CHANNELS, bytes, w.stream()>>>(
        w.spectra<M>(), (int)ls_ceil_div(w.s.B, SLICE), out, conjugate ? -1.0f : 1.0f,
        1.0f / (float)M);
    w.launched();
}

/* ---- operations up to the longest whole sequence ---- */

static unsigned threads_for(int64_t count) {
    return (unsigned)ls_ceil_div(count, LS_CUDA_THREADS);
}

/* y = x * k + skip x; `ahead`: x[t + lag] in place of x[t - lag]. */
template <int M, typename T>
static void convolve_as(const work &w, const series<const float> &k, const float *skip,
                        const series<const T> &x, const series<T> &y, bool ahead) {
    spectra_from<M>(w, from_series<M, float>{k, false}, skip);
    convolve_from<M>(w, from_series<M, T>{x, in_fours(x)}, to_series<M, T>{{y, NULL}, in_fours(y)},
                     ahead);
}
template <typename T>
static void convolve(const work &w, const series<const float> &k, const float *skip,
                     const series<const T> &x, const series<T> &y, bool ahead) {
    const int64_t rows = w.s.B * w.s.length;
    if (w.s.N == 0) {
        convolve_short<<<threads_for(rows * w.s.D), LS_CUDA_THREADS, 0, w.stream()>>>(x, k, skip, y,
                                                                                      rows, ahead);
        w.launched();
    } else if (w.s.N == WHOLE) {
        convolve_as<WHOLE>(w, k, skip, x, y, ahead);
    } else if (w.s.N == WHOLE / 2) {
        convolve_as<WHOLE / 2>(w, k, skip, x, y, ahead);
    } else {
        convolve_as<SMALLEST>(w, k, skip, x, y, ahead);
    }
}

/* dk[lag] = sum over the batch of g[t] x[t - lag], or x[t + lag]. */
template <int M, typename T>
static void correlate_as(const work &w, const series<const T> &x, const series<const T> &g,
                         const real_target<float> &dk, bool ahead) {
    correlate_from<M>(w, from_series<M, T>{x, in_fours(x)}, from_series<M, T>{g, in_fours(g)});
    sums_to<M>(w, to_series<M, float>{dk, false}, ahead);
}
template <typename T>
static void correlate(const work &w, const series<const T> &x, const series<const T> &g,
                      const real_target<float> &dk, bool ahead) {
    if (w.s.N == 0) {
        correlate_short<<<threads_for(w.s.length * w.s.D), LS_CUDA_THREADS, 0, w.stream()>>>(
            x, g, w.s.B, dk, ahead);
        w.launched();
    } else if (w.s.N == WHOLE) {
        correlate_as<WHOLE>(w, x, g, dk, ahead);
    } else if (w.s.N == WHOLE / 2) {
        correlate_as<WHOLE / 2>(w, x, g, dk, ahead);
    } else {
        correlate_as<SMALLEST>(w, x, g, dk, ahead);
    }
}

/* ---- whole operations ---- */

static const float *skip_of(const ls_node *node) {
    return node->in[2] == NULL ? NULL : (const float *)ls_data(node->in[2]);
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    const work w = begin(run, node, "long_conv");
    const series<const float> k = kernels_at((const float *)ls_data(node->in[1]), node, w.s);
    const series<const T> u = series_of<const T>(node->in[0], w.s);
    const series<T> y = series_of<T>(node->out[0], w.s);
    const bool ahead = w.s.delay > 0;
    if (w.s.in_passes)
        ls_conv_by_passes(run, w.what, ls_conv_slab_of(w.s.B, w.s.length, w.s.D, false),
                          ls_conv_job<T>{w.s.B, k, skip_of(node), u, {}, y, {}, ahead});
    else
        convolve(w, k, skip_of(node), u, y, ahead);
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    const work w = begin(run, node, "long_conv_grad");
    const ls_tensor *skip = node->in[2], *dk = node->out[1];
    const bool ahead = w.s.delay > 0;
    const series<const float> k = kernels_at((const float *)ls_data(node->in[1]), node, w.s);
    const series<const T> u = series_of<const T>(node->in[0], w.s);
    const series<const T> g = series_of<const T>(node->in[4], w.s);
    series<T> du = {};
    if (node->out[0] != NULL) du = series_of<T>(node->out[0], w.s);
    real_target<float> to = {kernels_at(dk == NULL ? NULL : (float *)ls_data(dk), node, w.s), NULL};
    if (skip != NULL && skip->needs_grad) to.dskip = (float *)ls_param_gradient(run, skip);
    if (to.to.data != NULL && w.s.taps < to.to.by_channel) {
        const size_t bytes = (size_t)(w.s.D * to.to.by_channel) * sizeof(float);
        ls_cuda_note(ls_cuda_of(run), cudaMemsetAsync(to.to.data, 0, bytes, w.stream()), w.what);
    }
    if (w.s.in_passes) {
        ls_conv_by_passes(run, w.what, ls_conv_slab_of(w.s.B, w.s.length, w.s.D, true),
                          ls_conv_job<T>{w.s.B, k, skip_of(node), g, u, du, to, !ahead});
        return;
    }
    if (du.data != NULL) convolve(w, k, skip_of(node), g, du, !ahead);
    if (to.asked()) correlate(w, u, g, to, ahead);
}

LS_CUDA_DECLARE_TABLE(long_conv);
const ls_kernel LS_CUDA_TABLE(long_conv)[] = {
    {"long_conv", {NULL, forward<float>, forward<ls_cuda_bf16>}, forward_workspace},
    {"long_conv_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
