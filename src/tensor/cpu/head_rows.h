/* For kernels that work on rows of one head at a time: rows of a tensor [B,T,H,W] to and from
 * buffers of the wide type (f64 for f64, else f32), and places in a workspace. */
#ifndef LS_TENSOR_CPU_HEAD_ROWS_H
#define LS_TENSOR_CPU_HEAD_ROWS_H

#include "tensor/cpu/gemm.h"
#include "tensor/cpu/vector.h"
#include "tensor/engine/program.h"

static inline ls_dtype ls_wide_of(const ls_tensor *x) {
    return x->type == LS_F64 ? LS_F64 : LS_F32;
}

/* A piece of work: a head of a sequence. */
typedef struct ls_head {
    int64_t b, h;
} ls_head;

static inline int64_t ls_head_place(const ls_tensor *x, ls_head at, int64_t t) {
    return at.b * x->stride[0] + t * x->stride[1] + at.h * x->stride[2];
}

/* Row i of the buffer, `stride` wide elements apart, is row first + i of the head. */
static inline void ls_head_load(const ls_tensor *x, ls_head at, int64_t first, int64_t n, void *to,
                                int64_t stride) {
    const int64_t width = x->dim[3];
    const void *from = ls_data(x);
    for (int64_t i = 0; i < n; i++) {
        const int64_t place = ls_head_place(x, at, first + i);
        if (x->type == LS_F64) {
            memcpy((double *)to + i * stride, (const double *)from + place,
                   (size_t)width * sizeof(double));
            continue;
        }
        for (int64_t e = 0; e < width; e += LS_LANES)
            ls_store_left(to, LS_F32, i * stride + e, width - e,
                          ls_load_left(from, x->type, place + e, width - e));
    }
}

static inline void ls_head_store(const ls_tensor *x, ls_head at, int64_t first, int64_t n,
                                 const void *from, int64_t stride) {
    const int64_t width = x->dim[3];
    void *to = ls_data(x);
    for (int64_t i = 0; i < n; i++) {
        const int64_t place = ls_head_place(x, at, first + i);
        if (x->type == LS_F64) {
            memcpy((double *)to + place, (const double *)from + i * stride,
                   (size_t)width * sizeof(double));
            continue;
        }
        for (int64_t e = 0; e < width; e += LS_LANES)
            ls_store_left(to, x->type, place + e, width - e,
                          ls_load_left(from, LS_F32, i * stride + e, width - e));
    }
}

/* Rows as they lie in the tensor, as an operand of products. */
static inline ls_matrix ls_head_matrix(const ls_tensor *x, ls_head at, int64_t first) {
    const char *data = ls_data(x);
    return (ls_matrix){.data = data + ls_head_place(x, at, first) * (int64_t)ls_dtype_size(x->type),
                       .type = x->type,
                       .stride = x->stride[1]};
}

static inline ls_matrix ls_plain_matrix(const void *data, ls_dtype type, int64_t stride) {
    return (ls_matrix){.data = data, .type = type, .stride = stride};
}
static inline ls_matrix ls_transposed(ls_matrix x) {
    x.transposed = !x.transposed;
    return x;
}

/* The next place in a workspace, at a multiple of 64 bytes; without a base only sizes add up. */
static inline void *ls_take(char *base, size_t *used, size_t bytes) {
    void *here = base == NULL ? NULL : base + *used;
    *used += (bytes + 63) / 64 * 64;
    return here;
}

/* Bytes that any product [m,k] [k,n] of these types needs, whichever way its operands lie. */
static inline size_t ls_product_bytes(int64_t m, int64_t n, int64_t k, ls_dtype a, ls_dtype b) {
    size_t most = 0;
    for (int way = 0; way < 4; way++) {
        ls_gemm g = {.m = m,
                     .n = n,
                     .k = k,
                     .a = {.type = a, .transposed = way % 2 != 0},
                     .b = {.type = b, .transposed = way / 2 != 0},
                     .c_type = a == LS_F64 ? LS_F64 : LS_F32};
        size_t bytes = ls_gemm_workspace(&g, 1);
        if (bytes > most) most = bytes;
    }
    return most;
}

#endif
