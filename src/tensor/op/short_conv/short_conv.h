#ifndef LS_TENSOR_OP_SHORT_CONV_H
#define LS_TENSOR_OP_SHORT_CONV_H

#include "tensor/engine/program.h"

/* A causal convolution of W taps in every channel: y[b,t,e] = act(bias[e] + sum_k weight[e,k]
 * x[b,t-W+1+k,e]) with act = SiLU or nothing. x is [B,T,E], weight wide [E,W], bias wide [E] or
 * NULL. The rows before the chunk are `before` [B,W-1,E]; *after are those that the next chunk
 * needs (no gradient passes through either). One tap needs none: both are NULL. */
ls_tensor *ls_short_conv(ls_program *p, bool silu, ls_tensor *x, ls_tensor *weight, ls_tensor *bias,
                         ls_tensor *before, ls_tensor **after);

/* ---- for the kernels ---- */

/* short_conv:      in x, weight, bias, before; out y, after
 * short_conv_grad: in x, weight, bias, before, dy; out dx; adds to the parameters' gradients */
typedef struct ls_short_conv_attributes {
    bool silu;
} ls_short_conv_attributes;

#endif
