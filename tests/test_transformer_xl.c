/* Transformer-XL: memory over the whole past is the full pass; any cut of a stream; what memory
 * rows do to gradients; same_length is a window; the published number of parameters. (The public
 * model's numbers: tests/golden/cases.txt.) */
#include "memory_fixture.h"
#include "model/model.h"

enum { LAYERS = 2, D = 16, HIDDEN = 24, TOKENS = 37 };

extern const ls_mixer_type ls_mixer_transformer_xl, ls_mixer_attention;

/* ---- the whole model: embedding, post-norm blocks, loss ---- */

static ls_tensor *norm(ls_program *p, const char *name, ls_tensor *x, ls_tensor *delta) {
    ls_scope(p, "%s", name);
    ls_tensor *gain = ls_param(p, "weight", LS_DIMS(D), ls_init_gain());
    ls_tensor *bias = ls_param(p, "bias", LS_DIMS(D), ls_init_bias());
    ls_scope_end(p);
    return ls_residual_norm(p, LS_NORM_LAYER, 1e-5, x, delta, gain, bias, NULL);
}

static ls_tensor *linear(ls_program *p, const char *name, ls_tensor *x, int64_t out) {
    int64_t in = x == NULL ? 1 : x->dim[x->rank - 1];
    ls_scope(p, "%s", name);
    ls_tensor *weight = ls_param(p, "weight", LS_DIMS(out, in), ls_init_normal(0.02));
    ls_tensor *bias = ls_param(p, "bias", LS_DIMS(out), ls_init_bias());
    ls_scope_end(p);
    return ls_linear(p, x, weight, bias);
}

/* Keeps the inputs of all layers as x.0, x.1 and the last output as y. */
static void record_model(ls_program *p, const void *about) {
    const ls_mixer *mixer = about;
    const ls_program_options *o = ls_program_about(p);
    ls_tensor *tokens = ls_input(p, "tokens", LS_I32, LS_DIMS(o->batch, o->length), false);
    ls_tensor *targets = ls_input(p, "targets", LS_I32, LS_DIMS(o->batch, o->length), false);
    ls_tensor *weights =
        ls_input(p, "weights", ls_wide_type(p), LS_DIMS(o->batch, o->length), false);
    ls_tensor *table = ls_param(p, "embed.weight", LS_DIMS(TOKENS, D), ls_init_normal(0.02));
    ls_tensor *x = ls_times(p, ls_embed(p, tokens, table), 4);
    for (int layer = 0; layer < LAYERS; layer++) {
        char name[8];
        snprintf(name, sizeof name, "x.%d", layer);
        ls_keep(p, name, x);
        ls_scope(p, "layers.%d", layer);
        ls_scope(p, "mixer");
        ls_tensor *mixed = mixer->type->forward(p, mixer, x);
        ls_scope_end(p);
        x = norm(p, "norm1", x, mixed);
        ls_tensor *hidden = ls_activate(p, LS_ACT_RELU, false, linear(p, "up", x, HIDDEN));
        x = norm(p, "norm2", x, linear(p, "down", hidden, D));
        ls_scope_end(p);
    }
    ls_keep(p, "y", x);
    ls_tensor *bias = ls_param(p, "head.bias", LS_DIMS(TOKENS), ls_init_bias());
    ls_keep(p, "loss", ls_linear_cross_entropy(p, x, table, bias, targets, weights, 0, 0));
}

static double *master(const bench *b, const char *name) {
    return ls_parameter_master(b->store, ls_parameters_find(b->store, name));
}

/* ---- one layer ---- */

static const char *const variants[] = {
    "heads=2 segment=13 memory=20",
    "heads=2 segment=13 memory=0 head_width=5",
    "heads=4 segment=1 memory=9 untied=true",
    "heads=1 segment=50 memory=7 clamp_len=11",
    "heads=2 segment=7 memory=17 same_length=true",
};

static void test_any_cut(void **unused) {
    (void)unused;
    ls_ctx ctx = ctx_of_one_thread();
    check_any_cut(&ctx, &ls_mixer_transformer_xl, D, variants,
                  sizeof variants / sizeof variants[0]);
}

static void test_segments_matter(void **unused) {
    (void)unused;
    enum { ROWS = 60 };
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(ROWS * D, 4), *y[3];
    static const char *const words[] = {"heads=2 segment=13 memory=10",
                                        "heads=2 segment=7 memory=10",
                                        "heads=2 segment=13 memory=10 clamp_len=22"};
    for (int i = 0; i < 3; i++) {
        ls_mixer mixer = choose(&ctx, &ls_mixer_transformer_xl, D, words[i]);
        y[i] = outputs(&ctx, &mixer, LS_F64, x, ROWS, 0, false);
        mixer_release(&mixer);
    }
    assert_true(nmse(y[1], y[0], ROWS * D) > 1e-6);
    assert_memory_equal(y[2], y[0], ROWS * D * sizeof *x); /* no distance is beyond 22 */
    for (int i = 0; i < 3; i++) free(y[i]);
    free(x);
}

/* Attention with a window, or all of the past, and the same weights. */
static void test_same_length_is_a_window(void **unused) {
    (void)unused;
    enum { ROWS = 61, HE = D };
    static const struct {
        const char *xl, *attention;
    } pairs[] = {{"heads=2 same_length=true memory=12 segment=9", "heads=2 window=12"},
                 {"heads=2 segment=9 memory=1000", "heads=2"}};
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(ROWS * D, 6);
    for (int i = 0; i < 2; i++) {
        ls_mixer xl = choose(&ctx, &ls_mixer_transformer_xl, D, pairs[i].xl);
        ls_position position;
        expect(&ctx, ls_position_choose(&ctx, "xl_relative", &position));
        ls_mixer plain = choose(&ctx, &ls_mixer_attention, D, pairs[i].attention);
        plain.position = &position;
        ls_program_options options = {.type = LS_F64, .batch = 1, .length = ROWS};
        subject a = {"transformer_xl", record_layer, &xl}, c = {"attention", record_layer, &plain};
        bench ours = bench_new(&ctx, &a, options), theirs = bench_new(&ctx, &c, options);
        double *qkv = master(&theirs, "qkv.weight");
        memcpy(qkv, master(&ours, "q.weight"), HE * D * sizeof *qkv);
        memcpy(qkv + HE * D, master(&ours, "kv.weight"), 2 * HE * D * sizeof *qkv);
        put_values(&ours, "x", x);
        put_values(&theirs, "x", x);
        expect(&ctx, ls_program_run(ours.program, NULL, 0, 0));
        expect(&ctx, ls_program_run(theirs.program, NULL, 0, 0));
        double *got = read_all(ls_program_find(ours.program, "y"));
        double *want = read_all(ls_program_find(theirs.program, "y"));
        assert_true(nmse(got, want, ROWS * D) <= 1e-28);
        free(got), free(want);
        bench_free(&ours);
        bench_free(&theirs);
        ls_position_clear(&ctx, &position);
        mixer_release(&xl);
        mixer_release(&plain);
    }
    free(x);
}

/* ---- two layers with everything remembered ---- */

static void test_whole_past_is_full_pass(void **unused) {
    (void)unused;
    enum { ROWS = 40 };
    ls_ctx ctx = ls_ctx_default();
    ls_mixer full = choose(&ctx, &ls_mixer_transformer_xl, D, "heads=2 segment=1000 memory=0");
    ls_mixer cut = choose(&ctx, &ls_mixer_transformer_xl, D, "heads=2 segment=8 memory=1000");
    subject whole = {"full", record_model, &full}, parts = {"cut", record_model, &cut};
    bench a =
        bench_new(&ctx, &whole, (ls_program_options){.type = LS_F64, .batch = 1, .length = ROWS});
    for (int64_t i = 0; i < ROWS; i++)
        put(ls_program_find(a.program, "tokens"), i, (double)(i * i % TOKENS)),
            put(ls_program_find(a.program, "targets"), i, 0);
    expect(&ctx, ls_program_run(a.program, NULL, 0, 0));
    for (int64_t length = 8; length >= 2; length -= 6) {
        ls_program_options options = {.type = LS_F64,
                                      .batch = 1,
                                      .length = length,
                                      .grad = length == 8, /* as in training, and as at test */
                                      .streaming = true,
                                      .capacity = ROWS,
                                      .chunk_max = length};
        bench b = bench_new(&ctx, &parts, options);
        for (int64_t at = 0; at < ROWS; at += length) {
            for (int64_t i = 0; i < length; i++)
                put(ls_program_find(b.program, "tokens"), i,
                    (double)((at + i) * (at + i) % TOKENS)),
                    put(ls_program_find(b.program, "targets"), i, 0);
            expect(&ctx, ls_program_run(b.program, b.state, 0, 0));
            static const char *const names[] = {"x.0", "x.1", "y"};
            for (int i = 0; i < 3; i++) {
                double *want = read_all(ls_program_find(a.program, names[i]));
                double *got = read_all(ls_program_find(b.program, names[i]));
                near(names[i], got, want + at * D, length * D, 1e-11);
                free(want), free(got);
            }
        }
        bench_free(&b);
    }
    bench_free(&a);
    mixer_release(&full);
    mixer_release(&cut);
}

/* ---- gradients with a memory that is not empty ---- */

typedef struct remembered {
    bench b;
    ls_text state; /* after the first segment */
    double *x, *cot;
} remembered;

static remembered remember(ls_ctx *ctx, const ls_mixer *mixer, ls_dtype type, int64_t L) {
    subject what = {"transformer_xl", record_layer, mixer};
    remembered r = {.x = normal_numbers(2 * L * D, 8), .cot = normal_numbers(L * D, 3)};
    r.b = bench_new(ctx, &what,
                    (ls_program_options){.type = type,
                                         .batch = 1,
                                         .length = L,
                                         .grad = true,
                                         .streaming = true,
                                         .capacity = 2 * L,
                                         .chunk_max = L});
    put_values(&r.b, "cot", r.cot);
    put_values(&r.b, "x", r.x);
    expect(ctx, ls_program_run(r.b.program, r.b.state, 0, 0));
    expect(ctx, ls_state_save(ctx, r.b.state, &r.state));
    put_values(&r.b, "x", r.x + L * D);
    return r;
}

/* The objective of the second segment, the first one's rows being given. */
static double second(remembered *r) {
    expect(r->b.ctx, ls_state_load(r->b.ctx, r->b.state, r->state.bytes, r->state.length));
    return objective(&r->b);
}

static void forget(ls_ctx *ctx, remembered *r) {
    ls_text_clear(ctx, &r->state);
    free(r->x), free(r->cot);
    bench_free(&r->b);
}

static void test_memory_rows_in_gradients(void **unused) {
    (void)unused;
    enum { L = 11 };
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < 2; i++) {
        ls_mixer mixer =
            choose(&ctx, &ls_mixer_transformer_xl, D,
                   i == 0 ? "heads=2 segment=11 memory=8" : "heads=2 memory=15 same_length=true");
        remembered r = remember(&ctx, &mixer, LS_F64, L);
        ls_parameters_clear_gradient(r.b.store);
        second(&r);
        double *gradient = malloc((size_t)r.b.store->total * sizeof *gradient);
        memcpy(gradient, r.b.store->gradient, (size_t)r.b.store->total * sizeof *gradient);
        for (size_t j = 0; j < r.b.store->count; j++) {
            const ls_parameter *parameter = &r.b.store->items[j];
            double *values = ls_parameter_master(r.b.store, parameter);
            for (int64_t at = 0; at < parameter->count; at += ls_max(1, parameter->count / 7)) {
                double kept = values[at], h = 1e-5;
                values[at] = kept + h;
                double above = second(&r);
                values[at] = kept - h;
                double below = second(&r);
                values[at] = kept;
                double numeric = (above - below) / (2 * h), got = gradient[parameter->offset + at];
                if (!(fabs(numeric - got) <= 1e-7 * fmax(1, fabs(numeric))))
                    fail_msg("%s[%lld]: %.10g, differences give %.10g", parameter->name,
                             (long long)at, got, numeric);
            }
        }
        subject what = {"transformer_xl", record_layer, &mixer};
        if (!device_can(&ctx, &what, (ls_program_options){.batch = 1, .length = 3})) {
            free(gradient);
            forget(&ctx, &r);
            mixer_release(&mixer);
            continue;
        }
        /* the fast types see the same memory rows */
        remembered fast = remember(&ctx, &mixer, LS_F32, L);
        ls_parameters_clear_gradient(fast.b.store);
        second(&fast);
        double *narrow = malloc((size_t)r.b.store->total * sizeof *narrow);
        for (int64_t j = 0; j < r.b.store->total; j++)
            narrow[j] = (double)((float *)fast.b.store->gradient)[j];
        assert_true(nmse(narrow, gradient, r.b.store->total) <= 1e-9);
        free(narrow), free(gradient);
        forget(&ctx, &fast);
        forget(&ctx, &r);
        mixer_release(&mixer);
    }
}

static void test_memory_is_a_constant(void **unused) {
    (void)unused;
    enum { L = 6 };
    ls_ctx ctx = ls_ctx_default();
    ls_mixer mixer = choose(&ctx, &ls_mixer_transformer_xl, D, "heads=1 segment=6 memory=6");
    remembered r = remember(&ctx, &mixer, LS_F64, L);
    double before = second(&r);
    /* rows of the first segment move the second's objective, but no gradient goes to them: all that
     * comes is the chunk's own, the same as with the memory's rows as plain inputs */
    r.x[3] += 0.5;
    ls_state_reset(r.b.state);
    put_values(&r.b, "x", r.x);
    expect(&ctx, ls_program_run(r.b.program, r.b.state, 0, 0));
    put_values(&r.b, "x", r.x + L * D);
    double after = objective(&r.b);
    assert_true(fabs(after - before) > 1e-6);
    subject what = {"transformer_xl", record_layer, &mixer};
    bench whole =
        bench_new(&ctx, &what,
                  (ls_program_options){.type = LS_F64, .batch = 1, .length = 2 * L, .grad = true});
    put_values(&whole, "x", r.x);
    for (int64_t i = 0; i < 2 * L * D; i++)
        put(ls_program_find(whole.program, "cot"), i, i < L * D ? 0 : r.cot[i - L * D]);
    ls_parameters_clear_gradient(whole.store);
    expect(&ctx, ls_program_run(whole.program, NULL, 0, 0));
    ls_parameters_clear_gradient(r.b.store);
    ls_state_reset(r.b.state);
    put_values(&r.b, "x", r.x);
    expect(&ctx, ls_program_run(r.b.program, r.b.state, 0, 0));
    ls_parameters_clear_gradient(r.b.store);
    put_values(&r.b, "x", r.x + L * D);
    objective(&r.b);
    /* one layer: its inputs are given, so weights see no border between segments */
    assert_true(nmse(r.b.store->gradient, whole.store->gradient, whole.store->total) <= 1e-26);
    double *dx = read_all(ls_program_find(whole.program, "grad.x"));
    double *chunk = read_all(ls_program_find(r.b.program, "grad.x"));
    assert_true(nmse(chunk, dx + L * D, L * D) <= 1e-26);
    free(dx), free(chunk);
    bench_free(&whole);
    forget(&ctx, &r);
    mixer_release(&mixer);
}

static void test_number_of_parameters(void **unused) {
    (void)unused;
    static const char *const settings[][2] = {{"model.mixer", "transformer_xl"},
                                              {"model.layers", "4"},
                                              {"model.width", "128"},
                                              {"model.hidden", "256"},
                                              {"model.vocabulary", "10"},
                                              {"model.norm_place", "post"},
                                              {"model.activation", "relu"},
                                              {"model.position", "none"},
                                              {"mixer.heads", "4"},
                                              {"mixer.head_width", "64"},
                                              {"model.scale_embedding", "true"}};
    ls_ctx ctx = ls_ctx_default();
    ls_settings all = {0};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        expect(&ctx, ls_settings_put(&ctx, &all, settings[i][0], settings[i][1]));
    ls_model_config config;
    ls_model *planned;
    expect(&ctx, ls_model_config_read(&ctx, &all, &config));
    expect(&ctx, ls_model_plan(&ctx, &config, LS_F32, false, &planned));
    /* the published copy-task model, less the head's bias for its ten tokens */
    assert_int_equal(ls_parameters_elements(planned->store), 922890 - 10);
    ls_model_free(planned);
    ls_model_config_clear(&ctx, &config);
    ls_settings_clear(&ctx, &all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_cut),
        cmocka_unit_test(test_segments_matter),
        cmocka_unit_test(test_same_length_is_a_window),
        cmocka_unit_test(test_whole_past_is_full_pass),
        cmocka_unit_test(test_memory_rows_in_gradients),
        cmocka_unit_test(test_memory_is_a_constant),
        cmocka_unit_test(test_number_of_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
