#ifndef LS_TENSOR_OP_POINTWISE_ATTENTION_H
#define LS_TENSOR_OP_POINTWISE_ATTENTION_H

#include "tensor/engine/program.h"
#include "tensor/op/attention/attention.h"

/* y_n = sum_m f(s_nm) v_m over the admitted keys, s_nm = scale q_n . k_m / c_n + bias
 * with c_n the number of keys that n sees. The set is as for ls_attention, with a
 * table as its only bias, and without dilation and coordinates of its own. Memory and
 * gradients are those of ls_attention. */
ls_tensor *ls_pointwise_attention(ls_program *p, const ls_key_set *set, double scale,
                                  ls_weighting weighting);

#endif
