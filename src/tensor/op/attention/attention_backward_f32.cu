/* Gradients of attention in tiles of f32, as attention_backward.cu has them of bf16. */
#include "tensor/op/attention/attention_backward.cuh"

/* ---- rows ---- */

enum { ROWS = 64, ROW_THREADS = 2 * ROWS };

template <int D> struct row_tiles {
    static const int STRIDE = ls_tile_shape<float, D>::STRIDE;
    float dout[ROWS * STRIDE], out[ROWS * STRIDE];
};

/* As `statistics` of attention_job.cu. What a row has of itself is the diagonal of a product that
 * is made as those of output gradients and values are: with a single key both are the same bits. */
template <int D>
__global__ static void __launch_bounds__(ROW_THREADS)
    row_statistics(const __grid_constant__ ls_cuda_attention job) {
    extern __shared__ __align__(16) unsigned char arena[];
    row_tiles<D> &tiles = *(row_tiles<D> *)(void *)arena;
    const int row = (int)blockIdx.x * ROWS, h = (int)blockIdx.y, b = (int)blockIdx.z;
    const int band = (int)threadIdx.x / 32 * 16, lane = (int)threadIdx.x % 32;
    const int g = lane / 4, t = lane % 4;
    float sum[2] = {};
    for (int pass = 0; pass < job.passes; pass++) {
        ls_cuda_rows dout = job.dout, out = job.out;
        dout.data = (float *)dout.data + pass * job.K;
        out.data = (float *)out.data + pass * job.K;
        const int width = ls_cuda_pass_width(job, pass);
        __syncthreads();
        ls_tile_ask<D, ROWS, ROW_THREADS>(tiles.dout, dout, b, h, row, job.T, width);
        ls_tile_ask<D, ROWS, ROW_THREADS>(tiles.out, out, b, h, row, job.T, width);
        ls_copies_end();
        ls_copies_wait<0>();
        __syncthreads();
        float products[1][2][4];
        ls_tile_scores<D, 1, 16>(products, tiles.dout + band * row_tiles<D>::STRIDE,
                                 tiles.out + band * row_tiles<D>::STRIDE);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float *two = products[0][half] + 2 * half;
            sum[half] += g % 2 == 0 ? two[0] : two[1];
        }
    }
    if (t != g / 2) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = row + band + g + 8 * half;
        if (i >= job.T) break;
        const int64_t at = ((int64_t)b * job.H + h) * job.T + i;
        const float lse = job.lse[at];
        const bool empty = lse == -INFINITY;
        job.row_lse[at] = empty ? INFINITY : lse * LS_CUDA_LOG2_E;
        job.row_dot[at] = empty ? 0 : sum[half];
    }
}

template <int D> static void start_rows(const ls_run *run, const ls_cuda_attention *job) {
    const dim3 grid((unsigned)((job->T + ROWS - 1) / ROWS), (unsigned)job->H, (unsigned)job->B);
    const size_t bytes = sizeof(row_tiles<D>);
    ls_cuda_note(ls_cuda_of(run),
                 cudaFuncSetAttribute(row_statistics<D>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                 "attention, asking for shared memory");
    row_statistics<D><<<grid, ROW_THREADS, bytes, ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, "attention, row sums");
}

void ls_cuda_attention_statistics_f32(const ls_run *run, const ls_cuda_attention *job) {
    if (job->K <= 64)
        start_rows<64>(run, job);
    else
        start_rows<128>(run, job);
}

/* ---- gradients ---- */

void ls_cuda_attention_grad_f32(const ls_run *run, const ls_cuda_attention *job) {
    const bool plain = ls_tile_all_plain(job);
    if (plain && job->K <= 32)
        width_grad<float, 32, true>(run, job);
    else if (job->K <= 64)
        ls_cuda_attention_grad_64_f32(run, job);
    else if (plain && job->K <= 96)
        width_grad<float, 96, true>(run, job);
    else
        ls_cuda_attention_grad_128_f32(run, job);
}
