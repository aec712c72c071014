/* A real model on a real corpus through ls_train_model: exact resume with each loader, and with
 * state that is carried from batch to batch, over borders of documents or from each one's start. */
#include "data/data.h"
#include "train_fixture.h"

static char folder[64];

typedef enum { SHUFFLED, STREAM, DOCUMENTS } order;

typedef struct setup {
    ls_ctx ctx;
    ls_train_settings train;
    ls_data_settings data_settings;
    ls_dataset data;
    ls_loader *loader;
    ls_model_config config;
    ls_model *model;
    ls_train_job job;
    char run[128];
} setup;

static void must(ls_ctx *ctx, ls_status status) {
    if (status != LS_OK) fail_msg("%s", ctx->error.message);
}

static int make_folder(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char path[128];
    ls_text text = {0};
    strcpy(folder, "/tmp/longshot-train-model-XXXXXX");
    if (mkdtemp(folder) == NULL) return 1;
    for (int i = 0; i < 900; i++) ls_text_printf(&ctx, &text, "line %d of a short text\n", i);
    snprintf(path, sizeof path, "%s/corpus.txt", folder);
    ls_status status = ls_file_write(&ctx, path, text.bytes, text.length);
    text.length = 0;
    for (int i = 0; i < 40; i++) { /* documents of up to six windows and a half */
        ls_text_printf(&ctx, &text, "{\"text\": \"");
        for (int j = 0; j < 1 + i * 7 % 11; j++) ls_text_printf(&ctx, &text, "%d, %d; ", i, j * i);
        ls_text_printf(&ctx, &text, "\"}\n");
    }
    snprintf(path, sizeof path, "%s/documents.jsonl", folder);
    if (status == LS_OK) status = ls_file_write(&ctx, path, text.bytes, text.length);
    ls_text_clear(&ctx, &text);
    return status != LS_OK;
}

static int remove_folder(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    return ls_folder_remove(&ctx, folder) != LS_OK;
}

static void open_setup(setup *s, const char *name, order how, const char *more, int threads) {
    *s = (setup){.ctx = ls_ctx_default()};
    ls_ctx *ctx = &s->ctx;
    ctx->threads = threads;
    must(ctx, ls_options_default(ctx, &ls_train_options, &s->train));
    must(ctx, ls_options_default(ctx, &ls_data_options, &s->data_settings));
    s->train.steps = 8;
    s->train.batch = 4;
    s->train.length = 16;
    s->train.accumulate = 2;
    s->train.carry = how == SHUFFLED ? 0 : 48; /* three batches long */
    s->train.checkpoint_every = 0;
    snprintf(s->data_settings.corpus, sizeof s->data_settings.corpus, "%s/%s", folder,
             how == DOCUMENTS ? "documents.jsonl" : "corpus.txt");
    s->data_settings.loader = how == SHUFFLED ? LS_LOADER_SHUFFLED : LS_LOADER_STREAM;
    s->data_settings.borders = how == DOCUMENTS;
    must(ctx, ls_data_open(ctx, &s->data_settings, folder, NULL, &s->data));
    must(ctx, ls_data_loader(ctx, &s->data, &s->data_settings, s->train.batch, s->train.length, 1,
                             &s->loader));
    char given[256];
    snprintf(given, sizeof given,
             "model.layers=2 model.width=32 mixer.heads=2 model.dropout=0.1 %s", more);
    must(ctx, ls_model_config_read_words(ctx, given, &s->config));
    s->config.model.vocabulary = ls_token_file_vocabulary(s->data.train);
    must(ctx, ls_model_new(ctx, &s->config, ls_train_dtype(&s->train), 1, true, &s->model));
    snprintf(s->run, sizeof s->run, "%s/%s", folder, name);
    s->job = (ls_train_job){.folder = s->run, .config = "", .settings = &s->train};
}

static void close_setup(setup *s) {
    ls_model_free(s->model);
    ls_model_config_clear(&s->ctx, &s->config);
    ls_loader_free(&s->ctx, s->loader);
    ls_data_close(&s->ctx, &s->data);
}

static volatile sig_atomic_t stop_flag;

static void stop_at_three(void *user, const ls_metrics_row *row, const char *line) {
    (void)user;
    (void)line;
    if (row->step == 3) stop_flag = 1;
}

static void compare(const setup *a, const setup *b, const char *name) {
    ls_ctx ctx = ls_ctx_default();
    char path[512];
    ls_text x = {0}, y = {0};
    snprintf(path, sizeof path, "%s/checkpoints/step-00000008/%s", a->run, name);
    must(&ctx, ls_file_read(&ctx, path, 1 << 28, &x));
    snprintf(path, sizeof path, "%s/checkpoints/step-00000008/%s", b->run, name);
    must(&ctx, ls_file_read(&ctx, path, 1 << 28, &y));
    assert_int_equal(x.length, y.length);
    assert_memory_equal(x.bytes, y.bytes, x.length);
    ls_text_clear(&ctx, &x);
    ls_text_clear(&ctx, &y);
}

/* A run that is stopped and taken up again ends with the same bits; more: words of the model. */
static void resume(const char *name, order how, const char *more) {
    setup whole, cut, rest;
    ls_train_result result;
    char other[64];
    snprintf(other, sizeof other, "%s-cut", name);
    open_setup(&whole, name, how, more, 1);
    must(&whole.ctx, ls_train_model(&whole.ctx, whole.model, whole.loader, &whole.job, &result));
    assert_int_equal(result.tokens, 8 * 4 * 16);

    open_setup(&cut, other, how, more, 2);
    stop_flag = 0;
    cut.train.log_every = 1;
    cut.job.stop = &stop_flag;
    cut.job.progress = stop_at_three;
    assert_int_equal(ls_train_model(&cut.ctx, cut.model, cut.loader, &cut.job, &result), LS_ESTOP);
    assert_int_equal(result.step, 3);

    open_setup(&rest, other, how, more, 1);
    must(&rest.ctx, ls_train_model(&rest.ctx, rest.model, rest.loader, &rest.job, &result));
    assert_int_equal(result.resumed, 3);
    compare(&whole, &rest, "model.safetensors");
    compare(&whole, &rest, "optimizer.safetensors");
    if (how != SHUFFLED) compare(&whole, &rest, "memory.bin");
    close_setup(&whole);
    close_setup(&cut);
    close_setup(&rest);
}

static void shuffled_windows_resume_exactly(void **state) {
    (void)state;
    resume("shuffled", SHUFFLED, "");
}

static void carried_state_resumes_exactly(void **state) {
    (void)state;
    resume("stream", STREAM, "");
}

static void slots_of_memory_resume_exactly(void **state) {
    (void)state;
    resume("slots", STREAM,
           "model.segment=8 model.memory=3 model.memory_kind=slots model.memory_heads=2 "
           "model.memory_encoder=1 model.position=t5");
}

static void documents_resume_exactly(void **state) {
    (void)state;
    resume("documents", DOCUMENTS, "");
    resume("documents-xl", DOCUMENTS, "model.mixer=transformer_xl mixer.segment=8 mixer.memory=24");
    resume("documents-slots", DOCUMENTS,
           "model.segment=8 model.memory=3 model.memory_kind=slots model.memory_heads=2 "
           "model.position=t5");
}

/* A column of the row of a step in metrics.csv. */
static double logged(const setup *s, int step, int column) {
    static const char head[] = "step,loss,lr,grad_norm,auxiliary,";
    ls_ctx ctx = ls_ctx_default();
    char path[256], start[16];
    ls_text rows = {0};
    snprintf(path, sizeof path, "%s/metrics.csv", s->run);
    must(&ctx, ls_file_read(&ctx, path, 1 << 20, &rows));
    assert_memory_equal(rows.bytes, head, sizeof head - 1);
    snprintf(start, sizeof start, "\n%d,", step);
    const char *at = strstr(rows.bytes, start);
    if (at == NULL) fail_msg("there is no row of step %d", step);
    for (int i = 0; i < column; i++) at = strchr(at, ',') + 1;
    double value = strtod(at, NULL);
    ls_text_clear(&ctx, &rows);
    return value;
}

/* What the loss of a step should be; *mixed: some rows of it begin anew, and others go on. */
static double mean_alone(setup *s, ls_stream *const *stream, int64_t step, bool *mixed) {
    const int64_t B = s->train.batch, T = s->train.length;
    int32_t inputs[64], targets[64];
    bool fresh[4];
    double loss[64], sum = 0, scored = 0;
    int64_t begun = 0;
    ls_loader_rows(s->loader, step, 0, B, inputs, targets, fresh);
    for (int64_t b = 0; b < B; b++) {
        if (fresh[b] || ls_stream_position(stream[b]) + T > s->train.carry)
            ls_stream_reset(stream[b]);
        begun += ls_stream_position(stream[b]) == 0;
        must(&s->ctx, ls_stream_loss(stream[b], inputs + b * T, targets + b * T, T, T, loss));
        for (int64_t t = 0; t < T; t++) {
            sum += targets[b * T + t] < 0 ? 0 : loss[t];
            scored += targets[b * T + t] >= 0;
        }
    }
    *mixed = begun > 0 && begun < B;
    return sum / scored;
}

/* The loss of every step is that of rows with a stream each, which begins anew where a document
 * does, and after three windows of one. */
static void documents_are_trained_alone(void **state) {
    (void)state;
    enum { STEPS = 24 };
    setup s;
    ls_train_result result;
    ls_stream *stream[4];
    double loss[STEPS + 1];
    int mixed_steps = 0;
    open_setup(&s, "alone", DOCUMENTS, "model.dropout=0 model.position=alibi", 2);
    s.train.steps = STEPS;
    s.train.lr = 0; /* the same weights all the time */
    s.train.log_every = 1;
    must(&s.ctx, ls_train_model(&s.ctx, s.model, s.loader, &s.job, &result));
    for (int step = 1; step <= STEPS; step++) loss[step] = logged(&s, step, 1);
    for (int b = 0; b < 4; b++)
        must(&s.ctx, ls_stream_new(s.model, 1, s.train.carry, s.train.length, &stream[b]));
    for (int step = 1; step <= STEPS; step++) {
        bool mixed;
        double want = mean_alone(&s, stream, step - 1, &mixed);
        mixed_steps += mixed;
        if (!(fabs(loss[step] - want) <= 1e-5 * want))
            fail_msg("the loss of step %d is %.9g, alone %.9g", step, loss[step], want);
    }
    assert_true(mixed_steps > STEPS / 4);
    for (int b = 0; b < 4; b++) ls_stream_free(stream[b]);
    close_setup(&s);
}

static void auxiliary_losses_have_a_column(void **state) {
    (void)state;
    static const char *const words[] = {
        "model.mixer=compressive mixer.segment=16 mixer.memory=16 mixer.rate=4",
        "model.mixer=compressive mixer.segment=16 mixer.memory=16 mixer.rate=4 mixer.loss_weight=2",
        "model.mixer=compressive mixer.segment=16 mixer.memory=16 mixer.rate=4 mixer.loss=none"};
    double value[3];
    for (int i = 0; i < 3; i++) {
        setup s;
        ls_train_result result;
        char name[32];
        snprintf(name, sizeof name, "auxiliary-%d", i);
        open_setup(&s, name, STREAM, words[i], 1);
        s.train.log_every = 1;
        s.train.lr = 1e-9; /* so that the weights are the same all the time */
        must(&s.ctx, ls_train_model(&s.ctx, s.model, s.loader, &s.job, &result));
        value[i] = logged(&s, 8, 4);
        close_setup(&s);
    }
    assert_true(value[0] > 0);
    assert_true(fabs(value[1] - 2 * value[0]) < 1e-4 * value[1]);
    assert_true(value[2] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shuffled_windows_resume_exactly),
        cmocka_unit_test(carried_state_resumes_exactly),
        cmocka_unit_test(slots_of_memory_resume_exactly),
        cmocka_unit_test(documents_resume_exactly),
        cmocka_unit_test(documents_are_trained_alone),
        cmocka_unit_test(auxiliary_losses_have_a_column),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
