/* One block walks: the network is small, and its steps follow one another. */
#include "tensor/cuda/rows.cuh"

#define LS_CLEX_EACH(i, count)                                                                     \
    for (int64_t i = threadIdx.x; i < (int64_t)(count); i += LS_CUDA_THREADS)
#define LS_CLEX_WAIT() __syncthreads()
#define LS_CLEX_FUNCTION static __device__

extern "C" {
#include "tensor/op/clex/clex.h"
}
#include "tensor/op/clex/clex_walk.h"

typedef struct clex_job {
    ls_clex about;
    const float *df, *up, *down;
    const int32_t *scale; /* or NULL */
    int64_t length;
    float *f, *dup, *ddown;
    double *room;
} clex_job;

static __device__ int64_t scale_of(const clex_job &job) {
    const ls_clex *about = &job.about;
    const int64_t given = job.scale == NULL ? 0 : *job.scale;
    int64_t scale = about->scale > 0 ? about->scale
                    : given > 0      ? given
                                     : (job.length + about->trained - 1) / about->trained;
    return scale < 1 ? 1 : scale < about->most ? scale : about->most;
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    clex_kernel(const __grid_constant__ clex_job job) {
    const int64_t scale = scale_of(job), pairs = job.about.pairs;
    clex_walk w = clex_walk_in(&job.about, job.room, false);
    LS_CLEX_EACH(i, pairs * job.about.hidden) {
        w.up[i] = job.up[i];
        w.down[i] = job.down[i];
    }
    LS_CLEX_WAIT();
    const double *z = clex_forward(&w, scale, false);
    LS_CLEX_EACH(i, pairs) {
        const double f = scale == 1 ? job.about.frequency[i] : exp(z[i]);
        job.f[i] = (float)f;
        job.f[pairs + i] = (float)(f - (double)(float)f);
    }
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    clex_grad_kernel(const __grid_constant__ clex_job job) {
    const int64_t scale = scale_of(job), weights = job.about.pairs * job.about.hidden;
    clex_walk w = clex_walk_in(&job.about, job.room, true);
    LS_CLEX_EACH(i, weights) {
        w.up[i] = job.up[i];
        w.down[i] = job.down[i];
        w.dup[i] = w.ddown[i] = 0;
    }
    LS_CLEX_WAIT();
    const double *z = clex_forward(&w, scale, true);
    LS_CLEX_EACH(i, job.about.pairs) {
        w.dz[i] = exp(z[i]) * (double)job.df[i];
    }
    LS_CLEX_WAIT();
    clex_backward(&w, scale);
    LS_CLEX_EACH(i, weights) {
        job.dup[i] = (float)w.dup[i];
        job.ddown[i] = (float)w.ddown[i];
    }
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)ls_clex_room((const ls_clex *)node->attributes, node->in_count == 4) *
           sizeof(double);
}

/* Operands from in[first] on: up, down, scale. */
static clex_job job_of(const ls_run *run, const ls_node *node, int first) {
    clex_job job = {};
    job.about = *(const ls_clex *)node->attributes;
    job.up = (const float *)ls_data(node->in[first]);
    job.down = (const float *)ls_data(node->in[first + 1]);
    job.scale = (const int32_t *)ls_data_or_null(node->in[first + 2]);
    job.length = run->start + job.about.chunk;
    job.room = (double *)run->workspace;
    return job;
}

static void frequencies(const ls_run *run, const ls_node *node) {
    clex_job job = job_of(run, node, 0);
    job.f = (float *)ls_data(node->out[0]);
    clex_kernel<<<1, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(job);
    ls_cuda_launched(run, "clex");
}

static void gradient(const ls_run *run, const ls_node *node) {
    clex_job job = job_of(run, node, 1);
    job.df = (const float *)ls_data(node->in[0]);
    job.dup = (float *)ls_data(node->out[0]);
    job.ddown = (float *)ls_data(node->out[1]);
    clex_grad_kernel<<<1, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(job);
    ls_cuda_launched(run, "clex_grad");
}

LS_CUDA_DECLARE_TABLE(clex);
const ls_kernel LS_CUDA_TABLE(clex)[] = {
    {"clex", {NULL, frequencies, frequencies}, workspace},
    {"clex_grad", {NULL, gradient, gradient}, workspace},
    {},
};
