#include "tensor/op/linear_scan/linear_scan.h"

#include <math.h>
#include <omp.h>

#include "tensor/cpu/gemm.h"
#include "tensor/cpu/vector.h"

/* [B,T,H,width] at any strides; data is NULL where the tensor is absent. */
typedef struct heads {
    char *data;
    int64_t batch, row, head, width, size;
} heads;

static heads heads_of(const ls_tensor *tensor) {
    if (tensor == NULL) return (heads){0};
    return (heads){ls_data(tensor),
                   tensor->stride[0],
                   tensor->stride[1],
                   tensor->stride[2],
                   tensor->rank == 4 ? tensor->dim[3] : 1,
                   (int64_t)ls_dtype_size(tensor->type)};
}

static void *head_at(heads x, int64_t b, int64_t t, int64_t h) {
    if (x.data == NULL) return NULL;
    return x.data + (b * x.batch + t * x.row + h * x.head) * x.size;
}

typedef struct scan {
    int64_t B, T, H, K, V, W, start;
    bool rooted, fading; /* fading: features have decays of their own */
    heads q, k, v;
    const void *before, *log_decay, *feature; /* the last may be NULL */
    const int32_t *begins;                    /* or NULL */
} scan;

/* What is known before the tensors have their places. */
static scan shape_of(const ls_node *node) {
    const ls_linear_scan_attributes *about = node->attributes;
    const ls_tensor *v = node->in[LS_LINEAR_SCAN_V];
    return (scan){
        .B = v->dim[0],
        .T = v->dim[1],
        .H = v->dim[2],
        .K = node->in[LS_LINEAR_SCAN_K]->dim[3],
        .V = v->dim[3],
        .W = v->dim[3] + about->sums,
        .rooted = about->rooted,
        .fading = node->in[LS_LINEAR_SCAN_FEATURE_DECAY] != NULL,
    };
}

static scan scan_of(const ls_run *run, const ls_node *node) {
    scan s = shape_of(node);
    s.start = run->start;
    s.q = heads_of(node->in[LS_LINEAR_SCAN_Q]);
    s.k = heads_of(node->in[LS_LINEAR_SCAN_K]);
    s.v = heads_of(node->in[LS_LINEAR_SCAN_V]);
    s.before = ls_data(node->in[LS_LINEAR_SCAN_BEFORE]);
    s.log_decay = ls_data(node->in[LS_LINEAR_SCAN_DECAY]);
    s.feature = ls_data_or_null(node->in[LS_LINEAR_SCAN_FEATURE_DECAY]);
    s.begins = ls_data_or_null(node->in[LS_LINEAR_SCAN_BEGINS]);
    return s;
}

typedef struct outputs {
    heads y, sums;
    void *after;
} outputs;

static outputs outputs_of(const ls_node *node) {
    return (outputs){heads_of(node->out[LS_LINEAR_SCAN_Y]),
                     heads_of(node->out[LS_LINEAR_SCAN_SUMS]),
                     ls_data(node->out[LS_LINEAR_SCAN_AFTER])};
}

typedef struct gradients {
    heads dy, dsums, dq, dk, dv;
    const void *dafter;
    void *dbefore;
} gradients;

static gradients gradients_of(const ls_node *node) {
    return (gradients){
        .dy = heads_of(node->in[LS_LINEAR_SCAN_DY]),
        .dsums = heads_of(node->in[LS_LINEAR_SCAN_DSUMS]),
        .dq = heads_of(node->out[LS_LINEAR_SCAN_DQ]),
        .dk = heads_of(node->out[LS_LINEAR_SCAN_DK]),
        .dv = heads_of(node->out[LS_LINEAR_SCAN_DV]),
        .dafter = ls_data_or_null(node->in[LS_LINEAR_SCAN_DAFTER]),
        .dbefore = ls_data_or_null(node->out[LS_LINEAR_SCAN_DBEFORE]),
    };
}

/* r of row t of a sequence in a head whose decay has this logarithm. */
static double row_factor(const scan *s, double log_decay, int64_t b, int64_t t) {
    if (!s->rooted) return 1;
    double count = (double)(s->start - (s->begins == NULL ? 0 : s->begins[b]) + t + 1);
    return 1 / sqrt(log_decay == 0 ? count : expm1(count * log_decay) / expm1(log_decay));
}

/* ---- reference ---- */

static double log_decay_of(const scan *s, int64_t h, int64_t i) {
    const double *feature = s->feature;
    return ((const double *)s->log_decay)[h] + (feature == NULL ? 0 : feature[i]);
}

/* Element j of a row of W: the last of V + 1 comes from elsewhere. */
static double value_at(const double *row, int64_t V, double last, int64_t j) {
    if (j >= V) return last;
    return row == NULL ? 0 : row[j];
}

static void advance(const scan *s, int64_t b, int64_t h, int64_t t, double *S) {
    const double *k = head_at(s->k, b, t, h), *v = head_at(s->v, b, t, h);
    for (int64_t i = 0; i < s->K; i++) {
        double decay = exp(log_decay_of(s, h, i));
        for (int64_t j = 0; j < s->W; j++)
            S[i * s->W + j] = decay * S[i * s->W + j] + k[i] * value_at(v, s->V, 1, j);
    }
}

static void forward_f64(const ls_run *run, const ls_node *node) {
    const scan s = scan_of(run, node);
    const outputs o = outputs_of(node);
    const int64_t elements = s.K * s.W;
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < s.H; h++) {
            double *S = (double *)o.after + (b * s.H + h) * elements;
            memcpy(S, (const double *)s.before + (b * s.H + h) * elements,
                   (size_t)elements * sizeof *S);
            for (int64_t t = 0; t < s.T; t++) {
                const double *q = head_at(s.q, b, t, h);
                double *y = head_at(o.y, b, t, h), *sum = head_at(o.sums, b, t, h);
                double r = row_factor(&s, ((const double *)s.log_decay)[h], b, t);
                advance(&s, b, h, t, S);
                for (int64_t j = 0; j < s.W; j++) {
                    double out = 0;
                    for (int64_t i = 0; i < s.K; i++) out += q[i] * S[i * s.W + j];
                    *(j < s.V ? &y[j] : sum) = r * out;
                }
            }
        }
}

/* Element j of the gradient of row t's result before its factor. */
static double cotangent(const scan *s, const gradients *g, int64_t b, int64_t h, int64_t t,
                        int64_t j) {
    const double *sum = head_at(g->dsums, b, t, h);
    return row_factor(s, ((const double *)s->log_decay)[h], b, t) *
           value_at(head_at(g->dy, b, t, h), s->V, sum == NULL ? 0 : *sum, j);
}

/* dq: on the way forward, from the states. */
static void queries_f64(const scan *s, const gradients *g, int64_t b, int64_t h, double *S) {
    const int64_t elements = s->K * s->W;
    memcpy(S, (const double *)s->before + (b * s->H + h) * elements, (size_t)elements * sizeof *S);
    for (int64_t t = 0; t < s->T; t++) {
        double *dq = head_at(g->dq, b, t, h);
        advance(s, b, h, t, S);
        memset(dq, 0, (size_t)s->K * sizeof *dq);
        for (int64_t j = 0; j < s->W; j++) {
            double d = cotangent(s, g, b, h, t, j);
            for (int64_t i = 0; i < s->K; i++) dq[i] += d * S[i * s->W + j];
        }
    }
}

/* dk, dv: on the way back, from the gradient D of the states. */
static void keys_f64(const scan *s, const gradients *g, int64_t b, int64_t h, double *D) {
    const int64_t elements = s->K * s->W, first = (b * s->H + h) * elements;
    for (int64_t i = 0; i < elements; i++)
        D[i] = g->dafter == NULL ? 0 : ((const double *)g->dafter)[first + i];
    for (int64_t t = s->T - 1; t >= 0; t--) {
        const double *q = head_at(s->q, b, t, h), *k = head_at(s->k, b, t, h);
        const double *v = head_at(s->v, b, t, h);
        double *dk = head_at(g->dk, b, t, h), *dv = head_at(g->dv, b, t, h);
        memset(dk, 0, (size_t)s->K * sizeof *dk);
        for (int64_t j = 0; j < s->W; j++) {
            double d = cotangent(s, g, b, h, t, j), sum = 0;
            for (int64_t i = 0; i < s->K; i++) {
                D[i * s->W + j] += q[i] * d;
                dk[i] += D[i * s->W + j] * value_at(v, s->V, 1, j);
                sum += D[i * s->W + j] * k[i];
            }
            if (j < s->V) dv[j] = sum;
        }
        for (int64_t i = 0; i < s->K; i++) {
            double decay = exp(log_decay_of(s, h, i));
            for (int64_t j = 0; j < s->W; j++) D[i * s->W + j] *= decay;
        }
    }
    if (g->dbefore != NULL) memcpy((double *)g->dbefore + first, D, (size_t)elements * sizeof *D);
}

static void backward_f64(const ls_run *run, const ls_node *node) {
    const scan s = scan_of(run, node);
    const gradients g = gradients_of(node);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < 2 * s.B * s.H; piece++) {
        double *scratch = (double *)run->workspace + omp_get_thread_num() * s.K * s.W;
        int64_t b = piece / 2 / s.H, h = piece / 2 % s.H;
        if (piece % 2 == 0)
            queries_f64(&s, &g, b, h, scratch);
        else
            keys_f64(&s, &g, b, h, scratch);
    }
}

/* ---- f32 and bf16 ----
 *
 * Within a chunk of n rows, with row i's products against the state before it and against the rows
 * up to itself:
 *   y_i = g^(i+1) q_i S + sum_{j<=i} g^(i-j) (q_i . k_j) v_j,   S' = g^n S + sum_j g^(n-1-j) k_j
 * v_j all of them matrix products. Where features have decays of their own, queries carry
 * f^(i+1), keys f^-(j+1), and the state's rows f^n in the end. A piece of work is one
 * head of one sequence. */

enum {
    CHUNK = 64,
    FEW = 8,         /* fewer rows than this go one by one */
    SMALL = 1 << 14, /* elements that one thread is done with before another has woken */
};

/* What a thread works with. `typed` buffers are of the compute type: operands of products. */
typedef struct tiles {
    void *q, *k, *values, *faded, *cot; /* typed [CHUNK, K or W] */
    void *narrow;                       /* typed [K, W]: the state as an operand */
    void *weights;                      /* typed [CHUNK, CHUNK] */
    float *scores, *out, *state;        /* [CHUNK, CHUNK], [CHUNK, K or W], [K, W] */
    void *product;                      /* for ls_gemm */
    const float *fade, *grow;           /* [CHUNK, K]: f^(i+1) and its inverse, or NULL */
    const float *roots;                 /* factors of the chunk's rows, or NULL */
    float root[CHUNK];
    float power[CHUNK + 1];    /* g^i */
    float triangle[2 * CHUNK]; /* g^(i-j) at CHUNK - 1 - i + j, and 0 for j > i */
} tiles;

/* Hands out parts of a workspace; with base NULL it only measures. */
typedef struct space {
    char *base;
    size_t used;
} space;

static void *take(space *from, int64_t count, size_t size) {
    size_t at = from->used;
    from->used += ((size_t)count * size + 63) / 64 * 64;
    return from->base == NULL ? NULL : from->base + at;
}

/* Bytes that any product of a chunk of n rows needs. */
static size_t product_bytes(const scan *s, ls_dtype type, int64_t n) {
    const int64_t shape[][3] = {{n, s->W, s->K}, {n, n, s->K},    {n, s->W, n}, {s->K, s->W, n},
                                {n, n, s->W},    {n, s->K, s->W}, {n, s->K, n}};
    size_t most = 0;
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++) {
        ls_gemm g = {.m = shape[i][0], .n = shape[i][1], .k = shape[i][2], .c_type = LS_F32};
        g.a.type = g.b.type = type;
        size_t bytes = ls_gemm_workspace(&g, 1);
        if (bytes > most) most = bytes;
    }
    return most;
}

static void lay_out(const scan *s, ls_dtype type, size_t product, space *from, tiles *t) {
    const size_t size = ls_dtype_size(type);
    const int64_t n = ls_min(s->T, CHUNK);
    t->q = take(from, n * s->K, size);
    t->k = take(from, n * s->K, size);
    t->values = take(from, n * s->W, size);
    t->faded = take(from, n * s->W, size);
    t->cot = take(from, n * s->W, size);
    t->narrow = take(from, s->K * s->W, size);
    t->weights = take(from, n * n, size);
    t->scores = take(from, n * n, sizeof(float));
    t->out = take(from, n * ls_max(s->K, s->W), sizeof(float));
    t->state = take(from, s->K * s->W, sizeof(float));
    t->product = take(from, (int64_t)product, 1);
}

/* The workspace: tables of the features' powers, then a part for each thread. */
typedef struct layout {
    int64_t rows; /* of the tables */
    size_t tables, each, product;
} layout;

static layout layout_of(const scan *s, ls_dtype type) {
    size_t whole = product_bytes(s, type, ls_min(s->T, CHUNK));
    size_t rest = product_bytes(s, type, s->T % CHUNK);
    layout l = {.rows = s->fading ? ls_min(s->T, CHUNK) : 0,
                .product = whole > rest ? whole : rest};
    space tables = {0}, each = {0};
    tiles t;
    take(&tables, 2 * l.rows * s->K, sizeof(float));
    lay_out(s, type, l.product, &each, &t);
    l.tables = tables.used;
    l.each = each.used;
    return l;
}

static size_t workspace(const ls_node *node, int threads) {
    const scan s = shape_of(node);
    const ls_dtype type = node->in[LS_LINEAR_SCAN_Q]->type;
    if (type == LS_F64) return (size_t)threads * (size_t)(s.K * s.W) * sizeof(double);
    const layout l = layout_of(&s, type);
    return l.tables + (size_t)threads * l.each;
}

static void fill_tables(const scan *s, const layout *l, float *fade) {
    const float *feature = s->feature;
    for (int64_t row = 0; row < l->rows; row++)
        for (int64_t i = 0; i < s->K; i++) {
            double power = (double)feature[i] * (double)(row + 1);
            fade[row * s->K + i] = (float)exp(power);
            fade[(l->rows + row) * s->K + i] = (float)exp(-power);
        }
}

/* This thread's buffers, for a head. */
static void open_tiles(const scan *s, const layout *l, ls_dtype type, void *memory, int64_t h,
                       tiles *t) {
    double log_decay = (double)((const float *)s->log_decay)[h];
    const float *table = memory;
    int64_t rows = ls_min(s->T, CHUNK);
    space mine = {(char *)memory + l->tables + (size_t)omp_get_thread_num() * l->each, 0};
    lay_out(s, type, l->product, &mine, t);
    t->fade = s->fading ? table : NULL;
    t->grow = s->fading ? table + l->rows * s->K : NULL;
    memset(t->triangle, 0, sizeof t->triangle);
    for (int64_t i = 0; i <= rows; i++) {
        t->power[i] = (float)exp(log_decay * (double)i);
        if (i < rows) t->triangle[CHUNK - 1 - i] = t->power[i];
    }
}

static void open_rows(const scan *s, int64_t b, int64_t h, int64_t first, int64_t n, tiles *t) {
    t->roots = s->rooted ? t->root : NULL;
    for (int64_t i = 0; s->rooted && i < n; i++)
        t->root[i] = (float)row_factor(s, (double)((const float *)s->log_decay)[h], b, first + i);
}

static ls_matrix plain(const void *data, ls_dtype type, int64_t stride) {
    return (ls_matrix){.data = data, .type = type, .stride = stride};
}
static ls_matrix transposed(ls_matrix x) {
    x.transposed = true;
    return x;
}

/* c[m,n] = a b, or c += a b. */
static void multiply(const tiles *t, int64_t m, int64_t n, int64_t k, ls_matrix a, ls_matrix b,
                     float *c, bool add) {
    ls_gemm g = {.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .c_type = LS_F32, .c_stride = n};
    g.add = add;
    ls_gemm_run(&g, 1, t->product);
}

static void scale_row(float *row, int64_t width, float factor) {
    for (int64_t i = 0; i < width; i++) row[i] *= factor;
}
static void scale_rows(float *rows, int64_t n, int64_t width, const float *factor, int step) {
    for (int64_t i = 0; i < n; i++) scale_row(rows + i * width, width, factor[i * step]);
}

/* Queries or keys of a chunk, times a table of factors where there is one. */
LS_INLINE ls_matrix chunk_rows(heads x, ls_dtype type, int64_t b, int64_t first, int64_t h,
                               int64_t n, const float *table, void *buffer) {
    const char *data = head_at(x, b, first, h);
    if (table == NULL) return plain(data, type, x.row);
    for (int64_t i = 0; i < n; i++)
        for (int64_t e = 0; e < x.width; e += LS_LANES)
            ls_store_left(buffer, type, i * x.width + e, x.width - e,
                          ls_load_left(data, type, i * x.row + e, x.width - e) *
                              ls_load_left(table, LS_F32, i * x.width + e, x.width - e));
    return plain(buffer, type, x.width);
}

/* Rows of W: those of x, and in the last of V + 1 columns `ends` [B,T,H] or, where it is absent,
 * `end`; each row times its factor, where there are any. */
LS_INLINE ls_matrix wide_rows(const scan *s, heads x, heads ends, float end, ls_dtype type,
                              int64_t b, int64_t first, int64_t h, int64_t n, const float *factor,
                              void *buffer) {
    const char *data = head_at(x, b, first, h);
    if (data != NULL && s->W == s->V && factor == NULL) return plain(data, type, x.row);
    for (int64_t i = 0; i < n; i++) {
        float by = factor == NULL ? 1 : factor[i];
        for (int64_t e = 0; e < s->V; e += LS_LANES)
            ls_store_left(buffer, type, i * s->W + e, s->V - e,
                          data == NULL ? ls_vec_all(0)
                                       : ls_load_left(data, type, i * x.row + e, s->V - e) * by);
        const float *last = head_at(ends, b, first + i, h);
        if (s->W > s->V)
            ls_store_one(buffer, type, i * s->W + s->V, (last == NULL ? end : *last) * by);
    }
    return plain(buffer, type, s->W);
}

LS_INLINE ls_matrix values_of(const scan *s, ls_dtype type, int64_t b, int64_t first, int64_t h,
                              int64_t n, tiles *t) {
    return wide_rows(s, s->v, (heads){0}, 1, type, b, first, h, n, NULL, t->values);
}

/* to[i] = from[i] * power[at + i * step]: what is left of each row at one end of the chunk. */
LS_INLINE ls_matrix fade_rows(const tiles *t, ls_dtype type, ls_matrix from, int64_t n,
                              int64_t width, int64_t at, int step, void *to) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t e = 0; e < width; e += LS_LANES)
            ls_store_left(to, type, i * width + e, width - e,
                          ls_load_left(from.data, type, i * from.stride + e, width - e) *
                              t->power[at + i * step]);
    return plain(to, type, width);
}

/* weights[i,j] = g^(i-j) a_i . b_j for j <= i, 0 beyond. */
LS_INLINE ls_matrix chunk_weights(const tiles *t, ls_dtype type, int64_t n, int64_t width,
                                  ls_matrix a, ls_matrix b) {
    multiply(t, n, n, width, a, transposed(b), t->scores, false);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j += LS_LANES) {
            ls_vec decay = ls_load(t->triangle, LS_F32, CHUNK - 1 - i + j);
            ls_vec score = ls_load_left(t->scores, LS_F32, i * n + j, n - j);
            ls_store_left(t->weights, type, i * n + j, n - j,
                          ls_vec_pick(decay > 0.0f, score * decay, ls_vec_all(0)));
        }
    return plain(t->weights, type, n);
}

/* A state as an operand of products. */
LS_INLINE ls_matrix narrowed(const scan *s, const tiles *t, ls_dtype type, const float *state) {
    if (type == LS_F32) return plain(state, type, s->W);
    for (int64_t i = 0; i < s->K * s->W; i += LS_LANES)
        ls_store_left(t->narrow, type, i, s->K * s->W - i,
                      ls_load_left(state, LS_F32, i, s->K * s->W - i));
    return plain(t->narrow, type, s->W);
}

/* state = g^n state + rows^T faded. */
static void add_outer(const scan *s, const tiles *t, int64_t n, ls_matrix rows, ls_matrix faded,
                      float *state) {
    scale_row(state, s->K * s->W, t->power[n]);
    multiply(t, s->K, s->W, n, transposed(rows), faded, state, true);
}

static void fade_state(const scan *s, const tiles *t, int64_t n, float *state) {
    if (t->fade != NULL) scale_rows(state, s->K, s->W, t->fade + (n - 1) * s->K, 1);
}

/* The state goes on over a chunk. */
LS_INLINE void advance_chunk(const scan *s, const tiles *t, ls_dtype type, int64_t n, ls_matrix k,
                             ls_matrix values, float *state) {
    add_outer(s, t, n, k, fade_rows(t, type, values, n, s->W, n - 1, -1, t->faded), state);
    fade_state(s, t, n, state);
}

/* Row i of `from` (floats of `width`) into row first + i of x, times its factors. */
LS_INLINE void put_rows(heads x, ls_dtype type, int64_t b, int64_t first, int64_t h, int64_t n,
                        const float *from, int64_t stride, const float *table,
                        const float *factor) {
    for (int64_t i = 0; i < n; i++) {
        void *to = head_at(x, b, first + i, h);
        for (int64_t e = 0; e < x.width; e += LS_LANES) {
            ls_vec value = ls_load_left(from, LS_F32, i * stride + e, x.width - e);
            if (table != NULL) value *= ls_load_left(table, LS_F32, i * x.width + e, x.width - e);
            if (factor != NULL) value *= factor[i];
            ls_store_left(to, type, e, x.width - e, value);
        }
    }
}

LS_INLINE void put_results(const scan *s, const outputs *o, ls_dtype type, int64_t b, int64_t first,
                           int64_t h, int64_t n, const tiles *t) {
    put_rows(o->y, type, b, first, h, n, t->out, s->W, NULL, t->roots);
    for (int64_t i = 0; o->sums.data != NULL && i < n; i++)
        *(float *)head_at(o->sums, b, first + i, h) =
            t->out[i * s->W + s->V] * (t->roots == NULL ? 1 : t->roots[i]);
}

/* One row after the other, the state read and written once for each. */
LS_INLINE void forward_few(const scan *s, ls_dtype type, int64_t b, int64_t first, int64_t h,
                           int64_t n, tiles *t, float *state) {
    ls_matrix values = values_of(s, type, b, first, h, n, t);
    for (int64_t row = 0; row < n; row++) {
        const void *q = head_at(s->q, b, first + row, h), *k = head_at(s->k, b, first + row, h);
        for (int64_t j = 0; j < s->W; j += LS_LANES) {
            int64_t left = s->W - j;
            ls_vec v = ls_load_left(values.data, type, row * values.stride + j, left);
            ls_vec out = ls_vec_all(0);
            for (int64_t i = 0; i < s->K; i++) {
                float decay = t->power[1] * (t->fade == NULL ? 1 : t->fade[i]);
                ls_vec here = ls_load_left(state, LS_F32, i * s->W + j, left) * decay +
                              v * ls_load_one(k, type, i);
                ls_store_left(state, LS_F32, i * s->W + j, left, here);
                out += here * ls_load_one(q, type, i);
            }
            ls_store_left(t->out, LS_F32, row * s->W + j, left, out);
        }
    }
}

LS_INLINE void forward_chunk(const scan *s, ls_dtype type, int64_t b, int64_t first, int64_t h,
                             int64_t n, tiles *t, float *state) {
    ls_matrix q = chunk_rows(s->q, type, b, first, h, n, t->fade, t->q);
    ls_matrix k = chunk_rows(s->k, type, b, first, h, n, t->grow, t->k);
    ls_matrix values = values_of(s, type, b, first, h, n, t);
    multiply(t, n, s->W, s->K, q, narrowed(s, t, type, state), t->out, false);
    scale_rows(t->out, n, s->W, t->power + 1, 1);
    multiply(t, n, s->W, n, chunk_weights(t, type, n, s->K, q, k), values, t->out, true);
    advance_chunk(s, t, type, n, k, values, state);
}

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const scan s = scan_of(run, node);
    const outputs o = outputs_of(node);
    const int64_t elements = s.K * s.W;
    const layout l = layout_of(&s, type);
    fill_tables(&s, &l, run->workspace);
#pragma omp parallel for schedule(dynamic)                                                         \
    num_threads(run->threads) if (s.B * s.H * s.T * elements > SMALL)
    for (int64_t piece = 0; piece < s.B * s.H; piece++) {
        int64_t b = piece / s.H, h = piece % s.H, n;
        float *state = (float *)o.after + piece * elements;
        tiles t;
        open_tiles(&s, &l, type, run->workspace, h, &t);
        memcpy(state, (const float *)s.before + piece * elements, (size_t)elements * sizeof *state);
        for (int64_t first = 0; first < s.T; first += n) {
            n = ls_min(CHUNK, s.T - first);
            open_rows(&s, b, h, first, n, &t);
            if (n < FEW)
                forward_few(&s, type, b, first, h, n, &t, state);
            else
                forward_chunk(&s, type, b, first, h, n, &t, state);
            put_results(&s, &o, type, b, first, h, n, &t);
        }
    }
}

LS_INLINE ls_matrix cotangents(const scan *s, const gradients *g, ls_dtype type, int64_t b,
                               int64_t first, int64_t h, int64_t n, tiles *t) {
    return wide_rows(s, g->dy, g->dsums, 0, type, b, first, h, n, t->roots, t->cot);
}

/* dq_i = g^(i+1) S dy_i + sum_{j<=i} g^(i-j) (dy_i . v_j) k_j, on the way forward. */
LS_INLINE void queries(const scan *s, const gradients *g, ls_dtype type, int64_t b, int64_t h,
                       tiles *t) {
    const int64_t elements = s->K * s->W;
    memcpy(t->state, (const float *)s->before + (b * s->H + h) * elements,
           (size_t)elements * sizeof(float));
    for (int64_t first = 0; first < s->T; first += CHUNK) {
        int64_t n = ls_min(CHUNK, s->T - first);
        open_rows(s, b, h, first, n, t);
        ls_matrix k = chunk_rows(s->k, type, b, first, h, n, t->grow, t->k);
        ls_matrix values = values_of(s, type, b, first, h, n, t);
        ls_matrix dy = cotangents(s, g, type, b, first, h, n, t);
        multiply(t, n, s->K, s->W, dy, transposed(narrowed(s, t, type, t->state)), t->out, false);
        scale_rows(t->out, n, s->K, t->power + 1, 1);
        multiply(t, n, s->K, n, chunk_weights(t, type, n, s->W, dy, values), k, t->out, true);
        put_rows(g->dq, type, b, first, h, n, t->out, s->K, t->fade, NULL);
        if (first + n < s->T) advance_chunk(s, t, type, n, k, values, t->state);
    }
}

/* With D the gradient of the state after the chunk, on the way back:
 *   dk_j = g^(n-1-j) D v_j + sum_{i>=j} g^(i-j) (dy_i . v_j) q_i
 *   dv_j = g^(n-1-j) D^T k_j + sum_{i>=j} g^(i-j) (q_i . k_j) dy_i
 *   D'   = g^n D + sum_i g^(i+1) q_i dy_i */
LS_INLINE void keys(const scan *s, const gradients *g, ls_dtype type, int64_t b, int64_t h,
                    tiles *t) {
    const int64_t elements = s->K * s->W, place = (b * s->H + h) * elements;
    float *D = t->state;
    memset(D, 0, (size_t)elements * sizeof *D);
    if (g->dafter != NULL)
        memcpy(D, (const float *)g->dafter + place, (size_t)elements * sizeof *D);
    for (int64_t chunk = ls_ceil_div(s->T, CHUNK) - 1; chunk >= 0; chunk--) {
        int64_t first = chunk * CHUNK, n = ls_min(CHUNK, s->T - first);
        open_rows(s, b, h, first, n, t);
        ls_matrix q = chunk_rows(s->q, type, b, first, h, n, t->fade, t->q);
        ls_matrix k = chunk_rows(s->k, type, b, first, h, n, t->grow, t->k);
        ls_matrix values = values_of(s, type, b, first, h, n, t);
        ls_matrix dy = cotangents(s, g, type, b, first, h, n, t);
        fade_state(s, t, n, D);
        ls_matrix narrow = narrowed(s, t, type, D);
        multiply(t, n, s->K, s->W, values, transposed(narrow), t->out, false);
        scale_rows(t->out, n, s->K, t->power + n - 1, -1);
        multiply(t, n, s->K, n, transposed(chunk_weights(t, type, n, s->W, dy, values)), q, t->out,
                 true);
        put_rows(g->dk, type, b, first, h, n, t->out, s->K, t->grow, NULL);
        multiply(t, n, s->W, s->K, k, narrow, t->out, false);
        scale_rows(t->out, n, s->W, t->power + n - 1, -1);
        multiply(t, n, s->W, n, transposed(chunk_weights(t, type, n, s->K, q, k)), dy, t->out,
                 true);
        put_rows(g->dv, type, b, first, h, n, t->out, s->W, NULL, NULL);
        add_outer(s, t, n, q, fade_rows(t, type, dy, n, s->W, 1, 1, t->faded), D);
    }
    if (g->dbefore != NULL) memcpy((float *)g->dbefore + place, D, (size_t)elements * sizeof *D);
}

LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const scan s = scan_of(run, node);
    const gradients g = gradients_of(node);
    const layout l = layout_of(&s, type);
    fill_tables(&s, &l, run->workspace);
#pragma omp parallel for schedule(dynamic) num_threads(run->threads)
    for (int64_t piece = 0; piece < 2 * s.B * s.H; piece++) {
        int64_t b = piece / 2 / s.H, h = piece / 2 % s.H;
        tiles t;
        open_tiles(&s, &l, type, run->workspace, h, &t);
        if (piece % 2 == 0)
            keys(&s, &g, type, b, h, &t); /* the longer one first */
        else
            queries(&s, &g, type, b, h, &t);
    }
}

LS_KERNEL_FAST(forward)
LS_KERNEL_FAST(backward)

const ls_kernel LS_CPU_TABLE(linear_scan)[] = {
    {"linear_scan", LS_KERNEL_BY_TYPE(forward), workspace},
    {"linear_scan_grad", LS_KERNEL_BY_TYPE(backward), workspace},
    {0},
};
