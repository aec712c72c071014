/* Whole models: gradients against differences, streams against whole passes.
 * Tier: unsanitized. */
#include "harness.h"

#include "model/model.h"

enum { B = 2, T = 13, WORDS = 19 };

static const char *const shapes[] = {
    "model.norm=layer model.activation=gelu model.tied=true",
    "model.norm=rms model.activation=swiglu model.tied=false model.bias=false mixer.kv_heads=1",
    "model.norm_place=post model.activation=relu2 model.scale_embedding=true mixer.bias=true",
    "model.activation=geglu model.dropout=0.2",
    "model.segment=5 model.memory=2 model.dropout=0.1",
    /* forms of blocks */
    "model.parallel=one_norm model.norm_embedding=true",
    "model.parallel=two_norms model.dropout=0.1",
    "model.norm_place=sandwich model.norm=rms",
    "model.norm_place=branch model.norm=rms model.bias=false",
    "model.residual=normed model.norm_embedding=true",
    "model.residual=gru model.norm_place=branch",
    "model.residual=gru model.norm_place=sandwich model.last_norm=false",
    "model.norm_place=sandwich model.residual=normed",
    "model.norm_weight=false model.parallel=two_norms",
    "model.norm_bias=yes model.bias=false model.parallel=one_norm model.activation=swiglu",
    "model.norm_bias=no model.inner_norm=true mixer.inner_norm=layer mixer.bias=true",
    "model.norm=rms model.inner_norm=true mixer.inner_norm=rms model.activation=geglu",
    "model.norm_place=sandwich model.parallel=one_norm model.segment=5 model.memory=2",
    "model.norm_place=branch model.parallel=two_norms",
    "model.logit_cap=0.5 model.embedding_width=5 model.position=learned position.offset=2",
    "model.embedding_width=7 model.tied=false mixer.score_cap=0.3 mixer.score_scale=0.7",
    "model.layers=attention:near,attention,attention:bare model.position=rope mixer.near.window=4 "
    "mixer.near.rope_base=100 mixer.near.positions=trained mixer.bare.positions=none "
    "mixer.qk_norm=head mixer.near.qk_norm=all mixer.near.qk_norm_kind=layer "
    "mixer.near.qk_norm_bias=true",
    "model.position=alibi position.bf16_slopes=true position.bf16_bias=true",
};

/* A small model from words; the position method is the caller's. */
static ls_model *make(ls_ctx *ctx, const char *words, const char *position, ls_dtype type,
                      ls_model_config *config) {
    char all[512];
    snprintf(all, sizeof all,
             "model.layers=2 model.width=16 mixer.heads=2 model.length=8 model.vocabulary=%d "
             "model.position=%s %s",
             WORDS, position, words);
    expect(ctx, ls_model_config_read_words(ctx, all, config));
    ls_model *model;
    expect(ctx, ls_model_new(ctx, config, type, 1, true, &model));
    fill_parameters(model->store);
    return model;
}

static double weight_of(int i) {
    return 0.1 + 0.01 * i;
}

static void put_batch(ls_model *model, ls_program *program) {
    int32_t tokens[B * T], targets[B * T];
    for (int i = 0; i < B * T; i++) {
        tokens[i] = (i * 7 + i / 5) % WORDS;
        targets[i] = i % 6 == 2 ? -1 : (i * 5 + 3) % WORDS;
    }
    expect(model->ctx, ls_model_put_tokens(model, program, "tokens", tokens));
    expect(model->ctx, ls_model_put_tokens(model, program, "targets", targets));
    ls_tensor *weights = ls_program_find(program, "weights");
    for (int i = 0; weights != NULL && i < B * T; i++) put(weights, i, weight_of(i));
}

static double weighted_loss(ls_ctx *ctx, ls_program *program) {
    expect(ctx, ls_program_run(program, NULL, 5, 2));
    double sum = 0;
    const ls_tensor *loss = ls_program_find(program, "loss");
    for (int i = 0; i < B * T; i++) sum += get(loss, i) * weight_of(i);
    return sum;
}

static void check_model(ls_ctx *ctx, const char *words, const char *position) {
    ls_model_config config;
    ls_model *model = make(ctx, words, position, LS_F64, &config);
    ls_program *program;
    expect(ctx, ls_model_program(model, LS_MODEL_TRAIN,
                                 (ls_program_options){.batch = B, .length = T}, &program));
    put_batch(model, program);
    ls_parameters_clear_gradient(model->store);
    weighted_loss(ctx, program);
    ls_parameters *store = model->store;
    double *gradient = malloc((size_t)store->total * sizeof *gradient);
    memcpy(gradient, store->gradient, (size_t)store->total * sizeof *gradient);
    /* the differences need the losses alone, but dropout falls in training only */
    ls_model_use use = strstr(words, "dropout") != NULL ? LS_MODEL_TRAIN : LS_MODEL_LOSS;
    ls_program_free(program);
    expect(ctx,
           ls_model_program(model, use, (ls_program_options){.batch = B, .length = T}, &program));
    put_batch(model, program);
    for (size_t i = 0; i < store->count; i++) {
        const ls_parameter *parameter = &store->items[i];
        double *values = ls_parameter_master(store, parameter), h = 1e-5;
        if (parameter->init.fixed) continue; /* not trained */
        for (int64_t j = 0; j < parameter->count;
             j += test_difference_stride(parameter->count, 4)) {
            double kept = values[j], slope[2];
            for (int far = 0; far < 2; far++) { /* two distances, so that curvature drops out */
                double step = (far + 1) * h;
                values[j] = kept + step;
                double above = weighted_loss(ctx, program);
                values[j] = kept - step;
                slope[far] = (above - weighted_loss(ctx, program)) / (2 * step);
            }
            values[j] = kept;
            double numeric = (4 * slope[0] - slope[1]) / 3, found = gradient[parameter->offset + j];
            if (!(fabs(numeric - found) <= 1e-6 * fmax(1, fabs(numeric))))
                fail_msg("%s, %s: gradient of %s[%lld] is %.10g, differences give %.10g", words,
                         position, parameter->name, (long long)j, found, numeric);
        }
    }
    free(gradient);
    ls_program_free(program);
    ls_model_free(model);
    ls_model_config_clear(ctx, &config);
}

/* One layer of every mixer that has such traits. */
static const char *every_mixer(unsigned traits, char words[512]) {
    size_t used = (size_t)snprintf(words, 512, "model.layers=");
    for (size_t i = 0; i < ls_mixer_count; i++)
        if ((ls_mixer_types[i]->traits & traits) == traits)
            used += (size_t)snprintf(words + used, 512 - used, "%s%s", i == 0 ? "" : ",",
                                     ls_mixer_types[i]->name);
    return words;
}

static void test_gradients(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_model(&ctx, shapes[i], "rope");
    char words[512];
    check_model(&ctx, every_mixer(LS_MIXER_CAUSAL, words), "rope");
    check_model(&ctx, "model.layers=mamba,attention model.feed_forward=false model.norm=rms",
                "alibi");
    check_model(&ctx, "model.layers=attention,mamba model.feed_forward=false model.norm_place=post",
                "learned");
    for (size_t i = 0; i < ls_position_count; i++)
        check_model(&ctx, shapes[0], ls_position_types[i]->name);
}

/* Recomputation changes what is kept, not a bit of what comes out. */
static void test_recomputation(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int type = LS_F64; type <= LS_BF16; type++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            ls_model_config config;
            ls_model *model = make(&ctx, shapes[i], "rope", (ls_dtype)type, &config);
            size_t bytes = (size_t)model->store->total * ls_dtype_size(model->store->master_type);
            void *gradient[2];
            size_t memory[2];
            for (int again = 0; again < 2; again++) {
                ls_program *program;
                ls_program_options options = {.batch = B, .length = T, .recompute = again == 1};
                expect(&ctx, ls_model_program(model, LS_MODEL_TRAIN, options, &program));
                ls_program_poison(program);
                put_batch(model, program);
                ls_parameters_clear_gradient(model->store);
                weighted_loss(&ctx, program);
                gradient[again] = memcpy(malloc(bytes), model->store->gradient, bytes);
                memory[again] = ls_program_bytes(program);
                ls_program_free(program);
            }
            assert_memory_equal(gradient[0], gradient[1], bytes);
            assert_true(memory[1] < memory[0]);
            free(gradient[0]);
            free(gradient[1]);
            ls_model_free(model);
            ls_model_config_clear(&ctx, &config);
        }
}

/* The loss of every token by a stream in chunks equals that of one pass; logits likewise. */
static void check_stream(ls_ctx *ctx, const char *words, const char *position) {
    ls_model_config config;
    ls_model *model = make(ctx, words, position, LS_F64, &config);
    ls_program *program;
    expect(ctx, ls_model_program(model, LS_MODEL_LOSS,
                                 (ls_program_options){.batch = B, .length = T}, &program));
    put_batch(model, program);
    expect(ctx, ls_program_run(program, NULL, 0, 0));
    double *want = read_all(ls_program_find(program, "loss")), got[B * T];
    const int32_t *tokens = ls_data(ls_program_find(program, "tokens"));
    const int32_t *targets = ls_data(ls_program_find(program, "targets"));
    for (int64_t chunk = 1; chunk <= T; chunk += 4) {
        ls_stream *stream;
        expect(ctx, ls_stream_new(model, B, T, chunk, &stream));
        for (int again = 0; again < 2; again++) { /* a reset stream starts anew */
            expect(ctx, ls_stream_loss(stream, tokens, targets, T, T, got));
            for (int i = 0; i < B * T; i++) assert_true(fabs(got[i] - want[i]) < 1e-10);
            ls_status full = ls_stream_loss(stream, tokens, targets, 1, T, got);
            assert_int_equal(full, LS_EUSE); /* no room: a sentence, and nothing happened */
            ctx->error = (ls_error){0};
            ls_stream_reset(stream);
        }
        ls_stream_free(stream);
    }
    free(want);
    ls_program_free(program);
    ls_model_free(model);
    ls_model_config_clear(ctx, &config);
}

static void test_streams(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_stream(&ctx, shapes[i], "xpos");
    char words[512];
    check_stream(&ctx, every_mixer(LS_MIXER_CAUSAL | LS_MIXER_STREAMING, words), "rope");
    check_stream(&ctx, "model.layers=mamba,attention,mamba model.feed_forward=false", "none");
    for (size_t i = 0; i < ls_position_count; i++)
        check_stream(&ctx, shapes[0], ls_position_types[i]->name);
}

/* Logits come out as doubles, whatever the model's type. */
static void test_stream_types(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    static const int32_t tokens[] = {3, 1, 4, 1, 5};
    double logits[LS_BF16 + 1][WORDS];
    for (int type = LS_F64; type <= LS_BF16; type++) {
        ls_model_config config;
        ls_model *model = make(&ctx, shapes[0], "rope", (ls_dtype)type, &config);
        ls_stream *stream;
        expect(&ctx, ls_stream_new(model, 1, 5, 2, &stream));
        expect(&ctx, ls_stream_logits(stream, tokens, 5, 5, logits[type]));
        ls_stream_free(stream);
        ls_model_free(model);
        ls_model_config_clear(&ctx, &config);
    }
    assert_true(nmse(logits[LS_F32], logits[LS_F64], WORDS) < 1e-9);
    assert_true(nmse(logits[LS_BF16], logits[LS_F64], WORDS) < 1e-3);
}

/* ---- descriptions ---- */

static ls_status read_words(ls_ctx *ctx, const char *words, ls_model_config *config) {
    ls_settings settings = {0};
    expect(ctx, ls_settings_put_words(ctx, &settings, words));
    ls_status status = ls_model_config_read(ctx, &settings, config);
    if (status == LS_OK) expect(ctx, ls_settings_finish(ctx, &settings, NULL));
    ls_settings_clear(ctx, &settings);
    return status;
}

static void test_hybrid_descriptions(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_model_config config, again;
    /* keys for all, and for one; a printed description is read back to the same */
    expect(&ctx, read_words(&ctx,
                            "model.layers=mamba,mamba,attention mixer.bias=true "
                            "mixer.mamba.bias=false mixer.heads=4 mixer.d_state=8",
                            &config));
    assert_int_equal(config.layers, 3);
    assert_int_equal(config.mixers, 2);
    assert_string_equal(ls_model_mixer(&config, 1).type->name, "mamba");
    assert_string_equal(ls_model_mixer(&config, 2).type->name, "attention");
    assert_null(ls_model_mixer(&config, 0).position);
    assert_non_null(ls_model_mixer(&config, 2).position);
    ls_text first = {0}, second = {0};
    ls_model_config_print(&ctx, &config, true, &first);
    assert_non_null(strstr(first.bytes, "mixer.mamba:"));
    assert_non_null(strstr(strstr(first.bytes, "mixer.mamba:"), "  bias: false"));
    assert_non_null(strstr(strstr(first.bytes, "mixer.attention:"), "  bias: true"));
    ls_settings settings = {0};
    expect(&ctx, ls_settings_parse(&ctx, &settings, first.bytes, first.length, "printed"));
    expect(&ctx, ls_model_config_read(&ctx, &settings, &again));
    expect(&ctx, ls_settings_finish(&ctx, &settings, NULL));
    ls_model_config_print(&ctx, &again, true, &second);
    assert_string_equal(first.bytes, second.bytes);
    ls_settings_clear(&ctx, &settings);
    ls_text_clear(&ctx, &first);
    ls_text_clear(&ctx, &second);
    ls_model_config_clear(&ctx, &config);
    ls_model_config_clear(&ctx, &again);
    /* a recipe's list; a mixer without positions has none, also below a preset made for another */
    static const char recipe[] = "model: {layers: [attention, mamba], position: rope}\n";
    expect(&ctx, ls_settings_parse(&ctx, &settings, recipe, strlen(recipe), "recipe"));
    expect(&ctx, ls_model_config_read(&ctx, &settings, &config));
    assert_int_equal(config.layers, 2);
    ls_settings_clear(&ctx, &settings);
    ls_model_config_clear(&ctx, &config);
    /* labels: options of their own, whatever the order; what is said of all and of the type holds
     * for the rest, and comes back from what is printed */
    static const char labels[] =
        "mixer: {near: {window: 8, heads: 2}, heads: 4, attention.window: 9}\n"
        "model: {layers: [attention:near, attention, attention:near]}\n";
    expect(&ctx, ls_settings_parse(&ctx, &settings, labels, strlen(labels), "labels"));
    expect(&ctx, ls_model_config_read(&ctx, &settings, &config));
    ls_settings_clear(&ctx, &settings);
    first = second = (ls_text){0};
    ls_model_config_print(&ctx, &config, true, &first);
    assert_int_equal(config.mixers, 2);
    assert_non_null(strstr(first.bytes, "near:"));
    assert_int_equal(config.layer_mixer[0], 0);
    assert_int_equal(config.layer_mixer[1], 1);
    assert_int_equal(config.layer_mixer[2], 0);
    expect(&ctx, ls_settings_parse(&ctx, &settings, first.bytes, first.length, "printed"));
    expect(&ctx, ls_model_config_read(&ctx, &settings, &again));
    ls_model_config_print(&ctx, &again, true, &second);
    assert_string_equal(first.bytes, second.bytes);
    const ls_mixer_type *type = config.mixer[0].type;
    assert_memory_equal(config.mixer[0].options, again.mixer[0].options, type->options.size);
    assert_memory_not_equal(config.mixer[0].options, config.mixer[1].options, type->options.size);
    ls_settings_clear(&ctx, &settings);
    ls_text_clear(&ctx, &first);
    ls_text_clear(&ctx, &second);
    ls_model_config_clear(&ctx, &config);
    ls_model_config_clear(&ctx, &again);
    static const char *const bare[] = {"model.mixer=mamba", "model.preset=bench model.mixer=mamba",
                                       "model.preset=mamba-130m"};
    for (size_t i = 0; i < sizeof bare / sizeof bare[0]; i++) {
        expect(&ctx, read_words(&ctx, bare[i], &config));
        assert_string_equal(config.position.type->name, "none");
        ls_model_config_clear(&ctx, &config);
    }
    static const struct {
        const char *words, *says;
    } wrong[] = {
        {"model.layers=0", "out of range"},
        {"model.memory=2", "set model.segment"},
        {"model.layers=1025", "out of range"},
        {"model.layers=-2", "out of range"},
        {"model.layers=", "give a number"},
        {"model.layers=mamba,,attention", "give a number"},
        {"model.layers=mamba,", "give a number"},
        {"model.layers=mamba,atention", "did you mean attention"},
        {"model.layers=mamba,attention mixer.hads=2", "no mixer of this model has a key"},
        {"model.layers=mamba,attention mixer.mamba.heads=2", "there is no key mixer.mamba.heads"},
        {"model.layers=2 mixer.mamba.d_state=8", "no mixer of this model has a key"},
        {"model.layers=mamba:,mamba", "a label has"},
        {"model.layers=mamba:A,mamba", "a label has"},
        {"model.layers=mamba:a-label-of-more-than-thirty-one-letters", "a label has"},
        {"model.layers=mamba:attention,mamba", "is the name of a mixer"},
        {"model.layers=mamba:near,attention:near", "is the label of mamba"},
        {"model.layers=mamba:near,mamba mixer.far.d_state=8", "no mixer of this model has a key"},
        {"model.layers=mamba:near,mamba mixer.near.d_stat=8", "did you mean mixer.near.d_state"},
        {"model.mixer=mamba mixer.heads=2", "no key mixer.heads"},
        {"model.mixer=mamba mixer.d_stat=2", "did you mean mixer.d_state"},
        {"model.mixer=mamba model.position=rope", "model.position=none"},
        {"model.mixer=mamba mixer.dt_min=1", "above dt_max"},
        {"model.mixer=mamba extend=window extend.window=8", "nothing to extend"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ctx.error = (ls_error){0};
        assert_int_equal(read_words(&ctx, wrong[i].words, &config), LS_EUSE);
        if (strstr(ctx.error.message, wrong[i].says) == NULL)
            fail_msg("%s: `%s` does not say `%s`", wrong[i].words, ctx.error.message,
                     wrong[i].says);
    }
}

static void test_tokens_are_checked(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_model_config config;
    ls_model *model = make(&ctx, shapes[0], "none", LS_F32, &config);
    ls_stream *stream;
    expect(&ctx, ls_stream_new(model, 1, 4, 4, &stream));
    double logits[WORDS];
    int32_t bad[] = {3, WORDS}, negative[] = {-1};
    assert_int_equal(ls_stream_logits(stream, bad, 2, 2, logits), LS_EINPUT);
    ctx.error = (ls_error){0};
    assert_int_equal(ls_stream_logits(stream, negative, 1, 1, logits), LS_EINPUT);
    ls_stream_free(stream);
    ls_model_free(model);
    ls_model_config_clear(&ctx, &config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_recomputation),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_stream_types),
        cmocka_unit_test(test_hybrid_descriptions),
        cmocka_unit_test(test_tokens_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
