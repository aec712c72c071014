/* Gradients of attention in tiles of bf16: the widths that have kernels for plain scores alone. 64
 * and 128 have files of their own. */
#include "tensor/op/attention/attention_backward.cuh"

void ls_cuda_attention_tiles_grad(const ls_run *run, const ls_cuda_attention *job) {
    const bool plain = ls_tile_all_plain(job);
    if (job->type == LS_F32)
        ls_cuda_attention_grad_f32(run, job);
    else if (plain && job->K <= 32)
        width_grad<ls_cuda_bf16, 32, true>(run, job);
    else if (job->K <= 64)
        ls_cuda_attention_grad_64(run, job);
    else if (plain && job->K <= 96)
        width_grad<ls_cuda_bf16, 96, true>(run, job);
    else
        ls_cuda_attention_grad_128(run, job);
}
