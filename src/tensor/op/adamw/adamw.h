/* The two passes of an optimiser over a model's flat buffers: the norm of the gradient, and AdamW
 * (Loshchilov & Hutter 2019) fused with clipping, rounding to the bf16 shadow and clearing of the
 * gradient, so that each buffer goes through the processor once.
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
} ls_adamw_piece;

/* Everything is borrowed and lies where the context computes. The buffers do not overlap. */
typedef struct ls_adamw {
    ls_dtype type; /* of the four buffers: f64 or f32 */
    void *weights, *gradient, *mean, *square;
    ls_bf16 *shadow; /* or NULL */
    const ls_adamw_piece *pieces;
    int64_t piece_count;
    double *sums; /* [piece_count]: scratch of the norm */
    /* with g = scale * gradient: mean += (1 - beta1)(g - mean), square likewise of g^2,
     * weights -= decay * weights + rate * mean / (root * sqrt(square) + epsilon) */
    double beta1, beta2, epsilon, scale, decay, rate, root;
} ls_adamw;

/* The Euclidean norm, summed in f64; not finite where any element is not. */
ls_status ls_adamw_norm(ls_ctx *ctx, const ls_adamw *pass, double *norm);
/* Updates weights, mean, square and shadow; leaves the gradient zero. */
void ls_adamw_apply(ls_ctx *ctx, const ls_adamw *pass);

#endif
