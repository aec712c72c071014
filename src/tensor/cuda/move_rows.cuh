/* Rows that are moved, or cleared, by a rule: `where` says for every row of the result where it
 * lies and where it comes from. Also padding, and elements of tensors of either type. */
#ifndef LS_TENSOR_CUDA_MOVE_ROWS_H
#define LS_TENSOR_CUDA_MOVE_ROWS_H

#include "tensor/cuda/follow.cuh"
#include "tensor/cuda/rows.cuh"

/* ---- rows of a tensor [B,T,...]: the axes after the second lie together ---- */

typedef struct ls_cuda_row_grid {
    char *data;           /* NULL: there is no tensor */
    int64_t b_step, step; /* bytes from sequence to sequence, from row to row */
} ls_cuda_row_grid;

static inline ls_cuda_row_grid ls_cuda_row_grid_of(const ls_tensor *tensor) {
    if (tensor == NULL) return (ls_cuda_row_grid){NULL, 0, 0};
    const int64_t size = (int64_t)ls_dtype_size(tensor->type);
    return (ls_cuda_row_grid){(char *)ls_data(tensor), tensor->stride[0] * size,
                              tensor->stride[1] * size};
}

/* What the words of a copy must divide. */
static inline uint64_t ls_cuda_row_grid_bits(const ls_cuda_row_grid *grid) {
    return (uint64_t)(uintptr_t)grid->data | (uint64_t)grid->b_step | (uint64_t)grid->step;
}

static __device__ __forceinline__ char *ls_cuda_row_at(const ls_cuda_row_grid &grid, int64_t b,
                                                       int64_t row) {
    return grid.data + b * grid.b_step + row * grid.step;
}

/* ---- moving ---- */

/* A row that is moved; from NULL: it is cleared. */
typedef struct ls_cuda_moved_row {
    char *to;
    const char *from;
} ls_cuda_moved_row;

/* 2^shift threads have a row of `words` words. */
template <typename Word, typename Where>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    ls_cuda_move_rows_kernel(int64_t rows, int64_t words, int shift, Where where) {
    int64_t thread = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, row = thread >> shift;
    ls_cuda_after();
    if (row >= rows) return;
    const ls_cuda_moved_row at = where(row);
    for (int64_t i = thread & ((1 << shift) - 1); i < words; i += 1 << shift)
        ((Word *)at.to)[i] = at.from == NULL ? Word{} : ((const Word *)at.from)[i];
}

template <typename Word, typename Where>
static void ls_cuda_move_words(const ls_run *run, int64_t rows, int64_t words, Where where,
                               const char *what) {
    int shift = 0;
    while (shift < 5 && (int64_t)1 << shift < words) shift++;
    ls_cuda_follow(run, what, ls_cuda_move_rows_kernel<Word, Where>,
                   ls_cuda_blocks(rows, LS_CUDA_THREADS >> shift), LS_CUDA_THREADS, rows, words,
                   shift, where);
}

/* `rows` rows of `bytes` bytes; `bits` are all addresses and steps that `where` adds up, joined by
 * or. */
template <typename Where>
static void ls_cuda_move_rows(const ls_run *run, int64_t rows, size_t bytes, uint64_t bits,
                              Where where, const char *what) {
    if (rows <= 0 || bytes == 0) return;
    bits |= (uint64_t)bytes;
    if (bits % 16 == 0)
        ls_cuda_move_words<uint4>(run, rows, (int64_t)bytes / 16, where, what);
    else if (bits % 4 == 0)
        ls_cuda_move_words<uint32_t>(run, rows, (int64_t)bytes / 4, where, what);
    else if (bits % 2 == 0)
        ls_cuda_move_words<uint16_t>(run, rows, (int64_t)bytes / 2, where, what);
    else
        ls_cuda_move_words<uint8_t>(run, rows, (int64_t)bytes, where, what);
}

/* ---- which rows are no padding ---- */

typedef struct ls_cuda_valid {
    const uint8_t *data; /* NULL: all are valid */
    int64_t stride;
    __device__ __forceinline__ bool at(int64_t b, int64_t t) const {
        return data == NULL || data[b * stride + t] != 0;
    }
} ls_cuda_valid;

/* Of u8 [B,T], or NULL. */
static inline ls_cuda_valid ls_cuda_valid_of(const ls_tensor *valid) {
    ls_cuda_valid rows = {NULL, 0};
    if (valid == NULL) return rows;
    rows.data = (const uint8_t *)ls_data(valid);
    rows.stride = valid->stride[0];
    return rows;
}

/* ---- elements of f32 or bf16 ---- */

typedef struct ls_cuda_any {
    void *data; /* NULL: there is no tensor */
    bool narrow;
} ls_cuda_any;

static inline ls_cuda_any ls_cuda_any_of(const ls_tensor *tensor) {
    if (tensor == NULL) return (ls_cuda_any){NULL, false};
    return (ls_cuda_any){ls_data(tensor), tensor->type == LS_BF16};
}

static __device__ __forceinline__ float ls_cuda_any_at(const ls_cuda_any &x, int64_t at) {
    return x.narrow ? ls_cuda_wide(((const ls_cuda_bf16 *)x.data)[at])
                    : ((const float *)x.data)[at];
}

static __device__ __forceinline__ void ls_cuda_any_set(const ls_cuda_any &x, int64_t at,
                                                       float value) {
    if (x.narrow)
        ((ls_cuda_bf16 *)x.data)[at] = ls_cuda_narrow<ls_cuda_bf16>(value);
    else
        ((float *)x.data)[at] = value;
}

#endif
