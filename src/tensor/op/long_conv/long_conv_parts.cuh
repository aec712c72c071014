/* The part of long convolutions that a block of threads does in its shared memory: M values of four
 * channels, there and back. */
#ifndef LS_TENSOR_CUDA_LONG_CONV_PARTS_H
#define LS_TENSOR_CUDA_LONG_CONV_PARTS_H

#include "tensor/op/long_conv/block_transform.cuh"
#include "tensor/op/long_conv/long_conv_operands.cuh"

enum {
    CHANNELS = TRANSFORM_CHANNELS,
    VALUES = TRANSFORM_VALUES,
    WHOLE = 2048 /* the largest M, where there is enough shared memory, else half of it */
};

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

/* Whole sequences. Values come to shared memory while those of the sequence before are
 * transformed; what a warp takes it alone uses. */
template <int M, typename T> struct from_series {
    enum { WEIGHTED = 1, LINES = M / VALUES, STAGE = M * CHANNELS * sizeof(T) };
    series<const T> from;
    bool in_fours;

    struct taken {
        four<T> *row;
        __device__ __forceinline__ explicit taken(void *stage) : row((four<T> *)stage) {}
    };
    __device__ __forceinline__ bool has(int row, int64_t d) const {
        return (unsigned)(row - (int)from.first) < (unsigned)(d < from.D ? (int)from.count : 0);
    }
    __device__ __forceinline__ void take(int64_t b, int64_t part, int line, int64_t d,
                                         taken &x) const {
        (void)part;
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
    enum { WEIGHTED = 1, LINES = M / VALUES };
    real_target<T> to;
    bool in_fours;

    /* After the way back. */
    template <typename Transformer>
    __device__ __forceinline__ void put(const Transformer &by, int64_t b, int64_t part, int64_t d,
                                        const float2 (&v)[VALUES]) const {
        (void)part;
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

/* Parts of longer ones; spectra, too. */
template <int M> struct in_plane {
    enum { WEIGHTED = 0, LINES = M / VALUES, STAGE = 0 };
    plane in;

    struct taken {
        float2 value[VALUES];
        __device__ __forceinline__ explicit taken(void *stage) { (void)stage; }
    };
    __device__ __forceinline__ void take(int64_t b, int64_t part, int line, int64_t d,
                                         taken &x) const {
        const float2 *at = in.at(b, part * M + line, d);
#pragma unroll
        for (int k = 0; k < VALUES; k++) x.value[k] = at[k * LINES * in.width];
    }
    __device__ __forceinline__ void use(const taken &x, int line, float2 (&v)[VALUES]) const {
        (void)line;
#pragma unroll
        for (int k = 0; k < VALUES; k++) v[k] = x.value[k];
    }
    template <typename Transformer>
    __device__ __forceinline__ void put(const Transformer &by, int64_t b, int64_t part, int64_t d,
                                        const float2 (&v)[VALUES]) const {
        float2 *at = in.at(b, part * M + by.line, d);
#pragma unroll
        for (int k = 0; k < VALUES; k++) at[k * LINES * in.width] = v[k];
    }
};

/* A block of threads has four channels of a part, of some sequences: blocks of neighbouring
 * channels come one after the other. */
struct share {
    int64_t d, part;
    int slice, begin, end;

    __device__ __forceinline__ share(int64_t width, int64_t parts, int sequences, int together)
        : d(blockIdx.x % (width / CHANNELS) * CHANNELS + threadIdx.x % CHANNELS),
          part(blockIdx.x / (width / CHANNELS) % parts),
          slice((int)(blockIdx.x / (width / CHANNELS) / parts)), begin(slice * together),
          end(begin + together < sequences ? begin + together : sequences) {}
};

/* ---- kernels ---- */

#define LS_CONV_BOUNDS(M) __launch_bounds__((M) / VALUES * CHANNELS, WHOLE / (M))

/* What a block of threads has in shared memory; STAGE bytes for what is taken follow. */
template <int M> struct part_memory {
    transform_memory<M> of_transforms;
    float2 spectra[VALUES][M / VALUES * CHANNELS]; /* what a thread writes it alone reads */
};
template <int M, typename In> static constexpr size_t bytes_for() {
    return sizeof(part_memory<M>) + In::STAGE;
}

/* The spectra of the kernels, with `skip` and the factor of the way back. */
template <int M, typename In>
static __global__ void LS_CONV_BOUNDS(M)
    find_spectra(const In in, const in_plane<M> out, const float *skip, int64_t D, float scale,
                 const float2 *roots) {
    extern __shared__ float4 memory[];
    part_memory<M> &shared = *(part_memory<M> *)memory;
    const transformer<M, In::WEIGHTED> by(roots, shared.of_transforms);
    const share own(out.in.width, out.in.N / M, 1, 1);
    typename In::taken x(&shared + 1);
    float2 v[VALUES];
    in.take(0, own.part, by.line, own.d, x);
    in.use(x, by.line, v);
    by.forward(v);
    const float straight = skip != NULL && own.d < D ? skip[own.d] : 0;
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        v[i] = make_float2(scale * (v[i].x + straight), scale * v[i].y);
    out.put(by, 0, own.part, own.d, v);
}

/* There, times the spectra or (`sign` -1) their conjugates, and back. */
template <int M, typename In, typename Out>
static __global__ void LS_CONV_BOUNDS(M)
    convolve_parts(const In in, const Out out, const in_plane<M> spectra, float sign, int sequences,
                   int together, const float2 *roots) {
    extern __shared__ float4 memory[];
    part_memory<M> &shared = *(part_memory<M> *)memory;
    const transformer<M, In::WEIGHTED> by(roots, shared.of_transforms);
    const share own(spectra.in.width, spectra.in.N / M, sequences, together);
    typename In::taken x(&shared + 1);
    in.take(own.begin, own.part, by.line, own.d, x);
    typename in_plane<M>::taken kernel(NULL);
    spectra.take(0, own.part, by.line, own.d, kernel);
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        shared.spectra[i][threadIdx.x] = make_float2(kernel.value[i].x, sign * kernel.value[i].y);
#pragma unroll 1
    for (int b = own.begin; b < own.end; b++) {
        float2 v[VALUES];
        in.use(x, by.line, v);
        if (b + 1 < own.end) in.take(b + 1, own.part, by.line, own.d, x);
        by.forward(v);
#pragma unroll
        for (int i = 0; i < VALUES; i++) v[i] = times(v[i], shared.spectra[i][threadIdx.x]);
        by.back(v);
        out.put(by, b, own.part, own.d, v);
    }
}

/* conj(U) G, summed over a slice of the batch; to what there is, if `add`. */
template <int M, typename In>
static __global__ void LS_CONV_BOUNDS(M)
    correlate_parts(const In inputs, const In gradients, const in_plane<M> sums, bool add,
                    int sequences, int together, const float2 *roots) {
    extern __shared__ float4 memory[];
    part_memory<M> &shared = *(part_memory<M> *)memory;
    const transformer<M, In::WEIGHTED> by(roots, shared.of_transforms);
    const share own(sums.in.width, sums.in.N / M, sequences, together);
    typename In::taken x(&shared + 1);
    inputs.take(own.begin, own.part, by.line, own.d, x);
    float2 sum[VALUES] = {};
#pragma unroll 1
    for (int b = own.begin; b < own.end; b++) {
        float2 v[VALUES];
        inputs.use(x, by.line, v);
        gradients.take(b, own.part, by.line, own.d, x);
        by.forward(v);
#pragma unroll
        for (int i = 0; i < VALUES; i++) shared.spectra[i][threadIdx.x] = v[i];
        gradients.use(x, by.line, v);
        if (b + 1 < own.end) inputs.take(b + 1, own.part, by.line, own.d, x);
        __syncthreads(); /* before the next of the same direction */
        by.forward(v);
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            sum[i] = add_conjugate_times(sum[i], shared.spectra[i][threadIdx.x], v[i]);
        __syncthreads();
    }
    if (add) {
        typename in_plane<M>::taken before(NULL);
        sums.take(own.slice, own.part, by.line, own.d, before);
#pragma unroll
        for (int i = 0; i < VALUES; i++) sum[i] = plus(sum[i], before.value[i]);
    }
    sums.put(by, own.slice, own.part, own.d, sum);
}

/* The way back of the slices' sum, in their order; sign as above. */
template <int M, typename Out>
static __global__ void LS_CONV_BOUNDS(M)
    return_sums(const in_plane<M> sums, int slices, const Out out, float sign, float scale,
                const float2 *roots) {
    extern __shared__ float4 memory[];
    const transformer<M, Out::WEIGHTED> by(roots, *(transform_memory<M> *)memory);
    const share own(sums.in.width, sums.in.N / M, 1, 1);
    float2 v[VALUES] = {};
    for (int slice = 0; slice < slices; slice++) {
        typename in_plane<M>::taken more(NULL);
        sums.take(slice, own.part, by.line, own.d, more);
#pragma unroll
        for (int i = 0; i < VALUES; i++) v[i] = plus(v[i], more.value[i]);
    }
#pragma unroll
    for (int i = 0; i < VALUES; i++) v[i] = make_float2(scale * v[i].x, scale * sign * v[i].y);
    by.back(v);
    out.put(by, 0, own.part, own.d, v);
}

#endif
