/* Sums of blocks of rows, and the way back: every row gets its block's gradient. */
#include "tensor/cuda/move_rows.cuh"

extern "C" {
#include "tensor/op/block_sums/block_sums.h"
}

/* A block has a sequence: how many of its blocks are complete, to the workspace; and, where they
 * are asked for, which blocks are there. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    describe_kernel(ls_cuda_valid valid, int64_t block, int64_t blocks, bool adopt,
                    int32_t *complete, int32_t *most, uint8_t *there, int64_t there_stride) {
    const int64_t b = blockIdx.x;
    int mine = 0;
    for (int64_t j = threadIdx.x; j < blocks; j += LS_CUDA_THREADS)
        mine += valid.at(b, (j + 1) * block - 1);
    const int all = ls_cuda_block_sum<LS_CUDA_THREADS>(mine);
    if (threadIdx.x == 0) {
        complete[b] = all;
        if (most != NULL) most[b] = all - 1;
    }
    for (int64_t j = threadIdx.x; there != NULL && j < blocks; j += LS_CUDA_THREADS)
        there[b * there_stride + j] = adopt ? j < all : valid.at(b, (j + 1) * block - 1);
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)node->in[0]->dim[0] * sizeof(int32_t);
}

template <typename T> struct sums_job {
    const T *x;
    T *y;
    int64_t x_b, x_t, y_b, y_j;              /* strides */
    int64_t length, D, blocks, block, count; /* count: of threads */
    bool adopt;
    ls_cuda_valid valid;
    const int32_t *complete;
};

/* A thread has LANES columns of a block. */
template <int LANES, typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS) sums_kernel(const sums_job<T> job) {
    int64_t thread = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (thread >= job.count) return;
    const int64_t packs = job.D / LANES, row = thread / packs, column = thread % packs * LANES;
    const int64_t b = row / job.blocks, j = row % job.blocks;
    int64_t first = j * job.block, end = first + job.block;
    if (job.adopt) {
        if (j >= job.complete[b]) end = first;
        if (j == job.complete[b] - 1) end = job.length;
    }
    float sum[LANES] = {};
#pragma unroll 4
    for (int64_t t = first; t < end; t++) {
        if (!job.valid.at(b, t)) continue;
        float more[LANES];
        ls_cuda_load<LANES>(job.x + b * job.x_b + t * job.x_t + column, more);
#pragma unroll
        for (int i = 0; i < LANES; i++) sum[i] += more[i];
    }
    ls_cuda_store<LANES>(job.y + b * job.y_b + j * job.y_j + column, sum);
}

template <typename T> static void sums(const ls_run *run, const ls_node *node) {
    enum { LANES = ls_cuda_lanes<T>::count };
    const ls_block_sums_attributes *about = (const ls_block_sums_attributes *)node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0], *there = node->out[2];
    int32_t *complete = (int32_t *)run->workspace;
    sums_job<T> job = {};
    job.x = (const T *)ls_data(x);
    job.y = (T *)ls_data(y);
    job.x_b = x->stride[0], job.x_t = x->stride[1];
    job.y_b = y->stride[0], job.y_j = y->stride[1];
    job.length = x->dim[1], job.D = x->dim[2], job.blocks = y->dim[1], job.block = about->block;
    job.adopt = about->adopt;
    job.valid = ls_cuda_valid_of(node->in[1]);
    job.complete = complete;
    cudaStream_t stream = ls_cuda_of(run)->stream;
    describe_kernel<<<(unsigned)x->dim[0], LS_CUDA_THREADS, 0, stream>>>(
        job.valid, job.block, job.blocks, job.adopt, complete, (int32_t *)ls_data(node->out[1]),
        (uint8_t *)ls_data(there), there->stride[0]);
    ls_cuda_launched(run, "block_sums");
    bool wide = (job.D | job.x_b | job.x_t | job.y_b | job.y_j) % LANES == 0 &&
                ls_cuda_aligned(job.x) && ls_cuda_aligned(job.y);
    job.count = x->dim[0] * job.blocks * (wide ? job.D / LANES : job.D);
    unsigned blocks = ls_cuda_blocks(job.count, LS_CUDA_THREADS);
    if (wide)
        sums_kernel<LANES><<<blocks, LS_CUDA_THREADS, 0, stream>>>(job);
    else
        sums_kernel<1><<<blocks, LS_CUDA_THREADS, 0, stream>>>(job);
    ls_cuda_launched(run, "block_sums");
}

struct grad_where {
    ls_cuda_row_grid dy, dx;
    ls_cuda_valid valid;
    const int32_t *complete;
    int64_t T, block, blocks;
    bool adopt;
    __device__ ls_cuda_moved_row operator()(int64_t row) const {
        const int64_t b = row / T, t = row % T, last = (int64_t)complete[b] - 1;
        int64_t j = t / block;
        if (adopt && j > last) j = last;
        const bool has = j >= 0 && j < blocks && valid.at(b, t);
        return {ls_cuda_row_at(dx, b, t), has ? ls_cuda_row_at(dy, b, j) : NULL};
    }
};

static void grad(const ls_run *run, const ls_node *node) {
    const ls_block_sums_attributes *about = (const ls_block_sums_attributes *)node->attributes;
    const ls_tensor *dy = node->in[0], *dx = node->out[0];
    int32_t *complete = (int32_t *)run->workspace;
    const int64_t B = dx->dim[0], T = dx->dim[1];
    grad_where where = {ls_cuda_row_grid_of(dy),
                        ls_cuda_row_grid_of(dx),
                        ls_cuda_valid_of(node->in[1]),
                        complete,
                        T,
                        about->block,
                        dy->dim[1],
                        about->adopt};
    describe_kernel<<<(unsigned)B, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        where.valid, about->block, T / about->block, about->adopt, complete, NULL, NULL, 0);
    ls_cuda_launched(run, "block_sums_grad");
    ls_cuda_move_rows(run, B * T, (size_t)dx->dim[2] * ls_dtype_size(dx->type),
                      ls_cuda_row_grid_bits(&where.dy) | ls_cuda_row_grid_bits(&where.dx), where,
                      "block_sums_grad");
}

LS_CUDA_DECLARE_TABLE(block_sums);
const ls_kernel LS_CUDA_TABLE(block_sums)[] = {
    {"block_sums", {NULL, sums<float>, sums<ls_cuda_bf16>}, workspace},
    {"block_sums_grad", {NULL, grad, grad}, workspace},
    {},
};
