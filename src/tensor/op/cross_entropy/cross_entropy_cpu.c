#include <float.h>
#include <math.h>

#include "tensor/cpu/gemm.h"
#include "tensor/cpu/vector.h"
#include "tensor/op/cross_entropy/cross_entropy.h"

/* Rows of a piece: about 16 MB of logits, a multiple of 16 rows. */
static int64_t piece_rows(const ls_node *node) {
    int64_t vocabulary = node->in[1]->dim[0], rows = ls_count(node->in[3]);
    int64_t fit = ((int64_t)16 << 20) / (4 * vocabulary) / 16 * 16;
    return ls_min(rows, ls_max(16, ls_min(fit, 1024)));
}

typedef struct row_chunk {
    ls_gemm logits, dx, dw;
} row_chunk;

/* Row `first` of rows of so many bytes; there are none yet while only sizes are asked for. */
static char *row_at(const ls_tensor *tensor, int64_t first, size_t bytes) {
    char *data = ls_data(tensor);
    return data == NULL ? NULL : data + (size_t)first * bytes;
}

/* The products of `rows` rows from `first`: logits = x W^T, dx = d W, dW += d^T x, where d is the
 * gradient of the logits, in the type in which products run. */
static row_chunk products(const ls_node *node, int64_t first, int64_t rows, void *logits, void *d) {
    const ls_tensor *x = node->in[0], *w = node->in[1];
    int64_t vocabulary = w->dim[0], width = w->dim[1];
    ls_dtype wide = x->type == LS_F64 ? LS_F64 : LS_F32;
    size_t row_bytes = (size_t)width * ls_dtype_size(x->type);
    ls_matrix x_rows = {row_at(x, first, row_bytes), x->type, width, false};
    ls_matrix weight = {ls_data(w), w->type, width, false};
    ls_matrix weight_transposed = {ls_data(w), w->type, width, true};
    ls_matrix d_rows = {d, x->type, vocabulary, false},
              d_transposed = {d, x->type, vocabulary, true};
    row_chunk out = {
        .logits = {rows, vocabulary, width, x_rows, weight_transposed, logits, wide, vocabulary,
                   false, node->in[2] == NULL ? NULL : ls_data(node->in[2]), false},
        .dx = {rows, width, vocabulary, d_rows, weight, NULL, x->type, width, false, NULL, false},
        .dw = {vocabulary, width, rows, d_transposed, x_rows, NULL, wide, width, true, NULL, false},
    };
    if (node->out[1] != NULL) out.dx.c = row_at(node->out[1], first, row_bytes);
    return out;
}

static size_t gemm_bytes(const ls_node *node, int threads) {
    row_chunk p = products(node, 0, piece_rows(node), NULL, NULL);
    size_t most = ls_gemm_workspace(&p.logits, threads);
    size_t dx = ls_gemm_workspace(&p.dx, threads), dw = ls_gemm_workspace(&p.dw, threads);
    if (node->out[1] == NULL) return most;
    most = dx > most ? dx : most;
    return (size_t)ls_round_up((int64_t)(dw > most ? dw : most), 64);
}

static size_t buffer_bytes(const ls_node *node) {
    int64_t vocabulary = node->in[1]->dim[0];
    size_t size = node->in[0]->type == LS_F64 ? 8 : 4;
    return (size_t)ls_round_up(piece_rows(node) * vocabulary * (int64_t)size, 64);
}

/* Slopes of capped logits, by which their gradient is multiplied. */
static size_t slope_bytes(const ls_node *node) {
    const bool wanted = ls_cross_entropy_about(node).cap > 0 && node->out[1] != NULL;
    return wanted ? buffer_bytes(node) : 0;
}

static size_t workspace(const ls_node *node, int threads) {
    size_t rounded = node->in[0]->type == LS_BF16 ? buffer_bytes(node) / 2 + 64 : 0;
    return (size_t)ls_round_up((int64_t)gemm_bytes(node, threads), 64) + buffer_bytes(node) +
           rounded + slope_bytes(node);
}

/* The loss of a row and the share of probability that its target does not have, from the logit of
 * the target and the logarithm of the sum of exp over all others. Neither is a difference of nearly
 * equal numbers where the target is all but certain: its gradient would be lost there, the small
 * ones of the others not, and steps scaled by an optimizer would push all logits down for ever. */
typedef struct verdict {
    double loss, missing;
} verdict;

static verdict judge(double others, double at_target) {
    double behind = others - at_target, small = exp(-fabs(behind));
    return (verdict){fmax(behind, 0) + log1p(small), (behind > 0 ? 1 : small) / (1 + small)};
}

/* What a smoothed target adds to the loss of a row, from its logit and the sum of all. */
static double smoothed(double smoothing, double at_target, double total, int64_t count) {
    return smoothing * (at_target - total / (double)count);
}

/* Logits become cap tanh(logit / cap), and `slopes`, where given, what that is differentiated. */
LS_INLINE void cap_row(void *logits, int64_t count, double cap, void *slopes, ls_dtype type) {
    double *wide = logits;
    float *narrow = logits;
    int64_t i = 0;
    for (; type == LS_F64 && i < count; i++) {
        const double t = tanh(wide[i] / cap);
        wide[i] = cap * t;
        if (slopes != NULL) ((double *)slopes)[i] = 1 - t * t;
    }
    for (; type != LS_F64 && i < count; i += LS_LANES) {
        const ls_vec t = ls_vec_tanh(ls_load_left(narrow, LS_F32, i, count - i) / (float)cap);
        ls_store_left(narrow, LS_F32, i, count - i, t * (float)cap);
        if (slopes != NULL) ls_store_left(slopes, LS_F32, i, count - i, 1.0f - t * t);
    }
}

LS_INLINE void scale_row(void *d, const void *slopes, int64_t count, ls_dtype type) {
    for (int64_t i = 0; type == LS_F64 && i < count; i++)
        ((double *)d)[i] *= ((const double *)slopes)[i];
    for (int64_t i = 0; type != LS_F64 && i < count; i += LS_LANES)
        ls_store_left(d, type, i, count - i,
                      ls_load_left(d, type, i, count - i) *
                          ls_load_left(slopes, LS_F32, i, count - i));
}

/* Loss of a row; its logits become weight * (softmax - target), stored in d where d is given. The
 * target is 1 - smoothing at its place, and the rest evenly everywhere. */
static double row_f64(double *logits, int64_t count, int32_t target, double smoothing,
                      double weight, double *d) {
    if (target < 0) {
        if (d != NULL) memset(d, 0, (size_t)count * sizeof *d);
        return 0;
    }
    const double at_target = logits[target];
    double most = -DBL_MAX, sum = 0, total = 0;
    for (int64_t i = 0; i < count; i++) total += logits[i];
    logits[target] = -DBL_MAX; /* what is no other has no share in their sum */
    for (int64_t i = 0; i < count; i++) most = logits[i] > most ? logits[i] : most;
    for (int64_t i = 0; i < count; i++) sum += exp(logits[i] - most);
    const verdict of = judge(log(sum) + most, at_target);
    for (int64_t i = 0; d != NULL && i < count; i++)
        d[i] = weight * (of.missing * (i == target ? -1 : exp(logits[i] - most) / sum) +
                         smoothing * ((i == target) - 1 / (double)count));
    return of.loss + smoothed(smoothing, at_target, total, count);
}

/* Logits become exp(logit - most); their sum. Strips keep a lane's f32 sum short: over a whole
 * vocabulary the many small terms would be lost beside the few large ones, all in one direction. */
LS_INLINE double exponentials(float *logits, int64_t count, float most) {
    enum { STRIP = 1024 };
    double sum = 0;
    for (int64_t from = 0; from < count; from += STRIP) {
        int64_t end = count - from < STRIP ? count : from + STRIP;
        int64_t whole = end - (end - from) % LS_LANES;
        ls_vec sums = ls_vec_all(0);
        float rest = 0;
        for (int64_t i = from; i < whole; i += LS_LANES) {
            ls_vec e = ls_vec_exp(ls_load(logits, LS_F32, i) - most);
            ls_store(logits, LS_F32, i, e);
            sums += e;
        }
        for (int64_t i = whole; i < end; i++) rest += logits[i] = expf(logits[i] - most);
        sum += (double)(ls_vec_sum(sums) + rest);
    }
    return sum;
}

LS_INLINE float row_typed(float *logits, int64_t count, int32_t target, double smoothing,
                          float weight, void *d, ls_dtype type) {
    if (target < 0) {
        if (d != NULL) memset(d, 0, (size_t)count * ls_dtype_size(type));
        return 0;
    }
    const float at_target = logits[target];
    double total = 0;
    for (int64_t i = 0; smoothing > 0 && i < count; i++) total += logits[i];
    logits[target] = -FLT_MAX;
    ls_vec mosts = ls_vec_all(-FLT_MAX);
    int64_t whole = count / LS_LANES * LS_LANES;
    float most = -FLT_MAX;
    for (int64_t i = 0; i < whole; i += LS_LANES) {
        ls_vec value = ls_load(logits, LS_F32, i);
        mosts = ls_vec_pick(value > mosts, value, mosts);
    }
    for (int64_t i = whole; i < count; i++) most = logits[i] > most ? logits[i] : most;
    for (int i = 0; i < LS_LANES; i++) most = mosts[i] > most ? mosts[i] : most;
    const double sum = exponentials(logits, count, most);
    const verdict of = judge(log(sum) + most, at_target);
    if (d != NULL) {
        const float missing = (float)(weight * of.missing), scale = missing / (float)sum;
        const float spread = (float)(weight * smoothing), each = spread / (float)count;
        for (int64_t i = 0; i < whole; i += LS_LANES)
            ls_store(d, type, i, ls_load(logits, LS_F32, i) * scale - each);
        for (int64_t i = whole; i < count; i++) ls_store_one(d, type, i, logits[i] * scale - each);
        ls_store_one(d, type, target, spread - each - missing);
    }
    return (float)(of.loss + smoothed(smoothing, at_target, total, count));
}

/* db += column sums of the rows of d. */
static void add_bias_gradient(const ls_run *run, const ls_tensor *bias, const void *d,
                              ls_dtype type, int64_t rows, int64_t count) {
    void *gradient = ls_param_gradient(run, bias);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t row = 0; row < rows; row++)
            sum += type == LS_F64 ? ((const double *)d)[row * count + i]
                                  : (double)ls_load_one(d, type, row * count + i);
        if (type == LS_F64)
            ((double *)gradient)[i] += sum;
        else
            ((float *)gradient)[i] += (float)sum;
    }
}

LS_INLINE void run_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const int32_t *targets = ls_data(node->in[3]);
    int64_t rows = ls_count(node->in[3]), vocabulary = node->in[1]->dim[0], most = piece_rows(node);
    const double smoothing = ls_cross_entropy_about(node).smoothing,
                 cap = ls_cross_entropy_about(node).cap;
    bool grad = node->out[1] != NULL;
    char *logits = run->workspace, *slopes = logits + buffer_bytes(node);
    char *products_space = slopes + slope_bytes(node);
    void *d = NULL; /* the gradient takes the logits' place, unless products want it in bf16 */
    if (grad) d = type == LS_BF16 ? products_space : logits;
    if (type == LS_BF16) products_space += ls_round_up((int64_t)buffer_bytes(node) / 2, 64);
    for (int64_t first = 0; first < rows; first += most) {
        int64_t count = ls_min(most, rows - first);
        row_chunk p = products(node, first, count, logits, d);
        ls_gemm_run(&p.logits, run->threads, products_space);
#pragma omp parallel for schedule(static) num_threads(run->threads)
        for (int64_t row = 0; row < count; row++) {
            int64_t n = first + row;
            size_t at = (size_t)(row * vocabulary);
            void *d_row = d == NULL ? NULL : (char *)d + at * ls_dtype_size(type);
            const size_t wide = at * (type == LS_F64 ? sizeof(double) : sizeof(float));
            if (cap > 0) cap_row(logits + wide, vocabulary, cap, grad ? slopes + wide : NULL, type);
            if (type == LS_F64)
                ((double *)ls_data(node->out[0]))[n] =
                    row_f64((double *)logits + at, vocabulary, targets[n], smoothing,
                            grad ? ((const double *)ls_data(node->in[4]))[n] : 0, d_row);
            else
                ((float *)ls_data(node->out[0]))[n] =
                    row_typed((float *)logits + at, vocabulary, targets[n], smoothing,
                              grad ? ((const float *)ls_data(node->in[4]))[n] : 0, d_row, type);
            if (cap > 0 && grad) scale_row(d_row, slopes + wide, vocabulary, type);
        }
        if (!grad) continue;
        ls_gemm_run(&p.dx, run->threads, products_space);
        if (node->in[1]->needs_grad) {
            p.dw.c = ls_param_gradient(run, node->in[1]);
            ls_gemm_run(&p.dw, run->threads, products_space);
        }
        if (node->in[2] != NULL && node->in[2]->needs_grad)
            add_bias_gradient(run, node->in[2], d, type, count, vocabulary);
    }
}

LS_KERNEL_ALL(run)

const ls_kernel LS_CPU_TABLE(cross_entropy)[] = {
    {"linear_cross_entropy", LS_KERNEL_BY_TYPE(run), workspace},
    {0},
};
