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

enum { USUAL = 8 }; /* states of Mamba's channels: 16 with their conjugates */
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

LS_INLINE void walk(const ls_scan_block *w, ls_dtype type, int64_t N, int64_t first, int64_t count,
                    float *h, ls_scan_rows y) {
    ls_vec slope;
    for (int64_t row = first; row < first + count; row++) {
        const float *B = w->BC + row * 4 * N, *C = B + 2 * N;
        ls_vec step = ls_scan_steps(w, type, row, &slope);
        ls_vec u = ls_scan_take(w, type, w->s->u, row), moved = step * u, half = ls_vec_all(0);
#pragma GCC unroll 2
        for (int64_t n = 0; n < N; n++) {
            pair state =
                next_state(decays_of(step, load_pair(w->A, n)), load_pair(h, n), moved, B, n);
            store_pair(h, n, state);
            half += state.re * C[2 * n] - state.im * C[2 * n + 1];
        }
        ls_scan_give_output(w, type, y, row, w->D * u + 2.0f * half);
    }
}

LS_INLINE void walk_again(const ls_scan_block *w, ls_dtype type, int64_t N,
                          const ls_scan_gradients *g, int64_t first, int64_t count,
                          const ls_scan_scratch *scratch) {
    for (int64_t t = 0; t < count; t++) {
        int64_t row = first + t, lanes = 2 * N * LS_LANES;
        const float *B = w->BC + row * 4 * N, *C = B + 2 * N;
        float *h = scratch->h + t * lanes, *decays = scratch->decay + t * lanes;
        ls_scan_lanes token = {.u = ls_scan_take(w, type, w->s->u, row)};
        ls_vec step = token.step = ls_scan_steps(w, type, row, &token.slope);
        ls_vec moved = step * token.u, half = ls_vec_all(0);
#pragma GCC unroll 2
        for (int64_t n = 0; n < N; n++) {
            pair decay = decays_of(step, load_pair(w->A, n));
            pair state = next_state(decay, load_pair(h, n), moved, B, n);
            store_pair(decays, n, decay);
            store_pair(h, N + n, state);
            half += state.re * C[2 * n] - state.im * C[2 * n + 1];
        }
        ls_scan_note(w, type, g, scratch, row, t, token, w->D * token.u + 2.0f * half);
    }
}

LS_INLINE void walk_back(const ls_scan_block *w, ls_dtype type, int64_t N,
                         const ls_scan_gradients *g, int64_t first, int64_t count,
                         const ls_scan_scratch *scratch, const ls_scan_return *to) {
    ls_vec dD = ls_vec_all(0), dbias = ls_vec_all(0);
    for (int64_t t = count - 1; t >= 0; t--) {
        int64_t row = first + t, lanes = 2 * N * LS_LANES;
        const float *B = w->BC + row * 4 * N, *C = B + 2 * N;
        const float *h = scratch->h + t * lanes, *decays = scratch->decay + t * lanes;
        float *dB = scratch->dBC + 2 * t * lanes, *dC = dB + lanes;
        const ls_scan_lanes token = ls_scan_noted(scratch, t);
        ls_vec step = token.step, moved = step * token.u;
        ls_vec twice = 2.0f * token.dy;
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
        ls_vec along_A = ls_scan_ln_2 * along_re + half_pi * along_im; /* A's own units again */
        ls_scan_send(w, type, g, row, &token, along_A, along_B, &dD, &dbias);
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

const ls_recurrence ls_scan_complex = {advance, retreat, walk_any, walk_again_any, walk_back_any};
