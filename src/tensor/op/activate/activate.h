#ifndef LS_TENSOR_OP_ACTIVATE_H
#define LS_TENSOR_OP_ACTIVATE_H

#include "tensor/engine/program.h"

typedef enum {
    LS_ACT_NONE,
    LS_ACT_GELU,
    LS_ACT_GELU_TANH,
    LS_ACT_SILU,
    LS_ACT_RELU,
    LS_ACT_RELU2,
    LS_ACT_SIGMOID,
    LS_ACT_TANH
} ls_act_kind;
/* y = act(x); with `gated` the last axis holds [gate | value] and y = act(gate) * value. */
ls_tensor *ls_activate(ls_program *p, ls_act_kind kind, bool gated, ls_tensor *x);
/* y = act(gate) * value, of two tensors of one shape. */
ls_tensor *ls_gate(ls_program *p, ls_act_kind kind, ls_tensor *gate, ls_tensor *value);

/* ---- for the kernels ---- */

typedef struct ls_activate_attributes {
    ls_act_kind kind;
    bool gated;
} ls_activate_attributes;

#endif
