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

enum { USUAL = 16, PARTS = 1 }; /* states of Mamba's channels */

LS_INLINE ls_vec advance_lanes(const ls_scan_block *w, int64_t N, const ls_scan_lanes *token,
                               const float *B, const float *before, float *after, float *decays) {
    const float *C = B + N;
    ls_vec moved = token->step * token->u, out = w->D * token->u;
#pragma GCC unroll 4
    for (int64_t n = 0; n < N; n++) {
        ls_vec decay = ls_vec_exp2(token->step * ls_load(w->A, LS_F32, n * LS_LANES));
        ls_vec state = decay * ls_load(before, LS_F32, n * LS_LANES) + moved * B[n];
        if (decays != NULL) ls_store(decays, LS_F32, n * LS_LANES, decay);
        ls_store(after, LS_F32, n * LS_LANES, state);
        out += state * C[n];
    }
    return out;
}

LS_INLINE ls_scan_sent_lanes retreat_lanes(const ls_scan_block *w, int64_t N,
                                           const ls_scan_lanes *token, const float *B,
                                           const float *h, const float *decays, float *dB,
                                           const ls_scan_return *to) {
    const float *C = B + N, *after = h + N * LS_LANES;
    float *dC = dB + N * LS_LANES, *later = to->later, *dA = to->dA;
    const bool fresh = to->fresh;
    ls_vec dy = token->dy, moved = token->step * token->u;
    ls_vec along_B = ls_vec_all(0), along_A = ls_vec_all(0);
#pragma GCC unroll 4
    for (int64_t n = 0; n < N; n++) {
        int64_t lane = n * LS_LANES;
        ls_vec here = ls_load(later, LS_F32, lane) + dy * C[n];
        ls_vec earlier = here * ls_load(decays, LS_F32, lane);
        ls_vec through = earlier * ls_load(h, LS_F32, lane);
        ls_vec to_B = here * moved, to_C = dy * ls_load(after, LS_F32, lane);
        if (!fresh) {
            to_B += ls_load(dB, LS_F32, lane);
            to_C += ls_load(dC, LS_F32, lane);
        }
        ls_store(dB, LS_F32, lane, to_B);
        ls_store(dC, LS_F32, lane, to_C);
        along_B += here * B[n];
        along_A += through * ls_load(w->A, LS_F32, lane);
        ls_store(dA, LS_F32, lane, ls_load(dA, LS_F32, lane) + token->step * through);
        ls_store(later, LS_F32, lane, earlier);
    }
    return (ls_scan_sent_lanes){ls_scan_ln_2 * along_A, along_B};
}

#include "tensor/op/selective_scan/selective_scan_states_cpu.h"

static const ls_recurrence real = LS_SCAN_RECURRENCE;

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
