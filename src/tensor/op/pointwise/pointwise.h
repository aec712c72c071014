#ifndef LS_TENSOR_OP_POINTWISE_H
#define LS_TENSOR_OP_POINTWISE_H

#include "tensor/engine/program.h"

ls_tensor *ls_plus(ls_program *p, ls_tensor *a, ls_tensor *b);
/* x + v where v's axes are the last ones of x (v may be a parameter). */
ls_tensor *ls_plus_broadcast(ls_program *p, ls_tensor *x, ls_tensor *v);
/* x * factor. */
ls_tensor *ls_times(ls_program *p, ls_tensor *x, double factor);
/* Sequence b of a where which[b] is not 0, else of b: two tensors of one shape [B,..], u8 [B]. */
ls_tensor *ls_pick(ls_program *p, ls_tensor *which, ls_tensor *a, ls_tensor *b);
/* y[..,j] / by[..] for y [..,V] and a wide `by` without its last axis; 0 where `by` is 0. */
ls_tensor *ls_divide(ls_program *p, ls_tensor *y, ls_tensor *by);
/* Draws a parameter that is not trained anew, as it was drawn at first, in every run of those
 * training steps that are multiples of `every` and not 0. */
void ls_redraw(ls_program *p, ls_tensor *parameter, int64_t every);
/* Whether a program does so in a training step. */
bool ls_redraws(const ls_program *p, int64_t step);
/* Zeroes a share of the elements and scales the rest; x itself outside training or at share 0. */
ls_tensor *ls_dropout(ls_program *p, ls_tensor *x, double share);
/* The same for x [B,T,D] with one draw for all rows of a sequence: a channel is there or not. */
ls_tensor *ls_dropout_tied(ls_program *p, ls_tensor *x, double share);
/* u8 [B,T], drawn in each run: 0 for a share of the first `count` rows of every sequence, 1 for all
 * others. NULL, which means all, outside training or where there is nothing to leave out. */
ls_tensor *ls_drop_rows(ls_program *p, int64_t B, int64_t T, int64_t count, double share);

/* ---- for the kernels ---- */

typedef struct ls_redraw_attributes {
    int64_t every;
    int64_t runs; /* of a training step, which count alike */
} ls_redraw_attributes;

typedef struct ls_dropout_attributes {
    double share;
    uint32_t stream; /* of random numbers: one per node */
    int64_t rows;    /* neighbours that share a draw */
} ls_dropout_attributes;

typedef struct ls_drop_rows_attributes {
    ls_dropout_attributes drop;
    int64_t count; /* rows of a sequence that may be left out, from its first on */
} ls_drop_rows_attributes;

#endif
