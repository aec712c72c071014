/* Attention in tiles of f32. */
#include "tensor/op/attention/attention_forward.cuh"

void ls_cuda_attention_tiles_f32(const ls_run *run, const ls_cuda_attention *job) {
    all_passes<float>(run, job);
}
