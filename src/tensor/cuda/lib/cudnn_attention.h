/* Exact attention by cuDNN, where it is installed and takes the case; the own kernels do the rest.
 *
 * One case is one shape with its strides. The first `ready` of a case builds its plan (this takes
 * up to seconds and takes memory), so it must come before a capture; later ones look it up. The
 * memory a plan needs belongs to the plan and is as long there as the device is open: the caller
 * plans none, and captured graphs stay valid. Forward needs next to none. Backward needs
 * 2 * B * H * T * N bytes, or 4 * B * H * T * D where it may add up in any order; what would take
 * more than an eighth of the device is refused. */
#ifndef LS_TENSOR_CUDA_CUDNN_ATTENTION_H
#define LS_TENSOR_CUDA_CUDNN_ATTENTION_H

#include "tensor/cuda/lib/cuda.h"

/* Tensors are bf16 with the axes batch, row, head and a contiguous last one; strides (batch, row,
 * head) are in elements. Addresses are multiples of 16 bytes. */
typedef struct ls_cudnn_shape {
    int64_t B, T, N, H, G, D; /* queries [B,T,H,D], keys and values [B,N,G,D] */
    double scale;
    bool causal;                 /* query n sees m <= n + N - T */
    int64_t window;              /* 0: none; else query n (+ N - T) sees 0 <= n - m < window */
    bool alibi;                  /* adds -slope[h] * (n - m) to the scaled scores */
    bool allow_nondeterministic; /* backward: sums may come in any order */
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3];
    int64_t do_stride[3], dq_stride[3], dk_stride[3], dv_stride[3]; /* read by backward alone */
} ls_cudnn_shape;

/* Whether the calls below can do the case; builds its plan if it is new and nothing is captured. */
bool ls_cudnn_attention_ready(ls_cuda *cuda, const ls_cudnn_shape *shape, bool backward);

/* Bytes the caller has to plan for: none, for a plan has its own. */
static inline size_t ls_cudnn_attention_workspace_bound(const ls_cudnn_shape *shape,
                                                        bool backward) {
    return 0;
}

/* What was chosen for the case or why it was refused, with cuDNN's own words. */
const char *ls_cudnn_attention_about(ls_cuda *cuda, const ls_cudnn_shape *shape, bool backward);

/* After `ready` said yes. lse [B,H,T] is the natural logarithm of the sum of exponentials; slopes
 * [H] are read where the shape has alibi. */
void ls_cudnn_attention_forward(ls_cuda *cuda, const ls_cudnn_shape *shape, const void *q,
                                const void *k, const void *v, void *o, float *lse,
                                const float *slopes);
void ls_cudnn_attention_backward(ls_cuda *cuda, const ls_cudnn_shape *shape, const void *q,
                                 const void *k, const void *v, const void *o, const float *lse,
                                 const void *d_o, void *dq, void *dk, void *dv,
                                 const float *slopes);

/* Gives back all plans and their memory; the stream has to be still. */
void ls_cudnn_close(ls_cuda *cuda);

#endif
