#include "tensor/cpu/matrix_unit.h"

#if LS_ISA_avx512 && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool usable;
static pthread_once_t asked = PTHREAD_ONCE_INIT;

static void ask(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* arch_prctl: see Linux' xstate docs */
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !__builtin_cpu_supports("avx512bf16")) return;
    bool bf16_tiles = d >> 22 & 1, tiles = d >> 24 & 1;
    usable = bf16_tiles && tiles && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

bool ls_unit_usable(void) {
    pthread_once(&asked, ask);
    return usable;
}

LS_WITH_AMX void ls_unit_begin(void) {
    /* static: compilers believe that only its first bytes are read, and drop the others' stores */
    static const struct {
        uint8_t palette, start, unused[14];
        uint16_t line_bytes[16];
        uint8_t lines[16];
    } shape = {.palette = 1,
               .line_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
               .lines = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&shape);
}

LS_WITH_AMX void ls_unit_end(void) {
    _tile_release();
}

/* 32 or 16 rows x 32 lanes of c: tiles 0 to 3; a in 4 and 5, b in 6 and 7. */
LS_WITH_AMX static void product_32(int64_t depth, const ls_bf16 *a, int64_t a_stride,
                                   const float *b, int64_t b_stride, float *c, int64_t c_stride,
                                   bool add) {
    const int64_t c_bytes = c_stride * 4, a_bytes = a_stride * 2, b_bytes = b_stride * 4;
    float *lower = c + 16 * c_stride;
    if (add) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + 16, c_bytes);
        _tile_loadd(2, lower, c_bytes);
        _tile_loadd(3, lower + 16, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < depth; k += 32) {
        const float *pairs = b + k / 2 * b_stride;
        _tile_loadd(6, pairs, b_bytes);
        _tile_loadd(7, pairs + 16, b_bytes);
        _tile_loadd(4, a + k, a_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * a_stride + k, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
    _tile_stored(2, lower, c_bytes);
    _tile_stored(3, lower + 16, c_bytes);
}

LS_WITH_AMX static void product_16(int64_t depth, const ls_bf16 *a, int64_t a_stride,
                                   const float *b, int64_t b_stride, float *c, int64_t c_stride,
                                   bool add) {
    const int64_t c_bytes = c_stride * 4, a_bytes = a_stride * 2, b_bytes = b_stride * 4;
    if (add) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + 16, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
    }
    for (int64_t k = 0; k < depth; k += 32) {
        const float *pairs = b + k / 2 * b_stride;
        _tile_loadd(4, a + k, a_bytes);
        _tile_loadd(6, pairs, b_bytes);
        _tile_loadd(7, pairs + 16, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
}

void ls_unit_product(int64_t rows, int64_t lanes, int64_t depth, const ls_bf16 *a, int64_t a_stride,
                     const float *b, int64_t b_stride, float *c, int64_t c_stride, bool add) {
    for (int64_t lane = 0; lane < lanes; lane += 32) {
        int64_t i = 0;
        for (; i + 32 <= rows; i += 32)
            product_32(depth, a + i * a_stride, a_stride, b + lane, b_stride,
                       c + i * c_stride + lane, c_stride, add);
        if (i < rows)
            product_16(depth, a + i * a_stride, a_stride, b + lane, b_stride,
                       c + i * c_stride + lane, c_stride, add);
    }
}

#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(__linux__)

#include <arm_neon.h>
#include <sys/auxv.h>

bool ls_unit_usable(void) {
    return getauxval(AT_HWCAP2) & HWCAP2_BF16;
}

void ls_unit_begin(void) {}
void ls_unit_end(void) {}

enum { ROWS = 8, LANES = 8, STEP = 8 }; /* 16 vectors of sums, 8 of a, 2 of b */

/* sum += two elements of each row of a times a line of pairs; `pair` must be a constant. */
#define ADD_PAIR(pair)                                                                             \
    do {                                                                                           \
        const float *line = b + (k / 2 + (pair)) * b_stride;                                       \
        const bfloat16x8_t b0 = vreinterpretq_bf16_f32(vld1q_f32(line));                           \
        const bfloat16x8_t b1 = vreinterpretq_bf16_f32(vld1q_f32(line + 4));                       \
        UNROLL for (int i = 0; i < ROWS; i++) {                                                    \
            sum[i][0] = vbfdotq_laneq_f32(sum[i][0], b0, rows[i], pair);                           \
            sum[i][1] = vbfdotq_laneq_f32(sum[i][1], b1, rows[i], pair);                           \
        }                                                                                          \
    } while (0)
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

static void product_8(int64_t depth, const ls_bf16 *a, int64_t a_stride, const float *b,
                      int64_t b_stride, float *c, int64_t c_stride, bool add) {
    float32x4_t sum[ROWS][2];
    UNROLL for (int i = 0; i < ROWS; i++) {
        sum[i][0] = add ? vld1q_f32(c + i * c_stride) : vdupq_n_f32(0);
        sum[i][1] = add ? vld1q_f32(c + i * c_stride + 4) : vdupq_n_f32(0);
    }
    for (int64_t k = 0; k < depth; k += STEP) {
        bfloat16x8_t rows[ROWS];
        UNROLL for (int i = 0; i < ROWS; i++) rows[i] =
            vreinterpretq_bf16_u16(vld1q_u16(a + i * a_stride + k));
        ADD_PAIR(0);
        ADD_PAIR(1);
        ADD_PAIR(2);
        ADD_PAIR(3);
    }
    UNROLL for (int i = 0; i < ROWS; i++) {
        vst1q_f32(c + i * c_stride, sum[i][0]);
        vst1q_f32(c + i * c_stride + 4, sum[i][1]);
    }
}

void ls_unit_product(int64_t rows, int64_t lanes, int64_t depth, const ls_bf16 *a, int64_t a_stride,
                     const float *b, int64_t b_stride, float *c, int64_t c_stride, bool add) {
    for (int64_t lane = 0; lane < lanes; lane += LANES)
        for (int64_t i = 0; i < rows; i += ROWS)
            product_8(depth, a + i * a_stride, a_stride, b + lane, b_stride,
                      c + i * c_stride + lane, c_stride, add);
}

#else

bool ls_unit_usable(void) {
    return false;
}
void ls_unit_begin(void) {}
void ls_unit_end(void) {}
void ls_unit_product(int64_t rows, int64_t lanes, int64_t depth, const ls_bf16 *a, int64_t a_stride,
                     const float *b, int64_t b_stride, float *c, int64_t c_stride, bool add) {
    (void)rows, (void)lanes, (void)depth, (void)a, (void)a_stride, (void)b, (void)b_stride;
    (void)c, (void)c_stride, (void)add;
}

#endif
