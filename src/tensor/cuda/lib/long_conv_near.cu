/* Long convolutions within spans of 512 times, on the tensor units.
 *
 * A warp has one channel: its product is the inputs of 16 columns, each a span of some sequence,
 * times an upper triangular Toeplitz matrix, inputs x outputs. A block of threads has eight
 * channels and 128 outputs: it takes one chunk of 32 inputs after the other, from the beginning of
 * the span on, and adds what it gives to all later rows, whose sums stay in registers. The units
 * take the matrix by tiles of 8 x 8, of which all on a diagonal are alike: a tile is read once from
 * shared memory and multiplied by each eight inputs of the chunk, for four tiles of outputs.
 *
 * Kernels lie in shared memory as pairs of numbers of 11 bits (tf32), high and low, and inputs are
 * split so, too: high x high + high x low + low x high has all the bits of f32 but the last or so.
 * The units cut what they add, they do not round: so sums over 16 inputs are added to the others by
 * ordinary additions. bf16 needs no low part of its inputs.
 *
 * Nothing of the future gets into the past: above the diagonal the matrix has zeros, which change
 * no bit of a sum. Inputs that are no numbers, infinite or huge would: the tensor units see zeros
 * in their place, and what they give to later rows is added by ordinary operations. */
#include "tensor/cuda/lib/long_conv.h"

enum {
    CHANNELS = 8,
    COLUMNS = 16,
    TILE = 8, /* outputs, and inputs, of one product of the units */
    ROWS = 128,
    TILES = ROWS / TILE,
    CHUNK = 32,
    STEPS = CHUNK / TILE,
    STAGES = 3, /* chunks in shared memory: two are on their way */
    THREADS = 32 * CHANNELS,
    TIMES = THREADS / (2 * COLUMNS), /* that threads move at once, four channels each */
    ZEROS = 4,                       /* before the kernel's beginning: lags above the diagonal */
    ENTRIES = ZEROS + LS_CONV_SPAN,
    /* rows that go out at once; gaps keep the lanes of a warp in different banks */
    OUT_ROWS = 64,
    ROW_PITCH = COLUMNS + 4,
    CHANNEL_PITCH = OUT_ROWS * ROW_PITCH + 4
};

/* A span of a sequence. */
struct near_column {
    int64_t row; /* of its first time */
    int count;   /* of its times; 0 where there is no such column */
    int span;
};

struct near_memory {
    /* Each lag and the fourth before it, high and low, as the units take them. */
    float4 kernel[CHANNELS][ENTRIES];
    union {
        float4 chunk[STAGES][CHUNK * COLUMNS * CHANNELS / 4];
        float result[CHANNELS * CHANNEL_PITCH];
    };
    near_column column[COLUMNS];
    uint64_t turn; /* at which warps wait for one another, chunk by chunk */
};

template <typename T>
static __device__ __forceinline__ near_column column_at(const ls_conv_job<T> &job, unsigned at) {
    const unsigned spans = (unsigned)ls_conv_ceil_div(job.length, LS_CONV_SPAN);
    const int64_t b = at / spans, start = (int64_t)(at % spans) * LS_CONV_SPAN;
    const int64_t left = b < job.B ? job.length - start : 0;
    return {ls_conv_row(job, b, start), left < LS_CONV_SPAN ? (int)left : LS_CONV_SPAN,
            (int)(at % spans)};
}

/* To 11 bits; the second for plain numbers alone. */
static __device__ __forceinline__ float shorten(float value) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits);
}
static __device__ __forceinline__ float shorten_plain(float value) {
    return __uint_as_float((__float_as_uint(value) + 0x1000u) & 0xffffe000u);
}

/* The greater one, or no number if one is none. */
static __device__ __forceinline__ float greater(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
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

/* Four neighbouring channels as they lie in memory. */
template <typename E> struct alignas(4 * sizeof(E)) four { E value[4]; };

/* Where in a chunk are four channels of a column, the first ones or (half 1) the others; `time` and
 * the eights of columns add constants. The halves are crossed so that eight neighbouring threads,
 * four columns and both halves, are in different banks. */
static __device__ __forceinline__ int place(int half, int time, int column) {
    return (half * CHUNK + time) * COLUMNS + (column ^ 4 * half);
}

/* A lane's inputs: of columns lane / 4 and, at odd places, the eighth after it, at times lane % 4
 * and, in the second half, the fourth after it. */
struct inputs {
    float high[STEPS][4], low[STEPS][4];
};
static __device__ __forceinline__ bool is_plain(float value) {
    return fabsf(value) < 0x1p60f;
}
/* x: time 0 of column lane / 4; it tells whether all are plain numbers, others are left out. */
template <typename T>
static __device__ __forceinline__ bool split(const T *x, int lane, inputs &in) {
    float most[4] = {};
#pragma unroll
    for (int at = 0; at < 4 * STEPS; at++) {
        const int time = at / 4 * TILE + at / 2 % 2 * 4 + lane % 4;
        const float value = ls_cuda_wide(x[4 * place(0, time, at % 2 * 8)]);
        most[at % 4] = greater(most[at % 4], fabsf(value));
        in.high[at / 4][at % 4] = value;
    }
    const float most_of_all = greater(greater(most[0], most[1]), greater(most[2], most[3]));
    const bool plain = __all_sync(0xffffffffu, is_plain(most_of_all));
    if (!plain) {
#pragma unroll
        for (int at = 0; at < 4 * STEPS; at++)
            if (!is_plain(in.high[at / 4][at % 4])) in.high[at / 4][at % 4] = 0;
    }
#pragma unroll
    for (int at = 0; at < (sizeof(T) == 2 ? 0 : 4 * STEPS); at++) {
        const float value = in.high[at / 4][at % 4], high = shorten_plain(value);
        in.high[at / 4][at % 4] = high;
        in.low[at / 4][at % 4] = shorten_plain(value - high);
    }
    return plain;
}

/* A lane's part of a tile of the matrix. */
struct toeplitz {
    float high[2], low[2];
};
static __device__ __forceinline__ toeplitz tile_at(const float4 *kernel, int lag) {
    const float4 values = kernel[lag];
    return {{values.x, values.y}, {values.z, values.w}};
}

/* A diagonal: its tile takes eight inputs i of the chunk to outputs first + i. The last two eights
 * come to an output one diagonal after the other, then the first two: sums of such a pair begin
 * with the odd eight, in `pair`, and end with the even one. The small products come first. */
template <typename T>
static __device__ __forceinline__ void add_diagonal(const toeplitz &tile, const inputs &in,
                                                    int first, float (&pair)[STEPS / 2][4],
                                                    float (&sum)[TILES][4]) {
    float here[STEPS][4];
#pragma unroll
    for (int i = 0; i < STEPS; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) here[i][k] = i % 2 == 0 ? pair[i / 2][k] : 0;
#pragma unroll
    for (int product = sizeof(T) == 2 ? 1 : 0; product < 3; product++)
#pragma unroll
        for (int i = 0; i < STEPS; i++)
            if (first + i >= 0 && first + i < TILES)
                multiply(here[i], product == 0 ? in.low[i] : in.high[i],
                         product == 1 ? tile.low : tile.high);
#pragma unroll
    for (int i = 0; i < STEPS; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i % 2 == 1)
                pair[i / 2][k] = here[i][k];
            else if (first + i >= 0 && first + i < TILES)
                sum[first + i][k] += here[i][k];
}

/* What a chunk gives to the rows; `kernel`: this lane's lag 0; `distance`: of row 0, less than 0 if
 * the chunk's own rows come later; `count`: rows that are needed. */
template <typename T>
static __device__ __forceinline__ void add_products(const float4 *kernel, int distance,
                                                    const inputs &in, int count,
                                                    float (&sum)[TILES][4]) {
    float pair[STEPS / 2][4] = {};
    /* each tile is read while the one before is multiplied */
    toeplitz next = tile_at(kernel, distance > 0 ? distance - (STEPS - 1) * TILE : 0);
    if (distance > 0) {
#pragma unroll
        for (int first = 1 - STEPS; first < 0; first++) {
            const toeplitz tile = next;
            next = tile_at(kernel, distance + (first + 1) * TILE);
            add_diagonal<T>(tile, in, first, pair, sum);
        }
    }
#pragma unroll
    for (int start = 0; start < TILES; start += STEPS) {
        if (distance + start * TILE < 0 || start * TILE >= count) continue;
#pragma unroll
        for (int first = start; first < start + STEPS; first++) {
            const toeplitz tile = next;
            if (first + 1 < TILES) next = tile_at(kernel, distance + (first + 1) * TILE);
            add_diagonal<T>(tile, in, first, pair, sum);
        }
    }
}

/* The same of the inputs that were left out. */
template <typename T>
static __device__ __forceinline__ void add_left_out(const float4 *kernel, int distance, const T *x,
                                                    int lane, float (&sum)[TILES][4]) {
#pragma unroll 1
    for (int time = 0; time < CHUNK; time++)
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const float value = ls_cuda_wide(x[4 * place(0, time, 8 * side)]);
            if (is_plain(value)) continue;
#pragma unroll
            for (int at = 0; at < 2 * TILES; at++) {
                const int lag = distance + at / 2 * TILE + lane % 4 * 2 + at % 2 - time;
                if (lag >= 0)
                    sum[at / 2][2 * side + at % 2] += (kernel[lag].x + kernel[lag].z) * value;
            }
        }
}

/* skip x, to the chunk's own rows. */
template <typename T>
static __device__ __forceinline__ void add_skip(float skip, int distance, const T *x, int lane,
                                                float (&sum)[TILES][4]) {
#pragma unroll
    for (int start = 0; start < TILES; start += STEPS) {
        if (distance + start * TILE != 0) continue;
#pragma unroll
        for (int at = 0; at < 4 * STEPS; at++) {
            const int time = at / 4 * TILE + lane % 4 * 2 + at % 2;
            sum[start + at / 4][at % 4] +=
                skip * ls_cuda_wide(x[4 * place(0, time, at / 2 % 2 * 8)]);
        }
    }
}

/* To shared memory, while the thread goes on: `bytes` bytes and zeros after them. */
template <typename E>
static __device__ __forceinline__ void copy_behind(four<E> *to, const E *from, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "n"(sizeof(four<E>)),
                   "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_all;" : : : "memory");
}

/* A warp says that its part of the next chunk is there and that it has read this one; it waits only
 * later, so that warps need not keep in step. */
static __device__ __forceinline__ void begin_turns(uint64_t *turn) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(turn)), "n"((int)CHANNELS)
                 : "memory");
}
static __device__ __forceinline__ void end_turn(uint64_t *turn, int lane) {
    __syncwarp();
    if (lane == 0)
        asm volatile("{\n.reg .b64 state;\n"
                     "mbarrier.arrive.shared.b64 state, [%0];\n}\n"
                     :
                     : "r"((uint32_t)__cvta_generic_to_shared(turn))
                     : "memory");
}
/* Until all have ended the turn; `odd`: whether its number is, from 0 on. */
static __device__ __forceinline__ void wait_for_turn(uint64_t *turn, uint32_t odd) {
#if __CUDA_ARCH__ >= 900
#define LS_NEAR_ASK "mbarrier.try_wait.parity.shared.b64" /* sleeps a while */
#else
#define LS_NEAR_ASK "mbarrier.test_wait.parity.shared.b64"
#endif
    asm volatile("{\n.reg .pred over;\n"
                 "again:\n" LS_NEAR_ASK " over, [%0], %1;\n"
                 "@!over bra again;\n}\n"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(turn)), "r"(odd)
                 : "memory");
#undef LS_NEAR_ASK
}

static __device__ __forceinline__ void expect(const float *address) {
    asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
}

template <typename E>
static __device__ __forceinline__ four<E> take(const E *from, int d, int64_t D, bool whole) {
    if (whole && d < D) return *(const four<E> *)(from + d);
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

/* A thread's share of moving rows between memory and shared memory: four channels of a column at
 * each eighth time; a warp has all columns at one time. What there is to know of a column is read
 * again each time: registers are for the sums. */
struct porter {
    int half, time, column, d;

    __device__ __forceinline__ explicit porter(unsigned group)
        : half((int)(threadIdx.x % 2)), time((int)(threadIdx.x / (2 * COLUMNS))),
          column((int)(threadIdx.x / 2 % COLUMNS)), d((int)group * CHANNELS + 4 * half) {}
    template <typename T>
    static __device__ __forceinline__ int64_t row_of(const ls_conv_job<T> &job,
                                                     const near_column &in, int i) {
        return in.row + (job.reversed ? -i : i);
    }
    template <typename T>
    __device__ __forceinline__ void fetch(const ls_conv_job<T> &job, const near_column *columns,
                                          int start, four<T> *chunk) const {
        const near_column in = columns[column];
        const T *from = job.x + row_of(job, in, start + time) * job.x_stride;
        const int64_t apart = (job.reversed ? -TIMES : TIMES) * job.x_stride;
        four<T> *to = chunk + place(half, time, column);
        if (job.in_fours) {
            const int left = d < job.D ? in.count - start - time : 0;
#pragma unroll
            for (int k = 0; k < CHUNK / TIMES; k++, from += apart)
                copy_behind(to + place(0, k * TIMES, 0), from + d,
                            k * TIMES < left ? (int)sizeof(four<T>) : 0);
        } else {
#pragma unroll 1
            for (int k = 0; k < CHUNK / TIMES; k++, from += apart)
                to[place(0, k * TIMES, 0)] =
                    take(from, d, start + time + k * TIMES < in.count ? job.D : 0, false);
        }
    }
    /* What earlier spans gave to ROWS rows, to the nearer memory. */
    template <typename T>
    __device__ __forceinline__ void expect_sums(const ls_conv_job<T> &job,
                                                const near_column *columns, int start) const {
        const near_column in = columns[column];
        if (in.span == 0 || d >= job.D) return;
#pragma unroll 1
        for (int i = start + time; i < start + ROWS && i < in.count; i += TIMES)
            expect(job.sum + row_of(job, in, i) * job.sum_stride + d);
    }
    /* OUT_ROWS rows: what earlier spans gave them, */
    template <typename T>
    __device__ __forceinline__ void fetch_sums(const ls_conv_job<T> &job,
                                               const near_column *columns, int start,
                                               four<float> (&sums)[OUT_ROWS / TIMES]) const {
        const near_column in = columns[column];
#pragma unroll
        for (int k = 0; k < OUT_ROWS / TIMES; k++) {
            const int i = start + time + k * TIMES;
            const float *from = job.sum + row_of(job, in, i) * job.sum_stride;
            sums[k] = take(from, d, in.span > 0 && i < in.count ? job.D : 0, job.in_fours);
        }
    }
    /* and this with the results. */
    template <typename T>
    __device__ __forceinline__ void
    carry_off(const ls_conv_job<T> &job, const near_column *columns, int start,
              const four<float> (&sums)[OUT_ROWS / TIMES], const float *result) const {
        const near_column in = columns[column];
        const float *at = result + 4 * half * CHANNEL_PITCH + time * ROW_PITCH + column;
#pragma unroll
        for (int k = 0; k < OUT_ROWS / TIMES; k++) {
            const int i = start + time + k * TIMES;
            four<T> values;
#pragma unroll
            for (int c = 0; c < 4; c++)
                values.value[c] = ls_cuda_narrow<T>(sums[k].value[c] +
                                                    at[c * CHANNEL_PITCH + k * TIMES * ROW_PITCH]);
            put(values, job.y + row_of(job, in, i) * job.y_stride, d, i < in.count ? job.D : 0,
                job.in_fours);
        }
    }
};

/* Lags up to `end` of one channel, by a warp. All loads come before the first use. */
template <typename T>
static __device__ __forceinline__ void bring_kernel(const ls_conv_job<T> &job, int64_t d, int end,
                                                    int lane, float4 *kernel) {
    enum { LOADS = LS_CONV_SPAN / 32 };
    const float *from = job.k + (d < job.D ? d : 0) * job.k_stride;
    const int64_t taps = d < job.D ? job.taps : 0;
    float value[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int64_t tap = 32 * i + lane - job.delay;
        value[i] = 32 * i < end && tap >= 0 && tap < taps ? __ldg(from + tap) : 0;
    }
    if (lane < ZEROS) kernel[lane - ZEROS] = make_float4(0, 0, 0, 0);
    float high = 0, low = 0;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        if (32 * i >= end) break;
        /* the last four lanes give what they had before, to the first */
        const float old_high = high, old_low = low;
        high = shorten(value[i]);
        low = shorten(value[i] - high);
        const int source = (lane + 28) % 32;
        kernel[32 * i + lane] =
            make_float4(high, __shfl_sync(0xffffffffu, lane < 28 ? high : old_high, source), low,
                        __shfl_sync(0xffffffffu, lane < 28 ? low : old_low, source));
    }
}

/* Parts of spans that have outputs at all. */
template <typename T>
static __host__ __device__ inline int64_t parts_of_span(const ls_conv_job<T> &job) {
    return ls_conv_ceil_div(job.length < LS_CONV_SPAN ? job.length : (int64_t)LS_CONV_SPAN, ROWS);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS, 2) near_kernel(const ls_conv_job<T> job) {
    extern __shared__ __align__(16) char memory[];
    near_memory &shared = *(near_memory *)memory;
    const unsigned groups = (unsigned)ls_conv_ceil_div(job.D, CHANNELS);
    const unsigned parts = (unsigned)parts_of_span(job);
    /* later parts take longer: they come first */
    const int begin = (int)(parts - 1 - blockIdx.x / groups % parts) * ROWS;
    const unsigned group = blockIdx.x % groups;
    const porter by(group);
    const int warp = (int)(threadIdx.x / 32), lane = (int)(threadIdx.x % 32);
    const int end = job.length < begin + ROWS ? (int)job.length : begin + ROWS;
    const int64_t d = (int64_t)group * CHANNELS + warp;
    if (threadIdx.x < COLUMNS)
        shared.column[threadIdx.x] =
            column_at(job, blockIdx.x / groups / parts * COLUMNS + threadIdx.x);
    if (threadIdx.x == 0) begin_turns(&shared.turn);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < STAGES - 1; k++)
        if (k * CHUNK < end) by.fetch(job, shared.column, k * CHUNK, (four<T> *)shared.chunk[k]);
    const float4 *kernel = shared.kernel[warp] + ZEROS;
    bring_kernel(job, d, begin + ROWS, lane, shared.kernel[warp] + ZEROS);
    wait_for_copies();
    end_turn(&shared.turn, lane);
    float sum[TILES][4] = {};
    int stage = 0;
#pragma unroll 1
    for (int start = 0; start < end; start += CHUNK) {
        wait_for_turn(&shared.turn, start / CHUNK % 2);
        const T *x = (const T *)shared.chunk[stage] + 4 * place(warp / 4, 0, lane / 4) + warp % 4;
        inputs in;
        if (!split(x, lane, in)) add_left_out(kernel, begin - start, x, lane, sum);
        if (start >= begin && job.skip != NULL && d < job.D)
            add_skip(__ldg(job.skip + d), begin - start, x, lane, sum);
        wait_for_copies();
        end_turn(&shared.turn, lane);
        /* all have read the chunk before this one: its place is free for the next but one */
        const int ahead = start + (STAGES - 1) * CHUNK,
                  place_ahead = stage == 0 ? STAGES - 1 : stage - 1;
        if (ahead < end) by.fetch(job, shared.column, ahead, (four<T> *)shared.chunk[place_ahead]);
        if (start == begin) by.expect_sums(job, shared.column, begin);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        add_products<T>(kernel + lane / 4 - lane % 4, begin - start, in, end - begin, sum);
    }
#pragma unroll
    for (int out = 0; out < ROWS; out += OUT_ROWS) {
        if (begin + out >= end) break;
        four<float> sums[OUT_ROWS / TIMES];
        by.fetch_sums(job, shared.column, begin + out, sums);
        __syncthreads();
        float *to = shared.result + warp * CHANNEL_PITCH + lane % 4 * 2 * ROW_PITCH + lane / 4;
#pragma unroll
        for (int at = 0; at < OUT_ROWS / TILE * 4; at++)
            to[(at / 4 * TILE + at % 2) * ROW_PITCH + at / 2 % 2 * 8] =
                sum[out / TILE + at / 4][at % 4];
        __syncthreads();
        by.carry_off(job, shared.column, begin + out, sums, shared.result);
    }
}

template <typename T>
void ls_cuda_conv_within_spans(const ls_run *run, const ls_conv_job<T> *job, const char *what) {
    const int64_t columns = job->B * ls_conv_ceil_div(job->length, LS_CONV_SPAN);
    const int64_t blocks = ls_conv_ceil_div(columns, COLUMNS) * ls_conv_ceil_div(job->D, CHANNELS) *
                           parts_of_span(*job);
    ls_conv_allow_shared(run, near_kernel<T>, sizeof(near_memory), what);
    near_kernel<<<(unsigned)blocks, THREADS, sizeof(near_memory), ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, what);
}

template void ls_cuda_conv_within_spans(const ls_run *, const ls_conv_job<float> *, const char *);
template void ls_cuda_conv_within_spans(const ls_run *, const ls_conv_job<ls_cuda_bf16> *,
                                        const char *);
