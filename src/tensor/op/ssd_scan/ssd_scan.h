#ifndef LS_TENSOR_OP_SSD_SCAN_H
#define LS_TENSOR_OP_SSD_SCAN_H

#include "tensor/engine/program.h"

/* Mamba-2's recurrence (arXiv 2405.21060). A head h of P channels has one decay of its own, which
 * depends on the token, and reads B and C of its group, h / (H / G):
 *   d_t = min(max(softplus(dt_t + bias), dt_min), dt_max),   A = -exp(A_log)
 *   S_t[p,n] = exp(d_t A) S_{t-1}[p,n] + d_t x_t[p] B_t[n]
 *   y_t[p] = sum_n C_t[n] S_t[p,n] + D x_t[p]
 * x is [batch,T,H,P], heads side by side; dt [batch,T,H]; B and C [batch,T,G,N]. A_log [H], bias
 * [H] and D, [H] or [H P], are wide parameters; D and bias may be NULL. The state before and after
 * the chunk is wide [batch,H,P,N]; gradients pass through all of them. Fast types go chunk by chunk
 * in matrix products; backward recomputes states from those kept every LS_SSD_KEPT tokens. */
typedef struct ls_ssd_operands {
    ls_tensor *x, *dt, *B, *C, *A_log, *D, *bias, *before;
    double dt_min, dt_max; /* 0 and infinity: no limits */
} ls_ssd_operands;
ls_tensor *ls_ssd_scan(ls_program *p, const ls_ssd_operands *ssd, ls_tensor **after);

enum {
    LS_SSD_CHUNK = 64,              /* tokens that are joined in matrix products */
    LS_SSD_KEPT = 8 * LS_SSD_CHUNK, /* tokens between two states that are kept for backward */
};

typedef struct ls_ssd_attributes {
    double dt_min, dt_max;
} ls_ssd_attributes;

/* Operands of ssd_scan and of its gradient, which adds to the gradients of A_log, D and bias. */
enum {
    LS_SSD_X,
    LS_SSD_DT,
    LS_SSD_B,
    LS_SSD_C,
    LS_SSD_A_LOG,
    LS_SSD_D,
    LS_SSD_BIAS,
    LS_SSD_BEFORE,
    LS_SSD_IN,
    /* of the gradient, after the same operands: */
    LS_SSD_STARTS = LS_SSD_IN,
    LS_SSD_DY,
    LS_SSD_DAFTER, /* NULL where no gradient comes through the state */
    LS_SSD_GRAD_IN,
};
/* KEPT: wide [batch, T / LS_SSD_KEPT rounded up, H, P, N], or NULL. */
enum { LS_SSD_Y, LS_SSD_AFTER, LS_SSD_KEPT_STATES, LS_SSD_OUT };
/* DBEFORE may be NULL. */
enum { LS_SSD_DX, LS_SSD_DDT, LS_SSD_DB, LS_SSD_DC, LS_SSD_DBEFORE, LS_SSD_GRAD_OUT };

#endif
