/* y[c,r] = x[r,c], in squares that stay in the cache. It goes by the tensors' own type. */
#include "base/memory.h"
#include "tensor/op/transpose/transpose.h"

enum { SQUARE = 16 };

#define TURN(TYPE)                                                                                 \
    for (int64_t c = first; c < last; c++)                                                         \
        for (int64_t r = row; r < end; r++)                                                        \
    ((TYPE *)to)[c * y->stride[0] + r] = ((const TYPE *)from)[r * x->stride[0] + c]

static void transpose(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const void *from = ls_data(x);
    void *to = ls_data(y);
    const size_t size = ls_dtype_size(x->type);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t first = 0; first < x->dim[1]; first += SQUARE) {
        const int64_t last = ls_min(first + SQUARE, x->dim[1]);
        for (int64_t row = 0; row < x->dim[0]; row += SQUARE) {
            const int64_t end = ls_min(row + SQUARE, x->dim[0]);
            if (size == sizeof(double))
                TURN(double);
            else if (size == sizeof(float))
                TURN(float);
            else
                TURN(ls_bf16);
        }
    }
}

extern const ls_kernel LS_CPU_TABLE(transpose)[];
const ls_kernel LS_CPU_TABLE(transpose)[] = {
    {"transpose", {transpose, transpose, transpose}, NULL},
    {0},
};
