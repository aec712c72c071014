#ifndef LS_TENSOR_EMA_H
#define LS_TENSOR_EMA_H

#include "tensor/ops.h"

/* ema_kernel:      in the parameters; out kernel, ahead (or NULL)
 * ema_kernel_grad: in the parameters, dkernel, dahead (each may be NULL)
 * ema_scan:        in the parameters, x, skip, before; out y, after
 * ema_scan_grad:   in the parameters, x, skip, before, dy; out dx (or NULL)
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
    LS_EMA_SCAN_GRAD_IN,
};

#endif
