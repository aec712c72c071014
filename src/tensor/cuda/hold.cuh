/* Complex numbers, and how a pole of a linear system becomes discrete. That is done in double: what
 * is a rounding there would turn phases over long times. */
#ifndef LS_TENSOR_CUDA_HOLD_H
#define LS_TENSOR_CUDA_HOLD_H

#include <type_traits>

#include "tensor/cuda/cuda.cuh"

extern "C" {
#include "tensor/op/state_space/state_space.h"
}

typedef double2 ls_cuda_complex;

/* The type of a complex number's parts; there is none of what is no complex number. */
template <typename N>
using ls_cuda_part =
    std::enable_if_t<std::is_same<N, float2>::value || std::is_same<N, double2>::value,
                     decltype(N::x)>;

template <typename N, typename R = ls_cuda_part<N>>
static __device__ __forceinline__ N operator+(N a, N b) {
    return N{a.x + b.x, a.y + b.y};
}
template <typename N, typename R = ls_cuda_part<N>>
static __device__ __forceinline__ N operator-(N a, N b) {
    return N{a.x - b.x, a.y - b.y};
}
template <typename N, typename R = ls_cuda_part<N>>
static __device__ __forceinline__ N operator*(N a, N b) {
    return N{a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
template <typename N> static __device__ __forceinline__ N operator*(ls_cuda_part<N> a, N b) {
    return N{a * b.x, a * b.y};
}
template <typename N, typename R = ls_cuda_part<N>>
static __device__ __forceinline__ N ls_cuda_conj(N a) {
    return N{a.x, -a.y};
}
static __device__ __forceinline__ ls_cuda_complex ls_cuda_inverse(ls_cuda_complex a) {
    double size = a.x * a.x + a.y * a.y;
    return make_double2(a.x / size, -a.y / size);
}
/* a^n by squares. */
static __device__ __forceinline__ ls_cuda_complex ls_cuda_power(ls_cuda_complex a, int64_t n) {
    ls_cuda_complex power = make_double2(1, 0);
    for (; n > 0; n /= 2, a = a * a)
        if (n % 2 == 1) power = power * a;
    return power;
}

/* x' = L x + u becomes x <- a x + step w u; both are functions of z = step L,
 * as are their slopes. */
typedef struct ls_cuda_held {
    ls_cuda_complex a, w, a_slope, w_slope;
} ls_cuda_held;

static __device__ inline ls_cuda_complex ls_cuda_series(ls_cuda_complex z, const double (&c)[5]) {
    ls_cuda_complex sum = make_double2(c[4], 0);
    for (int i = 3; i >= 0; i--) sum = z * sum + make_double2(c[i], 0);
    return sum;
}

/* w = (e^z - 1) / z without the loss of digits near 0. */
static __device__ inline ls_cuda_held ls_cuda_held_zoh(ls_cuda_complex z) {
    double sine, cosine, half = sin(z.y / 2), grown = exp(z.x);
    sincos(z.y, &sine, &cosine);
    ls_cuda_held h;
    h.a = h.a_slope = make_double2(grown * cosine, grown * sine);
    if (z.x * z.x + z.y * z.y < 1e-6) {
        h.w = ls_cuda_series(z, {1, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120});
        h.w_slope = ls_cuda_series(z, {1.0 / 2, 1.0 / 3, 1.0 / 8, 1.0 / 30, 1.0 / 144});
    } else {
        ls_cuda_complex over = ls_cuda_inverse(z);
        h.w = make_double2(expm1(z.x) * cosine - 2 * half * half, grown * sine) * over;
        h.w_slope = (h.a - h.w) * over;
    }
    return h;
}

static __device__ inline ls_cuda_held ls_cuda_held_bilinear(ls_cuda_complex z) {
    const ls_cuda_complex half = 0.5 * z, one = make_double2(1, 0);
    ls_cuda_held h;
    h.w = ls_cuda_inverse(one - half);
    h.a = (one + half) * h.w;
    h.a_slope = h.w * h.w;
    h.w_slope = 0.5 * h.a_slope;
    return h;
}

static __device__ inline ls_cuda_held ls_cuda_hold_at(ls_hold hold, ls_cuda_complex z) {
    return hold == LS_HOLD_ZOH ? ls_cuda_held_zoh(z) : ls_cuda_held_bilinear(z);
}

#endif
