/* Tensors whose lives do not meet share memory, and nothing comes of it: with guard bands, where
 * none is shared, losses and gradients are the same to the bit. */
#include "harness.h"
#include "model/model.h"

enum { B = 2, T = 24, WORDS = 19 };

static const char *const models[] = {
    "model.position=rope mixer.heads=2",
    "model.position=t5 mixer.heads=2 model.norm=rms model.activation=swiglu model.norm_place=post",
    "model.mixer=mamba",
    "model.mixer=mamba2 mixer.headdim=4",
    "model.mixer=retnet mixer.heads=2",
    "model.mixer=s5 mixer.d_state=8",
    "model.mixer=hyena",
    "model.segment=9 model.memory=2 mixer.heads=2 model.position=learned",
};

typedef struct outcome {
    double loss[B * T], *gradient;
    size_t bytes;
} outcome;

static outcome run(ls_ctx *ctx, const ls_model_config *config, ls_dtype type, ls_model_use use,
                   bool guarded) {
    outcome out = {0};
    int32_t tokens[B * T];
    double weights[B * T];
    ls_model *model;
    ls_program *program;
    expect(ctx, ls_model_new(ctx, config, type, 3, use == LS_MODEL_TRAIN, &model));
    fill_parameters(model->store);
    const ls_program_options options = {.batch = B, .length = T, .guarded = guarded};
    expect(ctx, ls_model_program(model, use, options, &program));
    ls_program_poison(program);
    for (int i = 0; i < B * T; i++) tokens[i] = (i * 7 + i * i / 3) % WORDS, weights[i] = 0.25;
    expect(ctx, ls_model_put_tokens(model, program, "tokens", tokens));
    expect(ctx, ls_model_put_tokens(model, program, "targets", tokens));
    if (use == LS_MODEL_TRAIN) put_values(&(bench){.program = program}, "weights", weights);
    if (use == LS_MODEL_TRAIN) ls_parameters_clear_gradient(model->store);
    expect(ctx, ls_program_run(program, NULL, 1, 1));
    if (guarded) assert_true(ls_program_guards_intact(program));
    const ls_tensor *loss = ls_program_find(program, "loss");
    for (int i = 0; i < B * T; i++) out.loss[i] = get(loss, i);
    out.bytes = (size_t)model->store->total * ls_dtype_size(model->store->master_type);
    if (use == LS_MODEL_TRAIN) {
        out.gradient = malloc(out.bytes);
        memcpy(out.gradient, model->store->gradient, out.bytes);
    }
    ls_program_free(program);
    ls_model_free(model);
    return out;
}

static void test_sharing(void **state) {
    (void)state;
    static const ls_dtype types[] = {LS_F64, LS_F32};
    static const ls_model_use uses[] = {LS_MODEL_LOSS, LS_MODEL_TRAIN};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        ls_ctx ctx = ctx_of_one_thread();
        char words[256];
        ls_model_config config;
        snprintf(words, sizeof words, "model.layers=2 model.width=16 model.vocabulary=%d %s", WORDS,
                 models[i]);
        expect(&ctx, ls_model_config_read_words(&ctx, words, &config));
        for (int k = 0; k < 4; k++) {
            outcome apart = run(&ctx, &config, types[k / 2], uses[k % 2], true);
            outcome shared = run(&ctx, &config, types[k / 2], uses[k % 2], false);
            for (int j = 0; j < B * T; j++)
                if (!(apart.loss[j] == shared.loss[j]))
                    fail_msg("%s: loss %d is %g, and %g where memory is shared", models[i], j,
                             apart.loss[j], shared.loss[j]);
            if (uses[k % 2] == LS_MODEL_TRAIN)
                assert_memory_equal(apart.gradient, shared.gradient, apart.bytes);
            free(apart.gradient), free(shared.gradient);
        }
        ls_model_config_clear(&ctx, &config);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sharing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
