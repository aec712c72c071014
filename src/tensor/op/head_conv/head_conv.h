#ifndef LS_TENSOR_OP_HEAD_CONV_H
#define LS_TENSOR_OP_HEAD_CONV_H

#include "tensor/engine/program.h"

/* A convolution that looks both ways, with the same S taps (odd) for all elements of a head:
 * y[b,t,h,:] = sum_s weight[h,s] x[b,t+s-(S-1)/2,h,:] for x [B,T,H,W], a wide parameter [H,S]. */
ls_tensor *ls_head_conv(ls_program *p, ls_tensor *x, ls_tensor *weight);

#endif
