/* Pointwise functions, alone or as gates, and their gradients. */
#include "tensor/cuda/map.cuh"

#include "tensor/op/activate/activate_at.cuh"

/* y = act(x); gated: in is gate and value. */
template <ls_act_kind KIND> struct forward_map {
    template <int LANES, int IN>
    __device__ __forceinline__ void operator()(uint64_t, const float (&in)[IN][LANES],
                                               float (&out)[1][LANES]) const {
        float slope;
#pragma unroll
        for (int i = 0; i < LANES; i++) {
            float y = ls_cuda_activate_at(KIND, in[0][i], &slope);
            out[0][i] = IN > 1 ? y * in[IN - 1][i] : y;
        }
    }
};

/* in: x and dy, or gate, value and dy; out: dx, or the gate's and the value's. */
template <ls_act_kind KIND> struct backward_map {
    template <int LANES, int IN, int OUT>
    __device__ __forceinline__ void operator()(uint64_t, const float (&in)[IN][LANES],
                                               float (&out)[OUT][LANES]) const {
#pragma unroll
        for (int i = 0; i < LANES; i++) {
            float slope, value = ls_cuda_activate_at(KIND, in[0][i], &slope), dy = in[IN - 1][i];
            out[0][i] = OUT > 1 ? dy * slope * in[1][i] : dy * slope;
            if (OUT > 1) out[OUT - 1][i] = dy * value;
        }
    }
};

template <int OUT, int IN, template <ls_act_kind> class Map, typename T>
static void launch(const ls_run *run, ls_act_kind kind, const ls_cuda_layout *layout,
                   const ls_cuda_map_operands<T, T, T> &at, const char *what) {
    switch (kind) {
    case LS_ACT_NONE:
        return ls_cuda_map<OUT, IN>(run, layout, at, Map<LS_ACT_NONE>(), what);
    case LS_ACT_GELU:
        return ls_cuda_map<OUT, IN>(run, layout, at, Map<LS_ACT_GELU>(), what);
    case LS_ACT_GELU_TANH:
        return ls_cuda_map<OUT, IN>(run, layout, at, Map<LS_ACT_GELU_TANH>(), what);
    case LS_ACT_SILU:
        return ls_cuda_map<OUT, IN>(run, layout, at, Map<LS_ACT_SILU>(), what);
    case LS_ACT_RELU:
        return ls_cuda_map<OUT, IN>(run, layout, at, Map<LS_ACT_RELU>(), what);
    case LS_ACT_RELU2:
        return ls_cuda_map<OUT, IN>(run, layout, at, Map<LS_ACT_RELU2>(), what);
    case LS_ACT_SIGMOID:
        return ls_cuda_map<OUT, IN>(run, layout, at, Map<LS_ACT_SIGMOID>(), what);
    case LS_ACT_TANH:
        return ls_cuda_map<OUT, IN>(run, layout, at, Map<LS_ACT_TANH>(), what);
    }
}

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
        launch<1, 2, forward_map>(run, about->kind, &layout, at, "activate");
    } else {
        ls_cuda_axes axes[] = {ls_cuda_axes_of(y), ls_cuda_axes_of(x)};
        if (!ls_cuda_lay_out(run, 2, axes, &layout)) return;
        ls_cuda_map_operands<T, T, T> at = {{to}, from, {}};
        launch<1, 1, forward_map>(run, about->kind, &layout, at, "activate");
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
        launch<2, 3, backward_map>(run, about->kind, &layout, at, "activate_grad");
    } else {
        ls_cuda_axes axes[] = {ls_cuda_axes_of(dx), ls_cuda_axes_of(x), ls_cuda_axes_of(dy)};
        if (!ls_cuda_lay_out(run, 3, axes, &layout)) return;
        ls_cuda_map_operands<T, T, T> at = {{to}, from, {down}};
        launch<1, 2, backward_map>(run, about->kind, &layout, at, "activate_grad");
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
    launch<1, 2, forward_map>(run, *(const ls_act_kind *)node->attributes, &layout, at, "gate");
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
    launch<2, 3, backward_map>(run, *(const ls_act_kind *)node->attributes, &layout, at,
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
