/* fp8: codes against their definition and torch's casts; operands and products against sums in f64;
 * a layer's gradients against those of the numbers it rounds to. Tier: unsanitized. */
#include "harness.h"

#include "base/file.h"
#include "base/fp8.h"
#include "base/json.h"
#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

static const char *const format_names[] = {"e4m3", "e5m2"};

/* ---- codes ---- */

static bool same(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

/* Every code is its value's; between two neighbours the nearer one is taken, in the middle the even
 * one. */
static void test_all_codes(void **state) {
    (void)state;
    for (int f = LS_FP8_E4M3; f <= LS_FP8_E5M2; f++) {
        const ls_fp8 format = (ls_fp8)f;
        const uint8_t most = format == LS_FP8_E4M3 ? 0x7e : 0x7b;
        assert_true(ls_fp8_value(format, most) == (format == LS_FP8_E4M3 ? 448 : 57344));
        for (int code = 0; code < 256; code++) {
            const double value = ls_fp8_value(format, (uint8_t)code);
            const uint8_t size = (uint8_t)(code & 0x7f), sign = (uint8_t)(code & 0x80);
            const uint8_t wanted = size <= most   ? (uint8_t)code
                                   : isnan(value) ? (uint8_t)(sign | LS_FP8_NAN)
                                                  : (uint8_t)(sign | most);
            if (!isnan(value)) assert_int_equal(ls_fp8_code(format, value), wanted);
            if (size >= most) continue;
            const double next = ls_fp8_value(format, (uint8_t)(code + 1));
            const double middle = (value + next) / 2;
            assert_true(fabs(next) > fabs(value));
            assert_int_equal(ls_fp8_code(format, middle), code + (code & 1));
            assert_int_equal(ls_fp8_code(format, nextafter(middle, next)), code + 1);
            assert_int_equal(ls_fp8_code(format, nextafter(middle, value)), code);
        }
        assert_int_equal(ls_fp8_code(format, 1e300), most);
        assert_int_equal(ls_fp8_code(format, -INFINITY), 0x80 | most);
        assert_true(isnan(ls_fp8_value(format, ls_fp8_code(format, NAN))));
    }
}

typedef struct golden {
    ls_whole whole;
    json_t *header;
    size_t begin; /* of the data */
} golden;

static void golden_open(ls_ctx *ctx, golden *g) {
    uint64_t length;
    expect(ctx,
           ls_whole_read(ctx, LS_TEST_SOURCE "/tests/golden/fp8.safetensors", false, &g->whole));
    memcpy(&length, g->whole.bytes, 8);
    g->begin = 8 + (size_t)length;
    assert_true(g->begin < g->whole.length);
    expect(ctx,
           ls_json_parse(ctx, (const char *)g->whole.bytes + 8, (size_t)length, "fp8", &g->header));
}

/* The bytes of KIND.FORMAT, of which there are `*count`, a multiple of `size`. */
static const uint8_t *golden_bytes(const golden *g, const char *kind, ls_fp8 format, size_t size,
                                   size_t *count) {
    char name[32];
    snprintf(name, sizeof name, "%s.%s", kind, format_names[format]);
    const json_t *offsets = json_object_get(json_object_get(g->header, name), "data_offsets");
    const size_t first = (size_t)json_integer_value(json_array_get(offsets, 0));
    const size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    assert_true(offsets != NULL && end > first && g->begin + end <= g->whole.length);
    *count = (end - first) / size;
    return g->whole.bytes + g->begin + first;
}

static double golden_number(const uint8_t *bytes, size_t i) {
    double value;
    memcpy(&value, bytes + i * sizeof value, sizeof value);
    return value;
}

static void hold(ls_fp8 format, float number, uint8_t theirs) {
    const uint8_t fast = ls_fp8_from_f32(format, number), exact = ls_fp8_code(format, number);
    assert_int_equal(fast, exact);
    if (!same(ls_fp8_value(format, exact), ls_fp8_value(format, theirs)))
        fail_msg("%s of %a is %02x and not %02x", format_names[format], (double)number, exact,
                 theirs);
}

static void test_golden_codes(void **state) {
    (void)state;
    golden g;
    ls_ctx ctx = ls_ctx_default();
    golden_open(&ctx, &g);
    for (int f = LS_FP8_E4M3; f <= LS_FP8_E5M2; f++) {
        const ls_fp8 format = (ls_fp8)f;
        size_t count, codes_count;
        const uint8_t *numbers = golden_bytes(&g, "value", format, 8, &count);
        assert_int_equal(count, 256);
        for (size_t i = 0; i < count; i++)
            assert_true(same(ls_fp8_value(format, (uint8_t)i), golden_number(numbers, i)));
        const uint8_t *codes = golden_bytes(&g, "bf16", format, 1, &count);
        assert_int_equal(count, 65536);
        for (size_t i = 0; i < count; i++) hold(format, ls_bf16_to_f32((ls_bf16)i), codes[i]);
        numbers = golden_bytes(&g, "number", format, 8, &count);
        codes = golden_bytes(&g, "code", format, 1, &codes_count);
        assert_true(count > 700 && count == codes_count);
        for (size_t i = 0; i < count; i++) hold(format, (float)golden_number(numbers, i), codes[i]);
    }
    json_decref(g.header);
    ls_whole_free(&g.whole);
}

/* The power of two brings the largest below the format's largest, and twice it would not. */
static void test_exponents(void **state) {
    (void)state;
    for (int f = LS_FP8_E4M3; f <= LS_FP8_E5M2; f++)
        for (int bits = 1; bits < 0x7f80; bits++) {
            const double most = f == LS_FP8_E4M3 ? 448 : 57344;
            const double value = (double)ls_bf16_to_f32((ls_bf16)bits);
            const int exponent = ls_fp8_exponent((ls_fp8)f, (uint16_t)bits);
            assert_true(exponent >= -100 && exponent <= 60);
            if (exponent > -100) assert_true(ldexp(value, exponent) <= most);
            if (exponent < 60) assert_true(ldexp(value, exponent + 1) > most);
        }
    assert_int_equal(ls_fp8_exponent(LS_FP8_E4M3, 0), 0);
}

/* ---- a layer ---- */

enum { SPARE = 16 };

typedef struct layer {
    int64_t rows, in, out;
    bool bias, part; /* part: x is some columns of a wider tensor */
    double x_size, dy_size;
} layer;

static void record_layer(ls_program *p, const void *about) {
    const layer *l = about;
    const int64_t before = l->part ? SPARE : 0;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(1, l->rows, before + l->in), true);
    ls_tensor *parts[2] = {NULL, x};
    if (l->part) ls_split(p, x, 2, (int64_t[]){before, l->in}, parts);
    ls_tensor *w = ls_param(p, "w", LS_DIMS(l->out, l->in), ls_init_normal(1));
    ls_tensor *b = l->bias ? ls_param(p, "b", LS_DIMS(l->out), ls_init_bias()) : NULL;
    ls_keep(p, "y", ls_linear(p, parts[1], w, b));
}

static bench bench_of(ls_ctx *ctx, const layer *l, bool fp8) {
    const subject what = {"a layer", record_layer, l};
    bench b = bench_new(ctx, &what,
                        (ls_program_options){.type = LS_BF16,
                                             .batch = 1,
                                             .length = l->rows,
                                             .grad = true,
                                             .fp8 = fp8,
                                             .guarded = true});
    const ls_tensor *x = ls_program_find(b.program, "x"), *dy = ls_program_find(b.program, "cot");
    double *numbers = normal_numbers(ls_count(x) + ls_count(dy), 3);
    for (int64_t i = 0; i < ls_count(x); i++) put(x, i, l->x_size * numbers[i]);
    for (int64_t i = 0; i < ls_count(dy); i++) put(dy, i, l->dy_size * numbers[ls_count(x) + i]);
    free(numbers);
    ls_parameters_clear_gradient(b.store);
    return b;
}

static void run(bench *b) {
    expect(b->ctx, ls_program_run(b->program, NULL, 1, 1));
    expect(b->ctx, ls_device_settle(b->ctx));
    assert_true(ls_program_guards_intact(b->program));
}

/* What a tensor's codes stand for, by the reference; its largest value is looked for here. */
static double *as_fp8(const double *values, int64_t count, ls_fp8 format, int *exponent) {
    double largest = 0, *out = malloc((size_t)count * sizeof *out);
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(values[i]));
    *exponent = ls_fp8_exponent(format, (uint16_t)(ls_bf16_from_f32((float)largest) & 0x7fff));
    for (int64_t i = 0; i < count; i++)
        out[i] = ldexp(ls_fp8_value(format, ls_fp8_code(format, ldexp(values[i], *exponent))),
                       -*exponent);
    return out;
}

/* The codes of every cast that the program has made, each in both layouts, and their factors. */
static void check_casts(const bench *b, int wanted) {
    int count = 0;
    for (size_t n = 0; n < b->program->nodes.count; n++) {
        const ls_node *node = b->program->nodes.at[n];
        if (node->op->name == NULL || strcmp(node->op->name, "fp8_cast") != 0) continue;
        const ls_tensor *codes = node->out[1], *turned = node->out[2];
        assert_true(codes != NULL && turned != NULL);
        const ls_fp8 format = codes->type == LS_E5M2 ? LS_FP8_E5M2 : LS_FP8_E4M3;
        const int64_t rows = codes->dim[0], width = codes->dim[1];
        double *x = read_all(node->in[0]);
        int exponent;
        free(as_fp8(x, rows * width, format, &exponent));
        assert_true(get(node->out[0], 0) == ldexp(1, -exponent));
        for (int64_t i = 0; i < rows * width; i++) {
            const uint8_t code = ls_fp8_code(format, ldexp(x[i], exponent));
            assert_int_equal((int)get(codes, i), code);
            assert_int_equal((int)get(turned, i % width * rows + i / width), code);
        }
        free(x);
        count++;
    }
    assert_int_equal(count, wanted);
}

static void near(const char *what, int64_t i, double value, double wanted, double most) {
    if (!(fabs(value - wanted) <= most + 1e-30))
        fail_msg("%s: element %lld is %g and not %g (within %g)", what, (long long)i, value, wanted,
                 most);
}

/* sums[m, n] = a[m, k] b[n, k]^T by strides, each against what the program has at (m, n): within
 * `narrow` of itself and a part of the absolute values that were added up. */
typedef struct sums {
    const char *what;
    int64_t m, n, k;
    const double *a, *b;
    int64_t a_row, a_step, b_row, b_step;
    const double *bias;
    double narrow;
} sums;

static void check_sums(const sums *s, const double *have, int64_t stride, bool device) {
    const double part = device ? 0x1p-11 : 0x1p-19; /* a device's units keep fewer bits */
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->n; j++) {
            double sum = 0, size = 0;
            for (int64_t l = 0; l < s->k; l++) {
                const double term =
                    s->a[i * s->a_row + l * s->a_step] * s->b[j * s->b_row + l * s->b_step];
                sum += term;
                size += fabs(term);
            }
            if (s->bias != NULL) sum += s->bias[j], size += 16 * fabs(s->bias[j]);
            near(s->what, i * s->n + j, have[i * stride + j], sum,
                 part * size + s->narrow * fabs(sum));
        }
}

static const double bf16_unit = 0x1p-8; /* half of one, as a part of a number */

static void check_layer(ls_ctx *ctx, const layer *l) {
    bench b = bench_of(ctx, l, true);
    const bool device = ctx->device != NULL;
    run(&b);
    assert_int_equal(ls_program_count(b.program, "linear_fp8"), 1);
    assert_int_equal(ls_program_count(b.program, "linear"), 0);
    check_casts(&b, 3);
    const int64_t before = l->part ? SPARE : 0, wide = before + l->in;
    double *all = read_all(ls_program_find(b.program, "x"));
    double *dy = read_all(ls_program_find(b.program, "cot"));
    double *x = malloc((size_t)(l->rows * l->in) * sizeof *x);
    for (int64_t i = 0; i < l->rows * l->in; i++) x[i] = all[i / l->in * wide + before + i % l->in];
    double *w = malloc((size_t)(l->out * l->in) * sizeof *w), *bias = NULL;
    const ls_parameter *weight = ls_parameters_find(b.store, "w");
    const ls_parameter *of_bias = ls_parameters_find(b.store, "b");
    for (int64_t i = 0; i < l->out * l->in; i++)
        w[i] = (double)ls_bf16_to_f32(b.store->shadow[weight->offset + i]);
    if (l->bias) bias = malloc((size_t)l->out * sizeof *bias);
    for (int64_t i = 0; l->bias && i < l->out; i++)
        bias[i] = (double)((const float *)ls_parameter_master(b.store, of_bias))[i];
    int exponent;
    double *x8 = as_fp8(x, l->rows * l->in, LS_FP8_E4M3, &exponent);
    double *w8 = as_fp8(w, l->out * l->in, LS_FP8_E4M3, &exponent);
    double *dy8 = as_fp8(dy, l->rows * l->out, LS_FP8_E5M2, &exponent);
    const sums y = {"y", l->rows, l->out, l->in, x8, w8, l->in, 1, l->in, 1, bias, bf16_unit};
    const sums dx = {"dx", l->rows, l->in, l->out, dy8, w8, l->out, 1, 1, l->in, NULL, bf16_unit};
    const sums dw = {"dw", l->out, l->in, l->rows, dy8, x8, 1, l->out, 1, l->in, NULL, 0};
    double *have = read_all(ls_program_find(b.program, "y"));
    check_sums(&y, have, l->out, device);
    free(have);
    have = read_all(ls_program_find(b.program, "grad.x"));
    for (int64_t i = 0; i < l->rows * before; i++)
        assert_true(have[i / SPARE * wide + i % SPARE] == 0);
    check_sums(&dx, have + before, wide, device);
    free(have);
    const float *gradient = ls_parameter_gradient(b.store, weight);
    have = malloc((size_t)(l->out * l->in) * sizeof *have);
    for (int64_t i = 0; i < l->out * l->in; i++) have[i] = (double)gradient[i];
    check_sums(&dw, have, l->in, device);
    free(have);
    for (int64_t i = 0; l->bias && i < l->out; i++) { /* of the gradient before it is cast */
        double sum = 0, size = 0;
        for (int64_t row = 0; row < l->rows; row++)
            sum += dy[row * l->out + i], size += fabs(dy[row * l->out + i]);
        near("db", i, (double)((const float *)ls_parameter_gradient(b.store, of_bias))[i], sum,
             0x1p-19 * size);
    }
    free(all), free(dy), free(x), free(w), free(bias), free(x8), free(w8), free(dy8);
    bench_free(&b);
}

static void test_layers(void **state) {
    (void)state;
    static const layer layers[] = {{48, 80, 144, true, false, 1, 1e-5},
                                   {16, 16, 16, false, false, 30, 1},
                                   {160, 144, 272, true, true, 1e-3, 1e3},
                                   {1024, 256, 384, true, false, 1, 1e-7}};
    for (int k = 0; test_isa(k) != NULL; k++) {
        ls_ctx ctx = ls_ctx_default();
        ctx.isa = test_isa(k);
        for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) check_layer(&ctx, &layers[i]);
    }
}

/* Twice the same bits, with other threads as well. */
static void test_same_bits(void **state) {
    (void)state;
    const layer l = {160, 144, 272, true, true, 1, 1};
    ls_ctx ctx = ls_ctx_default();
    double *first = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        ctx.threads = threads;
        bench b = bench_of(&ctx, &l, true);
        run(&b);
        run(&b); /* gradients add up */
        const int64_t count = b.store->total;
        double *now = malloc((size_t)count * sizeof *now);
        for (int64_t i = 0; i < count; i++) now[i] = (double)((const float *)b.store->gradient)[i];
        if (first != NULL) assert_memory_equal(now, first, (size_t)count * sizeof *now);
        free(first);
        first = now;
        bench_free(&b);
    }
    free(first);
}

/* Rows and widths that are no multiples of 16 are multiplied in bf16, with its bits. */
static void test_others(void **state) {
    (void)state;
    static const layer layers[] = {{40, 80, 144, true, false, 1, 1},
                                   {48, 72, 144, true, false, 1, 1},
                                   {48, 80, 136, false, false, 1, 1}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        bench a = bench_of(&ctx, &layers[i], true), b = bench_of(&ctx, &layers[i], false);
        run(&a);
        run(&b);
        assert_int_equal(ls_program_count(a.program, "linear_fp8"), 0);
        assert_int_equal(ls_program_count(a.program, "linear"), 1);
        const ls_tensor *y = ls_program_find(a.program, "y"), *z = ls_program_find(b.program, "y");
        for (int64_t j = 0; j < ls_count(y); j++) assert_true(get(y, j) == get(z, j));
        bench_free(&a);
        bench_free(&b);
    }
}

/* Zeros give zeros; an infinity or a NaN makes everything that it may touch NaN, so that a step
 * with one is seen. */
static void test_extremes(void **state) {
    (void)state;
    static const double wrong[] = {INFINITY, -INFINITY, NAN};
    const layer l = {32, 48, 64, false, false, 0, 0};
    ls_ctx ctx = ls_ctx_default();
    bench b = bench_of(&ctx, &l, true);
    const ls_tensor *x = ls_program_find(b.program, "x"), *y = ls_program_find(b.program, "y");
    run(&b);
    for (int64_t i = 0; i < ls_count(y); i++) assert_true(get(y, i) == 0);
    for (int k = 0; k < 3; k++) {
        put(x, 77, wrong[k]);
        run(&b);
        for (int64_t i = 0; i < ls_count(y); i++) assert_true(isnan(get(y, i)));
    }
    bench_free(&b);
}

/* ---- what several layers read ---- */

static void record_shared(ls_program *p, const void *about) {
    (void)about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(1, 32, 48), true);
    ls_tensor *w = ls_param(p, "w", LS_DIMS(48, 48), ls_init_normal(1));
    ls_tensor *v = ls_param(p, "v", LS_DIMS(48, 48), ls_init_normal(1));
    ls_tensor *once = ls_plus(p, ls_linear(p, x, w, NULL), ls_linear(p, x, v, NULL));
    ls_keep(p, "y", ls_linear(p, once, w, NULL));
}

/* x once, both weights once, what lies between once; and the gradients of three layers. */
static void test_cast_once(void **state) {
    (void)state;
    const subject what = {"shared", record_shared, NULL};
    ls_ctx ctx = ls_ctx_default();
    bench b = bench_new(
        &ctx, &what,
        (ls_program_options){.type = LS_BF16, .batch = 1, .length = 32, .grad = true, .fp8 = true});
    assert_int_equal(ls_program_count(b.program, "linear_fp8"), 3);
    assert_int_equal(ls_program_count(b.program, "fp8_cast"), 2 + 2 + 3);
    bench_free(&b);
}

/* Nothing but training multiplies in fp8. */
static void test_training_alone(void **state) {
    (void)state;
    const subject what = {"shared", record_shared, NULL};
    ls_ctx ctx = ls_ctx_default();
    bench b = bench_new(
        &ctx, &what, (ls_program_options){.type = LS_BF16, .batch = 1, .length = 32, .fp8 = true});
    assert_int_equal(ls_program_count(b.program, "linear_fp8"), 0);
    bench_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_codes),      cmocka_unit_test(test_golden_codes),
        cmocka_unit_test(test_exponents),      cmocka_unit_test(test_layers),
        cmocka_unit_test(test_same_bits),      cmocka_unit_test(test_others),
        cmocka_unit_test(test_extremes),       cmocka_unit_test(test_cast_once),
        cmocka_unit_test(test_training_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
