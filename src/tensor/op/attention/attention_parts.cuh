/* Outer tiles of attention that several blocks pass: each leaves its part in the workspace, and
 * another kernel adds the parts up, always in the same order.
 *
 * A slot holds a part: the rows of an outer tile, of the head's width, in f32. Gradients
 * of values lie behind all slots of those of keys; forward, logarithms of sums lie there
 * (a number per row). */
#ifndef LS_TENSOR_CUDA_ATTENTION_PARTS_H
#define LS_TENSOR_CUDA_ATTENTION_PARTS_H

#include "tensor/op/attention/attention_job.cuh"

/* The slot of a part of a list's row, for the tile `inside` of its block. A block of the grid is a
 * piece by tile, a head where heads share their rows, and a sequence. */
__device__ static inline int64_t ls_cuda_list_slot(const ls_cuda_plan &plan, int across, int part,
                                                   int inside) {
    return (((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * plan.parts + part) * across + inside;
}

__host__ __device__ static inline int64_t ls_cuda_list_slots(const ls_cuda_attention &job,
                                                             const ls_block_rows &list,
                                                             const ls_cuda_plan &plan) {
    return (int64_t)job.B * (job.H / list.heads) * plan.parts * (list.size / LS_ATTENTION_TILE);
}

/* The slot of a part of an interval's tile. */
__device__ static inline int64_t ls_cuda_part_slot(int B, int heads, int tiles, int part, int b,
                                                   int head, int tile) {
    return (((int64_t)part * B + b) * heads + head) * tiles + tile;
}

/* Output and its logarithms of the rows that are in parts. */
void ls_cuda_attention_join(const ls_run *run, const ls_cuda_attention *job);
/* Gradients of set `at` that are in parts of `rows` rows: of keys and values, or of queries.
 * Those of keys and queries are complete with the last pass over values. */
void ls_cuda_attention_join_grad(const ls_run *run, const ls_cuda_attention *job, int at, bool keys,
                                 int rows);

#endif
