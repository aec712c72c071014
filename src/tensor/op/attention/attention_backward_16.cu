/* Gradients of attention with heads of 16. */
#include "tensor/op/attention/attention_backward.cuh"

template void ls_cuda_attention_width_grad<16>(const ls_run *run, const ls_cuda_attention *job);
