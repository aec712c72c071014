/* Gradients of attention with heads of 96. */
#include "tensor/op/attention/attention_backward.cuh"

template void ls_cuda_attention_width_grad<96>(const ls_run *run, const ls_cuda_attention *job);
