/* AdamW over the flat buffers of a parameter store, with clipping by the global gradient norm. */
#ifndef LS_TRAIN_OPTIMIZER_H
#define LS_TRAIN_OPTIMIZER_H

#include "tensor/engine/parameter.h"
#include "tensor/op/adamw/adamw.h"

typedef struct ls_optimizer_settings {
    double beta1, beta2, epsilon;
    double weight_decay; /* acts only where a parameter's init does not say no_decay */
    double clip;         /* largest gradient norm; 0: none */
} ls_optimizer_settings;

/* 0.9, 0.98, 1e-6, 0.01, 1. */
ls_optimizer_settings ls_optimizer_settings_default(void);

typedef struct ls_optimizer {
    ls_parameters *store; /* borrowed; sealed, with gradients */
    ls_parameters part;   /* what of it is trained, in the same buffers */
    ls_optimizer_settings settings;
    void *mean, *square; /* laid out as the part's buffers, in the master's type */
    ls_adamw_piece *pieces;
    int64_t piece_count;
    double *sums;
} ls_optimizer;

/* Moments are zero. The store is borrowed until the optimiser is freed. */
ls_status ls_optimizer_new(ls_ctx *ctx, ls_parameters *store, const ls_optimizer_settings *settings,
                           ls_optimizer **out);
void ls_optimizer_free(ls_ctx *ctx, ls_optimizer *optimizer); /* NULL is fine */

/* The norm of the gradient as it stands: not finite where any element is not. */
ls_status ls_optimizer_norm(ls_ctx *ctx, const ls_optimizer *optimizer, double *norm);
/* One update, the step-th (from 1), with the given rate and the norm that ls_optimizer_norm gave;
 * the gradient is zero afterwards and the bf16 shadow agrees with the weights. */
void ls_optimizer_update(ls_ctx *ctx, ls_optimizer *optimizer, double rate, double norm,
                         int64_t step);

#endif
