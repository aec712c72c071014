/* y + scale x, a factor per channel, and its gradients. */
#include "tensor/cuda/column_products.cuh"
#include "tensor/cuda/map.cuh"

static ls_cuda_axes axes_of(int64_t rows, ls_cuda_strided m) {
    return ls_cuda_axes_of_rows(rows, m.width, m.stride);
}

/* in: scale, y, x; or scale, dy. */
struct scaled_map {
    template <int LANES, int IN>
    __device__ __forceinline__ void operator()(uint64_t, const float (&in)[IN][LANES],
                                               float (&out)[1][LANES]) const {
#pragma unroll
        for (int i = 0; i < LANES; i++)
            out[0][i] = IN > 2 ? in[1][i] + in[0][i] * in[IN - 1][i] : in[0][i] * in[1][i];
    }
};

/* to = scale from. */
template <typename T>
static void scale_rows(const ls_run *run, const ls_tensor *from, const ls_tensor *scale,
                       const ls_tensor *to, const char *what) {
    int64_t rows;
    const ls_cuda_strided x = ls_cuda_strided_of(from, &rows), out = ls_cuda_strided_of(to, &rows);
    ls_cuda_axes axes[] = {axes_of(rows, out), ls_cuda_axes_of_rows(rows, out.width, 0),
                           axes_of(rows, x)};
    ls_cuda_layout layout;
    if (!ls_cuda_lay_out(run, 3, axes, &layout)) return;
    ls_cuda_map_operands<T, float, T> at = {
        {(T *)out.data}, (const float *)ls_data(scale), {(const T *)x.data}};
    ls_cuda_map<1, 2>(run, &layout, at, scaled_map(), what);
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    if (node->in[0] == NULL) {
        scale_rows<T>(run, node->in[1], node->in[2], node->out[0], "plus_scaled");
        return;
    }
    int64_t rows;
    const ls_cuda_strided y = ls_cuda_strided_of(node->in[0], &rows),
                          x = ls_cuda_strided_of(node->in[1], &rows);
    const ls_cuda_strided out = ls_cuda_strided_of(node->out[0], &rows);
    ls_cuda_axes axes[] = {axes_of(rows, out), ls_cuda_axes_of_rows(rows, out.width, 0),
                           axes_of(rows, y), axes_of(rows, x)};
    ls_cuda_layout layout;
    if (!ls_cuda_lay_out(run, 4, axes, &layout)) return;
    ls_cuda_map_operands<T, float, T> at = {{(T *)out.data},
                                            (const float *)ls_data(node->in[2]),
                                            {(const T *)y.data, (const T *)x.data}};
    ls_cuda_map<1, 3>(run, &layout, at, scaled_map(), "plus_scaled");
}

static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    int64_t width = ls_count(node->in[2]);
    return ls_cuda_column_products_bytes(ls_count(node->in[1]) / width, width);
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    int64_t rows;
    const ls_cuda_strided dy = ls_cuda_strided_of(node->in[0], &rows),
                          x = ls_cuda_strided_of(node->in[1], &rows);
    const ls_tensor *scale = node->in[2];
    ls_cuda_column_products(ls_cuda_of(run), node->in[1]->type, rows, dy, x,
                            (float *)ls_param_gradient(run, scale), (float *)run->workspace);
    if (node->out[0] != NULL)
        scale_rows<T>(run, node->in[0], scale, node->out[0], "plus_scaled_grad");
}

LS_CUDA_DECLARE_TABLE(plus_scaled);
const ls_kernel LS_CUDA_TABLE(plus_scaled)[] = {
    {"plus_scaled", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"plus_scaled_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
