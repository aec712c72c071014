/* AdamW and the gradient's norm over pieces of flat buffers; pieces are multiples of 64 long. */
#include "tensor/op/adamw/adamw.h"

#include <math.h>
#include <string.h>

#include "tensor/engine/program.h"

enum { LANES = 8, BLOCK = 1024 };
typedef float lanes_f32 __attribute__((vector_size(LANES * 4)));
typedef double lanes_f64 __attribute__((vector_size(LANES * 8)));

static double add_up(const lanes_f64 part[4]) {
    lanes_f64 all = (part[0] + part[1]) + (part[2] + part[3]);
    double sum = 0;
    for (int i = 0; i < LANES; i++) sum += all[i];
    return sum;
}

static double squares_f64(const double *x, int64_t count) {
    lanes_f64 part[4] = {{0}};
    for (int64_t i = 0; i < count; i += 4 * LANES)
        for (int k = 0; k < 4; k++) {
            lanes_f64 g;
            memcpy(&g, x + i + k * LANES, sizeof g);
            part[k] += g * g;
        }
    return add_up(part);
}

static double squares_f32(const float *x, int64_t count) {
    lanes_f64 part[4] = {{0}};
    for (int64_t i = 0; i < count; i += 4 * LANES)
        for (int k = 0; k < 4; k++) {
            lanes_f32 narrow;
            memcpy(&narrow, x + i + k * LANES, sizeof narrow);
            lanes_f64 g = __builtin_convertvector(narrow, lanes_f64);
            part[k] += g * g; /* exact in f64 */
        }
    return add_up(part);
}

static double counted(double running) {
    return running > 0 ? 0 : 1;
}

static void norm_f64(const ls_run *run, const ls_node *node) {
    const ls_adamw *pass = node->attributes;
    const double *gradient = pass->gradient;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t i = 0; i < pass->piece_count; i++)
        pass->sums[i] = counted(pass->pieces[i].running) *
                        squares_f64(gradient + pass->pieces[i].offset, pass->pieces[i].count);
}

static void norm_f32(const ls_run *run, const ls_node *node) {
    const ls_adamw *pass = node->attributes;
    const float *gradient = pass->gradient;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t i = 0; i < pass->piece_count; i++)
        pass->sums[i] = counted(pass->pieces[i].running) *
                        squares_f32(gradient + pass->pieces[i].offset, pass->pieces[i].count);
}

#define DEFINE_UPDATE(name, real, root_of)                                                         \
    static void name(const ls_adamw *pass, const ls_adamw_piece *piece, real *restrict w,          \
                     real *restrict g, real *restrict m, real *restrict v, int64_t count) {        \
        const real beta1 = (real)pass->beta1, rest1 = (real)(1 - pass->beta1);                     \
        const real beta2 = (real)pass->beta2, rest2 = (real)(1 - pass->beta2);                     \
        const real keep = (real)(1 - (piece->decays ? pass->decay : 0));                           \
        const real rate = (real)(piece->rate * pass->rate), root = (real)pass->root;               \
        const real scale = (real)pass->scale, epsilon = (real)pass->epsilon;                       \
        for (int64_t i = 0; i < count; i++) {                                                      \
            real x = scale * g[i];                                                                 \
            real mean = beta1 * m[i] + rest1 * x;                                                  \
            real square = beta2 * v[i] + rest2 * (x * x);                                          \
            m[i] = mean;                                                                           \
            v[i] = square;                                                                         \
            g[i] = 0;                                                                              \
            w[i] = keep * w[i] - rate * mean / (root * root_of(square) + epsilon);                 \
        }                                                                                          \
    }
#define DEFINE_FOLLOW(name, real)                                                                  \
    static void name(const ls_adamw *pass, const ls_adamw_piece *piece, real *restrict w,          \
                     real *restrict g, int64_t count) {                                            \
        const real share = (real)piece->running, part = (real)pass->part;                          \
        for (int64_t i = 0; i < count; i++) {                                                      \
            w[i] += share * (part * g[i] - w[i]);                                                  \
            g[i] = 0;                                                                              \
        }                                                                                          \
    }
DEFINE_FOLLOW(follow_f64, double)
DEFINE_FOLLOW(follow_f32, float)

DEFINE_UPDATE(update_f64, double, sqrt)
DEFINE_UPDATE(update_f32, float, sqrtf)

static void apply_f64(const ls_run *run, const ls_node *node) {
    const ls_adamw *pass = node->attributes;
    double *w = pass->weights, *g = pass->gradient, *m = pass->mean, *v = pass->square;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t i = 0; i < pass->piece_count; i++) {
        const ls_adamw_piece *piece = &pass->pieces[i];
        const int64_t at = piece->offset;
        double *weights = w + (pass->apart ? piece->own : at);
        if (piece->running > 0)
            follow_f64(pass, piece, weights, g + at, piece->count);
        else
            update_f64(pass, piece, weights, g + at, m + piece->own, v + piece->own, piece->count);
    }
}

static void round_block(const float *restrict from, ls_bf16 *restrict to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = ls_bf16_from_f32(from[i]);
}

static void apply_f32(const ls_run *run, const ls_node *node) {
    const ls_adamw *pass = node->attributes;
    float *w = pass->weights, *g = pass->gradient, *m = pass->mean, *v = pass->square;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t i = 0; i < pass->piece_count; i++) {
        const ls_adamw_piece *piece = &pass->pieces[i];
        /* in blocks, so that rounding finds the new weights in the nearest cache */
        for (int64_t done = 0; done < piece->count; done += BLOCK) {
            const int64_t at = piece->offset + done, own = piece->own + done;
            int64_t count = piece->count - done < BLOCK ? piece->count - done : BLOCK;
            float *weights = w + (pass->apart ? own : at);
            if (piece->running > 0)
                follow_f32(pass, piece, weights, g + at, count);
            else
                update_f32(pass, piece, weights, g + at, m + own, v + own, count);
            if (pass->shadow != NULL) round_block(weights, pass->shadow + at, count);
        }
    }
}

#define DEFINE_ADD(name, real)                                                                     \
    static void name(const ls_run *run, const ls_node *node) {                                     \
        const ls_gradient_sum *sum = node->attributes;                                             \
        real *restrict to = sum->to;                                                               \
        const real *restrict from = sum->from;                                                     \
        const int64_t count = sum->count;                                                          \
        _Pragma(                                                                                   \
            "omp parallel for schedule(static) num_threads(run->threads)") for (int64_t first = 0; \
                                                                                first < count;     \
                                                                                first +=           \
                                                                                LS_ADAMW_PIECE) {  \
            const int64_t end = count - first < LS_ADAMW_PIECE ? count : first + LS_ADAMW_PIECE;   \
            if (sum->copies) memcpy(to + first, from + first, (size_t)(end - first) * sizeof *to); \
            for (int64_t i = first; i < end && !sum->copies; i++) to[i] += from[i];                \
        }                                                                                          \
    }
DEFINE_ADD(add_f64, double)
DEFINE_ADD(add_f32, float)

const ls_kernel LS_CPU_TABLE(adamw)[] = {
    {"adamw_norm", {norm_f64, norm_f32, norm_f32}, NULL},
    {"adamw", {apply_f64, apply_f32, apply_f32}, NULL},
    {"gradient_add", {add_f64, add_f32, add_f32}, NULL},
    {0},
};
