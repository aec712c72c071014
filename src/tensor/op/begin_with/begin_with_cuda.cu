/* y = v, for every sequence of the batch, at its start, and x after it. */
#include "tensor/cuda/map.cuh"

struct same_map {
    template <int LANES>
    __device__ __forceinline__ void operator()(uint64_t, const float (&in)[1][LANES],
                                               float (&out)[1][LANES]) const {
#pragma unroll
        for (int i = 0; i < LANES; i++) out[0][i] = in[0][i];
    }
};

template <typename O, typename A>
static void copy_typed(const ls_run *run, const ls_cuda_layout *layout, const ls_tensor *y,
                       const ls_tensor *from) {
    ls_cuda_map_operands<O, A, A> at = {{(O *)ls_data(y)}, (const A *)ls_data(from), {}};
    ls_cuda_map<1, 1>(run, layout, at, same_map(), "begin_with");
}

/* Where sequences began one by one: each takes the parameter or what is carried. */
template <typename O, typename A, typename P>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    choose_kernel(const int32_t *begins, int64_t start, const A *x, const P *v, int64_t count,
                  int64_t each, O *y) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= count) return;
    const bool begin = begins[i / each] == start;
    y[i] = ls_cuda_narrow<O>(begin ? ls_cuda_wide(v[i % each]) : ls_cuda_wide(x[i]));
}

template <typename O, typename A>
static void choose_typed(const ls_run *run, const ls_node *node, const A *x) {
    const ls_tensor *v = node->in[1], *y = node->out[0];
    const int32_t *begins = (const int32_t *)ls_data(node->in[2]);
    const int64_t each = ls_count(v), count = ls_count(y);
    const unsigned blocks = ls_cuda_blocks(count, LS_CUDA_THREADS);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    O *to = (O *)ls_data(y);
    if (v->type == LS_BF16)
        choose_kernel<<<blocks, LS_CUDA_THREADS, 0, stream>>>(
            begins, run->start, x, (const ls_cuda_bf16 *)ls_data(v), count, each, to);
    else
        choose_kernel<<<blocks, LS_CUDA_THREADS, 0, stream>>>(
            begins, run->start, x, (const float *)ls_data(v), count, each, to);
    ls_cuda_launched(run, "begin_with");
}

template <typename O> static void choose(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0];
    if (x->type == LS_BF16)
        choose_typed<O>(run, node, (const ls_cuda_bf16 *)ls_data(x));
    else
        choose_typed<O>(run, node, (const float *)ls_data(x));
}

template <typename O> static void begin_typed(const ls_run *run, const ls_node *node) {
    const ls_tensor *v = node->in[1], *y = node->out[0];
    if (node->in[2] != NULL) {
        choose<O>(run, node);
        return;
    }
    const ls_tensor *from = run->start == 0 ? v : node->in[0];
    const int64_t each = ls_count(v), rows = ls_count(y) / each;
    ls_cuda_axes axes[] = {ls_cuda_axes_of_rows(rows, each, each),
                           ls_cuda_axes_of_rows(rows, each, run->start == 0 ? 0 : each)};
    ls_cuda_layout layout;
    if (!ls_cuda_lay_out(run, 2, axes, &layout)) return;
    if (from->type == LS_BF16)
        copy_typed<O, ls_cuda_bf16>(run, &layout, y, from);
    else
        copy_typed<O, float>(run, &layout, y, from);
}

template <typename T, typename O>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    grad_kernel(const T *dy, const int32_t *begins, int64_t start, int64_t rows, int64_t each,
                O *dv) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= each) return;
    float sum = 0;
    for (int64_t row = 0; row < rows; row++)
        if (start == (begins == NULL ? 0 : begins[row])) sum += ls_cuda_wide(dy[row * each + i]);
    dv[i] = ls_cuda_narrow<O>(sum);
}

/* What is carried may be wide in a program that is not. */
static void begin_with(const ls_run *run, const ls_node *node) {
    if (node->out[0]->type == LS_BF16)
        begin_typed<ls_cuda_bf16>(run, node);
    else
        begin_typed<float>(run, node);
}

/* Zeros where the parameter was not what the sequence began with. */
template <typename T> static void grad_typed(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[0], *where = node->in[1], *dv = node->out[0];
    const int64_t each = ls_count(dv), rows = ls_count(dy) / each;
    const int32_t *begins = where == NULL ? NULL : (const int32_t *)ls_data(where);
    const unsigned blocks = ls_cuda_blocks(each, LS_CUDA_THREADS);
    const T *from = (const T *)ls_data(dy);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (dv->type == LS_BF16)
        grad_kernel<<<blocks, LS_CUDA_THREADS, 0, stream>>>(from, begins, run->start, rows, each,
                                                            (ls_cuda_bf16 *)ls_data(dv));
    else
        grad_kernel<<<blocks, LS_CUDA_THREADS, 0, stream>>>(from, begins, run->start, rows, each,
                                                            (float *)ls_data(dv));
    ls_cuda_launched(run, "begin_with_grad");
}

static void begin_with_grad(const ls_run *run, const ls_node *node) {
    if (node->in[0]->type == LS_BF16)
        grad_typed<ls_cuda_bf16>(run, node);
    else
        grad_typed<float>(run, node);
}

template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    grad_x_kernel(const T *dy, const int32_t *begins, int64_t start, int64_t count, int64_t each,
                  T *dx) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= count) return;
    const bool begin = start == (begins == NULL ? 0 : begins[i / each]);
    dx[i] = begin ? ls_cuda_narrow<T>(0.0f) : dy[i];
}

template <typename T> static void grad_x_typed(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[0], *where = node->in[1], *dx = node->out[0];
    const int64_t count = ls_count(dx);
    grad_x_kernel<<<ls_cuda_blocks(count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                    ls_cuda_of(run)->stream>>>(
        (const T *)ls_data(dy), where == NULL ? NULL : (const int32_t *)ls_data(where), run->start,
        count, count / dx->dim[0], (T *)ls_data(dx));
    ls_cuda_launched(run, "begin_with_grad_x");
}

static void begin_with_grad_x(const ls_run *run, const ls_node *node) {
    if (node->in[0]->type == LS_BF16)
        grad_x_typed<ls_cuda_bf16>(run, node);
    else
        grad_x_typed<float>(run, node);
}

LS_CUDA_DECLARE_TABLE(begin_with);
const ls_kernel LS_CUDA_TABLE(begin_with)[] = {
    {"begin_with", {NULL, begin_with, begin_with}, NULL},
    {"begin_with_grad", {NULL, begin_with_grad, begin_with_grad}, NULL},
    {"begin_with_grad_x", {NULL, begin_with_grad_x, begin_with_grad_x}, NULL},
    {},
};
