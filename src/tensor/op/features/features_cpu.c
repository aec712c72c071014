/* Rows of a head in chunks: products with the directions, then row by row. */
#include "tensor/op/features/features.h"

#include <math.h>
#include <omp.h>

#include "tensor/cpu/head_rows.h"

enum { CHUNK = 64 };

typedef struct job {
    const ls_features_options *about;
    const ls_tensor *x, *directions;
    const uint8_t *valid; /* NULL: every row counts */
    int64_t valid_stride;
    int64_t B, T, H, K, M;
    ls_dtype wide;
    double share;    /* 1 / sqrt(M) */
    double *largest; /* of ALL_PRODUCTS: per sequence and head */
} job;

static job job_of(const ls_node *node) {
    const ls_tensor *x = node->in[LS_FEATURES_X], *valid = node->in[LS_FEATURES_VALID];
    job s = {.about = node->attributes,
             .x = x,
             .directions = node->in[LS_FEATURES_DIRECTIONS],
             .B = x->dim[0],
             .T = x->dim[1],
             .H = x->dim[2],
             .K = x->dim[3],
             .wide = ls_wide_of(x)};
    s.M = s.directions == NULL ? s.K : s.directions->dim[0];
    s.share = s.about->kind == LS_FEATURES_EXP ? 1 / sqrt((double)s.M) : 1;
    if (valid != NULL) s.valid = ls_data(valid), s.valid_stride = valid->stride[0];
    return s;
}

typedef struct scratch {
    void *z;      /* [CHUNK,K]: rows, scaled */
    void *a, *dy; /* [CHUNK,M]: their products; gradients, then those of the products */
    void *product;
} scratch;

static size_t product_bytes(const job *s) {
    const int64_t rows[2] = {ls_min(s->T, CHUNK), s->T % CHUNK};
    size_t most = 0;
    for (int i = 0; i < 2 && rows[i] > 0; i++) {
        size_t there = ls_product_bytes(rows[i], s->M, s->K, s->wide, s->wide);
        size_t back = ls_product_bytes(rows[i], s->K, s->M, s->wide, s->wide);
        most = there > most ? there : most;
        most = back > most ? back : most;
    }
    return most;
}

static size_t lay_scratch(const job *s, char *base, scratch *d) {
    const size_t size = ls_dtype_size(s->wide);
    size_t used = 0;
    d->z = ls_take(base, &used, (size_t)(CHUNK * s->K) * size);
    d->a = ls_take(base, &used, (size_t)(CHUNK * s->M) * size);
    d->dy = ls_take(base, &used, (size_t)(CHUNK * s->M) * size);
    d->product = ls_take(base, &used, product_bytes(s));
    return used;
}

static size_t largest_bytes(const job *s) {
    return (size_t)ls_round_up(s->B * s->H, 8) * sizeof(double);
}

static size_t workspace(const ls_node *node, int threads) {
    const job s = job_of(node);
    scratch d;
    return largest_bytes(&s) + (size_t)threads * lay_scratch(&s, NULL, &d);
}

static scratch scratch_of(const job *s, const ls_run *run) {
    scratch d;
    size_t each = lay_scratch(s, NULL, &d);
    lay_scratch(s, (char *)run->workspace + largest_bytes(s) + (size_t)omp_get_thread_num() * each,
                &d);
    return d;
}

static bool counts(const job *s, int64_t b, int64_t t) {
    return s->valid == NULL || s->valid[b * s->valid_stride + t] != 0;
}

static double at(const job *s, const void *data, int64_t i) {
    return s->wide == LS_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void scale_rows(const job *s, void *rows, int64_t count, double factor) {
    for (int64_t i = 0; s->wide == LS_F64 && i < count; i++) ((double *)rows)[i] *= factor;
    for (int64_t i = 0; s->wide != LS_F64 && i < count; i += LS_LANES)
        ls_store_left(rows, LS_F32, i, count - i,
                      ls_load_left(rows, LS_F32, i, count - i) * (float)factor);
}

/* z and a of some rows. */
static void project(const job *s, ls_head head, int64_t first, int64_t n, const scratch *d) {
    ls_head_load(s->x, head, first, n, d->z, s->K);
    scale_rows(s, d->z, n * s->K, s->about->scale);
    if (s->directions == NULL) {
        memcpy(d->a, d->z, (size_t)(n * s->K) * ls_dtype_size(s->wide));
        return;
    }
    ls_gemm g = {.m = n,
                 .n = s->M,
                 .k = s->K,
                 .a = ls_plain_matrix(d->z, s->wide, s->K),
                 .b = ls_transposed(ls_plain_matrix(ls_data(s->directions), s->wide, s->K)),
                 .c = d->a,
                 .c_type = s->wide,
                 .c_stride = s->M};
    ls_gemm_run(&g, 1, d->product);
}

static double half_square(const job *s, const scratch *d, int64_t row) {
    double sum = 0;
    if (s->directions == NULL) return 0;
    if (s->wide == LS_F64) {
        const double *z = (const double *)d->z + row * s->K;
        for (int64_t e = 0; e < s->K; e++) sum += z[e] * z[e];
        return sum / 2;
    }
    ls_vec squares = ls_vec_all(0);
    for (int64_t e = 0; e < s->K; e += LS_LANES) {
        ls_vec z = ls_load_left(d->z, LS_F32, row * s->K + e, s->K - e);
        squares += z * z;
    }
    return (double)ls_vec_sum(squares) / 2;
}

/* Comparisons in place of fmax: gcc 12 breaks off over its reductions on ARM. */
static double largest_product(const job *s, const scratch *d, int64_t row) {
    const int64_t whole = s->wide == LS_F64 ? 0 : s->M / LS_LANES * LS_LANES;
    double most = -INFINITY;
    if (whole > 0) {
        ls_vec lanes = ls_load(d->a, LS_F32, row * s->M);
        for (int64_t i = LS_LANES; i < whole; i += LS_LANES)
            lanes = ls_vec_max(lanes, ls_load(d->a, LS_F32, row * s->M + i));
        for (int i = 0; i < LS_LANES; i++)
            if ((double)lanes[i] > most) most = (double)lanes[i];
    }
    for (int64_t i = whole; i < s->M; i++) {
        const double product = at(s, d->a, row * s->M + i);
        if (product > most) most = product;
    }
    return most;
}

/* The first place in a row that has this product. */
static int64_t place_of(const job *s, const scratch *d, int64_t row, double product) {
    for (int64_t i = 0; i < s->M; i++)
        if (at(s, d->a, row * s->M + i) == product) return i;
    return 0;
}

/* What is taken off all products of a row: |z|^2 / 2 where they are products, and what keeps the
 * rest in bounds. */
static double taken_off(const job *s, ls_head head, const scratch *d, int64_t row) {
    switch (s->about->stable) {
    case LS_STABLE_ROW:
        return largest_product(s, d, row); /* |z|^2 / 2 is on both sides */
    case LS_STABLE_ROW_PRODUCT:
        return largest_product(s, d, row) + half_square(s, d, row);
    case LS_STABLE_ALL_PRODUCTS:
        return s->largest[head.b * s->H + head.h] + half_square(s, d, row);
    default:
        return half_square(s, d, row);
    }
}

/* The largest product of each head, over all rows that count. */
static void survey(job *s, const ls_run *run) {
    s->largest = run->workspace;
    if (s->about->kind != LS_FEATURES_EXP || s->about->stable != LS_STABLE_ALL_PRODUCTS) return;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < s->B * s->H; piece++) {
        const ls_head head = {piece / s->H, piece % s->H};
        const scratch d = scratch_of(s, run);
        double most = -INFINITY;
        for (int64_t first = 0, n; first < s->T; first += n) {
            n = ls_min(CHUNK, s->T - first);
            project(s, head, first, n, &d);
            for (int64_t i = 0; i < n; i++)
                if (counts(s, head.b, first + i)) most = fmax(most, largest_product(s, &d, i));
        }
        s->largest[piece] = most == -INFINITY ? 0 : most;
    }
}

/* ---- a row: y from a, in place ---- */

LS_INLINE ls_vec exponential(const job *s, ls_vec a, double off, ls_ivec *within) {
    ls_vec exponent = a - (float)off;
    *within = exponent <= (float)LS_FEATURES_MAX;
    if (s->about->stable == LS_STABLE_NONE)
        exponent = ls_vec_pick(*within, exponent, ls_vec_all((float)LS_FEATURES_MAX));
    return ls_vec_exp(exponent);
}

static void features_f64(const job *s, double off, double *a) {
    for (int64_t i = 0; i < s->M; i++) {
        if (s->about->kind == LS_FEATURES_RELU) {
            a[i] = fmax(a[i], 0) + s->about->epsilon;
            continue;
        }
        double exponent = a[i] - off;
        if (s->about->stable == LS_STABLE_NONE) exponent = fmin(exponent, LS_FEATURES_MAX);
        a[i] = s->share * (exp(exponent) + s->about->epsilon);
    }
}

static void features_f32(const job *s, double off, float *a) {
    const float epsilon = (float)s->about->epsilon, share = (float)s->share;
    for (int64_t i = 0; i < s->M; i += LS_LANES) {
        ls_vec x = ls_load_left(a, LS_F32, i, s->M - i);
        ls_ivec within;
        if (s->about->kind == LS_FEATURES_RELU)
            x = ls_vec_pick(x > 0.0f, x, ls_vec_all(0)) + epsilon;
        else
            x = share * (exponential(s, x, off, &within) + epsilon);
        ls_store_left(a, LS_F32, i, s->M - i, x);
    }
}

static void forward(const ls_run *run, const ls_node *node) {
    job s = job_of(node);
    survey(&s, run);
    const int64_t chunks = ls_ceil_div(s.T, CHUNK);
    const size_t row_bytes = (size_t)s.M * ls_dtype_size(s.wide);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < s.B * chunks * s.H; piece++) {
        const ls_head head = {piece / s.H / chunks, piece % s.H};
        const int64_t first = piece / s.H % chunks * CHUNK, n = ls_min(CHUNK, s.T - first);
        const scratch d = scratch_of(&s, run);
        project(&s, head, first, n, &d);
        for (int64_t i = 0; i < n; i++) {
            void *a = (char *)d.a + (size_t)i * row_bytes;
            double off = s.about->kind == LS_FEATURES_EXP ? taken_off(&s, head, &d, i) : 0;
            if (!counts(&s, head.b, first + i))
                memset(a, 0, row_bytes);
            else if (s.wide == LS_F64)
                features_f64(&s, off, a);
            else
                features_f32(&s, off, a);
        }
        ls_head_store(node->out[0], head, first, n, d.a, s.M);
    }
}

/* ---- backward: dy becomes the gradient of the exponents, or of a; their sum is returned ---- */

static double slopes_f64(const job *s, double off, const double *a, double *dy) {
    double sum = 0;
    for (int64_t i = 0; i < s->M; i++) {
        double exponent = a[i] - off;
        bool within = s->about->stable != LS_STABLE_NONE || exponent <= LS_FEATURES_MAX;
        if (s->about->kind == LS_FEATURES_RELU)
            dy[i] = a[i] > 0 ? dy[i] : 0;
        else
            sum += dy[i] = within ? dy[i] * s->share * exp(exponent) : 0;
    }
    return sum;
}

static double slopes_f32(const job *s, double off, const float *a, float *dy) {
    ls_vec sum = ls_vec_all(0);
    for (int64_t i = 0; i < s->M; i += LS_LANES) {
        ls_vec x = ls_load_left(a, LS_F32, i, s->M - i), d = ls_load_left(dy, LS_F32, i, s->M - i);
        ls_ivec within;
        if (s->about->kind == LS_FEATURES_RELU) {
            d = ls_vec_pick(x > 0.0f, d, ls_vec_all(0));
        } else {
            d *= (float)s->share * exponential(s, x, off, &within);
            if (s->about->stable == LS_STABLE_NONE) d = ls_vec_pick(within, d, ls_vec_all(0));
            sum += d;
        }
        ls_store_left(dy, LS_F32, i, s->M - i, d);
    }
    return (double)ls_vec_sum(sum);
}

/* Element i of a row gets `value` more. */
static void add_to(const job *s, void *row, int64_t i, double value) {
    if (s->wide == LS_F64)
        ((double *)row)[i] += value;
    else
        ((float *)row)[i] += (float)value;
}

/* Row i of d->dy: from the features' gradient to that of the products; z becomes -z sum. */
static void row_back(const job *s, ls_head head, const scratch *d, int64_t i, bool counted) {
    const size_t size = ls_dtype_size(s->wide);
    void *dy = (char *)d->dy + (size_t)(i * s->M) * size;
    void *z = (char *)d->z + (size_t)(i * s->K) * size;
    const void *a = (const char *)d->a + (size_t)(i * s->M) * size;
    double off = s->about->kind == LS_FEATURES_EXP ? taken_off(s, head, d, i) : 0, sum = 0;
    if (!counted)
        memset(dy, 0, (size_t)s->M * size);
    else
        sum = s->wide == LS_F64 ? slopes_f64(s, off, a, dy) : slopes_f32(s, off, a, dy);
    if (s->about->kind == LS_FEATURES_EXP && s->about->stable == LS_STABLE_ROW) {
        /* the exponent that is taken off had |z|^2 / 2 too */
        add_to(s, dy, place_of(s, d, i, off), -sum);
        sum = 0;
    }
    scale_rows(s, z, s->K, -sum);
}

static void backward(const ls_run *run, const ls_node *node) {
    job s = job_of(node);
    survey(&s, run);
    const int64_t chunks = ls_ceil_div(s.T, CHUNK);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < s.B * chunks * s.H; piece++) {
        const ls_head head = {piece / s.H / chunks, piece % s.H};
        const int64_t first = piece / s.H % chunks * CHUNK, n = ls_min(CHUNK, s.T - first);
        const scratch d = scratch_of(&s, run);
        project(&s, head, first, n, &d);
        ls_head_load(node->in[LS_FEATURES_DY], head, first, n, d.dy, s.M);
        for (int64_t i = 0; i < n; i++) row_back(&s, head, &d, i, counts(&s, head.b, first + i));
        void *dz = d.z;
        if (s.directions == NULL) {
            dz = d.dy;
        } else {
            ls_gemm g = {.m = n,
                         .n = s.K,
                         .k = s.M,
                         .a = ls_plain_matrix(d.dy, s.wide, s.M),
                         .b = ls_plain_matrix(ls_data(s.directions), s.wide, s.K),
                         .c = d.z,
                         .c_type = s.wide,
                         .c_stride = s.K,
                         .add = true};
            ls_gemm_run(&g, 1, d.product);
        }
        scale_rows(&s, dz, n * s.K, s.about->scale);
        ls_head_store(node->out[0], head, first, n, dz, s.K);
    }
}

const ls_kernel LS_CPU_TABLE(features)[] = {
    {"features", {forward, forward, forward}, workspace},
    {"features_grad", {backward, backward, backward}, workspace},
    {0},
};
