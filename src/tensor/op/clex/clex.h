#ifndef LS_TENSOR_OP_CLEX_H
#define LS_TENSOR_OP_CLEX_H

#include "tensor/op/rotate/rotate.h"

/* Rotary frequencies as functions of a scale t that a small network learns (CLEX, arXiv
 * 2310.16450): z = ln f moves from t = 1, where f are the trained frequencies, by
 *   dz/dt = act((z + ln g(t)) U) V - 2 (2i) / ((d - 2)(2t - 1)),
 *   ln g_i(t) = -(2i / d) ln 10000 - (2i / (d - 2)) ln(2t - 1),   d = 2 pairs,
 * in steps of the 3/8 rule. With V = 0 it is NTK scaling by 2t - 1 up to the steps' error. */
typedef struct ls_clex {
    int64_t pairs, hidden; /* at least 2 pairs */
    bool tanh;             /* act; else SiLU */
    int64_t steps;         /* from one whole scale to the next */
    int64_t most;          /* largest scale */
    int64_t scale;         /* 1 to most; 0: that of the operand, or of the length */
    int64_t trained;       /* length for which the scale is 1 */
    int64_t chunk;         /* tokens of a run */
    double frequency[LS_PAIRS_MAX];
} ls_clex;
/* up [pairs,hidden] and down [hidden,pairs], wide; scale i32 [1] or NULL: ceil(length after the run
 * over trained), at most `most`. Returns wide [2,pairs]: ls_rotary.learned. */
ls_tensor *ls_clex_frequencies(ls_program *p, const ls_clex *about, ls_tensor *up, ls_tensor *down,
                               ls_tensor *scale);

/* ---- for the kernels ---- */

/* `clex`: up, down, scale or NULL -> frequencies. `clex_grad`: their gradient, up, down, scale ->
 * gradients of up and down. */

/* The scale of a run whose operand says `given` (0: there is none). */
static inline int64_t ls_clex_scale(const ls_clex *about, int64_t given, int64_t length) {
    int64_t scale = about->scale > 0 ? about->scale
                    : given > 0      ? given
                                     : (length + about->trained - 1) / about->trained;
    return scale < 1 ? 1 : scale < about->most ? scale : about->most;
}
/* Doubles that the walk works in: see clex_walk.h. */
static inline int64_t ls_clex_room(const ls_clex *about, bool backward) {
    const int64_t weights = 2 * about->pairs * about->hidden;
    const int64_t rows = backward ? (about->most - 1) * about->steps + 1 : 1;
    return (backward ? 2 : 1) * weights + rows * about->pairs + 12 * about->pairs +
           2 * about->hidden;
}

#endif
