/* The Recurrent Memory Transformer: what memory and segments mean. (Public code's numbers:
 * tests/golden/cases.txt.) */
#include "model/model.h"
#include "position_model.h"

static ls_model *make(const char *words, ls_model_config *config) {
    char all[512];
    if (model_ctx.threads == 0) model_ctx = ls_ctx_default();
    snprintf(all, sizeof all,
             "model.layers=2 model.width=16 mixer.heads=2 model.vocabulary=29 mixer.bias=true "
             "model.activation=gelu_tanh model.position=learned position.length=32 %s",
             words);
    OK(ls_model_config_read_words(&model_ctx, all, config));
    ls_model *made;
    OK(ls_model_new(&model_ctx, config, LS_F64, 3, true, &made));
    return made;
}

static void losses(ls_model *made, const int32_t *tokens, int64_t count, double *out) {
    ls_stream *stream;
    OK(ls_stream_new(made, 1, count, count, &stream));
    OK(ls_stream_loss(stream, tokens, tokens + 1, count, count, out));
    ls_stream_free(stream);
}

/* Without memory segments know nothing of one another; with it they do. */
static void test_segments(void **unused) {
    (void)unused;
    enum { EACH = 6, COUNT = 15 };
    int32_t tokens[COUNT + 1];
    double whole[COUNT], alone[COUNT];
    for (int i = 0; i <= COUNT; i++) tokens[i] = (i * 7 + i * i / 3) % 29;
    for (int memory = 0; memory < 2; memory++) {
        ls_model_config config;
        ls_model *made =
            make(memory == 0 ? "model.segment=6" : "model.segment=6 model.memory=2", &config);
        double *weights = made->store->master; /* larger ones, so that nothing hides */
        for (int64_t i = 0; i < made->store->total; i++) weights[i] *= 5;
        losses(made, tokens, COUNT, whole);
        for (int first = 0; first < COUNT; first += EACH)
            losses(made, tokens + first, ls_min(EACH, COUNT - first), alone + first);
        double apart = 0;
        for (int i = 0; i < COUNT; i++) apart = fmax(apart, fabs(whole[i] - alone[i]));
        if (memory == 0) assert_true(apart < 1e-13);
        if (memory == 1) assert_true(apart > 1e-3);
        ls_model_free(made);
        ls_model_config_clear(&model_ctx, &config);
    }
}

/* Gradients through all segments, free() them. */
static double *gradients(ls_model *made, bool replay) {
    enum { COUNT = 37 };
    ls_program *program;
    ls_program_options options = {.batch = 2, .length = COUNT, .recompute = replay};
    int32_t tokens[2 * COUNT];
    double weights[2 * COUNT];
    OK(ls_model_program(made, LS_MODEL_TRAIN, options, &program));
    ls_program_poison(program);
    for (int i = 0; i < 2 * COUNT; i++) tokens[i] = (i * 7 + i * i / 3) % 29, weights[i] = 1;
    OK(ls_model_put_tokens(made, program, "tokens", tokens));
    OK(ls_model_put_tokens(made, program, "targets", tokens));
    ls_tensor_put(program, ls_program_find(program, "weights"), weights);
    ls_parameters_clear_gradient(made->store);
    OK(ls_program_run(program, NULL, 5, 2));
    ls_program_free(program);
    const size_t bytes = (size_t)made->store->total * sizeof(double);
    double *copy = malloc(bytes);
    memcpy(copy, made->store->gradient, bytes);
    return copy;
}

/* Segments that are computed once more give the same bits. */
static void test_replay(void **unused) {
    (void)unused;
    ls_model_config config;
    ls_model *made = make("model.segment=14 model.memory=3 model.dropout=0.2", &config);
    double *want = gradients(made, false), *got = gradients(made, true), most = 0;
    for (int64_t i = 0; i < made->store->total; i++) most = fmax(most, fabs(want[i]));
    assert_true(most > 1e-3);
    assert_memory_equal(got, want, (size_t)made->store->total * sizeof *got);
    free(want), free(got);
    ls_model_free(made);
    ls_model_config_clear(&model_ctx, &config);
}

/* Replayed segments: what a longer horizon adds is its memories and the rows at its ends. */
static void test_replay_memory(void **unused) {
    (void)unused;
    size_t bytes[2][2];
    ls_model_config config;
    ls_model *made = make("model.segment=16 model.memory=2", &config);
    for (int replay = 0; replay < 2; replay++)
        for (int horizon = 0; horizon < 2; horizon++) {
            ls_program *program;
            ls_program_options options = {
                .batch = 2, .length = horizon == 0 ? 64 : 256, .recompute = replay == 1};
            OK(ls_model_program(made, LS_MODEL_TRAIN, options, &program));
            bytes[replay][horizon] = ls_program_bytes(program);
            ls_program_free(program);
        }
    size_t kept = bytes[0][1] - bytes[0][0], replayed = bytes[1][1] - bytes[1][0];
    print_message("12 more segments: %zu bytes kept, %zu replayed\n", kept, replayed);
    assert_true(kept > 8 * replayed);
    ls_model_free(made);
    ls_model_config_clear(&model_ctx, &config);
}

/* The loss of the last segment alone, with gradients. The first segment's tokens are below 6, the
 * others are not. */
static double last_loss(ls_model *made, ls_program *program) {
    enum { EACH = 6, COUNT = 3 * EACH };
    int32_t tokens[COUNT];
    double weights[COUNT], loss[COUNT], sum = 0;
    for (int i = 0; i < COUNT; i++) {
        tokens[i] = i < EACH ? i : 6 + i * 5 % 23;
        weights[i] = i < 2 * EACH ? 0 : 1;
    }
    OK(ls_model_put_tokens(made, program, "tokens", tokens));
    OK(ls_model_put_tokens(made, program, "targets", tokens));
    ls_tensor_put(program, ls_program_find(program, "weights"), weights);
    OK(ls_program_run(program, NULL, 5, 2));
    OK(ls_tensor_get(program, ls_program_find(program, "loss"), loss));
    for (int i = 2 * EACH; i < COUNT; i++) sum += loss[i];
    return sum;
}

/* What the first segment was passes on to the last through memory alone, written twice, and so does
 * the gradient on its way back. */
static void test_gradient_through_memory(void **unused) {
    (void)unused;
    ls_model_config config;
    ls_model *made = make("model.segment=6 model.memory=2 model.tied=false", &config);
    double *weights = made->store->master, most = 0;
    for (int64_t i = 0; i < made->store->total; i++) weights[i] *= 5;
    const ls_program_options options = {.batch = 1, .length = 18};
    ls_program *program;
    OK(ls_model_program(made, LS_MODEL_TRAIN, options, &program));
    ls_parameters_clear_gradient(made->store);
    last_loss(made, program);
    const ls_parameter *embedding = ls_parameters_find(made->store, "embed.weight");
    enum { ROWS = 6, WIDTH = 16 };
    double gradient[ROWS * WIDTH], *values = ls_parameter_master(made->store, embedding);
    memcpy(gradient, (double *)made->store->gradient + embedding->offset, sizeof gradient);
    for (int i = 0; i < ROWS * WIDTH; i += 3) {
        const double kept = values[i], h = 1e-5;
        values[i] = kept + h;
        double numeric = last_loss(made, program);
        values[i] = kept - h;
        numeric = (numeric - last_loss(made, program)) / (2 * h);
        values[i] = kept;
        most = fmax(most, fabs(numeric));
        if (!(fabs(numeric - gradient[i]) <= 1e-6))
            fail_msg("element %d: gradient %g, differences %g", i, gradient[i], numeric);
    }
    assert_true(most > 1e-3);
    ls_program_free(program);
    ls_model_free(made);
    ls_model_config_clear(&model_ctx, &config);
}

/* A stream that is fed in pieces other than segments is the whole text. */
static void test_pieces(void **unused) {
    (void)unused;
    enum { COUNT = 29 };
    int32_t tokens[COUNT + 1];
    double whole[COUNT], pieces[COUNT];
    ls_model_config config;
    ls_model *made = make("model.segment=6 model.memory=2", &config);
    double *weights = made->store->master;
    for (int64_t i = 0; i < made->store->total; i++) weights[i] *= 5;
    for (int i = 0; i <= COUNT; i++) tokens[i] = (i * 7 + i * i / 3) % 29;
    losses(made, tokens, COUNT, whole);
    for (int each = 1; each < 12; each += 2) {
        ls_stream *stream;
        OK(ls_stream_new(made, 1, COUNT, COUNT, &stream));
        for (int first = 0; first < COUNT; first += each) {
            const int count = each < COUNT - first ? each : COUNT - first;
            OK(ls_stream_loss(stream, tokens + first, tokens + first + 1, count, count,
                              pieces + first));
        }
        ls_stream_free(stream);
        for (int i = 0; i < COUNT; i++)
            if (!(fabs(pieces[i] - whole[i]) < 1e-12))
                fail_msg("pieces of %d: loss %d is %g, not %g", each, i, pieces[i], whole[i]);
    }
    ls_model_free(made);
    ls_model_config_clear(&model_ctx, &config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments),      cmocka_unit_test(test_gradient_through_memory),
        cmocka_unit_test(test_pieces),        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_replay_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
