/* k[s,d] = sum_m B[d,m] C[d,m+s], and its gradients. A small part of any model: sums in double. */
#include "tensor/op/shift_kernel/shift_kernel.h"

static void forward(const ls_run *run, const ls_node *node) {
    const int64_t D = node->in[0]->dim[0], N = node->in[0]->dim[1];
    const ls_dtype type = node->out[0]->type;
    const void *B = ls_data(node->in[0]), *C = ls_data(node->in[1]);
    void *k = ls_data(node->out[0]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < D; d++)
        for (int64_t s = 0; s < N; s++) {
            double sum = 0;
            for (int64_t m = 0; m + s < N; m++)
                sum += ls_element(B, type, d * N + m) * ls_element(C, type, d * N + m + s);
            if (type == LS_F64)
                ((double *)k)[s * D + d] = sum;
            else
                ((float *)k)[s * D + d] = (float)sum;
        }
}

static void add(void *gradient, ls_dtype type, int64_t at, double value) {
    if (type == LS_F64)
        ((double *)gradient)[at] += value;
    else
        ((float *)gradient)[at] += (float)value;
}

static void backward(const ls_run *run, const ls_node *node) {
    const int64_t D = node->in[0]->dim[0], N = node->in[0]->dim[1];
    const int64_t stride = node->in[2]->stride[1];
    const ls_dtype type = node->in[0]->type;
    const void *B = ls_data(node->in[0]), *C = ls_data(node->in[1]), *dk = ls_data(node->in[2]);
    void *dB = ls_param_gradient(run, node->in[0]), *dC = ls_param_gradient(run, node->in[1]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < D; d++)
        for (int64_t m = 0; m < N; m++) {
            double to_B = 0, to_C = 0;
            for (int64_t s = 0; m + s < N; s++)
                to_B += ls_element(dk, type, s * stride + d) * ls_element(C, type, d * N + m + s);
            for (int64_t s = 0; s <= m; s++)
                to_C += ls_element(dk, type, s * stride + d) * ls_element(B, type, d * N + m - s);
            add(dB, type, d * N + m, to_B);
            add(dC, type, d * N + m, to_C);
        }
}

extern const ls_kernel LS_CPU_TABLE(shift_kernel)[];
const ls_kernel LS_CPU_TABLE(shift_kernel)[] = {
    {"shift_kernel", {forward, forward, forward}, NULL},
    {"shift_kernel_grad", {backward, backward, backward}, NULL},
    {0},
};
