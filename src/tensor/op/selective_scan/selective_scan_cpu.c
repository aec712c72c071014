/* Real states: h <- e^(step A) h + step u B, read by C. */
#include <math.h>

#include "tensor/op/selective_scan/selective_scan_walk_cpu.h"

/* ---- reference ---- */

static double advance(const ls_scan_job *s, const ls_scan_token *token, double *h) {
    double y = 0;
    for (int64_t n = 0; n < s->N; n++) {
        double A = -exp(ls_scan_one(s->A_log, token->e * s->N + n));
        h[n] =
            exp(token->step * A) * h[n] + token->step * ls_scan_at(s->B, token->row, n) * token->u;
        y += ls_scan_at(s->C, token->row, n) * h[n];
    }
    return y;
}

static ls_scan_sent retreat(const ls_scan_job *s, const ls_scan_gradients *d,
                            const ls_scan_token *token, const double *h, double *g) {
    const int64_t row = token->row;
    ls_scan_sent sent = {0};
    for (int64_t n = 0; n < s->N; n++) {
        double A = -exp(ls_scan_one(s->A_log, token->e * s->N + n)), decay = exp(token->step * A);
        g[n] += ls_scan_at(s->C, row, n) * token->dy;
        double through = g[n] * decay * h[n - s->N];
        *ls_scan_spot(d->dC, row, n) += token->dy * h[n];
        *ls_scan_spot(d->dB, row, n) += g[n] * token->step * token->u;
        sent.through_A += A * through;
        sent.through_B += g[n] * ls_scan_at(s->B, row, n);
        ((double *)d->dA_log)[token->e * s->N + n] += token->step * through * A;
        g[n] *= decay;
    }
    return sent;
}

/* ---- f32 and bf16 ---- */

enum { USUAL = 16 }; /* states of Mamba's channels */

LS_INLINE void walk(const ls_scan_block *w, ls_dtype type, int64_t N, int64_t first, int64_t count,
                    float *h, ls_scan_rows y) {
    ls_vec slope;
    for (int64_t row = first; row < first + count; row++) {
        const float *B = w->BC + row * 2 * N, *C = B + N;
        ls_vec step = ls_scan_steps(w, type, row, &slope);
        ls_vec u = ls_scan_take(w, type, w->s->u, row), moved = step * u, out = w->D * u;
#pragma GCC unroll 4
        for (int64_t n = 0; n < N; n++) {
            ls_vec state = ls_vec_exp2(step * ls_load(w->A, LS_F32, n * LS_LANES)) *
                               ls_load(h, LS_F32, n * LS_LANES) +
                           moved * B[n];
            ls_store(h, LS_F32, n * LS_LANES, state);
            out += state * C[n];
        }
        ls_scan_give_output(w, type, y, row, out);
    }
}

LS_INLINE void walk_again(const ls_scan_block *w, ls_dtype type, int64_t N,
                          const ls_scan_gradients *g, int64_t first, int64_t count,
                          const ls_scan_scratch *scratch) {
    for (int64_t t = 0; t < count; t++) {
        int64_t row = first + t;
        const float *B = w->BC + row * 2 * N, *C = B + N;
        float *h = scratch->h + t * N * LS_LANES, *decays = scratch->decay + t * N * LS_LANES;
        ls_scan_lanes token = {.u = ls_scan_take(w, type, w->s->u, row)};
        ls_vec step = token.step = ls_scan_steps(w, type, row, &token.slope);
        ls_vec moved = step * token.u, out = w->D * token.u;
#pragma GCC unroll 4
        for (int64_t n = 0; n < N; n++) {
            ls_vec decay = ls_vec_exp2(step * ls_load(w->A, LS_F32, n * LS_LANES));
            ls_vec state = decay * ls_load(h, LS_F32, n * LS_LANES) + moved * B[n];
            ls_store(decays, LS_F32, n * LS_LANES, decay);
            ls_store(h, LS_F32, (N + n) * LS_LANES, state);
            out += state * C[n];
        }
        ls_scan_note(w, type, g, scratch, row, t, token, out);
    }
}

LS_INLINE void walk_back(const ls_scan_block *w, ls_dtype type, int64_t N,
                         const ls_scan_gradients *g, int64_t first, int64_t count,
                         const ls_scan_scratch *scratch, const ls_scan_return *to) {
    float *later = to->later, *dA = to->dA;
    const bool fresh = to->fresh;
    ls_vec dD = ls_vec_all(0), dbias = ls_vec_all(0);
    for (int64_t t = count - 1; t >= 0; t--) {
        int64_t row = first + t;
        const float *B = w->BC + row * 2 * N, *C = B + N;
        const float *h = scratch->h + t * N * LS_LANES, *decays = scratch->decay + t * N * LS_LANES;
        float *dBC = scratch->dBC + t * 2 * N * LS_LANES;
        const ls_scan_lanes token = ls_scan_noted(scratch, t);
        ls_vec step = token.step, moved = step * token.u;
        ls_vec dy = token.dy;
        ls_vec along_B = ls_vec_all(0), along_A = ls_vec_all(0);
#pragma GCC unroll 4
        for (int64_t n = 0; n < N; n++) {
            int64_t lane = n * LS_LANES;
            ls_vec here = ls_load(later, LS_F32, lane) + dy * C[n];
            ls_vec earlier = here * ls_load(decays, LS_F32, lane);
            ls_vec through = earlier * ls_load(h, LS_F32, lane);
            ls_vec dB = here * moved, dC = dy * ls_load(h, LS_F32, N * LS_LANES + lane);
            if (!fresh) {
                dB += ls_load(dBC, LS_F32, lane);
                dC += ls_load(dBC, LS_F32, N * LS_LANES + lane);
            }
            ls_store(dBC, LS_F32, lane, dB);
            ls_store(dBC, LS_F32, N * LS_LANES + lane, dC);
            along_B += here * B[n];
            along_A += through * ls_load(w->A, LS_F32, lane);
            ls_store(dA, LS_F32, lane, ls_load(dA, LS_F32, lane) + step * through);
            ls_store(later, LS_F32, lane, earlier);
        }
        ls_scan_send(w, type, g, row, &token, ls_scan_ln_2 * along_A, along_B, &dD, &dbias);
    }
    ls_scan_add_vectors(to, dD, dbias);
}

static void walk_any(const ls_scan_block *w, ls_dtype type, int64_t first, int64_t count, float *h,
                     ls_scan_rows y) {
    LS_SCAN_WALK(walk, USUAL, w, type, first, count, h, y);
}
static void walk_again_any(const ls_scan_block *w, ls_dtype type, const ls_scan_gradients *g,
                           int64_t first, int64_t count, const ls_scan_scratch *scratch) {
    LS_SCAN_WALK(walk_again, USUAL, w, type, g, first, count, scratch);
}
static void walk_back_any(const ls_scan_block *w, ls_dtype type, const ls_scan_gradients *g,
                          int64_t first, int64_t count, const ls_scan_scratch *scratch,
                          const ls_scan_return *to) {
    LS_SCAN_WALK(walk_back, USUAL, w, type, g, first, count, scratch, to);
}

static const ls_recurrence real = {advance, retreat, walk_any, walk_again_any, walk_back_any};

static void forward(const ls_run *run, const ls_node *node) {
    ls_scan_forward(run, node, &real);
}
static void backward(const ls_run *run, const ls_node *node) {
    ls_scan_backward(run, node, &real);
}
static void complex_forward(const ls_run *run, const ls_node *node) {
    ls_scan_forward(run, node, &ls_scan_complex);
}
static void complex_backward(const ls_run *run, const ls_node *node) {
    ls_scan_backward(run, node, &ls_scan_complex);
}

const ls_kernel LS_CPU_TABLE(selective_scan)[] = {
    {"selective_scan", {forward, forward, forward}, ls_scan_forward_workspace},
    {"selective_scan_grad", {backward, backward, backward}, ls_scan_backward_workspace},
    {"complex_scan",
     {complex_forward, complex_forward, complex_forward},
     ls_scan_forward_workspace},
    {"complex_scan_grad",
     {complex_backward, complex_backward, complex_backward},
     ls_scan_backward_workspace},
    {0},
};
