/* Gradients of attention with heads of 128. */
#include "tensor/op/attention/attention_backward.cuh"

template void ls_cuda_attention_width_grad<128>(const ls_run *run, const ls_cuda_attention *job);
