/* Long convolutions within spans of 512 times, on the tensor units.
 *
 * A warp has one channel: its product is a lower triangular Toeplitz matrix, outputs x inputs,
 * times the inputs of eight columns, each a span of some sequence. A block of threads has eight
 * channels and 256 outputs: it takes one chunk of 32 inputs after the other, from the beginning of
 * the span on, and adds what it gives to all later rows, whose sums stay in registers. Kernels lie
 * in shared memory as pairs of numbers of 11 bits (tf32), high and low, and inputs are split so,
 * too: high x high + high x low + low x high has all the bits of f32 but the last or so. The units
 * cut what they add, they do not round: so the small products come first, and sums over a chunk
 * are added to the others by ordinary additions. bf16 needs no low part of its inputs.
 *
 * Nothing of the future gets into the past: above the diagonal the matrix has zeros, which change
 * no bit of a sum. Inputs that are no numbers, infinite or huge would: the tensor units see zeros
 * in their place, and what they give to later rows is added by ordinary operations. */
#include "tensor/cuda/lib/long_conv.h"

enum {
    CHANNELS = 8,
    COLUMNS = 8,
    ROWS = 256,
    CHUNK = 32,
    CHUNKS = ROWS / CHUNK, /* of the rows of a block of threads */
    THREADS = 32 * CHANNELS,
    ZEROS = 32, /* before the kernel's beginning: lags above the diagonal */
    ENTRIES = ZEROS + LS_CONV_SPAN,
    /* gaps keep the lanes of a warp in different banks, in all ways in which chunks are accessed */
    COLUMN_PITCH = CHUNK + 4,
    CHANNEL_PITCH = COLUMNS * COLUMN_PITCH + 4
};

struct near_memory {
    /* Kernels, the high and the low part: each lag with the eighth after it, as tensor units take
     * them. */
    float2 high[CHANNELS][ENTRIES], low[CHANNELS][ENTRIES];
    float x[2][CHANNELS * CHANNEL_PITCH]; /* this chunk and the one before */
    float y[CHANNELS * CHANNEL_PITCH];
    float4 staged[2 * THREADS]; /* the next chunk as it comes */
    float4 before[2 * THREADS]; /* sums of earlier spans, likewise */
};

/* To 11 bits. */
static __device__ __forceinline__ float shorten(float value) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits);
}

/* c += a b, of 16 x 8 by 8 x 8. */
static __device__ __forceinline__ void multiply(float (&c)[4], const float (&a)[4],
                                                const float (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

/* The tensor unit multiplies eight inputs at a time. Of 16 inputs we give it first 0..3 and 8..11,
 * then 4..7 and 12..15: so a lane's four values of a 16 x 8 operand are of lags i, i + 8, i - 8
 * and i again, and those of the tile 16 rows further on have one of them, too. */

/* A lane's part of a tile of 16 outputs x 16 inputs. */
struct toeplitz {
    float high[2][4], low[2][4];
};
/* A lane's place in the kernels. */
struct kernel_place {
    const float2 *high, *low;
    uint32_t zero; /* 0 */
    /* A copy in a register of its own: the compiler, which does not see the zero, would else
     * gather the operands of each product anew. */
    __device__ __forceinline__ float copy(float value) const {
        return __uint_as_float(__float_as_uint(value) | zero);
    }
};
/* The tile that begins at the distance `lag`, after that at lag - 16 or begin_at. */
static __device__ __forceinline__ void step(toeplitz &tile, const kernel_place &at, int lag) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float2 high = at.high[lag - 4 * i], low = at.low[lag - 4 * i];
        tile.high[i][2] = at.copy(tile.high[i][1]);
        tile.low[i][2] = at.copy(tile.low[i][1]);
        tile.high[i][3] = at.copy(high.x);
        tile.low[i][3] = at.copy(low.x);
        tile.high[i][0] = high.x;
        tile.low[i][0] = low.x;
        tile.high[i][1] = high.y;
        tile.low[i][1] = low.y;
    }
}
static __device__ __forceinline__ void begin_at(toeplitz &tile, const kernel_place &at, int lag) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        tile.high[i][1] = at.high[lag - 8 - 4 * i].x;
        tile.low[i][1] = at.low[lag - 8 - 4 * i].x;
    }
}

/* A lane's part of a chunk's inputs, by sixteens. */
struct inputs {
    float high[2][2][2], low[2][2][2];
};
static __device__ __forceinline__ bool is_plain(float value) {
    return fabsf(value) < 0x1p60f;
}
/* Whether all are plain numbers; others are left out. */
template <typename T>
static __device__ __forceinline__ bool split(const float *x, int lane, inputs &in) {
    bool plain = true;
#pragma unroll
    for (int at = 0; at < 8; at++) {
        const int half = at / 4, i = at / 2 % 2, k = at % 2;
        float value = x[lane / 4 * COLUMN_PITCH + 16 * half + 4 * i + 8 * k + lane % 4];
        plain = plain && is_plain(value);
        if (!is_plain(value)) value = 0;
        in.high[half][i][k] = sizeof(T) == 2 ? value : shorten(value);
        in.low[half][i][k] = sizeof(T) == 2 ? 0 : shorten(value - in.high[half][i][k]);
    }
    return plain;
}

/* sum[h] += tile times half h of the inputs: the small products first. */
template <typename T>
static __device__ __forceinline__ void add_products(const toeplitz &tile, const inputs &in,
                                                    float (&sum)[2][4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) multiply(sum[h], tile.low[i], in.high[h][i]);
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (sizeof(T) > 2) multiply(sum[h], tile.high[i], in.low[h][i]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) multiply(sum[h], tile.high[i], in.high[h][i]);
}

/* What a chunk gives to the rows of chunks first..last - 1; `distance`: of row 0, if it is less
 * than 0 that of `first` is 0. A tile of the matrix serves 16 rows with the chunk's first half and
 * the next 16 with its second. */
template <typename T>
static __device__ __forceinline__ void add_products_of(const kernel_place &at, int distance,
                                                       const inputs &in, int first, int last,
                                                       float (&sum)[CHUNKS][2][4]) {
    toeplitz tile;
    float here[2][4] = {}; /* of these 16 rows and of the next */
    if (distance > 0) {    /* there is a tile before the first */
        begin_at(tile, at, distance - 16);
        step(tile, at, distance - 16);
        add_products<T>(tile, in, here);
    } else {
        begin_at(tile, at, 0);
    }
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        if (chunk < first || chunk >= last) continue;
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int i = 0; i < 4; i++) here[0][i] = here[1][i], here[1][i] = 0;
            step(tile, at, distance + CHUNK * chunk + 16 * half);
            add_products<T>(tile, in, here);
#pragma unroll
            for (int i = 0; i < 4; i++) sum[chunk][half][i] += here[0][i];
        }
    }
}

/* The same of the inputs that were left out. */
static __device__ __forceinline__ void add_left_out(const kernel_place &kernel, int distance,
                                                    const float *x, int lane,
                                                    float (&sum)[CHUNKS][2][4]) {
#pragma unroll 1
    for (int s = 0; s < CHUNK; s++)
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const float value = x[(lane % 4 * 2 + side) * COLUMN_PITCH + s];
            if (is_plain(value)) continue;
#pragma unroll
            for (int at = 0; at < 4 * CHUNKS; at++) { /* every eighth row */
                const int lag = distance + 8 * at + lane / 4 - s;
                if (lag >= 0)
                    sum[at / 4][at / 2 % 2][at % 2 * 2 + side] +=
                        (kernel.high[lag].x + kernel.low[lag].x) * value;
            }
        }
}

/* Four neighbouring channels as they lie in memory. */
template <typename E> struct alignas(4 * sizeof(E)) four { E value[4]; };

/* To shared memory, while the thread goes on. */
template <typename E>
static __device__ __forceinline__ void copy_behind(four<E> *to, const four<E> *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "n"(sizeof(four<E>))
                 : "memory");
}
static __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_all;" : : : "memory");
}

template <typename E>
static __device__ __forceinline__ four<E> take(const E *from, int d, int64_t D) {
    four<E> values;
#pragma unroll
    for (int i = 0; i < 4; i++) values.value[i] = d + i < D ? from[d + i] : ls_cuda_narrow<E>(0.0f);
    return values;
}
template <typename E>
static __device__ __forceinline__ void put(const four<E> &values, E *to, int d, int64_t D,
                                           bool whole) {
    if (whole && d < D) {
        *(four<E> *)(to + d) = values;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (d + i < D) to[d + i] = values.value[i];
}

/* A thread's share of moving chunks between memory and shared memory: a warp has a column, a
 * thread four channels of it at two times. */
struct porter {
    int64_t row;        /* of the column's first time */
    bool later;         /* there are spans before it */
    int count;          /* its times */
    int d, time, place; /* time + 16 is at place + 16 */

    template <typename T>
    __device__ __forceinline__ porter(const ls_conv_job<T> &job, unsigned group, unsigned columns)
        : d((int)(group * CHANNELS + 4 * (threadIdx.x % 2))), time((int)threadIdx.x % 32 / 2),
          place((int)threadIdx.x % 2 * (4 * CHANNEL_PITCH) + (int)threadIdx.x / 32 * COLUMN_PITCH +
                time) {
        const unsigned spans = (unsigned)ls_conv_ceil_div(job.length, LS_CONV_SPAN);
        const unsigned column = columns * COLUMNS + threadIdx.x / 32, span = column % spans;
        const int64_t start = (int64_t)span * LS_CONV_SPAN, b = column / spans;
        row = ls_conv_row(job, b, start);
        later = span > 0;
        count = job.length - start < LS_CONV_SPAN ? (int)(job.length - start) : LS_CONV_SPAN;
        if (b >= job.B) count = 0;
    }
    template <typename T>
    __device__ __forceinline__ int64_t row_of(const ls_conv_job<T> &job, int i) const {
        return row + (job.reversed ? -i : i);
    }
    /* Rows of x or of the sums towards `staged`, where a thread finds what it fetched itself. */
    template <typename T, typename E>
    __device__ __forceinline__ void fetch(const ls_conv_job<T> &job, const E *rows, int64_t stride,
                                          int start, four<E> *staged) const {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int i = start + time + 16 * k;
            four<E> *to = staged + k * THREADS + threadIdx.x;
            const E *from = rows + row_of(job, i) * stride;
            if (i < count && job.in_fours && d < job.D)
                copy_behind(to, (const four<E> *)(from + d));
            else
                *to = take(from, d, i < count ? job.D : 0);
        }
    }
    template <typename T>
    __device__ __forceinline__ void bring(const four<T> *staged, float *x) const {
        wait_for_copies();
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const four<T> values = staged[k * THREADS + threadIdx.x];
#pragma unroll
            for (int c = 0; c < 4; c++)
                x[place + c * CHANNEL_PITCH + 16 * k] = ls_cuda_wide(values.value[c]);
        }
    }
    template <typename T>
    __device__ __forceinline__ void carry_off(const ls_conv_job<T> &job, int start, const float *x,
                                              const float *y, const four<float> *before) const {
        wait_for_copies();
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int i = start + time + 16 * k;
            if (i >= count) continue;
            four<float> values = {0, 0, 0, 0};
            if (later) values = before[k * THREADS + threadIdx.x];
            four<T> result;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int at = place + c * CHANNEL_PITCH + 16 * k;
                values.value[c] += y[at];
                if (job.skip != NULL && d + c < job.D)
                    values.value[c] += __ldg(job.skip + d + c) * x[at];
                result.value[c] = ls_cuda_narrow<T>(values.value[c]);
            }
            put(result, job.y + row_of(job, i) * job.y_stride, d, job.D, job.in_fours);
        }
    }
};

/* Lags up to `end` of one channel, by a warp. All loads of a batch come before the first use. */
template <typename T>
static __device__ __forceinline__ void bring_kernel(const ls_conv_job<T> &job, int64_t d, int end,
                                                    int lane, float2 *high, float2 *low) {
    enum { BATCH = 8 };
    const float *from = job.k + (d < job.D ? d : job.D - 1) * job.k_stride;
    const int most = job.taps < LS_CONV_SPAN ? (int)job.taps : LS_CONV_SPAN;
    const int delay = (int)job.delay;
    high[lane - ZEROS].x = low[lane - ZEROS].x = 0;
    if (lane >= 8) high[lane - ZEROS - 8].y = low[lane - ZEROS - 8].y = 0;
#pragma unroll 1
    for (int start = 0; start < end; start += 32 * BATCH) {
        float value[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int tap = start + 32 * i + lane - delay;
            value[i] = __ldg(from + (tap < 0 || most == 0 ? 0 : tap < most ? tap : most - 1));
            if (tap < 0 || tap >= most || d >= job.D) value[i] = 0;
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int lag = start + 32 * i + lane;
            const float first = shorten(value[i]), rest = shorten(value[i] - first);
            high[lag].x = high[lag - 8].y = first;
            low[lag].x = low[lag - 8].y = rest;
        }
    }
}

/* Parts of spans that have outputs at all. */
template <typename T>
static __host__ __device__ inline int64_t parts_of_span(const ls_conv_job<T> &job) {
    return job.length > ROWS ? LS_CONV_SPAN / ROWS : 1;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS, 2) near_kernel(const ls_conv_job<T> job) {
    extern __shared__ __align__(16) char memory[];
    near_memory &shared = *(near_memory *)memory;
    const unsigned groups = (unsigned)ls_conv_ceil_div(job.D, CHANNELS);
    const unsigned parts = (unsigned)parts_of_span(job);
    /* later parts take longer: they come first */
    const int begin = (int)(parts - 1 - blockIdx.x % parts) * ROWS;
    const unsigned group = blockIdx.x / parts % groups;
    const porter by(job, group, blockIdx.x / parts / groups);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int end = job.length < begin + ROWS ? (int)job.length : begin + ROWS;
    four<T> *staged = (four<T> *)shared.staged;
    four<float> *before = (four<float> *)shared.before;
    by.fetch(job, job.x, job.x_stride, 0, staged);
    const kernel_place kernel = {shared.high[warp] + ZEROS, shared.low[warp] + ZEROS, job.zero};
    bring_kernel(job, (int64_t)group * CHANNELS + warp, begin + ROWS, lane,
                 shared.high[warp] + ZEROS, shared.low[warp] + ZEROS);
    const int lag = lane / 4 - lane % 4; /* of this lane from a tile's first */
    float sum[CHUNKS][2][4] = {};
#pragma unroll 1
    for (int start = 0; start < end; start += CHUNK) {
        float *x = shared.x[start / CHUNK % 2];
        by.bring(staged, x);
        __syncthreads();
        if (start + CHUNK < end) by.fetch(job, job.x, job.x_stride, start + CHUNK, staged);
        if (start >= begin && by.later) by.fetch(job, job.sum, job.sum_stride, start, before);
        inputs in;
        const bool plain = split<T>(x + warp * CHANNEL_PITCH, lane, in);
        /* the chunk of rows that this is; 0 where it is before them all */
        const int own = start < begin ? 0 : (start - begin) / CHUNK;
        add_products_of<T>({kernel.high + lag, kernel.low + lag, kernel.zero}, begin - start, in,
                           own, (end - begin + CHUNK - 1) / CHUNK, sum);
        if (!__all_sync(0xffffffffu, plain))
            add_left_out(kernel, begin - start, x + warp * CHANNEL_PITCH, lane, sum);
        if (start < begin) continue;
        float y[2][4] = {};
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            if (chunk == own)
#pragma unroll
                for (int i = 0; i < 8; i++) y[i / 4][i % 4] = sum[chunk][i / 4][i % 4];
#pragma unroll
        for (int tile = 0; tile < 2; tile++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                shared.y[warp * CHANNEL_PITCH + (lane % 4 * 2 + i % 2) * COLUMN_PITCH + 16 * tile +
                         lane / 4 + i / 2 * 8] = y[tile][i];
        __syncthreads();
        by.carry_off(job, start, x, shared.y, before);
    }
}

template <typename T>
void ls_cuda_conv_within_spans(const ls_run *run, const ls_conv_job<T> *job, const char *what) {
    ls_cuda *cuda = ls_cuda_of(run);
    const int64_t columns = job->B * ls_conv_ceil_div(job->length, LS_CONV_SPAN);
    const int64_t blocks = ls_conv_ceil_div(columns, COLUMNS) * ls_conv_ceil_div(job->D, CHANNELS) *
                           parts_of_span(*job);
    ls_cuda_note(cuda,
                 cudaFuncSetAttribute(near_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)sizeof(near_memory)),
                 what);
    near_kernel<<<(unsigned)blocks, THREADS, sizeof(near_memory), cuda->stream>>>(*job);
    ls_cuda_launched(run, what);
}

template void ls_cuda_conv_within_spans(const ls_run *, const ls_conv_job<float> *, const char *);
template void ls_cuda_conv_within_spans(const ls_run *, const ls_conv_job<ls_cuda_bf16> *,
                                        const char *);
