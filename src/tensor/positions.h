/* Attributes of the position operations, shared by their rules and their kernels. */
#ifndef LS_TENSOR_POSITIONS_H
#define LS_TENSOR_POSITIONS_H

#include "tensor/ops.h"

typedef struct ls_rotate_attributes {
    ls_rotary rotary;
    ls_position_map map;
    ls_rotate_as as;
    bool inverse;  /* rotate back: the backward rule */
    int64_t chunk; /* tokens of a run: frequencies may depend on the length after it */
} ls_rotate_attributes;

typedef struct ls_sinusoid_attributes {
    ls_sinusoid_layout layout;
    bool relative;
} ls_sinusoid_attributes;

/* What column `column` of a sinusoidal table is made of: sin or cos of (position + shift) *
 * frequency; frequency 0 and a sine for a padding column. */
typedef struct ls_sinusoid_column {
    double frequency;
    bool cosine;
    int64_t shift;
} ls_sinusoid_column;
ls_sinusoid_column ls_sinusoid_column_of(ls_sinusoid_layout layout, int64_t column, int64_t width);

#endif
