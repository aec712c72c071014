#ifndef LS_TENSOR_OP_SHIFT_KERNEL_H
#define LS_TENSOR_OP_SHIFT_KERNEL_H

#include "tensor/engine/program.h"

/* The impulse response of a register of N places, every channel for itself: x_t = (x_{t-1} shifted
 * by one place) + B u_t, y_t = C x_t. Wide [1,N,D], k[s,d] = sum_m B[d,m] C[d,m+s], from wide
 * parameters B [D,N] and C of as many elements. */
ls_tensor *ls_shift_kernel(ls_program *p, ls_tensor *B, ls_tensor *C);

#endif
