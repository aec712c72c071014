/* Maps over all elements of a layout: out[.](i) = f(in[.](i)). */
#ifndef LS_TENSOR_CUDA_MAP_H
#define LS_TENSOR_CUDA_MAP_H

#include "tensor/cuda/follow.cuh"
#include "tensor/cuda/rows.cuh"

/* Operands of a map: outputs come first in the layout, then inputs; the first input is of type A,
 * the others of type B. An output may be an input itself. */
template <typename O, typename A, typename B> struct ls_cuda_map_operands {
    O *out[2];
    const A *first;
    const B *other[2];
};

/* f(index, in, out): LANES elements from number `index` on. */
template <int LANES, int OUT, int IN, typename O, typename A, typename B, typename F>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    ls_cuda_map_kernel(const ls_cuda_layout layout, const ls_cuda_map_operands<O, A, B> at, F f) {
    enum { AHEAD = 2, OTHER = IN > 1 ? IN - 1 : 1 };
    uint64_t begin = (uint64_t)blockIdx.x * (AHEAD * LS_CUDA_THREADS) + threadIdx.x;
    ls_cuda_pack<A, LANES> first[AHEAD];
    ls_cuda_pack<B, LANES> other[AHEAD][OTHER];
    int64_t place[AHEAD][OUT + IN];
    ls_cuda_after();
#pragma unroll
    for (int ahead = 0; ahead < AHEAD; ahead++) {
        uint64_t index = (begin + (uint64_t)ahead * LS_CUDA_THREADS) * LANES;
        if (index >= (uint64_t)layout.count) continue;
        ls_cuda_place(layout, index, place[ahead]);
        first[ahead] = ls_cuda_take<LANES>(at.first + place[ahead][OUT]);
#pragma unroll
        for (int i = 1; i < IN; i++)
            other[ahead][i - 1] = ls_cuda_take<LANES>(at.other[i - 1] + place[ahead][OUT + i]);
    }
#pragma unroll
    for (int ahead = 0; ahead < AHEAD; ahead++) {
        uint64_t index = (begin + (uint64_t)ahead * LS_CUDA_THREADS) * LANES;
        if (index >= (uint64_t)layout.count) continue;
        float in[IN][LANES], out[OUT][LANES];
        first[ahead].wide(in[0]);
#pragma unroll
        for (int i = 1; i < IN; i++) other[ahead][i - 1].wide(in[i]);
        f(index, in, out);
#pragma unroll
        for (int o = 0; o < OUT; o++) ls_cuda_store<LANES>(at.out[o] + place[ahead][o], out[o]);
    }
}

template <int OUT, int IN, typename O, typename A, typename B, typename F>
static void ls_cuda_map(const ls_run *run, const ls_cuda_layout *layout,
                        ls_cuda_map_operands<O, A, B> at, F f, const char *what) {
    enum { LANES = ls_cuda_lanes<O, A, B>::count, TILE = 2 * LS_CUDA_THREADS };
    if (layout->count == 0) return;
    bool wide = ls_cuda_in_lanes(layout, LANES) && ls_cuda_aligned(at.first);
    for (int o = 0; o < OUT; o++) wide = wide && ls_cuda_aligned(at.out[o]);
    for (int i = 1; i < IN; i++) wide = wide && ls_cuda_aligned(at.other[i - 1]);
    if (wide)
        ls_cuda_follow(run, what, ls_cuda_map_kernel<LANES, OUT, IN, O, A, B, F>,
                       ls_cuda_blocks(layout->count / LANES, TILE), LS_CUDA_THREADS, *layout, at,
                       f);
    else
        ls_cuda_follow(run, what, ls_cuda_map_kernel<1, OUT, IN, O, A, B, F>,
                       ls_cuda_blocks(layout->count, TILE), LS_CUDA_THREADS, *layout, at, f);
}

#endif
