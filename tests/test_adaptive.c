/* Adaptive embeddings and softmax against their definition, probabilities, gradients, and the
 * published number of parameters. */
#include "harness.h"
#include "model/head/adaptive.h"

enum { B = 2, T = 9, D = 8, V = 40 };

static const ls_ints cutoffs = {.count = 2, .at = {7, 19}};

typedef struct variant {
    int64_t divisor;
    bool tied;
} variant;
static const variant variants[] = {{1, true}, {2, true}, {2, false}, {1, false}};

static ls_model_settings settings_of(const variant *v) {
    return (ls_model_settings){.width = D,
                               .vocabulary = V,
                               .init = 0.02,
                               .tied = v->tied,
                               .adaptive_cutoffs = cutoffs,
                               .adaptive_divisor = v->divisor};
}

/* Rows of the tokens go straight to the head. */
static void record(ls_program *p, const void *given) {
    const ls_model_settings about = settings_of(given);
    ls_tensor *tokens = ls_input(p, "tokens", LS_I32, LS_DIMS(B, T), false);
    ls_tensor *targets = ls_input(p, "targets", LS_I32, LS_DIMS(B, T), false);
    ls_tensor *weights = ls_input(p, "weights", ls_wide_type(p), LS_DIMS(B, T), false);
    ls_tensor *rows = ls_adaptive_rows(p, &about, tokens);
    ls_keep(p, "rows", rows);
    if (!ls_program_about(p)->grad) ls_keep(p, "logits", ls_adaptive_logits(p, &about, rows));
    ls_keep(p, "loss", ls_adaptive_loss(p, &about, rows, targets, weights, 0));
}

static bench make(ls_ctx *ctx, const variant *v, ls_dtype type, bool grad) {
    bench b = {.ctx = ctx};
    ls_program_options options = {.type = type, .batch = B, .length = T};
    expect(ctx, ls_parameters_new(ctx, type, &b.store));
    expect(ctx, ls_program_new(ctx, &options, b.store, &b.program));
    record(b.program, v);
    if (ls_failed(b.program)) fail_msg("%s", ctx->error.message);
    ls_program_free(b.program);
    expect(ctx, ls_parameters_seal(b.store, 3, true));
    fill_parameters(b.store);
    options.grad = grad;
    expect(ctx, ls_program_new(ctx, &options, b.store, &b.program));
    record(b.program, v);
    expect(ctx, ls_program_finish(b.program));
    ls_program_poison(b.program);
    for (int64_t i = 0; i < B * T; i++) {
        put(ls_program_find(b.program, "tokens"), i, (double)(i * 11 % V));
        put(ls_program_find(b.program, "targets"), i, i == 4 ? -1 : (double)(i * 17 % V));
        put(ls_program_find(b.program, "weights"), i, 0.1 * (double)(i + 1));
    }
    return b;
}

static const double *values(const bench *b, const char *format, int cluster) {
    char name[32];
    snprintf(name, sizeof name, format, cluster);
    const ls_parameter *parameter = ls_parameters_find(b->store, name);
    return parameter == NULL ? NULL : ls_parameter_master(b->store, parameter);
}

static const int64_t first[] = {0, 7, 19, V};
enum { CLUSTERS = 3 };

static int64_t width_of(const variant *v, int cluster) {
    int64_t width = D;
    while (cluster-- > 0) width /= v->divisor;
    return width;
}

/* The row of a token. */
static void define_row(const bench *b, const variant *v, int64_t token, double row[D]) {
    int c = token < first[1] ? 0 : token < first[2] ? 1 : 2;
    const int64_t width = width_of(v, c);
    const double *table = values(b, "embed.%d.weight", c) + (token - first[c]) * width;
    const double *turn = values(b, "embed.%d.project", c);
    for (int64_t i = 0; i < D; i++) {
        row[i] = v->divisor == 1 ? table[i] : 0;
        for (int64_t j = 0; v->divisor > 1 && j < width; j++)
            row[i] += turn[i * width + j] * table[j];
    }
}

/* log softmax of a cluster's table for a row. */
static void define_softmax(const bench *b, const variant *v, int c, const double row[D],
                           double out[V]) {
    const int64_t width = width_of(v, c);
    const int64_t size = first[c + 1] - first[c] + (c == 0 ? CLUSTERS - 1 : 0);
    const double *table = values(b, v->tied ? "embed.%d.weight" : "head.%d.weight", c);
    const double *turn = values(b, c == 0 ? "head.%d.project" : "embed.%d.project", c);
    double narrow[D] = {0}, sum = 0;
    for (int64_t j = 0; j < width; j++)
        for (int64_t i = 0; i < D; i++)
            narrow[j] += v->divisor == 1 ? (i == j ? row[i] : 0) : row[i] * turn[i * width + j];
    for (int64_t k = 0; k < size; k++) {
        out[k] = values(b, "head.%d.bias", c)[k];
        for (int64_t j = 0; j < width; j++) out[k] += table[k * width + j] * narrow[j];
        sum += exp(out[k]);
    }
    for (int64_t k = 0; k < size; k++) out[k] -= log(sum);
}

static void define(const bench *b, const variant *v, const double row[D], double out[V]) {
    double head[V], within[V];
    define_softmax(b, v, 0, row, head);
    memcpy(out, head, (size_t)first[1] * sizeof *out);
    for (int c = 1; c < CLUSTERS; c++) {
        define_softmax(b, v, c, row, within);
        for (int64_t i = first[c]; i < first[c + 1]; i++)
            out[i] = head[first[1] + c - 1] + within[i - first[c]];
    }
}

static void test_definition(void **unused) {
    (void)unused;
    ls_ctx ctx = ls_ctx_default();
    for (size_t n = 0; n < sizeof variants / sizeof variants[0]; n++) {
        const variant *v = &variants[n];
        bench b = make(&ctx, v, LS_F64, false);
        expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
        for (int64_t i = 0; i < B * T; i++) {
            double row[D], want[V], total = 0;
            define_row(&b, v, i * 11 % V, row);
            define(&b, v, row, want);
            for (int64_t j = 0; j < D; j++)
                assert_true(fabs(get(ls_program_find(b.program, "rows"), i * D + j) - row[j]) <
                            1e-13);
            for (int64_t j = 0; j < V; j++) {
                const double got = get(ls_program_find(b.program, "logits"), i * V + j);
                assert_true(fabs(got - want[j]) < 1e-12);
                total += exp(got);
            }
            assert_true(fabs(total - 1) < 1e-12);
            const double loss = get(ls_program_find(b.program, "loss"), i);
            assert_true(fabs(loss - (i == 4 ? 0 : -want[i * 17 % V])) < 1e-12);
        }
        bench_free(&b);
    }
}

static double objective_of(bench *b) {
    double sum = 0;
    expect(b->ctx, ls_program_run(b->program, NULL, 0, 0));
    for (int64_t i = 0; i < B * T; i++)
        sum += 0.1 * (double)(i + 1) * get(ls_program_find(b->program, "loss"), i);
    return sum;
}

static void test_gradients(void **unused) {
    (void)unused;
    ls_ctx ctx = ls_ctx_default();
    for (size_t n = 0; n < sizeof variants / sizeof variants[0]; n++) {
        bench b = make(&ctx, &variants[n], LS_F64, true);
        ls_parameters_clear_gradient(b.store);
        expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
        double *gradient = malloc((size_t)b.store->total * sizeof *gradient), *at = b.store->master;
        memcpy(gradient, b.store->gradient, (size_t)b.store->total * sizeof *gradient);
        for (size_t i = 0; i < b.store->count; i++) {
            const ls_parameter *parameter = &b.store->items[i];
            double size = 0;
            for (int64_t j = 0; j < parameter->count; j += 1 + parameter->count / 23) {
                const int64_t place = parameter->offset + j;
                const double kept = at[place], h = 1e-5;
                at[place] = kept + h;
                double above = objective_of(&b);
                at[place] = kept - h;
                double below = objective_of(&b);
                at[place] = kept;
                if (!(fabs((above - below) / (2 * h) - gradient[place]) < 1e-7))
                    fail_msg("%s[%lld]: %.10g, differences give %.10g", parameter->name,
                             (long long)j, gradient[place], (above - below) / (2 * h));
                size = fmax(size, fabs(gradient[place]));
            }
            assert_true(size > 1e-4);
        }
        free(gradient);
        bench_free(&b);
    }
}

static ls_model *model_of(ls_ctx *ctx, const char *words, ls_model_config *config, bool plan) {
    ls_model *made;
    expect(ctx, ls_model_config_read_words(ctx, words, config));
    if (plan)
        expect(ctx, ls_model_plan(ctx, config, LS_F32, false, &made));
    else
        expect(ctx, ls_model_new(ctx, config, LS_F64, 3, false, &made));
    return made;
}

/* The words of WikiText-103 in Transformer-XL's base model; and a large one's narrow tables. */
static void test_published_sizes(void **unused) {
    (void)unused;
    ls_ctx ctx = ls_ctx_default();
    ls_model_config config;
    ls_model *base =
        model_of(&ctx,
                 "model.mixer=transformer_xl model.layers=16 model.width=410 model.hidden=2100 "
                 "mixer.heads=10 mixer.head_width=41 model.norm_place=post model.activation=relu "
                 "model.vocabulary=267735 model.adaptive_cutoffs=20000,40000,200000",
                 &config, true);
    assert_int_equal(ls_parameters_elements(base->store), 151107538);
    int64_t layers = 0;
    for (size_t i = 0; i < base->store->count; i++)
        if (strncmp(base->store->items[i].name, "layers.", 7) == 0)
            layers += base->store->items[i].count;
    assert_int_equal(layers, 41066400);
    ls_model_free(base);
    ls_model_config_clear(&ctx, &config);
    /* widths 1024, 256, 64, 16: rows, biases, columns of clusters, projections
     * and the head's own */
    ls_model *large = model_of(&ctx,
                               "model.layers=1 model.width=1024 model.vocabulary=267735 "
                               "model.adaptive_divisor=4 model.adaptive_cutoffs=20000,40000,200000",
                               &config, true);
    int64_t tables = 0;
    for (size_t i = 0; i < large->store->count; i++)
        if (strncmp(large->store->items[i].name, "embed.", 6) == 0 ||
            strncmp(large->store->items[i].name, "head.", 5) == 0)
            tables += large->store->items[i].count;
    assert_int_equal(tables, 20000 * 1024 + 20000 * 256 + 160000 * 64 + 67735 * 16 + 3 * 1024 +
                                 (267735 + 3) + 1024 * (1024 + 256 + 64 + 16) + 1024 * 1024);
    ls_model_free(large);
    ls_model_config_clear(&ctx, &config);
}

/* A stream's losses are those of its logits, in chunks or token by token. */
static void test_stream(void **unused) {
    (void)unused;
    ls_ctx ctx = ls_ctx_default();
    ls_model_config config;
    ls_model *made = model_of(&ctx,
                              "model.layers=2 model.width=16 mixer.heads=2 model.vocabulary=40 "
                              "model.init=0.3 model.adaptive_divisor=2 "
                              "model.adaptive_cutoffs=7,19 model.position=rope",
                              &config, false);
    int32_t tokens[T + 1];
    double loss[T], logits[V];
    for (int i = 0; i <= T; i++) tokens[i] = i * 13 % V;
    ls_stream *whole, *steps;
    expect(&ctx, ls_stream_new(made, 1, T, T, &whole));
    expect(&ctx, ls_stream_new(made, 1, T, 1, &steps));
    expect(&ctx, ls_stream_loss(whole, tokens, tokens + 1, T, T, loss));
    for (int i = 0; i < T; i++) {
        expect(&ctx, ls_stream_logits(steps, tokens + i, 1, 1, logits));
        assert_true(fabs(loss[i] + logits[tokens[i + 1]]) < 1e-12);
    }
    ls_stream_free(whole);
    ls_stream_free(steps);
    ls_model_free(made);
    ls_model_config_clear(&ctx, &config);
}

static void test_refusals(void **unused) {
    (void)unused;
    static const char *const bad[] = {"model.adaptive_cutoffs=19,7", "model.adaptive_cutoffs=40",
                                      "model.adaptive_cutoffs=7.5",
                                      "model.adaptive_cutoffs=7 model.head=classify"};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_settings settings = {0};
        ls_model_config config;
        char all[128];
        snprintf(all, sizeof all, "model.vocabulary=40 %s", bad[i]);
        expect(&ctx, ls_settings_put_words(&ctx, &settings, all));
        if (ls_model_config_read(&ctx, &settings, &config) != LS_EUSE)
            fail_msg("%s is not refused", bad[i]);
        ls_settings_clear(&ctx, &settings);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),      cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_published_sizes), cmocka_unit_test(test_stream),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
