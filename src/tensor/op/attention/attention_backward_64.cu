/* Gradients of attention with heads of 64. */
#include "tensor/op/attention/attention_backward.cuh"

void ls_cuda_attention_grad_64(const ls_run *run, const ls_cuda_attention *job) {
    width_grad<ls_cuda_bf16, 64, false>(run, job);
}
