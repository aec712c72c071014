/* Chosen rows, moved as bytes: one kernel for every type. */
#include "tensor/cuda/move_rows.cuh"

extern "C" {
#include "tensor/op/rows/rows.h"
}

struct take_where {
    ls_cuda_row_grid x, y;
    const int32_t *at;
    int64_t count;
    __device__ ls_cuda_moved_row operator()(int64_t row) const {
        int64_t b = row / count, i = row % count;
        return {ls_cuda_row_at(y, b, i), ls_cuda_row_at(x, b, at[i])};
    }
};

static void take(const ls_run *run, const ls_node *node) {
    const ls_tensor *y = node->out[0];
    take_where where = {ls_cuda_row_grid_of(node->in[0]), ls_cuda_row_grid_of(y),
                        (const int32_t *)ls_data(node->in[1]), y->dim[1]};
    ls_cuda_move_rows(run, y->dim[0] * y->dim[1], ls_row_bytes(y),
                      ls_cuda_row_grid_bits(&where.x) | ls_cuda_row_grid_bits(&where.y), where,
                      "take_rows");
}

struct put_where {
    ls_cuda_row_grid x, rows, y;
    const int32_t *at; /* rising */
    int64_t count, T;
    __device__ ls_cuda_moved_row operator()(int64_t row) const {
        int64_t b = row / T, t = row % T, low = 0, high = count;
        while (low < high) { /* the first place that is not before t */
            int64_t middle = (low + high) / 2;
            if (at[middle] < t)
                low = middle + 1;
            else
                high = middle;
        }
        const bool chosen = low < count && at[low] == t;
        const ls_cuda_row_grid from = chosen ? rows : x;
        const char *source = from.data == NULL ? NULL : ls_cuda_row_at(from, b, chosen ? low : t);
        return {ls_cuda_row_at(y, b, t), source};
    }
};

static void put(const ls_run *run, const ls_node *node) {
    const ls_tensor *y = node->out[0];
    put_where where = {ls_cuda_row_grid_of(node->in[0]),
                       ls_cuda_row_grid_of(node->in[1]),
                       ls_cuda_row_grid_of(y),
                       (const int32_t *)ls_data(node->in[2]),
                       node->in[2]->dim[0],
                       y->dim[1]};
    ls_cuda_move_rows(run, y->dim[0] * y->dim[1], ls_row_bytes(y),
                      ls_cuda_row_grid_bits(&where.x) | ls_cuda_row_grid_bits(&where.rows) |
                          ls_cuda_row_grid_bits(&where.y),
                      where, "put_rows");
}

LS_CUDA_DECLARE_TABLE(rows);
const ls_kernel LS_CUDA_TABLE(rows)[] = {
    {"take_rows", {NULL, take, take}, NULL},
    {"put_rows", {NULL, put, put}, NULL},
    {},
};
