#ifndef LS_TENSOR_SINE_NETWORK_H
#define LS_TENSOR_SINE_NETWORK_H

#include "tensor/ops.h"

/* sine_network:      in frequency, table, then weight and bias of every layer; out rows
 * sine_network_grad: the same, then drows; adds to the parameters' gradients
 * fade:              in x, rate; out y (its gradient by x is the same operation)
 * fade_rate_grad:    in x, rate, dy; adds to the rate's gradient
 * unit_rows:         in x; out y
 * unit_rows_grad:    in x, dy; out dx
 * table may be NULL. */
enum { LS_SINE_FREQUENCY, LS_SINE_TABLE, LS_SINE_LAYERS };

typedef struct ls_sine_attributes {
    int layers;
    int64_t bands;
    double length;
    bool relative;
} ls_sine_attributes;

typedef struct ls_fade_attributes {
    double length, floor;
    bool relative;
} ls_fade_attributes;

#endif
