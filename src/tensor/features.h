#ifndef LS_TENSOR_FEATURES_H
#define LS_TENSOR_FEATURES_H

#include "tensor/ops.h"

enum { LS_FEATURES_X, LS_FEATURES_DIRECTIONS, LS_FEATURES_VALID, LS_FEATURES_IN };
/* of the gradient, after the same operands: */
enum { LS_FEATURES_DY = LS_FEATURES_IN, LS_FEATURES_GRAD_IN };

/* Exponents above this count as this: a text of a million such features still adds up in f32. */
#define LS_FEATURES_MOST 64.0

#endif
