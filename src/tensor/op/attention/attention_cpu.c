/* Attention: which way to compute it. See attention_*_cpu.c. */
#include "tensor/op/attention/attention_kernels_cpu.h"

static void forward_reference(const ls_run *run, const ls_node *node) {
    ls_attention_job job;
    ls_attention_resolve(run, node, &job);
    ls_attention_reference(&job);
}

/* What is to be done with the past as long as it is now: the node's work is that of a full cache. */
static double work_of(const ls_attention_job *job) {
    double keys = 0;
    for (int s = 0; s < job->sets; s++) keys += (double)ls_interval_length(job->set[s].held);
    return 2 * (double)(job->B * job->H * job->T * (job->K + job->V)) * keys;
}

static void forward(const ls_run *run, const ls_node *node) {
    ls_attention_job job;
    ls_attention_resolve(run, node, &job);
    if (work_of(&job) < (double)run->team_work) job.threads = 1;
    if (ls_attention_decode_fits(&job))
        ls_attention_decode(&job);
    else
        ls_attention_tiled(&job);
}

static void backward_reference(const ls_run *run, const ls_node *node) {
    ls_attention_job job;
    ls_attention_resolve(run, node, &job);
    ls_attention_reference_grad(&job);
}

static void backward(const ls_run *run, const ls_node *node) {
    ls_attention_job job;
    ls_attention_resolve(run, node, &job);
    ls_attention_tiled_grad(&job);
}

static size_t forward_workspace(const ls_node *node, int threads) {
    ls_attention_job job;
    ls_attention_resolve(NULL, node, &job);
    if (job.out.type == LS_F64) return 0;
    if (ls_attention_decode_fits(&job)) return ls_attention_decode_workspace(&job, threads);
    return ls_attention_tiled_workspace(&job, threads);
}

static size_t backward_workspace(const ls_node *node, int threads) {
    ls_attention_job job;
    ls_attention_resolve(NULL, node, &job);
    if (job.out.type == LS_F64) return 0;
    return ls_attention_tiled_grad_workspace(&job, threads);
}

const ls_kernel LS_CPU_TABLE(attention)[] = {
    {"attention", {forward_reference, forward, forward}, forward_workspace},
    {"attention_grad", {backward_reference, backward, backward}, backward_workspace},
    {"listed_attention", {forward_reference, forward, forward}, forward_workspace},
    {"listed_attention_grad", {backward_reference, backward, backward}, backward_workspace},
    {"span_attention", {forward_reference, forward, forward}, forward_workspace},
    {"span_attention_grad", {backward_reference, backward, backward}, backward_workspace},
    {0},
};
