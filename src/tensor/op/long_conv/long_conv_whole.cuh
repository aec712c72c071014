/* Long convolutions that a block of threads does in its shared memory: up to M values of four
 * channels, there and back. */
#ifndef LS_TENSOR_CUDA_LONG_CONV_WHOLE_H
#define LS_TENSOR_CUDA_LONG_CONV_WHOLE_H

#include "tensor/op/long_conv/block_transform.cuh"
#include "tensor/op/long_conv/long_conv_operands.cuh"

enum {
    CHANNELS = 4,
    VALUES = TRANSFORM_VALUES,
    WHOLE = 2048 /* the largest M, where there is enough shared memory, else half of it */
};

template <int M> using whole_transformer = transformer<M, CHANNELS, true>;

/* ---- what values are taken from and put to, a thread's sixteen at a time ---- */

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

/* Values come to shared memory while those of the sequence before are transformed; what a warp takes
 * it alone uses. */
template <int M, typename T> struct from_series {
    enum { LINES = M / VALUES, STAGE = M * CHANNELS * sizeof(T) };
    series<const T> from;
    bool in_fours;

    struct taken {
        four<T> *row;
        __device__ __forceinline__ explicit taken(void *stage) : row((four<T> *)stage) {}
    };
    __device__ __forceinline__ bool has(int row, int64_t d) const {
        return (unsigned)(row - (int)from.first) < (unsigned)(d < from.D ? (int)from.count : 0);
    }
    __device__ __forceinline__ void take(int64_t b, int line, int64_t d, taken &x) const {
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
    enum { LINES = M / VALUES };
    real_target<T> to;
    bool in_fours;

    /* After the way back. */
    __device__ __forceinline__ void put(const whole_transformer<M> &by, int64_t b, int64_t d,
                                        const float2 (&v)[VALUES]) const {
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

/* Spectra: [sequence][M][width]. */
template <int M> struct spectra_plane {
    enum { LINES = M / VALUES };
    float2 *data;
    int64_t width;

    __device__ __forceinline__ float2 *at(int64_t b, int line, int64_t d) const {
        return data + (b * M + line) * width + d;
    }
    __device__ __forceinline__ void take(int64_t b, int line, int64_t d,
                                         float2 (&v)[VALUES]) const {
        const float2 *from = at(b, line, d);
#pragma unroll
        for (int k = 0; k < VALUES; k++) v[k] = from[k * LINES * width];
    }
    __device__ __forceinline__ void put(int64_t b, int line, int64_t d,
                                        const float2 (&v)[VALUES]) const {
        float2 *to = at(b, line, d);
#pragma unroll
        for (int k = 0; k < VALUES; k++) to[k * LINES * width] = v[k];
    }
};

/* A block of threads has four channels of some sequences: blocks of neighbouring channels come one
 * after the other. */
struct share {
    int64_t d;
    int slice, begin, end;

    __device__ __forceinline__ share(int64_t width, int sequences, int together)
        : d(blockIdx.x % (width / CHANNELS) * CHANNELS + threadIdx.x % CHANNELS),
          slice((int)(blockIdx.x / (width / CHANNELS))), begin(slice * together),
          end(begin + together < sequences ? begin + together : sequences) {}
};

/* ---- kernels ---- */

#define LS_CONV_BOUNDS(M) __launch_bounds__((M) / VALUES * CHANNELS, WHOLE / (M))

/* What a block of threads has in shared memory; STAGE bytes for what is taken follow. */
template <int M> struct whole_memory {
    transform_memory<M, CHANNELS> of_transforms;
    float2 spectra[VALUES][M / VALUES * CHANNELS]; /* what a thread writes it alone reads */
};
template <int M, typename In> static constexpr size_t bytes_for() {
    return sizeof(whole_memory<M>) + In::STAGE;
}
template <int M>
static __device__ __forceinline__ whole_transformer<M>
begin_transforms(transform_memory<M, CHANNELS> &memory) {
    memory.turns.template make<true>();
    __syncthreads();
    return {(int)threadIdx.x / CHANNELS, (int)threadIdx.x % CHANNELS, memory.exchange,
            memory.turns};
}

/* The spectra of the kernels, with `skip` and the factor of the way back. */
template <int M, typename In>
static __global__ void LS_CONV_BOUNDS(M) find_spectra(const In in, const spectra_plane<M> out,
                                                      const float *skip, int64_t D, float scale) {
    extern __shared__ float4 memory[];
    whole_memory<M> &shared = *(whole_memory<M> *)memory;
    const whole_transformer<M> by = begin_transforms<M>(shared.of_transforms);
    const share own(out.width, 1, 1);
    typename In::taken x(&shared + 1);
    float2 v[VALUES];
    in.take(0, by.line, own.d, x);
    in.use(x, by.line, v);
    by.forward(v);
    const float straight = skip != NULL && own.d < D ? skip[own.d] : 0;
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        v[i] = make_float2(scale * (v[i].x + straight), scale * v[i].y);
    out.put(0, by.line, own.d, v);
}

/* There, times the spectra or (`sign` -1) their conjugates, and back. */
template <int M, typename In, typename Out>
static __global__ void LS_CONV_BOUNDS(M)
    convolve_whole(const In in, const Out out, const spectra_plane<M> spectra, float sign,
                   int sequences, int together) {
    extern __shared__ float4 memory[];
    whole_memory<M> &shared = *(whole_memory<M> *)memory;
    const whole_transformer<M> by = begin_transforms<M>(shared.of_transforms);
    const share own(spectra.width, sequences, together);
    typename In::taken x(&shared + 1);
    in.take(own.begin, by.line, own.d, x);
    float2 kernel[VALUES];
    spectra.take(0, by.line, own.d, kernel);
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        shared.spectra[i][threadIdx.x] = make_float2(kernel[i].x, sign * kernel[i].y);
#pragma unroll 1
    for (int b = own.begin; b < own.end; b++) {
        float2 v[VALUES];
        in.use(x, by.line, v);
        if (b + 1 < own.end) in.take(b + 1, by.line, own.d, x);
        by.forward(v);
#pragma unroll
        for (int i = 0; i < VALUES; i++) v[i] = times(v[i], shared.spectra[i][threadIdx.x]);
        by.back(v);
        out.put(by, b, own.d, v);
    }
}

/* conj(U) G, summed over a slice of the batch. */
template <int M, typename In>
static __global__ void LS_CONV_BOUNDS(M)
    correlate_whole(const In inputs, const In gradients, const spectra_plane<M> sums, int sequences,
                    int together) {
    extern __shared__ float4 memory[];
    whole_memory<M> &shared = *(whole_memory<M> *)memory;
    const whole_transformer<M> by = begin_transforms<M>(shared.of_transforms);
    const share own(sums.width, sequences, together);
    typename In::taken x(&shared + 1);
    inputs.take(own.begin, by.line, own.d, x);
    float2 sum[VALUES] = {};
#pragma unroll 1
    for (int b = own.begin; b < own.end; b++) {
        float2 v[VALUES];
        inputs.use(x, by.line, v);
        gradients.take(b, by.line, own.d, x);
        by.forward(v);
#pragma unroll
        for (int i = 0; i < VALUES; i++) shared.spectra[i][threadIdx.x] = v[i];
        gradients.use(x, by.line, v);
        if (b + 1 < own.end) inputs.take(b + 1, by.line, own.d, x);
        __syncthreads(); /* before the next of the same direction */
        by.forward(v);
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            sum[i] = add_conjugate_times(sum[i], shared.spectra[i][threadIdx.x], v[i]);
        __syncthreads();
    }
    sums.put(own.slice, by.line, own.d, sum);
}

/* The way back of the slices' sum, in their order; sign as above. */
template <int M, typename Out>
static __global__ void LS_CONV_BOUNDS(M)
    return_sums(const spectra_plane<M> sums, int slices, const Out out, float sign, float scale) {
    extern __shared__ float4 memory[];
    const whole_transformer<M> by = begin_transforms<M>(*(transform_memory<M, CHANNELS> *)memory);
    const share own(sums.width, 1, 1);
    float2 v[VALUES] = {};
    for (int slice = 0; slice < slices; slice++) {
        float2 more[VALUES];
        sums.take(slice, by.line, own.d, more);
#pragma unroll
        for (int i = 0; i < VALUES; i++) v[i] = plus(v[i], more[i]);
    }
#pragma unroll
    for (int i = 0; i < VALUES; i++) v[i] = make_float2(scale * v[i].x, scale * sign * v[i].y);
    by.back(v);
    out.put(by, 0, own.d, v);
}

#endif
