/* The passes of an optimiser over a model's flat buffers: the norm of the gradient, and AdamW
 * (Loshchilov & Hutter 2019) fused with clipping, rounding to the bf16 shadow and clearing of the
 * gradient, so that each buffer goes through the processor once; and sums of gradients.
 *
 * The work is cut in fixed pieces: the result does not depend on the number of threads. */
#ifndef LS_TENSOR_ADAMW_H
#define LS_TENSOR_ADAMW_H

#include "base/status.h"
#include "tensor/engine/dtype.h"

enum { LS_ADAMW_PIECE = 16384 }; /* elements a piece has at most */

typedef struct ls_adamw_piece {
    int64_t offset, count; /* elements, multiples of 64 */
    bool decays;
    float rate; /* times that of the pass; the decay is not */
    double
        running; /* share of the way that weights go to part * gradient instead; 0: they do not */
    int64_t own; /* where its moments begin, in `mean` and `square`; with `apart` its weights too */
} ls_adamw_piece;

/* Everything is borrowed and lies where the context computes. The buffers do not overlap. */
typedef struct ls_adamw {
    ls_dtype type; /* of the four buffers: f64 or f32 */
    void *weights, *gradient;
    void *mean, *square; /* of the pieces alone */
    bool apart;          /* so are the weights */
    ls_bf16 *shadow;     /* or NULL */
    const ls_adamw_piece *pieces;
    int64_t piece_count;
    double *sums; /* [piece_count]: scratch of the norm */
    /* with g = scale * gradient: mean += (1 - beta1)(g - mean), square likewise of g^2,
     * weights -= decay * weights + rate * mean / (root * sqrt(square) + epsilon) */
    double beta1, beta2, epsilon, scale, decay, rate, root;
    double part; /* of a sum of gradients that one leaf has, for pieces that run along */
} ls_adamw;

/* The sum of squares of each piece, in f64, to sums_here in the caller's memory: 0 of one that runs
 * along, unless something in it is not finite. */
ls_status ls_adamw_squares(ls_ctx *ctx, const ls_adamw *pass, double *sums_here);
/* The Euclidean norm, summed in f64; not finite where any element is not. */
ls_status ls_adamw_norm(ls_ctx *ctx, const ls_adamw *pass, double *norm);
/* Updates weights, mean, square and shadow; leaves the gradient zero. */
void ls_adamw_apply(ls_ctx *ctx, const ls_adamw *pass);

/* to += from, or to = from: both where the context computes and 16-byte aligned, in f64 or f32. */
typedef struct ls_gradient_sum {
    ls_dtype type;
    void *to;
    const void *from;
    int64_t count; /* a multiple of 64 */
    bool copies;
} ls_gradient_sum;
void ls_gradient_add(ls_ctx *ctx, const ls_gradient_sum *sum);

#endif
