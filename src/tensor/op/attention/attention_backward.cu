/* Gradients of attention in tiles: the widths, each of a file of its own (attention_backward.h). */
#include "tensor/op/attention/attention_job.cuh"

template <int D> void ls_cuda_attention_width_grad(const ls_run *run, const ls_cuda_attention *job);

void ls_cuda_attention_tiles_grad(const ls_run *run, const ls_cuda_attention *job) {
    if (job->K <= 16)
        ls_cuda_attention_width_grad<16>(run, job);
    else if (job->K <= 32)
        ls_cuda_attention_width_grad<32>(run, job);
    else if (job->K <= 64)
        ls_cuda_attention_width_grad<64>(run, job);
    else if (job->K <= 96)
        ls_cuda_attention_width_grad<96>(run, job);
    else
        ls_cuda_attention_width_grad<128>(run, job);
}
