/* table[h][r] = weight[bucket[r]][h], and its gradient. */
#include "tensor/cuda/rows.cuh"

template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    table_kernel(const T *weight, const int32_t *bucket, int64_t heads, int64_t R, float *table) {
    int64_t r = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, h = blockIdx.y;
    if (r < R) table[h * R + r] = ls_cuda_wide(weight[bucket[r] * heads + h]);
}

/* Block (bucket, head) looks through all distances. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    grad_kernel(const float *dtable, int64_t stride, const int32_t *bucket, int64_t R,
                float *dweight) {
    int64_t heads = gridDim.y, h = blockIdx.y;
    float sum = 0;
    for (int64_t r = threadIdx.x; r < R; r += LS_CUDA_THREADS)
        if (bucket[r] == (int32_t)blockIdx.x) sum += dtable[h * stride + r];
    sum = ls_cuda_block_sum<LS_CUDA_THREADS>(sum);
    if (threadIdx.x == 0) dweight[blockIdx.x * heads + h] = sum;
}

static void table(const ls_run *run, const ls_node *node) {
    const ls_tensor *weight = node->in[0], *out = node->out[0];
    const int32_t *bucket = (const int32_t *)ls_data(node->in[1]);
    int64_t heads = out->dim[0], R = out->dim[1];
    dim3 blocks(ls_cuda_blocks(R, LS_CUDA_THREADS), (unsigned)heads);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    float *to = (float *)ls_data(out);
    /* a bf16 program keeps parameters marked `full` in f32 */
    if (weight->type == LS_BF16)
        table_kernel<<<blocks, LS_CUDA_THREADS, 0, stream>>>((const ls_cuda_bf16 *)ls_data(weight),
                                                             bucket, heads, R, to);
    else
        table_kernel<<<blocks, LS_CUDA_THREADS, 0, stream>>>((const float *)ls_data(weight), bucket,
                                                             heads, R, to);
    ls_cuda_launched(run, "bucket_table");
}

static void grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *dtable = node->in[0], *dweight = node->out[0];
    dim3 blocks((unsigned)(ls_count(dweight) / dtable->dim[0]), (unsigned)dtable->dim[0]);
    grad_kernel<<<blocks, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        (const float *)ls_data(dtable), dtable->stride[0], (const int32_t *)ls_data(node->in[1]),
        dtable->dim[1], (float *)ls_data(dweight));
    ls_cuda_launched(run, "bucket_table_grad");
}

LS_CUDA_DECLARE_TABLE(bucket_table);
const ls_kernel LS_CUDA_TABLE(bucket_table)[] = {
    {"bucket_table", {NULL, table, table}, NULL},
    {"bucket_table_grad", {NULL, grad, grad}, NULL},
    {},
};
