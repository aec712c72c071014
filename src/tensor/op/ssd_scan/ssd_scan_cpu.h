/* What the CPU kernels of ssd_scan share: operands as plain values, and the parts of a chunk that
 * both ways need. */
#ifndef LS_TENSOR_OP_SSD_SCAN_CPU_H
#define LS_TENSOR_OP_SSD_SCAN_CPU_H

#include <math.h>
#include <omp.h>

#include "tensor/cpu/gemm.h"
#include "tensor/cpu/vector.h"
#include "tensor/op/ssd_scan/ssd_scan.h"

/* [batch,T,H or G,width] at any strides of its first three axes. */
typedef struct rows {
    char *data;
    int64_t batch, row, head, size;
} rows;

static inline rows rows_of(const ls_tensor *tensor) {
    return (rows){ls_data(tensor), tensor->stride[0], tensor->stride[1], tensor->stride[2],
                  (int64_t)ls_dtype_size(tensor->type)};
}

static inline void *row_at(rows x, int64_t b, int64_t t, int64_t h) {
    return x.data + (b * x.batch + t * x.row + h * x.head) * x.size;
}

typedef struct scan {
    int64_t batch, T, H, G, P, N, kept; /* kept: states of a sequence */
    double dt_min, dt_max;
    bool wide_D; /* a D for each channel, not for each head */
    rows x, dt, B, C;
    const void *A_log, *D, *bias, *before; /* D and bias may be NULL */
} scan;

/* What is known before the tensors have their places. */
static inline scan shape_of(const ls_node *node) {
    const ls_ssd_attributes *about = node->attributes;
    const ls_tensor *x = node->in[LS_SSD_X], *D = node->in[LS_SSD_D];
    return (scan){
        .batch = x->dim[0],
        .T = x->dim[1],
        .H = x->dim[2],
        .G = node->in[LS_SSD_B]->dim[2],
        .P = x->dim[3],
        .N = node->in[LS_SSD_B]->dim[3],
        .kept = ls_ceil_div(x->dim[1], LS_SSD_KEPT),
        .dt_min = about->dt_min,
        .dt_max = about->dt_max,
        .wide_D = D != NULL && ls_count(D) != x->dim[2],
    };
}

static inline scan scan_of(const ls_node *node) {
    scan s = shape_of(node);
    s.x = rows_of(node->in[LS_SSD_X]);
    s.dt = rows_of(node->in[LS_SSD_DT]);
    s.B = rows_of(node->in[LS_SSD_B]);
    s.C = rows_of(node->in[LS_SSD_C]);
    s.A_log = ls_data(node->in[LS_SSD_A_LOG]);
    s.D = ls_data_or_null(node->in[LS_SSD_D]);
    s.bias = ls_data_or_null(node->in[LS_SSD_BIAS]);
    s.before = ls_data(node->in[LS_SSD_BEFORE]);
    return s;
}

typedef struct gradients {
    rows dy, dx, ddt, dB, dC;
    const void *starts, *dafter; /* the last may be NULL */
    void *dbefore, *dA_log, *dD, *dbias;
} gradients;

static inline void *gradient_of(const ls_run *run, const ls_tensor *parameter) {
    return parameter == NULL ? NULL : ls_param_gradient(run, parameter);
}

static inline gradients gradients_of(const ls_run *run, const ls_node *node) {
    return (gradients){
        .dy = rows_of(node->in[LS_SSD_DY]),
        .dx = rows_of(node->out[LS_SSD_DX]),
        .ddt = rows_of(node->out[LS_SSD_DDT]),
        .dB = rows_of(node->out[LS_SSD_DB]),
        .dC = rows_of(node->out[LS_SSD_DC]),
        .starts = ls_data(node->in[LS_SSD_STARTS]),
        .dafter = ls_data_or_null(node->in[LS_SSD_DAFTER]),
        .dbefore = ls_data_or_null(node->out[LS_SSD_DBEFORE]),
        .dA_log = gradient_of(run, node->in[LS_SSD_A_LOG]),
        .dD = gradient_of(run, node->in[LS_SSD_D]),
        .dbias = gradient_of(run, node->in[LS_SSD_BIAS]),
    };
}

#define ls_ssd_forward_f64 LS_ISA_SYMBOL(ls__ssd_forward_f64)
#define ls_ssd_backward_f64 LS_ISA_SYMBOL(ls__ssd_backward_f64)
#define ls_ssd_reference_workspace LS_ISA_SYMBOL(ls__ssd_reference_workspace)
void ls_ssd_forward_f64(const ls_run *run, const ls_node *node);
void ls_ssd_backward_f64(const ls_run *run, const ls_node *node);
size_t ls_ssd_reference_workspace(const ls_node *node, int threads);

#define ls_ssd_backward_f32 LS_ISA_SYMBOL(ls__ssd_backward_f32)
#define ls_ssd_backward_bf16 LS_ISA_SYMBOL(ls__ssd_backward_bf16)
#define ls_ssd_backward_workspace LS_ISA_SYMBOL(ls__ssd_backward_workspace)
void ls_ssd_backward_f32(const ls_run *run, const ls_node *node);
void ls_ssd_backward_bf16(const ls_run *run, const ls_node *node);
size_t ls_ssd_backward_workspace(const ls_node *node, int threads);

/* ---- f32 and bf16 ----
 *
 * In a chunk of n rows let c_i be the sum of d A over the rows up to i, and
 *   E_i = exp(c_i),  R_j = exp(c_n - c_j),  L_ij = exp(c_i - c_j) for j <= i, else 0
 * where no exponent is above 0. Then, with the scores s_ij = C_i . B_j that a group's heads share,
 *   y_i = E_i C_i S^T + sum_j L_ij s_ij d_j x_j + D x_i
 *   S'  = exp(c_n) S + sum_j R_j d_j x_j B_j^T
 * A piece of work is a sequence and a few heads of one group: what reads or writes the state is one
 * product for all of them, as wide as their channels side by side.
 *
 * Back, with Z the gradient of S' and w_ij = dy_i . x_j:
 *   dC_i = sum_heads E_i dy_i S + sum_j ds_ij B_j,   dB_j = sum_heads R_j d_j x_j Z + sum_i ds_ij
 * C_i ds_ij = sum_heads L_ij d_j w_ij,   dS = exp(c_n) Z + sum_i E_i dy_i C_i^T dx_j = d_j (R_j Z
 * B_j + sum_i L_ij s_ij dy_i) + D dy_j The decay of row t lies between all rows before it and all
 * rows from it on, so that the gradient of d_t A is sum_{j<t<=i} L_ij s_ij d_j w_ij + sum_{i>=t}
 * E_i dy_i . S C_i + sum_{j<t} R_j d_j x_j . Z B_j
 *   + exp(c_n) Z . S
 * of which nothing cancels. */

enum {
    CHUNK = LS_SSD_CHUNK,
    FEW = 8,         /* fewer rows than this go one by one */
    SMALL = 1 << 14, /* elements that one thread is done with before another has woken */
    COLUMNS = 256,   /* channels of a piece, unless a head has more */
    PARTS = LS_SSD_KEPT / CHUNK,
};
static const float least = -1000; /* of d A: its exponential is 0, and sums of it stay exact */
static const float log2_e = 1.44269504088896341f;

/* Heads of a piece: as many as fit COLUMNS, within a group. */
typedef struct pieces {
    int64_t heads, blocks; /* of a piece at most; pieces of a group */
} pieces;

static inline pieces pieces_of(const scan *s) {
    const int64_t group = s->H / s->G;
    const int64_t heads = ls_min(ls_max(COLUMNS / s->P, 1), group);
    return (pieces){heads, ls_ceil_div(group, heads)};
}

/* Where a piece is. */
typedef struct place {
    int64_t b, g, block, h, heads, W; /* its first head, their number and all their channels */
} place;

static inline place place_of(const scan *s, pieces split, int64_t piece) {
    const int64_t group = s->H / s->G;
    place at = {.b = piece / split.blocks / s->G,
                .g = piece / split.blocks % s->G,
                .block = piece % split.blocks};
    at.h = at.g * group + at.block * split.heads;
    at.heads = ls_min(split.heads, group - at.block * split.heads);
    at.W = at.heads * s->P;
    return at;
}

/* Steps and decays of a head over a chunk. */
typedef struct steps {
    float step[CHUNK], slope[CHUNK];  /* d, and its derivative by dt */
    float high[CHUNK], low[CHUNK];    /* c / ln 2 in two parts, so that differences are exact */
    float enter[CHUNK], leave[CHUNK]; /* E, R */
    float whole, A;
} steps;

/* What a thread works with. `typed` buffers are of the compute type: operands of products. */
typedef struct tiles {
    void *weights, *faded, *lifted; /* typed [CHUNK,CHUNK], [CHUNK,W], [CHUNK,W] */
    void *narrow;                   /* typed [W,N]: a state as an operand */
    float *scores, *out;            /* [CHUNK,CHUNK], [CHUNK,W] */
    void *product;                  /* for ls_gemm */
    /* of the gradient: */
    float *dscores, *pairs; /* [CHUNK,CHUNK]: ds; w */
    float *read, *through;  /* [CHUNK,W]: C S^T; B Z^T */
    float *states, *Z;      /* [PARTS,W,N], [W,N] */
    steps *steps;           /* [heads] */
} tiles;

/* Hands out parts of a workspace; with base NULL it only measures. */
typedef struct space {
    char *base;
    size_t used;
} space;

static inline void *take(space *from, int64_t count, size_t size) {
    size_t at = from->used;
    from->used += ((size_t)count * size + 63) / 64 * 64;
    return from->base == NULL ? NULL : from->base + at;
}

/* Bytes that any product of a chunk of n rows needs. */
static inline size_t product_bytes(const scan *s, ls_dtype type, int64_t W, int64_t n) {
    const int64_t N = s->N, P = s->P;
    const int64_t shape[][3] = {{n, n, N}, {n, W, N}, {n, P, n}, {W, N, n},
                                {n, n, P}, {n, N, W}, {n, N, n}};
    size_t most = 0;
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++) {
        ls_gemm g = {.m = shape[i][0], .n = shape[i][1], .k = shape[i][2], .c_type = LS_F32};
        g.a.type = g.b.type = type;
        size_t bytes = ls_gemm_workspace(&g, 1);
        if (bytes > most) most = bytes;
    }
    return most;
}

static inline void lay_out(const scan *s, ls_dtype type, bool grad, space *from, tiles *t) {
    const pieces split = pieces_of(s);
    const size_t size = ls_dtype_size(type);
    const int64_t n = ls_min(s->T, CHUNK), W = split.heads * s->P;
    const size_t whole = product_bytes(s, type, W, n);
    const size_t rest = product_bytes(s, type, W, s->T % CHUNK);
    const int64_t parts = ls_min(ls_ceil_div(s->T, CHUNK), PARTS);
    t->weights = take(from, n * n, size);
    t->faded = take(from, n * W, size);
    t->lifted = take(from, grad ? n * W : 0, size);
    t->narrow = take(from, type == LS_F32 ? 0 : W * s->N, size);
    t->scores = take(from, n * n, sizeof(float));
    t->out = take(from, n * W, sizeof(float));
    t->steps = take(from, split.heads, sizeof(steps));
    t->product = take(from, (int64_t)(whole > rest ? whole : rest), 1);
    if (!grad) return;
    t->dscores = take(from, n * n, sizeof(float));
    t->pairs = take(from, n * n, sizeof(float));
    t->read = take(from, n * W, sizeof(float));
    t->through = take(from, n * W, sizeof(float));
    t->states = take(from, parts * W * s->N, sizeof(float));
    t->Z = take(from, W * s->N, sizeof(float));
}

static inline size_t thread_bytes(const scan *s, ls_dtype type, bool grad) {
    space each = {0};
    tiles t;
    lay_out(s, type, grad, &each, &t);
    return each.used;
}

static inline tiles open_tiles(const scan *s, ls_dtype type, bool grad, void *memory) {
    space mine = {(char *)memory + (size_t)omp_get_thread_num() * thread_bytes(s, type, grad), 0};
    tiles t = {0};
    lay_out(s, type, grad, &mine, &t);
    return t;
}

static inline ls_matrix plain(const void *data, ls_dtype type, int64_t stride) {
    return (ls_matrix){.data = data, .type = type, .stride = stride};
}
static inline ls_matrix transposed(ls_matrix x) {
    x.transposed = true;
    return x;
}

/* c[m,n] = a b, or c += a b. */
static inline void multiply(const tiles *t, int64_t m, int64_t n, int64_t k, ls_matrix a,
                            ls_matrix b, float *c, int64_t stride, bool add) {
    const ls_gemm g = {.m = m,
                       .n = n,
                       .k = k,
                       .a = a,
                       .b = b,
                       .c = c,
                       .c_type = LS_F32,
                       .c_stride = stride,
                       .add = add};
    ls_gemm_run(&g, 1, t->product);
}

static inline void scale_row(float *row, int64_t width, float factor) {
    for (int64_t i = 0; i < width; i++) row[i] *= factor;
}

LS_INLINE ls_matrix chunk_rows(rows x, ls_dtype type, int64_t b, int64_t first, int64_t h) {
    return plain(row_at(x, b, first, h), type, x.row);
}

/* A state [W,N] as an operand of products. */
LS_INLINE ls_matrix narrowed(const tiles *t, ls_dtype type, const float *state, int64_t count,
                             int64_t N) {
    if (type == LS_F32) return plain(state, type, N);
    for (int64_t i = 0; i < count; i += LS_LANES)
        ls_store_left(t->narrow, type, i, count - i, ls_load_left(state, LS_F32, i, count - i));
    return plain(t->narrow, type, N);
}

LS_INLINE void find_steps(const scan *s, ls_dtype type, int64_t b, int64_t first, int64_t h,
                          int64_t n, steps *to) {
    const float bias = s->bias == NULL ? 0 : ((const float *)s->bias)[h];
    const float low = (float)s->dt_min, high = (float)s->dt_max;
    to->A = -expf(((const float *)s->A_log)[h]);
    for (int64_t i = 0; i < ls_round_up(n, LS_LANES); i++)
        to->step[i] = i < n ? ls_load_one(row_at(s->dt, b, first + i, h), type, 0) + bias : 0;
    for (int64_t i = 0; i < n; i += LS_LANES) {
        ls_vec slope, step = ls_vec_softplus(ls_load(to->step, LS_F32, i), &slope);
        const ls_ivec below = step<low, above = step> high;
        slope = ls_vec_pick(below | above, ls_vec_all(0), slope);
        step = ls_vec_pick(below, ls_vec_all(low), ls_vec_pick(above, ls_vec_all(high), step));
        ls_store(to->step, LS_F32, i, step);
        ls_store(to->slope, LS_F32, i, slope);
    }
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const float by = to->step[i] * to->A;
        sum += (double)(by < least ? least : by) * (double)log2_e;
        to->high[i] = (float)sum;
        to->low[i] = (float)(sum - (double)to->high[i]);
    }
    const float end = to->high[n - 1], rest = to->low[n - 1];
    for (int64_t i = 0; i < n; i += LS_LANES) {
        const ls_vec c = ls_load_left(to->high, LS_F32, i, n - i);
        const ls_vec more = ls_load_left(to->low, LS_F32, i, n - i);
        ls_store_left(to->enter, LS_F32, i, n - i, ls_vec_exp2(c + more));
        ls_store_left(to->leave, LS_F32, i, n - i, ls_vec_exp2((end - c) + (rest - more)));
    }
    to->whole = to->enter[n - 1];
}

/* j, j + 1, ... */
LS_INLINE ls_vec numbers_from(int64_t j) {
    static const float lanes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return ls_load(lanes, LS_F32, 0) + (float)j;
}

/* L_ij for lanes j, j + 1, ... of row i. */
LS_INLINE ls_vec decay_between(const steps *now, int64_t i, int64_t j, int64_t left) {
    const ls_vec c = (now->high[i] - ls_load_left(now->high, LS_F32, j, left)) +
                     (now->low[i] - ls_load_left(now->low, LS_F32, j, left));
    return ls_vec_pick(numbers_from(j) <= (float)i, ls_vec_exp2(c), ls_vec_all(0));
}

/* weights[i,j] = L_ij s_ij, with `stepped` times d_j too; 0 for j > i. */
LS_INLINE ls_matrix weigh(const tiles *t, const steps *now, ls_dtype type, int64_t n,
                          bool stepped) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j += LS_LANES) {
            const int64_t left = n - j;
            ls_vec weight = ls_vec_all(0);
            if (j <= i)
                weight = decay_between(now, i, j, left) *
                         ls_load_left(t->scores, LS_F32, i * n + j, left);
            if (stepped) weight *= ls_load_left(now->step, LS_F32, j, left);
            ls_store_left(t->weights, type, i * n + j, left, weight);
        }
    return plain(t->weights, type, n);
}

/* to[j] = from[j] * by[j] * also[j] of a head's columns; `also` may be NULL. */
LS_INLINE void scale_rows(ls_dtype type, int64_t n, int64_t P, ls_matrix from, const float *by,
                          const float *also, void *to, int64_t at, int64_t stride) {
    for (int64_t i = 0; i < n; i++) {
        const float factor = also == NULL ? by[i] : by[i] * also[i];
        for (int64_t e = 0; e < P; e += LS_LANES)
            ls_store_left(to, type, at + i * stride + e, P - e,
                          ls_load_left(from.data, type, i * from.stride + e, P - e) * factor);
    }
}

/* S' from S, for all heads of a piece. */
LS_INLINE void advance_chunk(const scan *s, const place *at, const tiles *t, ls_dtype type,
                             int64_t first, int64_t n, float *state) {
    for (int64_t k = 0; k < at->heads; k++) {
        const steps *now = &t->steps[k];
        scale_rows(type, n, s->P, chunk_rows(s->x, type, at->b, first, at->h + k), now->step,
                   now->leave, t->faded, k * s->P, at->W);
        scale_row(state + k * s->P * s->N, s->P * s->N, now->whole);
    }
    multiply(t, at->W, s->N, n, transposed(plain(t->faded, type, at->W)),
             chunk_rows(s->B, type, at->b, first, at->g), state, s->N, true);
}

/* D of the channels from p on of head h. */
LS_INLINE ls_vec skips(const scan *s, int64_t h, int64_t p) {
    if (s->D == NULL) return ls_vec_all(0);
    if (!s->wide_D) return ls_vec_all(((const float *)s->D)[h]);
    return ls_load_left(s->D, LS_F32, h * s->P + p, s->P - p);
}

#endif
