/* Complex modes that all channels share.
 *
 * Time is cut in chunks of a fixed length, counted from where the recurrence begins, and a thread
 * has one mode of one chunk of one sequence. First every chunk is walked from zero, then what
 * enters each chunk is carried along, then the chunks are walked once more from there. The gradient
 * goes the same way backwards; it computes the states of a chunk again.
 *
 * What is f32 is walked in double, what is bf16 in f32, which is four times as fast; what goes from
 * chunk to chunk is double for both. */
#include "tensor/cuda/hold.cuh"
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/diagonal_scan/diagonal_scan.h"
}

enum { CHUNK = 32, MODES = 64, AHEAD = 8, CARRIED = 32 }; /* read ahead: steps, chunks */

/* ---- numbers within a chunk ---- */

template <typename T> struct walked;
template <> struct walked<float> {
    typedef double real;
    typedef double2 number;
};
template <> struct walked<ls_cuda_bf16> {
    typedef float real;
    typedef float2 number;
};
/* A number in double, in a chunk's type, and back. */
template <typename N> static __device__ __forceinline__ N number_of(double2 x) {
    return N{(decltype(N::x))x.x, (decltype(N::x))x.y};
}
template <typename N> static __device__ __forceinline__ double2 in_double(N x) {
    return make_double2(x.x, x.y);
}

/* [batch,T,2P] rows at one stride. */
template <typename T> struct pairs {
    typedef typename walked<T>::number number;
    T *data;
    int64_t stride;
    bool whole; /* pairs are aligned to their size */

    __device__ __forceinline__ number load(int64_t row, int64_t p) const {
        const T *at = data + row * stride + 2 * p;
        T both[2];
        if (whole)
            take_whole(at, both);
        else
            both[0] = at[0], both[1] = at[1];
        return number{ls_cuda_wide(both[0]), ls_cuda_wide(both[1])};
    }
    __device__ __forceinline__ void store(int64_t row, int64_t p, number value) const {
        T *at = data + row * stride + 2 * p;
        const T both[2] = {ls_cuda_narrow<T>((float)value.x), ls_cuda_narrow<T>((float)value.y)};
        if (whole)
            put_whole(at, both);
        else
            at[0] = both[0], at[1] = both[1];
    }

  private:
    static __device__ __forceinline__ void take_whole(const float *at, float (&to)[2]) {
        float2 two = *(const float2 *)at;
        to[0] = two.x, to[1] = two.y;
    }
    static __device__ __forceinline__ void take_whole(const ls_cuda_bf16 *at,
                                                      ls_cuda_bf16 (&to)[2]) {
        const ushort2 two = *(const ushort2 *)at;
        to[0].bits = two.x, to[1].bits = two.y;
    }
    static __device__ __forceinline__ void put_whole(float *at, const float (&from)[2]) {
        *(float2 *)at = make_float2(from[0], from[1]);
    }
    static __device__ __forceinline__ void put_whole(ls_cuda_bf16 *at,
                                                     const ls_cuda_bf16 (&from)[2]) {
        *(ushort2 *)at = make_ushort2(from[0].bits, from[1].bits);
    }
};

template <typename T> static pairs<T> pairs_of(const ls_tensor *tensor) {
    pairs<T> r = {};
    int64_t count, width;
    if (tensor == NULL) return r;
    ls_rows(tensor, &count, &width, &r.stride);
    r.data = (T *)ls_data(tensor);
    r.whole = r.stride % 2 == 0 && (uintptr_t)r.data % (2 * sizeof(T)) == 0;
    return r;
}

/* What discretising needs, and its result. */
typedef struct poles {
    const float *real, *imag, *log_step;
    int64_t P;
    ls_modes_attributes about;
    ls_cuda_complex *a, *gain, *leap; /* [P]: x <- a x + gain v; leap = a^CHUNK */
} poles;

template <typename T> struct scan {
    poles of;
    int64_t B, length, chunks, blocks; /* blocks of MODES modes */
    pairs<T> v, y, dv;                 /* y: y, or dy; dv: data may be NULL */
    const uint8_t *valid;
    const float *before, *dafter;
    float *after, *dbefore;
    ls_cuda_complex *enters; /* [B,chunks,P]: what a chunk ends with from zero, then what enters it;
                                last the gradient of a */
    ls_cuda_complex *laters; /* backward, the same of gradients; last the gradient of the gain */
};

static __device__ ls_cuda_complex pole(const poles &m, int64_t p) {
    const double real = m.real[p];
    return make_double2(real > m.about.real_max ? m.about.real_max : real, m.imag[p]);
}

static __device__ double step_size(const poles &m, int64_t p) {
    return m.about.step_scale * exp((double)m.log_step[p]);
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS) discretise(const poles m) {
    int64_t p = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (p >= m.P) return;
    const double step = step_size(m, p);
    const ls_cuda_held held = ls_cuda_hold_at(m.about.hold, step * pole(m, p));
    m.a[p] = held.a;
    m.gain[p] = step * held.w;
    m.leap[p] = ls_cuda_power(held.a, CHUNK);
}

/* One mode of one chunk. */
template <typename T> struct strip {
    typedef typename walked<T>::number number;
    const scan<T> &s;
    int64_t b, chunk, p, first; /* first: step */
    int count;
    number a, gain;

    __device__ __forceinline__ strip(const scan<T> &scan) : s(scan) {
        int64_t unit = blockIdx.x;
        p = unit % s.blocks * MODES + threadIdx.x;
        chunk = unit / s.blocks % s.chunks;
        b = unit / (s.blocks * s.chunks);
        first = chunk * CHUNK;
        count = s.length - first < CHUNK ? (int)(s.length - first) : CHUNK;
        if (!exists()) return;
        a = number_of<number>(s.of.a[p]);
        gain = number_of<number>(s.of.gain[p]);
    }
    __device__ __forceinline__ bool exists() const { return p < s.of.P; }
    __device__ __forceinline__ bool is_last() const { return chunk + 1 == s.chunks; }
    __device__ __forceinline__ int64_t place() const { return (b * s.chunks + chunk) * s.of.P + p; }
    /* The row of step k of the chunk. */
    __device__ __forceinline__ int64_t row(int k) const {
        int64_t step = first + k;
        return b * s.length + (s.of.about.reversed ? s.length - 1 - step : step);
    }
    __device__ __forceinline__ bool counts(int64_t row) const {
        return s.valid == NULL || s.valid[row] != 0;
    }
    __device__ __forceinline__ number drive(int k) const {
        int64_t at = row(k);
        return counts(at) ? s.v.load(at, p) : number{0, 0};
    }
    __device__ __forceinline__ number down(int k) const {
        return (typename walked<T>::real)s.of.about.factor * ls_cuda_conj(s.y.load(row(k), p));
    }

    /* Walks from x; see(k, x before step k, x after it). */
    template <typename F> __device__ __forceinline__ number walk(number x, F see) const {
        for (int start = 0; start < count; start += AHEAD) {
            number v[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                v[i] = start + i < count ? drive(start + i) : number{0, 0};
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                if (start + i >= count) continue;
                const number next = gain * v[i] + a * x;
                see(start + i, x, next);
                x = next;
            }
        }
        return x;
    }
};

/* ---- what a chunk ends with from zero ---- */

template <typename T>
static __global__ void __launch_bounds__(MODES) ends_kernel(const scan<T> s, bool backwards) {
    const strip<T> c(s);
    if (!c.exists()) return;
    typedef typename walked<T>::number number;
    const number zero = {0, 0};
    if (!c.is_last()) /* nothing enters behind the last one */
        s.enters[c.place()] = in_double(c.walk(zero, [](int, number, number) {}));
    if (!backwards) return;
    number g = zero;
#pragma unroll 8
    for (int k = c.count - 1; k >= 0; k--) g = (g + c.down(k)) * ls_cuda_conj(c.a);
    s.laters[c.place()] = in_double(g);
}

/* ---- what enters each chunk ---- */

/* A thread has one mode of one sequence. */
template <typename T>
static __global__ void __launch_bounds__(MODES) carry_kernel(const scan<T> s) {
    int64_t p = (int64_t)(blockIdx.x % s.blocks) * MODES + threadIdx.x, b = blockIdx.x / s.blocks;
    const int64_t P = s.of.P, state = 2 * (b * P + p);
    if (p >= P) return;
    const ls_cuda_complex leap = s.of.leap[p], zero = make_double2(0, 0);
    ls_cuda_complex x = zero, *at = s.enters + b * s.chunks * P + p;
    if (s.before != NULL) x = make_double2(s.before[state], s.before[state + 1]);
    for (int64_t first = 0; first < s.chunks; first += CARRIED) {
        ls_cuda_complex end[CARRIED];
#pragma unroll
        for (int i = 0; i < CARRIED; i++)
            end[i] = first + i + 1 < s.chunks ? at[(first + i) * P] : zero;
#pragma unroll
        for (int i = 0; i < CARRIED; i++) {
            if (first + i >= s.chunks) continue;
            at[(first + i) * P] = x;
            x = end[i] + leap * x;
        }
    }
}

template <typename T>
static __global__ void __launch_bounds__(MODES) carry_back_kernel(const scan<T> s) {
    int64_t p = (int64_t)(blockIdx.x % s.blocks) * MODES + threadIdx.x, b = blockIdx.x / s.blocks;
    const int64_t P = s.of.P, state = 2 * (b * P + p), last = s.chunks - 1;
    if (p >= P) return;
    const ls_cuda_complex leap = ls_cuda_conj(s.of.leap[p]), zero = make_double2(0, 0);
    ls_cuda_complex g = zero, *at = s.laters + b * s.chunks * P + p;
    if (s.dafter != NULL) g = make_double2(s.dafter[state], s.dafter[state + 1]);
    /* the last chunk may be shorter */
    const ls_cuda_complex left = at[last * P];
    at[last * P] = g;
    g = left + ls_cuda_conj(ls_cuda_power(s.of.a[p], s.length - last * CHUNK)) * g;
    for (int64_t first = last - 1; first >= 0; first -= CARRIED) {
        ls_cuda_complex end[CARRIED];
#pragma unroll
        for (int i = 0; i < CARRIED; i++) end[i] = first - i >= 0 ? at[(first - i) * P] : zero;
#pragma unroll
        for (int i = 0; i < CARRIED; i++) {
            if (first - i < 0) continue;
            at[(first - i) * P] = g;
            g = end[i] + leap * g;
        }
    }
    if (s.dbefore == NULL) return;
    s.dbefore[state] = (float)g.x;
    s.dbefore[state + 1] = (float)g.y;
}

/* ---- the chunks from what enters them ---- */

template <typename T>
static __global__ void __launch_bounds__(MODES) forward_kernel(const scan<T> s) {
    const strip<T> c(s);
    if (!c.exists()) return;
    typedef typename walked<T>::number number;
    const typename walked<T>::real factor = s.of.about.factor;
    const number x =
        c.walk(number_of<number>(s.enters[c.place()]), [&](int k, number, number next) {
            s.y.store(c.row(k), c.p, factor * ls_cuda_conj(next));
        });
    if (!c.is_last() || s.after == NULL) return;
    const int64_t state = 2 * (c.b * s.of.P + c.p);
    s.after[state] = (float)x.x;
    s.after[state + 1] = (float)x.y;
}

template <typename T>
static __global__ void __launch_bounds__(MODES) backward_kernel(const scan<T> s) {
    typedef typename walked<T>::number number;
    __shared__ number states[CHUNK][MODES]; /* a thread's own, before every step */
    const strip<T> c(s);
    if (!c.exists()) return;
    c.walk(number_of<number>(s.enters[c.place()]),
           [&](int k, number x, number) { states[k][threadIdx.x] = x; });
    number g = number_of<number>(s.laters[c.place()]), da = {0, 0}, dgain = da;
#pragma unroll 4
    for (int k = c.count - 1; k >= 0; k--) {
        g = g + c.down(k);
        da = da + g * ls_cuda_conj(states[k][threadIdx.x]);
        dgain = dgain + g * ls_cuda_conj(c.drive(k));
        if (s.dv.data != NULL)
            s.dv.store(c.row(k), c.p, c.counts(c.row(k)) ? g * ls_cuda_conj(c.gain) : number{0, 0});
        g = g * ls_cuda_conj(c.a);
    }
    s.enters[c.place()] = in_double(da);
    s.laters[c.place()] = in_double(dgain);
}

/* ---- gradients of the parameters ---- */

static __device__ ls_cuda_complex block_sum(ls_cuda_complex value) {
    return make_double2(ls_cuda_block_sum<LS_CUDA_THREADS>(value.x),
                        ls_cuda_block_sum<LS_CUDA_THREADS>(value.y));
}

/* A block has one mode and adds up all chunks of all sequences. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    finish_kernel(const poles m, const ls_cuda_complex *of_a, const ls_cuda_complex *of_gain,
                  int64_t count, float *dreal, float *dimag, float *dlog_step) {
    const int64_t p = blockIdx.x;
    ls_cuda_complex da = make_double2(0, 0), dgain = da;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < count; i += LS_CUDA_THREADS) {
        da = da + of_a[i * m.P + p];
        dgain = dgain + of_gain[i * m.P + p];
    }
    da = block_sum(da);
    dgain = block_sum(dgain);
    if (threadIdx.x != 0) return;
    const double step = step_size(m, p);
    const ls_cuda_complex L = pole(m, p);
    const ls_cuda_held held = ls_cuda_hold_at(m.about.hold, step * L);
    const ls_cuda_complex dz =
        da * ls_cuda_conj(held.a_slope) + step * (dgain * ls_cuda_conj(held.w_slope));
    if (!((double)m.real[p] > m.about.real_max)) dreal[p] += (float)(step * dz.x);
    dimag[p] += (float)(step * dz.y);
    dlog_step[p] += (float)(step * (dz * ls_cuda_conj(L) + dgain * ls_cuda_conj(held.w)).x);
}

/* ---- on the host ---- */

static int64_t chunks_of(const ls_node *node) {
    return ls_ceil_div(node->in[LS_MODES_V]->dim[1], CHUNK);
}

/* Complex numbers: a, gain and leap of all modes, and what goes from chunk to chunk. */
static int64_t room_of(const ls_node *node, int kinds) {
    const ls_tensor *v = node->in[LS_MODES_V];
    return v->dim[2] / 2 * (3 + kinds * v->dim[0] * chunks_of(node));
}
static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)room_of(node, 1) * sizeof(ls_cuda_complex);
}
static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)room_of(node, 2) * sizeof(ls_cuda_complex);
}

template <typename T> static scan<T> scan_of(const ls_run *run, const ls_node *node) {
    const ls_tensor *v = node->in[LS_MODES_V];
    scan<T> s = {};
    s.of.real = ls_cuda_floats(node->in[LS_MODES_REAL]);
    s.of.imag = ls_cuda_floats(node->in[LS_MODES_IMAG]);
    s.of.log_step = ls_cuda_floats(node->in[LS_MODES_LOG_STEP]);
    s.of.P = v->dim[2] / 2;
    s.of.about = *(const ls_modes_attributes *)node->attributes;
    s.of.a = (ls_cuda_complex *)run->workspace;
    s.of.gain = s.of.a + s.of.P;
    s.of.leap = s.of.gain + s.of.P;
    s.B = v->dim[0];
    s.length = v->dim[1];
    s.chunks = chunks_of(node);
    s.blocks = ls_ceil_div(s.of.P, MODES);
    s.enters = s.of.leap + s.of.P;
    s.v = pairs_of<T>(v);
    if (node->in[LS_MODES_VALID] != NULL)
        s.valid = (const uint8_t *)ls_data(node->in[LS_MODES_VALID]);
    s.before = ls_cuda_floats(node->in[LS_MODES_BEFORE]);
    return s;
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    ls_cuda_steady(run);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    scan<T> s = scan_of<T>(run, node);
    s.y = pairs_of<T>(node->out[LS_MODES_Y]);
    s.after = ls_cuda_floats(node->out[LS_MODES_AFTER]);
    const unsigned lines = (unsigned)(s.B * s.blocks), strips = (unsigned)(lines * s.chunks);
    discretise<<<ls_cuda_blocks(s.of.P, LS_CUDA_THREADS), LS_CUDA_THREADS, 0, stream>>>(s.of);
    if (s.chunks > 1) ends_kernel<<<strips, MODES, 0, stream>>>(s, false);
    carry_kernel<<<lines, MODES, 0, stream>>>(s);
    forward_kernel<<<strips, MODES, 0, stream>>>(s);
    ls_cuda_launched(run, "diagonal_scan");
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    scan<T> s = scan_of<T>(run, node);
    s.laters = s.enters + s.B * s.chunks * s.of.P;
    s.y = pairs_of<T>(node->in[LS_MODES_DY]);
    s.dv = pairs_of<T>(node->out[LS_MODES_DV]);
    s.dafter = ls_cuda_floats(node->in[LS_MODES_DAFTER]);
    s.dbefore = ls_cuda_floats(node->out[LS_MODES_DBEFORE]);
    const unsigned lines = (unsigned)(s.B * s.blocks), strips = (unsigned)(lines * s.chunks);
    discretise<<<ls_cuda_blocks(s.of.P, LS_CUDA_THREADS), LS_CUDA_THREADS, 0, stream>>>(s.of);
    ends_kernel<<<strips, MODES, 0, stream>>>(s, true);
    carry_kernel<<<lines, MODES, 0, stream>>>(s);
    carry_back_kernel<<<lines, MODES, 0, stream>>>(s);
    backward_kernel<<<strips, MODES, 0, stream>>>(s);
    finish_kernel<<<(unsigned)s.of.P, LS_CUDA_THREADS, 0, stream>>>(
        s.of, s.enters, s.laters, s.B * s.chunks,
        (float *)ls_param_gradient(run, node->in[LS_MODES_REAL]),
        (float *)ls_param_gradient(run, node->in[LS_MODES_IMAG]),
        (float *)ls_param_gradient(run, node->in[LS_MODES_LOG_STEP]));
    ls_cuda_launched(run, "diagonal_scan_grad");
}

LS_CUDA_DECLARE_TABLE(diagonal_scan);
const ls_kernel LS_CUDA_TABLE(diagonal_scan)[] = {
    {"diagonal_scan", {NULL, forward<float>, forward<ls_cuda_bf16>}, forward_workspace},
    {"diagonal_scan_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
