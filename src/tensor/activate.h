#ifndef LS_TENSOR_ACTIVATE_H
#define LS_TENSOR_ACTIVATE_H

#include "tensor/ops.h"

typedef struct ls_activate_attributes {
    ls_act_kind kind;
    bool gated;
} ls_activate_attributes;

#endif
