#ifndef LS_TENSOR_OP_BATCH_NORM_H
#define LS_TENSOR_OP_BATCH_NORM_H

#include "tensor/engine/program.h"

typedef struct ls_batch_norm {
    double epsilon;
    bool unbiased;    /* the variance that runs along is that of n - 1, as PyTorch keeps it */
    ls_tensor *valid; /* u8 [B,T]: rows that count; the others come out as zeros. NULL: all do */
    ls_tensor *weight, *bias;   /* may be NULL: 1 and 0 */
    ls_tensor *mean, *variance; /* parameters [D] that run along: ls_running */
} ls_batch_norm;

/* What a parameter that runs along begins with; `share` of the way it goes in each update. */
ls_init ls_running(double from, double share);
/* y = (x - mean) / sqrt(variance + epsilon) * weight + bias of rows x [B,T,D]. Where the program
 * trains (and no adapter keeps the weights as they are) mean and variance are the batch's own, of
 * each channel over all rows that count, and the backward part leaves them for those that run
 * along; else they are these. A stream cannot train: a batch's rows are not all there. */
ls_tensor *ls_batch_norm_rows(ls_program *p, const ls_batch_norm *norm, ls_tensor *x);

/* ---- for the kernels ---- */

/* batch_norm: in x, valid, weight, bias, mean, variance; out y and, of the batch's own statistics,
 * wide [3,D]: mean, 1/deviation, the variance that is to run along.
 * batch_norm_grad: the same inputs, then the statistics (NULL: those that run along were read) and
 * dy; out dx. */
typedef struct ls_batch_norm_attributes {
    double epsilon;
    bool unbiased;
} ls_batch_norm_attributes;

enum { LS_BATCH_NORM_MEAN, LS_BATCH_NORM_SCALE, LS_BATCH_NORM_VARIANCE, LS_BATCH_NORM_STATISTICS };

#endif
