/* Documents that begin anew in single rows of a batch whose state is carried: losses and gradients
 * are those of every document alone, for every mixer that streams and every position method it
 * takes, and for models with memory between segments.
 * Tier: unsanitized. */
#include "harness.h"
#include "mixer/mixer.h"
#include "model/model.h"

enum { BATCH = 3, T = 16, STEPS = 8, CARRY = 4 * T, WORDS = 37 };

/* Windows of the documents of each row one after the other; none is longer than CARRY, and all rows
 * together go on for twice that. */
static const int64_t windows[BATCH][5] = {{3, 3, 2}, {1, 4, 1, 2}, {4, 3, 1}};

/* The last window of a document is not full, unless the document is the first of its row. */
static int64_t tokens_of(int row, int document) {
    return windows[row][document] * T - (document == 0 ? 0 : 5 + row);
}

/* Token i of a document; what it predicts is the next one. */
static int32_t token(int row, int document, int64_t i) {
    ls_random key = {.seed = 11, .stream = (uint32_t)(8 * row + document)};
    return (int32_t)ls_random_below(key, (uint64_t)i, WORDS);
}

/* Document and window that a row is at. */
typedef struct place {
    int document;
    int64_t window;
} place;

static place place_of(int row, int64_t step) {
    place at = {0, step};
    while (at.window >= windows[row][at.document]) at.window -= windows[row][at.document++];
    return at;
}

typedef struct runner {
    ls_program *program;
    ls_state *state;
    int64_t batch;
} runner;

static double weight_of(int32_t target) {
    return target < 0 ? 0 : 0.125;
}

/* Row `at` of the inputs becomes a window of a document. */
static void put_window(const runner *r, int64_t at, int row, place where) {
    const ls_tensor *tokens = ls_program_find(r->program, "tokens");
    const ls_tensor *targets = ls_program_find(r->program, "targets");
    const ls_tensor *weights = ls_program_find(r->program, "weights");
    const int64_t count = tokens_of(row, where.document) - 1;
    for (int64_t t = 0; t < T; t++) {
        const int64_t i = where.window * T + t;
        const int32_t wanted = i < count ? token(row, where.document, i + 1) : -1;
        put(tokens, at * T + t, i < count ? token(row, where.document, i) : 0);
        put(targets, at * T + t, wanted);
        put(weights, at * T + t, weight_of(wanted));
    }
}

/* Appends the losses that count of row `at`. */
static int64_t take_losses(const runner *r, int64_t at, double *out) {
    const ls_tensor *loss = ls_program_find(r->program, "loss");
    const ls_tensor *targets = ls_program_find(r->program, "targets");
    int64_t count = 0;
    for (int64_t t = 0; t < T; t++)
        if (get(targets, at * T + t) >= 0) out[count++] = get(loss, at * T + t);
    return count;
}

typedef struct outcome {
    double losses[BATCH][STEPS * T]; /* of each row in order */
    int64_t count[BATCH];
    double auxiliary[BATCH][STEPS]; /* what is minimised beside them; of all rows together in 0 */
    double *gradient;
    int64_t elements;
    size_t parameters;
    struct {
        char name[96];
        int64_t offset, count;
    } * part;
} outcome;

static void take_gradient(const ls_model *model, outcome *out) {
    const ls_parameters *store = model->store;
    out->gradient = malloc((size_t)store->total * sizeof *out->gradient);
    out->part = calloc(store->count, sizeof *out->part);
    out->elements = store->total;
    out->parameters = store->count;
    for (int64_t i = 0; i < store->total; i++)
        out->gradient[i] = store->master_type == LS_F64
                               ? ((const double *)store->gradient)[i]
                               : (double)((const float *)store->gradient)[i];
    for (size_t k = 0; k < store->count; k++) {
        snprintf(out->part[k].name, sizeof out->part[k].name, "%s", store->items[k].name);
        out->part[k].offset = store->items[k].offset;
        out->part[k].count = store->items[k].count;
    }
}

static void outcome_clear(outcome *out) {
    free(out->gradient);
    free(out->part);
}

/* LS_EUSE where the model does not take it. */
static ls_status open_runner(ls_model *model, int64_t batch, bool resets, runner *r) {
    ls_program_options options = {.batch = batch,
                                  .length = T,
                                  .streaming = true,
                                  .capacity = CARRY,
                                  .chunk_max = T,
                                  .resets = resets,
                                  .recompute = model->type == LS_F32, /* both ways are tried */
                                  .guarded = true};
    *r = (runner){.batch = batch};
    LS_TRY(ls_model_program(model, LS_MODEL_TRAIN, options, &r->program));
    expect(model->ctx, ls_state_new(r->program, &r->state));
    ls_program_poison(r->program);
    return LS_OK;
}

static void close_runner(ls_ctx *ctx, runner *r) {
    assert_true(ls_program_guards_intact(r->program));
    ls_state_free(ctx, r->state);
    ls_program_free(r->program);
}

/* After these steps the state is saved, and another one goes on from what was saved. */
static const int64_t moves = 5;

static void move_on(ls_ctx *ctx, runner *r) {
    ls_text saved = {0};
    expect(ctx, ls_state_save(ctx, r->state, &saved));
    ls_state_free(ctx, r->state);
    expect(ctx, ls_state_new(r->program, &r->state));
    expect(ctx, ls_state_load(ctx, r->state, saved.bytes, saved.length));
    ls_text_clear(ctx, &saved);
}

static void run_together(ls_model *model, runner *r, outcome *out) {
    ls_parameters_clear_gradient(model->store);
    for (int64_t step = 0; step < STEPS; step++) {
        bool fresh[BATCH];
        for (int row = 0; row < BATCH; row++) {
            const place at = place_of(row, step);
            fresh[row] = at.window == 0;
            put_window(r, row, row, at);
        }
        ls_state_reset_rows(r->state, fresh);
        if (step == moves) move_on(model->ctx, r);
        expect(model->ctx, ls_program_run(r->program, r->state, 0, 0));
        expect(model->ctx, ls_program_auxiliary(r->program, &out->auxiliary[0][step]));
        for (int row = 0; row < BATCH; row++)
            out->count[row] += take_losses(r, row, out->losses[row] + out->count[row]);
    }
    take_gradient(model, out);
}

static void run_alone(ls_model *model, runner *r, outcome *out) {
    ls_parameters_clear_gradient(model->store);
    for (int row = 0; row < BATCH; row++)
        for (int64_t step = 0; step < STEPS; step++) {
            const place at = place_of(row, step);
            if (at.window == 0) ls_state_reset(r->state);
            put_window(r, 0, row, at);
            expect(model->ctx, ls_program_run(r->program, r->state, 0, 0));
            expect(model->ctx, ls_program_auxiliary(r->program, &out->auxiliary[row][step]));
            out->count[row] += take_losses(r, 0, out->losses[row] + out->count[row]);
        }
    take_gradient(model, out);
}

/* Differences against the largest, or what counts as large where all are next to nothing. */
static void same(const char *words, const char *what, const double *got, const double *want,
                 int64_t count, double large, double tolerance) {
    double most = large, wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, fabs(want[i]));
        wrong = fmax(wrong, fabs(got[i] - want[i]));
        if (!isfinite(got[i])) fail_msg("%s: %s is not finite", words, what);
    }
    if (!(wrong <= tolerance * most))
        fail_msg("%s: %s differs by %.3g of %.3g", words, what, wrong, most);
}

static void compare(const char *words, const outcome *together, const outcome *alone,
                    double tolerance) {
    for (int row = 0; row < BATCH; row++) {
        assert_int_equal(together->count[row], alone->count[row]);
        assert_true(alone->count[row] > STEPS * T / 2);
        same(words, "loss", together->losses[row], alone->losses[row], alone->count[row], 0,
             tolerance);
    }
    assert_int_equal(together->parameters, alone->parameters);
    double most = 0;
    for (int64_t i = 0; i < alone->elements; i++) most = fmax(most, fabs(alone->gradient[i]));
    assert_true(most > 0);
    for (size_t k = 0; k < alone->parameters; k++)
        same(words, alone->part[k].name, together->gradient + alone->part[k].offset,
             alone->gradient + alone->part[k].offset, alone->part[k].count, 1e-3 * most,
             10 * tolerance);
}

/* A model, or nothing: the words are none. */
static ls_model *made(ls_ctx *ctx, const char *words, ls_dtype type, ls_model_config *config) {
    char all[512];
    ls_settings settings = {0};
    ls_model *model = NULL;
    snprintf(all, sizeof all, "model.layers=2 model.width=16 model.vocabulary=%d %s", WORDS, words);
    expect(ctx, ls_settings_put_words(ctx, &settings, all));
    *config = (ls_model_config){0};
    if (ls_model_config_read(ctx, &settings, config) == LS_OK) {
        expect(ctx, ls_settings_finish(ctx, &settings, NULL));
        expect(ctx, ls_model_new(ctx, config, type, 3, true, &model));
        fill_parameters(model->store);
    }
    ls_settings_clear(ctx, &settings);
    ctx->error = (ls_error){0};
    return model;
}

/* Whether a program could not be made because the device lacks a kernel. */
static bool lacks_kernel(const ls_ctx *ctx, ls_status status, const char *words) {
    const bool lacks =
        status == LS_EUSE && ctx->device != NULL && strstr(ctx->error.message, "kernel") != NULL;
    if (lacks) print_message("%s is left out: %s\n", words, ctx->error.message);
    return lacks;
}

static ls_status outcome_of(ls_ctx *ctx, const char *words, ls_dtype type, bool together,
                            outcome *out) {
    ls_model_config config;
    ls_model *model = made(ctx, words, type, &config);
    runner r;
    if (model == NULL) fail_msg("%s: there is no such model", words);
    ls_status status = open_runner(model, together ? BATCH : 1, together, &r);
    if (status == LS_OK) {
        (together ? run_together : run_alone)(model, &r, out);
        close_runner(ctx, &r);
    } else if (!lacks_kernel(ctx, status, words)) {
        fail_msg("%s: %s", words, ctx->error.message);
    }
    ls_model_free(model);
    ls_model_config_clear(ctx, &config);
    return status;
}

/* `alone`: other words for the model of single documents. */
static void check(const char *words, const char *alone, ls_dtype type, double tolerance) {
    ls_ctx ctx = ctx_of_one_thread();
    outcome one = {0}, other = {0};
    if (outcome_of(&ctx, words, type, true, &one) == LS_OK &&
        outcome_of(&ctx, alone, type, false, &other) == LS_OK)
        compare(words, &one, &other, tolerance);
    outcome_clear(&one);
    outcome_clear(&other);
}

static void check_both(const char *words) {
    check(words, words, LS_F64, 1e-11);
    check(words, words, LS_F32, 1e-4);
}

/* Small sizes for what mixers call by these names; losses of their own are means over the batch. */
static const char *const sizes[][2] = {
    {"heads", "2"},       {"segment", "8"},      {"memory", "12"}, {"compressed", "4"},
    {"latents", "8"},     {"chunk", "8"},        {"window", "20"}, {"radius", "9"},
    {"loss_weight", "0"}, {"global_block", "4"}, {"d_state", "8"}, {"filter_width", "8"},
};

static void test_every_mixer(void **state) {
    (void)state;
    const char *only = getenv("LONGSHOT_TEST_MIXER");
    for (size_t m = 0; m < ls_mixer_count; m++) {
        const ls_mixer_type *type = ls_mixer_types[m];
        const unsigned needed = LS_MIXER_CAUSAL | LS_MIXER_STREAMING;
        if ((type->traits & needed) != needed) continue;
        if (only != NULL && strcmp(only, type->name) != 0) continue;
        char words[400];
        int length = snprintf(words, sizeof words, "model.mixer=%s", type->name), tried = 0;
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            if (ls_options_find(&type->options, sizes[i][0]) != NULL)
                length += snprintf(words + length, sizeof words - (size_t)length, " mixer.%s=%s",
                                   sizes[i][0], sizes[i][1]);
        const bool positioned = type->traits & LS_MIXER_POSITIONS;
        for (size_t q = 0; q < (positioned ? ls_position_count : 1); q++) {
            ls_ctx ctx = ctx_of_one_thread();
            ls_model_config config;
            if (positioned)
                snprintf(words + length, sizeof words - (size_t)length, " model.position=%s",
                         ls_position_types[q]->name);
            ls_model *model = made(&ctx, words, LS_F64, &config);
            if (model != NULL) check_both(words); /* not every mixer takes every method */
            tried += model != NULL;
            ls_model_free(model);
            ls_model_config_clear(&ctx, &config);
        }
        assert_true(tried > 0);
    }
}

/* Ways of mixers that keep something else, or count otherwise. */
static void test_other_ways(void **state) {
    (void)state;
    static const char *const words[] = {
        "model.mixer=attention mixer.heads=2 model.position=rope",
        "model.mixer=attention mixer.heads=2 model.position=xpos mixer.window=0",
        "model.mixer=retnet mixer.heads=2 mixer.scaling=root",
        "model.mixer=mega mixer.attention=laplace",
        "model.mixer=mega mixer.bias=simple mixer.max_positions=64",
        "model.mixer=transformer_xl mixer.heads=2 mixer.same_length=true mixer.memory=20",
        "model.mixer=transformer_xl mixer.heads=2 mixer.segment=16 mixer.memory=200",
        "model.mixer=compressive mixer.heads=2 mixer.segment=16 mixer.memory=16 "
        "mixer.compressed=8 mixer.compress=most_used",
        "model.mixer=compressive mixer.heads=2 mixer.segment=4 mixer.memory=8 mixer.rate=2 "
        "mixer.compress=dilated mixer.dilation=3 mixer.bptt=true mixer.loss=none "
        "mixer.distance=time",
        "model.mixer=compressive mixer.heads=2 mixer.segment=16 mixer.memory=32 mixer.rate=2 "
        "mixer.compress=max mixer.positions=table",
        "model.mixer=mamba2 mixer.d_state=8 mixer.headdim=8 mixer.init_states=true",
        "model.layers=mamba,attention,s5 mixer.attention.heads=2 model.position=alibi",
        "model.adaptive_cutoffs=9,21 mixer.heads=2 model.position=t5",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) check_both(words[i]);
}

static void test_memory_between_segments(void **state) {
    (void)state;
    static const char *const words[] = {
        "model.segment=8 mixer.heads=2 model.position=rope",
        "model.segment=8 model.memory=3 mixer.heads=2 model.position=learned position.length=32",
        "model.segment=8 model.memory=3 model.mixer=mamba",
        "model.segment=8 model.memory=3 model.memory_kind=slots model.memory_heads=2 "
        "mixer.heads=2 model.position=alibi",
        "model.segment=16 model.memory=3 model.memory_kind=slots model.memory_heads=2 "
        "model.memory_update=gru mixer.heads=2 model.position=sinusoidal",
        "model.segment=8 model.memory=3 model.memory_kind=slots model.memory_heads=2 "
        "model.memory_encoder=1 mixer.heads=2 model.position=t5",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) check_both(words[i]);
}

/* What compressive mixers learn to compress by is a mean over the batch: a third of it comes from
 * each row. */
static void test_loss_of_what_attention_sees(void **state) {
    (void)state;
    char words[2][256];
    for (int alone = 0; alone < 2; alone++)
        snprintf(words[alone], sizeof words[alone],
                 "model.mixer=compressive mixer.heads=2 mixer.segment=8 mixer.memory=8 "
                 "mixer.compressed=4 mixer.compress=conv mixer.loss_weight=%d",
                 alone == 1 ? 1 : BATCH);
    check(words[0], words[1], LS_F64, 1e-11);
    check(words[0], words[1], LS_F32, 1e-4);
}

/* Groups of rows from before a document count as zeros: in its first window half of those that a
 * window makes are its own, which alone are all there are. */
static void test_loss_of_what_comes_back(void **state) {
    (void)state;
    static const char words[] =
        "model.mixer=compressive mixer.heads=2 mixer.segment=8 mixer.memory=8 mixer.compressed=4 "
        "mixer.compress=conv mixer.loss=autoencode";
    ls_ctx ctx = ctx_of_one_thread();
    outcome together = {0}, alone = {0};
    assert_int_equal(outcome_of(&ctx, words, LS_F64, true, &together), LS_OK);
    assert_int_equal(outcome_of(&ctx, words, LS_F64, false, &alone), LS_OK);
    for (int64_t step = 0; step < STEPS; step++) {
        double want = 0;
        for (int row = 0; row < BATCH; row++)
            want += alone.auxiliary[row][step] *
                    (step > 0 && place_of(row, step).window == 0 ? 0.5 : 1) / BATCH;
        assert_true(want > 0);
        same(words, "the loss beside", &together.auxiliary[0][step], &want, 1, 0, 1e-12);
    }
    outcome_clear(&together);
    outcome_clear(&alone);
}

/* Where no row begins anew, the bits are those of a program that knows nothing of it. */
static void test_going_on_changes_nothing(void **state) {
    (void)state;
    static const char *const words[] = {
        "mixer.heads=2 model.position=learned",
        "mixer.heads=2 model.position=sinusoidal mixer.window=20",
        "model.mixer=compressive mixer.heads=2 mixer.segment=8 mixer.memory=8 mixer.compressed=4",
        "model.mixer=retnet mixer.heads=2 mixer.scaling=root",
        "model.segment=8 model.memory=3 mixer.heads=2 model.position=alibi",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        ls_ctx ctx = ctx_of_one_thread();
        ls_model_config config;
        ls_model *model = made(&ctx, words[i], LS_F64, &config);
        outcome out[2] = {0};
        assert_non_null(model);
        for (int resets = 0; resets < 2; resets++) {
            runner r;
            expect(&ctx, open_runner(model, BATCH, resets, &r));
            ls_parameters_clear_gradient(model->store);
            for (int64_t window = 0; window < CARRY / T; window++) {
                for (int row = 0; row < BATCH; row++) put_window(&r, row, row, (place){1, window});
                expect(&ctx, ls_program_run(r.program, r.state, 0, 0));
                for (int row = 0; row < BATCH; row++)
                    out[resets].count[row] +=
                        take_losses(&r, row, out[resets].losses[row] + out[resets].count[row]);
            }
            take_gradient(model, &out[resets]);
            close_runner(&ctx, &r);
        }
        assert_true(out[0].count[0] > 2 * T);
        assert_memory_equal(out[0].losses, out[1].losses, sizeof out[0].losses);
        assert_memory_equal(out[0].gradient, out[1].gradient,
                            (size_t)out[0].elements * sizeof *out[0].gradient);
        for (int resets = 0; resets < 2; resets++) outcome_clear(&out[resets]);
        ls_model_free(model);
        ls_model_config_clear(&ctx, &config);
    }
}

static void refuses(const char *words, int64_t length, const char *reason) {
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config config;
    ls_model *model = made(&ctx, words, LS_F64, &config);
    ls_program *program;
    ls_program_options options = {.batch = 2,
                                  .length = length,
                                  .streaming = true,
                                  .capacity = 64,
                                  .chunk_max = length,
                                  .resets = true};
    assert_non_null(model);
    if (ls_model_program(model, LS_MODEL_TRAIN, options, &program) != LS_EUSE)
        fail_msg("%s is not refused", words);
    if (strstr(ctx.error.message, reason) == NULL)
        fail_msg("%s: the reason is %s", words, ctx.error.message);
    ls_model_free(model);
    ls_model_config_clear(&ctx, &config);
}

static void test_what_cannot_be_is_refused(void **state) {
    (void)state;
    refuses("model.mixer=transformer_xl mixer.heads=2 mixer.segment=12", 16,
            "must be a multiple of the 12");
    refuses("model.mixer=mega mixer.chunk=32", 16, "must be a multiple of the 32");
    refuses("model.mixer=longt5 mixer.heads=2 mixer.global_block=5", 16,
            "must be a multiple of the 5");
    refuses("model.mixer=compressive mixer.heads=2 mixer.segment=16 mixer.memory=8 "
            "mixer.compress=most_used",
            16, "whole segments of 16");
    refuses("model.position=rope mixer.heads=2 extend=sinks", 16, "begin anew each for itself");
    refuses("model.position=rope mixer.heads=2 extend=lm_infinite", 16,
            "begin anew each for itself");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mixer),
        cmocka_unit_test(test_other_ways),
        cmocka_unit_test(test_memory_between_segments),
        cmocka_unit_test(test_loss_of_what_attention_sees),
        cmocka_unit_test(test_loss_of_what_comes_back),
        cmocka_unit_test(test_going_on_changes_nothing),
        cmocka_unit_test(test_what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
