/* Rotation of pairs. Cosines and sines are computed once per run and position in f64, narrowed, and
 * serve every head, and every sequence unless each has its own places; factors (temperature, the
 * key's xPos decay) are already in them. */
#include "tensor/cuda/follow.cuh"
#include "tensor/cuda/position_map.cuh"
#include "tensor/cuda/rows.cuh"
#include "tensor/cuda/turn.cuh"
#include "tensor/op/rotate/rotate.cuh"

extern "C" {
#include "tensor/op/rotate/rotate.h"
}

/* ---- tables ---- */

/* What the cosines of a run are made of; it travels with the launch. */
typedef struct turning {
    double frequency[LS_PAIRS_MAX], log_decay[LS_PAIRS_MAX];
    double factor, decay_block, direction;
    ls_position_map map;
    ls_cuda_start first; /* position of the first row */
    int64_t rows, pairs;
    int64_t tables;        /* rows of all sequences; rows itself where begins is NULL */
    const int32_t *begins; /* where sequences began, or NULL */
    const int32_t *places; /* of the rows of all sequences, or NULL */
    const float *learned;  /* [2][pairs] whose sums are the frequencies, or NULL */
    bool decays, inverse;
} turning;

/* Where the row of a table stands: of one sequence's positions, or of all. */
static __device__ __forceinline__ double place_of(const turning &by, int64_t row) {
    if (by.places != NULL) return ls_cuda_map_at(by.map, by.places[row]);
    if (by.begins != NULL) row = row % by.rows - by.begins[row / by.rows];
    return ls_cuda_map_at(by.map, by.first.at() + row);
}

/* Cosine and sine of pair i in a row of the tables. */
static __device__ __forceinline__ float2 turn_at(const turning &by, int64_t row, int64_t i) {
    const double frequency = by.learned == NULL
                                 ? by.frequency[i]
                                 : (double)by.learned[i] + (double)by.learned[by.pairs + i];
    return ls_cuda_turn(place_of(by, row), frequency, by.factor, by.decays,
                        by.direction * by.log_decay[i], by.decay_block, by.inverse);
}

/* Cosines and sines [tables][pairs]. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    turn_kernel(const __grid_constant__ turning by, const ls_cuda_divisor pairs, float *cosines,
                float *sines) {
    uint64_t index = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, i;
    if (index >= (uint64_t)(by.tables * by.pairs)) return;
    int64_t row = (int64_t)ls_cuda_divide(index, pairs, &i);
    const float2 turn = turn_at(by, row, (int64_t)i);
    cosines[index] = turn.x;
    sines[index] = turn.y;
}

/* ---- the pass over x ---- */

template <typename T> struct pass {
    const T *x;
    T *y;
    int64_t x_stride[3], y_stride[3]; /* of sequence, time, head */
    const float *cosines, *sines;
    int64_t pairs;
    int64_t tables;  /* rows of tables from sequence to sequence; 0: all have the same */
    int64_t rotated; /* chunks of a head that are rotated; the others are copied */
    ls_cuda_divisor chunks, heads, rows;
    uint64_t count; /* chunks of all heads */

    void turn(ls_cuda_turns to) {
        cosines = to.cosines;
        sines = to.sines;
    }
};

/* PAIRS pairs of a head. With halves two packs of PAIRS elements, `pairs` apart; else one pack of
 * 2 PAIRS. */
template <int PAIRS, bool HALVES, typename T>
static __device__ __forceinline__ void turn_pairs(const pass<T> &by, const T *from, T *to,
                                                  int64_t row, int64_t i) {
    float c[PAIRS], s[PAIRS];
    ls_cuda_load<PAIRS>(by.cosines + row * by.pairs + i, c);
    ls_cuda_load<PAIRS>(by.sines + row * by.pairs + i, s);
    if constexpr (HALVES) {
        float u[PAIRS], v[PAIRS], a[PAIRS], b[PAIRS];
        ls_cuda_load<PAIRS>(from + i, u);
        ls_cuda_load<PAIRS>(from + by.pairs + i, v);
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            a[k] = u[k] * c[k] - v[k] * s[k];
            b[k] = v[k] * c[k] + u[k] * s[k];
        }
        ls_cuda_store<PAIRS>(to + i, a);
        ls_cuda_store<PAIRS>(to + by.pairs + i, b);
    } else if constexpr (PAIRS == 1) {
        float u = ls_cuda_wide(from[2 * i]), v = ls_cuda_wide(from[2 * i + 1]);
        to[2 * i] = ls_cuda_narrow<T>(u * c[0] - v * s[0]);
        to[2 * i + 1] = ls_cuda_narrow<T>(v * c[0] + u * s[0]);
    } else {
        float u[2 * PAIRS], a[2 * PAIRS];
        ls_cuda_load<2 * PAIRS>(from + 2 * i, u);
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            a[2 * k] = u[2 * k] * c[k] - u[2 * k + 1] * s[k];
            a[2 * k + 1] = u[2 * k + 1] * c[k] + u[2 * k] * s[k];
        }
        ls_cuda_store<2 * PAIRS>(to + 2 * i, a);
    }
}

/* One chunk per thread: PAIRS pairs, or LANES elements behind the pairs. */
template <int LANES, bool HALVES, typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    rotate_kernel(const __grid_constant__ pass<T> by) {
    enum { PAIRS = HALVES || LANES == 1 ? LANES : LANES / 2 };
    uint64_t index = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, chunk, head, row;
    if (index >= by.count) return;
    uint64_t sequence = ls_cuda_divide(
        ls_cuda_divide(ls_cuda_divide(index, by.chunks, &chunk), by.heads, &head), by.rows, &row);
    int64_t b = (int64_t)sequence, t = (int64_t)row, h = (int64_t)head, at = (int64_t)chunk;
    const T *from = by.x + b * by.x_stride[0] + t * by.x_stride[1] + h * by.x_stride[2];
    T *to = by.y + b * by.y_stride[0] + t * by.y_stride[1] + h * by.y_stride[2];
    if (at < by.rotated)
        return turn_pairs<PAIRS, HALVES>(by, from, to, b * by.tables + t, at * PAIRS);
    int64_t place = 2 * by.pairs + (at - by.rotated) * LANES;
    float same[LANES];
    ls_cuda_load<LANES>(from + place, same);
    ls_cuda_store<LANES>(to + place, same);
}

template <typename T>
static bool in_lanes(const pass<T> *by, bool halves, int64_t width, int lanes) {
    bool fits = width % lanes == 0 && ls_cuda_aligned(by->x) && ls_cuda_aligned(by->y) &&
                (halves ? by->pairs : 2 * by->pairs) % lanes == 0;
    for (int i = 0; i < 3; i++)
        fits = fits && by->x_stride[i] % lanes == 0 && by->y_stride[i] % lanes == 0;
    return fits;
}

template <int LANES, bool HALVES, typename T>
static void rotate_launch(const ls_run *run, pass<T> by, int64_t heads_in_all, int64_t width) {
    enum { PAIRS = HALVES || LANES == 1 ? LANES : LANES / 2 };
    by.rotated = by.pairs / PAIRS;
    int64_t chunks = by.rotated + (width - 2 * by.pairs) / LANES;
    by.chunks = ls_cuda_divisor_of(chunks);
    by.count = (uint64_t)(heads_in_all * chunks);
    rotate_kernel<LANES, HALVES><<<ls_cuda_blocks((int64_t)by.count, LS_CUDA_THREADS),
                                   LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(by);
    ls_cuda_launched(run, "rotate");
}

/* Two tensors of as many rows, all of whose elements are rotated: a thread has the same pairs of
 * the same head in both, as far as each has that head. Their tables may be the same. */
template <int LANES, bool HALVES, typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    rotate_two_kernel(const __grid_constant__ pass<T> by, const __grid_constant__ pass<T> other,
                      int64_t heads, int64_t other_heads) {
    enum { PAIRS = HALVES ? LANES : LANES / 2, PACKS = HALVES ? 2 : 1 };
    uint64_t index = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, chunk, head, row;
    if (index >= by.count) return;
    const int64_t b = (int64_t)ls_cuda_divide(
        ls_cuda_divide(ls_cuda_divide(index, by.chunks, &chunk), by.heads, &head), by.rows, &row);
    const int64_t t = (int64_t)row, h = (int64_t)head, i = (int64_t)chunk * PAIRS;
    const int64_t at = HALVES ? i : 2 * i;
    const pass<T> *const both[2] = {&by, &other};
    const bool has[2] = {h < heads, h < other_heads};
    ls_cuda_pack<T, LANES> x[2][PACKS];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const pass<T> &p = *both[k];
        const T *from = p.x + b * p.x_stride[0] + t * p.x_stride[1] + h * p.x_stride[2] + at;
#pragma unroll
        for (int j = 0; j < PACKS; j++)
            if (has[k]) x[k][j] = ls_cuda_take<LANES>(from + j * by.pairs);
    }
    float c[PAIRS], s[PAIRS];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        if (!has[k]) continue;
        const pass<T> &p = *both[k];
        if (k == 0 || !has[0] || p.cosines != by.cosines) {
            ls_cuda_load<PAIRS>(p.cosines + t * by.pairs + i, c);
            ls_cuda_load<PAIRS>(p.sines + t * by.pairs + i, s);
        }
        T *to = p.y + b * p.y_stride[0] + t * p.y_stride[1] + h * p.y_stride[2] + at;
        float in[PACKS][LANES], out[PACKS][LANES];
#pragma unroll
        for (int j = 0; j < PACKS; j++) x[k][j].wide(in[j]);
#pragma unroll
        for (int j = 0; j < PAIRS; j++) {
            const float u = HALVES ? in[0][j] : in[0][2 * j];
            const float v = HALVES ? in[PACKS - 1][j] : in[0][2 * j + 1];
            (HALVES ? out[0][j] : out[0][2 * j]) = u * c[j] - v * s[j];
            (HALVES ? out[PACKS - 1][j] : out[0][2 * j + 1]) = v * c[j] + u * s[j];
        }
#pragma unroll
        for (int j = 0; j < PACKS; j++) ls_cuda_store<LANES>(to + j * by.pairs, out[j]);
    }
}

/* A few rows, without tables: a thread has a pair, or an element behind the pairs. Each computes
 * its own cosine, so that nothing is waited for. */
template <bool HALVES, typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    rotate_few_kernel(const __grid_constant__ turning turn, const __grid_constant__ pass<T> by) {
    uint64_t index = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, chunk, head, row;
    ls_cuda_after();
    if (index >= by.count) return;
    const int64_t b = (int64_t)ls_cuda_divide(
        ls_cuda_divide(ls_cuda_divide(index, by.chunks, &chunk), by.heads, &head), by.rows, &row);
    const int64_t t = (int64_t)row, h = (int64_t)head, i = (int64_t)chunk;
    const T *from = by.x + b * by.x_stride[0] + t * by.x_stride[1] + h * by.x_stride[2];
    T *to = by.y + b * by.y_stride[0] + t * by.y_stride[1] + h * by.y_stride[2];
    if (i >= by.pairs) {
        to[by.pairs + i] = from[by.pairs + i];
        return;
    }
    const int64_t near = HALVES ? i : 2 * i, far = HALVES ? by.pairs + i : 2 * i + 1;
    const float2 angle = turn_at(turn, b * by.tables + t, i);
    const float u = ls_cuda_wide(from[near]), v = ls_cuda_wide(from[far]);
    to[near] = ls_cuda_narrow<T>(u * angle.x - v * angle.y);
    to[far] = ls_cuda_narrow<T>(v * angle.x + u * angle.y);
}

template <typename T>
static void rotate_few(const ls_run *run, const turning *turn, pass<T> by, bool halves,
                       int64_t heads_in_all, int64_t width) {
    const int64_t chunks = width - by.pairs;
    by.chunks = ls_cuda_divisor_of(chunks);
    by.count = (uint64_t)(heads_in_all * chunks);
    const unsigned blocks = ls_cuda_blocks((int64_t)by.count, LS_CUDA_THREADS);
    if (halves)
        ls_cuda_follow(run, "rotate", rotate_few_kernel<true, T>, blocks, LS_CUDA_THREADS, *turn,
                       by);
    else
        ls_cuda_follow(run, "rotate", rotate_few_kernel<false, T>, blocks, LS_CUDA_THREADS, *turn,
                       by);
}

/* ---- one run of the node ---- */

enum { KEPT_BYTES_MOST = 4 << 20 };
enum { FEW = 1 << 14 }; /* elements: below it another launch takes longer than many cosines */

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    const ls_rotate_attributes *about = (const ls_rotate_attributes *)node->attributes;
    const ls_tensor *x = node->in[0];
    const bool own = node->in[1] != NULL || node->in[2] != NULL;
    const int64_t tables = (own ? x->dim[0] : 1) * x->dim[1];
    return 2 * (size_t)(tables * about->rotary.pairs) * sizeof(float);
}

/* Where rows of x begin: those of a chunk are at the run's start. */
static ls_cuda_start first_of(const ls_run *run, const ls_tensor *x) {
    if (x->port < 0) return ls_cuda_start_of(run);
    return {NULL, ls_cache_extent(run, x).first};
}

static turning turning_of(const ls_run *run, const ls_node *node, ls_extent rows, int64_t tables) {
    const ls_rotate_attributes *about = (const ls_rotate_attributes *)node->attributes;
    const ls_rotary *rotary = &about->rotary;
    turning by = {};
    memcpy(by.frequency, rotary->frequency, sizeof by.frequency);
    memcpy(by.log_decay, rotary->xpos.log_decay, sizeof by.log_decay);
    by.factor = rotary->factor;
    if (rotary->dynamic != NULL)
        rotary->dynamic(rotary, run->start + about->chunk, by.frequency, &by.factor);
    by.decays = rotary->xpos.pairs > 0 && about->as != LS_ROTATE_ALONE;
    by.direction = about->as == LS_ROTATE_KEY ? 1 : -1;
    by.decay_block = (double)rotary->xpos.block;
    by.map = about->map;
    by.inverse = about->inverse;
    by.first = first_of(run, node->in[0]);
    by.rows = rows.count;
    by.pairs = rotary->pairs;
    by.tables = tables;
    if (node->in[1] != NULL) by.begins = (const int32_t *)ls_data(node->in[1]);
    if (node->in[2] != NULL) by.places = (const int32_t *)ls_data(node->in[2]);
    if (node->in[3] != NULL) by.learned = (const float *)ls_data(node->in[3]);
    return by;
}

static void fill_tables(const ls_run *run, const turning *by, float *cosines, float *sines) {
    turn_kernel<<<ls_cuda_blocks(by->tables * by->pairs, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                  ls_cuda_of(run)->stream>>>(*by, ls_cuda_divisor_of(by->pairs), cosines, sines);
    ls_cuda_launched(run, "rotate");
}

size_t ls_cuda_turns_bytes(const ls_node *node) {
    return ls_round_up(workspace(node, 1), 256);
}

bool ls_cuda_turns_fit(const ls_node *node, int64_t width) {
    const ls_rotate_attributes *about = (const ls_rotate_attributes *)node->attributes;
    const ls_tensor *x = node->in[0];
    return node->in[1] == NULL && node->in[2] == NULL && node->in[3] == NULL && x->port < 0 &&
           about->rotary.dynamic == NULL && 2 * about->rotary.pairs == width && x->dim[3] == width;
}

/* What tables of whole sequences that start here are made of; compared as bytes, without gaps. */
typedef struct turns_key {
    double frequency[LS_PAIRS_MAX], log_decay[LS_PAIRS_MAX];
    double factor, decay_block, direction, map_a, map_b;
    int64_t map, rows, pairs, inverse;
} turns_key;

static turns_key key_of(const ls_node *node) {
    const ls_rotate_attributes *about = (const ls_rotate_attributes *)node->attributes;
    const ls_rotary *rotary = &about->rotary;
    const bool decays = rotary->xpos.pairs > 0 && about->as != LS_ROTATE_ALONE;
    turns_key key;
    memset(&key, 0, sizeof key);
    for (int64_t i = 0; i < rotary->pairs; i++) {
        key.frequency[i] = rotary->frequency[i];
        if (decays) key.log_decay[i] = rotary->xpos.log_decay[i];
    }
    key.factor = rotary->factor;
    if (decays) key.decay_block = (double)rotary->xpos.block;
    if (decays) key.direction = about->as == LS_ROTATE_KEY ? 1 : -1;
    key.map = about->map.kind, key.map_a = about->map.a, key.map_b = about->map.b;
    key.rows = node->in[0]->dim[1], key.pairs = rotary->pairs, key.inverse = about->inverse;
    return key;
}

bool ls_cuda_turns_same(const ls_node *a, const ls_node *b) {
    const turns_key one = key_of(a), other = key_of(b);
    return memcmp(&one, &other, sizeof one) == 0;
}

ls_cuda_turns ls_cuda_turns_fill(const ls_run *run, const ls_node *node, void *tables) {
    const ls_rotate_attributes *about = (const ls_rotate_attributes *)node->attributes;
    const ls_extent rows = ls_cache_extent(run, node->in[0]);
    const turning turn = turning_of(run, node, rows, rows.count);
    /* sequences that start here have the same tables in every layer and step */
    const turns_key key = key_of(node);
    bool fresh = true;
    void *kept = NULL;
    if (run->state == NULL && run->start == 0 && ls_cuda_turns_bytes(node) <= KEPT_BYTES_MOST)
        kept = ls_cuda_keep(ls_cuda_of(run), &key, sizeof key, ls_cuda_turns_bytes(node), &fresh);
    float *cosines = (float *)(kept != NULL ? kept : tables);
    float *sines = cosines + rows.count * turn.pairs;
    if (kept == NULL || fresh) fill_tables(run, &turn, cosines, sines);
    return {cosines, sines, about->rotary.halves};
}

/* All but the tables. */
template <typename T> static pass<T> pass_of(const ls_node *node, int64_t rows) {
    const ls_rotate_attributes *about = (const ls_rotate_attributes *)node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    pass<T> by = {};
    by.x = (const T *)ls_data(x);
    by.y = (T *)ls_data(y);
    memcpy(by.x_stride, x->stride, sizeof by.x_stride);
    memcpy(by.y_stride, y->stride, sizeof by.y_stride);
    by.pairs = about->rotary.pairs;
    by.heads = ls_cuda_divisor_of(x->dim[2]);
    by.rows = ls_cuda_divisor_of(rows);
    return by;
}

template <typename T> static void rotate(const ls_run *run, const ls_node *node) {
    enum { LANES = ls_cuda_lanes<T>::count };
    const ls_rotate_attributes *about = (const ls_rotate_attributes *)node->attributes;
    const ls_tensor *x = node->in[0];
    const bool own = node->in[1] != NULL || node->in[2] != NULL;
    ls_extent rows = ls_cache_extent(run, x);
    if (rows.count == 0) return;
    if (x->port < 0 && about->rotary.dynamic == NULL) ls_cuda_steady(run);
    const int64_t tables = own ? x->dim[0] * rows.count : rows.count;
    pass<T> by = pass_of<T>(node, rows.count);
    by.tables = own ? rows.count : 0;
    const int64_t width = x->dim[3], heads_in_all = x->dim[0] * rows.count * x->dim[2];
    const turning turn = turning_of(run, node, rows, tables);
    if (by.pairs > 0 && heads_in_all * width <= FEW)
        return rotate_few(run, &turn, by, about->rotary.halves, heads_in_all, width);
    if (ls_cuda_turns_fit(node, width)) {
        by.turn(ls_cuda_turns_fill(run, node, run->workspace));
    } else if (by.pairs > 0) {
        float *cosines = (float *)run->workspace, *sines = cosines + tables * by.pairs;
        fill_tables(run, &turn, cosines, sines);
        by.turn({cosines, sines});
    }
    bool halves = about->rotary.halves, wide = in_lanes(&by, halves, width, LANES);
    if (halves && wide)
        rotate_launch<LANES, true>(run, by, heads_in_all, width);
    else if (halves)
        rotate_launch<1, true>(run, by, heads_in_all, width);
    else if (wide)
        rotate_launch<LANES, false>(run, by, heads_in_all, width);
    else
        rotate_launch<1, false>(run, by, heads_in_all, width);
}

/* ---- two side by side: see engine/join.c ---- */

template <int LANES, bool HALVES>
static void launch_two(const ls_run *run, pass<ls_cuda_bf16> by, pass<ls_cuda_bf16> other,
                       const ls_tensor *x, const ls_tensor *other_x) {
    const int64_t heads = x->dim[2], other_heads = other_x->dim[2];
    const int64_t most = ls_max(heads, other_heads), chunks = x->dim[3] / (HALVES ? 2 : 1) / LANES;
    by.chunks = ls_cuda_divisor_of(chunks);
    by.heads = ls_cuda_divisor_of(most);
    by.count = (uint64_t)(x->dim[0] * x->dim[1] * most * chunks);
    rotate_two_kernel<LANES, HALVES>
        <<<ls_cuda_blocks((int64_t)by.count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
           ls_cuda_of(run)->stream>>>(by, other, heads, other_heads);
    ls_cuda_launched(run, "rotate");
}

/* Whole sequences in one pass; else one after the other. */
static void rotate_two(const ls_run *run, const ls_node *node) {
    enum { LANES = ls_cuda_lanes<ls_cuda_bf16>::count };
    const ls_node *a = &node->parts[0], *b = &node->parts[1];
    const ls_tensor *x = a->in[0], *other_x = b->in[0];
    const bool halves = ((const ls_rotate_attributes *)a->attributes)->rotary.halves;
    const int64_t rows = x->dim[1];
    const bool same = ls_cuda_turns_same(a, b);
    char *tables = (char *)run->workspace, *others = tables + (same ? 0 : ls_cuda_turns_bytes(a));
    pass<ls_cuda_bf16> by = pass_of<ls_cuda_bf16>(a, rows), other = pass_of<ls_cuda_bf16>(b, rows);
    if (ls_cuda_turns_fit(a, x->dim[3]) && ls_cuda_turns_fit(b, x->dim[3]) &&
        ((const ls_rotate_attributes *)b->attributes)->rotary.halves == halves &&
        x->dim[0] == other_x->dim[0] && x->dim[1] == other_x->dim[1] && ls_count(x) > FEW &&
        in_lanes(&by, halves, x->dim[3], LANES) && in_lanes(&other, halves, x->dim[3], LANES)) {
        by.turn(ls_cuda_turns_fill(run, a, tables));
        other.turn(ls_cuda_turns_fill(run, b, others));
        if (halves)
            launch_two<LANES, true>(run, by, other, x, other_x);
        else
            launch_two<LANES, false>(run, by, other, x, other_x);
        return;
    }
    rotate<ls_cuda_bf16>(run, a);
    rotate<ls_cuda_bf16>(run, b);
}

static size_t two_workspace(const ls_node *node, int threads) {
    (void)threads;
    return ls_cuda_turns_bytes(&node->parts[0]) + ls_cuda_turns_bytes(&node->parts[1]);
}

/* ---- the gradient of frequencies: rows are cut in fixed parts, whose sums are added ---- */

enum { MOMENT_PARTS = 256 };

template <typename T> struct moments {
    const T *x, *dx;
    int64_t x_stride[3], dx_stride[3];
    int64_t heads, step, apart, all_rows;
    double *sums; /* [MOMENT_PARTS][pairs] */
};

/* Part blockIdx.x of the rows, a thread for each pair. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    moments_kernel(const __grid_constant__ turning by, const __grid_constant__ moments<T> of) {
    const int64_t from = of.all_rows * blockIdx.x / MOMENT_PARTS;
    const int64_t end = of.all_rows * (blockIdx.x + 1) / MOMENT_PARTS;
    for (int64_t i = threadIdx.x; i < by.pairs; i += LS_CUDA_THREADS) {
        const int64_t u = i * of.step, v = u + of.apart;
        double sum = 0;
        for (int64_t row = from; row < end; row++) {
            const int64_t b = row / by.rows, t = row % by.rows;
            const T *x = of.x + b * of.x_stride[0] + t * of.x_stride[1];
            const T *dx = of.dx + b * of.dx_stride[0] + t * of.dx_stride[1];
            float cross = 0;
            for (int64_t h = 0; h < of.heads; h++, x += of.x_stride[2], dx += of.dx_stride[2])
                cross += ls_cuda_wide(x[u]) * ls_cuda_wide(dx[v]) -
                         ls_cuda_wide(x[v]) * ls_cuda_wide(dx[u]);
            sum += place_of(by, by.tables == by.rows ? t : row) * (double)cross;
        }
        of.sums[blockIdx.x * by.pairs + i] = sum;
    }
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    moments_sum_kernel(const double *sums, int64_t pairs, float *out) {
    for (int64_t i = threadIdx.x; i < pairs; i += LS_CUDA_THREADS) {
        double all = 0;
        for (int part = 0; part < MOMENT_PARTS; part++) all += sums[part * pairs + i];
        out[i] = (float)all;
        out[pairs + i] = 0;
    }
}

static size_t moments_workspace(const ls_node *node, int threads) {
    (void)threads;
    const ls_rotate_attributes *about = (const ls_rotate_attributes *)node->attributes;
    return MOMENT_PARTS * (size_t)about->rotary.pairs * sizeof(double);
}

template <typename T> static void rotate_moments(const ls_run *run, const ls_node *node) {
    const ls_rotate_attributes *about = (const ls_rotate_attributes *)node->attributes;
    const ls_tensor *x = node->in[0], *dx = node->in[1];
    const ls_extent rows = ls_cache_extent(run, x);
    turning by = {};
    by.map = about->map;
    by.first = first_of(run, x);
    by.rows = by.tables = rows.count;
    by.pairs = about->rotary.pairs;
    if (node->in[2] != NULL) by.begins = (const int32_t *)ls_data(node->in[2]);
    if (node->in[3] != NULL) by.places = (const int32_t *)ls_data(node->in[3]);
    if (by.begins != NULL || by.places != NULL) by.tables = x->dim[0] * rows.count;
    moments<T> of = {};
    of.x = (const T *)ls_data(x);
    of.dx = (const T *)ls_data(dx);
    memcpy(of.x_stride, x->stride, sizeof of.x_stride);
    memcpy(of.dx_stride, dx->stride, sizeof of.dx_stride);
    of.heads = x->dim[2];
    of.step = about->rotary.halves ? 1 : 2;
    of.apart = about->rotary.halves ? by.pairs : 1;
    of.all_rows = x->dim[0] * rows.count;
    of.sums = (double *)run->workspace;
    moments_kernel<<<MOMENT_PARTS, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(by, of);
    moments_sum_kernel<<<1, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        of.sums, by.pairs, (float *)ls_data(node->out[0]));
    ls_cuda_launched(run, "rotate_moments");
}

LS_CUDA_DECLARE_TABLE(rotate);
const ls_kernel LS_CUDA_TABLE(rotate)[] = {
    {"rotate", {NULL, rotate<float>, rotate<ls_cuda_bf16>}, workspace},
    {"rotate_moments",
     {NULL, rotate_moments<float>, rotate_moments<ls_cuda_bf16>},
     moments_workspace},
    {"rotate+rotate", {NULL, NULL, rotate_two}, two_workspace},
    {},
};
