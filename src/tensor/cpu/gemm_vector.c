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

enum { TURN = 4, PIECE = 32 };

/* to[j * width + i] = from[i][j] of `rows` rows of TURN floats, TOGETHER at most. */
#if defined(LS_ISA_avx512)
enum { TOGETHER = 16 };

/* Floats of rows `first`, first + 4, first + 8 and first + 12. */
LS_INLINE __m512 quads(const char *from, int64_t stride, int first, int rows) {
    __m128 quad[TURN];
    for (int i = 0; i < TURN; i++) {
        const int row = first + i * TURN;
        quad[i] =
            _mm_loadu_ps((const float *)(const void *)(from + (row < rows ? row : 0) * stride));
    }
    const __m256 low = _mm256_set_m128(quad[1], quad[0]), high = _mm256_set_m128(quad[3], quad[2]);
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

LS_INLINE void turn(const char *from, int64_t stride, int rows, float *to, int width) {
    const __m512 a0 = quads(from, stride, 0, rows), a1 = quads(from, stride, 1, rows);
    const __m512 a2 = quads(from, stride, 2, rows), a3 = quads(from, stride, 3, rows);
    const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(a0, a1));
    const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(a0, a1));
    const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(a2, a3));
    const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(a2, a3));
    /* what lies beyond `rows` is the beginning of the next j, which is stored later */
    _mm512_storeu_pd(to, _mm512_unpacklo_pd(low01, low23));
    _mm512_storeu_pd(to + width, _mm512_unpackhi_pd(low01, low23));
    _mm512_storeu_pd(to + 2 * width, _mm512_unpacklo_pd(high01, high23));
    _mm512_storeu_pd(to + 3 * width, _mm512_unpackhi_pd(high01, high23));
}
#else
enum { TOGETHER = 4 };
typedef float quad __attribute__((vector_size(16)));

LS_INLINE void turn(const char *from, int64_t stride, int rows, float *to, int width) {
    quad a[TURN];
    for (int i = 0; i < TURN; i++) memcpy(&a[i], from + (i < rows ? i : 0) * stride, sizeof a[i]);
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
#endif

/* A whole panel of f32 that lies along k, in blocks; returns up to which k. The last k is left, so
 * that nothing is stored beyond the panel. */
LS_INLINE int64_t turn_panel(const char *from, int64_t stride, int64_t k_count,
                             float *restrict panel, int width) {
    int64_t j = 0;
    for (; j + TURN < k_count; j += TURN) {
        LS_GEMM_UNROLL
        for (int i = 0; i < width; i += TOGETHER)
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

LS_INLINE void put_sums(ls_vec sum[ROWS][VECTORS], const ls_gemm_target *t) {
    LS_GEMM_UNROLL
    for (int i = 0; i < ROWS; i++) {
        LS_GEMM_UNROLL
        for (int v = 0; v < VECTORS; v++) {
            float *to = t->to + i * t->stride + v * LS_LANES;
            ls_vec value = sum[i][v];
            if (t->bias) value += ls_load(t->bias, LS_F32, v * LS_LANES);
            if (t->add) value += ls_load(to, LS_F32, 0);
#if defined(LS_ISA_avx512)
            if (t->stream) {
                _mm512_stream_ps(to, (__m512)value);
                continue;
            }
#endif
            ls_store(to, LS_F32, 0, value);
        }
    }
}

static void multiply(int64_t k, const void *panel_a, const void *panel_b,
                     const ls_gemm_target *target) {
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
    put_sums(sum, target);
}

const ls_gemm_kernel ls_gemm_vector = {
    .name = "vector",
    .rows = ROWS,
    .columns = COLUMNS,
    .k_step = 1,
    .k_block = 768,
    .column_block = COLUMN_BLOCK,
    .element_bytes = sizeof(float),
    .finishes = true,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
};
