#ifndef LS_TENSOR_OP_EMA_H
#define LS_TENSOR_OP_EMA_H

#include "tensor/engine/program.h"

/* Mega's damped moving average in N dimensions of every channel: with p = sigmoid(delta), a =
 * sigmoid(alpha) and q = 1 - p a
 *   h_t = q h_{t-1} + p beta x_t,   y_t = sum_n gamma_n h_t[n] / sqrt(N) + skip x_t
 * The parameters are wide, of [sides D,N] elements; the second side, where there is one, looks
 * ahead. */
typedef struct ls_ema {
    ls_tensor *delta, *alpha, *beta, *gamma; /* gamma [sides D,N]; the others may have more axes */
} ls_ema;
enum { LS_EMA_DIMS_MAX = 256 }; /* N */
/* Its impulse response, wide [D,length]. With `ahead` there are two sides: *ahead is that of the
 * second from a distance of 1 on, wide [D,length-1], for the future of ls_long_conv (NULL for a
 * length of 1); at distance 0 the result is the sum of both. */
ls_tensor *ls_ema_kernel(ls_program *p, const ls_ema *ema, int64_t length, ls_tensor **ahead);
/* The same recurrence from a state, wide [B,D,N]; x [B,T,D], one side, skip a wide parameter [D] or
 * NULL. */
ls_tensor *ls_ema_scan(ls_program *p, const ls_ema *ema, ls_tensor *x, ls_tensor *skip,
                       ls_tensor *before, ls_tensor **after);
/* Operations of one step of one channel. */
double ls_ema_kernel_flops(int64_t dims);
double ls_ema_scan_flops(int64_t dims);

/* ---- for the kernels ---- */

/* ema_kernel:      in the parameters; out kernel, ahead (or NULL)
 * ema_kernel_grad: in the parameters, dkernel, dahead (each may be NULL)
 * ema_scan:        in the parameters, x, skip, before; out y, after
 * ema_scan_grad:   in the parameters, x, skip, before, dy, dafter (or NULL); out dx, dbefore (or
 *                  NULL)
 * Both gradients are added to the parameters' own. */
enum {
    LS_EMA_DELTA,
    LS_EMA_ALPHA,
    LS_EMA_BETA,
    LS_EMA_GAMMA,
    LS_EMA_PARAMETERS,
    LS_EMA_DKERNEL = LS_EMA_PARAMETERS,
    LS_EMA_DAHEAD,
    LS_EMA_KERNEL_GRAD_IN,
    LS_EMA_X = LS_EMA_PARAMETERS,
    LS_EMA_SKIP,
    LS_EMA_BEFORE,
    LS_EMA_DY,
    LS_EMA_DAFTER,
    LS_EMA_SCAN_GRAD_IN,
};

#endif
