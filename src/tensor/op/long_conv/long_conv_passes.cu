#include "tensor/op/long_conv/long_conv_passes.cuh"

#include "tensor/op/long_conv/block_transform.cuh"

/* A pass takes parts of n values to R parts each. Sequences are weighted as in block_transform.h:
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

static int radix_of(const ls_conv_passes &passes, int64_t n) {
    return (int)ls_min(16, n / passes.whole);
}
static unsigned pass_blocks(const plane &at, int R, int64_t sequences) {
    return (unsigned)ls_ceil_div(sequences * at.N / R * at.width, LS_CUDA_THREADS);
}

template <bool WEIGHTED, typename In>
static void pass_there(const ls_conv_passes &passes, const In &in, const plane &out, int64_t n,
                       int64_t sequences) {
    const int R = radix_of(passes, n);
    const unsigned blocks = pass_blocks(out, R, sequences);
    void (*kernel)(In, plane, int64_t, int64_t) = R == 2   ? pass_forward<2, WEIGHTED, In>
                                                  : R == 4 ? pass_forward<4, WEIGHTED, In>
                                                  : R == 8 ? pass_forward<8, WEIGHTED, In>
                                                           : pass_forward<16, WEIGHTED, In>;
    kernel<<<blocks, LS_CUDA_THREADS, 0, ls_cuda_of(passes.run)->stream>>>(in, out, n, sequences);
    ls_cuda_launched(passes.run, passes.what);
}
template <bool WEIGHTED, typename Out>
static void pass_home(const ls_conv_passes &passes, const plane &in, const Out &out, int64_t n,
                      int64_t sequences) {
    const int R = radix_of(passes, n);
    const unsigned blocks = pass_blocks(in, R, sequences);
    void (*kernel)(plane, Out, int64_t, int64_t) = R == 2   ? pass_back<2, WEIGHTED, Out>
                                                   : R == 4 ? pass_back<4, WEIGHTED, Out>
                                                   : R == 8 ? pass_back<8, WEIGHTED, Out>
                                                            : pass_back<16, WEIGHTED, Out>;
    kernel<<<blocks, LS_CUDA_THREADS, 0, ls_cuda_of(passes.run)->stream>>>(in, out, n, sequences);
    ls_cuda_launched(passes.run, passes.what);
}

template <typename T>
void ls_conv_to_parts(const ls_conv_passes &passes, const series<const T> &from, const plane &to,
                      int64_t sequences) {
    pass_there<true>(passes, from, to, to.N, sequences);
    for (int64_t n = to.N / radix_of(passes, to.N); n > passes.whole; n /= radix_of(passes, n))
        pass_there<false>(passes, to, to, n, sequences);
}
/* The passes that ls_conv_to_parts made, the last one first. */
static void to_first_pass(const ls_conv_passes &passes, const plane &in, int64_t n,
                          int64_t sequences) {
    if (n <= passes.whole) return;
    to_first_pass(passes, in, n / radix_of(passes, n), sequences);
    pass_home<false>(passes, in, in, n, sequences);
}
template <typename T>
void ls_conv_from_parts(const ls_conv_passes &passes, const plane &from, const real_target<T> &to,
                        int64_t sequences) {
    to_first_pass(passes, from, from.N / radix_of(passes, from.N), sequences);
    pass_home<true>(passes, from, to, from.N, sequences);
}

template void ls_conv_to_parts(const ls_conv_passes &, const series<const float> &, const plane &,
                               int64_t);
template void ls_conv_to_parts(const ls_conv_passes &, const series<const ls_cuda_bf16> &,
                               const plane &, int64_t);
template void ls_conv_from_parts(const ls_conv_passes &, const plane &, const real_target<float> &,
                                 int64_t);
template void ls_conv_from_parts(const ls_conv_passes &, const plane &,
                                 const real_target<ls_cuda_bf16> &, int64_t);
