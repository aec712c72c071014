/* Sinusoidal tables, computed in f64 and narrowed. */
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/sinusoid/sinusoid.h"
}

/* Columns of one launch: what they are made of travels with it. */
enum { COLUMNS = 128 };
typedef struct columns {
    ls_sinusoid_column at[COLUMNS];
} columns;

/* y is the first of `count` columns of a table of `width`; a line of threads per row. Rows are
 * `each` for every sequence, or for all of them (begins is NULL then). */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    sinusoid_kernel(const columns made, const int32_t *begins, int64_t first, int64_t rows,
                    int64_t each, int64_t width, int64_t count, T *y) {
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y, column = threadIdx.x;
    if (row >= rows || column >= count) return;
    ls_sinusoid_column c = made.at[column];
    int64_t place = first + row % each - (begins == NULL ? 0 : begins[row / each]);
    double angle = (double)(place + c.shift) * c.frequency;
    y[row * width + column] = ls_cuda_narrow<T>((float)(c.cosine ? cos(angle) : sin(angle)));
}

template <typename T> static void sinusoid(const ls_run *run, const ls_node *node) {
    const ls_sinusoid_attributes *about = (const ls_sinusoid_attributes *)node->attributes;
    const ls_tensor *y = node->out[0], *where = node->in[0];
    const int32_t *begins = where == NULL ? NULL : (const int32_t *)ls_data(where);
    int64_t each = y->dim[y->rank - 2], width = y->dim[y->rank - 1], rows = ls_count(y) / width;
    int64_t first = about->relative ? 0 : run->start;
    dim3 threads(COLUMNS, LS_CUDA_THREADS / COLUMNS);
    for (int64_t begin = 0; begin < width; begin += COLUMNS) {
        columns made = {};
        int64_t count = ls_min(COLUMNS, width - begin);
        for (int64_t i = 0; i < count; i++)
            made.at[i] = ls_sinusoid_column_of(about->layout, begin + i, width);
        sinusoid_kernel<<<ls_cuda_blocks(rows, threads.y), threads, 0, ls_cuda_of(run)->stream>>>(
            made, begins, first, rows, each, width, count, (T *)ls_data(y) + begin);
    }
    ls_cuda_launched(run, "sinusoid");
}

LS_CUDA_DECLARE_TABLE(sinusoid);
const ls_kernel LS_CUDA_TABLE(sinusoid)[] = {
    {"sinusoid", {NULL, sinusoid<float>, sinusoid<ls_cuda_bf16>}, NULL},
    {},
};
