#ifndef LS_TENSOR_OP_SCORE_SUMS_H
#define LS_TENSOR_OP_SCORE_SUMS_H

#include "tensor/engine/program.h"

/* Rows of a linear recurrence over a whole text, divided by the sizes of their scores:
 *   out[b,t,h,:] = y[b,t,h,:] / min(max(r_t sum_{m<=t} g_h^(t-m) |<q_t, k_m>|, least), most)
 * with r_t = 1/sqrt(sum_{j<=t} g_h^j). y is [B,T,H,V], q and k are [B,T,H,K]; log_decay [H] holds
 * log g_h <= 0 and is copied. The divisor counts as a constant: no gradient reaches q and k. It
 * takes order T^2 operations. */
typedef struct ls_score_bounds {
    double least, most;
} ls_score_bounds;
ls_tensor *ls_divide_by_scores(ls_program *p, ls_tensor *y, ls_tensor *q, ls_tensor *k,
                               const double *log_decay, ls_score_bounds bounds);

/* ---- for the kernels ---- */

enum {
    LS_SCORE_SUMS_Y,
    LS_SCORE_SUMS_Q,
    LS_SCORE_SUMS_K,
    LS_SCORE_SUMS_DECAY, /* wide [H]: logarithms */
    LS_SCORE_SUMS_IN,
};

#endif
