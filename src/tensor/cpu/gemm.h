/* Matrix products on the CPU: C = A B, or C += A B.
 *
 * The result of a row depends on that row of A and on B alone (not on M, on the other rows' values
 * or on the number of threads), except that M below LS_GEMM_FEW takes the path for few rows. With
 * `few` that is so up to LS_GEMM_FEW_MOST: then each row has the bits that it has alone. */
#ifndef LS_TENSOR_CPU_GEMM_H
#define LS_TENSOR_CPU_GEMM_H

#include <stdbool.h>

#include "tensor/engine/kernel.h"

enum {
    LS_GEMM_FEW = 8,       /* fewer rows than this stream B once, unpacked: decoding */
    LS_GEMM_FEW_MOST = 16, /* so may as many as this, where it is asked for */
};

typedef struct ls_matrix {
    const void *data;
    ls_dtype type;   /* f64, f32 or bf16 */
    int64_t stride;  /* elements from one stored row to the next */
    bool transposed; /* stored transposed */
} ls_matrix;

typedef struct ls_gemm {
    int64_t m, n, k;
    ls_matrix a; /* [m, k] */
    ls_matrix b; /* [k, n]; a weight stored [n, k] (out, in) is b with transposed = true */
    void *c;     /* [m, n], row-major */
    ls_dtype c_type;
    int64_t c_stride;
    bool add;         /* C += instead of C = */
    const void *bias; /* [n] added to each row, f64 for f64 products, else f32; or NULL */
    bool few;         /* the path for few rows also with LS_GEMM_FEW_MOST of them */
} ls_gemm;

#define ls_gemm_run LS_ISA_SYMBOL(ls__gemm_run)
#define ls_gemm_workspace LS_ISA_SYMBOL(ls__gemm_workspace)
/* workspace: at least ls_gemm_workspace bytes, 64-byte aligned, contents undefined before and
 * after; what one product needs is enough for another with no more rows, columns or terms, on as
 * many threads. Calls OpenMP itself (num_threads(threads)); inside a parallel region pass threads =
 * 1. */
void ls_gemm_run(const ls_gemm *g, int threads, void *workspace);
size_t ls_gemm_workspace(const ls_gemm *g, int threads);

#define ls_gemm_backend_name LS_ISA_SYMBOL(ls__gemm_backend_name)
/* What multiplies many rows of this type on this machine. */
const char *ls_gemm_backend_name(ls_dtype type);

#endif
