/* k[s,d] = sum_m B[d,m] C[d,m+s], and its gradients: a sum to a thread, in double. */
#include "tensor/cuda/rows.cuh"

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    forward_kernel(int64_t D, int64_t N, const float *B, const float *C, float *k) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, s = i / D, d = i % D;
    if (s >= N) return;
    double sum = 0;
    for (int64_t m = 0; m + s < N; m++) sum += (double)B[d * N + m] * (double)C[d * N + m + s];
    k[i] = (float)sum;
}

static void forward(const ls_run *run, const ls_node *node) {
    const int64_t D = node->in[0]->dim[0], N = node->in[0]->dim[1];
    forward_kernel<<<ls_cuda_blocks(D * N, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                     ls_cuda_of(run)->stream>>>(D, N, (const float *)ls_data(node->in[0]),
                                                (const float *)ls_data(node->in[1]),
                                                (float *)ls_data(node->out[0]));
    ls_cuda_launched(run, "shift_kernel");
}

/* dk [N][D] has its rows `stride` apart. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    backward_kernel(int64_t D, int64_t N, const float *B, const float *C, const float *dk,
                    int64_t stride, float *dB, float *dC) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, d = i / N, m = i % N;
    if (d >= D) return;
    double to_B = 0, to_C = 0;
    for (int64_t s = 0; m + s < N; s++) to_B += (double)dk[s * stride + d] * (double)C[i + s];
    for (int64_t s = 0; s <= m; s++) to_C += (double)dk[s * stride + d] * (double)B[i - s];
    dB[i] += (float)to_B;
    dC[i] += (float)to_C;
}

static void backward(const ls_run *run, const ls_node *node) {
    const int64_t D = node->in[0]->dim[0], N = node->in[0]->dim[1];
    backward_kernel<<<ls_cuda_blocks(D * N, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                      ls_cuda_of(run)->stream>>>(
        D, N, (const float *)ls_data(node->in[0]), (const float *)ls_data(node->in[1]),
        (const float *)ls_data(node->in[2]), node->in[2]->stride[1],
        (float *)ls_param_gradient(run, node->in[0]), (float *)ls_param_gradient(run, node->in[1]));
    ls_cuda_launched(run, "shift_kernel_grad");
}

LS_CUDA_DECLARE_TABLE(shift_kernel);
const ls_kernel LS_CUDA_TABLE(shift_kernel)[] = {
    {"shift_kernel", {NULL, forward, forward}, NULL},
    {"shift_kernel_grad", {NULL, backward, backward}, NULL},
    {},
};
