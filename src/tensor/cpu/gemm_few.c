/* Products with few rows (decoding): bound by reading B, which is read once, where it lies.
 *
 * B transposed: dot products along k. B as it is: sums of B's rows. A is widened to f32 [m, k]
 * first. Threads take strips of columns; where a strip ends does not change a column's value. */
#include <omp.h>

#include "tensor/cpu/gemm_kernel.h"

enum {
    DOTS = 4,       /* columns of B at once in dot products, a quarter of a strip apart */
    STRIPS = 4,     /* of dot products for each thread, where columns are enough, */
    NARROWEST = 16, /* and their columns */
    WIDEST = 64,
    STRIP = 512,   /* columns of C summed at once: in the first cache with B's rows */
    K_AT_ONCE = 4, /* rows of B added in one pass over the strip */
    LINE = 64,     /* bytes of a cache's line */
    AHEAD = 512,   /* bytes */
};

typedef struct few {
    const ls_gemm *g;
    const float *a; /* [m, k] */
    float *sums;    /* [thread][m, STRIP] */
    int64_t strip, next_strip;
} few;

static size_t a_bytes(const ls_gemm *g) {
    return (size_t)ls_gemm_padded(g->m * g->k, 16) * sizeof(float);
}

size_t ls_gemm_few_workspace(const ls_gemm *g, int threads) {
    return a_bytes(g) + (size_t)threads * (size_t)g->m * STRIP * sizeof(float);
}

LS_INLINE void widen_a(const ls_gemm *g, ls_dtype type, float *to) {
    const char *a = g->a.data;
    const int64_t k = g->k, stride = g->a.stride;
    for (int64_t i = 0; i < g->m && g->a.transposed; i++)
        for (int64_t j = 0; j < k; j++) to[i * k + j] = ls_gemm_element(type, a, j * stride + i);
    for (int64_t i = 0; i < g->m && !g->a.transposed; i++)
        for (int64_t j = 0; j < k; j += LS_LANES)
            ls_store_left(to + i * k, LS_F32, j, k - j,
                          ls_load_left(a, type, i * stride + j, k - j));
}

/* The sums of a row of C, from `column` on. */
static void finish(const ls_gemm *g, int64_t row, int64_t column, int64_t columns, float *sums) {
    const int64_t at = row * g->c_stride + column;
    for (int64_t j = 0; g->bias != NULL && j < columns; j++)
        sums[j] += ((const float *)g->bias)[column + j];
    for (int64_t j = 0; g->add && j < columns; j++)
        sums[j] += ls_gemm_element(g->c_type, g->c, at + j);
    if (g->c_type == LS_F32) memcpy((float *)g->c + at, sums, (size_t)columns * sizeof *sums);
    for (int64_t j = 0; g->c_type == LS_BF16 && j < columns; j++)
        ((ls_bf16 *)g->c)[at + j] = ls_bf16_from_f32(sums[j]);
}

LS_INLINE ls_vec load(ls_dtype type, const char *from, int64_t i) {
    if (type == LS_BF16) return ls_widen((const ls_bf16 *)(const void *)from + i);
    return ls_load((const float *)(const void *)from + i, LS_F32, 0);
}

typedef float quad __attribute__((vector_size(DOTS * sizeof(float))));

/* The sums of DOTS vectors, each by the same tree as `ls_vec_sum`. */
LS_INLINE quad lane_sums(const ls_vec v[DOTS]) {
    quad sum[DOTS];
    for (int j = 0; j < DOTS; j++) {
        quad part[LS_LANES / DOTS];
        memcpy(part, &v[j], sizeof part);
        for (int step = LS_LANES / DOTS / 2; step > 0; step /= 2)
            for (int i = 0; i < step; i++) part[i] += part[i + step];
        sum[j] = part[0];
    }
    const quad first = __builtin_shufflevector(sum[0], sum[1], 0, 1, 4, 5) +
                       __builtin_shufflevector(sum[0], sum[1], 2, 3, 6, 7);
    const quad second = __builtin_shufflevector(sum[2], sum[3], 0, 1, 4, 5) +
                        __builtin_shufflevector(sum[2], sum[3], 2, 3, 6, 7);
    return __builtin_shufflevector(first, second, 0, 2, 4, 6) +
           __builtin_shufflevector(first, second, 1, 3, 5, 7);
}

/* `rows` rows of A times DOTS columns of B (rows of memory): those at `from` and `apart` further
 * on, again and again; of the strip's `columns` the last stands for any beyond. */
LS_INLINE void dots(const few *f, ls_dtype type, int rows, int64_t row, int64_t column,
                    int64_t columns, int64_t from, int64_t apart, float *sums) {
    const ls_gemm *g = f->g;
    const float *a = f->a + row * g->k;
    const char *b[DOTS];
    for (int j = 0; j < DOTS; j++)
        b[j] = (const char *)g->b.data +
               (size_t)((column + ls_gemm_least(from + j * apart, columns - 1)) * g->b.stride) *
                   ls_dtype_size(type);
    ls_vec sum[4][DOTS] = {{{0}}};
    int64_t k = 0;
    for (; k + LS_LANES <= g->k; k += LS_LANES) {
        if (row == 0 && k % (LINE / (int64_t)ls_dtype_size(type)) == 0) {
            LS_GEMM_UNROLL
            for (int j = 0; j < DOTS; j++)
                __builtin_prefetch(b[j] + (size_t)k * ls_dtype_size(type) + AHEAD);
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
        quad whole = lane_sums(sum[i]);
        for (int64_t rest = k; rest < g->k; rest++)
            for (int j = 0; j < DOTS; j++)
                whole[j] += a[i * g->k + rest] * ls_gemm_element(type, b[j], rest);
        for (int j = 0; j < DOTS; j++) sums[(row + i) * STRIP + from + j * apart] = whole[j];
    }
}

/* A strip is read as DOTS streams, each of columns that follow one another: what reads memory ahead
 * finds more to do than in one. */
LS_INLINE void dot_strip(const few *f, ls_dtype type, int64_t column, int64_t columns,
                         float *sums) {
    const int64_t m = f->g->m, apart = ls_gemm_pieces(columns, DOTS);
    for (int64_t j = 0; j < apart; j++) {
        int64_t i = 0;
        for (; i + 4 <= m; i += 4) dots(f, type, 4, i, column, columns, j, apart, sums);
        for (; i + 2 <= m; i += 2) dots(f, type, 2, i, column, columns, j, apart, sums);
        if (i < m) dots(f, type, 1, i, column, columns, j, apart, sums);
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
}

static int64_t strip_of(const ls_gemm *g, int threads) {
    if (!g->b.transposed) return STRIP;
    const int64_t even = ls_gemm_padded(ls_gemm_pieces(g->n, STRIPS * threads), DOTS);
    return even < NARROWEST ? NARROWEST : ls_gemm_least(even, WIDEST);
}

static void work(few *f, int thread) {
    const ls_gemm *g = f->g;
    const int64_t strip = f->strip, strips = ls_gemm_pieces(g->n, strip);
    float *sums = f->sums + thread * g->m * STRIP;
    for (;;) {
        int64_t i = __atomic_fetch_add(&f->next_strip, 1, __ATOMIC_RELAXED);
        if (i >= strips) return;
        int64_t columns = ls_gemm_least(strip, g->n - i * strip);
        if (g->b.transposed && g->b.type == LS_BF16)
            dot_strip(f, LS_BF16, i * strip, columns, sums);
        else if (g->b.transposed)
            dot_strip(f, LS_F32, i * strip, columns, sums);
        else if (g->b.type == LS_BF16)
            sum_strip(f, LS_BF16, i * strip, columns, sums);
        else
            sum_strip(f, LS_F32, i * strip, columns, sums);
        for (int64_t row = 0; row < g->m; row++)
            finish(g, row, i * strip, columns, sums + row * STRIP);
    }
}

void ls_gemm_few_run(const ls_gemm *g, int threads, void *workspace) {
    if (g->m <= 0) return;
    few f = {.g = g,
             .a = workspace,
             .sums = (float *)workspace + a_bytes(g) / sizeof(float),
             .strip = strip_of(g, threads)};
    if (g->a.type == LS_BF16)
        widen_a(g, LS_BF16, workspace);
    else
        widen_a(g, LS_F32, workspace);
    if (threads == 1) {
        work(&f, 0);
        return;
    }
#pragma omp parallel num_threads(threads)
    work(&f, omp_get_thread_num());
}
