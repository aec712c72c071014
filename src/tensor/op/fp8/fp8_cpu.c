/* fp8 on the processor, which has no units for it: casts as they are, and products of what the
 * codes stand for, which bf16 holds exactly, so that a recipe gives the same kind of run
 * everywhere. */
#include "base/fp8.h"
#include "base/memory.h"
#include "tensor/cpu/gemm.h"
#include "tensor/op/fp8/fp8.h"

#include <math.h>

enum { TILE = 64, ALIGNMENT = 64 };

static ls_fp8 format_of(const ls_tensor *codes) {
    return codes->type == LS_E5M2 ? LS_FP8_E5M2 : LS_FP8_E4M3;
}

/* ---- casts ---- */

typedef struct cast_job {
    const ls_bf16 *x;
    int64_t rows, width, stride;
    ls_fp8 format;
    uint8_t *codes, *turned; /* or NULL */
    float scale;
} cast_job;

static uint16_t largest_of(const cast_job *job, int threads) {
    unsigned largest = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(max : largest)
    for (int64_t row = 0; row < job->rows; row++) {
        const ls_bf16 *x = job->x + row * job->stride;
        unsigned most = 0;
        for (int64_t i = 0; i < job->width; i++) {
            const unsigned size = x[i] & 0x7fffu;
            most = size > most ? size : most;
        }
        largest = most > largest ? most : largest;
    }
    return (uint16_t)largest;
}

static void cast_rows(const cast_job *job, int64_t row, int64_t rows, int64_t column,
                      int64_t columns, uint8_t tile[TILE][TILE]) {
    for (int64_t i = 0; i < rows; i++) {
        const ls_bf16 *x = job->x + (row + i) * job->stride + column;
        if (job->format == LS_FP8_E4M3) /* each a loop in vectors */
            for (int64_t j = 0; j < columns; j++)
                tile[i][j] = ls_fp8_from_f32(LS_FP8_E4M3, job->scale * ls_bf16_to_f32(x[j]));
        else
            for (int64_t j = 0; j < columns; j++)
                tile[i][j] = ls_fp8_from_f32(LS_FP8_E5M2, job->scale * ls_bf16_to_f32(x[j]));
        if (job->codes != NULL)
            memcpy(job->codes + (row + i) * job->width + column, tile[i], (size_t)columns);
    }
}

static void cast_all(const cast_job *job, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < job->rows; row += TILE)
        for (int64_t column = 0; column < job->width; column += TILE) {
            uint8_t tile[TILE][TILE];
            const int64_t rows = ls_min(TILE, job->rows - row);
            const int64_t columns = ls_min(TILE, job->width - column);
            cast_rows(job, row, rows, column, columns, tile);
            for (int64_t j = 0; job->turned != NULL && j < columns; j++)
                for (int64_t i = 0; i < rows; i++)
                    job->turned[(column + j) * job->rows + row + i] = tile[i][j];
        }
}

/* The sum of each column over all rows in order. */
static void add_rows(const cast_job *job, float *sums, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t first = 0; first < job->width; first += TILE) {
        const int64_t columns = ls_min(TILE, job->width - first);
        float sum[TILE] = {0};
        for (int64_t row = 0; row < job->rows; row++)
            for (int64_t j = 0; j < columns; j++)
                sum[j] += ls_bf16_to_f32(job->x[row * job->stride + first + j]);
        for (int64_t j = 0; j < columns; j++) sums[first + j] += sum[j];
    }
}

static void cast(const ls_run *run, const ls_node *node) {
    const ls_tensor *codes = node->out[1] != NULL ? node->out[1] : node->out[2];
    cast_job job = {.x = ls_data(node->in[0]),
                    .format = format_of(codes),
                    .codes = ls_data_or_null(node->out[1]),
                    .turned = ls_data_or_null(node->out[2])};
    float *factor = ls_data(node->out[0]);
    ls_rows(node->in[0], &job.rows, &job.width, &job.stride);
    const uint16_t largest = largest_of(&job, run->threads);
    const bool finite = largest < 0x7f80;
    const int exponent = finite ? ls_fp8_exponent(job.format, largest) : 0;
    job.scale = ldexpf(1, exponent);
    *factor = finite ? ldexpf(1, -exponent) : NAN;
    cast_all(&job, run->threads);
    if (node->in[1] != NULL) add_rows(&job, ls_param_gradient(run, node->in[1]), run->threads);
}

/* ---- products ---- */

/* Its values in bf16; all factors of a product go to one operand. */
static void decode(const ls_run *run, const ls_tensor *codes, float factor, ls_bf16 *out) {
    ls_bf16 table[256];
    const uint8_t *from = ls_data(codes);
    const int64_t count = ls_count(codes);
    for (int i = 0; i < 256; i++)
        table[i] = ls_bf16_from_f32(factor * (float)ls_fp8_value(format_of(codes), (uint8_t)i));
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t i = 0; i < count; i++) out[i] = table[from[i]];
}

static size_t decoded_bytes(const ls_tensor *codes) {
    return ((size_t)ls_count(codes) * sizeof(ls_bf16) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static ls_gemm product_of(const ls_node *node) {
    const ls_tensor *a = node->in[0], *b = node->in[2];
    return (ls_gemm){.m = a->dim[0],
                     .n = b->dim[0],
                     .k = a->dim[1],
                     .a = {.type = LS_BF16, .stride = a->dim[1]},
                     .b = {.type = LS_BF16, .stride = b->dim[1], .transposed = true}};
}

static void multiply(const ls_run *run, const ls_node *node, ls_gemm *g) {
    char *space = run->workspace;
    ls_bf16 *a = (ls_bf16 *)space, *b = (ls_bf16 *)(space + decoded_bytes(node->in[0]));
    const float *of_a = ls_data(node->in[1]), *of_b = ls_data(node->in[3]);
    decode(run, node->in[0], *of_a * *of_b, a);
    decode(run, node->in[2], 1, b);
    g->a.data = a;
    g->b.data = b;
    ls_gemm_run(g, run->threads, space + decoded_bytes(node->in[0]) + decoded_bytes(node->in[2]));
}

/* y and dx */
static ls_gemm result_product(const ls_node *node) {
    ls_gemm g = product_of(node);
    int64_t rows, width;
    g.c_type = node->out[0]->type;
    ls_rows(node->out[0], &rows, &width, &g.c_stride);
    return g;
}
static void result(const ls_run *run, const ls_node *node) {
    ls_gemm g = result_product(node);
    g.c = ls_data(node->out[0]);
    g.bias = ls_data_or_null(node->in[4]);
    multiply(run, node, &g);
}

static ls_gemm weight_grad_product(const ls_node *node) {
    ls_gemm g = product_of(node);
    g.c_type = LS_F32;
    g.c_stride = g.n;
    g.add = true;
    return g;
}
static void weight_grad(const ls_run *run, const ls_node *node) {
    ls_gemm g = weight_grad_product(node);
    g.c = ls_param_gradient(run, node->in[4]);
    multiply(run, node, &g);
}

static size_t workspace(const ls_node *node, const ls_gemm *g, int threads) {
    return decoded_bytes(node->in[0]) + decoded_bytes(node->in[2]) + ls_gemm_workspace(g, threads);
}
static size_t result_workspace(const ls_node *node, int threads) {
    const ls_gemm g = result_product(node);
    return workspace(node, &g, threads);
}
static size_t weight_grad_workspace(const ls_node *node, int threads) {
    const ls_gemm g = weight_grad_product(node);
    return workspace(node, &g, threads);
}

const ls_kernel LS_CPU_TABLE(fp8)[] = {
    {"fp8_cast", {NULL, NULL, cast}, NULL},
    {"linear_fp8", {NULL, NULL, result}, result_workspace},
    {"linear_fp8_input_grad", {NULL, NULL, result}, result_workspace},
    {"linear_fp8_weight_grad", {NULL, NULL, weight_grad}, weight_grad_workspace},
    {0},
};
