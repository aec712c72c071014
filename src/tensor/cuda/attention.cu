/* Attention: which way to compute it. See lib/attention_job.h. */
#include "tensor/cuda/lib/attention_job.h"

static ls_dtype type_of(const ls_node *node) {
    return node->in[LS_ATTENTION_Q]->type;
}

static void forward(const ls_run *run, const ls_node *node) {
    ls_cuda_attention job;
    ls_cuda_attention_begin(run, node, false, &job);
    if (ls_cuda_attention_tiles_fit(&job, type_of(node)))
        ls_cuda_attention_tiles(run, &job);
    else
        ls_cuda_attention_plain(run, &job, type_of(node));
    if (job.splits > 1) ls_cuda_attention_merge(run, &job, type_of(node));
}

static void backward(const ls_run *run, const ls_node *node) {
    ls_cuda_attention job;
    ls_cuda_attention_begin(run, node, true, &job);
    ls_cuda_attention_statistics(run, &job, type_of(node));
    if (ls_cuda_attention_tiles_fit(&job, type_of(node)))
        ls_cuda_attention_tiles_grad(run, &job);
    else
        ls_cuda_attention_plain_grad(run, &job, type_of(node));
    ls_cuda_attention_distance_grad(run, &job, type_of(node));
}

static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return ls_cuda_attention_workspace(node, false);
}

static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return ls_cuda_attention_workspace(node, true);
}

LS_CUDA_DECLARE_TABLE(attention);
const ls_kernel LS_CUDA_TABLE(attention)[] = {
    {"attention", {NULL, forward, forward}, forward_workspace},
    {"attention_grad", {NULL, backward, backward}, backward_workspace},
    {0},
};
