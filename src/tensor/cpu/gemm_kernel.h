/* What the files of the matrix product share.
 *
 * A packed product cuts C in small tiles. Both operands are copied ("packed") into panels: the rows
 * of A, or the columns of B, that one tile needs, in the order in which its kernel reads them,
 * padded with zeros. A kernel is one way to pack panels and to multiply two of them; the loops
 * around it (gemm_blocked.c) are the same for all. */
#ifndef LS_TENSOR_CPU_GEMM_KERNEL_H
#define LS_TENSOR_CPU_GEMM_KERNEL_H

#include "tensor/cpu/gemm.h"
#include "tensor/cpu/vector.h"

typedef enum ls_gemm_backend {
    LS_GEMM_REFERENCE, /* f64 */
    LS_GEMM_FEW_ROWS,
    LS_GEMM_VECTOR,
    LS_GEMM_MATRIX, /* the processor's matrix unit: AMX, or ARM's for bf16 */
    LS_GEMM_ONEDNN,
    LS_GEMM_BACKENDS,
} ls_gemm_backend;

#define ls_gemm_supports LS_ISA_SYMBOL(ls__gemm_supports)
#define ls_gemm_run_with LS_ISA_SYMBOL(ls__gemm_run_with)
#define ls_gemm_workspace_with LS_ISA_SYMBOL(ls__gemm_workspace_with)
/* Whether the backend can make this product on this machine; the others need that it can. */
bool ls_gemm_supports(ls_gemm_backend backend, const ls_gemm *g);
void ls_gemm_run_with(ls_gemm_backend backend, const ls_gemm *g, int threads, void *workspace);
size_t ls_gemm_workspace_with(ls_gemm_backend backend, const ls_gemm *g, int threads);

/* A or B seen alike: `count` rows of A, or columns of B, of `k` elements each. */
typedef struct ls_gemm_operand {
    const char *data;
    ls_dtype type;
    int64_t stride; /* bytes between stored rows */
    int64_t count, k;
    bool along_k; /* stored rows run along k (A as it is, B transposed), or else across it */
} ls_gemm_operand;

typedef void ls_gemm_pack(const ls_gemm_operand *x, int64_t first, int64_t panels, int64_t k,
                          int64_t k_count, void *packed);

/* Where the sums of a tile go, and what is done to them on the way. */
typedef struct ls_gemm_target {
    float *to;
    int64_t stride;
    const float *bias; /* of these columns, or NULL */
    bool add;          /* to what is there */
    bool stream;       /* past the caches: rows are whole, aligned lines */
} ls_gemm_target;

typedef struct ls_gemm_kernel {
    const char *name;
    int rows, columns;    /* of a tile of C */
    int k_step;           /* packed k is a multiple of this */
    int k_block;          /* longest packed k: what the caches hold */
    int column_block;     /* widest block of B packed at once */
    size_t element_bytes; /* of one packed element */
    /* Pack `panels` panels, from row or column `first` on, elements k .. k + k_count. */
    ls_gemm_pack *pack_a, *pack_b;
    bool finishes; /* multiply does all that a target asks; else it only stores */
    /* target [rows, columns] = the product of two panels of `k` (a multiple of k_step) elements. */
    void (*multiply)(int64_t k, const void *a, const void *b, const ls_gemm_target *target);
    void (*begin)(
        void);         /* called by each thread before its first product, and after its last; or */
    void (*end)(void); /* NULL */
} ls_gemm_kernel;

#define ls_gemm_vector LS_ISA_SYMBOL(ls__gemm_vector)
#define ls_gemm_bfmmla LS_ISA_SYMBOL(ls__gemm_bfmmla)
#define ls_gemm_amx_bf16 LS_ISA_SYMBOL(ls__gemm_amx_bf16)
#define ls_gemm_amx_split3 LS_ISA_SYMBOL(ls__gemm_amx_split3)
extern const ls_gemm_kernel ls_gemm_vector;     /* f32 and bf16, every machine */
extern const ls_gemm_kernel ls_gemm_bfmmla;     /* bf16, ARM */
extern const ls_gemm_kernel ls_gemm_amx_bf16;   /* bf16, AMX */
extern const ls_gemm_kernel ls_gemm_amx_split3; /* f32, AMX */

#define ls_gemm_blocked_run LS_ISA_SYMBOL(ls__gemm_blocked_run)
#define ls_gemm_blocked_workspace LS_ISA_SYMBOL(ls__gemm_blocked_workspace)
void ls_gemm_blocked_run(const ls_gemm_kernel *kernel, const ls_gemm *g, int threads,
                         void *workspace);
size_t ls_gemm_blocked_workspace(const ls_gemm_kernel *kernel, const ls_gemm *g, int threads);

#define ls_gemm_few_run LS_ISA_SYMBOL(ls__gemm_few_run)
#define ls_gemm_few_workspace LS_ISA_SYMBOL(ls__gemm_few_workspace)
void ls_gemm_few_run(const ls_gemm *g, int threads, void *workspace);
size_t ls_gemm_few_workspace(const ls_gemm *g, int threads);

#define ls_gemm_onednn_supports LS_ISA_SYMBOL(ls__gemm_onednn_supports)
#define ls_gemm_onednn_run LS_ISA_SYMBOL(ls__gemm_onednn_run)
#define ls_gemm_onednn_workspace LS_ISA_SYMBOL(ls__gemm_onednn_workspace)
bool ls_gemm_onednn_supports(const ls_gemm *g);
void ls_gemm_onednn_run(const ls_gemm *g, int threads, void *workspace);
size_t ls_gemm_onednn_workspace(const ls_gemm *g, int threads);

static inline int64_t ls_gemm_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t ls_gemm_pieces(int64_t count, int64_t size) {
    return (count + size - 1) / size;
}
static inline int64_t ls_gemm_padded(int64_t count, int64_t size) {
    return ls_gemm_pieces(count, size) * size;
}

static inline float ls_gemm_element(ls_dtype type, const char *data, int64_t i) {
    if (type == LS_BF16) return ls_bf16_to_f32(((const ls_bf16 *)(const void *)data)[i]);
    return ((const float *)(const void *)data)[i];
}

#if defined(__clang__)
#define LS_GEMM_UNROLL _Pragma("unroll")
#else
#define LS_GEMM_UNROLL _Pragma("GCC unroll 32")
#endif

#endif
