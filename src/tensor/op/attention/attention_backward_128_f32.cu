/* Gradients of attention with heads of 128 in f32. */
#include "tensor/op/attention/attention_backward.cuh"

void ls_cuda_attention_grad_128_f32(const ls_run *run, const ls_cuda_attention *job) {
    width_grad<float, 128, false>(run, job);
}
