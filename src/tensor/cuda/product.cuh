/* Matrix products: C = A B, or C += A B, row-major, summed in f32; operands in f32 are rounded to
 * tf32 only where the run says so. A few rows times a weight have a kernel of their own
 * (few_rows.cu); all else is cuBLASLt's.
 *
 * cuBLASLt counts by columns. A row-major matrix read by columns is its transpose, so what it is
 * asked for is C^T = B^T A^T: our B is its first operand, our A its second, our n its m. A weight
 * that is stored [n, k] (b.transposed) is k x n by columns and must be transposed there; a B stored
 * [k, n] is already n x k. Likewise an A stored [m, k] is k x m as it is wanted, and one stored
 * [k, m] must be transposed. A bias over our n runs over its rows, which is what its epilogue adds;
 * the sums over k of our A are those of its second operand.
 *
 * The fastest way of each shape is measured in the first call that is not captured, kept, and kept
 * on disk (product_memory.h), so that a program gives the same bits each time it is started.
 * LONGSHOT_CUDA_TUNE=0 takes cuBLASLt's own first proposal instead. LONGSHOT_CUDA_JOIN=1 leaves GELU
 * in the epilogue even where it is slower; device.cu has its other values. LONGSHOT_CUDA_FP8_FAST=1
 * lets fp8's units add up in their own few bits instead of f32. */
#ifndef LS_TENSOR_CUDA_PRODUCT_H
#define LS_TENSOR_CUDA_PRODUCT_H

#include "tensor/cuda/cuda.cuh"

typedef struct ls_cuda_matrix {
    const void *data;
    ls_dtype type;   /* f32 or bf16, the same for both operands, or fp8 */
    int64_t stride;  /* elements from one stored row to the next */
    bool transposed; /* stored transposed */
    /* of fp8, whose k runs along stored rows in both operands: what values are multiplied by */
    const float *factor;
} ls_cuda_matrix;

/* GELU (by tanh) of a bf16 product, or with `slopes` the product times the slope of GELU at `inner`:
 * in the epilogue, or where that takes longer by `apart`, which makes the same of the product's C.
 */
typedef struct ls_cuda_gelu {
    bool slopes;
    void *c;     /* [m, n]: the result, in place of the product's */
    void *inner; /* [m, n]: the product itself, written; with slopes what is read */
    int64_t c_stride, inner_stride;
    void (*apart)(const ls_run *run, const ls_node *node);
    const ls_run *run;
    const ls_node *node;
} ls_cuda_gelu;

typedef struct ls_cuda_product {
    int64_t m, n, k;
    ls_cuda_matrix a; /* [m, k] */
    ls_cuda_matrix b; /* [k, n]; a weight stored [n, k] (out, in) is b with transposed = true */
    void *c;          /* [m, n] */
    ls_dtype c_type;
    int64_t c_stride;
    bool add;  /* C += instead of C = */
    bool tf32; /* of the run, which ls_cuda_product_run asks */
    /* [n] added to each row, or NULL. Where C is bf16 it is rounded to bf16 first: cuBLASLt takes a
     * bias in the type of C alone. */
    const float *bias;
    /* [m]: the sum of each row of A is added to it (the gradient of a bias, where A is a transposed
     * gradient); A must be transposed. Or NULL. */
    float *sums;
    const ls_cuda_gelu *gelu; /* or NULL; not with sums, nor with add */
} ls_cuda_product;

/* `workspace` is on the device, aligned to 16 bytes: the bytes below for a bias or for sums (no
 * product has both), NULL for a product with neither. */
void ls_cuda_product_run(const ls_run *run, const ls_cuda_product *g, void *workspace);
size_t ls_cuda_product_bias_bytes(int64_t n);
size_t ls_cuda_product_sums_bytes(int64_t m, int64_t k);

/* Gives back what cuda->known_products holds. */
void ls_cuda_products_close(ls_cuda *cuda);

#endif
