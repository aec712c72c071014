/* Memformer: what slots are; streams cut anywhere; replayed segments. (The public model's numbers:
 * tests/golden/cases.txt.)
 * Tier: unsanitized. */
#include "memory_fixture.h"
#include "model/layers.h"
#include "model/model.h"
#include "model/slots.h"

/* ---- slots alone ---- */

enum { FEW = 3, WIDE = 8, LONG = 6 };

typedef struct alone {
    ls_model_settings about;
    int times; /* segments one after the other, all with the same rows */
} alone;

/* Carried slots "x", the segment's rows "rows" -> what is carried on, and as it is read, "y". */
static void record_alone(ls_program *p, const void *given) {
    const alone *what = given;
    const int64_t batch = ls_program_about(p)->batch;
    ls_tensor *carried = ls_input(p, "x", ls_type(p), LS_DIMS(batch, FEW, WIDE), true);
    ls_tensor *rows = ls_input(p, "rows", ls_type(p), LS_DIMS(batch, LONG, WIDE), true);
    for (int i = 0; i < what->times; i++)
        carried =
            ls_slots_write(p, &what->about, ls_slots_seen(p, &what->about, carried), rows, NULL);
    ls_keep(p, "y", ls_slots_seen(p, &what->about, carried));
}

static alone slots_alone(ls_memory_update update, bool bias, double temperature, int times) {
    return (alone){.about = {.width = WIDE,
                             .memory = FEW,
                             .memory_kind = LS_MEMORY_SLOTS,
                             .memory_update = (int)update,
                             .memory_heads = 2,
                             .memory_temperature = temperature,
                             .epsilon = 1e-5,
                             .init = 0.02,
                             .norm_weight = true,
                             .bias = bias},
                   .times = times};
}

static bench bench_alone(ls_ctx *ctx, const alone *what, bool grad) {
    subject recorded = {"slots", record_alone, what};
    bench b =
        bench_new(ctx, &recorded,
                  (ls_program_options){.type = LS_F64, .batch = 1, .length = LONG, .grad = grad});
    double *x = normal_numbers(FEW * WIDE, 3), *rows = normal_numbers(LONG * WIDE, 4);
    put_values(&b, "x", x);
    put_values(&b, "rows", rows);
    free(x), free(rows);
    return b;
}

static double *master(const bench *b, const char *name) {
    const ls_parameter *parameter = ls_parameters_find(b->store, name);
    if (parameter == NULL) fail_msg("there is no %s", name);
    return ls_parameter_master(b->store, parameter);
}

static double dot(const double *a, const double *b, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

/* y = weight x + bias of one row. */
static void product(const bench *b, const char *name, const double *x, double y[WIDE]) {
    char full[32];
    snprintf(full, sizeof full, "memory.%s.weight", name);
    const double *weight = master(b, full);
    snprintf(full, sizeof full, "memory.%s.bias", name);
    const double *bias = master(b, full);
    for (int i = 0; i < WIDE; i++) y[i] = dot(weight + i * WIDE, x, WIDE) + bias[i];
}

static void unit(double x[WIDE]) {
    const double length = sqrt(dot(x, x, WIDE));
    for (int i = 0; i < WIDE; i++) x[i] /= length;
}

/* One slot after a segment, as the paper defines it. */
static void define(const bench *b, const double *carried, const double *rows, int slot,
                   double temperature, double out[WIDE]) {
    enum { HALF = WIDE / 2 };
    double own[WIDE], q[WIDE], k[LONG + 1][WIDE], v[LONG + 1][WIDE];
    memcpy(own, carried + slot * WIDE, sizeof own);
    unit(own);
    product(b, "q", own, q);
    product(b, "k", own, k[0]);
    memcpy(v[0], own, sizeof own);
    for (int j = 0; j < LONG; j++) {
        product(b, "k", rows + j * WIDE, k[j + 1]);
        product(b, "v", rows + j * WIDE, v[j + 1]);
    }
    for (int h = 0; h < WIDE; h += HALF) {
        double weight[LONG + 1], sum = 0;
        for (int j = 0; j <= LONG; j++)
            sum += weight[j] = exp(dot(q + h, k[j] + h, HALF) / (sqrt(HALF) * temperature));
        for (int i = h; i < h + HALF; i++) {
            out[i] = master(b, "memory.start")[slot * WIDE + i];
            for (int j = 0; j <= LONG; j++) out[i] += weight[j] / sum * v[j][i];
        }
    }
    unit(out);
}

static void test_definition(void **unused) {
    (void)unused;
    ls_ctx ctx = ctx_of_one_thread();
    const alone what = slots_alone(LS_UPDATE_NORM, true, 0.4, 1);
    bench b = bench_alone(&ctx, &what, false);
    double *x = normal_numbers(FEW * WIDE, 3), *rows = normal_numbers(LONG * WIDE, 4), want[WIDE];
    expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
    double *got = read_all(ls_program_find(b.program, "y"));
    for (int slot = 0; slot < FEW; slot++) {
        define(&b, x, rows, slot, 0.4, want);
        near("slot", got + slot * WIDE, want, WIDE, 1e-13);
        assert_true(fabs(dot(got + slot * WIDE, got + slot * WIDE, WIDE) - 1) < 1e-14);
    }
    /* a slot knows nothing of another's content */
    for (int i = 0; i < WIDE; i++) put(ls_program_find(b.program, "x"), WIDE + i, i * i - 3.0);
    expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
    double *other = read_all(ls_program_find(b.program, "y"));
    for (int slot = 0; slot < FEW; slot++) {
        int differs = memcmp(got + slot * WIDE, other + slot * WIDE, WIDE * sizeof *got) != 0;
        assert_int_equal(differs, slot == 1);
    }
    free(x), free(rows), free(got), free(other);
    bench_free(&b);
}

static void test_gradients(void **unused) {
    (void)unused;
    ls_ctx ctx = ctx_of_one_thread();
    for (int update = LS_UPDATE_NORM; update <= LS_UPDATE_GRU; update++) {
        const alone what = slots_alone((ls_memory_update)update, true, 0.7, 2);
        bench b = bench_alone(&ctx, &what, true);
        double *cot = normal_numbers(FEW * WIDE, 5);
        put_values(&b, "cot", cot);
        ls_parameters_clear_gradient(b.store);
        expect(&ctx, ls_program_run(b.program, NULL, 1, 1));
        const size_t bytes = (size_t)b.store->total * sizeof(double);
        double *gradient = malloc(bytes);
        memcpy(gradient, b.store->gradient, bytes);
        for (size_t i = 0; i < b.store->count; i++) {
            const ls_parameter *parameter = &b.store->items[i];
            check_differences(&b, "slots", parameter->name, ls_parameter_master(b.store, parameter),
                              gradient + parameter->offset, parameter->count, 7);
        }
        free(gradient);
        free(cot);
        bench_free(&b);
    }
}

/* Several updates are several segments with the same rows. */
static void test_updates(void **unused) {
    (void)unused;
    ls_ctx ctx = ctx_of_one_thread();
    for (int update = LS_UPDATE_NORM; update <= LS_UPDATE_GRU; update++) {
        double *y[3];
        for (int i = 0; i < 3; i++) {
            alone what = slots_alone((ls_memory_update)update, true, 0.7, i == 0 ? 3 : 1);
            what.about.memory_updates = i == 1 ? 3 : 1;
            bench b = bench_alone(&ctx, &what, false);
            expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
            y[i] = read_all(ls_program_find(b.program, "y"));
            bench_free(&b);
        }
        assert_memory_equal(y[1], y[0], FEW * WIDE * sizeof *y[0]);
        assert_memory_not_equal(y[2], y[0], FEW * WIDE * sizeof *y[0]);
        for (int i = 0; i < 3; i++) free(y[i]);
    }
}

/* Where slots attend to themselves alone they go to their biases; without biases they stay. */
static void test_forgetting(void **unused) {
    (void)unused;
    ls_ctx ctx = ctx_of_one_thread();
    for (int biased = 0; biased < 2; biased++) {
        const alone what = slots_alone(LS_UPDATE_NORM, false, 1e-3, 1000);
        bench b = bench_alone(&ctx, &what, false);
        double *want = normal_numbers(FEW * WIDE, 3), *start = master(&b, "memory.start");
        if (biased)
            memcpy(want, start, FEW * WIDE * sizeof *want);
        else
            memset(start, 0, FEW * WIDE * sizeof *want);
        for (int i = 0; i < WIDE * WIDE; i++) /* a slot's own score is high, those of zeros are 0 */
            master(&b, "memory.q.weight")[i] = master(&b, "memory.k.weight")[i] =
                i % WIDE == i / WIDE ? 8 : 0;
        for (int64_t i = 0; i < LONG * WIDE; i++) put(ls_program_find(b.program, "rows"), i, 0);
        expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
        double *got = read_all(ls_program_find(b.program, "y"));
        for (int slot = 0; slot < FEW; slot++) {
            unit(want + slot * WIDE);
            near(biased ? "forgotten" : "kept", got + slot * WIDE, want + slot * WIDE, WIDE, 1e-12);
        }
        free(want), free(got);
        bench_free(&b);
    }
}

/* ---- whole models ---- */

static const char *const variants[] = {
    "",
    "model.memory_temperature=0.3 model.norm_place=post",
    "model.memory_update=plain model.memory_heads=1",
    "model.memory_update=gru model.memory_updates=2",
    "model.memory_encoder=1 model.layers=3 model.position=t5",
};

static ls_model *make(ls_ctx *ctx, const char *words, ls_model_config *config) {
    char all[512];
    snprintf(all, sizeof all,
             "model.layers=2 model.width=16 mixer.heads=2 model.vocabulary=29 model.segment=6 "
             "model.memory=3 model.memory_kind=slots model.memory_heads=2 %s",
             words);
    expect(ctx, ls_model_config_read_words(ctx, all, config));
    ls_model *made;
    expect(ctx, ls_model_new(ctx, config, LS_F64, 3, true, &made));
    fill_parameters(made->store); /* large ones, so that nothing hides */
    return made;
}

/* However a stream is fed, its losses are the same; segments know of one another through memory
 * alone, and nothing looks ahead. */
static void test_any_cut(void **unused) {
    (void)unused;
    enum { COUNT = 27 };
    ls_ctx ctx = ctx_of_one_thread();
    int32_t tokens[COUNT + 1];
    double want[COUNT], got[COUNT];
    for (int i = 0; i <= COUNT; i++) tokens[i] = (i * 7 + i * i / 3) % 29;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        ls_model_config config;
        ls_model *made = make(&ctx, variants[i], &config);
        for (int cut = 0; cut < 5; cut++) {
            static const int64_t chunks[] = {COUNT, 1, 4, 6, 13};
            ls_stream *stream;
            expect(&ctx, ls_stream_new(made, 1, COUNT, chunks[cut] < 6 ? 6 : chunks[cut], &stream));
            for (int64_t at = 0; at < COUNT; at += chunks[cut]) {
                int64_t count = ls_min(chunks[cut], COUNT - at);
                expect(&ctx, ls_stream_loss(stream, tokens + at, tokens + at + 1, count, count,
                                            (cut == 0 ? want : got) + at));
            }
            ls_stream_free(stream);
            if (cut > 0) near(variants[i], got, want, COUNT, 1e-13);
        }
        /* another token in the first segment is noticed in the fourth, and not before it */
        tokens[2] = (tokens[2] + 5) % 29;
        ls_stream *stream;
        expect(&ctx, ls_stream_new(made, 1, COUNT, COUNT, &stream));
        expect(&ctx, ls_stream_loss(stream, tokens, tokens + 1, COUNT, COUNT, got));
        ls_stream_free(stream);
        tokens[2] = (tokens[2] + 24) % 29;
        assert_memory_equal(got, want, sizeof *got);
        double change = 0;
        for (int t = 18; t < 24; t++) change = fmax(change, fabs(got[t] - want[t]));
        if (!(change > 1e-7)) fail_msg("%s: memory carries nothing", variants[i]);
        ls_model_free(made);
        ls_model_config_clear(&ctx, &config);
    }
}

/* Gradients of a program of `length` tokens, free() them; and the bytes that it takes. */
static double *gradients(ls_model *made, int64_t length, bool replay, size_t *bytes) {
    ls_ctx *ctx = made->ctx;
    ls_program *program;
    ls_program_options options = {.batch = 2, .length = length, .recompute = replay};
    expect(ctx, ls_model_program(made, LS_MODEL_TRAIN, options, &program));
    *bytes = ls_program_bytes(program);
    ls_program_poison(program);
    for (int64_t i = 0; i < 2 * length; i++) {
        put(ls_program_find(program, "tokens"), i, (double)(i * i % 29));
        put(ls_program_find(program, "targets"), i, (double)((i + 1) * (i + 1) % 29));
        put(ls_program_find(program, "weights"), i, 1);
    }
    ls_parameters_clear_gradient(made->store);
    expect(ctx, ls_program_run(program, NULL, 5, 2));
    ls_program_free(program);
    size_t size = (size_t)made->store->total * sizeof(double);
    double *copy = malloc(size);
    memcpy(copy, made->store->gradient, size);
    return copy;
}

static void test_replay(void **unused) {
    (void)unused;
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        char words[128];
        ls_model_config config;
        size_t kept[2], replayed[2];
        snprintf(words, sizeof words, "%s model.dropout=0.2", variants[i]);
        ls_model *made = make(&ctx, words, &config);
        for (int horizon = 0; horizon < 2; horizon++) {
            const int64_t length = horizon == 0 ? 24 : 96;
            double *want = gradients(made, length, false, &kept[horizon]);
            double *got = gradients(made, length, true, &replayed[horizon]);
            assert_memory_equal(got, want, (size_t)made->store->total * sizeof *got);
            free(want), free(got);
        }
        print_message("%s: 12 more segments take %zu bytes kept, %zu replayed\n", variants[i],
                      kept[1] - kept[0], replayed[1] - replayed[0]);
        assert_true(kept[1] - kept[0] > 6 * (replayed[1] - replayed[0]));
        ls_model_free(made);
        ls_model_config_clear(&ctx, &config);
    }
}

static void test_refusals(void **unused) {
    (void)unused;
    static const char *const bad[] = {
        "model.memory=0",
        "model.memory_heads=3",
        "model.memory_encoder=2",
        "model.memory_kind=rows model.memory_encoder=1",
        "model.memory_encoder=1 model.layers=mamba,attention",
    };
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_settings settings = {0};
        ls_model_config config;
        char all[256];
        snprintf(all, sizeof all,
                 "model.layers=2 model.width=16 mixer.heads=2 model.vocabulary=29 model.segment=6 "
                 "model.memory=3 model.memory_kind=slots model.memory_heads=2 %s",
                 bad[i]);
        expect(&ctx, ls_settings_put_words(&ctx, &settings, all));
        if (ls_model_config_read(&ctx, &settings, &config) != LS_EUSE)
            fail_msg("%s is not refused", bad[i]);
        ls_settings_clear(&ctx, &settings);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition), cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_forgetting), cmocka_unit_test(test_updates),
        cmocka_unit_test(test_any_cut),    cmocka_unit_test(test_replay),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
