#ifndef LS_TENSOR_OP_TIME_LINEAR_H
#define LS_TENSOR_OP_TIME_LINEAR_H

#include "tensor/engine/program.h"

/* The same along time: y[b,m,h,:] = sum_t weight[t,m] x[b,t,h,:] for x [B,T,H,W] and a parameter
 * [N,M], or [H,N,M] where every head has its own; T <= N, the first T rows of the weight count. */
ls_tensor *ls_time_linear(ls_program *p, ls_tensor *x, ls_tensor *weight);

#endif
