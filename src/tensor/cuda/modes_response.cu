/* Impulse responses from powers: see modes.h. A block has one piece of time of one channel; its
 * warps share out the modes, its lanes the times, which step on by a warp's width. Pieces are
 * counted from the response's begin, so that an element does not depend on how many there are. */
#include "tensor/cuda/modes.cuh"

enum { WARP = 32, WARPS = 8, TIMES = 16, PIECE = WARP * TIMES };

static __device__ __forceinline__ const ls_cuda_complex *
part_of(const ls_cuda_modes &m, const ls_cuda_complex *systems, int64_t channel, int part) {
    return systems + channel * ls_cuda_modes_each(m) + part * m.h;
}

static __global__ void __launch_bounds__(WARP *WARPS)
    response_kernel(const ls_cuda_modes m, float *out, int64_t stride, int64_t first, int64_t count,
                    int64_t pieces) {
    __shared__ double sums[WARPS][PIECE];
    const int64_t channel = blockIdx.x / pieces, start = blockIdx.x % pieces * PIECE;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t left = count - start;
    const int steps = left < PIECE ? (int)((left + WARP - 1) / WARP) : TIMES;
    const ls_cuda_complex *a = part_of(m, m.systems, channel, LS_CUDA_MODES_A);
    const ls_cuda_complex *b = part_of(m, m.systems, channel, LS_CUDA_MODES_B);
    const ls_cuda_complex *c = part_of(m, m.systems, channel, LS_CUDA_MODES_C);
    double sum[TIMES] = {};
    for (int n = warp; n < m.h; n += WARPS) {
        const ls_cuda_complex leap = ls_cuda_power(a[n], WARP);
        ls_cuda_complex z = c[n] * b[n] * ls_cuda_power(a[n], first + start + lane);
#pragma unroll
        for (int i = 0; i < TIMES; i++) {
            if (i >= steps) continue;
            sum[i] += z.x;
            z = z * leap;
        }
    }
#pragma unroll
    for (int i = 0; i < TIMES; i++) sums[warp][i * WARP + lane] = sum[i];
    __syncthreads();
    for (int i = threadIdx.x; i < PIECE && i < left; i += WARP * WARPS) {
        double total = 0;
        for (int w = 0; w < WARPS; w++) total += sums[w][i];
        out[channel * stride + start + i] = (float)total;
    }
}

void ls_cuda_response(const ls_run *run, const ls_cuda_modes *modes, float *out, int64_t stride,
                      int64_t first, int64_t count) {
    const int64_t pieces = ls_ceil_div(count, PIECE);
    if (pieces == 0) return;
    response_kernel<<<(unsigned)(modes->channels * pieces), WARP * WARPS, 0,
                      ls_cuda_of(run)->stream>>>(*modes, out, stride, first, count, pieces);
    ls_cuda_launched(run, "impulse response");
}

/* ---- gradient ----
 *
 * With dk_l of element l, S = sum dk_l a^l and its derivative by a are all that is needed. */

static __device__ __forceinline__ double gradient_at(const ls_cuda_dresponse &given,
                                                     int64_t channel, int64_t l) {
    const int64_t i = l - given.first;
    if (l == 0 && given.zeroth != NULL) return given.zeroth[channel * given.zeroth_stride];
    return i >= 0 && i < given.count ? given.further[channel * given.stride + i] : 0;
}

/* partial [channels][pieces][h]: S and its derivative. */
static __global__ void __launch_bounds__(WARP *WARPS)
    moments_kernel(const ls_cuda_modes m, const ls_cuda_dresponse given, int64_t pieces,
                   ls_cuda_complex *partial) {
    const int64_t channel = blockIdx.x / pieces, start = blockIdx.x % pieces * PIECE;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t left = given.first + given.count - start;
    const int steps = left < PIECE ? (int)((left + WARP - 1) / WARP) : TIMES;
    const ls_cuda_complex *a = part_of(m, m.systems, channel, LS_CUDA_MODES_A);
    double d[TIMES], next[TIMES]; /* of a^l: dk_l, and (l + 1) dk_{l+1} */
#pragma unroll
    for (int i = 0; i < TIMES; i++) {
        const int64_t l = start + i * WARP + lane;
        d[i] = gradient_at(given, channel, l);
        next[i] = (double)(l + 1) * gradient_at(given, channel, l + 1);
    }
    for (int n = warp; n < m.h; n += WARPS) {
        const ls_cuda_complex leap = ls_cuda_power(a[n], WARP);
        ls_cuda_complex z = ls_cuda_power(a[n], start + lane);
        ls_cuda_complex sum = make_double2(0, 0), slope = sum;
#pragma unroll
        for (int i = 0; i < TIMES; i++) {
            if (i >= steps) continue;
            sum = sum + d[i] * z;
            slope = slope + next[i] * z;
            z = z * leap;
        }
        sum = make_double2(ls_cuda_warp_sum(sum.x), ls_cuda_warp_sum(sum.y));
        slope = make_double2(ls_cuda_warp_sum(slope.x), ls_cuda_warp_sum(slope.y));
        if (lane != 0) continue;
        ls_cuda_complex *to = partial + ((int64_t)blockIdx.x * m.h + n) * 2;
        to[0] = sum;
        to[1] = slope;
    }
}

/* A thread has one mode of one channel. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    gather_kernel(const ls_cuda_modes m, int64_t pieces, const ls_cuda_complex *partial,
                  ls_cuda_complex *dsystems) {
    const int64_t index = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    const int64_t channel = index / m.h;
    const int n = (int)(index % m.h);
    if (channel >= m.channels) return;
    ls_cuda_complex sum = make_double2(0, 0), slope = sum;
    for (int64_t piece = 0; piece < pieces; piece++) {
        const ls_cuda_complex *from = partial + ((channel * pieces + piece) * m.h + n) * 2;
        sum = sum + from[0];
        slope = slope + from[1];
    }
    const ls_cuda_complex b = part_of(m, m.systems, channel, LS_CUDA_MODES_B)[n];
    const ls_cuda_complex c = part_of(m, m.systems, channel, LS_CUDA_MODES_C)[n];
    ls_cuda_complex *to = dsystems + channel * ls_cuda_modes_each(m) + n;
    to[LS_CUDA_MODES_A * m.h] = ls_cuda_conj(c * b * slope);
    to[LS_CUDA_MODES_B * m.h] = ls_cuda_conj(c * sum);
    to[LS_CUDA_MODES_C * m.h] = ls_cuda_conj(b * sum);
}

static int64_t pieces_of(int64_t first, int64_t count) {
    return ls_max(1, ls_ceil_div(first + count, PIECE));
}

int64_t ls_cuda_response_grad_room(const ls_cuda_modes *modes, int64_t first, int64_t count) {
    return 2 * modes->channels * modes->h * pieces_of(first, count);
}

void ls_cuda_response_grad(const ls_run *run, const ls_cuda_modes *modes,
                           const ls_cuda_dresponse *given, ls_cuda_complex *dsystems,
                           ls_cuda_complex *room) {
    const int64_t pieces = pieces_of(given->first, given->count);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    moments_kernel<<<(unsigned)(modes->channels * pieces), WARP * WARPS, 0, stream>>>(
        *modes, *given, pieces, room);
    gather_kernel<<<ls_cuda_blocks(modes->channels * modes->h, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                    stream>>>(*modes, pieces, room, dsystems);
    ls_cuda_launched(run, "impulse response's gradient");
}
