/* Attention in tiles of bf16, and what the kernels in tiles take. */
#include "tensor/op/attention/attention_forward.cuh"

bool ls_cuda_attention_tiles_fit(const ls_cuda_attention *job, ls_dtype type) {
    bool fit = (type == LS_BF16 || job->wide_tiles) && job->K <= 128 && job->vectors;
    for (int s = 0; s < job->sets; s++) {
        const ls_cuda_key_set *set = &job->set[s];
        const bool listed = set->query_plan.pieces != NULL;
        fit = fit && set->relative.data == NULL && set->dilation == NULL;
        if (listed)
            fit = fit && job->sets == 1 && job->H == job->G && job->K == job->V &&
                  set->seen_by_queries.size % LS_ATTENTION_TILE == 0;
    }
    return fit;
}

void ls_cuda_attention_tiles(const ls_run *run, const ls_cuda_attention *job) {
    if (job->type == LS_BF16)
        all_passes<ls_cuda_bf16>(run, job);
    else
        ls_cuda_attention_tiles_f32(run, job);
}
