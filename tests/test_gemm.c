/* Matrix products against a naive f64 product, for every instruction set and backend that runs
 * here. Tier: unsanitized. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define LS_ISA base
#include "tensor/cpu/gemm_kernel.h"

#define DECLARE_COPY(isa)                                                                          \
    void ls__gemm_run_##isa(const ls_gemm *g, int threads, void *workspace);                       \
    size_t ls__gemm_workspace_##isa(const ls_gemm *g, int threads);                                \
    const char *ls__gemm_backend_name_##isa(ls_dtype type);                                        \
    bool ls__gemm_supports_##isa(ls_gemm_backend backend, const ls_gemm *g);                       \
    void ls__gemm_run_with_##isa(ls_gemm_backend backend, const ls_gemm *g, int threads,           \
                                 void *workspace);                                                 \
    size_t ls__gemm_workspace_with_##isa(ls_gemm_backend backend, const ls_gemm *g, int threads);
#define COPY(isa)                                                                                  \
    {                                                                                              \
#isa, ls__gemm_run_##isa, ls__gemm_workspace_##isa, ls__gemm_backend_name_##isa,           \
            ls__gemm_supports_##isa, ls__gemm_run_with_##isa, ls__gemm_workspace_with_##isa        \
    }

typedef struct copy {
    const char *isa;
    void (*run)(const ls_gemm *g, int threads, void *workspace);
    size_t (*workspace)(const ls_gemm *g, int threads);
    const char *(*backend_name)(ls_dtype type);
    bool (*supports)(ls_gemm_backend backend, const ls_gemm *g);
    void (*run_with)(ls_gemm_backend backend, const ls_gemm *g, int threads, void *workspace);
    size_t (*workspace_with)(ls_gemm_backend backend, const ls_gemm *g, int threads);
} copy;

#if defined(__x86_64__)
DECLARE_COPY(avx2)
DECLARE_COPY(avx512)
#endif
static const copy copies[] = {
    COPY(base),
#if defined(__x86_64__)
    COPY(avx2),
    COPY(avx512),
#endif
};
enum { COPIES = sizeof copies / sizeof copies[0] };

static bool machine_runs(const copy *c) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(c->isa, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (strcmp(c->isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
#endif
    (void)c;
    return true;
}

static uint64_t random_state = 1;

static double uniform(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static double normal(void) {
    double u = uniform(), v = uniform();
    return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

typedef enum spread { NORMAL, WIDE, CANCELLING } spread;

/* A stored matrix whose unused columns are NaN. */
static ls_matrix make_matrix(ls_dtype type, int64_t rows, int64_t columns, int64_t extra,
                             bool transposed, spread how) {
    int64_t stored_rows = transposed ? columns : rows, width = transposed ? rows : columns;
    int64_t stride = width + extra;
    void *data = malloc((size_t)(stored_rows * stride + 1) * ls_dtype_size(type));
    assert_non_null(data);
    for (int64_t i = 0; i < stored_rows * stride; i++) {
        double value = normal();
        if (how == WIDE) value *= exp2(floor(uniform() * 60) - 30);
        if (how == CANCELLING) value += 1000;
        ls_element_set(data, type, i, i % stride < width ? value : NAN);
    }
    return (ls_matrix){data, type, stride, transposed};
}

static double at(const ls_matrix *x, int64_t row, int64_t column) {
    return ls_element(x->data, x->type,
                      x->transposed ? column * x->stride + row : row * x->stride + column);
}

typedef struct problem {
    ls_gemm g;
    void *c_before, *c; /* [m + 2, c_stride] with a guard row before and after */
    size_t c_bytes;
    double *want, *scale; /* the exact product, and the sum of the absolute values */
} problem;

typedef struct shape {
    int64_t m, n, k;
} shape;

static problem make_problem(shape s, ls_dtype a_type, ls_dtype b_type, ls_dtype c_type,
                            bool a_transposed, bool b_transposed, int64_t extra, bool add,
                            bool bias, spread how) {
    problem p = {0};
    ls_gemm *g = &p.g;
    *g = (ls_gemm){.m = s.m, .n = s.n, .k = s.k, .c_type = c_type, .add = add};
    g->a = make_matrix(a_type, s.m, s.k, extra, a_transposed, how);
    g->b = make_matrix(b_type, s.k, s.n, extra, b_transposed, how == CANCELLING ? NORMAL : how);
    g->c_stride = s.n + extra;
    size_t size = ls_dtype_size(c_type);
    p.c_bytes = (size_t)((s.m + 2) * g->c_stride) * size;
    p.c_before = malloc(p.c_bytes + 1);
    p.c = aligned_alloc(64, p.c_bytes / 64 * 64 + 64);
    g->c = (char *)p.c + (size_t)g->c_stride * size;
    for (int64_t i = 0; i < (s.m + 2) * g->c_stride; i++) {
        bool inside = i / g->c_stride >= 1 && i / g->c_stride <= s.m && i % g->c_stride < s.n;
        ls_element_set(p.c_before, c_type, i, inside ? (add ? normal() : NAN) : 1234.5);
    }
    ls_dtype bias_type = c_type == LS_F64 ? LS_F64 : LS_F32;
    void *bias_data = malloc((size_t)s.n * 8 + 8);
    for (int64_t j = 0; j < s.n; j++) ls_element_set(bias_data, bias_type, j, normal());
    p.want = calloc((size_t)(s.m * s.n) + 1, sizeof(double));
    p.scale = calloc((size_t)(s.m * s.n) + 1, sizeof(double));
    double *column = malloc((size_t)s.k * sizeof(double) + 8);
    for (int64_t j = 0; j < s.n; j++) {
        for (int64_t k = 0; k < s.k; k++) column[k] = at(&g->b, k, j);
        for (int64_t i = 0; i < s.m; i++) {
            double sum = 0, scale = 0;
            for (int64_t k = 0; k < s.k; k++) {
                double product = at(&g->a, i, k) * column[k];
                sum += product;
                scale += fabs(product);
            }
            double other = bias ? ls_element(bias_data, bias_type, j) : 0;
            double old = add ? ls_element(p.c_before, c_type, (i + 1) * g->c_stride + j) : 0;
            sum += other + old;
            scale += fabs(other) + fabs(old);
            p.want[i * s.n + j] = sum;
            p.scale[i * s.n + j] = scale + 1e-30;
        }
    }
    free(column);
    if (bias)
        g->bias = bias_data;
    else
        free(bias_data);
    return p;
}

static void drop_problem(problem *p) {
    free((void *)(uintptr_t)p->g.a.data);
    free((void *)(uintptr_t)p->g.b.data);
    free((void *)(uintptr_t)p->g.bias);
    free(p->c_before);
    free(p->c);
    free(p->want);
    free(p->scale);
}

/* Run with a poisoned workspace between guards. */
static void run_problem(const problem *p, const copy *c, int backend, int threads) {
    memcpy(p->c, p->c_before, p->c_bytes);
    size_t bytes = backend < 0 ? c->workspace(&p->g, threads)
                               : c->workspace_with((ls_gemm_backend)backend, &p->g, threads);
    size_t padded = (bytes + 63) / 64 * 64 + 64;
    unsigned char *workspace = aligned_alloc(64, padded);
    assert_non_null(workspace);
    memset(workspace, 0xff, padded);
    if (backend < 0)
        c->run(&p->g, threads, workspace);
    else
        c->run_with((ls_gemm_backend)backend, &p->g, threads, workspace);
    for (size_t i = bytes; i < padded; i++) assert_int_equal(workspace[i], 0xff);
    free(workspace);
}

/* The largest error, in units of the sum of absolute values. Fails on a write outside of C. */
static double error_of(const problem *p) {
    const ls_gemm *g = &p->g;
    size_t size = ls_dtype_size(g->c_type);
    double worst = 0;
    for (int64_t i = 0; i < g->m + 2; i++)
        for (int64_t j = 0; j < g->c_stride; j++) {
            size_t where = (size_t)(i * g->c_stride + j) * size;
            if (i >= 1 && i <= g->m && j < g->n) {
                int64_t k = (i - 1) * g->n + j;
                double got = ls_element(p->c, g->c_type, i * g->c_stride + j);
                double rounding = g->c_type == LS_BF16  ? fabs(p->want[k]) * 0x1p-8
                                  : g->c_type == LS_F32 ? fabs(p->want[k]) * 0x1p-23
                                                        : 0;
                double error = fmax(fabs(got - p->want[k]) - rounding, 0) / p->scale[k];
                if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
            } else {
                assert_memory_equal((char *)p->c + where, (char *)p->c_before + where, size);
            }
        }
    return worst;
}

/* The root mean square of the errors, in the same units. */
static double typical_error_of(const problem *p) {
    const ls_gemm *g = &p->g;
    double sum = 0;
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double got = ls_element(g->c, g->c_type, i * g->c_stride + j);
            double error = (got - p->want[i * g->n + j]) / p->scale[i * g->n + j];
            sum += error * error;
        }
    return sqrt(sum / (double)(g->m * g->n));
}

static double tolerance(const ls_gemm *g) {
    if (g->c_type == LS_F64) return 1e-15 * (double)(g->k + 2);
    return 6e-8 * (4 + sqrt((double)g->k)) + (g->k == 0 ? 1 : 0);
}

static void check(const problem *p, const copy *c, int backend) {
    run_problem(p, c, backend, 1);
    double error = error_of(p);
    const ls_gemm *g = &p->g;
    if (error > tolerance(g))
        fail_msg(
            "%s backend %d: error %g at m %d n %d k %d types %d %d %d transposed %d %d add %d bias %d",
            c->isa, backend, error, (int)g->m, (int)g->n, (int)g->k, (int)g->a.type, (int)g->b.type,
            (int)g->c_type, g->a.transposed, g->b.transposed, g->add, g->bias != NULL);
    void *first = malloc(p->c_bytes + 1);
    memcpy(first, p->c, p->c_bytes);
    run_problem(p, c, backend, 2 + (int)(g->n & 1));
    assert_memory_equal(first, p->c, p->c_bytes);
    free(first);
}

static void check_all(const problem *p) {
    for (int i = 0; i < COPIES; i++) {
        if (!machine_runs(&copies[i])) continue;
        check(p, &copies[i], -1);
        for (int backend = 0; backend < LS_GEMM_BACKENDS; backend++)
            if (copies[i].supports((ls_gemm_backend)backend, &p->g)) check(p, &copies[i], backend);
    }
}

static const ls_dtype types[][3] = {
    {LS_F32, LS_F32, LS_F32},  {LS_BF16, LS_BF16, LS_BF16}, {LS_BF16, LS_BF16, LS_F32},
    {LS_F32, LS_BF16, LS_F32}, {LS_F64, LS_F64, LS_F64},
};
enum { TYPES = sizeof types / sizeof types[0] };

static void test_shapes(void **state) {
    (void)state;
    static const shape shapes[] = {
        {1, 1, 1},    {1, 33, 7},    {3, 70, 129}, {7, 17, 64},   {5, 700, 40},   {8, 1, 100},
        {9, 5, 1},    {16, 16, 32},  {31, 33, 35}, {32, 32, 32},  {33, 65, 31},   {100, 1, 50},
        {40, 48, 64}, {129, 67, 96}, {64, 200, 0}, {70, 31, 600}, {15, 40, 1500},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int t = 0; t < TYPES; t++)
            for (int transposed = 0; transposed < 4; transposed++)
                for (int round = 0; round < 2; round++) {
                    int more = (transposed + t + (int)i + 2 * round + 3 * (transposed >> 1)) % 4;
                    problem p = make_problem(shapes[i], types[t][0], types[t][1], types[t][2],
                                             transposed & 1, transposed >> 1, more * 3, more & 1,
                                             more >> 1, NORMAL);
                    check_all(&p);
                    drop_problem(&p);
                }
}

static void test_long_and_wide(void **state) {
    (void)state;
    static const shape shapes[] = {
        {37, 53, 5000}, {2, 1600, 700}, {1100, 70, 70}, {20, 1700, 33}, {1030, 40, 2100}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int t = 0; t < TYPES - 1; t++) {
            problem p = make_problem(shapes[i], types[t][0], types[t][1], types[t][2], i & 1, t & 1,
                                     5, t & 1, i & 1, NORMAL);
            check_all(&p);
            drop_problem(&p);
        }
}

/* A C so large, and so aligned, that it is written past the caches. */
static void test_large(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++) {
        int64_t m = types[t][2] == LS_BF16 ? 2100 : 1050;
        problem p = make_problem((shape){m, 1024, 33}, types[t][0], types[t][1], types[t][2], false,
                                 true, 64, false, true, NORMAL);
        for (int i = 0; i < COPIES; i++)
            if (machine_runs(&copies[i])) check(&p, &copies[i], -1);
        drop_problem(&p);
    }
}

/* A row's bits must not depend on how many rows come with it. */
static void test_rows_alone(void **state) {
    (void)state;
    for (int t = 0; t < TYPES; t++) {
        problem p = make_problem((shape){300, 90, 2100}, types[t][0], types[t][1], types[t][2],
                                 false, true, 1, false, true, NORMAL);
        size_t row_bytes = (size_t)p.g.c_stride * ls_dtype_size(p.g.c_type);
        char *all = malloc(p.c_bytes);
        for (int i = 0; i < COPIES; i++) {
            if (!machine_runs(&copies[i])) continue;
            for (int backend = -1; backend < LS_GEMM_BACKENDS; backend++) {
                if (backend >= 0 && !copies[i].supports((ls_gemm_backend)backend, &p.g)) continue;
                run_problem(&p, &copies[i], backend, 2);
                memcpy(all, p.c, p.c_bytes);
                static const int64_t counts[] = {LS_GEMM_FEW, 9, 31, 64, 129, 299};
                for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
                    p.g.m = counts[j];
                    run_problem(&p, &copies[i], backend, 1 + (int)j % 3);
                    assert_memory_equal((char *)p.c + row_bytes, all + row_bytes,
                                        row_bytes * (size_t)counts[j]);
                    p.g.m = 300;
                }
            }
        }
        free(all);
        drop_problem(&p);
    }
}

static int64_t up_to(int64_t most) {
    return 1 + (int64_t)(uniform() * (double)most);
}

/* Whoever cuts a long product in pieces asks once, for the first: the last may be of any size. */
static void test_smaller_need_no_more(void **state) {
    (void)state;
    for (int round = 0; round < 20000; round++) {
        const ls_dtype *type = types[round % TYPES];
        const shape whole = {up_to(2500), up_to(4000), up_to(6000)};
        const int64_t m = round % 2 ? whole.m : up_to(whole.m);
        ls_gemm large = {.m = whole.m, .n = whole.n, .k = whole.k, .c_type = type[2]};
        large.a.type = type[0], large.b.type = type[1];
        ls_gemm small = large;
        small.m = round % 3 ? m : 1 + m % 20;
        small.n = round % 5 ? whole.n : up_to(whole.n);
        small.k = round % 7 ? whole.k : up_to(whole.k);
        if (small.m > large.m) continue;
        for (int i = 0; i < COPIES; i++) {
            if (!machine_runs(&copies[i])) continue;
            const int threads = 1 + round % 3;
            assert_true(copies[i].workspace(&small, threads) <=
                        copies[i].workspace(&large, threads));
        }
    }
}

/* f32 products must be as good as plain f32 multiply-adds, whatever the numbers look like. */
static void test_f32_accuracy(void **state) {
    (void)state;
    for (int how = NORMAL; how <= CANCELLING; how++) {
        problem p = make_problem((shape){64, 96, 1536}, LS_F32, LS_F32, LS_F32, false, true, 0,
                                 false, false, (spread)how);
        for (int i = 0; i < COPIES; i++) {
            if (!machine_runs(&copies[i])) continue;
            run_problem(&p, &copies[i], LS_GEMM_VECTOR, 2);
            double plain = typical_error_of(&p);
            run_problem(&p, &copies[i], -1, 2);
            double error = typical_error_of(&p);
            if (!(error <= 1.5 * plain))
                fail_msg("%s: %s has error %g, plain f32 %g", copies[i].isa,
                         copies[i].backend_name(LS_F32), error, plain);
        }
        drop_problem(&p);
    }
}

static void test_not_finite(void **state) {
    (void)state;
    static const float odd[] = {INFINITY, -INFINITY, NAN, FLT_MAX, FLT_MIN / 4};
    for (size_t o = 0; o < sizeof odd / sizeof odd[0]; o++)
        for (int side = 0; side < 2; side++) {
            problem p = make_problem((shape){40, 40, 70}, LS_F32, LS_F32, LS_F32, false, false, 0,
                                     false, false, NORMAL);
            float *matrix = (float *)(uintptr_t)(side ? p.g.b.data : p.g.a.data);
            matrix[2 * (side ? 40 : 70) + 1] = odd[o];
            if (odd[o] == FLT_MAX) /* times something small it is finite */
                for (int j = 0; j < 70 * 40; j++)
                    ((float *)(uintptr_t)(side ? p.g.a.data : p.g.b.data))[j] = 0x1p-20f;
            for (int i = 0; i < COPIES; i++) {
                if (!machine_runs(&copies[i])) continue;
                run_problem(&p, &copies[i], -1, 2);
                const float *c = p.g.c;
                for (int64_t r = 0; r < 40; r++)
                    for (int64_t j = 0; j < 40; j++) {
                        bool touched = side ? j == 1 : r == 2;
                        bool want_finite = !touched || o >= 3;
                        assert_int_equal(isfinite(c[r * p.g.c_stride + j]) != 0, want_finite);
                    }
            }
            drop_problem(&p);
        }
}

/* A processor takes the copy for its vectors, also without bf16 instructions and AMX. */
static void test_copies(void **state) {
    (void)state;
    for (int i = 0; i < COPIES; i++)
        assert_int_equal(ls_kernel_isa(copies[i].isa) != NULL, machine_runs(&copies[i]));
}

static void test_names(void **state) {
    (void)state;
    for (int i = 0; i < COPIES; i++)
        for (int type = LS_F64; type <= LS_BF16; type++)
            if (machine_runs(&copies[i])) {
                assert_non_null(copies[i].backend_name((ls_dtype)type));
                print_message("%s %s: %s\n", copies[i].isa,
                              type == LS_F64   ? "f64"
                              : type == LS_F32 ? "f32"
                                               : "bf16",
                              copies[i].backend_name((ls_dtype)type));
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_long_and_wide),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_rows_alone),
        cmocka_unit_test(test_smaller_need_no_more),
        cmocka_unit_test(test_f32_accuracy),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
