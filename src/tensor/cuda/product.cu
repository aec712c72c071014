#include "tensor/cuda/product.cuh"

#include <cublasLt.h>

#include "tensor/cuda/column_sums.cuh"
#include "tensor/cuda/few_rows.cuh"
#include "tensor/cuda/product_memory.cuh"

enum { CANDIDATES = 16, WARM_RUNS = 3, TIMED_RUNS = 5 };
static const double worth_timing = 1 << 24; /* m n k: below this all ways are launches */

/* Everything the choice of an algorithm depends on; compared as bytes. */
typedef struct product_key {
    int64_t m, n, k, a_stride, b_stride, c_stride;
    int32_t a_transposed, b_transposed, type, b_type, c_type, add, epilogue;
    int32_t a_alignment, b_alignment, c_alignment, extra_alignment;
    int32_t tf32;          /* operands in f32 are rounded to it */
    int32_t fast;          /* fp8 is added up in the units' own few bits */
    int32_t inner_aligned; /* of GELU, and: */
    int64_t inner_stride;
} product_key;

/* A product that was met. `first` and `second` are cuBLASLt's operands: our B and our A. */
typedef struct known_product {
    product_key key;
    cublasLtMatmulDesc_t about;
    cublasLtMatrixLayout_t first, second, result;
    cublasLtMatmulAlgo_t algo;
    bool chosen; /* algo is final */
    bool apart;  /* of one with sums or GELU: better done as a plain product and own kernels */
} known_product;

typedef struct known_products {
    known_product **all;
    size_t count, capacity;
    ls_product_memory memory;
    cudaEvent_t begin, end;
    bool tunes;
    bool joins;      /* GELU stays in the epilogue, slower or not */
    char where[320]; /* device and library, as the keys on disk begin */
} known_products;

/* ---- what there is to know of a product ---- */

static cudaDataType_t cuda_type(int32_t type) {
    return type == LS_E4M3   ? CUDA_R_8F_E4M3
           : type == LS_E5M2 ? CUDA_R_8F_E5M2
           : type == LS_BF16 ? CUDA_R_16BF
                             : CUDA_R_32F;
}

static bool is_fp8(int32_t type) {
    return type == LS_E4M3 || type == LS_E5M2;
}

/* At most 16 bytes count: no kernel needs more, and keys must not depend on chance. */
static int32_t alignment_of(const void *address) {
    uintptr_t bits = (uintptr_t)address | 16;
    return (int32_t)(bits & -bits);
}

static bool is_gelu(int32_t epilogue) {
    return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_DGELU;
}

/* Whether an epilogue can be done by own kernels. */
static bool can_be_apart(int32_t epilogue) {
    return epilogue == CUBLASLT_EPILOGUE_BGRADB || is_gelu(epilogue);
}

/* Whether an epilogue points to `extra`. */
static bool has_extra(int32_t epilogue) {
    return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_BGRADB ||
           epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool fast_sums(void) {
    const char *fast = getenv("LONGSHOT_CUDA_FP8_FAST");
    return fast != NULL && strcmp(fast, "1") == 0;
}

/* `extra` is the bias, or the place of the sums: what the epilogue points to. */
static product_key key_of(const ls_cuda_product *g, cublasLtEpilogue_t epilogue,
                          const void *extra) {
    product_key key;
    memset(&key, 0, sizeof key);
    key.m = g->m, key.n = g->n, key.k = g->k;
    key.a_stride = g->a.stride, key.b_stride = g->b.stride, key.c_stride = g->c_stride;
    key.a_transposed = g->a.transposed, key.b_transposed = g->b.transposed;
    key.type = g->a.type, key.b_type = g->b.type, key.c_type = g->c_type;
    key.tf32 = g->tf32 && g->a.type == LS_F32;
    key.fast = is_fp8(g->a.type) && fast_sums();
    key.add = g->add, key.epilogue = epilogue;
    const void *c = g->c;
    if (is_gelu(epilogue)) {
        c = g->gelu->c, key.c_stride = g->gelu->c_stride;
        key.inner_stride = g->gelu->inner_stride;
        key.inner_aligned = alignment_of(g->gelu->inner);
    }
    key.a_alignment = alignment_of(g->a.data), key.b_alignment = alignment_of(g->b.data);
    key.c_alignment = alignment_of(c), key.extra_alignment = alignment_of(extra);
    return key;
}

static void key_text(const known_products *state, const product_key *key, char *out, size_t bytes) {
    char operands[16];
    snprintf(operands, sizeof operands, "%s%s%s", ls_dtype_name((ls_dtype)key->type),
             is_fp8(key->type) ? ls_dtype_name((ls_dtype)key->b_type) : "",
             key->fast ? "fast" : "");
    if (key->tf32) snprintf(operands, sizeof operands, "tf32");
    int used = snprintf(out, bytes,
                        "%s/m%lld,n%lld,k%lld/s%lld,%lld,%lld/t%d%d/%s,%s/add%d/e%d/a%d,%d,%d,%d",
                        state->where, (long long)key->m, (long long)key->n, (long long)key->k,
                        (long long)key->a_stride, (long long)key->b_stride,
                        (long long)key->c_stride, key->a_transposed, key->b_transposed, operands,
                        key->c_type == LS_BF16 ? "bf16" : "f32", key->add, key->epilogue,
                        key->a_alignment, key->b_alignment, key->c_alignment, key->extra_alignment);
    if (is_gelu(key->epilogue) && used > 0 && (size_t)used < bytes)
        snprintf(out + used, bytes - (size_t)used, "/i%lld,%d", (long long)key->inner_stride,
                 key->inner_aligned);
}

static void forget_product(known_product *known) {
    if (known == NULL) return;
    if (known->about != NULL) cublasLtMatmulDescDestroy(known->about);
    if (known->first != NULL) cublasLtMatrixLayoutDestroy(known->first);
    if (known->second != NULL) cublasLtMatrixLayoutDestroy(known->second);
    if (known->result != NULL) cublasLtMatrixLayoutDestroy(known->result);
    free(known);
}

/* A stored row-major matrix as cuBLASLt sees it: `rows` by columns. */
static bool lay_out(cublasLtMatrixLayout_t *out, int32_t type, int64_t rows, int64_t columns,
                    int64_t stride) {
    return cublasLtMatrixLayoutCreate(out, cuda_type(type), (uint64_t)rows, (uint64_t)columns,
                                      stride) == CUBLAS_STATUS_SUCCESS;
}

template <typename T>
static bool set(cublasLtMatmulDesc_t about, cublasLtMatmulDescAttributes_t what, T value) {
    return cublasLtMatmulDescSetAttribute(about, what, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
}

static known_product *new_product(const product_key *key) {
    known_product *known = (known_product *)calloc(1, sizeof *known);
    if (known == NULL) return NULL;
    known->key = *key;
    int32_t turn_first = key->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t turn_second = key->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    bool fine = lay_out(&known->first, key->b_type, key->b_transposed ? key->k : key->n,
                        key->b_transposed ? key->n : key->k, key->b_stride) &&
                lay_out(&known->second, key->type, key->a_transposed ? key->m : key->k,
                        key->a_transposed ? key->k : key->m, key->a_stride) &&
                lay_out(&known->result, key->c_type, key->n, key->m, key->c_stride) &&
                cublasLtMatmulDescCreate(
                    &known->about, key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                    CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
                set(known->about, CUBLASLT_MATMUL_DESC_TRANSA, turn_first) &&
                set(known->about, CUBLASLT_MATMUL_DESC_TRANSB, turn_second) &&
                set(known->about, CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)key->epilogue) &&
                (!key->fast || set(known->about, CUBLASLT_MATMUL_DESC_FAST_ACCUM, (int8_t)1)) &&
                (!is_gelu(key->epilogue) ||
                 set(known->about, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key->inner_stride));
    if (fine) return known;
    forget_product(known);
    return NULL;
}

/* ---- doing one ---- */

/* What an epilogue points to, whose alignment counts when an algorithm is looked for; and what
 * operands are multiplied by. */
static void point(const known_product *known, const ls_cuda_product *g, void *extra) {
    if (has_extra(known->key.epilogue)) set(known->about, CUBLASLT_MATMUL_DESC_BIAS_POINTER, extra);
    if (is_gelu(known->key.epilogue))
        set(known->about, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g->gelu->inner);
    if (is_fp8(known->key.type)) {
        set(known->about, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, g->b.factor);
        set(known->about, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, g->a.factor);
    }
}

/* The product with this algorithm, and the sums, where they are asked for: from the epilogue, which
 * wrote them to `extra`, or by own kernels with `extra` as their workspace. GELU likewise. */
static cublasStatus_t multiply(ls_cuda *cuda, const known_product *known,
                               const cublasLtMatmulAlgo_t *algo, const ls_cuda_product *g,
                               void *extra) {
    const float one = 1, keep = g->add ? 1.0f : 0.0f;
    const bool joined = is_gelu(known->key.epilogue);
    void *c = joined ? g->gelu->c : g->c;
    point(known, g, extra);
    cublasStatus_t status =
        cublasLtMatmul(cuda->products, known->about, &one, g->b.data, known->first, g->a.data,
                       known->second, &keep, c, known->result, c, known->result, algo,
                       cuda->product_workspace, LS_CUDA_PRODUCT_WORKSPACE, cuda->stream);
    if (status == CUBLAS_STATUS_SUCCESS && g->gelu != NULL && !joined)
        g->gelu->apart(g->gelu->run, g->gelu->node);
    if (status != CUBLAS_STATUS_SUCCESS || g->sums == NULL) return status;
    if (known->key.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        ls_cuda_add_vectors(cuda, (const float *)extra, 1, g->m, g->sums);
    else
        ls_cuda_column_sums(cuda, g->a.data, g->a.type, g->k, g->m, g->a.stride, g->sums,
                            (float *)extra);
    return status;
}

/* ---- choosing an algorithm ---- */

template <typename T>
static bool prefer(cublasLtMatmulPreference_t wish, cublasLtMatmulPreferenceAttributes_t what,
                   T value) {
    return cublasLtMatmulPreferenceSetAttribute(wish, what, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
}

/* cuBLASLt's proposals, the likeliest first. Of the ways to add up parts of k only the one that
 * keeps them in f32 and adds them in a step of its own is admitted. */
static int propose(ls_cuda *cuda, const known_product *known, cublasLtMatmulAlgo_t *algos) {
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    cublasLtMatmulPreference_t wish = NULL;
    const product_key *key = &known->key;
    int count = 0, fit = 0;
    if (cublasLtMatmulPreferenceCreate(&wish) != CUBLAS_STATUS_SUCCESS) return 0;
    bool fine =
        prefer(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
               (uint64_t)LS_CUDA_PRODUCT_WORKSPACE) &&
        prefer(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
               (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) &&
        prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)key->b_alignment) &&
        prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)key->a_alignment) &&
        prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)key->c_alignment) &&
        prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)key->c_alignment) &&
        cublasLtMatmulAlgoGetHeuristic(cuda->products, known->about, known->first, known->second,
                                       known->result, known->result, wish, CANDIDATES, found,
                                       &count) == CUBLAS_STATUS_SUCCESS;
    cublasLtMatmulPreferenceDestroy(wish);
    for (int i = 0; fine && i < count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS) algos[fit++] = found[i].algo;
    return fit;
}

static float milliseconds(ls_cuda *cuda, const known_product *known,
                          const cublasLtMatmulAlgo_t *algo, const ls_cuda_product *g, void *extra) {
    const known_products *state = (const known_products *)cuda->known_products;
    float time = INFINITY;
    for (int i = 0; i < WARM_RUNS; i++)
        if (multiply(cuda, known, algo, g, extra) != CUBLAS_STATUS_SUCCESS) return INFINITY;
    cudaError_t error = cudaEventRecord(state->begin, cuda->stream);
    for (int i = 0; i < TIMED_RUNS; i++)
        if (multiply(cuda, known, algo, g, extra) != CUBLAS_STATUS_SUCCESS) return INFINITY;
    if (error == cudaSuccess) error = cudaEventRecord(state->end, cuda->stream);
    if (error == cudaSuccess) error = cudaEventSynchronize(state->end);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&time, state->begin, state->end);
    ls_cuda_note(cuda, error, "timing a product");
    return error == cudaSuccess ? time : INFINITY;
}

/* The same product with results that nobody waits for: what is added to must not be added to in
 * trials. Memory that must be given back is in *taken. */
static bool make_trial(ls_cuda *cuda, const ls_cuda_product *g, ls_cuda_product *trial,
                       void **taken) {
    *trial = *g;
    *taken = NULL;
    if (!g->add && g->sums == NULL) return true;
    size_t c_bytes = (size_t)(g->m * g->c_stride) * ls_dtype_size(g->c_type);
    c_bytes = (c_bytes + 255) / 256 * 256;
    size_t bytes = c_bytes + (size_t)g->m * sizeof(float);
    if (cudaMalloc(taken, bytes) != cudaSuccess) {
        cudaGetLastError(); /* no room: no trials */
        return false;
    }
    ls_cuda_note(cuda, cudaMemsetAsync(*taken, 0, bytes, cuda->stream), "clearing memory");
    trial->c = *taken;
    if (g->sums != NULL) trial->sums = (float *)((char *)*taken + c_bytes);
    return true;
}

static void algo_to_text(const cublasLtMatmulAlgo_t *algo, char *out) {
    for (size_t i = 0; i < sizeof *algo; i++)
        snprintf(out + 2 * i, 3, "%02x", ((const unsigned char *)algo)[i]);
}

static bool algo_from_text(const char *text, cublasLtMatmulAlgo_t *algo) {
    if (strlen(text) != 2 * sizeof *algo || strspn(text, "0123456789abcdef") != 2 * sizeof *algo)
        return false;
    for (size_t i = 0; i < sizeof *algo; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], '\0'};
        ((unsigned char *)algo)[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return true;
}

static_assert(2 * sizeof(cublasLtMatmulAlgo_t) < LS_PRODUCT_VALUE_BYTES, "values on disk fit");
static const char *const word_apart = "apart";

/* Takes over a choice from disk, where cuBLASLt can still do it. */
static bool recall(ls_cuda *cuda, known_product *known, const char *value) {
    cublasLtMatmulAlgo_t algo;
    cublasLtMatmulHeuristicResult_t result;
    if (can_be_apart(known->key.epilogue) && strcmp(value, word_apart) == 0)
        return known->apart = known->chosen = true;
    if (!algo_from_text(value, &algo) ||
        cublasLtMatmulAlgoCheck(cuda->products, known->about, known->first, known->second,
                                known->result, known->result, &algo,
                                &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > LS_CUDA_PRODUCT_WORKSPACE)
        return false;
    known->algo = algo;
    known->apart = false;
    return known->chosen = true;
}

static known_product *prepared(ls_cuda *cuda, const ls_cuda_product *g, cublasLtEpilogue_t epilogue,
                               void *extra);

/* The product that is followed by own kernels. */
static known_product *prepared_apart(ls_cuda *cuda, const ls_cuda_product *g, void *extra) {
    const bool bias = g->bias != NULL;
    ls_cuda_product plain = *g;
    plain.sums = NULL;
    plain.gelu = NULL;
    return prepared(cuda, &plain, bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT,
                    bias ? extra : NULL);
}

/* Whether GELU is to stay in the epilogue, slower or not. */
static bool is_joined(const ls_cuda *cuda, const known_product *known) {
    const known_products *state = (const known_products *)cuda->known_products;
    return is_gelu(known->key.epilogue) && state->joins;
}

/* Times the proposals; a product with sums is also timed against a plain one and own sums. False
 * where nothing could be timed: the choice stands as it was. */
static bool measure(ls_cuda *cuda, known_product *known, const ls_cuda_product *g, void *extra,
                    const cublasLtMatmulAlgo_t *algos, int count) {
    ls_cuda_product trial;
    void *taken = NULL;
    float best = INFINITY;
    const known_product *other = can_be_apart(known->key.epilogue) && !is_joined(cuda, known)
                                     ? prepared_apart(cuda, g, extra)
                                     : NULL;
    if (!make_trial(cuda, g, &trial, &taken)) return false;
    for (int i = 0; i < count; i++) {
        float time = milliseconds(cuda, known, &algos[i], &trial, extra);
        if (time >= best) continue;
        best = time;
        known->algo = algos[i];
        known->apart = false;
    }
    if (other != NULL) {
        float time = milliseconds(cuda, other, &other->algo, &trial, extra);
        known->apart = time <= best;
        best = time < best ? time : best;
    }
    cudaFree(taken);
    return best < INFINITY;
}

static void choose(ls_cuda *cuda, known_product *known, const ls_cuda_product *g, void *extra) {
    known_products *state = (known_products *)cuda->known_products;
    cublasLtMatmulAlgo_t algos[CANDIDATES];
    char text[640], value[LS_PRODUCT_VALUE_BYTES], useless[LS_PRODUCT_VALUE_BYTES];
    bool large = (double)g->m * (double)g->n * (double)g->k > worth_timing;
    const bool optional = can_be_apart(known->key.epilogue), joined = is_joined(cuda, known);
    bool stale = false;
    point(known, g, extra);
    key_text(state, &known->key, text, sizeof text);
    if (large && state->tunes && !joined &&
        (stale = ls_product_memory_find(&state->memory, text, useless, sizeof useless)) &&
        recall(cuda, known, useless))
        return;
    int count = propose(cuda, known, algos);
    if (count == 0 && !optional) {
        ls_cuda_note_text(cuda, text, "cuBLASLt knows no way to compute this product");
        return;
    }
    known->apart = optional && !(joined && count > 0); /* unless it is measured to be slower */
    if (count > 0) known->algo = algos[0];
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    ls_cuda_note(cuda, cudaStreamIsCapturing(cuda->stream, &capturing), "looking at the stream");
    known->chosen = !large || !state->tunes || capturing == cudaStreamCaptureStatusNone;
    if (!large || !state->tunes || capturing != cudaStreamCaptureStatusNone) return;
    if (!measure(cuda, known, g, extra, algos, count) || joined) return;
    algo_to_text(&known->algo, value);
    ls_product_memory_keep(&state->memory, text, known->apart ? word_apart : value,
                           stale ? useless : NULL);
    /* what another process found meanwhile holds for this one too */
    if (ls_product_memory_find(&state->memory, text, value, sizeof value))
        recall(cuda, known, value);
}

/* ---- all products that were met ---- */

static known_products *new_state(const ls_cuda *cuda) {
    known_products *state = (known_products *)calloc(1, sizeof *state);
    cudaDeviceProp about;
    int driver = 0;
    if (state == NULL) return NULL;
    const char *tune = getenv("LONGSHOT_CUDA_TUNE");
    state->tunes = tune == NULL || strcmp(tune, "0") != 0;
    const char *join = getenv("LONGSHOT_CUDA_JOIN");
    state->joins = join != NULL && strcmp(join, "1") == 0;
    if (cudaEventCreate(&state->begin) != cudaSuccess ||
        cudaEventCreate(&state->end) != cudaSuccess ||
        cudaDriverGetVersion(&driver) != cudaSuccess ||
        cudaGetDeviceProperties(&about, cuda->number) != cudaSuccess)
        state->tunes = false;
    else
        snprintf(state->where, sizeof state->where, "%s/%d/%d/%zu", about.name,
                 about.multiProcessorCount, driver, cublasLtGetVersion());
    for (char *c = state->where; *c != '\0'; c++)
        if (*c <= ' ') *c = '_';
    if (state->tunes) ls_product_memory_open(&state->memory);
    return state;
}

void ls_cuda_products_close(ls_cuda *cuda) {
    known_products *state = (known_products *)cuda->known_products;
    if (state == NULL) return;
    for (size_t i = 0; i < state->count; i++) forget_product(state->all[i]);
    free(state->all);
    ls_product_memory_close(&state->memory);
    if (state->begin != NULL) cudaEventDestroy(state->begin);
    if (state->end != NULL) cudaEventDestroy(state->end);
    free(state);
    cuda->known_products = NULL;
}

static known_product *find_or_add(known_products *state, const product_key *key) {
    for (size_t i = 0; i < state->count; i++)
        if (memcmp(&state->all[i]->key, key, sizeof *key) == 0) return state->all[i];
    if (state->count == state->capacity) {
        size_t capacity = state->capacity == 0 ? 64 : 2 * state->capacity;
        void *more = realloc(state->all, capacity * sizeof *state->all);
        if (more == NULL) return NULL;
        state->all = (known_product **)more;
        state->capacity = capacity;
    }
    known_product *known = new_product(key);
    if (known != NULL) state->all[state->count++] = known;
    return known;
}

/* The known product with its algorithm; NULL after an error was noted. */
static known_product *prepared(ls_cuda *cuda, const ls_cuda_product *g, cublasLtEpilogue_t epilogue,
                               void *extra) {
    if (cuda->known_products == NULL) cuda->known_products = new_state(cuda);
    product_key key = key_of(g, epilogue, extra);
    known_product *known = NULL;
    if (cuda->known_products != NULL)
        known = find_or_add((known_products *)cuda->known_products, &key);
    if (known == NULL) {
        ls_cuda_note_text(cuda, "a product", "cuBLASLt does not take its shape, or no memory");
        return NULL;
    }
    if (!known->chosen) choose(cuda, known, g, extra);
    return cuda->wrong == cudaSuccess ? known : NULL;
}

/* ---- entry ---- */

static __global__ void round_bias(const float *bias, int64_t n, ls_cuda_bf16 *rounded) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) rounded[i] = ls_cuda_narrow<ls_cuda_bf16>(bias[i]);
}

size_t ls_cuda_product_bias_bytes(int64_t n) {
    return (size_t)n * sizeof(ls_cuda_bf16);
}

size_t ls_cuda_product_sums_bytes(int64_t m, int64_t k) {
    return ls_cuda_column_sums_bytes(k, m); /* the epilogue's sums are one piece */
}

/* The bias in the type of C, as the epilogue wants it. */
static const void *epilogue_bias(ls_cuda *cuda, const ls_cuda_product *g, void *workspace) {
    enum { THREADS = 256 };
    if (g->c_type != LS_BF16) return g->bias;
    unsigned blocks = (unsigned)((g->n + THREADS - 1) / THREADS);
    round_bias<<<blocks, THREADS, 0, cuda->stream>>>(g->bias, g->n, (ls_cuda_bf16 *)workspace);
    ls_cuda_note(cuda, cudaGetLastError(), "rounding a bias");
    return workspace;
}

void ls_cuda_product_run(const ls_run *run, const ls_cuda_product *given, void *workspace) {
    ls_cuda *cuda = ls_cuda_of(run);
    ls_cuda_product wanted = *given;
    const ls_cuda_product *g = &wanted;
    wanted.tf32 = run->tf32;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void *extra = NULL;
    if (cuda->wrong != cudaSuccess) return;
    if (ls_cuda_few_rows_fit(g)) {
        ls_cuda_few_rows(run, g);
        if (g->gelu != NULL) g->gelu->apart(run, g->gelu->node);
        return;
    }
    if (is_fp8(g->a.type) != is_fp8(g->b.type) || (g->a.type != g->b.type && !is_fp8(g->a.type)) ||
        (g->sums != NULL && (g->bias != NULL || !g->a.transposed))) {
        ls_cuda_note_text(cuda, "a product", "such operands are not provided for");
        return;
    }
    if (g->sums != NULL) {
        epilogue = CUBLASLT_EPILOGUE_BGRADB;
        extra = workspace;
    } else if (g->bias != NULL) {
        epilogue = CUBLASLT_EPILOGUE_BIAS;
        extra = (void *)epilogue_bias(cuda, g, workspace);
    }
    if (g->gelu != NULL)
        epilogue = g->gelu->slopes   ? CUBLASLT_EPILOGUE_DGELU
                   : g->bias != NULL ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                     : CUBLASLT_EPILOGUE_GELU_AUX;
    const known_product *known = prepared(cuda, g, epilogue, extra);
    if (known != NULL && known->apart) known = prepared_apart(cuda, g, extra);
    if (known == NULL) return;
    cublasStatus_t status = multiply(cuda, known, &known->algo, g, extra);
    if (status != CUBLAS_STATUS_SUCCESS)
        ls_cuda_note_text(cuda, "a product", cublasLtGetStatusString(status));
}
