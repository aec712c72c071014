/* Cases of tests/golden that give queries, keys and values [B,H,T,W] of bare heads: a mixer whose
 * projections let everything through is run on them. */
#ifndef LS_TESTS_GOLDEN_HEADS_H
#define LS_TESTS_GOLDEN_HEADS_H

#include "mixer_case.h"
#include "model/safetensors.h"

typedef struct golden_heads {
    ls_safetensors file;
    int64_t B, H, T, W;
    double *x, *cot, *valid; /* [B,T,3 H W], [B,T,3 H W], [B,T] or NULL */
} golden_heads;

/* [B,H,T,W] into columns of [B,T,3 H W], from the one given on. */
static inline void golden_place(const golden_heads *g, const double *from, int64_t column,
                                double *to) {
    for (int64_t b = 0; b < g->B; b++)
        for (int64_t h = 0; h < g->H; h++)
            for (int64_t t = 0; t < g->T; t++)
                memcpy(to + (b * g->T + t) * 3 * g->H * g->W + column + h * g->W,
                       from + ((b * g->H + h) * g->T + t) * g->W, (size_t)g->W * sizeof(double));
}

/* A tensor of the file as doubles, which the caller frees; NULL where there is none. */
static inline double *golden_tensor(const golden_heads *g, const char *name, int64_t *count) {
    const ls_safetensor *tensor = ls_safetensors_find(&g->file, name);
    *count = 0;
    if (tensor == NULL) return NULL;
    double *values = malloc((size_t)tensor->count * sizeof *values);
    ls_safetensor_f64(tensor, 0, tensor->count, values);
    *count = tensor->count;
    return values;
}

static inline void golden_heads_open(ls_ctx *ctx, const char *path, golden_heads *g) {
    static const char *const parts[] = {"in.q", "in.k", "in.v"};
    int64_t count;
    *g = (golden_heads){0};
    expect(ctx, ls_safetensors_open(ctx, path, &g->file));
    const ls_safetensor *q = ls_safetensors_find(&g->file, "in.q");
    assert_true(q != NULL && q->rank == 4);
    g->B = q->dim[0], g->H = q->dim[1], g->T = q->dim[2], g->W = q->dim[3];
    g->x = calloc((size_t)(3 * q->count), sizeof *g->x);
    g->cot = calloc((size_t)(3 * q->count), sizeof *g->cot);
    for (int i = 0; i < 4; i++) {
        double *values = golden_tensor(g, i < 3 ? parts[i] : "cot", &count);
        assert_true(values != NULL && count == q->count);
        golden_place(g, values, i < 3 ? i * g->H * g->W : 0, i < 3 ? g->x : g->cot);
        free(values);
    }
    g->valid = golden_tensor(g, "in.mask", &count);
}

static inline void golden_heads_close(ls_ctx *ctx, golden_heads *g) {
    ls_safetensors_close(ctx, &g->file);
    free(g->x), free(g->cot), free(g->valid);
}

/* Columns of rows [B,T,3 H W] against a tensor [B,H,T,W] of the file. */
static inline void golden_same(const golden_heads *g, const char *name, const double *rows,
                               int64_t column, double tolerance) {
    int64_t count;
    double *want = golden_tensor(g, name, &count);
    assert_non_null(want);
    double *here = calloc((size_t)(3 * count), sizeof *here);
    double *there = calloc((size_t)(3 * count), sizeof *there);
    golden_place(g, want, column, there);
    for (int64_t row = 0; row < g->B * g->T; row++)
        memcpy(here + row * 3 * g->H * g->W + column, rows + row * 3 * g->H * g->W + column,
               (size_t)(g->H * g->W) * sizeof *here);
    mixer_same(name, here, there, 3 * count, tolerance);
    free(want), free(here), free(there);
}

/* Outputs and gradients of a mixer, in f64; `b` stays for its weights' gradients. */
static inline void golden_run(ls_ctx *ctx, const golden_heads *g, const mixer_case *c, bench *b) {
    *b = mixer_bench(
        ctx, c, (ls_program_options){.type = LS_F64, .batch = g->B, .length = g->T, .grad = true});
    put_values(b, "x", g->x);
    put_values(b, "cot", g->cot);
    if (c->padded) put_values(b, "valid", g->valid);
    ls_parameters_clear_gradient(b->store);
    expect(ctx, ls_program_run(b->program, NULL, 0, 0));
    double *y = read_all(ls_program_find(b->program, "y"));
    double *dx = read_all(ls_program_find(b->program, "grad.x"));
    golden_same(g, "out.y", y, 0, 1e-10);
    golden_same(g, "grad.in.q", dx, 0, 1e-10);
    golden_same(g, "grad.in.k", dx, g->H * g->W, 1e-10);
    golden_same(g, "grad.in.v", dx, 2 * g->H * g->W, 1e-10);
    free(y), free(dx);
}

#endif
