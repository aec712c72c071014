/* One piece of work is a head of a sequence; its matrices are f32 (f64 in f64) and its products
 * the library's. */
#include "tensor/op/landmark_inverse/landmark_inverse.h"

#include <math.h>
#include <omp.h>

#include "tensor/cpu/head_rows.h"

typedef struct inverse {
    int64_t pieces, H, M, K, V, iterations;
    double scale;
    bool joint;
    ls_dtype type; /* of the matrices */
} inverse;

static inverse inverse_of(const ls_node *node) {
    const ls_landmark_options *o = node->attributes;
    const int64_t *dim = node->in[LS_LANDMARK_Q]->dim;
    return (inverse){.pieces = dim[0] * dim[2],
                     .H = dim[2],
                     .M = dim[1],
                     .K = dim[3],
                     .V = node->in[LS_LANDMARK_X]->dim[3],
                     .iterations = o->iterations,
                     .scale = o->scale,
                     .joint = o->joint,
                     .type = ls_wide_of(node->in[LS_LANDMARK_Q])};
}

/* ---- workspace ---- */

/* What a thread works with: square matrices, rows of the operands, and its products' own. */
typedef struct scratch {
    void *A, *X, *Y, *U, *T, *next;
    void *dA, *dZ, *dT, *nU, *dX; /* backward */
    char *Z;                      /* backward: one for each step and the first */
    void *q, *k, *x, *y;          /* [M,K], [M,K], [M,V], [M,V] */
    void *rows;                   /* [M,K] */
    void *product;
} scratch;

static size_t square_bytes(const inverse *s) {
    return (size_t)ls_round_up(s->M * s->M, 16) * ls_dtype_size(s->type);
}

/* Every product that occurs has M rows. */
static size_t product_bytes(const inverse *s) {
    const int64_t size[3] = {s->M, s->K, s->V};
    size_t most = 0;
    for (int i = 0; i < 9; i++) {
        size_t bytes = ls_product_bytes(s->M, size[i % 3], size[i / 3], s->type, s->type);
        if (bytes > most) most = bytes;
    }
    return most;
}

static size_t lay_scratch(const inverse *s, bool backward, char *base, scratch *d) {
    size_t used = 0, square = square_bytes(s), size = ls_dtype_size(s->type);
    void **forward[] = {&d->A, &d->X, &d->Y, &d->U, &d->T, &d->next};
    void **more[] = {&d->dA, &d->dZ, &d->dT, &d->nU, &d->dX};
    for (int i = 0; i < 6; i++) *forward[i] = ls_take(base, &used, square);
    for (int i = 0; backward && i < 5; i++) *more[i] = ls_take(base, &used, square);
    d->Z = ls_take(base, &used, square * (size_t)(backward ? s->iterations + 1 : 1));
    d->q = ls_take(base, &used, (size_t)(s->M * s->K) * size);
    d->k = ls_take(base, &used, (size_t)(s->M * s->K) * size);
    d->x = ls_take(base, &used, (size_t)(s->M * s->V) * size);
    d->y = ls_take(base, &used, (size_t)(s->M * s->V) * size);
    d->rows = ls_take(base, &used, (size_t)(s->M * s->K) * size);
    d->product = ls_take(base, &used, product_bytes(s));
    return used;
}

/* What pieces leave for one another where they start jointly. */
typedef struct board {
    double *largest, *slope; /* per piece: its largest column sum, d objective / d c */
    int64_t *column;         /* where that sum is */
    char *dA;                /* backward */
} board;

static size_t lay_board(const inverse *s, bool backward, char *base, board *b) {
    size_t used = 0, pieces = (size_t)s->pieces;
    b->largest = ls_take(base, &used, pieces * sizeof(double));
    b->slope = ls_take(base, &used, pieces * sizeof(double));
    b->column = ls_take(base, &used, pieces * sizeof(int64_t));
    b->dA = ls_take(base, &used, s->joint && backward ? pieces * square_bytes(s) : 0);
    return used;
}

static size_t workspace_of(const ls_node *node, int threads, bool backward) {
    const inverse s = inverse_of(node);
    scratch d;
    board b;
    return lay_board(&s, backward, NULL, &b) +
           (size_t)threads * lay_scratch(&s, backward, NULL, &d);
}

static scratch scratch_of(const inverse *s, const ls_run *run, bool backward) {
    scratch d;
    board b;
    size_t shared = lay_board(s, backward, NULL, &b), each = lay_scratch(s, backward, NULL, &d);
    lay_scratch(s, backward, (char *)run->workspace + shared + (size_t)omp_get_thread_num() * each,
                &d);
    return d;
}

/* ---- small matrices ---- */

static double at(const inverse *s, const void *x, int64_t i) {
    return s->type == LS_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}
static void set(const inverse *s, void *x, int64_t i, double value) {
    if (s->type == LS_F64)
        ((double *)x)[i] = value;
    else
        ((float *)x)[i] = (float)value;
}

static ls_matrix square(const inverse *s, const void *data) {
    return ls_plain_matrix(data, s->type, s->M);
}

/* c[M,n] = a b, or c += a b, where a is [M,k]. */
static void multiply(const inverse *s, const scratch *d, int64_t n, int64_t k, ls_matrix a,
                     ls_matrix b, void *c, bool add) {
    ls_gemm g = {.m = s->M, .n = n, .k = k, .a = a, .b = b, .c = c, .c_type = s->type};
    g.c_stride = n;
    g.add = add;
    ls_gemm_run(&g, 1, d->product);
}

/* c = a b of square matrices, or c += a b. */
static void product(const inverse *s, const scratch *d, ls_matrix a, ls_matrix b, void *c,
                    bool add) {
    multiply(s, d, s->M, s->M, a, b, c, add);
}

/* out = a x + b y + number, the last as a multiple of the unit matrix; y may be NULL. */
static void combine(const inverse *s, double number, double a, const void *x, double b,
                    const void *y, void *out) {
    const int64_t count = s->M * s->M;
    if (s->type == LS_F64) {
        const double *p = x, *q = y;
        for (int64_t i = 0; i < count; i++) ((double *)out)[i] = a * p[i] + (q ? b * q[i] : 0);
    } else {
        for (int64_t i = 0; i < count; i += LS_LANES) { /* squares have room for whole vectors */
            ls_vec sum = (float)a * ls_load(x, LS_F32, i);
            if (y != NULL) sum += (float)b * ls_load(y, LS_F32, i);
            ls_store(out, LS_F32, i, sum);
        }
    }
    for (int64_t i = 0; i < s->M; i++) set(s, out, i * s->M + i, at(s, out, i * s->M + i) + number);
}

/* c = number - a b */
static void remainder_of(const inverse *s, const scratch *d, double number, const void *a,
                         const void *b, void *c) {
    product(s, d, square(s, a), square(s, b), c, false);
    combine(s, number, -1, c, 0, NULL, c);
}

/* x += factor y^T */
static void add_transposed(const inverse *s, double factor, const void *y, void *x) {
    for (int64_t i = 0; i < s->M; i++)
        for (int64_t j = 0; j < s->M; j++)
            set(s, x, i * s->M + j, at(s, x, i * s->M + j) + factor * at(s, y, j * s->M + i));
}

static ls_head head_of(const inverse *s, int64_t piece) {
    return (ls_head){piece / s->H, piece % s->H};
}

static void load_rows(const inverse *s, const ls_tensor *x, int64_t piece, void *to) {
    ls_head_load(x, head_of(s, piece), 0, s->M, to, x->dim[3]);
}

static void store_rows(const inverse *s, const ls_tensor *x, int64_t piece, const void *from) {
    ls_head_store(x, head_of(s, piece), 0, s->M, from, x->dim[3]);
}

/* ---- A, and where Z starts ---- */

static void find_A(const inverse *s, const ls_node *node, int64_t piece, const scratch *d) {
    const int64_t M = s->M;
    load_rows(s, node->in[LS_LANDMARK_Q], piece, d->q);
    load_rows(s, node->in[LS_LANDMARK_K], piece, d->k);
    multiply(s, d, M, s->K, ls_plain_matrix(d->q, s->type, s->K),
             ls_transposed(ls_plain_matrix(d->k, s->type, s->K)), d->A, false);
    for (int64_t i = 0; i < M; i++) {
        double most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < M; j++) {
            const double score = s->scale * at(s, d->A, i * M + j);
            if (score > most) most = score;
        }
        for (int64_t j = 0; j < M; j++) {
            double e = exp(s->scale * at(s, d->A, i * M + j) - most);
            set(s, d->A, i * M + j, e);
            sum += e;
        }
        for (int64_t j = 0; j < M; j++) set(s, d->A, i * M + j, at(s, d->A, i * M + j) / sum);
    }
}

/* A sum that is not a number counts as the largest: it must not be lost, and a column there is. */
static double largest_column(const inverse *s, const void *A, int64_t *column) {
    double most = -INFINITY;
    *column = 0;
    for (int64_t j = 0; j < s->M; j++) {
        double sum = 0;
        for (int64_t i = 0; i < s->M; i++) sum += at(s, A, i * s->M + j);
        if (!(sum <= most)) most = sum, *column = j;
    }
    return most;
}

/* The piece whose column sum is the largest of all. */
static int64_t largest_piece(const inverse *s, const board *b) {
    int64_t best = 0;
    for (int64_t i = 1; i < s->pieces; i++)
        if (b->largest[i] > b->largest[best]) best = i;
    return best;
}

/* Where all start jointly, every A is needed before the first Z. */
static void survey(const inverse *s, const ls_run *run, const ls_node *node, const board *b,
                   bool backward) {
    if (!s->joint) return;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < s->pieces; piece++) {
        const scratch d = scratch_of(s, run, backward);
        find_A(s, node, piece, &d);
        b->largest[piece] = largest_column(s, d.A, &b->column[piece]);
    }
}

/* c of a piece whose A is there; notes its own column. */
static double start_of(const inverse *s, const board *b, int64_t piece, const scratch *d) {
    if (s->joint) return b->largest[largest_piece(s, b)];
    return b->largest[piece] = largest_column(s, d->A, &b->column[piece]);
}

static void start_Z(const inverse *s, double c, const void *A, void *Z) {
    for (int64_t i = 0; i < s->M; i++)
        for (int64_t j = 0; j < s->M; j++) set(s, Z, i * s->M + j, at(s, A, j * s->M + i) / c);
}

/* X = A Z, Y = 7 - X, U = 15 - X Y, T = 13 - X U. */
static void factors(const inverse *s, const scratch *d, const void *Z) {
    product(s, d, square(s, d->A), square(s, Z), d->X, false);
    combine(s, 7, -1, d->X, 0, NULL, d->Y);
    remainder_of(s, d, 15, d->X, d->Y, d->U);
    remainder_of(s, d, 13, d->X, d->U, d->T);
}

/* next = Z T / 4 */
static void step(const inverse *s, const scratch *d, const void *Z, void *next) {
    factors(s, d, Z);
    product(s, d, square(s, Z), square(s, d->T), next, false);
    combine(s, 0, 0.25, next, 0, NULL, next);
}

static void forward(const ls_run *run, const ls_node *node) {
    const inverse s = inverse_of(node);
    board b;
    lay_board(&s, false, run->workspace, &b);
    survey(&s, run, node, &b, false);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < s.pieces; piece++) {
        scratch d = scratch_of(&s, run, false);
        void *Z = d.Z;
        find_A(&s, node, piece, &d);
        start_Z(&s, start_of(&s, &b, piece, &d), d.A, Z);
        for (int64_t i = 0; i < s.iterations; i++) {
            void *before = Z;
            step(&s, &d, before, d.next);
            Z = d.next;
            d.next = before;
        }
        load_rows(&s, node->in[LS_LANDMARK_X], piece, d.x);
        multiply(&s, &d, s.V, s.M, square(&s, Z), ls_plain_matrix(d.x, s.type, s.V), d.y, false);
        store_rows(&s, node->out[0], piece, d.y);
    }
}

/* ---- backward ---- */

/* From dZ behind a step to dZ before it (in d->dZ again) and what reaches A: with Z' = Z T / 4,
 *   dT = Z^T dZ'/4,  nU = X^T dT (which is -dU),  dX = nU Y^T - dT U^T - X^T nU
 *   dA += dX Z^T,    dZ = dZ'/4 T^T + A^T dX */
static void step_back(const inverse *s, scratch *d, const void *Z, void *dA) {
    const ls_matrix X = square(s, d->X), nU = square(s, d->nU), dT = square(s, d->dT);
    factors(s, d, Z);
    combine(s, 0, 0.25, d->dZ, 0, NULL, d->dZ);
    product(s, d, ls_transposed(square(s, Z)), square(s, d->dZ), d->dT, false);
    product(s, d, ls_transposed(X), dT, d->nU, false);
    product(s, d, dT, ls_transposed(square(s, d->U)), d->next, false);
    product(s, d, ls_transposed(X), nU, d->next, true);
    product(s, d, nU, ls_transposed(square(s, d->Y)), d->dX, false);
    combine(s, 0, 1, d->dX, -1, d->next, d->dX);
    product(s, d, square(s, d->dX), ls_transposed(square(s, Z)), dA, true);
    product(s, d, square(s, d->dZ), ls_transposed(square(s, d->T)), d->next, false);
    product(s, d, ls_transposed(square(s, d->A)), square(s, d->dX), d->next, true);
    void *before = d->dZ;
    d->dZ = d->next;
    d->next = before;
}

/* Gradients of x, and of A but for what goes through c; returns d objective / d c. */
static double through_Z(const inverse *s, const ls_node *node, int64_t piece, double c, scratch *d,
                        void *dA) {
    const size_t bytes = square_bytes(s);
    start_Z(s, c, d->A, d->Z);
    for (int64_t i = 0; i < s->iterations; i++)
        step(s, d, d->Z + (size_t)i * bytes, d->Z + (size_t)(i + 1) * bytes);
    load_rows(s, node->in[LS_LANDMARK_X], piece, d->x);
    load_rows(s, node->in[LS_LANDMARK_DY], piece, d->y);
    multiply(s, d, s->M, s->V, ls_plain_matrix(d->y, s->type, s->V),
             ls_transposed(ls_plain_matrix(d->x, s->type, s->V)), d->dZ, false);
    multiply(s, d, s->V, s->M, ls_transposed(square(s, d->Z + (size_t)s->iterations * bytes)),
             ls_plain_matrix(d->y, s->type, s->V), d->x, false);
    store_rows(s, node->out[LS_LANDMARK_X], piece, d->x);
    memset(dA, 0, bytes);
    for (int64_t i = s->iterations - 1; i >= 0; i--) step_back(s, d, d->Z + (size_t)i * bytes, dA);
    add_transposed(s, 1 / c, d->dZ, dA);
    double dot = 0;
    for (int64_t i = 0; i < s->M * s->M; i++) dot += at(s, d->dZ, i) * at(s, d->Z, i);
    return -dot / c;
}

/* Through the softmax to q and k. */
static void through_A(const inverse *s, const ls_node *node, int64_t piece, const scratch *d,
                      void *dA) {
    const int64_t M = s->M;
    for (int64_t i = 0; i < M; i++) {
        double dot = 0;
        for (int64_t j = 0; j < M; j++) dot += at(s, dA, i * M + j) * at(s, d->A, i * M + j);
        for (int64_t j = 0; j < M; j++)
            set(s, dA, i * M + j, s->scale * at(s, d->A, i * M + j) * (at(s, dA, i * M + j) - dot));
    }
    multiply(s, d, s->K, M, square(s, dA), ls_plain_matrix(d->k, s->type, s->K), d->rows, false);
    store_rows(s, node->out[LS_LANDMARK_Q], piece, d->rows);
    multiply(s, d, s->K, M, ls_transposed(square(s, dA)), ls_plain_matrix(d->q, s->type, s->K),
             d->rows, false);
    store_rows(s, node->out[LS_LANDMARK_K], piece, d->rows);
}

/* c is the sum of a column of A. */
static void through_c(const inverse *s, int64_t column, double slope, void *dA) {
    for (int64_t i = 0; i < s->M; i++)
        set(s, dA, i * s->M + column, at(s, dA, i * s->M + column) + slope);
}

/* Where the start is joint, c belongs to one piece and all of them pull at it. */
static void finish_jointly(const inverse *s, const ls_run *run, const ls_node *node,
                           const board *b) {
    const int64_t owner = largest_piece(s, b);
    double slope = 0;
    for (int64_t piece = 0; piece < s->pieces; piece++) slope += b->slope[piece];
    through_c(s, b->column[owner], slope, b->dA + (size_t)owner * square_bytes(s));
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < s->pieces; piece++) {
        const scratch d = scratch_of(s, run, true);
        find_A(s, node, piece, &d);
        through_A(s, node, piece, &d, b->dA + (size_t)piece * square_bytes(s));
    }
}

static void backward(const ls_run *run, const ls_node *node) {
    const inverse s = inverse_of(node);
    board b;
    lay_board(&s, true, run->workspace, &b);
    survey(&s, run, node, &b, true);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < s.pieces; piece++) {
        scratch d = scratch_of(&s, run, true);
        void *dA = s.joint ? b.dA + (size_t)piece * square_bytes(&s) : d.dA;
        find_A(&s, node, piece, &d);
        double c = start_of(&s, &b, piece, &d);
        b.slope[piece] = through_Z(&s, node, piece, c, &d, dA);
        if (s.joint) continue;
        through_c(&s, b.column[piece], b.slope[piece], dA);
        through_A(&s, node, piece, &d, dA);
    }
    if (s.joint) finish_jointly(&s, run, node, &b);
}

static size_t forward_workspace(const ls_node *node, int threads) {
    return workspace_of(node, threads, false);
}
static size_t backward_workspace(const ls_node *node, int threads) {
    return workspace_of(node, threads, true);
}

const ls_kernel LS_CPU_TABLE(landmark_inverse)[] = {
    {"landmark_inverse", {forward, forward, forward}, forward_workspace},
    {"landmark_inverse_grad", {backward, backward, backward}, backward_workspace},
    {0},
};
