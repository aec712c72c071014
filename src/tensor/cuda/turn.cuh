/* The angle by which a pair is rotated. */
#ifndef LS_TENSOR_CUDA_TURN_H
#define LS_TENSOR_CUDA_TURN_H

#include "tensor/cuda/cuda.cuh"

/* Cosine and sine of position * frequency, times a factor; with a rate also times the exponential of
 * it by the distance to the start of the position's block (xPos). */
static __device__ __forceinline__ float2 ls_cuda_turn(double position, double frequency,
                                                      double factor, bool decays, double rate,
                                                      double block, bool inverse) {
    double cosine, sine;
    if (decays) factor *= exp(rate * (block * floor(position / block) - position));
    sincos(position * frequency, &sine, &cosine);
    return make_float2((float)(cosine * factor), (float)(sine * (inverse ? -factor : factor)));
}

#endif
