/* Models of perceivers: special cases that are other models, the last latents alone, cuts of a
 * text, classifiers. */
#include "perceiver_fixture.h"
#include "train/train.h"

static ls_model *make_model(ls_ctx *ctx, const char *words, ls_dtype type,
                            ls_model_config *config) {
    char all[768];
    snprintf(all, sizeof all, "model.vocabulary=9 model.width=%d %s", D, words);
    expect(ctx, ls_model_config_read_words(ctx, all, config));
    ls_model *model;
    expect(ctx, ls_model_new(ctx, config, type, 1, true, &model));
    fill_parameters(model->store);
    return model;
}

static void release_model(ls_model *model, ls_model_config *config) {
    ls_ctx *ctx = model->ctx;
    ls_model_free(model);
    ls_model_config_clear(ctx, config);
}

/* Runs a program over the same text; the loss [1,length] of every token. */
static double *losses(ls_model *model, ls_model_use use, int64_t length, int64_t scored) {
    int32_t tokens[64], targets[64];
    ls_program *program;
    expect(
        model->ctx,
        ls_model_program(model, use, (ls_program_options){.batch = 1, .length = length}, &program));
    for (int64_t t = 0; t < length; t++) {
        tokens[t] = (int32_t)((t * t + 3 * t) % 9);
        targets[t] = t < length - scored ? -1 : (int32_t)((t * 7 + 1) % 9);
    }
    expect(model->ctx, ls_model_put_tokens(model, program, "tokens", tokens));
    expect(model->ctx, ls_model_put_tokens(model, program, "targets", targets));
    const ls_tensor *weights = ls_program_find(program, "weights");
    for (int64_t t = 0; weights != NULL && t < length; t++) put(weights, t, 1);
    expect(model->ctx, ls_program_run(program, NULL, 0, 0));
    double *loss = read_all(ls_program_find(program, "loss"));
    ls_program_free(program);
    return loss;
}

static void copy_weights(ls_model *to, const char *name, int64_t at, const ls_model *from,
                         const char *source, int64_t first, int64_t count) {
    memcpy(mixer_weight(to->store, name) + at, mixer_weight(from->store, source) + first,
           (size_t)count * sizeof(double));
}

/* Attention with a norm before, as the model has it, into a layer of the perceiver. */
static void copy_layer(ls_model *to, const char *scope, const ls_model *from, int from_layer) {
    static const struct {
        const char *ours, *theirs;
        int64_t first, count;
    } parts[] = {
        {"norm_q.weight", "norm1.weight", 0, D},
        {"norm_q.bias", "norm1.bias", 0, D},
        {"norm_kv.weight", "norm1.weight", 0, D},
        {"norm_kv.bias", "norm1.bias", 0, D},
        {"q.weight", "mixer.qkv.weight", 0, D * D},
        {"kv.weight", "mixer.qkv.weight", D * D, 2 * D * D},
        {"q.bias", "mixer.qkv.bias", 0, D},
        {"kv.bias", "mixer.qkv.bias", D, 2 * D},
        {"out.weight", "mixer.out.weight", 0, D * D},
        {"out.bias", "mixer.out.bias", 0, D},
        {"norm.weight", "norm2.weight", 0, D},
        {"norm.bias", "norm2.bias", 0, D},
        {"up.weight", "ffn.up.weight", 0, 4 * D * D},
        {"up.bias", "ffn.up.bias", 0, 4 * D},
        {"down.weight", "ffn.down.weight", 0, 4 * D * D},
        {"down.bias", "ffn.down.bias", 0, D},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char ours[96], theirs[96];
        snprintf(ours, sizeof ours, "layers.0.mixer.%s.%s", scope, parts[i].ours);
        snprintf(theirs, sizeof theirs, "layers.%d.%s", from_layer, parts[i].theirs);
        if (ls_parameters_find(to->store, ours) != NULL)
            copy_weights(to, ours, 0, from, theirs, parts[i].first, parts[i].count);
    }
}

/* A block as long as the text is a causal transformer whose first layer is the cross-attend. */
static void test_one_block_is_a_transformer(void **state) {
    (void)state;
    enum { LENGTH = 23 };
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config configs[2];
    ls_model *latent = make_model(&ctx,
                                  "model.layers=1 model.feed_forward=false model.mixer=perceiver "
                                  "mixer.whole=true mixer.latents=23 mixer.heads=3 mixer.layers=2 "
                                  "mixer.widening=4 mixer.cross_widening=4 mixer.project=false "
                                  "mixer.rotary=0 model.position=sinusoidal",
                                  LS_F64, &configs[0]);
    ls_model *plain = make_model(&ctx,
                                 "model.layers=3 mixer.heads=3 mixer.bias=true "
                                 "model.position=sinusoidal",
                                 LS_F64, &configs[1]);
    copy_layer(latent, "cross.0", plain, 0);
    copy_layer(latent, "blocks.0.0", plain, 1);
    copy_layer(latent, "blocks.0.1", plain, 2);
    double *got = losses(latent, LS_MODEL_LOSS, LENGTH, LENGTH);
    double *want = losses(plain, LS_MODEL_LOSS, LENGTH, LENGTH);
    mixer_same("one block", got, want, LENGTH, 1e-12);
    release_model(latent, &configs[0]);
    release_model(plain, &configs[1]);
    free(got), free(want);
}

static const char last_block[] =
    "model.layers=1 model.feed_forward=false model.mixer=perceiver mixer.whole=true "
    "mixer.latents=6 mixer.heads=3 mixer.cross_attends=2";

/* loss=last: training computes the last latents alone. Their losses and gradients are those of the
 * model with all blocks whose other targets do not count; where the text is no multiple of a block
 * they are the definition's. */
static void test_last_latents(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    char words[512];
    for (int type = LS_F64; type <= LS_F32; type++) {
        ls_model_config configs[2];
        ls_model *all = make_model(&ctx, last_block, (ls_dtype)type, &configs[0]);
        snprintf(words, sizeof words, "%s mixer.loss=last", last_block);
        ls_model *last = make_model(&ctx, words, (ls_dtype)type, &configs[1]);
        const ls_model_example example = ls_model_example_of(&configs[1], 24);
        assert_true(example.targets == 24 && example.trained == 6);
        assert_int_equal(ls_model_example_of(&configs[0], 24).trained, 24);
        assert_int_equal(ls_model_example_of(&configs[1], 4).trained, 4);
        ls_parameters_clear_gradient(all->store);
        ls_parameters_clear_gradient(last->store);
        double *want = losses(all, LS_MODEL_TRAIN, 24, 6), bar = type == LS_F64 ? 1e-12 : 1e-5;
        double *got = losses(last, LS_MODEL_TRAIN, 24, 6);
        double *tested = losses(last, LS_MODEL_LOSS, 24, 24); /* has every block */
        double *every = losses(all, LS_MODEL_LOSS, 24, 24);
        mixer_same("last latents", got + 18, want + 18, 6, bar);
        mixer_same("a test", tested, every, 24, 0);
        double *ours = calloc((size_t)all->store->total, sizeof *ours);
        double *theirs = calloc((size_t)all->store->total, sizeof *theirs);
        for (int64_t i = 0; i < all->store->total; i++) {
            const bool wide = type == LS_F64;
            theirs[i] = wide ? ((double *)all->store->gradient)[i]
                             : (double)((float *)all->store->gradient)[i];
            ours[i] = wide ? ((double *)last->store->gradient)[i]
                           : (double)((float *)last->store->gradient)[i];
        }
        mixer_same("gradients of the last latents", ours, theirs, all->store->total, bar);
        free(got), free(want), free(tested), free(every), free(ours), free(theirs);
        release_model(all, &configs[0]);
        release_model(last, &configs[1]);
    }
}

/* The same at a length that is no multiple, against the definition: latent i stands at n
 * - N + i. */
static void test_last_latents_are_defined(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    double *x = normal_numbers(T * D, 3);
    for (int i = 4; i < PLANS; i++) {
        plan c = plans[i];
        char words[256];
        snprintf(words, sizeof words, "%s loss=last", c.words);
        c.words = words;
        mixer_case made = case_of(&ctx, &c);
        const ls_program_options options = {
            .type = LS_F64, .batch = 1, .length = T, .train = true, .guarded = true};
        bench b = bench_new(&ctx, &(subject){words, mixer_record, &made}, options);
        put_values(&b, "x", x);
        expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
        double *y = read_all(ls_program_find(b.program, "y"));
        table want = define(b.store, &c, x, T, c.latents);
        for (int64_t j = 0; j < (T - c.latents) * D; j++) assert_true(y[j] == 0);
        mixer_same(words, y + (T - c.latents) * D, want.at, c.latents * D, 1e-12);
        check_gradients(&ctx, &(subject){words, mixer_record, &made},
                        (ls_program_options){.batch = 1, .length = T, .train = true}, inputs, 2);
        free(y), free(want.at);
        bench_free(&b);
        mixer_release(&made.mixer);
    }
    free(x);
}

/* However a text is cut the losses are the same. */
static void test_any_cut(void **state) {
    (void)state;
    enum { LENGTH = 40 };
    static const int64_t cuts[][4] = {{1, 1, 1, 1}, {40}, {7, 1, 13, 2}};
    ls_ctx ctx = ctx_of_one_thread();
    char words[512];
    snprintf(words, sizeof words, "%s mixer.blocks=2 mixer.share_blocks=later mixer.loss=last",
             last_block);
    ls_model_config config;
    ls_model *model = make_model(&ctx, words, LS_F64, &config);
    double *want = losses(model, LS_MODEL_LOSS, LENGTH, LENGTH), got[LENGTH];
    int32_t tokens[LENGTH], targets[LENGTH];
    for (int64_t t = 0; t < LENGTH; t++) {
        tokens[t] = (int32_t)((t * t + 3 * t) % 9);
        targets[t] = (int32_t)((t * 7 + 1) % 9);
    }
    for (int c = 0; c < 3; c++) {
        ls_stream *stream;
        expect(&ctx, ls_stream_new(model, 1, LENGTH, 16, &stream));
        for (int64_t at = 0, n, i = 0; at < LENGTH; at += n, i++) {
            n = ls_min(cuts[c][i % 4] > 0 ? cuts[c][i % 4] : LENGTH, LENGTH - at);
            expect(&ctx, ls_stream_loss(stream, tokens + at, targets + at, n, n, got + at));
        }
        mixer_same("a text that is cut", got, want, LENGTH, 1e-11);
        ls_stream_free(stream);
    }
    free(want);
    release_model(model, &config);
}

/* Latents that go on through layers of their own, pooled for a class: padding changes nothing, and
 * gradients are differences. */
static void test_classifier_of_latents(void **state) {
    (void)state;
    enum { LENGTH = 11, REAL = 7 };
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config config;
    ls_model *model = make_model(&ctx,
                                 "model.layers=perceiver,attention model.causal=false "
                                 "model.head=classify model.classes=4 model.position=learned "
                                 "mixer.heads=2 mixer.perceiver.output=latents "
                                 "mixer.perceiver.latents=5 mixer.perceiver.features=fourier "
                                 "mixer.perceiver.bands=3 mixer.perceiver.cross_shape=q",
                                 LS_F64, &config);
    ls_program *program[2];
    double *logits[2], loss[2];
    int32_t tokens[LENGTH], class = 2;
    for (int i = 0; i < 2; i++) {
        const ls_program_options options = {.batch = 1, .length = i == 0 ? REAL : LENGTH};
        expect(&ctx, ls_model_program(model, LS_MODEL_LOGITS, options, &program[i]));
        for (int64_t t = 0; t < LENGTH; t++) tokens[t] = t < REAL ? (int32_t)(t * t % 9) : -1;
        expect(&ctx, ls_model_put_tokens(model, program[i], "tokens", tokens));
        expect(&ctx, ls_program_run(program[i], NULL, 0, 0));
        logits[i] = read_all(ls_program_find(program[i], "logits"));
        ls_program_free(program[i]);
    }
    mixer_same("padded", logits[1], logits[0], 4, 1e-12);
    free(logits[0]), free(logits[1]);
    ls_program *train;
    expect(&ctx, ls_model_program(model, LS_MODEL_TRAIN,
                                  (ls_program_options){.batch = 1, .length = LENGTH}, &train));
    expect(&ctx, ls_model_put_tokens(model, train, "tokens", tokens));
    expect(&ctx, ls_model_put_tokens(model, train, "targets", &class));
    put(ls_program_find(train, "weights"), 0, 1);
    ls_parameters_clear_gradient(model->store);
    expect(&ctx, ls_program_run(train, NULL, 0, 0));
    double *gradient = malloc((size_t)model->store->total * sizeof *gradient);
    memcpy(gradient, model->store->gradient, (size_t)model->store->total * sizeof *gradient);
    for (size_t i = 0; i < model->store->count; i++) {
        const ls_parameter *parameter = &model->store->items[i];
        double *value = ls_parameter_master(model->store, parameter), h = 1e-5, kept = *value;
        for (int side = 0; side < 2; side++) {
            *value = kept + (side == 0 ? h : -h);
            expect(&ctx, ls_program_run(train, NULL, 0, 0));
            loss[side] = get(ls_program_find(train, "loss"), 0);
        }
        *value = kept;
        const double difference = (loss[0] - loss[1]) / (2 * h);
        if (!(fabs(difference - gradient[parameter->offset]) <= 1e-7))
            fail_msg("gradient of %s is %.12g, differences give %.12g", parameter->name,
                     gradient[parameter->offset], difference);
    }
    free(gradient);
    ls_program_free(train);
    release_model(model, &config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_block_is_a_transformer), cmocka_unit_test(test_last_latents),
        cmocka_unit_test(test_last_latents_are_defined),   cmocka_unit_test(test_any_cut),
        cmocka_unit_test(test_classifier_of_latents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
