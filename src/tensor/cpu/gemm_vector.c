/* The portable kernel: f32 multiply-adds on the compiler's vector types. bf16 is widened while it
 * is packed. A's panel is [k][ROWS], B's is [k][COLUMNS]. */
#include "tensor/cpu/gemm_kernel.h"

#if defined(__AVX512F__)
enum { ROWS = 14, VECTORS = 2 }; /* 28 sums, 2 of B and a broadcast in 32 registers */
/* The second cache, where panels lie, follows by itself too late for this many sums at once, and no
 * hardware follows steps from row to row. It is small: a block of B is narrow. */
enum { AHEAD = 16, COLUMN_BLOCK = 768 };
#elif defined(__AVX2__)
enum { ROWS = 6, VECTORS = 2 }; /* 12 sums, 2 of B and a broadcast in 16 registers */
#elif defined(__ARM_NEON)
enum {
    ROWS = 8,
    VECTORS = 2
}; /* 16 sums, 2 of B and 2 of A: more sums spill with some compilers */
#else
enum { ROWS = 4, VECTORS = 2 };
#endif
#if !defined(__AVX512F__)
enum { AHEAD = 0, COLUMN_BLOCK = 1536 };
#endif
enum { COLUMNS = VECTORS * LS_LANES };

typedef float quad __attribute__((vector_size(16)));
enum { TURN = 4, PIECE = 32 };

/* to[j][i] = from[i][j] of `rows` x TURN floats, at most TURN rows. */
LS_INLINE void turn(const char *from, int64_t stride, int rows, float *to, int width) {
    quad a[TURN];
    for (int i = 0; i < TURN; i++)
        memcpy(&a[i], from + (i < rows ? i : rows - 1) * stride, sizeof a[i]);
    const quad low01 = __builtin_shufflevector(a[0], a[1], 0, 4, 1, 5);
    const quad high01 = __builtin_shufflevector(a[0], a[1], 2, 6, 3, 7);
    const quad low23 = __builtin_shufflevector(a[2], a[3], 0, 4, 1, 5);
    const quad high23 = __builtin_shufflevector(a[2], a[3], 2, 6, 3, 7);
    a[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    a[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    a[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    a[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
    for (int i = 0; i < TURN; i++)
        memcpy(to + i * width, &a[i], (size_t)(rows < TURN ? rows : TURN) * sizeof(float));
}

/* A whole panel of f32 that lies along k, in blocks; returns up to which k. */
LS_INLINE int64_t turn_panel(const char *from, int64_t stride, int64_t k_count,
                             float *restrict panel, int width) {
    int64_t j = 0;
    for (; j + TURN <= k_count; j += TURN) {
        LS_GEMM_UNROLL
        for (int i = 0; i < width; i += TURN)
            turn(from + i * stride + j * (int64_t)sizeof(float), stride, width - i,
                 panel + j * width + i, width);
    }
    return j;
}

LS_INLINE void pack_panel(const ls_gemm_operand *x, int64_t first, int64_t k, int64_t k_count,
                          float *restrict panel, int width, ls_dtype type) {
    int64_t count = ls_gemm_least(width, x->count - first);
    size_t size = ls_dtype_size(type);
    if (count < width) memset(panel, 0, (size_t)(k_count * width) * sizeof(float));
    if (x->along_k) {
        const char *rows = x->data + first * x->stride + k * (int64_t)size;
        const int64_t turned = type == LS_F32 && count == width
                                   ? turn_panel(rows, x->stride, k_count, panel, width)
                                   : 0;
        for (int64_t i = 0; i < count; i++) {
            const char *from = rows + i * x->stride;
            for (int64_t j = turned; j < k_count; j++)
                panel[j * width + i] = ls_gemm_element(type, from, j);
        }
        return;
    }
    for (int64_t j = 0; j < k_count; j++) {
        const char *from = x->data + (k + j) * x->stride + first * (int64_t)size;
        float *to = panel + j * width;
        if (AHEAD > 0) {
            __builtin_prefetch(from + PIECE * x->stride);
            __builtin_prefetch(from + PIECE * x->stride + (width - 1) * (int64_t)size);
        }
        if (count == width)
            for (int i = 0; i < width; i++) to[i] = ls_gemm_element(type, from, i);
        else
            for (int64_t i = 0; i < count; i++) to[i] = ls_gemm_element(type, from, i);
    }
}

/* [panel][k]. Where the operand lies across k, few rows of all panels are done before the next:
 * to come back to a page later costs more than the packing. */
LS_INLINE void pack(const ls_gemm_operand *x, int64_t first, int64_t panels, int64_t k,
                    int64_t k_count, float *packed, int width, ls_dtype type) {
    int64_t piece = x->along_k ? k_count : PIECE;
    for (int64_t done = 0; done < k_count; done += piece)
        for (int64_t i = 0; i < panels; i++)
            pack_panel(x, first + i * width, k + done, ls_gemm_least(piece, k_count - done),
                       packed + (i * k_count + done) * width, width, type);
}

static void pack_a(const ls_gemm_operand *a, int64_t first, int64_t panels, int64_t k,
                   int64_t k_count, void *packed) {
    if (a->type == LS_BF16)
        pack(a, first, panels, k, k_count, packed, ROWS, LS_BF16);
    else
        pack(a, first, panels, k, k_count, packed, ROWS, LS_F32);
}

static void pack_b(const ls_gemm_operand *b, int64_t first, int64_t panels, int64_t k,
                   int64_t k_count, void *packed) {
    if (b->type == LS_BF16)
        pack(b, first, panels, k, k_count, packed, COLUMNS, LS_BF16);
    else
        pack(b, first, panels, k, k_count, packed, COLUMNS, LS_F32);
}

/* sum += a column of A times a row of B. */
static inline void add_products(ls_vec sum[ROWS][VECTORS], const float *a,
                                const ls_vec row[VECTORS]) {
#if defined(__ARM_NEON) /* multiplies by one lane of a vector */
    LS_GEMM_UNROLL
    for (int i = 0; i < ROWS; i += 4) {
        const float32x4_t four = vld1q_f32(a + i);
        LS_GEMM_UNROLL
        for (int v = 0; v < VECTORS; v++) {
            sum[i][v] = vfmaq_laneq_f32(sum[i][v], row[v], four, 0);
            sum[i + 1][v] = vfmaq_laneq_f32(sum[i + 1][v], row[v], four, 1);
            sum[i + 2][v] = vfmaq_laneq_f32(sum[i + 2][v], row[v], four, 2);
            sum[i + 3][v] = vfmaq_laneq_f32(sum[i + 3][v], row[v], four, 3);
        }
    }
#else
    LS_GEMM_UNROLL
    for (int i = 0; i < ROWS; i++) {
        LS_GEMM_UNROLL
        for (int v = 0; v < VECTORS; v++) sum[i][v] += a[i] * row[v];
    }
#endif
}

static void multiply(int64_t k, const void *panel_a, const void *panel_b, float *tile) {
    const float *a = panel_a, *b = panel_b;
    ls_vec sum[ROWS][VECTORS] = {{{0}}};
    for (int64_t j = 0; j < k; j++) {
        ls_vec row[VECTORS];
        if (AHEAD > 0) {
            __builtin_prefetch(a + (j + AHEAD) * ROWS);
            LS_GEMM_UNROLL
            for (int v = 0; v < VECTORS; v++)
                __builtin_prefetch(b + (j + AHEAD) * COLUMNS + v * LS_LANES);
        }
        LS_GEMM_UNROLL
        for (int v = 0; v < VECTORS; v++)
            row[v] = ls_load(b + j * COLUMNS + v * LS_LANES, LS_F32, 0);
        add_products(sum, a + j * ROWS, row);
    }
    LS_GEMM_UNROLL
    for (int i = 0; i < ROWS; i++) {
        LS_GEMM_UNROLL
        for (int v = 0; v < VECTORS; v++)
            ls_store(tile + i * COLUMNS + v * LS_LANES, LS_F32, 0, sum[i][v]);
    }
}

const ls_gemm_kernel ls_gemm_vector = {
    .name = "vector",
    .rows = ROWS,
    .columns = COLUMNS,
    .k_step = 1,
    .k_block = 768,
    .column_block = COLUMN_BLOCK,
    .element_bytes = sizeof(float),
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
};
