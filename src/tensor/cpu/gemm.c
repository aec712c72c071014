/* Choosing a way to multiply, and the f64 reference. */
#include "tensor/cpu/gemm.h"

#include "tensor/cpu/gemm_kernel.h"
#include "tensor/cpu/matrix_unit.h"

/* The f64 reference is plain loops, each product rounded before it is added. */
#if defined(__clang__)
#define NO_CONTRACTION
#pragma clang fp contract(off)
#else
#define NO_CONTRACTION __attribute__((optimize("fp-contract=off"), noinline))
#endif

static double reference_element(const ls_matrix *x, int64_t row, int64_t column) {
    int64_t at = x->transposed ? column * x->stride + row : row * x->stride + column;
    return ((const double *)x->data)[at];
}

NO_CONTRACTION static double reference_dot(const ls_gemm *g, int64_t row, int64_t column) {
    double sum = 0;
    for (int64_t k = 0; k < g->k; k++)
        sum += reference_element(&g->a, row, k) * reference_element(&g->b, k, column);
    return sum;
}

static void reference_run(const ls_gemm *g, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double *c = (double *)g->c + i * g->c_stride + j;
            double sum = reference_dot(g, i, j);
            if (g->bias) sum += ((const double *)g->bias)[j];
            *c = g->add ? *c + sum : sum;
        }
}

static bool all_bf16(const ls_gemm *g) {
    return g->a.type == LS_BF16 && g->b.type == LS_BF16;
}

/* The packed kernel of a backend, or NULL where this machine has none. */
static const ls_gemm_kernel *kernel_of(ls_gemm_backend backend, bool bf16) {
    if (backend == LS_GEMM_VECTOR) return &ls_gemm_vector;
    if (backend != LS_GEMM_MATRIX || !ls_unit_usable()) return NULL;
#if LS_ISA_avx512
    return bf16 ? &ls_gemm_amx_bf16 : &ls_gemm_amx_split3;
#elif defined(__aarch64__)
    return bf16 ? &ls_gemm_bfmmla : NULL; /* six products of bf16 for one of f32 would be slower */
#else
    (void)bf16;
    return NULL;
#endif
}

static ls_gemm_backend best(bool bf16) {
    return kernel_of(LS_GEMM_MATRIX, bf16) != NULL ? LS_GEMM_MATRIX : LS_GEMM_VECTOR;
}

static ls_gemm_backend choose(const ls_gemm *g) {
    if (g->a.type == LS_F64) return LS_GEMM_REFERENCE;
    if (g->m < LS_GEMM_FEW || (g->few && g->m <= LS_GEMM_FEW_MOST)) return LS_GEMM_FEW_ROWS;
    return best(all_bf16(g));
}

bool ls_gemm_supports(ls_gemm_backend backend, const ls_gemm *g) {
    if (backend == LS_GEMM_REFERENCE || g->a.type == LS_F64)
        return backend == LS_GEMM_REFERENCE && g->a.type == LS_F64;
    if (backend == LS_GEMM_FEW_ROWS) return g->m <= LS_GEMM_FEW_MOST;
    if (backend == LS_GEMM_ONEDNN) return ls_gemm_onednn_supports(g);
    return kernel_of(backend, all_bf16(g)) != NULL;
}

void ls_gemm_run_with(ls_gemm_backend backend, const ls_gemm *g, int threads, void *workspace) {
    switch (backend) {
    case LS_GEMM_REFERENCE:
        reference_run(g, threads);
        break;
    case LS_GEMM_FEW_ROWS:
        ls_gemm_few_run(g, threads, workspace);
        break;
    case LS_GEMM_ONEDNN:
        ls_gemm_onednn_run(g, threads, workspace);
        break;
    default:
        ls_gemm_blocked_run(kernel_of(backend, all_bf16(g)), g, threads, workspace);
        break;
    }
}

size_t ls_gemm_workspace_with(ls_gemm_backend backend, const ls_gemm *g, int threads) {
    switch (backend) {
    case LS_GEMM_REFERENCE:
        return 0;
    case LS_GEMM_FEW_ROWS:
        return ls_gemm_few_workspace(g, threads);
    case LS_GEMM_ONEDNN:
        return ls_gemm_onednn_workspace(g, threads);
    default:
        return ls_gemm_blocked_workspace(kernel_of(backend, all_bf16(g)), g, threads);
    }
}

void ls_gemm_run(const ls_gemm *g, int threads, void *workspace) {
    ls_gemm_run_with(choose(g), g, threads, workspace);
}

size_t ls_gemm_workspace(const ls_gemm *g, int threads) {
    size_t here = ls_gemm_workspace_with(choose(g), g, threads);
    if (g->a.type == LS_F64 || g->m < LS_GEMM_FEW) return here;
    ls_gemm last = *g; /* the last rows of many may be few, and all of them may ask for that path */
    last.m = ls_gemm_least(g->m, LS_GEMM_FEW_MOST);
    size_t few = ls_gemm_few_workspace(&last, threads);
    return few > here ? few : here;
}

const char *ls_gemm_backend_name(ls_dtype type) {
    if (type == LS_F64) return "reference";
    return kernel_of(best(type == LS_BF16), type == LS_BF16)->name;
}
