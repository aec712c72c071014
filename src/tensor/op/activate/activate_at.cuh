/* Pointwise functions on the device. */
#ifndef LS_TENSOR_OP_ACTIVATE_AT_H
#define LS_TENSOR_OP_ACTIVATE_AT_H

#include "tensor/cuda/cuda.cuh"

extern "C" {
#include "tensor/op/activate/activate.h"
}

/* Value and slope at one point. */
static __device__ __forceinline__ float ls_cuda_activate_at(ls_act_kind kind, float x,
                                                            float *slope) {
    switch (kind) {
    case LS_ACT_GELU: {
        /* the normal distribution function by formula 7.1.26 of Abramowitz and Stegun: absolute
         * error below 2e-7 */
        float size = fabsf(x) * 0.70710678118654752f;
        float t = __fdividef(1.0f, 1.0f + 0.3275911f * size), density = expf(-size * size);
        float poly = 1.061405429f;
        poly = poly * t - 1.453152027f;
        poly = poly * t + 1.421413741f;
        poly = poly * t - 0.284496736f;
        poly = poly * t + 0.254829592f;
        float tail = 0.5f * poly * t * density, cdf = x < 0 ? tail : 1.0f - tail;
        *slope = cdf + x * density * 0.39894228040143268f;
        return x * cdf;
    }
    case LS_ACT_GELU_TANH: {
        /* (1 + tanh u) / 2 is the sigmoid of 2u */
        float c = 1.59576912160573071f, s = ls_cuda_sigmoid(c * (x + 0.044715f * x * x * x));
        *slope = s + x * s * (1.0f - s) * c * (1.0f + 0.134145f * x * x);
        return x * s;
    }
    case LS_ACT_SILU: {
        float s = ls_cuda_sigmoid(x);
        *slope = s * (1.0f + x * (1.0f - s));
        return x * s;
    }
    case LS_ACT_RELU:
        *slope = x > 0 ? 1.0f : 0.0f;
        return x > 0 ? x : 0.0f;
    case LS_ACT_RELU2: {
        float positive = x > 0 ? x : 0.0f;
        *slope = 2.0f * positive;
        return positive * positive;
    }
    case LS_ACT_SIGMOID: {
        float s = ls_cuda_sigmoid(x);
        *slope = s * (1.0f - s);
        return s;
    }
    case LS_ACT_TANH: {
        float t = tanhf(x);
        *slope = 1.0f - t * t;
        return t;
    }
    case LS_ACT_NONE:
        break;
    }
    *slope = 1;
    return x;
}

#endif
