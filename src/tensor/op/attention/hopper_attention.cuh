/* Attention in bf16 for compute capability 9.0: the cases whose speed matters. One position per
 * row, one set of keys, heads of 64 or 128. What ls_hopper_attention_takes turns down goes to the
 * general kernels. The same bits each time, backward too. */
#ifndef LS_TENSOR_CUDA_HOPPER_ATTENTION_H
#define LS_TENSOR_CUDA_HOPPER_ATTENTION_H

#include "tensor/cuda/cuda.cuh"
#include "tensor/op/rotate/rotate.cuh"

/* Element [b][row][head][e] is at data + b * batch + row * row + head * head + e, all counted in
 * elements; e runs over D. */
typedef struct ls_hopper_array {
    ls_cuda_bf16 *data;
    int64_t batch, row, head;
} ls_hopper_array;

typedef struct ls_hopper_attention {
    int64_t B, T, N, H, G, D; /* queries T, keys N, heads H, key-value heads G */
    int64_t start, first;     /* position of query row 0 and of key row 0 */
    float scale;
    int64_t hi;          /* admitted: 0 <= n - m <= hi */
    int64_t block;       /* > 0: and floor(n / block) - floor(m / block) <= 1 */
    const float *slopes; /* [H] on the device, none negative, or NULL: score -= slope * (n - m) */
    bool every_key;      /* reads keys too whose weights are 0 under slopes: the same, for checks */
    /* xPos: keys carry their factor relative to the start of their decay_block; queries are given
     * theirs here, 2 to the power of log_decay[pair] * (n - start of the block). */
    bool decays;
    int64_t decay_block, decay_pairs;
    bool decay_halves;      /* pair i = (i, i + decay_pairs), else (2 i, 2 i + 1) */
    const float *log_decay; /* [decay_pairs] in units of log 2, on the device */
    ls_hopper_array q, k, v, o;
    ls_hopper_array d_o, dq, dk, dv;  /* backward alone */
    ls_cuda_turns dq_turns, dk_turns; /* by which dq and dk are rotated; heads of 64 alone */
    float *lse;      /* [B,H,T], natural logarithm; -INFINITY for no keys; forward: or NULL */
    void *workspace; /* 256-byte aligned, in both directions */
} ls_hopper_attention;

/* Whether forward and backward take this. Only the arrays q, k, v, o are looked at when
 * a->d_o.data is NULL. */
bool ls_hopper_attention_takes(const ls_cuda *cuda, const ls_hopper_attention *a);
size_t ls_hopper_attention_workspace(const ls_hopper_attention *a, bool backward);
void ls_hopper_attention_forward(ls_cuda *cuda, const ls_hopper_attention *a);
/* Every element of dq, dk and dv is written. */
void ls_hopper_attention_backward(ls_cuda *cuda, const ls_hopper_attention *a);

#endif
