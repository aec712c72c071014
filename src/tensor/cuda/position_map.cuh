/* ls_position_map_at on the device. */
#ifndef LS_TENSOR_CUDA_POSITION_MAP_H
#define LS_TENSOR_CUDA_POSITION_MAP_H

#include "tensor/cuda/cuda.cuh"

extern "C" {
#include "tensor/op/rotate/rotate.h"
}

__device__ static inline double ls_cuda_map_at(const ls_position_map &map, int64_t position) {
    double here = (double)position;
    switch (map.kind) {
    case LS_MAP_CLAMP:
        return fmin(here, map.a);
    case LS_MAP_CONSTANT:
        return map.a;
    case LS_MAP_GROUP:
        return floor(here / map.a) + map.b;
    case LS_MAP_SCALE:
        return here * map.a + map.b;
    case LS_MAP_BLOCK:
        return here - floor(here / map.a) * (map.a - map.b);
    case LS_MAP_NEXT:
        return map.a + fmin(here - floor(here / map.a) * map.a, map.b);
    default:
        return here;
    }
}

#endif
