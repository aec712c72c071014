#ifndef LS_TENSOR_OP_SCORE_PROFILE_H
#define LS_TENSOR_OP_SCORE_PROFILE_H

#include "tensor/engine/program.h"
#include "tensor/op/attention/attention.h"

/* A probe: scores as they go into the softmax of the same sets, added up by true distance n - m
 * over queries, sequences and sets. Returns f64 [2, H, distances], the sums and then the
 * numbers of pairs, of this run alone; pairs further apart (or later than the query) are not
 * counted. No gradient. */
ls_tensor *ls_score_profile(ls_program *p, int sets, const ls_key_set *set,
                            ls_attention_options options, int64_t distances);

#endif
