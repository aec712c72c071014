#ifndef LS_TENSOR_OP_DIAGONAL_SCAN_H
#define LS_TENSOR_OP_DIAGONAL_SCAN_H

#include "tensor/engine/program.h"
#include "tensor/op/state_space/state_space.h"

/* P complex modes, each a recurrence of its own that all channels may drive and read:
 *   x_t = a x_{t-1} + b v_t,   y_t = factor conj(x_t)
 * where a and b = step w are x' = L x + v made discrete, L = min(real, real_max) + i imag and
 * step = step_scale exp(log_step). v and y are [B,T,2P], pairs of re and im: a product before it
 * with rows in pairs is a complex one, and after it a product with columns in pairs gives factor
 * Re(C x). States are wide [B,2P]; gradients pass through them too. Phases are exact: fast types
 * walk in double. Backward computes the states again. */
typedef struct ls_modes {
    ls_tensor *v;
    ls_tensor *real, *imag, *log_step; /* P numbers each, wide parameters */
    ls_tensor *before;                 /* NULL: zeros */
    ls_tensor *valid;                  /* u8 [B,T]: v counts as 0 where it is 0; NULL: all count */
    ls_hold hold;
    double real_max; /* INFINITY: no bound */
    double step_scale, factor;
    bool reversed; /* from the last row to the first */
} ls_modes;
ls_tensor *ls_diagonal_scan(ls_program *p, const ls_modes *modes, ls_tensor **after);

/* ---- for the kernels ---- */

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
    double real_max, step_scale, factor;
    bool reversed;
} ls_modes_attributes;

#endif
