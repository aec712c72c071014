/* Products with few rows (decoding): bound by reading B, which is read once, where it lies.
 *
 * B transposed: dot products along k. B as it is: sums of B's rows, a strip of columns at a time. A
 * is widened to f32 [m, k] first. Threads take strips of columns; where a strip ends does not
 * change a column's value. */
#include <omp.h>

#include "tensor/cpu/gemm_kernel.h"

enum {
    DOTS = 4,      /* columns of B at once in dot products */
    STRIP = 512,   /* columns of C summed at once: in the first cache with B's rows */
    K_AT_ONCE = 4, /* rows of B added in one pass over the strip */
    DOT_STRIP = 64,
    LINE = 64, /* bytes of a cache's line */
};

typedef struct few {
    const ls_gemm *g;
    const float *a; /* [m, k] */
    float *sums;    /* [thread][m, STRIP], where B is as it is */
    int64_t next_strip;
} few;

static size_t a_bytes(const ls_gemm *g) {
    return (size_t)ls_gemm_padded(g->m * g->k, 16) * sizeof(float);
}

size_t ls_gemm_few_workspace(const ls_gemm *g, int threads) {
    if (g->b.transposed) return a_bytes(g);
    return a_bytes(g) + (size_t)threads * (size_t)g->m * STRIP * sizeof(float);
}

static void widen_a(const ls_gemm *g, float *to) {
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->k; j++)
            to[i * g->k + j] = ls_gemm_element(
                g->a.type, g->a.data, g->a.transposed ? j * g->a.stride + i : i * g->a.stride + j);
}

static void finish(const ls_gemm *g, int64_t row, int64_t column, float value) {
    int64_t at = row * g->c_stride + column;
    if (g->bias) value += ((const float *)g->bias)[column];
    if (g->add) value += ls_gemm_element(g->c_type, g->c, at);
    if (g->c_type == LS_BF16)
        ((ls_bf16 *)g->c)[at] = ls_bf16_from_f32(value);
    else
        ((float *)g->c)[at] = value;
}

LS_INLINE ls_vec load(ls_dtype type, const char *from, int64_t i) {
    if (type == LS_BF16) return ls_widen((const ls_bf16 *)(const void *)from + i);
    return ls_load((const float *)(const void *)from + i, LS_F32, 0);
}

typedef float quad __attribute__((vector_size(DOTS * sizeof(float))));

/* The lanes of each of DOTS vectors added up from the first to the last, all DOTS at once. */
LS_INLINE quad lane_sums(const ls_vec v[DOTS]) {
    quad part[DOTS], total = {0};
    for (int lane = 0; lane < LS_LANES; lane += DOTS) {
        for (int j = 0; j < DOTS; j++)
            memcpy(&part[j], (const char *)&v[j] + (size_t)lane * sizeof(float), sizeof part[j]);
        const quad low01 = __builtin_shufflevector(part[0], part[1], 0, 4, 1, 5);
        const quad high01 = __builtin_shufflevector(part[0], part[1], 2, 6, 3, 7);
        const quad low23 = __builtin_shufflevector(part[2], part[3], 0, 4, 1, 5);
        const quad high23 = __builtin_shufflevector(part[2], part[3], 2, 6, 3, 7);
        total += __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
        total += __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
        total += __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
        total += __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
    }
    return total;
}

/* DOTS columns of a row of C at once; as `finish`. */
LS_INLINE void finish_quad(const ls_gemm *g, int64_t row, int64_t column, quad value) {
    float *at = (float *)g->c + row * g->c_stride + column;
    quad more;
    if (g->bias) {
        memcpy(&more, (const float *)g->bias + column, sizeof more);
        value += more;
    }
    if (g->add) {
        memcpy(&more, at, sizeof more);
        value += more;
    }
    memcpy(at, &value, sizeof value);
}

/* `rows` rows of A times DOTS columns of B (rows of memory). */
LS_INLINE void dots(const few *f, ls_dtype type, int rows, int64_t row, int64_t column,
                    int columns) {
    const ls_gemm *g = f->g;
    const float *a = f->a + row * g->k;
    const char *b[DOTS];
    for (int j = 0; j < DOTS; j++) /* beyond the last column: read it again, write nothing */
        b[j] = (const char *)g->b.data +
               (size_t)((column + (j < columns ? j : 0)) * g->b.stride) * ls_dtype_size(type);
    ls_vec sum[4][DOTS] = {{{0}}};
    int64_t k = 0;
    const size_t next = (size_t)(DOTS * g->b.stride) * ls_dtype_size(type);
    for (; k + LS_LANES <= g->k; k += LS_LANES) {
        /* four rows compute for so long that the next columns come meanwhile */
        if (rows == 4 && row == 0 && k % (LINE / (int)sizeof(float)) == 0) {
            LS_GEMM_UNROLL
            for (int j = 0; j < DOTS; j++)
                __builtin_prefetch(b[j] + (size_t)k * ls_dtype_size(type) + next);
        }
        LS_GEMM_UNROLL
        for (int j = 0; j < DOTS; j++) {
            ls_vec column_j = load(type, b[j], k);
            LS_GEMM_UNROLL
            for (int i = 0; i < rows; i++)
                sum[i][j] += ls_load(a + i * g->k + k, LS_F32, 0) * column_j;
        }
    }
    LS_GEMM_UNROLL
    for (int i = 0; i < rows; i++) {
        const quad sums = lane_sums(sum[i]);
        if (k == g->k && columns == DOTS && g->c_type == LS_F32) {
            finish_quad(g, row + i, column, sums);
            continue;
        }
        for (int j = 0; j < columns; j++) {
            float value = sums[j];
            for (int64_t rest = k; rest < g->k; rest++)
                value += a[i * g->k + rest] * ls_gemm_element(type, b[j], rest);
            finish(g, row + i, column + j, value);
        }
    }
}

LS_INLINE void dot_strip(const few *f, ls_dtype type, int64_t column, int64_t columns) {
    for (int64_t j = 0; j < columns; j += DOTS) {
        int count = (int)ls_gemm_least(DOTS, columns - j);
        int64_t i = 0;
        for (; i + 4 <= f->g->m; i += 4) dots(f, type, 4, i, column + j, count);
        for (; i + 2 <= f->g->m; i += 2) dots(f, type, 2, i, column + j, count);
        if (i < f->g->m) dots(f, type, 1, i, column + j, count);
    }
}

/* sums[columns] += the rows k .. k + count of B, each times its element of A's row. */
LS_INLINE void add_rows(const few *f, ls_dtype type, int64_t row, int64_t k, int count,
                        int64_t column, int64_t columns, float *restrict sums) {
    const ls_gemm *g = f->g;
    float factor[K_AT_ONCE] = {0};
    const char *b[K_AT_ONCE];
    for (int i = 0; i < K_AT_ONCE; i++) {
        int64_t at = k + (i < count ? i : 0);
        factor[i] = f->a[row * g->k + at];
        b[i] = (const char *)g->b.data + (size_t)(at * g->b.stride + column) * ls_dtype_size(type);
    }
    int64_t j = 0;
    for (; j + LS_LANES <= columns; j += LS_LANES) {
        ls_vec sum = ls_load(sums + j, LS_F32, 0);
        for (int i = 0; i < count; i++) sum += factor[i] * load(type, b[i], j);
        ls_store(sums + j, LS_F32, 0, sum);
    }
    for (; j < columns; j++)
        for (int i = 0; i < count; i++) sums[j] += factor[i] * ls_gemm_element(type, b[i], j);
}

LS_INLINE void sum_strip(const few *f, ls_dtype type, int64_t column, int64_t columns,
                         float *sums) {
    const ls_gemm *g = f->g;
    memset(sums, 0, (size_t)(g->m * STRIP) * sizeof(float));
    int64_t k = 0;
    for (; k + K_AT_ONCE <= g->k; k += K_AT_ONCE)
        for (int64_t i = 0; i < g->m; i++)
            add_rows(f, type, i, k, K_AT_ONCE, column, columns, sums + i * STRIP);
    for (; k < g->k; k++)
        for (int64_t i = 0; i < g->m; i++)
            add_rows(f, type, i, k, 1, column, columns, sums + i * STRIP);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < columns; j++) finish(g, i, column + j, sums[i * STRIP + j]);
}

static void work(few *f, int thread) {
    const ls_gemm *g = f->g;
    int64_t strip = g->b.transposed ? DOT_STRIP : STRIP;
    int64_t strips = ls_gemm_pieces(g->n, strip);
    float *sums = f->sums + thread * g->m * STRIP;
    for (;;) {
        int64_t i = __atomic_fetch_add(&f->next_strip, 1, __ATOMIC_RELAXED);
        if (i >= strips) return;
        int64_t columns = ls_gemm_least(strip, g->n - i * strip);
        if (g->b.transposed && g->b.type == LS_BF16)
            dot_strip(f, LS_BF16, i * strip, columns);
        else if (g->b.transposed)
            dot_strip(f, LS_F32, i * strip, columns);
        else if (g->b.type == LS_BF16)
            sum_strip(f, LS_BF16, i * strip, columns, sums);
        else
            sum_strip(f, LS_F32, i * strip, columns, sums);
    }
}

void ls_gemm_few_run(const ls_gemm *g, int threads, void *workspace) {
    if (g->m <= 0) return;
    few f = {.g = g, .a = workspace, .sums = (float *)workspace + a_bytes(g) / sizeof(float)};
    widen_a(g, workspace);
    if (threads == 1) {
        work(&f, 0);
        return;
    }
#pragma omp parallel num_threads(threads)
    work(&f, omp_get_thread_num());
}
