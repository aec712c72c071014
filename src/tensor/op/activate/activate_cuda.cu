/* Pointwise functions, alone or as gates, and their gradients. */
#include <type_traits>

#include "tensor/cuda/map.cuh"
#include "tensor/op/activate/activate_at.cuh"

/* Calls f with the kind as a constant. One kernel has all kinds, which is many times faster to
 * compile; it chooses once for all lanes of a thread. */
template <typename F> static __device__ __forceinline__ void with_kind(ls_act_kind kind, F f) {
    switch (kind) {
    case LS_ACT_NONE:
        return f(std::integral_constant<ls_act_kind, LS_ACT_NONE>());
    case LS_ACT_GELU:
        return f(std::integral_constant<ls_act_kind, LS_ACT_GELU>());
    case LS_ACT_GELU_TANH:
        return f(std::integral_constant<ls_act_kind, LS_ACT_GELU_TANH>());
    case LS_ACT_SILU:
        return f(std::integral_constant<ls_act_kind, LS_ACT_SILU>());
    case LS_ACT_RELU:
        return f(std::integral_constant<ls_act_kind, LS_ACT_RELU>());
    case LS_ACT_RELU2:
        return f(std::integral_constant<ls_act_kind, LS_ACT_RELU2>());
    case LS_ACT_SIGMOID:
        return f(std::integral_constant<ls_act_kind, LS_ACT_SIGMOID>());
    case LS_ACT_TANH:
        return f(std::integral_constant<ls_act_kind, LS_ACT_TANH>());
    }
}

/* y = act(x); gated: in is gate and value. */
struct forward_map {
    ls_act_kind kind;
    template <int LANES, int IN>
    __device__ __forceinline__ void operator()(uint64_t, const float (&in)[IN][LANES],
                                               float (&out)[1][LANES]) const {
        with_kind(kind, [&](auto chosen) {
            float slope;
#pragma unroll
            for (int i = 0; i < LANES; i++) {
                float y = ls_cuda_activate_at(chosen.value, in[0][i], &slope);
                out[0][i] = IN > 1 ? y * in[IN - 1][i] : y;
            }
        });
    }
};

/* in: x and dy, or gate, value and dy; out: dx, or the gate's and the value's. */
struct backward_map {
    ls_act_kind kind;
    template <int LANES, int IN, int OUT>
    __device__ __forceinline__ void operator()(uint64_t, const float (&in)[IN][LANES],
                                               float (&out)[OUT][LANES]) const {
        with_kind(kind, [&](auto chosen) {
#pragma unroll
            for (int i = 0; i < LANES; i++) {
                float slope, dy = in[IN - 1][i];
                float value = ls_cuda_activate_at(chosen.value, in[0][i], &slope);
                out[0][i] = OUT > 1 ? dy * slope * in[1][i] : dy * slope;
                if (OUT > 1) out[OUT - 1][i] = dy * value;
            }
        });
    }
};

/* Half of the last axis: gates, or values. */
static ls_cuda_axes half_axes(const ls_tensor *tensor) {
    ls_cuda_axes axes = ls_cuda_axes_of(tensor);
    axes.dim[axes.rank - 1] /= 2;
    return axes;
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    const ls_activate_attributes *about = (const ls_activate_attributes *)node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    ls_cuda_layout layout;
    const T *from = (const T *)ls_data(x);
    T *to = (T *)ls_data(y);
    if (about->gated) {
        ls_cuda_axes part = half_axes(x), axes[] = {ls_cuda_axes_of(y), part, part};
        if (!ls_cuda_lay_out(run, 3, axes, &layout)) return;
        ls_cuda_map_operands<T, T, T> at = {{to}, from, {from + part.dim[part.rank - 1]}};
        ls_cuda_map<1, 2>(run, &layout, at, forward_map{about->kind}, "activate");
    } else {
        ls_cuda_axes axes[] = {ls_cuda_axes_of(y), ls_cuda_axes_of(x)};
        if (!ls_cuda_lay_out(run, 2, axes, &layout)) return;
        ls_cuda_map_operands<T, T, T> at = {{to}, from, {}};
        ls_cuda_map<1, 1>(run, &layout, at, forward_map{about->kind}, "activate");
    }
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    const ls_activate_attributes *about = (const ls_activate_attributes *)node->attributes;
    const ls_tensor *x = node->in[0], *dy = node->in[1], *dx = node->out[0];
    ls_cuda_layout layout;
    const T *from = (const T *)ls_data(x), *down = (const T *)ls_data(dy);
    T *to = (T *)ls_data(dx);
    if (about->gated) {
        ls_cuda_axes part = half_axes(x), place = half_axes(dx);
        ls_cuda_axes axes[] = {place, place, part, part, ls_cuda_axes_of(dy)};
        if (!ls_cuda_lay_out(run, 5, axes, &layout)) return;
        int64_t half = part.dim[part.rank - 1];
        ls_cuda_map_operands<T, T, T> at = {{to, to + half}, from, {from + half, down}};
        ls_cuda_map<2, 3>(run, &layout, at, backward_map{about->kind}, "activate_grad");
    } else {
        ls_cuda_axes axes[] = {ls_cuda_axes_of(dx), ls_cuda_axes_of(x), ls_cuda_axes_of(dy)};
        if (!ls_cuda_lay_out(run, 3, axes, &layout)) return;
        ls_cuda_map_operands<T, T, T> at = {{to}, from, {down}};
        ls_cuda_map<1, 2>(run, &layout, at, backward_map{about->kind}, "activate_grad");
    }
}

/* ---- gate and value in two tensors ---- */

template <typename T> static void gate(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *value = node->in[1], *y = node->out[0];
    ls_cuda_axes axes[] = {ls_cuda_axes_of(y), ls_cuda_axes_of(x), ls_cuda_axes_of(value)};
    ls_cuda_layout layout;
    if (!ls_cuda_lay_out(run, 3, axes, &layout)) return;
    ls_cuda_map_operands<T, T, T> at = {
        {(T *)ls_data(y)}, (const T *)ls_data(x), {(const T *)ls_data(value)}};
    ls_cuda_map<1, 2>(run, &layout, at, forward_map{*(const ls_act_kind *)node->attributes},
                      "gate");
}

template <typename T> static void gate_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *value = node->in[1], *dy = node->in[2];
    const ls_tensor *dx = node->out[0], *dvalue = node->out[1];
    ls_cuda_axes axes[] = {ls_cuda_axes_of(dx), ls_cuda_axes_of(dvalue), ls_cuda_axes_of(x),
                           ls_cuda_axes_of(value), ls_cuda_axes_of(dy)};
    ls_cuda_layout layout;
    if (!ls_cuda_lay_out(run, 5, axes, &layout)) return;
    ls_cuda_map_operands<T, T, T> at = {{(T *)ls_data(dx), (T *)ls_data(dvalue)},
                                        (const T *)ls_data(x),
                                        {(const T *)ls_data(value), (const T *)ls_data(dy)}};
    ls_cuda_map<2, 3>(run, &layout, at, backward_map{*(const ls_act_kind *)node->attributes},
                      "gate_grad");
}

LS_CUDA_DECLARE_TABLE(activate);
const ls_kernel LS_CUDA_TABLE(activate)[] = {
    {"activate", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"activate_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, NULL},
    {"gate", {NULL, gate<float>, gate<ls_cuda_bf16>}, NULL},
    {"gate_grad", {NULL, gate_grad<float>, gate_grad<ls_cuda_bf16>}, NULL},
    {},
};
