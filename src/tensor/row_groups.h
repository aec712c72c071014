/* Attributes of the operations on groups of rows, shared by their rules and their kernels. */
#ifndef LS_TENSOR_ROW_GROUPS_H
#define LS_TENSOR_ROW_GROUPS_H

#include "tensor/ops.h"

typedef struct ls_groups_attributes {
    ls_groups groups;
    int64_t chunk; /* rows of a run */
} ls_groups_attributes;

typedef struct ls_blend_attributes {
    ls_blend_kind kind;
    int64_t rate;
} ls_blend_attributes;

#endif
