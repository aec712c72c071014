/* Moving rows: copies, sums of gradients, caches. These go by the tensors' own types. */
#include "tensor/cuda/map.cuh"
#include "tensor/cuda/move_rows.cuh"

struct sum_map {
    template <int LANES, int IN>
    __device__ __forceinline__ void operator()(uint64_t, const float (&in)[IN][LANES],
                                               float (&out)[1][LANES]) const {
#pragma unroll
        for (int i = 0; i < LANES; i++) out[0][i] = IN > 1 ? in[0][i] + in[IN - 1][i] : in[0][i];
    }
};

static bool is_real(ls_dtype type) {
    return type == LS_F32 || type == LS_BF16;
}

/* ---- out = a (+ b) of any real types ---- */

/* One operand of a sum; `data` is where its first element is. */
typedef struct term {
    ls_cuda_axes axes;
    ls_dtype type;
    void *data;
} term;

static term term_of(const ls_tensor *tensor) {
    return (term){ls_cuda_axes_of(tensor), tensor->type, ls_data(tensor)};
}

template <int IN, typename O, typename A, typename B>
static void add_typed(const ls_run *run, const ls_cuda_layout *layout, const term *out,
                      const term *a, const term *b, const char *what) {
    ls_cuda_map_operands<O, A, B> at = {
        {(O *)out->data}, (const A *)a->data, {b == NULL ? NULL : (const B *)b->data}};
    ls_cuda_map<1, IN>(run, layout, at, sum_map(), what);
}

template <typename O, typename A>
static void add_to(const ls_run *run, const ls_cuda_layout *layout, const term *out, const term *a,
                   const term *b, const char *what) {
    if (b == NULL)
        add_typed<1, O, A, A>(run, layout, out, a, b, what);
    else if (b->type == LS_BF16)
        add_typed<2, O, A, ls_cuda_bf16>(run, layout, out, a, b, what);
    else
        add_typed<2, O, A, float>(run, layout, out, a, b, what);
}

/* b may be NULL; out may be a or b itself. */
static void combine(const ls_run *run, const term *a, const term *b, const term *out,
                    const char *what) {
    ls_cuda_axes axes[3] = {out->axes, a->axes};
    if (b != NULL) axes[2] = b->axes;
    ls_cuda_layout layout;
    if (!ls_cuda_lay_out(run, b == NULL ? 2 : 3, axes, &layout)) return;
    if (b == NULL && a->type == out->type)
        return ls_cuda_copy(run, &layout, out->data, a->data, ls_dtype_size(out->type), what);
    if (!is_real(a->type) || !is_real(out->type) || (b != NULL && !is_real(b->type)))
        return ls_cuda_note_text(ls_cuda_of(run), what, "only f32 and bf16 can be added");
    if (out->type == LS_F32 && a->type == LS_F32)
        add_to<float, float>(run, &layout, out, a, b, what);
    else if (out->type == LS_F32)
        add_to<float, ls_cuda_bf16>(run, &layout, out, a, b, what);
    else if (a->type == LS_F32)
        add_to<ls_cuda_bf16, float>(run, &layout, out, a, b, what);
    else
        add_to<ls_cuda_bf16, ls_cuda_bf16>(run, &layout, out, a, b, what);
}

static void copy(const ls_run *run, const ls_node *node) {
    term a = term_of(node->in[0]), out = term_of(node->out[0]);
    combine(run, &a, NULL, &out, "copy");
}

static void sum(const ls_run *run, const ls_node *node) {
    term a = term_of(node->in[0]), b = term_of(node->in[1]), out = term_of(node->out[0]);
    combine(run, &a, &b, &out, "sum");
}

/* A parameter's gradient is contiguous, in the master's type. */
static void accumulate(const ls_run *run, const ls_node *node) {
    int64_t count = ls_count(node->in[0]);
    term gradient = {ls_cuda_axes_of_rows(1, count, count), run->parameters->master_type,
                     ls_param_gradient(run, node->in[0])};
    term more = term_of(node->in[1]);
    combine(run, &gradient, &more, &gradient, "accumulate");
}

static void clear(const ls_run *run, const ls_node *node) {
    const ls_tensor *out = node->out[0];
    ls_cuda_axes axes = ls_cuda_axes_of(out);
    ls_cuda_layout layout;
    if (ls_cuda_lay_out(run, 1, &axes, &layout))
        ls_cuda_copy(run, &layout, ls_data(out), NULL, ls_dtype_size(out->type), "clear");
}

/* ---- caches ---- */

/* Rows first .. first + rows of every sequence of a cache, chunk or gradient [B, time, ...]: all
 * axes after time are one contiguous row. */
typedef struct band {
    const ls_tensor *tensor;
    int64_t first;
} band;

static ls_cuda_axes band_axes(const ls_tensor *tensor, int64_t rows) {
    ls_cuda_axes axes = {};
    axes.rank = 3;
    axes.dim[0] = tensor->dim[0];
    axes.dim[1] = rows;
    axes.dim[2] = ls_count(tensor) / tensor->dim[0] / tensor->dim[1];
    axes.stride[0] = tensor->stride[0];
    axes.stride[1] = tensor->stride[1];
    axes.stride[2] = 1;
    return axes;
}

static char *band_data(band at) {
    return (char *)ls_data(at.tensor) +
           at.first * at.tensor->stride[1] * (int64_t)ls_dtype_size(at.tensor->type);
}

/* Zeros where `from` has no tensor. */
static void copy_band(const ls_run *run, band to, band from, int64_t rows, const char *what) {
    if (rows <= 0) return;
    const ls_tensor *source = from.tensor == NULL ? to.tensor : from.tensor;
    ls_cuda_axes axes[] = {band_axes(to.tensor, rows), band_axes(source, rows)};
    ls_cuda_layout layout;
    if (ls_cuda_lay_out(run, 2, axes, &layout))
        ls_cuda_copy(run, &layout, band_data(to), from.tensor == NULL ? NULL : band_data(from),
                     ls_dtype_size(to.tensor->type), what);
}

/* Where a row of a chunk goes: behind the rows that lie before the chunk's start. */
struct append_row {
    ls_cuda_row_grid chunk, cache;
    ls_cuda_start start;
    int64_t first; /* position of the cache's row 0 */
    int64_t rows;  /* of each sequence in the chunk */
    __device__ __forceinline__ ls_cuda_moved_row operator()(int64_t row) const {
        const int64_t b = row / rows, t = row % rows;
        return {ls_cuda_row_at(cache, b, start.at() - first + t), ls_cuda_row_at(chunk, b, t)};
    }
};

/* Rows are only added: the same launch at every position. */
static void append_rows(const ls_run *run, const ls_tensor *x, const ls_tensor *cache) {
    append_row where = {ls_cuda_row_grid_of(x), ls_cuda_row_grid_of(cache), ls_cuda_start_of(run),
                        ls_cache_extent(run, cache).first, x->dim[1]};
    const size_t bytes = (size_t)(ls_count(x) / x->dim[0] / x->dim[1]) * ls_dtype_size(x->type);
    ls_cuda_move_rows(run, x->dim[0] * x->dim[1], bytes,
                      ls_cuda_row_grid_bits(&where.chunk) | ls_cuda_row_grid_bits(&where.cache),
                      where, "cache_append");
    ls_cuda_steady(run);
}

static void cache_append(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *cache = node->out[0];
    const ls_append_plan plan = ls__append_begin(run, node);
    if (plan.drop == 0 && plan.take == x->dim[1] &&
        plan.kept == run->start - ls_cache_extent(run, cache).first) {
        append_rows(run, x, cache);
        return;
    }
    /* at most `drop` rows at a time go down by `drop`: none is read after it was overwritten */
    for (int64_t done = 0; plan.drop > 0 && done < plan.kept; done += plan.drop)
        copy_band(run, (band){cache, done}, (band){cache, plan.drop + done},
                  ls_min(plan.drop, plan.kept - done), "cache_append");
    copy_band(run, (band){cache, plan.kept}, (band){x, plan.from}, plan.take, "cache_append");
}

/* The chunk's rows that the cache holds get their gradient from there, others zeros. */
static void cache_append_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *gradient = node->in[0], *out = node->out[0];
    ls_extent extent = ls_cache_extent(run, gradient);
    int64_t T = out->dim[1], offset = run->start - extent.first;
    int64_t begin = ls_min(T, ls_max(0, -offset));
    int64_t end = ls_max(begin, ls_min(T, extent.count - offset));
    const char *what = "cache_append_grad";
    copy_band(run, (band){out, 0}, (band){NULL, 0}, begin, what);
    copy_band(run, (band){out, begin}, (band){gradient, begin + offset}, end - begin, what);
    copy_band(run, (band){out, end}, (band){NULL, 0}, T - end, what);
}

/* See the processor's. Where the gradient lies in the port's place already it goes up by `drop`, at
 * most that many rows at a time, the last first. */
static void cache_hand_back(const ls_run *run, const ls_node *node) {
    const ls_tensor *gradient = node->in[0], *out = node->in[1];
    const ls_append_plan plan = run->state->port[out->port].last;
    const char *what = "cache_hand_back";
    const bool in_place = ls_data(gradient) == ls_data(out);
    if (!in_place) copy_band(run, (band){out, plan.drop}, (band){gradient, 0}, plan.kept, what);
    for (int64_t left = plan.kept; in_place && plan.drop > 0 && left > 0; left -= plan.drop) {
        const int64_t first = ls_max(0, left - plan.drop);
        copy_band(run, (band){out, plan.drop + first}, (band){gradient, first}, left - first, what);
    }
    copy_band(run, (band){out, 0}, (band){NULL, 0}, plan.drop, what);
}

static void state_write(const ls_run *run, const ls_node *node) {
    const ls_tensor *value = node->in[0], *state = node->in[1];
    ls_cuda_axes axes[] = {ls_cuda_axes_of(state), ls_cuda_axes_of(value)};
    ls_cuda_layout layout;
    ls_cuda_steady(run);
    if (ls_cuda_lay_out(run, 2, axes, &layout))
        ls_cuda_copy(run, &layout, ls_data(state), ls_data(value), ls_dtype_size(state->type),
                     "state_write");
}

LS_CUDA_DECLARE_TABLE(copy);
const ls_kernel LS_CUDA_TABLE(copy)[] = {
    {"copy", {NULL, copy, copy}, NULL},
    {"sum", {NULL, sum, sum}, NULL},
    {"accumulate", {NULL, accumulate, accumulate}, NULL},
    {"clear", {NULL, clear, clear}, NULL},
    {"cache_append", {NULL, cache_append, cache_append}, NULL},
    {"cache_append_grad", {NULL, cache_append_grad, cache_append_grad}, NULL},
    {"cache_hand_back", {NULL, cache_hand_back, cache_hand_back}, NULL},
    {"state_write", {NULL, state_write, state_write}, NULL},
    {},
};
