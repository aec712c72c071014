/* A pass over long sequences that leaves parts to be transformed by themselves, and the way back.
 *
 * A part of n values is taken as C rows of n / C: value j (n / C) + c is in row j and column c. Each
 * column is transformed and turned, so that transforms of the rows are all that is left. A thread
 * block has COLUMN_THREADS / (C / 16) columns in shared memory. What it writes lies where it has
 * read, or in planes, where the values of a channel follow one another.
 *
 * Sequences are weighted as in block_transform.h; what of it depends on the column is in the turns
 * after the transform. */
#ifndef LS_TENSOR_CUDA_LONG_CONV_COLUMNS_H
#define LS_TENSOR_CUDA_LONG_CONV_COLUMNS_H

#include "tensor/op/long_conv/block_transform.cuh"
#include "tensor/op/long_conv/long_conv_operands.cuh"

enum { COLUMN_THREADS = 256 };

/* Complex values: [sequence][channel][N]. */
struct planes {
    float2 *data;
    int64_t N, channels;

    __device__ __forceinline__ float2 *at(int64_t b, int64_t time, int64_t d) const {
        return data + (b * channels + d) * N + time;
    }
};

/* How columns go to blocks. Sixteen threads have 1 << by_channels channels, so that rows of
 * neighbouring channels are moved together, as those of neighbouring columns are. */
struct column_cut {
    int64_t n;                               /* values of a part */
    int by_channels, column_bits, part_bits; /* 1 << : blocks of a part's columns; parts */
    unsigned mask;                           /* 4n - 1 */
    float part; /* 1 / 2n: what angles of turns are multiples of, in half turns */
};

template <int C> struct column_memory {
    enum { TOGETHER = COLUMN_THREADS / transform_sizes<C>::LINES };
    transform_memory<C, TOGETHER> of_transforms;
    /* By column: what takes the turn of a thread's first result to those of the next three, and of
     * these four to those of the next four, eight, twelve. */
    float2 steps[6][TOGETHER];
};

/* What a thread of it has: value k is `step` k times after time `row`. */
template <int C> struct column_place {
    enum { LINES = transform_sizes<C>::LINES, TOGETHER = column_memory<C>::TOGETHER };
    int line, together, column; /* column: among those of the block */
    unsigned c, step;
    int64_t b, d, row;

    __device__ __forceinline__ column_place(const planes &in, const column_cut &cut, unsigned at)
        : line((int)threadIdx.x / TOGETHER), together((int)threadIdx.x % TOGETHER) {
        const unsigned width = (unsigned)(cut.n / C), columns = TOGETHER >> cut.by_channels;
        const unsigned channels = (unsigned)in.channels >> cut.by_channels;
        const int low = 4 - cut.by_channels, mask = (1 << low) - 1; /* columns of sixteen threads */
        unsigned first = 0;
        if (cut.by_channels > 0) { /* neighbouring channels first, where they are neighbours */
            first = at % channels << cut.by_channels;
            at /= channels;
        }
        column = (together & mask) | together >> 4 << low;
        c = (at & ((1u << cut.column_bits) - 1)) * columns + column;
        at >>= cut.column_bits;
        if (cut.by_channels == 0) {
            first = at % channels;
            at /= channels;
        }
        d = first + ((together & 15) >> low);
        b = at >> cut.part_bits;
        step = LINES * width;
        row = (at & ((1u << cut.part_bits) - 1)) * cut.n + line * width + c;
    }
    /* How many times from `row` on a series has, but for those before it begins, of which `row`
     * alone can be one. */
    template <typename E> __device__ __forceinline__ unsigned left(const series<E> &all) const {
        const int64_t left = all.first + all.count - row;
        return d >= all.D || left < 0 ? 0 : (unsigned)left;
    }
};

template <int C, typename T>
static __device__ __forceinline__ void take(const series<const T> &from, const column_place<C> &own,
                                            float2 (&v)[TRANSFORM_VALUES]) {
    const T *at = from.at(own.b, own.row, own.d);
    const unsigned left = own.left(from);
    const int64_t apart = own.step * from.by_time;
    float value[TRANSFORM_VALUES];
#pragma unroll
    for (unsigned k = 0; k < TRANSFORM_VALUES; k++, at += apart) {
        const bool some = k * own.step < left && (k > 0 || own.row >= from.first);
        value[k] = some ? ls_cuda_wide(*at) : 0;
    }
#pragma unroll
    for (int k = 0; k < TRANSFORM_VALUES; k++) v[k] = scaled(value[k], sixty_fourth(k));
}
template <int C>
static __device__ __forceinline__ void take(const planes &from, const column_place<C> &own,
                                            float2 (&v)[TRANSFORM_VALUES]) {
    const float2 *at = from.at(own.b, own.row, own.d);
#pragma unroll
    for (int k = 0; k < TRANSFORM_VALUES; k++, at += own.step) v[k] = *at;
}

template <int C, typename T>
static __device__ __forceinline__ void put(const real_target<T> &to, const column_place<C> &own,
                                           const float2 (&v)[TRANSFORM_VALUES]) {
    float y[TRANSFORM_VALUES];
#pragma unroll
    for (int k = 0; k < TRANSFORM_VALUES; k++)
        y[k] = v[k].x * sixty_fourth(k).x + v[k].y * sixty_fourth(k).y;
    if (to.to.data != NULL) {
        T *at = to.to.at(own.b, own.row, own.d);
        const unsigned left = own.left(to.to);
        const int64_t apart = own.step * to.to.by_time;
#pragma unroll
        for (unsigned k = 0; k < TRANSFORM_VALUES; k++, at += apart)
            if (k * own.step < left && (k > 0 || own.row >= to.to.first))
                *at = ls_cuda_narrow<T>(y[k]);
    }
    if (to.dskip != NULL && own.row == 0 && own.d < to.to.D) to.dskip[own.d] += y[0];
}
template <int C>
static __device__ __forceinline__ void put(const planes &to, const column_place<C> &own,
                                           const float2 (&v)[TRANSFORM_VALUES]) {
    float2 *at = to.at(own.b, own.row, own.d);
#pragma unroll
    for (int k = 0; k < TRANSFORM_VALUES; k++, at += own.step) *at = v[k];
}

/* Result q of column c is turned by (q - 1/4) c / n, or without weights by q c / n. */
template <int C>
static __device__ __forceinline__ void
make_steps(column_memory<C> &shared, const column_place<C> &own, const column_cut &cut) {
    enum { LINES = transform_sizes<C>::LINES, TOGETHER = column_memory<C>::TOGETHER };
    const unsigned columns = TOGETHER >> cut.by_channels;
    for (unsigned at = threadIdx.x; at < 6 * columns; at += COLUMN_THREADS) {
        const unsigned which = at / columns, column = at % columns;
        const unsigned step = 4 * LINES * (which < 3 ? which + 1 : 4 * (which - 2));
        shared.steps[which][column] =
            root(step * (own.c - own.column + column) & cut.mask, cut.part);
    }
}
template <int C, int SIGN, bool WEIGHTED>
static __device__ __forceinline__ void
turn_columns(const column_memory<C> &shared, const column_place<C> &own, const column_cut &cut,
             float2 (&v)[TRANSFORM_VALUES]) {
    float2 first[4];
    first[0] = root((unsigned)(4 * own.line - (WEIGHTED ? 1 : 0)) * own.c & cut.mask, cut.part);
#pragma unroll
    for (int i = 1; i < 4; i++) first[i] = times(first[0], shared.steps[i - 1][own.column]);
#pragma unroll
    for (int i = 0; i < TRANSFORM_VALUES; i++) {
        const float2 turn =
            i < 4 ? first[i] : times(first[i % 4], shared.steps[2 + i / 4][own.column]);
        v[i] = SIGN > 0 ? times(turn, v[i]) : conjugate_times(turn, v[i]);
    }
}

/* What one launch does: passes over some operands, block after block. */
template <typename In, typename Out> struct column_work {
    enum { MOST = 3 };
    unsigned blocks[MOST];
    In in[MOST];
    Out out[MOST];
    column_cut cut[MOST];
};

#define LS_COLUMN_BOUNDS __launch_bounds__(COLUMN_THREADS, 3)

template <int C, bool WEIGHTED, typename In>
static __global__ void LS_COLUMN_BOUNDS columns_there(const column_work<In, planes> work) {
    extern __shared__ float4 memory[];
    column_memory<C> &shared = *(column_memory<C> *)memory;
    unsigned block = blockIdx.x;
    int i = 0;
    while (block >= work.blocks[i]) block -= work.blocks[i++];
    const column_place<C> own(work.out[i], work.cut[i], block);
    float2 v[TRANSFORM_VALUES];
    take(work.in[i], own, v);
    shared.of_transforms.turns.template make<WEIGHTED>();
    make_steps(shared, own, work.cut[i]);
    __syncthreads();
    const transformer<C, column_memory<C>::TOGETHER, WEIGHTED> by = {
        own.line, own.together, shared.of_transforms.exchange, shared.of_transforms.turns};
    by.forward(v);
    turn_columns<C, -1, WEIGHTED>(shared, own, work.cut[i], v);
    put(work.out[i], own, v);
}

/* Without the factor 1/C. */
template <int C, bool WEIGHTED, typename Out>
static __global__ void LS_COLUMN_BOUNDS columns_back(const column_work<planes, Out> work) {
    extern __shared__ float4 memory[];
    column_memory<C> &shared = *(column_memory<C> *)memory;
    unsigned block = blockIdx.x;
    int i = 0;
    while (block >= work.blocks[i]) block -= work.blocks[i++];
    const column_place<C> own(work.in[i], work.cut[i], block);
    float2 v[TRANSFORM_VALUES];
    take(work.in[i], own, v);
    shared.of_transforms.turns.template make<WEIGHTED>();
    make_steps(shared, own, work.cut[i]);
    __syncthreads();
    const transformer<C, column_memory<C>::TOGETHER, WEIGHTED> by = {
        own.line, own.together, shared.of_transforms.exchange, shared.of_transforms.turns};
    turn_columns<C, 1, WEIGHTED>(shared, own, work.cut[i], v);
    by.back(v);
    put(work.out[i], own, v);
}

#endif
