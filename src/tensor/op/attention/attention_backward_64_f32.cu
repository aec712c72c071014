/* Gradients of attention with heads of 64 in f32. */
#include "tensor/op/attention/attention_backward.cuh"

void ls_cuda_attention_grad_64_f32(const ls_run *run, const ls_cuda_attention *job) {
    width_grad<float, 64, false>(run, job);
}
