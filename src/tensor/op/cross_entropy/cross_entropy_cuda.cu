/* Output projection and cross entropy over pieces of rows. In bf16 the logits are bf16 too: each is
 * off by up to one part in 256, the loss of a row by about as much as its target's logit; maximum,
 * sums and losses are f32. */
#include <float.h>

#include "tensor/cuda/product.cuh"
#include "tensor/cuda/reduce.cuh"

extern "C" {
#include "tensor/op/cross_entropy/cross_entropy.h"
}

/* ---- pieces ---- */

/* Rows of logits lie so that each begins at 128 bytes at least, whatever the vocabulary. */
static int64_t logits_stride(const ls_node *node) {
    return ls_round_up(node->in[1]->dim[0], 64);
}

static int64_t row_bytes(const ls_node *node) {
    return logits_stride(node) * (int64_t)ls_dtype_size(node->in[0]->type);
}

/* An eighth of all rows, but 4096 where there are as many, and at most 1 GiB of logits; pieces are
 * about equal. */
static int64_t piece_rows(const ls_node *node) {
    const int64_t step = 256, few = 4096;
    int64_t rows = ls_count(node->in[3]), most = ls_round_up(ls_ceil_div(rows, 8), step);
    int64_t room = ((int64_t)1 << 30) / row_bytes(node) / step * step;
    if (most < few) most = few;
    if (most > room) most = room < step ? step : room;
    int64_t pieces = ls_ceil_div(rows, most), piece = ls_round_up(ls_ceil_div(rows, pieces), step);
    return piece < rows ? piece : rows;
}

/* The workspace: logits, which become their gradient; then what products of a bias need. */
static size_t logits_bytes(const ls_node *node) {
    return (size_t)ls_round_up(piece_rows(node) * row_bytes(node), 256);
}

static size_t workspace(const ls_node *node, int threads) {
    int64_t vocabulary = node->in[1]->dim[0];
    size_t bias = ls_cuda_product_bias_bytes(vocabulary);
    size_t sums = ls_cuda_product_sums_bytes(vocabulary, piece_rows(node));
    return logits_bytes(node) + (node->in[2] == NULL ? 0 : bias > sums ? bias : sums);
}

/* ---- softmax of rows ---- */

enum { THREADS = 512, WARPS = THREADS / 32, AT_ONCE = 4 };
/* What a kernel is made for besides plain rows. */
enum { SMOOTHED = 1, CAPPED = 2 };

/* cap tanh(logit / cap) */
static __device__ inline float capped(float logit, float cap) {
    return cap * tanhf(logit / cap);
}

/* 16 bytes of a row. */
template <typename T> union pack {
    static constexpr int COUNT = 16 / sizeof(T);
    uint4 bits;
    T value[COUNT];
    __device__ pack() {}
};

/* e to the power of what lies below the row's maximum. */
static __device__ inline float e_below(float value, float most) {
    float result, power = (value - most) * 1.44269504f;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(power));
    return result;
}

/* The sum of e_below over some values, and their maximum. */
struct tally {
    float most, sum;
};

static __device__ inline tally join(tally a, tally b) {
    float most = fmaxf(a.most, b.most);
    float of_a = a.most == most ? a.sum : a.sum * e_below(a.most, most);
    float of_b = b.most == most ? b.sum : b.sum * e_below(b.most, most);
    return tally{most, of_a + of_b};
}

/* The tally of all threads of the block, the same in each. */
static __device__ inline tally join_block(tally mine) {
    __shared__ tally of_warp[WARPS];
    for (int distance = 16; distance > 0; distance /= 2) {
        tally other = {__shfl_down_sync(~0u, mine.most, distance),
                       __shfl_down_sync(~0u, mine.sum, distance)};
        mine = join(mine, other);
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    tally all = of_warp[0];
    for (int i = 1; i < WARPS; i++) all = join(all, of_warp[i]);
    return all;
}

/* The loss of a row and the share of probability that its target does not have, from the tally of
 * all other logits: cross_entropy_cpu.c says why. */
struct verdict {
    float loss, missing;
};

static __device__ inline verdict judge(tally others, float at_target) {
    float behind = logf(others.sum) + (others.most - at_target), small = expf(-fabsf(behind));
    return verdict{fmaxf(behind, 0) + log1pf(small), (behind > 0 ? 1 : small) / (1 + small)};
}

/* Adds the logits of a pack to the tally, but for the target's and what lies beyond the vocabulary;
 * where they are smoothed also to their sum. */
template <typename T, int FORM>
static __device__ inline void count_pack(const pack<T> &from, int first, int vocabulary, int target,
                                         float cap, tally *mine, float *total) {
    float values[pack<T>::COUNT];
    for (int i = 0; i < pack<T>::COUNT; i++) {
        bool counts = first + i < vocabulary && first + i != target;
        values[i] = counts ? ls_cuda_wide(from.value[i]) : -FLT_MAX;
        if ((FORM & CAPPED) && counts) values[i] = capped(values[i], cap);
        if ((FORM & SMOOTHED) && counts) *total += values[i];
    }
    float most = mine->most, sum = 0;
    for (int i = 0; i < pack<T>::COUNT; i++) most = fmaxf(most, values[i]);
    for (int i = 0; i < pack<T>::COUNT; i++) sum += e_below(values[i], most);
    /* before the first pack the maximum is -infinity and the sum 0 */
    mine->sum = mine->sum * e_below(mine->most, most) + sum;
    mine->most = most;
}

/* A row's weight by the share that its target does not have, by the share that is spread over all,
 * and by that of one of them. */
struct shares {
    float missing, spread, each;
};

template <typename T, int FORM>
static __device__ inline void grade_pack(pack<T> *values, int first, tally others, int target,
                                         shares of, float cap) {
    float scale = of.missing / others.sum;
    for (int i = 0; i < pack<T>::COUNT; i++) {
        float logit = ls_cuda_wide(values->value[i]);
        if (FORM & CAPPED) logit = capped(logit, cap);
        float p = e_below(logit, others.most) * scale;
        float d = first + i == target ? -of.missing : p;
        if (FORM & SMOOTHED) d += (first + i == target ? of.spread : 0) - of.each;
        if (FORM & CAPPED) d *= 1 - logit / cap * (logit / cap);
        values->value[i] = ls_cuda_narrow<T>(d);
    }
}

/* One block per row: its loss; with GRADE its logits become weight (softmax - target). With KEEP
 * the row stays in shared memory between the two passes. A thread sees the same packs in both, so
 * it waits for the others only at the tally. */
template <typename T, bool GRADE, bool KEEP, int FORM>
static __global__ void __launch_bounds__(THREADS, 2)
    softmax_rows(T *logits, int64_t stride, int vocabulary, const int32_t *targets,
                 const float *weights, float *losses, float smoothing, float cap) {
    extern __shared__ uint4 kept[];
    constexpr int COUNT = pack<T>::COUNT;
    T *row = logits + blockIdx.x * stride;
    uint4 *packs = (uint4 *)row;
    int count = (vocabulary + COUNT - 1) / COUNT, target = targets[blockIdx.x];
    if (target < 0) {
        if (threadIdx.x == 0) losses[blockIdx.x] = 0;
        for (int i = threadIdx.x; GRADE && i < count; i += THREADS)
            packs[i] = make_uint4(0, 0, 0, 0);
        return;
    }
    float at_target = ls_cuda_wide(row[target]);
    if (FORM & CAPPED) at_target = capped(at_target, cap);
    tally mine = {-INFINITY, 0};
    float total = 0;
    for (int base = threadIdx.x; base < count; base += AT_ONCE * THREADS) {
        pack<T> here[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (base + j * THREADS < count) here[j].bits = packs[base + j * THREADS];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int i = base + j * THREADS;
            if (i >= count) break;
            if (KEEP) kept[i] = here[j].bits;
            count_pack<T, FORM>(here[j], i * COUNT, vocabulary, target, cap, &mine, &total);
        }
    }
    tally others = join_block(mine);
    verdict of = judge(others, at_target);
    if (FORM & SMOOTHED) {
        total = ls_cuda_block_sum<THREADS>(total) + at_target;
        of.loss += smoothing * (at_target - total / (float)vocabulary);
    }
    if (threadIdx.x == 0) losses[blockIdx.x] = of.loss;
    if (!GRADE) return;
    float weight = weights[blockIdx.x];
    shares by = {weight * of.missing, weight * smoothing, weight * smoothing / (float)vocabulary};
#pragma unroll 2
    for (int i = threadIdx.x; i < count; i += THREADS) {
        pack<T> here;
        here.bits = KEEP ? kept[i] : packs[i];
        grade_pack<T, FORM>(&here, i * COUNT, others, target, by, cap);
        packs[i] = here.bits;
    }
}

template <typename T, bool GRADE, bool KEEP, int FORM>
static void launch_rows(const ls_run *run, const ls_node *node, int64_t first, int64_t rows) {
    ls_cuda *cuda = ls_cuda_of(run);
    const int32_t *targets = (const int32_t *)ls_data(node->in[3]) + first;
    const float *weights = GRADE ? (const float *)ls_data(node->in[4]) + first : NULL;
    float *losses = (float *)ls_data(node->out[0]) + first;
    const ls_cross_entropy_attributes about = ls_cross_entropy_about(node);
    size_t shared = KEEP ? (size_t)row_bytes(node) : 0;
    if (KEEP) {
        auto kernel = softmax_rows<T, GRADE, KEEP, FORM>;
        const char *what = "asking for shared memory";
        cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        ls_cuda_note(cuda, error, what);
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
        ls_cuda_note(cuda, error, what);
    }
    softmax_rows<T, GRADE, KEEP, FORM><<<(unsigned)rows, THREADS, shared, cuda->stream>>>(
        (T *)run->workspace, logits_stride(node), (int)node->in[1]->dim[0], targets, weights,
        losses, (float)about.smoothing, (float)about.cap);
    ls_cuda_launched(run, "cross entropy");
}

template <typename T, int FORM>
static void softmax_piece(const ls_run *run, const ls_node *node, int64_t first, int64_t rows) {
    /* two blocks must fit, so that one computes while the other waits for memory */
    bool fits = (size_t)row_bytes(node) + 2048 <= ls_cuda_of(run)->shared_max / 2;
    if (node->out[1] == NULL)
        launch_rows<T, false, false, FORM>(run, node, first, rows);
    else if (fits)
        launch_rows<T, true, true, FORM>(run, node, first, rows);
    else
        launch_rows<T, true, false, FORM>(run, node, first, rows);
}

/* ---- products ---- */

/* logits = x W^T, dx = d W, dW += d^T x, where the gradient d has taken the logits' place. */
typedef struct row_chunk {
    ls_cuda_product logits, dx, dw;
} row_chunk;

static row_chunk products(const ls_run *run, const ls_node *node, int64_t first, int64_t rows) {
    const ls_tensor *x = node->in[0], *w = node->in[1];
    int64_t vocabulary = w->dim[0], width = w->dim[1], stride = logits_stride(node);
    int64_t offset = first * width * (int64_t)ls_dtype_size(x->type);
    void *d = run->workspace;
    ls_cuda_matrix x_rows = {(const char *)ls_data(x) + offset, x->type, width, false};
    ls_cuda_matrix weight = {ls_data(w), w->type, width, false}, weight_transposed = weight;
    ls_cuda_matrix d_rows = {d, x->type, stride, false}, d_transposed = d_rows;
    weight_transposed.transposed = d_transposed.transposed = true;
    row_chunk p = {{rows, vocabulary, width, x_rows, weight_transposed, d, x->type, stride, false},
                   {rows, width, vocabulary, d_rows, weight, NULL, x->type, width, false},
                   {vocabulary, width, rows, d_transposed, x_rows, NULL, LS_F32, width, true}};
    if (node->in[2] != NULL) p.logits.bias = (const float *)ls_data(node->in[2]);
    if (node->out[1] == NULL) return p;
    p.dx.c = (char *)ls_data(node->out[1]) + offset;
    if (!w->needs_grad) return p;
    p.dw.c = ls_param_gradient(run, w);
    if (node->in[2] != NULL) p.dw.sums = (float *)ls_param_gradient(run, node->in[2]);
    return p;
}

template <typename T> static void run_typed(const ls_run *run, const ls_node *node) {
    int64_t rows = ls_count(node->in[3]), most = piece_rows(node);
    void *rest = (char *)run->workspace + logits_bytes(node);
    const ls_cross_entropy_attributes about = ls_cross_entropy_about(node);
    for (int64_t first = 0; first < rows; first += most) {
        int64_t count = most < rows - first ? most : rows - first;
        row_chunk p = products(run, node, first, count);
        ls_cuda_product_run(run, &p.logits, rest);
        if (about.cap > 0 && about.smoothing > 0)
            softmax_piece<T, CAPPED | SMOOTHED>(run, node, first, count);
        else if (about.cap > 0)
            softmax_piece<T, CAPPED>(run, node, first, count);
        else if (about.smoothing > 0)
            softmax_piece<T, SMOOTHED>(run, node, first, count);
        else
            softmax_piece<T, 0>(run, node, first, count);
        if (node->out[1] == NULL) continue;
        ls_cuda_product_run(run, &p.dx, NULL);
        if (node->in[1]->needs_grad) ls_cuda_product_run(run, &p.dw, rest);
    }
}

LS_CUDA_DECLARE_TABLE(cross_entropy);
const ls_kernel LS_CUDA_TABLE(cross_entropy)[] = {
    {"linear_cross_entropy", {NULL, run_typed<float>, run_typed<ls_cuda_bf16>}, workspace},
    {0},
};
