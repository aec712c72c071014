/* Convolution along time with kernels as long as the sequence, and its gradients.
 *
 * As on the processor a block of inputs acts only on outputs behind it, so that results are causal
 * to the bit. Within spans of 512 times products are summed as defined (lib/long_conv_near.cu);
 * spans act on all later ones here, through transforms modulo x^512 - i (see
 * tensor/cpu/long_conv.c), whose real part is what we want and which need no padding. A block of
 * threads has four neighbouring channels and a few spans of results: it transforms one span of
 * inputs after the other in registers, eight values to a thread, and adds its products with the
 * kernel's spectra to the results' sums, which are then transformed back. Spectra of inputs are
 * never stored. It does so for a few sequences, one after the other, so that the kernel's spectra
 * are found in the nearest cache.
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
    /* through which threads exchange their values; without gaps in the lines, fours of channels
     * would meet in the same banks */
    float2 exchange[CHANNELS * (FAR + FAR / 8)];
    float2 first_turn[8][LINES], second_turn[8][8];
};

struct transformer {
    int line, channel;
    transform_memory &shared;

    __device__ __forceinline__ transformer(const float2 *roots, transform_memory &memory)
        : line((int)threadIdx.x / CHANNELS), channel((int)threadIdx.x % CHANNELS), shared(memory) {
        for (int at = (int)threadIdx.x; at < 8 * LINES; at += THREADS) {
            const int q = at / LINES, l = at % LINES;
            shared.first_turn[q][l] = roots[(4 * q - 1) * l & (ROOTS - 1)];
            if (at < 64)
                shared.second_turn[at / 8][at % 8] = roots[at / 8 * (at % 8) * (ROOTS / 64)];
        }
        __syncthreads();
    }

    /* Where value k of this line's share of a pass over parts of n is: each eighth value is
     * followed by a gap; written so that k adds a constant. */
    __device__ __forceinline__ float2 &place(int n, int k) const {
        const int part = n / 8, at = line / part * n + line % part;
        return shared.exchange[(at + at / 8 + k * (part + part / 8)) * CHANNELS + channel];
    }
    __device__ __forceinline__ void write(int n, const float2 (&v)[8]) const {
#pragma unroll
        for (int k = 0; k < 8; k++) place(n, k) = v[k];
    }
    __device__ __forceinline__ void read(int n, float2 (&v)[8]) const {
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = place(n, k);
    }
    /* Of values times `weight`. Parts of 64 of them are a warp's own: threads of the others need
     * not be waited for. */
    __device__ __forceinline__ void forward(float2 (&v)[8]) const {
        eight<-1>(v);
#pragma unroll
        for (int q = 0; q < 8; q++) v[q] = conjugate_times(shared.first_turn[q][line], v[q]);
        __syncthreads();
        write(FAR, v);
        __syncthreads();
        read(FAR / 8, v);
        eight<-1>(v);
#pragma unroll
        for (int q = 1; q < 8; q++) v[q] = conjugate_times(shared.second_turn[q][line % 8], v[q]);
        __syncwarp();
        write(FAR / 8, v);
        __syncwarp();
        read(FAR / 64, v);
        eight<-1>(v);
    }
    __device__ __forceinline__ void forward(const float (&x)[8], float2 (&v)[8]) const {
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = make_float2(x[k] * weight(k).x, x[k] * weight(k).y);
        forward(v);
    }
    /* The real part of the way back, without the factor 1/512. */
    __device__ __forceinline__ void back(float2 (&v)[8], float (&x)[8]) const {
        eight<1>(v);
        __syncthreads();
        write(FAR / 64, v);
        __syncwarp();
        read(FAR / 8, v);
#pragma unroll
        for (int q = 1; q < 8; q++) v[q] = times(shared.second_turn[q][line % 8], v[q]);
        eight<1>(v);
        __syncwarp();
        write(FAR / 8, v);
        __syncthreads();
        read(FAR, v);
#pragma unroll
        for (int q = 0; q < 8; q++) v[q] = times(shared.first_turn[q][line], v[q]);
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
    const transformer by(job.roots, memory);
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
    by.forward(v);
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
    int left; /* times from the first to the end */
};
template <typename E, typename T>
static __device__ __forceinline__ series<E>
series_of(const ls_conv_job<T> &job, E *data, int64_t stride, int64_t b, int64_t d, int line) {
    return {data + ls_conv_row(job, b, line) * stride + d,
            job.reversed ? -LINES * stride : LINES * stride,
            d < job.D ? (int)job.length - line : 0};
}

/* A thread's values of a block of inputs; zeros past the end. Each is needed once. */
template <typename T>
static __device__ __forceinline__ void take(const series<const T> &from, int block, float (&x)[8]) {
    const T *at = from.first + (int64_t)(block * 8) * from.apart;
#pragma unroll
    for (int k = 0; k < 8; k++, at += from.apart)
        x[k] = block * FAR + k * LINES < from.left ? ls_cuda_wide(__ldcs(at)) : 0;
}

/* Spectra of the results `first` to `last`: those of all inputs before them, times the kernel's. */
template <int TILE, typename T>
static __device__ __forceinline__ void
sum_products(int reach, const transformer &by, const series<const T> &inputs, int first, int last,
             const float2 *spectra, float2 (&sum)[TILE][8]) {
#pragma unroll
    for (int i = 0; i < TILE; i++)
#pragma unroll
        for (int q = 0; q < 8; q++) sum[i][q] = make_float2(0, 0);
#pragma unroll 1
    for (int j = first > reach ? first - reach : 0; j < last; j++) {
        float x[8];
        float2 v[8];
        take(inputs, j, x);
        by.forward(x, v);
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
}

/* TILE spans of results, from the second span on, of `together` sequences. */
template <int TILE, typename T>
static __global__ void __launch_bounds__(THREADS, TILE < 4 ? 3 : 2)
    far_kernel(const ls_conv_job<T> job, int together) {
    __shared__ transform_memory memory;
    const unsigned groups = (unsigned)ls_conv_ceil_div(job.D, CHANNELS);
    const int later = (int)ls_conv_ceil_div(job.length, FAR) - 1;
    const unsigned tiles = (unsigned)ls_conv_ceil_div(later, TILE);
    const int64_t group = blockIdx.x % groups;
    const int first = 1 + (int)(blockIdx.x / groups % tiles) * TILE;
    const int last = first + TILE <= later ? first + TILE - 1 : later;
    const int begin = (int)(blockIdx.x / groups / tiles) * together;
    const int end = begin + together < job.B ? begin + together : (int)job.B;
    const transformer by(job.roots, memory);
    const int64_t d = group * CHANNELS + by.channel;
    const float2 *spectra = job.spectra + group * job.reach * SPECTRUM + threadIdx.x;
#pragma unroll 1
    for (int b = begin; b < end; b++) {
        float2 sum[TILE][8];
        sum_products((int)job.reach, by, series_of(job, job.x, job.x_stride, b, d, by.line), first,
                     last, spectra, sum);
        const series<float> results = series_of(job, job.sum, job.sum_stride, b, d, by.line);
        /* the sums move up: so the loop is not unrolled and has one copy of the transform */
#pragma unroll 1
        for (int s = first; s <= last; s++) {
            float y[8];
            by.back(sum[0], y);
#pragma unroll
            for (int i = 0; i + 1 < TILE; i++)
#pragma unroll
                for (int q = 0; q < 8; q++) sum[i][q] = sum[i + 1][q];
            float *at = results.first + (int64_t)(s * 8) * results.apart;
#pragma unroll
            for (int k = 0; k < 8; k++, at += results.apart)
                if (s * FAR + k * LINES < results.left) *at = y[k];
        }
    }
}

/* ---- the kernel's gradient ----
 *
 * Lags 512 p .. 512 p + 511 have the real part of the sum over sequences and blocks j of
 * conj(U_j) (G_{j+p} + i G_{j+p+1}), with the spectra U of the inputs, G of the gradients: of a
 * lag that is too short by up to 512, or too long, the power of x is i or -i times another. */

enum { RING = LAGS + 1 }; /* spectra of gradients that a block of inputs meets */

/* Where a thread's first value of the spectrum of a block is. */
static __device__ __forceinline__ unsigned ring_place(int block) {
    return (unsigned)block % RING * (unsigned)SPECTRUM + threadIdx.x;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS, 2) correlate(const ls_conv_job<T> job) {
    __shared__ transform_memory memory;
    extern __shared__ float2 ring[]; /* [RING][8][THREADS]: what a thread writes it alone reads */
    const int64_t blocks = ls_conv_ceil_div(job.length, FAR);
    const unsigned groups = (unsigned)ls_conv_ceil_div(job.D, CHANNELS);
    const unsigned tiles = (unsigned)ls_conv_ceil_div(blocks, LAGS);
    const int64_t group = blockIdx.x % groups, slice = blockIdx.x / groups / tiles;
    const int first = (int)(blockIdx.x / groups % tiles) * LAGS; /* distance in blocks */
    const transformer by(job.roots, memory);
    const int64_t d = group * CHANNELS + by.channel;
    const int64_t end = (slice + 1) * SLICE < job.B ? (slice + 1) * SLICE : job.B;
    float2 sum[LAGS][8];
#pragma unroll
    for (int i = 0; i < LAGS; i++)
#pragma unroll
        for (int q = 0; q < 8; q++) sum[i][q] = make_float2(0, 0);
#pragma unroll 1
    for (int64_t b = slice * SLICE; b < end; b++) {
        const series<const T> inputs = series_of(job, job.x, job.x_stride, b, d, by.line);
        const series<const T> gradients = series_of(job, job.g, job.g_stride, b, d, by.line);
#pragma unroll 1
        for (int step = -LAGS; first + step < blocks; step++) {
            /* the gradients run LAGS blocks ahead of the inputs */
            const int ahead = first + step + LAGS;
            float x[8];
            float2 v[8];
            if (ahead < blocks) {
                take(gradients, ahead, x);
                by.forward(x, v);
            }
            float2 *to = ring + ring_place(ahead);
#pragma unroll
            for (int q = 0; q < 8; q++) to[q * THREADS] = ahead < blocks ? v[q] : make_float2(0, 0);
            if (step < 0) continue;
            take(inputs, step, x);
            by.forward(x, v);
#pragma unroll
            for (int q = 0; q < 8; q++) {
                float2 later = to[q * THREADS];
#pragma unroll
                for (int i = LAGS - 1; i >= 0; i--) {
                    const float2 here = ring[ring_place(first + step + i) + q * THREADS];
                    const float2 both = make_float2(here.x - later.y, here.y + later.x);
                    sum[i][q] = add_times(sum[i][q], make_float2(v[q].x, -v[q].y), both);
                    later = here;
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < LAGS; i++) {
        if (first + i >= blocks) break;
        float2 *to = job.partial + ((slice * groups + group) * blocks + first + i) * SPECTRUM;
#pragma unroll
        for (int q = 0; q < 8; q++) to[q * THREADS + threadIdx.x] = sum[i][q];
    }
}

/* One block of lags: the slices in their order, and back. Lag 0 is the gradient of skip, too. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) finish_kernel_gradient(const ls_conv_job<T> job) {
    __shared__ transform_memory memory;
    const transformer by(job.roots, memory);
    const int64_t groups = ls_conv_ceil_div(job.D, CHANNELS);
    const int64_t blocks = ls_conv_ceil_div(job.length, FAR);
    const int64_t group = blockIdx.x / blocks, block = blockIdx.x % blocks;
    const int64_t d = group * CHANNELS + by.channel;
    float2 v[8];
    float lags[8];
#pragma unroll
    for (int q = 0; q < 8; q++) v[q] = make_float2(0, 0);
    for (int64_t slice = 0; slice < job.slices; slice++) {
        const float2 *from = job.partial + ((slice * groups + group) * blocks + block) * SPECTRUM;
#pragma unroll
        for (int q = 0; q < 8; q++) v[q] = plus(v[q], from[q * THREADS + threadIdx.x]);
    }
    by.back(v, lags);
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

/* Spans on later spans. */
template <int TILE, typename T>
static void convolve_far(const ls_run *run, const ls_conv_job<T> *job, const char *what) {
    ls_cuda *cuda = ls_cuda_of(run);
    const int64_t groups = ls_conv_ceil_div(job->D, CHANNELS);
    const int64_t later = ls_conv_ceil_div(job->length, FAR) - 1;
    const int64_t blocks = groups * ls_conv_ceil_div(later, TILE);
    /* sequences of one block of threads, as long as there are enough blocks */
    const int64_t together = ls_max(1, ls_min(4, job->B * blocks / (8 * cuda->processors)));
    make_spectra<<<(unsigned)(groups * job->reach), THREADS, 0, cuda->stream>>>(*job);
    ls_cuda_launched(run, what);
    far_kernel<TILE>
        <<<(unsigned)(blocks * ls_conv_ceil_div(job->B, together)), THREADS, 0, cuda->stream>>>(
            *job, (int)together);
    ls_cuda_launched(run, what);
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
    /* up to 2,048 tokens three spans of results are all there are, and fewer registers */
    if (job.length > 4 * FAR)
        convolve_far<4>(run, &job, what);
    else if (job.length > FAR)
        convolve_far<3>(run, &job, what);
    ls_cuda_conv_within_spans(run, &job, what);
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    ls_conv_job<T> job = begin<T>(run, node, false, "long_conv");
    convolve(run, job, node->in[0], node->out[0], "long_conv");
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
    const int64_t tiles = ls_conv_ceil_div(blocks, LAGS);
    const size_t ring = RING * (size_t)SPECTRUM * sizeof(float2);
    ls_cuda_note(
        cuda,
        cudaFuncSetAttribute(correlate<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)ring),
        "long_conv_grad");
    correlate<<<(unsigned)(groups * tiles * job.slices), THREADS, ring, cuda->stream>>>(job);
    ls_cuda_launched(run, "long_conv_grad");
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
