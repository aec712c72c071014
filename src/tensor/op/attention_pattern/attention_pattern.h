#ifndef LS_TENSOR_OP_ATTENTION_PATTERN_H
#define LS_TENSOR_OP_ATTENTION_PATTERN_H

#include "tensor/engine/program.h"
#include "tensor/op/attention/attention.h"

/* A probe: what `view` asks of the softmax's weights A[n,m] of each query, computed again from the
 * same sets and their lse; the matrix of weights is never held. Returns f64 [B,T,H,columns], with
 * for each query n
 *   A[n, n - d] for each distance d of the view,
 *   A[n, m] for each of its first keys m,
 *   the entropy -sum_m A ln A in nats,
 *   the mean distance sum_m A (n - m).
 * Weights that a key has in several sets are added. No gradient. */
ls_tensor *ls_attention_pattern(ls_program *p, int sets, const ls_key_set *set,
                                ls_attention_options options, ls_tensor *lse,
                                const ls_pattern_view *view);

/* The view of a recorded node. */
static inline const ls_pattern_view *ls_pattern_view_of(const ls_node *node) {
    return &((const ls_attention_attributes *)node->attributes)->view;
}

#endif
