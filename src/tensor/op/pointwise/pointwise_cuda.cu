/* Broadcast sums, multiples, quotients, choices, dropout, and new draws. */
#include "tensor/cuda/map.cuh"

extern "C" {
#include "tensor/op/pointwise/pointwise.h"
}

/* ---- x + v, v repeated over x's leading axes ---- */

struct plus_map {
    template <int LANES>
    __device__ __forceinline__ void operator()(uint64_t, const float (&in)[2][LANES],
                                               float (&out)[1][LANES]) const {
#pragma unroll
        for (int i = 0; i < LANES; i++) out[0][i] = in[0][i] + in[1][i];
    }
};

/* v's axes stand for all of x's: leading ones have step 0. */
static ls_cuda_axes repeated(const ls_tensor *v, const ls_tensor *x) {
    ls_cuda_axes axes = ls_cuda_axes_of(x);
    int lead = x->rank - v->rank;
    for (int i = 0; i < x->rank; i++) axes.stride[i] = i < lead ? 0 : v->stride[i - lead];
    return axes;
}

template <typename O, typename A, typename V>
static void plus_typed(const ls_run *run, const ls_node *node, const ls_cuda_layout *layout) {
    ls_cuda_map_operands<O, A, V> at = {{(O *)ls_data(node->out[0])},
                                        (const A *)ls_data(node->in[0]),
                                        {(const V *)ls_data(node->in[1])}};
    ls_cuda_map<1, 2>(run, layout, at, plus_map(), "plus_broadcast");
}

/* x and v may be parameters in f32 where the program computes in bf16. */
template <typename O> static void plus_broadcast(const ls_run *run, const ls_node *node) {
    ls_cuda_steady(run);
    const ls_tensor *x = node->in[0], *v = node->in[1], *y = node->out[0];
    ls_cuda_axes axes[] = {ls_cuda_axes_of(y), ls_cuda_axes_of(x), repeated(v, x)};
    ls_cuda_layout layout;
    if (!ls_cuda_lay_out(run, 3, axes, &layout)) return;
    bool narrow_x = x->type == LS_BF16, narrow_v = v->type == LS_BF16;
    if (narrow_x && narrow_v)
        plus_typed<O, ls_cuda_bf16, ls_cuda_bf16>(run, node, &layout);
    else if (narrow_x)
        plus_typed<O, ls_cuda_bf16, float>(run, node, &layout);
    else if (narrow_v)
        plus_typed<O, float, ls_cuda_bf16>(run, node, &layout);
    else
        plus_typed<O, float, float>(run, node, &layout);
}

/* ---- dv: every element of v sums its repetitions ---- */

/* Repetitions are cut in pieces until there are enough threads; few repetitions stay whole. */
static int64_t grad_pieces(int64_t columns, int64_t repeats) {
    enum { THREADS_WANTED = 1 << 20, LEAST = 16 };
    int64_t wanted = ls_ceil_div(THREADS_WANTED, columns), most = ls_ceil_div(repeats, LEAST);
    return ls_max(1, ls_min(ls_min(wanted, most), 1024));
}

static size_t grad_workspace(const ls_node *node, int threads) {
    (void)threads;
    int64_t columns = ls_count(node->out[0]), repeats = ls_count(node->in[0]) / columns;
    int64_t pieces = grad_pieces(columns, repeats);
    return pieces == 1 ? 0 : (size_t)(pieces * columns) * sizeof(float);
}

/* Piece blockIdx.y of the repetitions. to is operand 0 of `columns`, or rows of `stride` floats
 * per piece. */
template <int LANES, typename T, typename O>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    broadcast_grad_kernel(const ls_cuda_layout columns, const ls_cuda_layout repeats, const T *dy,
                          O *to, int64_t stride) {
    uint64_t column = ((uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x) * LANES;
    if (column >= (uint64_t)columns.count) return;
    int64_t place[2];
    ls_cuda_place(columns, column, place);
    uint64_t begin = (uint64_t)repeats.count * blockIdx.y / gridDim.y;
    uint64_t end = (uint64_t)repeats.count * (blockIdx.y + 1) / gridDim.y;
    float sum[LANES] = {};
#pragma unroll 4
    for (uint64_t repeat = begin; repeat < end; repeat++) {
        int64_t from[1];
        float more[LANES];
        ls_cuda_place(repeats, repeat, from);
        ls_cuda_load<LANES>(dy + from[0] + place[1], more);
#pragma unroll
        for (int i = 0; i < LANES; i++) sum[i] += more[i];
    }
    int64_t target = stride > 0 ? (int64_t)blockIdx.y * stride + (int64_t)column : place[0];
    ls_cuda_store<LANES>(to + target, sum);
}

template <typename T, typename O>
static void broadcast_grad_launch(const ls_run *run, const ls_cuda_layout *columns,
                                  const ls_cuda_layout *repeats, const T *dy, O *to, int64_t pieces,
                                  int64_t stride) {
    enum { LANES = ls_cuda_lanes<T, O>::count };
    bool wide = ls_cuda_in_lanes(columns, LANES) && stride % LANES == 0 && ls_cuda_aligned(dy) &&
                ls_cuda_aligned(to) && repeats->width == 1;
    for (int axis = 0; axis < repeats->axes; axis++)
        wide = wide && repeats->stride[axis][0] % LANES == 0;
    int64_t chunks = wide ? columns->count / LANES : columns->count;
    dim3 blocks(ls_cuda_blocks(chunks, LS_CUDA_THREADS), (unsigned)pieces);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (wide)
        broadcast_grad_kernel<LANES>
            <<<blocks, LS_CUDA_THREADS, 0, stream>>>(*columns, *repeats, dy, to, stride);
    else
        broadcast_grad_kernel<1>
            <<<blocks, LS_CUDA_THREADS, 0, stream>>>(*columns, *repeats, dy, to, stride);
    ls_cuda_launched(run, "plus_broadcast_grad");
}

template <typename T> static void grad_typed(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[0], *dv = node->out[0];
    ls_cuda_axes whole = ls_cuda_axes_of(dy), lead = whole, rest = {};
    lead.rank = dy->rank - dv->rank;
    rest.rank = dv->rank;
    for (int i = 0; i < dv->rank; i++) {
        rest.dim[i] = whole.dim[lead.rank + i];
        rest.stride[i] = whole.stride[lead.rank + i];
    }
    ls_cuda_axes axes[] = {ls_cuda_axes_of(dv), rest};
    ls_cuda_layout columns, repeats;
    if (!ls_cuda_lay_out(run, 2, axes, &columns) || !ls_cuda_lay_out(run, 1, &lead, &repeats))
        return;
    const T *from = (const T *)ls_data(dy);
    int64_t pieces = grad_pieces(columns.count, repeats.count);
    if (pieces > 1) {
        float *partial = (float *)run->workspace;
        broadcast_grad_launch(run, &columns, &repeats, from, partial, pieces, columns.count);
        ls_cuda_add_pieces(run, partial, pieces, columns.count, &columns, ls_data(dv), dv->type,
                           false, "plus_broadcast_grad");
    } else if (dv->type == LS_BF16) {
        broadcast_grad_launch(run, &columns, &repeats, from, (ls_cuda_bf16 *)ls_data(dv), 1, 0);
    } else {
        broadcast_grad_launch(run, &columns, &repeats, from, (float *)ls_data(dv), 1, 0);
    }
}

static void plus_broadcast_grad(const ls_run *run, const ls_node *node) {
    (node->in[0]->type == LS_BF16 ? grad_typed<ls_cuda_bf16> : grad_typed<float>)(run, node);
}

/* ---- x * factor, and dropout ---- */

struct times_map {
    float factor;
    template <int LANES>
    __device__ __forceinline__ void operator()(uint64_t, const float (&in)[1][LANES],
                                               float (&out)[1][LANES]) const {
#pragma unroll
        for (int i = 0; i < LANES; i++) out[0][i] = in[0][i] * factor;
    }
};

/* As ls_random_block. */
static __device__ __forceinline__ uint4 random_block(uint64_t seed, uint32_t stream, uint32_t step,
                                                     uint64_t index) {
    uint4 c = {(uint32_t)index, (uint32_t)(index >> 32), stream, step};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c.x, p1 = (uint64_t)0xCD9E8D57u * c.z;
        c = {(uint32_t)(p1 >> 32) ^ c.y ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c.w ^ k1,
             (uint32_t)p0};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

static __device__ __forceinline__ uint32_t random_word(uint64_t seed, uint32_t stream,
                                                       uint32_t step, uint64_t index) {
    const uint4 words = random_block(seed, stream, step, index / 4);
    return index % 4 < 2 ? (index % 4 == 0 ? words.x : words.y)
                         : (index % 4 == 2 ? words.z : words.w);
}

/* Of row r and column i of the tensor: (r / rows) width + i. */
static __device__ __forceinline__ uint64_t tied_index(uint64_t index, ls_cuda_divisor width,
                                                      ls_cuda_divisor sharing) {
    uint64_t column, within;
    const uint64_t block = ls_cuda_divide(index, sharing, &within);
    ls_cuda_divide(within, width, &column);
    return block * width.by + column;
}

/* The word of that number. Called, not inlined: it is long, rare, and every map would have it once
 * for each lane. */
static __device__ __noinline__ uint32_t tied_word(uint64_t seed, uint32_t stream, uint32_t step,
                                                  uint64_t index, ls_cuda_divisor width,
                                                  ls_cuda_divisor sharing) {
    return random_word(seed, stream, step, tied_index(index, width, sharing));
}

static __device__ __forceinline__ void keep_four(uint4 words, uint32_t threshold, float scale,
                                                 const float *in, float *out) {
    out[0] = words.x < threshold ? 0.0f : in[0] * scale;
    out[1] = words.y < threshold ? 0.0f : in[1] * scale;
    out[2] = words.z < threshold ? 0.0f : in[2] * scale;
    out[3] = words.w < threshold ? 0.0f : in[3] * scale;
}

/* Rows that belong together keep or lose the same columns. */
struct tied_dropout_map {
    const ls_cuda_now *now;
    uint32_t stream, threshold;
    float scale;
    ls_cuda_divisor width, sharing; /* sharing: rows * width elements */
    template <int LANES>
    __device__ __forceinline__ void operator()(uint64_t index, const float (&in)[1][LANES],
                                               float (&out)[1][LANES]) const {
        if constexpr (LANES % 4 == 0)
            if (width.by % 4 == 0) { /* four columns of a row have the words of one block */
#pragma unroll
                for (int i = 0; i < LANES; i += 4)
                    keep_four(random_block(now->seed, stream, now->step,
                                           tied_index(index + (unsigned)i, width, sharing) / 4),
                              threshold, scale, in[0] + i, out[0] + i);
                return;
            }
#pragma unroll
        for (int i = 0; i < LANES; i++) {
            const uint32_t word =
                tied_word(now->seed, stream, now->step, index + (unsigned)i, width, sharing);
            out[0][i] = word < threshold ? 0.0f : in[0][i] * scale;
        }
    }
};

/* Element i of the tensor is kept or not by word i of the stream. */
struct dropout_map {
    const ls_cuda_now *now;
    uint32_t stream, threshold;
    float scale;
    template <int LANES>
    __device__ __forceinline__ void operator()(uint64_t index, const float (&in)[1][LANES],
                                               float (&out)[1][LANES]) const {
        uint64_t seed = now->seed;
        uint32_t step = now->step;
        if constexpr (LANES == 1) {
            const uint32_t word = random_word(seed, stream, step, index);
            out[0][0] = word < threshold ? 0.0f : in[0][0] * scale;
        } else {
#pragma unroll
            for (int i = 0; i < LANES; i += 4)
                keep_four(random_block(seed, stream, step, (index + (unsigned)i) / 4), threshold,
                          scale, in[0] + i, out[0] + i);
        }
    }
};

template <typename O, typename A, typename F>
static void map_typed(const ls_run *run, const ls_node *node, const ls_cuda_layout *layout, F f,
                      const char *what) {
    ls_cuda_map_operands<O, A, A> at = {
        {(O *)ls_data(node->out[0])}, (const A *)ls_data(node->in[0]), {}};
    ls_cuda_map<1, 1>(run, layout, at, f, what);
}

/* The gradient of a parameter is f32 also where what comes in is bf16. */
template <typename F>
static void map_one(const ls_run *run, const ls_node *node, F f, const char *what) {
    const ls_tensor *x = node->in[0], *y = node->out[0];
    ls_cuda_axes axes[] = {ls_cuda_axes_of(y), ls_cuda_axes_of(x)};
    ls_cuda_layout layout;
    if (!ls_cuda_lay_out(run, 2, axes, &layout)) return;
    if (x->type == LS_BF16 && y->type == LS_BF16)
        map_typed<ls_cuda_bf16, ls_cuda_bf16>(run, node, &layout, f, what);
    else if (x->type == LS_BF16)
        map_typed<float, ls_cuda_bf16>(run, node, &layout, f, what);
    else if (y->type == LS_BF16)
        map_typed<ls_cuda_bf16, float>(run, node, &layout, f, what);
    else
        map_typed<float, float>(run, node, &layout, f, what);
}

static void times(const ls_run *run, const ls_node *node) {
    map_one(run, node, times_map{(float)*(const double *)node->attributes}, "times");
}

static void dropout(const ls_run *run, const ls_node *node) {
    const ls_dropout_attributes *about = (const ls_dropout_attributes *)node->attributes;
    const uint32_t threshold = (uint32_t)(about->share * 4294967295.0);
    const float scale = (float)(1 / (1 - about->share));
    const ls_cuda_now *now = ls_cuda_of(run)->now;
    const int64_t width = node->in[0]->dim[node->in[0]->rank - 1];
    if (about->rows > 1)
        map_one(run, node,
                tied_dropout_map{now, about->stream, threshold, scale, ls_cuda_divisor_of(width),
                                 ls_cuda_divisor_of(about->rows * width)},
                "dropout");
    else
        map_one(run, node, dropout_map{now, about->stream, threshold, scale}, "dropout");
}

/* ---- sequences of one tensor or another ---- */

/* `lanes` elements make one word, all of one sequence; a or b NULL: zeros. */
template <typename Word>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    pick_kernel(const ls_cuda_layout layout, int lanes, const ls_cuda_divisor each,
                const uint8_t *which, char *to, const char *a, const char *b) {
    uint64_t index = ((uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x) * (unsigned)lanes;
    if (index >= (uint64_t)layout.count) return;
    const int64_t size = (int64_t)sizeof(Word) / lanes;
    int64_t place[3];
    uint64_t within;
    ls_cuda_place(layout, index, place);
    const bool first = which[ls_cuda_divide(index, each, &within)] != 0;
    const char *from = first ? a : b;
    *(Word *)(to + place[0] * size) =
        from == NULL ? Word{} : *(const Word *)(from + (first ? place[1] : place[2]) * size);
}

template <typename Word>
static void pick_words(const ls_run *run, const ls_node *node, const ls_cuda_layout *layout,
                       int lanes) {
    const ls_tensor *a = node->in[1], *b = node->in[2], *y = node->out[0];
    pick_kernel<Word><<<ls_cuda_blocks(layout->count / lanes, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                        ls_cuda_of(run)->stream>>>(
        *layout, lanes, ls_cuda_divisor_of(layout->count / y->dim[0]),
        (const uint8_t *)ls_data(node->in[0]), (char *)ls_data(y),
        a == NULL ? NULL : (const char *)ls_data(a), b == NULL ? NULL : (const char *)ls_data(b));
    ls_cuda_launched(run, "pick");
}

static void pick(const ls_run *run, const ls_node *node) {
    const ls_tensor *y = node->out[0];
    ls_cuda_axes axes[3] = {ls_cuda_axes_of(y)};
    bool aligned = ls_cuda_aligned(ls_data(y));
    for (int i = 1; i < 3; i++) {
        const ls_tensor *x = node->in[i];
        axes[i] = ls_cuda_axes_of(x == NULL ? y : x);
        aligned = aligned && (x == NULL || ls_cuda_aligned(ls_data(x)));
    }
    ls_cuda_layout layout;
    if (!ls_cuda_lay_out(run, 3, axes, &layout) || layout.count == 0) return;
    const int lanes = (int)(16 / ls_dtype_size(y->type));
    if (aligned && ls_cuda_in_lanes(&layout, lanes) && layout.count / y->dim[0] % lanes == 0)
        pick_words<uint4>(run, node, &layout, lanes);
    else if (y->type == LS_BF16)
        pick_words<uint16_t>(run, node, &layout, 1);
    else
        pick_words<uint32_t>(run, node, &layout, 1);
}

/* ---- y / by ---- */

static __device__ __forceinline__ float inverse_of(float divisor) {
    return divisor == 0 ? 0.0f : (float)(1 / (double)divisor);
}

struct divide_map {
    const float *by;
    ls_cuda_divisor width;
    template <int LANES>
    __device__ __forceinline__ void operator()(uint64_t index, const float (&in)[1][LANES],
                                               float (&out)[1][LANES]) const {
        uint64_t column, row = ls_cuda_divide(index, width, &column);
        float factor = inverse_of(by[row]);
#pragma unroll
        for (int i = 0; i < LANES; i++) {
            if (column == width.by) { /* the lanes go on in the next row */
                column = 0;
                factor = inverse_of(by[++row]);
            }
            out[0][i] = in[0][i] * factor;
            column++;
        }
    }
};

static void divide(const ls_run *run, const ls_node *node) {
    const ls_tensor *y = node->in[0];
    map_one(
        run, node,
        divide_map{(const float *)ls_data(node->in[1]), ls_cuda_divisor_of(y->dim[y->rank - 1])},
        "divide");
}

/* With r = y / by: dy = dr / by, dby = -(r . dr) / by. A warp has a row; the layout is that of r,
 * dr and dy without their last axes. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    divide_grad_kernel(const ls_cuda_layout rows, int64_t width, const T *r, const T *dr, T *dy,
                       const float *by, float *dby) {
    int64_t row = ((int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x) / 32;
    if (row >= rows.count) return;
    int64_t place[3];
    ls_cuda_place(rows, (uint64_t)row, place);
    const float factor = inverse_of(by[row]);
    float dot = 0;
    for (int64_t i = threadIdx.x % 32; i < width; i += 32) {
        const float d = ls_cuda_wide(dr[place[1] + i]);
        dot += ls_cuda_wide(r[place[0] + i]) * d;
        dy[place[2] + i] = ls_cuda_narrow<T>(d * factor);
    }
    dot = ls_cuda_warp_sum(dot);
    if (threadIdx.x % 32 == 0) dby[row] = -dot * factor;
}

/* Where the rows of the last axis begin. */
static ls_cuda_axes axes_of_beginnings(const ls_tensor *tensor) {
    ls_cuda_axes axes = ls_cuda_axes_of(tensor);
    axes.rank--;
    return axes;
}

template <typename T> static void divide_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *r = node->in[0], *dr = node->in[2], *dy = node->out[0];
    ls_cuda_axes axes[] = {axes_of_beginnings(r), axes_of_beginnings(dr), axes_of_beginnings(dy)};
    ls_cuda_layout rows;
    if (!ls_cuda_lay_out(run, 3, axes, &rows) || rows.count == 0) return;
    divide_grad_kernel<T><<<ls_cuda_blocks(rows.count, LS_CUDA_THREADS / 32), LS_CUDA_THREADS, 0,
                            ls_cuda_of(run)->stream>>>(
        rows, r->dim[r->rank - 1], (const T *)ls_data(r), (const T *)ls_data(dr), (T *)ls_data(dy),
        (const float *)ls_data(node->in[1]), (float *)ls_data(node->out[1]));
    ls_cuda_launched(run, "divide_grad");
}

/* ---- parameters that are drawn anew ----
 *
 * What a draw makes of random numbers is a function of the host. It is called in the device's order
 * of work, with seed and step as the device has them, and does nothing in most steps. */

typedef struct new_draw {
    ls_cuda_now now;
    const ls_parameter *parameter;
    ls_redraw_attributes about;
    double values[]; /* the device reads them from here */
} new_draw;

static __host__ __device__ bool is_due(const ls_cuda_now *now, const ls_redraw_attributes &about) {
    const int64_t step = now->step / about.runs;
    return step != 0 && step % about.every == 0;
}

static void CUDART_CB draw_here(void *user) {
    new_draw *draw = (new_draw *)user;
    if (is_due(&draw->now, draw->about))
        ls_parameter_draw(draw->parameter, draw->now.seed,
                          (uint32_t)(draw->now.step / draw->about.runs), draw->values);
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    redraw_kernel(const ls_cuda_now *now, ls_redraw_attributes about, int64_t count,
                  const double *values, float *parameter) {
    if (!is_due(now, about)) return;
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i < count) parameter[i] = (float)values[i];
}

static void redraw(const ls_run *run, const ls_node *node) {
    ls_cuda *cuda = ls_cuda_of(run);
    const ls_tensor *parameter = node->in[0];
    const int64_t count = ls_count(parameter);
    new_draw *draw =
        (new_draw *)ls_cuda_stage(cuda, node, sizeof(new_draw) + (size_t)count * sizeof(double));
    if (draw == NULL) return;
    draw->parameter = &run->parameters->items[parameter->parameter];
    draw->about = *(const ls_redraw_attributes *)node->attributes;
    ls_cuda_note(cuda,
                 cudaMemcpyAsync(&draw->now, cuda->now, sizeof draw->now, cudaMemcpyDeviceToHost,
                                 cuda->stream),
                 "redraw");
    ls_cuda_note(cuda, cudaLaunchHostFunc(cuda->stream, draw_here, draw), "redraw");
    redraw_kernel<<<ls_cuda_blocks(count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0, cuda->stream>>>(
        cuda->now, draw->about, count, draw->values, (float *)ls_data(parameter));
    ls_cuda_launched(run, "redraw");
}

/* ---- rows that are left out ---- */

/* A thread has the four rows of one block of words; row t of sequence b is word b T + t. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    drop_rows_kernel(const ls_cuda_now *now, uint32_t stream, uint32_t threshold, int64_t rows,
                     int64_t T, int64_t count, uint8_t *kept) {
    const int64_t block = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (4 * block >= rows) return;
    const uint4 drawn = random_block(now->seed, stream, now->step, (uint64_t)block);
    const uint32_t words[4] = {drawn.x, drawn.y, drawn.z, drawn.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int64_t row = 4 * block + i;
        if (row < rows) kept[row] = row % T >= count || words[i] >= threshold;
    }
}

static void drop_rows(const ls_run *run, const ls_node *node) {
    const ls_drop_rows_attributes *about = (const ls_drop_rows_attributes *)node->attributes;
    const ls_tensor *kept = node->out[0];
    const int64_t rows = ls_count(kept);
    ls_cuda *cuda = ls_cuda_of(run);
    drop_rows_kernel<<<ls_cuda_blocks(ls_ceil_div(rows, 4), LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                       cuda->stream>>>(cuda->now, about->drop.stream,
                                       (uint32_t)(about->drop.share * 4294967295.0), rows,
                                       kept->dim[1], about->count, (uint8_t *)ls_data(kept));
    ls_cuda_launched(run, "drop_rows");
}

LS_CUDA_DECLARE_TABLE(pointwise);
const ls_kernel LS_CUDA_TABLE(pointwise)[] = {
    {"plus_broadcast", {NULL, plus_broadcast<float>, plus_broadcast<ls_cuda_bf16>}, NULL},
    {"plus_broadcast_grad", {NULL, plus_broadcast_grad, plus_broadcast_grad}, grad_workspace},
    {"times", {NULL, times, times}, NULL},
    {"pick", {NULL, pick, pick}, NULL},
    {"divide", {NULL, divide, divide}, NULL},
    {"divide_grad", {NULL, divide_grad<float>, divide_grad<ls_cuda_bf16>}, NULL},
    {"redraw", {NULL, redraw, redraw}, NULL},
    {"dropout", {NULL, dropout, dropout}, NULL},
    {"drop_rows", {NULL, drop_rows, drop_rows}, NULL},
    {},
};
