/* Whole models: gradients against differences, streams against whole passes, sampling. */
#include "harness.h"

#include "model/model.h"

enum { B = 2, T = 13, WORDS = 19 };

static const char *const shapes[] = {
    "model.norm=layer model.activation=gelu model.tied=true",
    "model.norm=rms model.activation=swiglu model.tied=false model.bias=false mixer.kv_heads=1",
    "model.norm_place=post model.activation=relu2 model.scale_embedding=true mixer.bias=true",
    "model.activation=geglu model.dropout=0.2",
};

/* A small model from words; the position method is the caller's. */
static ls_model *make(ls_ctx *ctx, const char *words, const char *position, ls_dtype type,
                      ls_model_config *config) {
    char all[512], *rest = NULL;
    snprintf(all, sizeof all,
             "model.layers=2 model.width=16 mixer.heads=2 model.length=8 model.vocabulary=%d "
             "model.position=%s %s",
             WORDS, position, words);
    ls_settings settings = {0};
    for (char *word = strtok_r(all, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        expect(ctx, ls_settings_put_word(ctx, &settings, word));
    expect(ctx, ls_model_config_read(ctx, &settings, config));
    expect(ctx, ls_settings_finish(ctx, &settings, NULL));
    ls_settings_clear(ctx, &settings);
    ls_model *model;
    expect(ctx, ls_model_new(ctx, config, type, 1, true, &model));
    fill_parameters(model->store);
    return model;
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
    for (int i = 0; weights != NULL && i < B * T; i++) put(weights, i, 0.1 + 0.01 * i);
}

static double weighted_loss(ls_ctx *ctx, ls_program *program) {
    expect(ctx, ls_program_run(program, NULL, 5, 2));
    double sum = 0;
    for (int i = 0; i < B * T; i++)
        sum +=
            get(ls_program_find(program, "loss"), i) * get(ls_program_find(program, "weights"), i);
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
    for (size_t i = 0; i < store->count; i++) {
        const ls_parameter *parameter = &store->items[i];
        double *values = ls_parameter_master(store, parameter), h = 1e-5;
        for (int64_t j = 0; j < parameter->count; j += ls_max(1, parameter->count / 4)) {
            double kept = values[j];
            values[j] = kept + h;
            double above = weighted_loss(ctx, program);
            values[j] = kept - h;
            double below = weighted_loss(ctx, program);
            values[j] = kept;
            double numeric = (above - below) / (2 * h), found = gradient[parameter->offset + j];
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

static void test_gradients(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_model(&ctx, shapes[i], "rope");
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
    for (size_t i = 0; i < ls_position_count; i++)
        check_stream(&ctx, shapes[0], ls_position_types[i]->name);
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

static void test_sampling(void **state) {
    (void)state;
    double logits[6] = {0.1, 3, -2, 2, 2.5, -40}, scratch[12];
    ls_sampling greedy = {.temperature = 0, .top_p = 1};
    assert_int_equal(ls_sample(&greedy, logits, 6, 0, scratch), 1);
    ls_sampling all = {.temperature = 1, .top_p = 1, .seed = 9};
    ls_sampling two = {.temperature = 1, .top_k = 2, .top_p = 1, .seed = 9};
    ls_sampling half = {.temperature = 1, .top_p = 0.5, .seed = 9};
    double total = 0, share[6];
    int count[6] = {0};
    for (int i = 0; i < 6; i++) total += share[i] = exp(logits[i]);
    enum { DRAWS = 20000 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t token = ls_sample(&all, logits, 6, i, scratch);
        assert_int_equal(token, ls_sample(&all, logits, 6, i, scratch));
        count[token]++;
        int32_t few = ls_sample(&two, logits, 6, i, scratch);
        assert_true(few == 1 || few == 4);
        /* token 1 alone has a share of 0.47, with 4 it is past one half */
        int32_t likely = ls_sample(&half, logits, 6, i, scratch);
        assert_true(likely == 1 || likely == 4);
    }
    for (int i = 0; i < 6; i++) { /* within five standard deviations */
        double p = share[i] / total;
        assert_true(fabs(count[i] - DRAWS * p) <= 5 * sqrt(DRAWS * p * (1 - p)) + 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_recomputation),
        cmocka_unit_test(test_streams),   cmocka_unit_test(test_tokens_are_checked),
        cmocka_unit_test(test_sampling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
