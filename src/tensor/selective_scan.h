#ifndef LS_TENSOR_SELECTIVE_SCAN_H
#define LS_TENSOR_SELECTIVE_SCAN_H

#include "tensor/ops.h"

enum { LS_SCAN_CHUNK = 64 }; /* tokens between two states that are kept for the backward part */

typedef struct ls_scan_attributes {
    bool plain_step; /* no softplus */
} ls_scan_attributes;

/* Operands of selective_scan and of its gradient, which adds to the gradients of A_log,
 * A_im, D, bias. */
enum {
    LS_SCAN_U,
    LS_SCAN_DELTA,
    LS_SCAN_A_LOG,
    LS_SCAN_A_IM, /* of complex_scan, whose operands are these too; else NULL */
    LS_SCAN_B,
    LS_SCAN_C,
    LS_SCAN_D,
    LS_SCAN_Z,
    LS_SCAN_BIAS,
    LS_SCAN_BEFORE,
    LS_SCAN_IN,
    /* of the gradient, after the same operands: */
    LS_SCAN_STARTS = LS_SCAN_IN,
    LS_SCAN_DY,
    LS_SCAN_DAFTER, /* NULL where no gradient comes through the state */
    LS_SCAN_GRAD_IN,
};
enum {
    LS_SCAN_Y,
    LS_SCAN_AFTER,
    LS_SCAN_KEPT,
    LS_SCAN_OUT
}; /* KEPT: [batch,chunks,E,N or 2 N], or NULL */
enum { LS_SCAN_DU, LS_SCAN_DDELTA, LS_SCAN_DB, LS_SCAN_DC, LS_SCAN_DZ, LS_SCAN_DBEFORE };
enum { LS_SCAN_GRAD_OUT = LS_SCAN_DBEFORE + 1 }; /* the last two may be NULL */

#endif
