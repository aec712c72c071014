#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/row_growth/row_growth.h"
}

template <typename T> struct growing {
    const T *x;
    T *y;
    int64_t x_stride[3], y_stride[3]; /* of sequence, time, head */
    ls_cuda_divisor width, heads, rows;
    uint64_t count;
    int64_t start;
    double scale;          /* logarithm of the length */
    float whole;           /* the factor of all rows; negative: each has its own */
    const int32_t *begins; /* or NULL */
};

template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    grow_kernel(const __grid_constant__ growing<T> by) {
    uint64_t index = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, i, h, t;
    if (index >= by.count) return;
    const uint64_t head = ls_cuda_divide(index, by.width, &i);
    const uint64_t row = ls_cuda_divide(head, by.heads, &h);
    const uint64_t b = ls_cuda_divide(row, by.rows, &t);
    const int64_t position =
        by.start + (int64_t)t - (by.begins == NULL ? 0 : (int64_t)by.begins[b]);
    const float factor =
        by.whole >= 0 ? by.whole : (float)fmax(1.0, log((double)(position + 1)) / by.scale);
    const int64_t from = b * by.x_stride[0] + t * by.x_stride[1] + h * by.x_stride[2] + i;
    const int64_t to = b * by.y_stride[0] + t * by.y_stride[1] + h * by.y_stride[2] + i;
    by.y[to] = ls_cuda_narrow<T>(ls_cuda_wide(by.x[from]) * factor);
}

template <typename T> static void grow(const ls_run *run, const ls_node *node) {
    const ls_growth_attributes *about = (const ls_growth_attributes *)node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    growing<T> by = {};
    by.x = (const T *)ls_data(x);
    by.y = (T *)ls_data(y);
    for (int axis = 0; axis < 3; axis++) {
        by.x_stride[axis] = x->stride[axis];
        by.y_stride[axis] = y->stride[axis];
    }
    by.width = ls_cuda_divisor_of((uint64_t)x->dim[3]);
    by.heads = ls_cuda_divisor_of((uint64_t)x->dim[2]);
    by.rows = ls_cuda_divisor_of((uint64_t)x->dim[1]);
    by.count = (uint64_t)ls_count(x);
    by.start = run->start;
    by.scale = log(about->growth.length);
    by.whole = -1;
    if (about->growth.whole)
        by.whole = (float)(log((double)(run->start + about->chunk)) / by.scale);
    if (node->in[1] != NULL) by.begins = (const int32_t *)ls_data(node->in[1]);
    grow_kernel<T><<<ls_cuda_blocks(ls_count(x), LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                     ls_cuda_of(run)->stream>>>(by);
    ls_cuda_launched(run, "row_growth");
}

LS_CUDA_DECLARE_TABLE(row_growth);
const ls_kernel LS_CUDA_TABLE(row_growth)[] = {
    {"row_growth", {NULL, grow<float>, grow<ls_cuda_bf16>}, NULL},
    {},
};
