#ifndef LS_TENSOR_DIAGONAL_SCAN_H
#define LS_TENSOR_DIAGONAL_SCAN_H

#include "tensor/ops.h"

/* Operands of diagonal_scan and, with those behind them, of its gradient, which adds to the
 * gradients of the parameters. */
enum {
    LS_MODES_V,
    LS_MODES_REAL,
    LS_MODES_IMAG,
    LS_MODES_LOG_STEP,
    LS_MODES_BEFORE, /* or NULL */
    LS_MODES_VALID,  /* or NULL */
    LS_MODES_IN,
    LS_MODES_DY = LS_MODES_IN,
    LS_MODES_DAFTER, /* NULL where no gradient comes through the state */
    LS_MODES_GRAD_IN,
};
enum { LS_MODES_Y, LS_MODES_AFTER, LS_MODES_OUT };             /* AFTER: or NULL */
enum { LS_MODES_DV = 0, LS_MODES_DBEFORE, LS_MODES_GRAD_OUT }; /* either may be NULL */

typedef struct ls_modes_attributes {
    ls_hold hold;
    double real_most, step_scale, factor;
    bool reversed;
} ls_modes_attributes;

#endif
