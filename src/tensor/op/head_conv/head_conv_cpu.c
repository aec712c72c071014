#include "tensor/cpu/vector.h"
#include "tensor/op/head_conv/head_conv.h"

/* A tensor [B,T,H,W] whose rows of W may lie anywhere. */
static int64_t head_at(const ls_tensor *x, int64_t b, int64_t t, int64_t h) {
    return b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
}

/* Taps that meet rows of the text, for row t: s in [first, end). */
typedef struct taps {
    int64_t first, end;
} taps;

static taps taps_at(int64_t t, int64_t T, int64_t S) {
    int64_t before = (S - 1) / 2;
    return (taps){ls_max(0, before - t), ls_min(S, T - t + before)};
}

/* y = sum_s weight[s] x[t + s - before]; transposed, the taps go the other way. */
LS_INLINE void convolve(const ls_run *run, const ls_tensor *x, const ls_tensor *weight,
                        const ls_tensor *y, bool transposed, ls_dtype type) {
    const int64_t B = x->dim[0], T = x->dim[1], H = x->dim[2], W = x->dim[3], S = weight->dim[1];
    const void *from = ls_data(x), *w = ls_data(weight);
    void *to = ls_data(y);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < B * T; row++)
        for (int64_t h = 0; h < H; h++) {
            const int64_t b = row / T, t = row % T, at = head_at(y, b, t, h);
            const taps reach = taps_at(t, T, S);
            for (int64_t i = 0; type == LS_F64 && i < W; i++) {
                double sum = 0;
                for (int64_t s = reach.first; s < reach.end; s++)
                    sum += ((const double *)w)[h * S + (transposed ? S - 1 - s : s)] *
                           ((const double *)from)[head_at(x, b, t + s - (S - 1) / 2, h) + i];
                ((double *)to)[at + i] = sum;
            }
            for (int64_t i = 0; type != LS_F64 && i < W; i += LS_LANES) {
                ls_vec sum = ls_vec_all(0);
                for (int64_t s = reach.first; s < reach.end; s++)
                    sum +=
                        ((const float *)w)[h * S + (transposed ? S - 1 - s : s)] *
                        ls_load_left(from, type, head_at(x, b, t + s - (S - 1) / 2, h) + i, W - i);
                ls_store_left(to, type, at + i, W - i, sum);
            }
        }
}

/* dweight[h,s] += sum over rows of dy[t] . x[t + s - before]: a piece is a head and a tap. */
LS_INLINE void weight_grad(const ls_run *run, const ls_node *node, ls_dtype type) {
    const ls_tensor *x = node->in[0], *weight = node->in[1], *dy = node->in[2];
    const int64_t B = x->dim[0], T = x->dim[1], H = x->dim[2], W = x->dim[3], S = weight->dim[1];
    void *gradient = ls_param_gradient(run, weight);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t piece = 0; piece < H * S; piece++) {
        const int64_t h = piece / S, shift = piece % S - (S - 1) / 2;
        double total = 0;
        for (int64_t b = 0; b < B; b++) {
            ls_vec sum = ls_vec_all(0);
            for (int64_t t = ls_max(0, -shift); t < ls_min(T, T - shift); t++) {
                const int64_t at_x = head_at(x, b, t + shift, h), at_dy = head_at(dy, b, t, h);
                for (int64_t i = 0; type == LS_F64 && i < W; i++)
                    total += ((const double *)ls_data(dy))[at_dy + i] *
                             ((const double *)ls_data(x))[at_x + i];
                for (int64_t i = 0; type != LS_F64 && i < W; i += LS_LANES)
                    sum += ls_load_left(ls_data(dy), type, at_dy + i, W - i) *
                           ls_load_left(ls_data(x), type, at_x + i, W - i);
            }
            if (type != LS_F64) total += (double)ls_vec_sum(sum);
        }
        if (type == LS_F64)
            ((double *)gradient)[piece] += total;
        else
            ((float *)gradient)[piece] += (float)total;
    }
}

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    convolve(run, node->in[0], node->in[1], node->out[0], false, type);
}
LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    if (node->out[0] != NULL) convolve(run, node->in[2], node->in[1], node->out[0], true, type);
    weight_grad(run, node, type);
}
LS_KERNEL_ALL(forward)
LS_KERNEL_ALL(backward)

const ls_kernel LS_CPU_TABLE(head_conv)[] = {
    {"head_conv", LS_KERNEL_BY_TYPE(forward), NULL},
    {"head_conv_grad", LS_KERNEL_BY_TYPE(backward), NULL},
    {0},
};
