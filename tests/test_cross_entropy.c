/* The joined output projection and cross-entropy, whose objective is its own seed: its definition,
 * gradients against differences in f64, fast types against f64. */
#include "harness.h"

static const char *const inputs[] = {"x", "weights", NULL};

enum { ROWS = 2 * 23, WIDTH = 12, WORDS = 37 };

static ls_program *loss_program(ls_ctx *ctx, ls_dtype type, bool grad, double smoothing, double cap,
                                ls_parameters **store) {
    ls_program *p = NULL;
    expect(ctx, ls_parameters_new(ctx, type, store));
    for (int pass = 0; pass < 2; pass++) {
        ls_program_options options = {.type = type,
                                      .batch = 2,
                                      .length = ROWS / 2,
                                      .grad = grad && pass == 1,
                                      .guarded = true};
        expect(ctx, ls_program_new(ctx, &options, *store, &p));
        ls_tensor *x = ls_input(p, "x", type, LS_DIMS(2, ROWS / 2, WIDTH), true);
        ls_tensor *w = ls_param(p, "w", LS_DIMS(WORDS, WIDTH), ls_init_normal(1));
        ls_tensor *b = ls_param(p, "b", LS_DIMS(WORDS), ls_init_bias());
        ls_tensor *targets = ls_input(p, "targets", LS_I32, LS_DIMS(2, ROWS / 2), false);
        ls_tensor *weights = ls_input(p, "weights", ls_wide_type(p), LS_DIMS(2, ROWS / 2), false);
        ls_keep(p, "loss", ls_linear_cross_entropy(p, x, w, b, targets, weights, smoothing, cap));
        if (pass == 1 && grad) ls_keep_gradient(p, "x", x);
        if (pass == 1) break;
        ls_program_free(p);
        expect(ctx, ls_parameters_seal(*store, 5, grad));
        fill_parameters(*store);
    }
    expect(ctx, ls_program_finish(p));
    ls_program_poison(p);
    fill_inputs(p, inputs, 21);
    for (int64_t i = 0; i < ROWS; i++)
        put(ls_program_find(p, "targets"), i, i % 7 == 3 ? -1 : (double)(i * i % WORDS));
    return p;
}

static double weighted_loss(ls_ctx *ctx, ls_program *p) {
    expect(ctx, ls_program_run(p, NULL, 0, 0));
    double sum = 0;
    for (int64_t i = 0; i < ROWS; i++)
        sum += get(ls_program_find(p, "loss"), i) * get(ls_program_find(p, "weights"), i);
    return sum;
}

static void check_cross_entropy(double smoothing, double cap) {
    ls_ctx ctx = ls_ctx_default();
    ls_parameters *store, *other;
    ls_program *p = loss_program(&ctx, LS_F64, true, smoothing, cap, &store);
    weighted_loss(&ctx, p);
    ls_tensor *x = ls_program_find(p, "x");
    const double *w = ls_parameter_master(store, ls_parameters_find(store, "w"));
    const double *b = ls_parameter_master(store, ls_parameters_find(store, "b"));
    for (int64_t n = 0; n < ROWS; n++) { /* the definition, written out */
        double logits[WORDS], sum = 0, of_all = 0;
        int target = (int)get(ls_program_find(p, "targets"), n);
        for (int v = 0; v < WORDS; v++) {
            logits[v] = b[v];
            for (int i = 0; i < WIDTH; i++) logits[v] += get(x, n * WIDTH + i) * w[v * WIDTH + i];
            if (cap > 0) logits[v] = cap * tanh(logits[v] / cap);
            sum += exp(logits[v]);
        }
        for (int v = 0; v < WORDS; v++) of_all += (log(sum) - logits[v]) / WORDS;
        double want =
            target < 0 ? 0 : (1 - smoothing) * (log(sum) - logits[target]) + smoothing * of_all;
        assert_true(fabs(get(ls_program_find(p, "loss"), n) - want) < 1e-12);
    }
    double *dx = read_all(ls_program_find(p, "grad.x"));
    double *gradient = malloc((size_t)store->total * sizeof *gradient);
    memcpy(gradient, store->gradient, (size_t)store->total * sizeof *gradient);
    const int64_t elements = ROWS * WIDTH + store->total;
    for (int64_t i = 0; i < elements; i += test_difference_stride(elements, elements / 5)) {
        double *at = i < ROWS * WIDTH ? (double *)ls_data(x) + i
                                      : (double *)store->master + (i - ROWS * WIDTH);
        double kept = *at, h = 1e-5;
        *at = kept + h;
        double above = weighted_loss(&ctx, p);
        *at = kept - h;
        double below = weighted_loss(&ctx, p);
        *at = kept;
        double analytic = i < ROWS * WIDTH ? dx[i] : gradient[i - ROWS * WIDTH];
        assert_true(fabs((above - below) / (2 * h) - analytic) < 1e-7);
    }
    for (int type = LS_F32; type <= LS_BF16; type++) {
        ls_program *fast = loss_program(&ctx, (ls_dtype)type, true, smoothing, cap, &other);
        weighted_loss(&ctx, fast);
        double *got = read_all(ls_program_find(fast, "grad.x"));
        assert_true(nmse(got, dx, ROWS * WIDTH) < (type == LS_F32 ? 1e-11 : 1e-4));
        double *loss = read_all(ls_program_find(fast, "loss"));
        double *want = read_all(ls_program_find(p, "loss"));
        weighted_loss(&ctx, p);
        free(want);
        want = read_all(ls_program_find(p, "loss"));
        assert_true(nmse(loss, want, ROWS) < (type == LS_F32 ? 1e-11 : 1e-4));
        assert_true(ls_program_guards_intact(fast));
        free(got);
        free(loss);
        free(want);
        ls_program_free(fast);
        ls_parameters_free(other);
    }
    free(dx);
    free(gradient);
    ls_program_free(p);
    ls_parameters_free(store);
}

static void test_cross_entropy(void **state) {
    (void)state;
    check_cross_entropy(0, 0);
    check_cross_entropy(0.3, 0);
    check_cross_entropy(0, 1.5);
    check_cross_entropy(0.3, 0.7);
}

/* Where a target is all but certain, its loss and gradient are still right: they are as small as
 * the shares of the others, and not zero. */
static void test_certain_targets(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int type = LS_F64; type <= LS_BF16; type++)
        for (double ahead = 0; ahead <= 64; ahead += 16) { /* exact in every type */
            ls_parameters *store;
            ls_program *p = loss_program(&ctx, (ls_dtype)type, true, 0, 0, &store);
            const ls_tensor *x = ls_program_find(p, "x"), *dx = ls_program_find(p, "grad.x");
            for (int64_t i = 0; i < ls_count(x); i++) put(x, i, i % WIDTH == 0);
            for (int64_t i = 0; i < ROWS; i++) {
                put(ls_program_find(p, "targets"), i, 5);
                put(ls_program_find(p, "weights"), i, 1);
            }
            for (int v = 0; v < WORDS; v++) { /* logits: `ahead` for word 5, 0 for the others */
                const double bias = v == 5 ? ahead : 0;
                void *b = ls_parameter_master(store, ls_parameters_find(store, "b"));
                for (int i = 0; i < WIDTH; i++) {
                    void *w = ls_parameter_master(store, ls_parameters_find(store, "w"));
                    const double of_w = i == 1 ? (v == 5 ? 1 : -1) : 0;
                    if (type == LS_F64)
                        ((double *)w)[v * WIDTH + i] = of_w;
                    else
                        ((float *)w)[v * WIDTH + i] = (float)of_w;
                }
                if (type == LS_F64)
                    ((double *)b)[v] = bias;
                else
                    ((float *)b)[v] = (float)bias;
            }
            ls_parameters_round(store);
            expect(&ctx, ls_program_run(p, NULL, 0, 0));
            const double others = (WORDS - 1) * exp(-ahead), missing = others / (1 + others);
            const double bar = type == LS_F64 ? 1e-12 : type == LS_F32 ? 1e-5 : 1e-2;
            for (int64_t i = 0; i < ROWS; i++) {
                const double loss = get(ls_program_find(p, "loss"), i);
                /* column 1 of the weights: the others' shares and the target's, both downhill */
                const double slope = get(dx, i * WIDTH + 1);
                if (!(fabs(loss - log1p(others)) <= bar * log1p(others)))
                    fail_msg("%s, %g ahead: loss %.6g", ls_dtype_name((ls_dtype)type), ahead, loss);
                if (!(fabs(slope + 2 * missing) <= bar * 2 * missing))
                    fail_msg("%s, %g ahead: slope %.6g", ls_dtype_name((ls_dtype)type), ahead,
                             slope);
            }
            ls_program_free(p);
            ls_parameters_free(store);
        }
}

/* Many small shares beside a large one: 60,000 words of 4e-8 each are not lost in f32. */
static void test_large_vocabulary(void **state) {
    (void)state;
    enum { MANY = 60000 };
    ls_ctx ctx = ls_ctx_default();
    ls_parameters *store;
    ls_program *p = NULL;
    expect(&ctx, ls_parameters_new(&ctx, LS_F32, &store));
    for (int pass = 0; pass < 2; pass++) {
        ls_program_options options = {.type = LS_F32, .batch = 1, .length = 1};
        expect(&ctx, ls_program_new(&ctx, &options, store, &p));
        ls_tensor *x = ls_input(p, "x", LS_F32, LS_DIMS(1, 1, 1), false);
        ls_tensor *w = ls_param(p, "w", LS_DIMS(MANY, 1), ls_init_normal(1));
        ls_tensor *targets = ls_input(p, "targets", LS_I32, LS_DIMS(1, 1), false);
        ls_tensor *weights = ls_input(p, "weights", LS_F32, LS_DIMS(1, 1), false);
        ls_keep(p, "loss", ls_linear_cross_entropy(p, x, w, NULL, targets, weights, 0, 0));
        if (pass == 1) break;
        ls_program_free(p);
        expect(&ctx, ls_parameters_seal(store, 5, false));
    }
    expect(&ctx, ls_program_finish(p));
    const float small = -17.0f;
    float *w = ls_parameter_master(store, ls_parameters_find(store, "w"));
    for (int v = 0; v < MANY; v++) w[v] = v == 0 ? 0 : small;
    ls_parameters_round(store);
    put(ls_program_find(p, "x"), 0, 1);
    put(ls_program_find(p, "targets"), 0, 1);
    put(ls_program_find(p, "weights"), 0, 1);
    expect(&ctx, ls_program_run(p, NULL, 0, 0));
    const double want = log1p((MANY - 1) * exp((double)small)) - (double)small;
    assert_true(fabs(get(ls_program_find(p, "loss"), 0) - want) < 2e-5);
    ls_program_free(p);
    ls_parameters_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_certain_targets),
        cmocka_unit_test(test_large_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
