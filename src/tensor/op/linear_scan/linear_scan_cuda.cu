/* The linear recurrence of retention and linear attention: see linear_scan.cuh for how the result
 * and the gradients are walks of one kind. */
#include "tensor/cuda/rows.cuh"
#include "tensor/op/linear_scan/linear_scan.cuh"

extern "C" {
#include "tensor/op/linear_scan/linear_scan.h"
}

static ls_linear_rows rows_of(const ls_tensor *tensor, int64_t width) {
    ls_linear_rows rows = {};
    rows.width = (int)width;
    if (tensor == NULL) return rows;
    rows.data = ls_data(tensor);
    rows.batch = tensor->stride[0];
    rows.row = tensor->stride[1];
    rows.head = tensor->stride[2];
    return rows;
}

/* Rows of W: where sums are wanted the last column is `ends`, or `end` where it is absent. */
static ls_linear_rows wide_rows_of(const ls_node *node, const ls_tensor *tensor,
                                   const ls_tensor *ends, float end) {
    const ls_linear_scan_attributes *about = (const ls_linear_scan_attributes *)node->attributes;
    ls_linear_rows rows = rows_of(tensor, node->in[LS_LINEAR_SCAN_V]->dim[3]);
    rows.ended = about->sums;
    rows.end = end;
    if (ends == NULL) return rows;
    rows.ends = (float *)ls_data(ends);
    rows.ends_batch = ends->stride[0];
    rows.ends_row = ends->stride[1];
    rows.ends_head = ends->stride[2];
    return rows;
}

/* What all walks have; transposed: over the state's columns, not its rows. */
static ls_linear_walk walk_of(const ls_run *run, const ls_node *node, bool transposed,
                              bool backwards) {
    const ls_linear_scan_attributes *about = (const ls_linear_scan_attributes *)node->attributes;
    const ls_tensor *v = node->in[LS_LINEAR_SCAN_V];
    const int K = (int)node->in[LS_LINEAR_SCAN_K]->dim[3], W = (int)v->dim[3] + about->sums;
    ls_linear_walk walk = {};
    walk.T = v->dim[1];
    walk.start = ls_cuda_start_of(run);
    walk.B = (int)v->dim[0];
    walk.H = (int)v->dim[2];
    walk.depth = transposed ? W : K;
    walk.width = transposed ? K : W;
    walk.backwards = backwards;
    walk.strips = 1;
    walk.strip_rows = walk.T;
    if (about->rooted) walk.roots = backwards ? LS_LINEAR_SOURCE_ROOTS : LS_LINEAR_QUERY_ROOTS;
    walk.log_decay = ls_cuda_floats(node->in[LS_LINEAR_SCAN_DECAY]);
    walk.feature = ls_cuda_floats(node->in[LS_LINEAR_SCAN_FEATURE_DECAY]);
    const ls_tensor *begins = node->in[LS_LINEAR_SCAN_BEGINS];
    if (begins != NULL) walk.begins = (const int32_t *)ls_data(begins);
    walk.feature_along_depth = !transposed;
    walk.along_depth = transposed ? 1 : W;
    walk.along_width = transposed ? W : 1;
    return walk;
}

/* A walk by the way that takes it, in parts of the depth. */
template <typename T>
static void run_walk(const ls_run *run, const ls_node *node, ls_linear_walk walk) {
    const ls_cuda *cuda = ls_cuda_of(run);
    const bool tiles = sizeof(T) == 2 && ls_linear_tiles_fit(cuda, &walk);
    const int most = tiles ? ls_linear_tiles_depth(cuda) : ls_linear_plain_depth(cuda);
    if (walk.B == 0 || walk.H == 0) return;
    for (walk.first = 0; walk.first < walk.depth; walk.first += most) {
        walk.count = (int)ls_min(most, walk.depth - walk.first);
        walk.add = walk.first > 0;
        if (tiles)
            ls_linear_tiles(run, &walk, node->op->name);
        else
            ls_linear_plain<T>(run, &walk, node->op->name);
    }
}

/* ---- strips ---- */

enum {
    FULL = 256,        /* blocks that keep a large device busy */
    STRIP_LEAST = 256, /* rows: what a strip costs more is little beside them */
    STRIP_STEP = 64,   /* whole chunks of either way */
    TILE_COLUMNS = 128,
};

typedef struct strips {
    int count;
    int64_t rows, state; /* of each strip; floats of all states at one time */
} strips;

/* By the shape alone, so that the bits do not depend on the device. */
static strips strips_of(const ls_node *node) {
    const ls_tensor *v = node->in[LS_LINEAR_SCAN_V], *before = node->in[LS_LINEAR_SCAN_BEFORE];
    const int64_t T = v->dim[1], widest = ls_max(before->dim[2], before->dim[3]);
    const int64_t blocks = ls_max(1, v->dim[0] * v->dim[2] * ls_ceil_div(widest, TILE_COLUMNS));
    const int64_t count = ls_min(FULL / blocks, T / STRIP_LEAST);
    strips cut = {1, T, ls_count(before)};
    if (count < 2) return cut;
    cut.rows = ls_round_up(ls_ceil_div(T, count), STRIP_STEP);
    cut.count = (int)ls_ceil_div(T, cut.rows);
    return cut;
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    const strips cut = strips_of(node);
    return cut.count < 2 ? 0 : (size_t)(cut.count * cut.state) * sizeof(float);
}

/* What each strip added becomes the state before it: a thread has an element of all of them. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    join_strips(const ls_linear_walk walk, const strips cut, int columns, float *states) {
    enum { AT_ONCE = 8 };
    const int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= cut.state) return;
    const int64_t each = (int64_t)walk.depth * walk.width;
    const float log_decay = walk.log_decay[i / each % walk.H];
    const float feature = walk.feature == NULL ? 0 : walk.feature[i % each / columns];
    const int rows = (int)cut.rows, last = (int)(walk.T - (cut.count - 1) * cut.rows);
    const float fade = ls_linear_power(log_decay, rows) * ls_linear_power(feature, rows);
    const float fade_last = ls_linear_power(log_decay, last) * ls_linear_power(feature, last);
    float sum = walk.before == NULL ? 0 : walk.before[i];
    for (int strip = 0; strip < cut.count; strip += AT_ONCE) {
        float added[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            added[u] = strip + u < cut.count ? states[(strip + u) * cut.state + i] : 0;
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            if (strip + u >= cut.count) break;
            states[(strip + u) * cut.state + i] = sum;
            sum = (strip + u + 1 < cut.count ? fade : fade_last) * sum + added[u];
        }
    }
    if (walk.after != NULL) walk.after[i] = sum;
}

/* The states before the strips of a walk, in the workspace, and the one after the last. */
template <typename T>
static void find_states(const ls_run *run, const ls_node *node, const strips &cut,
                        const ls_linear_walk &whole) {
    ls_linear_walk walk = whole;
    if (cut.count < 2 || walk.B == 0 || walk.H == 0) return;
    walk.strips = cut.count;
    walk.strip_rows = cut.rows;
    walk.apart = cut.state;
    walk.states_only = true;
    walk.before = NULL;
    walk.after = (float *)run->workspace;
    run_walk<T>(run, node, walk);
    const int columns = (int)node->in[LS_LINEAR_SCAN_BEFORE]->dim[3];
    join_strips<<<ls_cuda_blocks(cut.state, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                  ls_cuda_of(run)->stream>>>(whole, cut, columns, (float *)run->workspace);
    ls_cuda_launched(run, node->op->name);
}

/* The results of a walk; those of strips begin with the states that were found. */
template <typename T>
static void find_results(const ls_run *run, const ls_node *node, const strips &cut,
                         ls_linear_walk walk) {
    if (cut.count > 1) {
        walk.strips = cut.count;
        walk.strip_rows = cut.rows;
        walk.apart = cut.state;
        walk.before = (const float *)run->workspace;
        walk.after = NULL;
    }
    run_walk<T>(run, node, walk);
}

/* ---- both directions ---- */

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    ls_cuda_steady(run);
    const ls_tensor *q = node->in[LS_LINEAR_SCAN_Q], *k = node->in[LS_LINEAR_SCAN_K];
    const strips cut = strips_of(node);
    ls_linear_walk walk = walk_of(run, node, false, false);
    walk.query = rows_of(q, q->dim[3]);
    walk.key = rows_of(k, k->dim[3]);
    walk.value = wide_rows_of(node, node->in[LS_LINEAR_SCAN_V], NULL, 1);
    walk.out = wide_rows_of(node, node->out[LS_LINEAR_SCAN_Y], node->out[LS_LINEAR_SCAN_SUMS], 0);
    walk.before = ls_cuda_floats(node->in[LS_LINEAR_SCAN_BEFORE]);
    walk.after = ls_cuda_floats(node->out[LS_LINEAR_SCAN_AFTER]);
    find_states<T>(run, node, cut, walk);
    find_results<T>(run, node, cut, walk);
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    const int64_t K = node->in[LS_LINEAR_SCAN_K]->dim[3];
    const strips cut = strips_of(node);
    const ls_linear_rows q = rows_of(node->in[LS_LINEAR_SCAN_Q], K);
    const ls_linear_rows k = rows_of(node->in[LS_LINEAR_SCAN_K], K);
    const ls_linear_rows v = wide_rows_of(node, node->in[LS_LINEAR_SCAN_V], NULL, 1);
    const ls_linear_rows dy =
        wide_rows_of(node, node->in[LS_LINEAR_SCAN_DY], node->in[LS_LINEAR_SCAN_DSUMS], 0);
    if (node->out[LS_LINEAR_SCAN_DQ] != NULL) {
        ls_linear_walk walk = walk_of(run, node, true, false);
        walk.query = dy;
        walk.key = v;
        walk.value = k;
        walk.out = rows_of(node->out[LS_LINEAR_SCAN_DQ], K);
        walk.before = ls_cuda_floats(node->in[LS_LINEAR_SCAN_BEFORE]);
        find_states<T>(run, node, cut, walk);
        find_results<T>(run, node, cut, walk);
    }
    ls_linear_walk walk = walk_of(run, node, false, true);
    walk.query = k;
    walk.key = q;
    walk.value = dy;
    walk.out = wide_rows_of(node, node->out[LS_LINEAR_SCAN_DV], NULL, 0);
    walk.before = ls_cuda_floats(node->in[LS_LINEAR_SCAN_DAFTER]);
    walk.after = ls_cuda_floats(node->out[LS_LINEAR_SCAN_DBEFORE]);
    find_states<T>(run, node, cut, walk); /* also those of the keys' gradient: the same, turned */
    find_results<T>(run, node, cut, walk);
    if (node->out[LS_LINEAR_SCAN_DK] == NULL) return;
    walk = walk_of(run, node, true, true);
    walk.query = v;
    walk.key = dy;
    walk.value = q;
    walk.out = rows_of(node->out[LS_LINEAR_SCAN_DK], K);
    walk.before = ls_cuda_floats(node->in[LS_LINEAR_SCAN_DAFTER]);
    find_results<T>(run, node, cut, walk);
}

LS_CUDA_DECLARE_TABLE(linear_scan);
const ls_kernel LS_CUDA_TABLE(linear_scan)[] = {
    {"linear_scan", {NULL, forward<float>, forward<ls_cuda_bf16>}, workspace},
    {"linear_scan_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, workspace},
    {},
};
