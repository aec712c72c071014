/* Gradients of attention in tiles: the widths, each of a file of its own (attention_backward.h). */
#include "tensor/cuda/lib/attention_job.h"

template <int D> void ls_cuda_attention_width_grad(const ls_run *run, const ls_cuda_attention *job);

void ls_cuda_attention_tiles_grad(const ls_run *run, const ls_cuda_attention *job) {
    switch (job->K) {
    case 32:
        ls_cuda_attention_width_grad<32>(run, job);
        break;
    case 64:
        ls_cuda_attention_width_grad<64>(run, job);
        break;
    case 96:
        ls_cuda_attention_width_grad<96>(run, job);
        break;
    default:
        ls_cuda_attention_width_grad<128>(run, job);
    }
}
