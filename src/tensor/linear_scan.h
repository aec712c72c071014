#ifndef LS_TENSOR_LINEAR_SCAN_H
#define LS_TENSOR_LINEAR_SCAN_H

#include "tensor/ops.h"

/* W below is V, or V + 1 where sums are wanted: their column of the state is the last. */
typedef struct ls_linear_scan_attributes {
    bool sums, rooted;
} ls_linear_scan_attributes;

enum {
    LS_LINEAR_SCAN_Q,
    LS_LINEAR_SCAN_K,
    LS_LINEAR_SCAN_V,
    LS_LINEAR_SCAN_BEFORE,        /* wide [B,H,K,W] */
    LS_LINEAR_SCAN_DECAY,         /* wide [H]: logarithms */
    LS_LINEAR_SCAN_FEATURE_DECAY, /* wide [K]: logarithms, or NULL */
    LS_LINEAR_SCAN_BEGINS,        /* i32 [B]: where sequences began, or NULL: at 0 */
    LS_LINEAR_SCAN_IN,
    /* of the gradient, after the same operands; each may be NULL: */
    LS_LINEAR_SCAN_DY = LS_LINEAR_SCAN_IN,
    LS_LINEAR_SCAN_DSUMS,
    LS_LINEAR_SCAN_DAFTER,
    LS_LINEAR_SCAN_GRAD_IN,
};
enum { LS_LINEAR_SCAN_Y, LS_LINEAR_SCAN_SUMS, LS_LINEAR_SCAN_AFTER, LS_LINEAR_SCAN_OUT };
enum { /* DBEFORE may be NULL */
       LS_LINEAR_SCAN_DQ,
       LS_LINEAR_SCAN_DK,
       LS_LINEAR_SCAN_DV,
       LS_LINEAR_SCAN_DBEFORE,
       LS_LINEAR_SCAN_GRAD_OUT,
};

#endif
