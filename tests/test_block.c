/* Forms of blocks against their formulas, written out here operation by operation; which wrap and
 * head serve a model; what is refused. (Gradients against differences and streams against whole
 * passes of every form: test_model.c.) */
#include "harness.h"

#include "model/head.h"
#include "model/layers.h"
#include "model/model.h"
#include "model/wrap.h"

enum { B = 2, T = 7, D = 16, WORDS = 19 };

static ls_status read_words(ls_ctx *ctx, const char *words, ls_model_config *config) {
    ls_settings settings = {0};
    expect(ctx, ls_settings_put_words(ctx, &settings, words));
    ls_status status = ls_model_config_read(ctx, &settings, config);
    ls_settings_clear(ctx, &settings);
    return status;
}

/* ---- formulas ---- */

static ls_tensor *N(ls_program *p, const ls_model_config *config, const char *name, ls_tensor *x) {
    return ls_layer_norm(p, &config->model, name, x, NULL, NULL);
}

/* The mixer of a layer, and its feed-forward layer. */
static ls_tensor *A(ls_program *p, const ls_model_config *config, int64_t layer, ls_tensor *x) {
    const ls_mixer mixer = ls_model_mixer(config, layer);
    ls_scope(p, "mixer");
    ls_tensor *y = ls_mixer_record(p, &mixer, x);
    ls_scope_end(p);
    return y;
}
static ls_tensor *M(ls_program *p, const ls_model_config *config, ls_tensor *x) {
    return ls_feed_forward(p, &config->model, x);
}

typedef ls_tensor *block(ls_program *p, const ls_model_config *c, int64_t layer, ls_tensor *x);

static ls_tensor *pre(ls_program *p, const ls_model_config *c, int64_t layer, ls_tensor *x) {
    x = ls_plus(p, x, A(p, c, layer, N(p, c, "norm1", x)));
    return ls_plus(p, x, M(p, c, N(p, c, "norm2", x)));
}
static ls_tensor *post(ls_program *p, const ls_model_config *c, int64_t layer, ls_tensor *x) {
    x = N(p, c, "norm1", ls_plus(p, x, A(p, c, layer, x)));
    return N(p, c, "norm2", ls_plus(p, x, M(p, c, x)));
}
static ls_tensor *sandwich(ls_program *p, const ls_model_config *c, int64_t layer, ls_tensor *x) {
    x = ls_plus(p, x, N(p, c, "norm1_after", A(p, c, layer, N(p, c, "norm1", x))));
    return ls_plus(p, x, N(p, c, "norm2_after", M(p, c, N(p, c, "norm2", x))));
}
static ls_tensor *branch(ls_program *p, const ls_model_config *c, int64_t layer, ls_tensor *x) {
    x = ls_plus(p, x, N(p, c, "norm1_after", A(p, c, layer, x)));
    return ls_plus(p, x, N(p, c, "norm2_after", M(p, c, x)));
}
static ls_tensor *one_norm(ls_program *p, const ls_model_config *c, int64_t layer, ls_tensor *x) {
    ls_tensor *n = N(p, c, "norm1", x);
    return ls_plus(p, x, ls_plus(p, A(p, c, layer, n), M(p, c, n)));
}
static ls_tensor *two_norms(ls_program *p, const ls_model_config *c, int64_t layer, ls_tensor *x) {
    ls_tensor *a = A(p, c, layer, N(p, c, "norm1", x)), *m = M(p, c, N(p, c, "norm2", x));
    return ls_plus(p, x, ls_plus(p, a, m));
}
static ls_tensor *both(ls_program *p, const ls_model_config *c, int64_t layer, ls_tensor *x) {
    ls_tensor *n = N(p, c, "norm1", x);
    ls_tensor *a = N(p, c, "norm1_after", A(p, c, layer, n));
    return ls_plus(p, x, ls_plus(p, a, N(p, c, "norm2_after", M(p, c, n))));
}
static ls_tensor *normed(ls_program *p, const ls_model_config *c, int64_t layer, ls_tensor *x) {
    x = N(p, c, "norm1", x);
    x = N(p, c, "norm2", ls_plus(p, x, A(p, c, layer, x)));
    return ls_plus(p, x, M(p, c, x));
}

/* Sub-LayerNorm's feed-forward layer. */
static ls_tensor *inner(ls_program *p, const ls_model_config *c, int64_t layer, ls_tensor *x) {
    const ls_model_settings *about = &c->model;
    x = ls_plus(p, x, A(p, c, layer, N(p, c, "norm1", x)));
    ls_tensor *n = N(p, c, "norm2", x);
    ls_scope(p, "ffn");
    ls_tensor *up = ls_project(p, about, "up", n, ls_hidden_width(about), about->bias);
    ls_tensor *weight = ls_param(p, "norm.weight", LS_DIMS(ls_hidden_width(about)), ls_init_gain());
    ls_tensor *y =
        ls_residual_norm(p, LS_NORM_RMS, about->epsilon, ls_activate(p, LS_ACT_GELU, false, up),
                         NULL, weight, NULL, NULL);
    y = ls_project(p, about, "down", y, about->width, about->bias);
    ls_scope_end(p);
    return ls_plus(p, x, y);
}

static const struct {
    const char *words;
    block *formula;
    int norms; /* of a layer */
} forms[] = {
    {"model.norm_place=pre", pre, 2},
    {"model.norm_place=post", post, 2},
    {"model.norm_place=sandwich", sandwich, 4},
    {"model.norm_place=branch", branch, 2},
    {"model.parallel=one_norm", one_norm, 1},
    {"model.parallel=two_norms", two_norms, 2},
    {"model.norm_place=sandwich model.parallel=one_norm", both, 3},
    {"model.residual=normed", normed, 2},
    {"model.norm_weight=false", pre, 0},
    {"model.inner_norm=true", inner, 2},
};

static void put_tokens(const ls_program *program, int64_t count) {
    const ls_tensor *tokens = ls_program_find(program, "tokens");
    const ls_tensor *targets = ls_program_find(program, "targets");
    for (int64_t i = 0; i < count; i++) put(tokens, i, (double)((i * 7 + i / 5) % WORDS));
    for (int64_t i = 0; targets != NULL && i < count; i++) put(targets, i, -1);
}

static void check_form(ls_ctx *ctx, const char *words, block *formula, int norms) {
    char all[512];
    ls_model_config config;
    ls_model *model;
    ls_program *got, *want;
    const ls_program_options options = {.type = LS_F64, .batch = B, .length = T};
    snprintf(all, sizeof all,
             "model.layers=2 model.width=%d mixer.heads=2 model.position=rope model.vocabulary=%d "
             "model.norm=rms %s",
             D, WORDS, words);
    expect(ctx, read_words(ctx, all, &config));
    expect(ctx, ls_model_new(ctx, &config, LS_F64, 1, false, &model));
    fill_parameters(model->store);
    int found = 0;
    for (size_t i = 0; i < model->store->count; i++)
        found += strstr(model->store->items[i].name, "layers.0.norm") != NULL;
    if (found != norms) fail_msg("%s: a block has %d norms, not %d", words, found, norms);

    expect(ctx, ls_model_record(model, &(ls_recording){.use = LS_MODEL_OBSERVED}, options, &got));
    put_tokens(got, B * T);
    expect(ctx, ls_program_run(got, NULL, 0, 0));

    expect(ctx, ls_program_new(ctx, &options, model->store, &want));
    ls_tensor *tokens = ls_input(want, "tokens", LS_I32, LS_DIMS(B, T), false);
    ls_tensor *table = ls_param(want, "embed.weight", LS_DIMS(WORDS, D), ls_init_normal(1));
    ls_tensor *x = ls_embed(want, tokens, table);
    for (int64_t layer = 0; layer < 2; layer++) {
        ls_scope(want, "layers.%d", (int)layer);
        x = formula(want, &config, layer, x);
        ls_scope_end(want);
    }
    if (formula != post) x = N(want, &config, "norm", x);
    ls_keep(want, "rows", x);
    expect(ctx, ls_program_finish(want));
    put_tokens(want, B * T);
    expect(ctx, ls_program_run(want, NULL, 0, 0));

    const ls_tensor *rows = ls_program_find(got, "rows"), *same = ls_program_find(want, "rows");
    for (int64_t i = 0; i < B * T * D; i++)
        if (!(fabs(get(rows, i) - get(same, i)) <= 1e-12))
            fail_msg("%s: row %lld is %.15g, the formula gives %.15g", words, (long long)(i / D),
                     get(rows, i), get(same, i));
    ls_program_free(got);
    ls_program_free(want);
    ls_model_free(model);
    ls_model_config_clear(ctx, &config);
}

static void test_forms(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        check_form(&ctx, forms[i].words, forms[i].formula, forms[i].norms);
}

/* ---- registries ---- */

/* Every model has one wrap and one head. */
static void test_one_serves(void **state) {
    (void)state;
    static const struct {
        const char *words, *wrap, *head;
    } models[] = {
        {"", "plain", "language"},
        {"model.segment=4", "rmt", "language"},
        {"model.segment=4 model.memory=2", "rmt", "language"},
        {"model.segment=4 model.memory=2 model.memory_kind=slots model.adaptive_cutoffs=5",
         "memformer", "adaptive"},
        {"model.encoder_layers=1 model.position=rope", "encoder_decoder", "language"},
        {"model.encoder_layers=1 model.position=rope model.segment=4 model.memory=2 "
         "model.memory_kind=slots",
         "encoder_decoder", "language"},
        {"model.head=classify model.causal=false model.position=rope", "plain", "classify"},
        {"model.head=match model.segment=4", "rmt", "match"},
    };
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        ls_model_config config;
        size_t wraps = 0, heads = 0;
        expect(&ctx, read_words(&ctx, models[i].words, &config));
        for (size_t j = 0; j < ls_wrap_count; j++) wraps += ls_wrap_types[j]->serves(&config);
        for (size_t j = 0; j < ls_head_count; j++) heads += ls_head_types[j]->serves(&config.model);
        assert_int_equal(wraps, 1);
        assert_int_equal(heads, 1);
        assert_string_equal(ls_wrap_of(&config)->name, models[i].wrap);
        assert_string_equal(ls_head_of(&config.model)->name, models[i].head);
        ls_model_config_clear(&ctx, &config);
    }
}

static void test_what_cannot_be_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *words, *why;
    } faults[] = {
        {"model.residual=gru model.norm_place=post", "is for model.norm_place=pre"},
        {"model.residual=normed model.norm_place=post", "is for model.norm_place=pre"},
        {"model.residual=normed model.norm_place=branch", "is for model.norm_place=pre"},
        {"model.parallel=two_norms model.norm_place=post", "is for model.norm_place=pre"},
        {"model.parallel=one_norm model.norm_place=branch", "no norm to share"},
        {"model.parallel=one_norm model.residual=gru", "is for model.residual=sum"},
        {"model.parallel=yes", "no|one_norm|two_norms"},
        {"model.parallel=two_norms model.feed_forward=false", "nothing beside it"},
        {"model.inner_norm=true model.feed_forward=false", "it needs feed_forward=true"},
        {"model.norm_bias=yes model.norm=rms", "it needs norm=layer"},
        {"model.norm_bias=no model.norm_weight=false", "it needs norm=layer"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        ls_ctx ctx = ctx_of_one_thread();
        ls_model_config config;
        assert_int_equal(read_words(&ctx, faults[i].words, &config), LS_EUSE);
        if (strstr(ctx.error.message, faults[i].why) == NULL)
            fail_msg("%s: %s", faults[i].words, ctx.error.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_one_serves),
        cmocka_unit_test(test_what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
