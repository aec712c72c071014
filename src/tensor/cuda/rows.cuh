/* What the kernels that go through rows share: where the elements of strided tensors lie, accesses
 * of 16 bytes, sums in a fixed order. Maps over all elements: map.cuh.
 *
 * A layout numbers the elements of several tensors of one count in row-major order and says where
 * each lies. Axes that all operands run through alike are merged, so whole tensors are one row. */
#ifndef LS_TENSOR_CUDA_ROWS_H
#define LS_TENSOR_CUDA_ROWS_H

#include "tensor/cuda/cuda.cuh"
#include "tensor/cuda/reduce.cuh"

enum { LS_CUDA_AXES = 8, LS_CUDA_OPERANDS = 5, LS_CUDA_THREADS = 256 };

/* The shape and strides of one operand. */
typedef struct ls_cuda_axes {
    int rank;
    int64_t dim[LS_CUDA_AXES], stride[LS_CUDA_AXES];
} ls_cuda_axes;

/* A division by a multiplication: exact for n with n * by < 2^64. */
typedef struct ls_cuda_divisor {
    uint64_t by, magic;
} ls_cuda_divisor;
static inline ls_cuda_divisor ls_cuda_divisor_of(int64_t by) {
    return (ls_cuda_divisor){(uint64_t)by, UINT64_MAX / (uint64_t)by + 1};
}

typedef struct ls_cuda_layout {
    int64_t count; /* elements */
    int64_t width; /* of a row: they lie side by side in every operand */
    int operands, axes;
    ls_cuda_divisor row; /* by the width */
    /* the axes over which rows are numbered, the innermost first */
    int64_t dim[LS_CUDA_AXES];
    ls_cuda_divisor by_dim[LS_CUDA_AXES];
    int64_t stride[LS_CUDA_AXES][LS_CUDA_OPERANDS];
} ls_cuda_layout;

ls_cuda_axes ls_cuda_axes_of(const ls_tensor *tensor);
/* rows of `width` contiguous elements, `stride` apart. */
ls_cuda_axes ls_cuda_axes_of_rows(int64_t rows, int64_t width, int64_t stride);
/* False where the shapes have no common refinement, which is noted as an error. */
bool ls_cuda_lay_out(const ls_run *run, int operands, const ls_cuda_axes *operand,
                     ls_cuda_layout *out);
/* Whether rows of the layout can be taken `lanes` elements at a time, given that these addresses
 * are multiples of 16 bytes. */
bool ls_cuda_in_lanes(const ls_cuda_layout *layout, int lanes);
static inline bool ls_cuda_aligned(const void *address) {
    return (uintptr_t)address % 16 == 0;
}

/* Copies elements of `size` bytes from operand 1 to operand 0 of a layout; zeros where `from` is
 * NULL. */
void ls_cuda_copy(const ls_run *run, const ls_cuda_layout *layout, void *to, const void *from,
                  size_t size, const char *what);

/* to[column] (+)= sum over pieces of partial[piece * stride + column], in an order that depends on
 * the number of pieces alone. `to` is operand 0 of the layout, whose elements are the columns. */
void ls_cuda_add_pieces(const ls_run *run, const float *partial, int64_t pieces, int64_t stride,
                        const ls_cuda_layout *columns, void *to, ls_dtype type, bool add,
                        const char *what);
/* The same twice at once: the second's parts begin `apart` after the first's. Either may be NULL. */
void ls_cuda_add_pieces_to_two(const ls_run *run, const float *partial, int64_t pieces,
                               int64_t stride, int64_t apart, const ls_cuda_layout *columns,
                               void *const to[2], ls_dtype type, bool add, const char *what);

static inline unsigned ls_cuda_blocks(int64_t items, int64_t per_block) {
    return (unsigned)((items + per_block - 1) / per_block);
}

/* ---- on the device ---- */

/* n / by; *rest = n % by. */
static __device__ __forceinline__ uint64_t ls_cuda_divide(uint64_t n,
                                                          const ls_cuda_divisor &divisor,
                                                          uint64_t *rest) {
    uint64_t quotient = divisor.by == 1 ? n : __umul64hi(n, divisor.magic);
    *rest = n - quotient * divisor.by;
    return quotient;
}

/* Where row `row` begins in the first OPERANDS operands. */
template <int OPERANDS>
static __device__ __forceinline__ void ls_cuda_row_place(const ls_cuda_layout &layout, uint64_t row,
                                                         int64_t (&place)[OPERANDS]) {
#pragma unroll
    for (int o = 0; o < OPERANDS; o++) place[o] = 0;
        /* there are seldom more than two: unrolled it would be most of the code of many kernels */
#pragma unroll 1
    for (int axis = 0; axis < layout.axes; axis++) {
        uint64_t at = row;
        if (axis + 1 < layout.axes) row = ls_cuda_divide(at, layout.by_dim[axis], &at);
#pragma unroll
        for (int o = 0; o < OPERANDS; o++) place[o] += (int64_t)at * layout.stride[axis][o];
    }
}

/* Where element `index` lies. */
template <int OPERANDS>
static __device__ __forceinline__ void ls_cuda_place(const ls_cuda_layout &layout, uint64_t index,
                                                     int64_t (&place)[OPERANDS]) {
    uint64_t row = 0, column = index;
    if (layout.axes > 0) row = ls_cuda_divide(index, layout.row, &column);
    ls_cuda_row_place(layout, row, place);
#pragma unroll
    for (int o = 0; o < OPERANDS; o++) place[o] += (int64_t)column;
}

/* LANES neighbouring elements as they lie in memory: one access of up to 16 bytes, or two. */
template <typename T, int LANES> struct ls_cuda_pack;
template <> struct ls_cuda_pack<float, 1> {
    float word;
    __device__ __forceinline__ void wide(float (&to)[1]) const { to[0] = word; }
    __device__ __forceinline__ void narrow(const float (&from)[1]) { word = from[0]; }
};
template <> struct alignas(8) ls_cuda_pack<float, 2> {
    float2 word;
    __device__ __forceinline__ void wide(float (&to)[2]) const { to[0] = word.x, to[1] = word.y; }
    __device__ __forceinline__ void narrow(const float (&from)[2]) {
        word = make_float2(from[0], from[1]);
    }
};
template <> struct alignas(16) ls_cuda_pack<float, 4> {
    float4 word;
    __device__ __forceinline__ void wide(float (&to)[4]) const {
        to[0] = word.x, to[1] = word.y, to[2] = word.z, to[3] = word.w;
    }
    __device__ __forceinline__ void narrow(const float (&from)[4]) {
        word = make_float4(from[0], from[1], from[2], from[3]);
    }
};
template <> struct alignas(16) ls_cuda_pack<float, 8> {
    float4 low, high;
    __device__ __forceinline__ void wide(float (&to)[8]) const {
        to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
        to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
    }
    __device__ __forceinline__ void narrow(const float (&from)[8]) {
        low = make_float4(from[0], from[1], from[2], from[3]);
        high = make_float4(from[4], from[5], from[6], from[7]);
    }
};
template <> struct ls_cuda_pack<ls_cuda_bf16, 1> {
    ls_cuda_bf16 word;
    __device__ __forceinline__ void wide(float (&to)[1]) const { to[0] = ls_cuda_wide(word); }
    __device__ __forceinline__ void narrow(const float (&from)[1]) {
        word = ls_cuda_narrow<ls_cuda_bf16>(from[0]);
    }
};
template <> struct alignas(16) ls_cuda_pack<ls_cuda_bf16, 8> {
    uint4 word;
    static __device__ __forceinline__ void wide_two(uint32_t two, float &low, float &high) {
        low = __uint_as_float(two << 16);
        high = __uint_as_float(two & 0xffff0000u);
    }
    __device__ __forceinline__ void wide(float (&to)[8]) const {
        wide_two(word.x, to[0], to[1]);
        wide_two(word.y, to[2], to[3]);
        wide_two(word.z, to[4], to[5]);
        wide_two(word.w, to[6], to[7]);
    }
    __device__ __forceinline__ void narrow(const float (&from)[8]) {
        word.x = ls_cuda_narrow_two(from[0], from[1]);
        word.y = ls_cuda_narrow_two(from[2], from[3]);
        word.z = ls_cuda_narrow_two(from[4], from[5]);
        word.w = ls_cuda_narrow_two(from[6], from[7]);
    }
};

template <int LANES, typename T>
static __device__ __forceinline__ ls_cuda_pack<T, LANES> ls_cuda_take(const T *from) {
    return *reinterpret_cast<const ls_cuda_pack<T, LANES> *>(from);
}
template <int LANES, typename T>
static __device__ __forceinline__ void ls_cuda_load(const T *from, float (&to)[LANES]) {
    ls_cuda_take<LANES>(from).wide(to);
}
template <int LANES, typename T>
static __device__ __forceinline__ void ls_cuda_store(T *to, const float (&from)[LANES]) {
    ls_cuda_pack<T, LANES> pack;
    pack.narrow(from);
    *reinterpret_cast<ls_cuda_pack<T, LANES> *>(to) = pack;
}

/* The lanes of 16 bytes of the narrowest type. */
template <typename... T> struct ls_cuda_lanes {
    static constexpr bool narrow = ((sizeof(T) == 2) || ...);
    static constexpr int count = narrow ? 8 : 4;
};

/* ---- heads ---- */

/* The rows of a tensor [B,T,H,W]; they may lie anywhere. */
template <typename T> struct ls_cuda_heads {
    T *data;
    int64_t b_stride, t_stride, h_stride;
    __device__ __forceinline__ T *at(int64_t b, int64_t t, int64_t h) const {
        return data + b * b_stride + t * t_stride + h * h_stride;
    }
};

template <typename T> static ls_cuda_heads<T> ls_cuda_heads_of(const ls_tensor *x) {
    return {(T *)ls_data(x), x->stride[0], x->stride[1], x->stride[2]};
}

#endif
