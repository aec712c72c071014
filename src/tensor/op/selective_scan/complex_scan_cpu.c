/* Complex states in pairs (re, im), which stand for themselves and their conjugates:
 * h <- e^(step A) h + step u B, read as 2 Re(C h). Gradients of a complex number are those of its
 * two parts, d re + i d im; so what passes a product z w comes back times conj(w) and conj(z). */
#include <math.h>

#include "tensor/cpu/hold.h"
#include "tensor/op/selective_scan/selective_scan_walk_cpu.h"

/* ---- reference ---- */

static double complex pair_at(ls_scan_rows r, int64_t row, int64_t n) {
    return ls_complex(ls_scan_at(r, row, 2 * n), ls_scan_at(r, row, 2 * n + 1));
}

static void add_pair(ls_scan_rows r, int64_t row, int64_t n, double complex value) {
    *ls_scan_spot(r, row, 2 * n) += creal(value);
    *ls_scan_spot(r, row, 2 * n + 1) += cimag(value);
}

static double complex number(const double *pairs, int64_t n) {
    return ls_complex(pairs[2 * n], pairs[2 * n + 1]);
}

static void set_number(double *pairs, int64_t n, double complex value) {
    pairs[2 * n] = creal(value);
    pairs[2 * n + 1] = cimag(value);
}

static double complex pole(const ls_scan_job *s, int64_t e, int64_t n) {
    return ls_complex(-exp(ls_scan_one(s->A_log, e * s->N + n)),
                      ls_scan_one(s->A_im, e * s->N + n));
}

static double complex decay_of(double step, double complex A) {
    const double size = exp(step * creal(A)), angle = step * cimag(A);
    return ls_complex(size * cos(angle), size * sin(angle));
}

static double advance(const ls_scan_job *s, const ls_scan_token *token, double *h) {
    double y = 0;
    for (int64_t n = 0; n < s->N; n++) {
        const double complex next = decay_of(token->step, pole(s, token->e, n)) * number(h, n) +
                                    token->step * token->u * pair_at(s->B, token->row, n);
        set_number(h, n, next);
        y += 2 * creal(pair_at(s->C, token->row, n) * next);
    }
    return y;
}

static ls_scan_sent retreat(const ls_scan_job *s, const ls_scan_gradients *d,
                            const ls_scan_token *token, const double *h, double *g) {
    const int64_t row = token->row;
    ls_scan_sent sent = {0};
    for (int64_t n = 0; n < s->N; n++) {
        const double complex A = pole(s, token->e, n);
        const double complex here = number(g, n) + 2 * token->dy * conj(pair_at(s->C, row, n));
        const double complex earlier = here * conj(decay_of(token->step, A));
        const double complex through = earlier * conj(number(h - s->M, n));
        add_pair(d->dC, row, n, 2 * token->dy * conj(number(h, n)));
        add_pair(d->dB, row, n, token->step * token->u * here);
        sent.through_A += creal(through * conj(A));
        sent.through_B += creal(here * conj(pair_at(s->B, row, n)));
        ((double *)d->dA_log)[token->e * s->N + n] += token->step * creal(through) * creal(A);
        ((double *)d->dA_im)[token->e * s->N + n] += token->step * cimag(through);
        set_number(g, n, earlier);
    }
    return sent;
}

/* ---- f32 and bf16 ---- */

enum { USUAL = 8, PARTS = 2 }; /* states of Mamba's channels: 16 with their conjugates */
static const float half_pi = 1.57079632679489662f;

/* The numbers of a block of channels. */
typedef struct pair {
    ls_vec re, im;
} pair;

LS_INLINE pair load_pair(const float *lanes, int64_t n) {
    return (pair){ls_load(lanes, LS_F32, 2 * n * LS_LANES),
                  ls_load(lanes, LS_F32, (2 * n + 1) * LS_LANES)};
}

LS_INLINE void store_pair(float *lanes, int64_t n, pair value) {
    ls_store(lanes, LS_F32, 2 * n * LS_LANES, value.re);
    ls_store(lanes, LS_F32, (2 * n + 1) * LS_LANES, value.im);
}

LS_INLINE pair times_conjugate(pair g, pair z) {
    return (pair){g.re * z.re + g.im * z.im, g.im * z.re - g.re * z.im};
}

LS_INLINE pair decays_of(ls_vec step, pair A) {
    ls_vec size = ls_vec_exp2(step * A.re), sine;
    ls_vec cosine = ls_vec_cosine(step * A.im, &sine);
    return (pair){size * cosine, size * sine};
}

/* decay h + moved B[n] */
LS_INLINE pair next_state(pair decay, pair h, ls_vec moved, const float *B, int64_t n) {
    return (pair){decay.re * h.re - decay.im * h.im + moved * B[2 * n],
                  decay.re * h.im + decay.im * h.re + moved * B[2 * n + 1]};
}

LS_INLINE ls_vec advance_lanes(const ls_scan_block *w, int64_t N, const ls_scan_lanes *token,
                               const float *B, const float *before, float *after, float *decays) {
    const float *C = B + 2 * N;
    ls_vec moved = token->step * token->u, half = ls_vec_all(0);
#pragma GCC unroll 2
    for (int64_t n = 0; n < N; n++) {
        pair decay = decays_of(token->step, load_pair(w->A, n));
        pair state = next_state(decay, load_pair(before, n), moved, B, n);
        if (decays != NULL) store_pair(decays, n, decay);
        store_pair(after, n, state);
        half += state.re * C[2 * n] - state.im * C[2 * n + 1];
    }
    return w->D * token->u + 2.0f * half;
}

LS_INLINE ls_scan_sent_lanes retreat_lanes(const ls_scan_block *w, int64_t N,
                                           const ls_scan_lanes *token, const float *B,
                                           const float *h, const float *decays, float *dB,
                                           const ls_scan_return *to) {
    const float *C = B + 2 * N;
    float *dC = dB + 2 * N * LS_LANES;
    ls_vec step = token->step, moved = step * token->u;
    ls_vec twice = 2.0f * token->dy;
    ls_vec along_B = ls_vec_all(0), along_re = ls_vec_all(0), along_im = ls_vec_all(0);
#pragma GCC unroll 2
    for (int64_t n = 0; n < N; n++) {
        pair here = load_pair(to->later, n), after = load_pair(h, N + n);
        here.re += twice * C[2 * n];
        here.im -= twice * C[2 * n + 1];
        pair earlier = times_conjugate(here, load_pair(decays, n));
        pair through = times_conjugate(earlier, load_pair(h, n));
        pair to_B = {here.re * moved, here.im * moved};
        pair to_C = {twice * after.re, -twice * after.im};
        if (!to->fresh) {
            pair B_sum = load_pair(dB, n), C_sum = load_pair(dC, n);
            to_B.re += B_sum.re, to_B.im += B_sum.im;
            to_C.re += C_sum.re, to_C.im += C_sum.im;
        }
        store_pair(dB, n, to_B);
        store_pair(dC, n, to_C);
        pair A = load_pair(w->A, n), sum = load_pair(to->dA, n);
        along_B += here.re * B[2 * n] + here.im * B[2 * n + 1];
        along_re += through.re * A.re;
        along_im += through.im * A.im;
        store_pair(to->dA, n, (pair){sum.re + step * through.re, sum.im + step * through.im});
        store_pair(to->later, n, earlier);
    }
    /* A's own units again */
    return (ls_scan_sent_lanes){ls_scan_ln_2 * along_re + half_pi * along_im, along_B};
}

#include "tensor/op/selective_scan/selective_scan_states_cpu.h"

const ls_recurrence ls_scan_complex = LS_SCAN_RECURRENCE;
