#ifndef LS_TENSOR_LANDMARK_INVERSE_H
#define LS_TENSOR_LANDMARK_INVERSE_H

#include "tensor/ops.h"

enum { LS_LANDMARK_Q, LS_LANDMARK_K, LS_LANDMARK_X, LS_LANDMARK_IN };
/* of the gradient, after the same operands: */
enum { LS_LANDMARK_DY = LS_LANDMARK_IN, LS_LANDMARK_GRAD_IN };

#endif
