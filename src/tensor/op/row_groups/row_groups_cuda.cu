/* Groups of rows: gathering, keeping, blending. What only moves goes by the tensors' own types. */
#include "tensor/cuda/move_rows.cuh"

extern "C" {
#include "tensor/op/row_groups/row_groups.h"
}

static size_t row_bytes(const ls_tensor *tensor) {
    return (size_t)(ls_count(tensor) / tensor->dim[0] / tensor->dim[1]) *
           ls_dtype_size(tensor->type);
}

/* ---- the groups of a run ---- */

struct groups_where {
    ls_cuda_row_grid x, y;
    ls_groups groups;
    int64_t first, made, most; /* groups: of the run, and places in y */
    ls_extent held;            /* rows of x */
    int64_t bytes;
    __device__ ls_cuda_moved_row operator()(int64_t index) const {
        const int64_t rate = groups.rate, r = index % rate, g = index / rate % most;
        const int64_t b = index / rate / most;
        /* the position of row r of the group */
        const int64_t position = (first + g + 1) * rate - 1 - groups.dilation * (rate - 1 - r);
        const int64_t row = position - held.first;
        const bool has = g < made && row >= 0 && row < held.count;
        return {ls_cuda_row_at(y, b, g) + r * bytes, has ? ls_cuda_row_at(x, b, row) : NULL};
    }
};

static void row_groups(const ls_run *run, const ls_node *node) {
    const ls_groups_attributes *about = (const ls_groups_attributes *)node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    groups_where where = {};
    where.x = ls_cuda_row_grid_of(x);
    where.y = ls_cuda_row_grid_of(y);
    where.groups = about->groups;
    where.first = ls_groups_due(about->groups, run->start);
    where.made = ls_groups_due(about->groups, run->start + about->chunk) - where.first;
    where.most = y->dim[1];
    where.held = ls_cache_extent(run, x);
    where.bytes = (int64_t)row_bytes(x);
    ls_extent_set(run, y, where.first, where.made);
    ls_cuda_move_rows(run, x->dim[0] * where.most * about->groups.rate, row_bytes(x),
                      ls_cuda_row_grid_bits(&where.x) | ls_cuda_row_grid_bits(&where.y), where,
                      "row_groups");
}

typedef struct groups_grad {
    ls_cuda_any dy, dx;
    int64_t dy_b, dy_row, dx_b, dx_row; /* strides */
    int64_t B;
    ls_cuda_divisor rows, D, rate;
    int64_t dilation;
    int64_t held_first, held_count, made_first, due;
} groups_grad;

/* A row's gradient is the sum of what it is in the groups that have it; in order. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS) groups_grad_kernel(const groups_grad s) {
    uint64_t index = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, i, row, left;
    if (index >= (uint64_t)s.B * s.rows.by * s.D.by) return;
    const uint64_t line = ls_cuda_divide(index, s.D, &i);
    const int64_t b = (int64_t)ls_cuda_divide(line, s.rows, &row), rate = (int64_t)s.rate.by;
    float sum = 0;
    for (int64_t r = 0; r < rate && (int64_t)row < s.held_count; r++) {
        const int64_t end = s.held_first + (int64_t)row + 1 + s.dilation * (rate - 1 - r);
        const int64_t k = (int64_t)ls_cuda_divide((uint64_t)end, s.rate, &left) - 1;
        if (left == 0 && k >= s.made_first && k < s.due)
            sum += ls_cuda_any_at(s.dy, b * s.dy_b + (k - s.made_first) * s.dy_row +
                                            r * (int64_t)s.D.by + (int64_t)i);
    }
    ls_cuda_any_set(s.dx, b * s.dx_b + (int64_t)row * s.dx_row + (int64_t)i, sum);
}

static void row_groups_grad(const ls_run *run, const ls_node *node) {
    const ls_groups_attributes *about = (const ls_groups_attributes *)node->attributes;
    const ls_tensor *dy = node->in[0], *dx = node->out[0];
    const ls_extent held = ls_cache_extent(run, dx), made = ls_cache_extent(run, node->in[1]);
    groups_grad s = {};
    s.dy = ls_cuda_any_of(dy), s.dx = ls_cuda_any_of(dx);
    s.dy_b = dy->stride[0], s.dy_row = dy->stride[1];
    s.dx_b = dx->stride[0], s.dx_row = dx->stride[1];
    s.B = dx->dim[0];
    s.rows = ls_cuda_divisor_of(dx->dim[1]), s.D = ls_cuda_divisor_of(dx->dim[2]);
    s.rate = ls_cuda_divisor_of(about->groups.rate), s.dilation = about->groups.dilation;
    s.held_first = held.first, s.held_count = held.count;
    s.made_first = made.first;
    s.due = ls_groups_due(about->groups, run->start + about->chunk);
    groups_grad_kernel<<<ls_cuda_blocks(ls_count(dx), LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                         ls_cuda_of(run)->stream>>>(s);
    ls_cuda_launched(run, "row_groups_grad");
}

/* ---- keeping them ---- */

/* Rows drop .. drop + kept - 1 go down by `drop`; a thread has an element's bytes of every row of a
 * sequence, and reads some rows before it writes as many: none that it still has to read. */
template <typename Word>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    move_down_kernel(ls_cuda_row_grid cache, int64_t B, int64_t words, int64_t drop, int64_t kept) {
    enum { AHEAD = 16 };
    int64_t thread = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (thread >= B * words) return;
    const int64_t b = thread / words, word = thread % words;
    for (int64_t row = 0; row < kept; row += AHEAD) {
        Word ahead[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (row + i < kept)
                ahead[i] = ((const Word *)ls_cuda_row_at(cache, b, row + i + drop))[word];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (row + i < kept) ((Word *)ls_cuda_row_at(cache, b, row + i))[word] = ahead[i];
    }
}

template <typename Word>
static void move_down(const ls_run *run, const ls_tensor *cache, int64_t drop, int64_t kept) {
    int64_t words = (int64_t)(row_bytes(cache) / sizeof(Word));
    move_down_kernel<Word>
        <<<ls_cuda_blocks(cache->dim[0] * words, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
           ls_cuda_of(run)->stream>>>(ls_cuda_row_grid_of(cache), cache->dim[0], words, drop, kept);
    ls_cuda_launched(run, "rows_append");
}

/* Rows of x, from row x_first on, to rows of y from y_first on; zeros behind the first `count`. */
struct band_where {
    ls_cuda_row_grid x, y;
    int64_t x_first, y_first, rows, count;
    __device__ ls_cuda_moved_row operator()(int64_t index) const {
        const int64_t b = index / rows, row = index % rows;
        return {ls_cuda_row_at(y, b, y_first + row),
                row < count ? ls_cuda_row_at(x, b, x_first + row) : NULL};
    }
};

static void move_band(const ls_run *run, const ls_tensor *x, int64_t x_first, const ls_tensor *y,
                      int64_t y_first, int64_t rows, int64_t count, const char *what) {
    band_where where = {
        ls_cuda_row_grid_of(x), ls_cuda_row_grid_of(y), x_first, y_first, rows, count};
    ls_cuda_move_rows(run, y->dim[0] * rows, row_bytes(y),
                      ls_cuda_row_grid_bits(&where.x) | ls_cuda_row_grid_bits(&where.y), where,
                      what);
}

static void rows_append(const ls_run *run, const ls_node *node) {
    const int64_t keep = *(const int64_t *)node->attributes;
    const ls_tensor *x = node->in[0], *cache = node->out[0];
    const ls_extent fresh = ls_cache_extent(run, x), held = ls_cache_extent(run, cache);
    if (fresh.count == 0) return;
    const int64_t drop = ls_max(0, ls_min(fresh.first - keep - held.first, held.count));
    const int64_t kept = held.count - drop;
    if (drop > 0 && kept > 0) {
        if (cache->type == LS_BF16)
            move_down<uint16_t>(run, cache, drop, kept);
        else
            move_down<uint32_t>(run, cache, drop, kept);
    }
    move_band(run, x, 0, cache, kept, fresh.count, fresh.count, "rows_append");
    ls_extent_set(run, cache, fresh.first - kept, kept + fresh.count);
}

static void rows_append_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *gradient = node->in[0], *dx = node->out[0];
    const ls_extent held = ls_cache_extent(run, gradient),
                    fresh = ls_cache_extent(run, node->in[1]);
    move_band(run, gradient, fresh.first - held.first, dx, 0, dx->dim[1], fresh.count,
              "rows_append_grad");
}

/* ---- one row of several ---- */

typedef struct blend_job {
    ls_cuda_any x, y, dx; /* forward x to y; backward x and y, which is dy, to dx */
    int64_t rows, width, rate, x_stride, y_stride, dx_stride;
    ls_cuda_divisor by_width;
    bool most;
} blend_job;

/* Which of the rows side by side has the largest element: the first of equals. */
static __device__ __forceinline__ int64_t largest(const blend_job &s, int64_t at) {
    int64_t best = 0;
    float value = ls_cuda_any_at(s.x, at);
    for (int64_t r = 1; r < s.rate; r++) {
        const float other = ls_cuda_any_at(s.x, at + r * s.width);
        if (other > value) value = other, best = r;
    }
    return best;
}

template <bool BACK>
static __global__ void __launch_bounds__(LS_CUDA_THREADS) blend_kernel(const blend_job s) {
    uint64_t index = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, column;
    if (index >= (uint64_t)(s.rows * s.width)) return;
    const int64_t row = (int64_t)ls_cuda_divide(index, s.by_width, &column);
    const int64_t i = (int64_t)column, at = row * s.x_stride + i;
    const int64_t best = s.most ? largest(s, at) : 0;
    if (BACK) {
        const float value = ls_cuda_any_at(s.y, row * s.y_stride + i);
        const float share = value / (float)s.rate;
        for (int64_t r = 0; r < s.rate; r++)
            ls_cuda_any_set(s.dx, row * s.dx_stride + r * s.width + i,
                            s.most ? (r == best ? value : 0.0f) : share);
        return;
    }
    float value = 0;
    if (s.most) {
        value = ls_cuda_any_at(s.x, at + best * s.width);
    } else {
        for (int64_t r = 0; r < s.rate; r++) value += ls_cuda_any_at(s.x, at + r * s.width);
        value /= (float)s.rate;
    }
    ls_cuda_any_set(s.y, row * s.y_stride + i, value);
}

static blend_job blend_of(const ls_node *node, const ls_tensor *x, const ls_tensor *y) {
    const ls_blend_attributes *about = (const ls_blend_attributes *)node->attributes;
    int64_t wide;
    blend_job s = {};
    s.x = ls_cuda_any_of(x), s.y = ls_cuda_any_of(y);
    ls_rows(x, &s.rows, &wide, &s.x_stride);
    ls_rows(y, &s.rows, &s.width, &s.y_stride);
    s.by_width = ls_cuda_divisor_of(s.width);
    s.rate = about->rate;
    s.most = about->kind == LS_BLEND_MAX;
    return s;
}

static void blend(const ls_run *run, const ls_node *node) {
    const blend_job s = blend_of(node, node->in[0], node->out[0]);
    blend_kernel<false><<<ls_cuda_blocks(s.rows * s.width, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                          ls_cuda_of(run)->stream>>>(s);
    ls_cuda_launched(run, "blend");
}

static void blend_grad(const ls_run *run, const ls_node *node) {
    blend_job s = blend_of(node, node->in[1], node->in[0]);
    int64_t rows, width;
    s.dx = ls_cuda_any_of(node->out[0]);
    ls_rows(node->out[0], &rows, &width, &s.dx_stride);
    blend_kernel<true><<<ls_cuda_blocks(s.rows * s.width, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                         ls_cuda_of(run)->stream>>>(s);
    ls_cuda_launched(run, "blend_grad");
}

/* ---- the most used ---- */

typedef struct use_job {
    ls_cuda_any received;
    const float *before;
    float *after;
    int64_t before_b, after_b, received_b, received_row, received_head; /* strides */
    int64_t L, H, low, high, wanted; /* rows [low, high) leave when this segment ends */
    ls_extent keys;
    int32_t *chosen; /* [B, L]: numbers, from low, of the rows that are taken; -1 behind them */
} use_job;

static __global__ void __launch_bounds__(LS_CUDA_THREADS) add_use_kernel(const use_job s) {
    const int64_t b = blockIdx.y, i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= s.L) return;
    const int64_t row = s.low + i - s.keys.first;
    double use = (double)s.before[b * s.before_b + i];
    if (s.low + i < s.high && row >= 0 && row < s.keys.count)
        for (int64_t h = 0; h < s.H; h++)
            use += (double)ls_cuda_any_at(s.received, b * s.received_b + row * s.received_row +
                                                          h * s.received_head);
    s.after[b * s.after_b + i] = (float)use;
}

/* A block has a sequence. A row is taken if fewer than `wanted` come before it: those used more,
 * and of those used as much the ones before it. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS) choose_kernel(const use_job s) {
    const int64_t b = blockIdx.x, count = s.high - s.low;
    const float *use = s.after + b * s.after_b;
    int32_t *chosen = s.chosen + b * s.L;
    for (int64_t i = threadIdx.x; i < count; i += LS_CUDA_THREADS) {
        int64_t ahead = 0;
        for (int64_t j = 0; j < count; j++) ahead += use[j] > use[i] || (use[j] == use[i] && j < i);
        chosen[i] = ahead < s.wanted ? 1 : 0;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    int64_t g = 0;
    for (int64_t i = 0; i < count; i++)
        if (chosen[i] != 0) chosen[g++] = (int32_t)i; /* g <= i: read before it is overwritten */
    for (; g < s.L; g++) chosen[g] = -1;
}

struct chosen_where {
    ls_cuda_row_grid x, y;
    const int32_t *chosen;
    int64_t L, wanted, first_row;
    __device__ ls_cuda_moved_row operator()(int64_t index) const {
        const int64_t b = index / wanted, g = index % wanted;
        const int64_t i = g < L ? chosen[b * L + g] : -1;
        return {ls_cuda_row_at(y, b, g), i < 0 ? NULL : ls_cuda_row_at(x, b, first_row + i)};
    }
};

static size_t most_used_workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)ls_count(node->out[1]) * sizeof(int32_t);
}

static void clear(const ls_run *run, const ls_tensor *tensor) {
    ls_cuda_note(ls_cuda_of(run),
                 cudaMemsetAsync(ls_data(tensor), 0,
                                 (size_t)ls_count(tensor) * ls_dtype_size(tensor->type),
                                 ls_cuda_of(run)->stream),
                 "most_used");
}

static void most_used(const ls_run *run, const ls_node *node) {
    const ls_groups_attributes *about = (const ls_groups_attributes *)node->attributes;
    const ls_groups *groups = &about->groups;
    const ls_tensor *x = node->in[0], *received = node->in[1], *before = node->in[2];
    const ls_tensor *y = node->out[0], *after = node->out[1];
    const ls_extent rows = ls_cache_extent(run, x);
    const int64_t B = x->dim[0], first = ls_groups_due(*groups, run->start);
    const int64_t made = ls_groups_due(*groups, run->start + about->chunk) - first;
    const int64_t end = run->start / groups->segment * groups->segment + groups->segment;
    use_job s = {};
    s.received = ls_cuda_any_of(received);
    s.before = (const float *)ls_data(before), s.after = (float *)ls_data(after);
    s.before_b = before->stride[0], s.after_b = after->stride[0];
    s.received_b = received->stride[0], s.received_row = received->stride[1];
    s.received_head = received->stride[2];
    s.L = after->dim[1], s.H = received->dim[2];
    s.low = first * groups->rate, s.high = ls_groups_due(*groups, end) * groups->rate;
    s.wanted = made;
    s.keys = ls_cache_extent(run, received);
    s.chosen = (int32_t *)run->workspace;
    ls_extent_set(run, y, first, made);
    clear(run, y);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    add_use_kernel<<<dim3(ls_cuda_blocks(s.L, LS_CUDA_THREADS), (unsigned)B), LS_CUDA_THREADS, 0,
                     stream>>>(s);
    ls_cuda_launched(run, "most_used");
    if (run->start + about->chunk < end) return;
    if (made > 0) {
        choose_kernel<<<(unsigned)B, LS_CUDA_THREADS, 0, stream>>>(s);
        ls_cuda_launched(run, "most_used");
        chosen_where where = {ls_cuda_row_grid_of(x), ls_cuda_row_grid_of(y), s.chosen, s.L, made,
                              s.low - rows.first};
        ls_cuda_move_rows(run, B * made, row_bytes(x),
                          ls_cuda_row_grid_bits(&where.x) | ls_cuda_row_grid_bits(&where.y), where,
                          "most_used");
    }
    clear(run, after);
}

LS_CUDA_DECLARE_TABLE(row_groups);
const ls_kernel LS_CUDA_TABLE(row_groups)[] = {
    {"most_used", {NULL, most_used, most_used}, most_used_workspace},
    {"row_groups", {NULL, row_groups, row_groups}, NULL},
    {"row_groups_grad", {NULL, row_groups_grad, row_groups_grad}, NULL},
    {"rows_append", {NULL, rows_append, rows_append}, NULL},
    {"rows_append_grad", {NULL, rows_append_grad, rows_append_grad}, NULL},
    {"blend", {NULL, blend, blend}, NULL},
    {"blend_grad", {NULL, blend_grad, blend_grad}, NULL},
    {},
};
