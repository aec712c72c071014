/* Gradients of attention with heads of 128. */
#include "tensor/op/attention/attention_backward.cuh"

void ls_cuda_attention_grad_128(const ls_run *run, const ls_cuda_attention *job) {
    width_grad<ls_cuda_bf16, 128, false>(run, job);
}
