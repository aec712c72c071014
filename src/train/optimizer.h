/* AdamW over the flat buffers of a parameter store, with clipping by the global gradient norm.
 *
 * Over several ranks (ranks/ranks.h) the buffers are cut into buckets, and each bucket at whole
 * pieces: a rank has the moments of its own part of every bucket alone and updates that part (arXiv
 * 1910.02054: the first stage of ZeRO). In bf16 it also has the master weights of that part alone;
 * what programs read is the shadow, and the few parameters that they read in the master's type. So
 * each bucket can be summed for itself, as soon as it is finished, and all ranks have the same work
 * in it. */
#ifndef LS_TRAIN_OPTIMIZER_H
#define LS_TRAIN_OPTIMIZER_H

#include "ranks/ranks.h"
#include "tensor/engine/parameter.h"
#include "tensor/op/adamw/adamw.h"

typedef struct ls_optimizer_settings {
    double beta1, beta2, epsilon;
    double weight_decay; /* acts only where a parameter's init does not say no_decay */
    bool decay_all;      /* or, with this, never_decays */
    double state_rate;   /* times the rate where a parameter's init says own_rate */
    double clip;         /* largest gradient norm; 0: none */
    int64_t
        leaves; /* that a batch's gradients are summed over: what runs along follows their mean; 0:
                       one */
} ls_optimizer_settings;

/* 0.9, 0.98, 1e-6, 0.01, 1. */
ls_optimizer_settings ls_optimizer_settings_default(void);

/* More of them would cut a device's work into too small pieces. */
enum { LS_OPTIMIZER_BUCKETS = 64 };

typedef struct ls_optimizer {
    ls_parameters *store; /* borrowed; sealed; has a gradient from now on */
    ls_parameters part;   /* what of it is trained, in the same buffers */
    ls_optimizer_settings settings;
    ls_ranks *ranks;    /* borrowed; NULL: alone */
    int64_t *cuts;      /* [all_pieces + 1]: elements at which pieces begin, and the end */
    int64_t all_pieces; /* of all ranks */
    int64_t buckets;    /* 1 where a rank is alone */
    int64_t bucket[LS_OPTIMIZER_BUCKETS + 1]; /* pieces at which buckets begin, and the end */
    int64_t own, elements;                    /* this rank's pieces, and elements */
    int64_t before[LS_OPTIMIZER_BUCKETS];     /* of those, the elements of earlier buckets */
    void
        *weights; /* the masters of those, where they are cut too (bf16); NULL: the store has all */
    int64_t *fulls;                /* then [all_pieces + 1]: where cuts are in the store's `full` */
    void *mean, *square;           /* of those elements, in the master's type */
    ls_adamw_piece *pieces;        /* this rank's, where the context computes */
    double *sums;                  /* of them, likewise */
    int64_t most;                  /* pieces of the rank that has most */
    double *all_sums;              /* [ranks][most], here */
    int64_t *sum_of;               /* [all_pieces]: which of them is a piece's */
    void *sent, *received, *there; /* chunks on their way; NULL: alone. See optimizer_ranks.c */
    size_t there_bytes;
} ls_optimizer;

/* Moments are zero. The store is borrowed until the optimiser is freed. */
ls_status ls_optimizer_new(ls_ctx *ctx, ls_parameters *store, const ls_optimizer_settings *settings,
                           ls_optimizer **out);
/* The same for one of several ranks (NULL: alone), whose number is a power of two; borrowed. */
ls_status ls_optimizer_new_among(ls_ctx *ctx, ls_parameters *store,
                                 const ls_optimizer_settings *settings, ls_ranks *ranks,
                                 ls_optimizer **out);
void ls_optimizer_free(ls_ctx *ctx, ls_optimizer *optimizer); /* NULL is fine */

/* Sums the gradients of all ranks along one binary tree: ((0 + 1) + (2 + 3)) + ... Afterwards each
 * rank has the sum for its own part; the rest of its gradient is of no use any more. */
ls_status ls_optimizer_reduce(ls_ctx *ctx, ls_optimizer *optimizer);
/* The norm of the whole gradient as it stands: not finite where any element is not. */
ls_status ls_optimizer_norm(ls_ctx *ctx, const ls_optimizer *optimizer, double *norm);
/* One update, the step-th (from 1), with the given rate and the norm that ls_optimizer_norm gave;
 * the gradient is zero afterwards and the bf16 shadow agrees with the weights. */
ls_status ls_optimizer_update(ls_ctx *ctx, ls_optimizer *optimizer, double rate, double norm,
                              int64_t step);

/* After a checkpoint was read: the same weights on all ranks, those of rank 0. */
ls_status ls_optimizer_broadcast(ls_ctx *ctx, ls_optimizer *optimizer);
/* Rank 0 reads and writes moments, and masters that are cut, wherever they are; values are in the
 * caller's memory. The others serve it meanwhile, until rank 0 releases them. */
typedef enum { LS_MOMENT_MEAN, LS_MOMENT_SQUARE, LS_MOMENT_WEIGHTS } ls_moment_kind;
typedef struct ls_moment {
    ls_optimizer *optimizer;
    ls_moment_kind kind;
} ls_moment;
ls_status ls_moment_get(void *moment, int64_t first, int64_t count, void *values);
ls_status ls_moment_put(void *moment, int64_t first, int64_t count, const void *values);
ls_status ls_optimizer_serve(ls_ctx *ctx, ls_optimizer *optimizer);
ls_status ls_optimizer_release(ls_ctx *ctx, ls_optimizer *optimizer);

#endif
