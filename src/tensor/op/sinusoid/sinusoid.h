#ifndef LS_TENSOR_OP_SINUSOID_H
#define LS_TENSOR_OP_SINUSOID_H

#include "tensor/engine/program.h"

typedef enum { LS_SINUSOID_INTERLEAVED, LS_SINUSOID_FAIRSEQ, LS_SINUSOID_XL } ls_sinusoid_layout;
/* rows [T,D] for positions start..start+T-1 (relative = false; [B,T,D], counted from where each
 * sequence began, where ls_begins_differ), or [R,D] for distances 0..R-1. In the fairseq layout the
 * first position stands at 2, and the last column of an odd width is 0. */
ls_tensor *ls_sinusoid(ls_program *p, ls_sinusoid_layout layout, int64_t rows, int64_t width,
                       bool relative);
/* One element of such a table, for tests and `apply`. */
double ls_sinusoid_at(ls_sinusoid_layout layout, int64_t position, int64_t column, int64_t width);

/* ---- for the kernels ---- */

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
