#ifndef LS_TENSOR_OP_SELECTIVE_SCAN_H
#define LS_TENSOR_OP_SELECTIVE_SCAN_H

#include "tensor/engine/program.h"

/* Mamba's recurrence, with A = -exp(A_log) and d = softplus(delta + bias), or with plain_step
 * d = delta + bias, of either sign:
 *   h_t[e,n] = exp(d_t[e] A[e,n]) h_{t-1}[e,n] + d_t[e] B_t[n] u_t[e]
 *   y_t[e] = (sum_n C_t[n] h_t[e,n] + D[e] u_t[e]) silu(z_t[e])
 * u, delta, z are [batch,T,E]; B and C [batch,T,N]; A_log [E,N], D [E] and bias [E] wide
 * parameters; D, z and bias may be NULL. The state before and after the chunk is wide [batch,E,N];
 * gradients pass through both. Backward recomputes states from those kept every LS_SCAN_CHUNK
 * tokens.
 * With A_im, a wide parameter [E,N], states are complex and stand for themselves and their
 * conjugates: A = -exp(A_log) + i A_im, and 2 Re(sum_n C h) takes the place of the sum. B and C are
 * then [batch,T,2 N] and states [batch,E,2 N], re and im side by side. */
typedef struct ls_scan {
    ls_tensor *u, *delta, *A_log, *A_im, *B, *C, *D, *z, *bias, *before;
    bool plain_step;
} ls_scan;
ls_tensor *ls_selective_scan(ls_program *p, const ls_scan *scan, ls_tensor **after);

/* ---- for the kernels ---- */

enum { LS_SCAN_CHUNK = 64 }; /* tokens between two states that are kept for the backward part */

typedef struct ls_scan_attributes {
    bool plain_step; /* no softplus */
} ls_scan_attributes;

/* Operands of selective_scan and of its gradient, which adds to the gradients of A_log,
 * A_im, D, bias. */
enum {
    LS_SCAN_U,
    LS_SCAN_DELTA,
    LS_SCAN_A_LOG,
    LS_SCAN_A_IM, /* of complex_scan, whose operands are these too; else NULL */
    LS_SCAN_B,
    LS_SCAN_C,
    LS_SCAN_D,
    LS_SCAN_Z,
    LS_SCAN_BIAS,
    LS_SCAN_BEFORE,
    LS_SCAN_IN,
    /* of the gradient, after the same operands: */
    LS_SCAN_STARTS = LS_SCAN_IN,
    LS_SCAN_DY,
    LS_SCAN_DAFTER, /* NULL where no gradient comes through the state */
    LS_SCAN_GRAD_IN,
};
enum {
    LS_SCAN_Y,
    LS_SCAN_AFTER,
    LS_SCAN_KEPT,
    LS_SCAN_OUT
}; /* KEPT: [batch,chunks,E,N or 2 N], or NULL */
enum { LS_SCAN_DU, LS_SCAN_DDELTA, LS_SCAN_DB, LS_SCAN_DC, LS_SCAN_DZ, LS_SCAN_DBEFORE };
enum { LS_SCAN_GRAD_OUT = LS_SCAN_DBEFORE + 1 }; /* the last two may be NULL */

#endif
