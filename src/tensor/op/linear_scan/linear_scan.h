#ifndef LS_TENSOR_OP_LINEAR_SCAN_H
#define LS_TENSOR_OP_LINEAR_SCAN_H

#include "tensor/engine/program.h"

/* Attention without a softmax, as a recurrence over the past, for every head h:
 *   S_t[i,j] = g_h f_i S_{t-1}[i,j] + k_t[i] v_t[j],   y_t[j] = r_t sum_i q_t[i] S_t[i,j]
 * q and k are [B,T,H,K], v is [B,T,H,V], y too. Where sums are asked for, v has one more
 * column of ones: *sums, wide [B,T,H], is what y would be for it (the weights' sum, a running
 * denominator). The state before and after the chunk is wide [B,H,K,V], [B,H,K,V+1] with sums;
 * gradients pass through q, k, v and both. Fast types go chunk by chunk; memory does not
 * depend on their number. */
typedef struct ls_linear_scan_operands {
    ls_tensor *q, *k, *v, *before;
    const double *log_decay;         /* [H]: log g_h <= 0; copied; NULL: no decay */
    const double *feature_log_decay; /* [K]: log f_i in [-1,0]; copied; NULL: none */
    bool rooted; /* r_t = 1/sqrt(sum_{j<=n} g_h^j), n being the position of t; else r_t = 1 */
} ls_linear_scan_operands;
ls_tensor *ls_linear_scan(ls_program *p, const ls_linear_scan_operands *scan, ls_tensor **sums,
                          ls_tensor **after);

/* ---- for the kernels ---- */

/* W below is V, or V + 1 where sums are wanted: their column of the state is the last. */
typedef struct ls_linear_scan_attributes {
    bool sums, rooted;
} ls_linear_scan_attributes;

enum {
    LS_LINEAR_SCAN_Q,
    LS_LINEAR_SCAN_K,
    LS_LINEAR_SCAN_V,
    LS_LINEAR_SCAN_BEFORE,        /* wide [B,H,K,W] */
    LS_LINEAR_SCAN_DECAY,         /* wide [H]: logarithms */
    LS_LINEAR_SCAN_FEATURE_DECAY, /* wide [K]: logarithms, or NULL */
    LS_LINEAR_SCAN_BEGINS,        /* i32 [B]: where sequences began, or NULL: at 0 */
    LS_LINEAR_SCAN_IN,
    /* of the gradient, after the same operands; each may be NULL: */
    LS_LINEAR_SCAN_DY = LS_LINEAR_SCAN_IN,
    LS_LINEAR_SCAN_DSUMS,
    LS_LINEAR_SCAN_DAFTER,
    LS_LINEAR_SCAN_GRAD_IN,
};
enum { LS_LINEAR_SCAN_Y, LS_LINEAR_SCAN_SUMS, LS_LINEAR_SCAN_AFTER, LS_LINEAR_SCAN_OUT };
enum { /* DBEFORE may be NULL */
       LS_LINEAR_SCAN_DQ,
       LS_LINEAR_SCAN_DK,
       LS_LINEAR_SCAN_DV,
       LS_LINEAR_SCAN_DBEFORE,
       LS_LINEAR_SCAN_GRAD_OUT,
};

#endif
