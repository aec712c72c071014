/* A piece of work is a head of a sequence, its rows in chunks. Values have a column of ones for the
 * sums, so that there is one matrix S [K,V+1], in the wide type. */
#include <omp.h>

#include "tensor/cpu/head_rows.h"
#include "tensor/op/linear_attention/linear_attention.h"

enum { CHUNK = 256 };

typedef struct sizes {
    int64_t pieces, T, H, K, V, W; /* W = V + 1 */
    ls_dtype type, wide;
} sizes;

static sizes sizes_of(const ls_node *node) {
    const int64_t *dim = node->in[0]->dim, V = node->in[2]->dim[3];
    return (sizes){.pieces = dim[0] * dim[2],
                   .T = dim[1],
                   .H = dim[2],
                   .K = dim[3],
                   .V = V,
                   .W = V + 1,
                   .type = node->in[0]->type,
                   .wide = ls_wide_of(node->in[0])};
}

typedef struct scratch {
    void *S, *dS;       /* [K,W] */
    void *values, *cot; /* [CHUNK,W] */
    void *out;          /* [CHUNK, K or W] */
    void *product;
} scratch;

static size_t product_bytes(const sizes *s) {
    const int64_t chunk[2] = {ls_min(s->T, CHUNK), s->T % CHUNK};
    size_t most = 0;
    for (int i = 0; i < 2; i++) {
        size_t bytes[3] = {ls_product_bytes(s->K, s->W, chunk[i], s->type, s->wide),
                           ls_product_bytes(chunk[i], s->W, s->K, s->type, s->wide),
                           ls_product_bytes(chunk[i], s->K, s->W, s->wide, s->wide)};
        for (int j = 0; chunk[i] > 0 && j < 3; j++) most = bytes[j] > most ? bytes[j] : most;
    }
    return most;
}

static size_t lay_scratch(const sizes *s, char *base, scratch *d) {
    const size_t size = ls_dtype_size(s->wide);
    size_t used = 0;
    d->S = ls_take(base, &used, (size_t)(s->K * s->W) * size);
    d->dS = ls_take(base, &used, (size_t)(s->K * s->W) * size);
    d->values = ls_take(base, &used, (size_t)(CHUNK * s->W) * size);
    d->cot = ls_take(base, &used, (size_t)(CHUNK * s->W) * size);
    d->out = ls_take(base, &used, (size_t)(CHUNK * ls_max(s->K, s->W)) * size);
    d->product = ls_take(base, &used, product_bytes(s));
    return used;
}

static size_t workspace(const ls_node *node, int threads) {
    const sizes s = sizes_of(node);
    scratch d;
    return (size_t)threads * lay_scratch(&s, NULL, &d);
}

static scratch scratch_of(const sizes *s, const ls_run *run) {
    scratch d;
    size_t each = lay_scratch(s, NULL, &d);
    lay_scratch(s, (char *)run->workspace + (size_t)omp_get_thread_num() * each, &d);
    return d;
}

static ls_matrix wide(const sizes *s, const void *data) {
    return ls_plain_matrix(data, s->wide, s->W);
}

static void multiply(const sizes *s, const scratch *d, int64_t m, int64_t n, int64_t k, ls_matrix a,
                     ls_matrix b, void *c, bool add) {
    ls_gemm g = {.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .c_type = s->wide, .c_stride = n};
    g.add = add;
    ls_gemm_run(&g, 1, d->product);
}

/* Element i of the column behind V. */
static void set_last(const sizes *s, void *rows, int64_t i, double value) {
    if (s->wide == LS_F64)
        ((double *)rows)[i * s->W + s->V] = value;
    else
        ((float *)rows)[i * s->W + s->V] = (float)value;
}

static void load_values(const sizes *s, const ls_tensor *v, ls_head at, int64_t first, int64_t n,
                        const scratch *d) {
    ls_head_load(v, at, first, n, d->values, s->W);
    for (int64_t i = 0; i < n; i++) set_last(s, d->values, i, 1);
}

/* Place of a head's row in [B,T,H]. */
static int64_t sum_at(const sizes *s, ls_head at, int64_t t) {
    return (at.b * s->T + t) * s->H + at.h;
}

static void load_cotangents(const sizes *s, const ls_node *node, ls_head at, int64_t first,
                            int64_t n, const scratch *d) {
    const ls_tensor *dy = node->in[3], *dsums = node->in[4];
    if (dy != NULL)
        ls_head_load(dy, at, first, n, d->cot, s->W);
    else
        memset(d->cot, 0, (size_t)(n * s->W) * ls_dtype_size(s->wide));
    for (int64_t i = 0; i < n; i++) {
        double value = 0;
        if (dsums != NULL && s->wide == LS_F64)
            value = ((const double *)ls_data(dsums))[sum_at(s, at, first + i)];
        else if (dsums != NULL)
            value = (double)((const float *)ls_data(dsums))[sum_at(s, at, first + i)];
        set_last(s, d->cot, i, value);
    }
}

/* S = sum of k v^T over all rows. */
static void add_up(const sizes *s, const ls_node *node, ls_head at, const scratch *d) {
    for (int64_t first = 0, n; first < s->T; first += n) {
        n = ls_min(CHUNK, s->T - first);
        load_values(s, node->in[2], at, first, n, d);
        multiply(s, d, s->K, s->W, n, ls_transposed(ls_head_matrix(node->in[1], at, first)),
                 wide(s, d->values), d->S, first > 0);
    }
}

static void forward(const ls_run *run, const ls_node *node) {
    const sizes s = sizes_of(node);
    void *sums = ls_data(node->out[1]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < s.pieces; piece++) {
        const ls_head at = {piece / s.H, piece % s.H};
        const scratch d = scratch_of(&s, run);
        add_up(&s, node, at, &d);
        for (int64_t first = 0, n; first < s.T; first += n) {
            n = ls_min(CHUNK, s.T - first);
            multiply(&s, &d, n, s.W, s.K, ls_head_matrix(node->in[0], at, first), wide(&s, d.S),
                     d.out, false);
            ls_head_store(node->out[0], at, first, n, d.out, s.W);
            for (int64_t i = 0; i < n; i++) {
                int64_t to = sum_at(&s, at, first + i), from = i * s.W + s.V;
                if (s.wide == LS_F64)
                    ((double *)sums)[to] = ((const double *)d.out)[from];
                else
                    ((float *)sums)[to] = ((const float *)d.out)[from];
            }
        }
    }
}

/* dS = sum of q dy^T; then dq = dy S^T, dk = v dS^T and dv = k dS, row by row. */
static void backward(const ls_run *run, const ls_node *node) {
    const sizes s = sizes_of(node);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < s.pieces; piece++) {
        const ls_head at = {piece / s.H, piece % s.H};
        const scratch d = scratch_of(&s, run);
        add_up(&s, node, at, &d);
        for (int64_t first = 0, n; first < s.T; first += n) {
            n = ls_min(CHUNK, s.T - first);
            load_cotangents(&s, node, at, first, n, &d);
            multiply(&s, &d, s.K, s.W, n, ls_transposed(ls_head_matrix(node->in[0], at, first)),
                     wide(&s, d.cot), d.dS, first > 0);
            multiply(&s, &d, n, s.K, s.W, wide(&s, d.cot), ls_transposed(wide(&s, d.S)), d.out,
                     false);
            ls_head_store(node->out[0], at, first, n, d.out, s.K);
        }
        for (int64_t first = 0, n; first < s.T; first += n) {
            n = ls_min(CHUNK, s.T - first);
            load_values(&s, node->in[2], at, first, n, &d);
            multiply(&s, &d, n, s.K, s.W, wide(&s, d.values), ls_transposed(wide(&s, d.dS)), d.out,
                     false);
            ls_head_store(node->out[1], at, first, n, d.out, s.K);
            multiply(&s, &d, n, s.W, s.K, ls_head_matrix(node->in[1], at, first), wide(&s, d.dS),
                     d.out, false);
            ls_head_store(node->out[2], at, first, n, d.out, s.W);
        }
    }
}

const ls_kernel LS_CPU_TABLE(linear_attention)[] = {
    {"linear_attention", {forward, forward, forward}, workspace},
    {"linear_attention_grad", {backward, backward, backward}, workspace},
    {0},
};
