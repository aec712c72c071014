#ifndef LS_TENSOR_OP_LANDMARK_INVERSE_H
#define LS_TENSOR_OP_LANDMARK_INVERSE_H

#include "tensor/engine/program.h"

typedef struct ls_landmark_options {
    double scale;       /* of q.k */
    int64_t iterations; /* of the pseudo-inverse */
    bool joint;         /* one starting value for all heads and sequences: see landmark_inverse.c */
} ls_landmark_options;
/* y = Z x for every head, with Z an iterated pseudo-inverse of softmax(scale q k^T): q and k are
 * [B,M,H,K], x and y [B,M,H,V]. Inside it is at least f32 (arXiv 2102.03902). */
ls_tensor *ls_landmark_inverse(ls_program *p, ls_tensor *q, ls_tensor *k, ls_tensor *x,
                               ls_landmark_options options);

/* ---- for the kernels ---- */

enum { LS_LANDMARK_Q, LS_LANDMARK_K, LS_LANDMARK_X, LS_LANDMARK_IN };
/* of the gradient, after the same operands: */
enum { LS_LANDMARK_DY = LS_LANDMARK_IN, LS_LANDMARK_GRAD_IN };

#endif
