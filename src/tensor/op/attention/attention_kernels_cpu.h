/* The ways attention is computed on the CPU. Each takes a resolved job; the fast ones are for f32
 * and bf16 and need the workspace they ask for (64-byte aligned, contents undefined). */
#ifndef LS_TENSOR_CPU_ATTENTION_KERNELS_H
#define LS_TENSOR_CPU_ATTENTION_KERNELS_H

#include "tensor/op/attention/attention.h"

#define ls_attention_reference LS_ISA_SYMBOL(ls__attention_reference)
#define ls_attention_reference_grad LS_ISA_SYMBOL(ls__attention_reference_grad)
#define ls_attention_reference_profile LS_ISA_SYMBOL(ls__attention_reference_profile)
#define ls_attention_reference_pattern LS_ISA_SYMBOL(ls__attention_reference_pattern)
#define ls_attention_tiled LS_ISA_SYMBOL(ls__attention_tiled)
#define ls_attention_tiled_workspace LS_ISA_SYMBOL(ls__attention_tiled_workspace)
#define ls_attention_decode LS_ISA_SYMBOL(ls__attention_decode)
#define ls_attention_decode_workspace LS_ISA_SYMBOL(ls__attention_decode_workspace)
#define ls_attention_decode_fits LS_ISA_SYMBOL(ls__attention_decode_fits)
#define ls_attention_tiled_grad LS_ISA_SYMBOL(ls__attention_tiled_grad)
#define ls_attention_tiled_grad_workspace LS_ISA_SYMBOL(ls__attention_tiled_grad_workspace)

/* f64, pair by pair: what the others are held against. */
void ls_attention_reference(const ls_attention_job *job);
void ls_attention_reference_grad(const ls_attention_job *job);

/* Adds the scores of the admitted pairs to sum[head][distance], and 1 to count. */
void ls_attention_reference_profile(const ls_attention_job *job, int64_t distances, double *sum,
                                    double *count);

/* What the view asks of each query's weights, to out[B,T,H,columns]. */
void ls_attention_reference_pattern(const ls_attention_job *job, const ls_pattern_view *view,
                                    double *out);

/* Many queries: tiles of queries against tiles of keys. */
void ls_attention_tiled(const ls_attention_job *job);
size_t ls_attention_tiled_workspace(const ls_attention_job *job, int threads);

/* Few queries, many keys: every key and value is read once, in order. */
bool ls_attention_decode_fits(const ls_attention_job *job);
void ls_attention_decode(const ls_attention_job *job);
size_t ls_attention_decode_workspace(const ls_attention_job *job, int threads);

void ls_attention_tiled_grad(const ls_attention_job *job);
size_t ls_attention_tiled_grad_workspace(const ls_attention_job *job, int threads);

#endif
