/* Gradients of attention with heads of 16. */
#include "tensor/cuda/lib/attention_backward.h"

template void ls_cuda_attention_width_grad<16>(const ls_run *run, const ls_cuda_attention *job);
