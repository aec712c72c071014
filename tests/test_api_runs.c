/* The installed interface from recipe to study: training with a callback, stopping and going on,
 * evaluation, classifiers, studies, the log. */
#include "api_fixture.h"

#include <glob.h>

typedef struct watch {
    int64_t steps, stop_at, last;
    double loss;
} watch;

static int on_step(void *user, const longshot_step *step) {
    watch *w = user;
    assert_int_equal(step->size, sizeof *step);
    assert_int_equal(step->step, w->last + 1);
    assert_int_equal(step->steps, 6);
    assert_int_equal(step->accepted, 1);
    assert_true(step->learning_rate > 0 && step->gradient_norm > 0);
    w->last = step->step;
    w->loss = step->loss;
    return ++w->steps == w->stop_at;
}

static const char *const heads[] = {"mixer.heads=2", NULL};

/* Stopped in the midst and continued, a run ends where an undisturbed one does. */
static void test_training(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    longshot_train_result result = {.size = sizeof result}, cut = {.size = sizeof cut};
    watch whole = {0}, first = {.stop_at = 2}, rest = {.last = 2};
    OK(engine, fixture_train(engine, "whole", heads, on_step, &whole, &result));
    assert_int_equal(whole.steps, 6);
    assert_int_equal(result.step, 6);
    assert_int_equal(result.tokens, 6 * 2 * 16);
    assert_true(result.loss == whole.loss && result.parameters > 0);
    assert_int_equal(fixture_train(engine, "cut", heads, on_step, &first, &cut), LONGSHOT_ESTOP);
    assert_int_equal(cut.step, 2);
    OK(engine, fixture_train(engine, "cut", heads, on_step, &rest, &cut));
    assert_int_equal(cut.resumed, 2);
    assert_int_equal(rest.steps, 4);
    assert_true(cut.loss == result.loss);
    assert_non_null(strstr(cut.folder, "/cut"));
    longshot_stop(engine); /* before it begins */
    assert_int_equal(fixture_train(engine, "third", heads, NULL, NULL, NULL), LONGSHOT_ESTOP);
    longshot_engine_close(engine);
}

/* A result of an older program gets what it has room for, and nothing behind it is touched. */
static void test_small_result(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    struct {
        longshot_train_result result;
        int64_t behind;
    } r = {.result = {.size = offsetof(longshot_train_result, resumed), .tokens = -5}};
    OK(engine, fixture_train(engine, "small", heads, NULL, NULL, &r.result));
    assert_true(r.result.parameters > 0 && r.result.tokens == -5);
    r.result.size = sizeof r;
    r.behind = -5;
    OK(engine, fixture_train(engine, "small", heads, NULL, NULL, &r.result));
    assert_int_equal(r.result.tokens, 6 * 2 * 16);
    assert_int_equal(r.behind, 0);
    longshot_engine_close(engine);
}

static void test_wrong_settings(void **unused) {
    (void)unused;
    static const struct {
        const char *word;
        int code;
        const char *told;
    } cases[] = {{"model.widht=3", LONGSHOT_EUSE, "width"},
                 {"train.lr", LONGSHOT_EUSE, "train.lr"},
                 {"device=cuda", LONGSHOT_EUSE, "longshot_engine_open"},
                 {"extend=yarn", LONGSHOT_EUSE, "extend"},
                 {"seed=-3", LONGSHOT_EUSE, "seed"},
                 {"trian.steps=3", LONGSHOT_EUSE, "train.steps"}};
    longshot_engine *engine = fixture_engine();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const words[] = {cases[i].word, "mixer.heads=2", NULL};
        fixture_refused(engine, fixture_train(engine, "never", words, NULL, NULL, NULL),
                        cases[i].code, cases[i].told);
    }
    const longshot_train_options options = {.size = sizeof options, .recipe = "no/such.yaml"};
    assert_true(longshot_train(engine, &options, NULL) != LONGSHOT_OK);
    assert_non_null(strstr(longshot_error(engine), "no/such.yaml"));
    longshot_engine_close(engine);
}

/* ---- evaluation ---- */

typedef struct rows {
    int64_t count, progress, stop_at;
    double loss;
} rows;

static int on_row(void *user, const longshot_eval_row *row) {
    rows *r = user;
    assert_string_equal(row->protocol, "nonoverlap");
    assert_int_equal(row->length, r->count == 0 ? 16 : 32);
    assert_true(fabs(row->perplexity - exp(row->loss)) < 1e-6 * row->perplexity);
    assert_true(row->tokens > 0 && isnan(row->accuracy));
    r->loss = row->loss;
    r->count++;
    return 0;
}

static int on_progress(void *user, const char *what, int64_t length, double share) {
    rows *r = user;
    assert_true(strlen(what) > 0 && length > 0 && share >= 0 && share <= 1);
    return ++r->progress == r->stop_at;
}

static void test_evaluation(void **unused) {
    (void)unused;
    const char *const words[] = {"eval.protocol=nonoverlap", "eval.lengths=16,32",
                                 "eval.tokens=512", "eval.resolution=false", NULL};
    longshot_engine *engine = fixture_engine();
    char run[128], written[192], loss[32], *json;
    glob_t found;
    rows r = {0};
    fixture_path(run, sizeof run, "tested");
    OK(engine, fixture_train(engine, "tested", heads, NULL, NULL, NULL));
    longshot_eval_options options = {.size = sizeof options,
                                     .settings = words,
                                     .on_progress = on_progress,
                                     .on_row = on_row,
                                     .user = &r};
    OK(engine, longshot_eval(engine, run, &options, &json));
    assert_int_equal(r.count, 2);
    assert_true(r.progress > 0);
    snprintf(loss, sizeof loss, "%.17g", r.loss);
    assert_non_null(strstr(json, loss));
    longshot_text_free(engine, json);
    snprintf(written, sizeof written, "%s/eval/nonoverlap-*.json", run);
    assert_int_equal(glob(written, 0, NULL, &found), GLOB_NOMATCH);
    options.write = 1;
    r = (rows){0};
    OK(engine, longshot_eval(engine, run, &options, NULL));
    assert_int_equal(glob(written, 0, NULL, &found), 0);
    globfree(&found);
    r = (rows){.stop_at = 1};
    assert_int_equal(longshot_eval(engine, run, &options, &json), LONGSHOT_ESTOP);
    assert_null(json);
    assert_int_equal(r.count, 0);
    const char *const wrong[] = {"eval.protocl=slide", NULL};
    options.settings = wrong;
    fixture_refused(engine, longshot_eval(engine, run, &options, &json), LONGSHOT_EUSE, "protocol");
    longshot_engine_close(engine);
}

/* ---- tasks ---- */

/* A classifier gives a row of logits for each sequence, and padding changes nothing. */
static void test_classifier(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    char out[128], run[96];
    fixture_path(run, sizeof run, "classes");
    snprintf(out, sizeof out, "out=%s", run);
    const char *const words[] = {"task=listops",
                                 "model.layers=1",
                                 "model.width=16",
                                 "mixer.heads=2",
                                 "train.length=64",
                                 "train.steps=2",
                                 "train.batch=2",
                                 "model.causal=false",
                                 "model.position=rope",
                                 out,
                                 NULL};
    const longshot_train_options options = {.size = sizeof options, .settings = words};
    longshot_model *model;
    longshot_stream *stream;
    OK(engine, longshot_train(engine, &options, NULL));
    OK(engine, longshot_model_open(engine, run, NULL, &model));
    assert_int_equal(longshot_model_classes(model), 10);
    assert_int_equal(longshot_model_sequences(model), 1);
    assert_null(longshot_model_tokenizer(model));
    int32_t tokens[2 * 12];
    float logits[2 * 10], shorter[2 * 10];
    for (int i = 0; i < 24; i++) tokens[i] = i % 12 < 9 ? 1 + i % 5 : -1;
    OK(engine, longshot_model_logits(model, tokens, 2, 12, logits));
    for (int i = 0; i < 18; i++) tokens[i] = 1 + (i / 9 * 12 + i % 9) % 5;
    OK(engine, longshot_model_logits(model, tokens, 2, 9, shorter));
    for (int i = 0; i < 20; i++) assert_true(fabsf(logits[i] - shorter[i]) < 1e-5F);
    fixture_refused(engine, longshot_stream_open(model, NULL, &stream), LONGSHOT_EUSE,
                    "classifier");
    fixture_refused(engine, longshot_model_loss(model, tokens, 1, 9, logits), LONGSHOT_EUSE,
                    "classifier");
    longshot_model_close(model);
    longshot_engine_close(engine);
}

/* An encoder reads its source before anything else, once. */
static void test_encoder(void **unused) {
    (void)unused;
    enum { SOURCE = 5, COUNT = 6 };
    longshot_engine *engine = fixture_engine();
    char out[128], run[96];
    fixture_path(run, sizeof run, "reads");
    snprintf(out, sizeof out, "out=%s", run);
    const char *const words[] = {"task=reverse",
                                 "model.position=rope",
                                 "model.layers=1",
                                 "model.width=16",
                                 "mixer.heads=2",
                                 "model.encoder_layers=1",
                                 "model.cross_heads=2",
                                 "train.length=32",
                                 "train.steps=2",
                                 "train.batch=2",
                                 out,
                                 NULL};
    const longshot_train_options train = {.size = sizeof train, .settings = words};
    longshot_stream_options options = {.size = sizeof options, .capacity = COUNT};
    const int32_t tokens[COUNT] = {1, 3, 2, 2, 1, 3};
    int32_t source[SOURCE] = {2, 1, 3, 1, -1};
    float first[COUNT], second[COUNT], other[COUNT];
    longshot_model *model;
    longshot_stream *stream, *fork;
    OK(engine, longshot_train(engine, &train, NULL));
    OK(engine, longshot_model_open(engine, run, NULL, &model));
    fixture_refused(engine, longshot_stream_open(model, &options, &stream), LONGSHOT_EUSE,
                    "encoder");
    assert_int_equal(longshot_model_encoder(model), 1);
    options.source = SOURCE;
    OK(engine, longshot_stream_open(model, &options, &stream));
    fixture_refused(engine, longshot_stream_feed(stream, tokens, 2, NULL), LONGSHOT_EUSE, "source");
    OK(engine, longshot_stream_read(stream, source));
    OK(engine, longshot_stream_feed(stream, tokens, 2, NULL));
    OK(engine, longshot_stream_fork(stream, &fork));
    OK(engine, longshot_stream_loss(stream, tokens + 2, tokens + 1, 4, first));
    OK(engine, longshot_stream_loss(fork, tokens + 2, tokens + 1, 4, second));
    assert_memory_equal(first, second, 4 * sizeof *first);
    fixture_refused(engine, longshot_stream_read(stream, source), LONGSHOT_EUSE, "source");
    longshot_stream_reset(stream);
    source[0] = 3;
    OK(engine, longshot_stream_read(stream, source));
    OK(engine, longshot_stream_feed(stream, tokens, 2, NULL));
    OK(engine, longshot_stream_loss(stream, tokens + 2, tokens + 1, 4, other));
    assert_true(memcmp(first, other, 4 * sizeof *first) != 0);
    longshot_stream_close(fork);
    longshot_stream_close(stream);
    longshot_model_close(model);
    longshot_engine_close(engine);
}

/* Any language model: losses are those of the logits, also of a fork. */
static void test_mixers(void **unused) {
    (void)unused;
    enum { COUNT = 25, VOCABULARY = 256 };
    static const char *const cases[][4] = {
        {"model.mixer=mamba"},
        {"model.mixer=retnet", "mixer.heads=2"},
        {"model.mixer=transformer_xl", "mixer.heads=2", "mixer.segment=8", "mixer.memory=8"},
        {"mixer.heads=2", "model.segment=7", "model.memory=2", "model.position=rope"},
        {"mixer.heads=2", "model.adaptive_cutoffs=60,120", "model.tied=true"},
    };
    static float logits[COUNT * VOCABULARY];
    longshot_engine *engine = fixture_engine();
    int32_t tokens[COUNT];
    float loss[COUNT - 1], again[COUNT - 1];
    for (int i = 0; i < COUNT; i++) tokens[i] = (int32_t)("what follows is much like "[i]);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *words[6] = {cases[i][0], cases[i][1], cases[i][2], cases[i][3]};
        char name[16], run[128];
        longshot_model *model;
        longshot_stream *stream, *fork;
        snprintf(name, sizeof name, "mixer-%zu", i);
        fixture_path(run, sizeof run, name);
        OK(engine, fixture_train(engine, name, words, NULL, NULL, NULL));
        OK(engine, longshot_model_open(engine, run, NULL, &model));
        OK(engine, longshot_model_logits(model, tokens, 1, COUNT, logits));
        OK(engine, longshot_model_loss(model, tokens, 1, COUNT, loss));
        for (int t = 0; t + 1 < COUNT; t++) {
            double sum = 0;
            for (int v = 0; v < VOCABULARY; v++) sum += exp((double)logits[t * VOCABULARY + v]);
            const double wanted = log(sum) - (double)logits[t * VOCABULARY + tokens[t + 1]];
            assert_true(fabs((double)loss[t] - wanted) < 1e-4);
        }
        const longshot_stream_options options = {.size = sizeof options, .capacity = COUNT};
        OK(engine, longshot_stream_open(model, &options, &stream));
        OK(engine, longshot_stream_feed(stream, tokens, 10, NULL));
        OK(engine, longshot_stream_fork(stream, &fork));
        OK(engine, longshot_stream_loss(stream, tokens + 10, tokens + 11, 14, loss));
        OK(engine, longshot_stream_loss(fork, tokens + 10, tokens + 11, 14, again));
        assert_memory_equal(loss, again, 14 * sizeof *loss);
        longshot_stream_close(stream);
        longshot_stream_close(fork);
        longshot_model_close(model);
    }
    longshot_engine_close(engine);
}

/* ---- studies ---- */

static int on_job(void *user, const char *line, int64_t done, int64_t count) {
    int64_t *told = user;
    assert_true(strlen(line) > 0 && done >= 0 && done <= count);
    *told = done;
    return 0;
}

static void test_study(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    char file[96], out[128], results[160];
    int64_t done = 0;
    fixture_path(file, sizeof file, "tiny.yaml");
    FILE *yaml = fopen(file, "w");
    assert_non_null(yaml);
    fprintf(yaml,
            "seeds: [1]\nmodel: {layers: 1, width: 16, length: 16}\nmixer: {heads: 2}\n"
            "data: {corpus: %s/text.txt}\ntrain: {steps: 2, batch: 2, lr: 1e-3, warmup: 1}\n"
            "eval: {lengths: [16], tokens: 256}\narms:\n  rope: {model.position: rope}\n"
            "  bca: {from: rope, extend: bca}\n",
            fixture_folder);
    assert_int_equal(fclose(yaml), 0);
    snprintf(out, sizeof out, "out=%s/study", fixture_folder);
    const char *const words[] = {out, NULL};
    const longshot_study_options options = {
        .size = sizeof options, .settings = words, .on_progress = on_job, .user = &done};
    longshot_study_result result = {.size = sizeof result};
    OK(engine, longshot_study(engine, file, &options, &result));
    assert_int_equal(done, 3);
    assert_non_null(strstr(result.summary, "rope"));
    longshot_text_free(engine, result.summary);
    snprintf(results, sizeof results, "%s/results.json", result.folder);
    assert_int_equal(access(results, F_OK), 0);
    const char *const wrong[] = {out, "trian.steps=3", NULL};
    longshot_study_options mistaken = options;
    mistaken.settings = wrong;
    fixture_refused(engine, longshot_study(engine, file, &mistaken, &result), LONGSHOT_EUSE,
                    "train.steps");
    assert_null(result.summary);
    assert_null(result.folder);
    longshot_engine_close(engine);
}

/* ---- one mechanism alone ---- */

typedef struct compared {
    int64_t rows, good;
} compared;

static int on_tensor(void *user, const longshot_apply_row *row) {
    compared *c = user;
    assert_true(strlen(row->tensor) > 0 && row->tolerance > 0);
    c->rows++;
    c->good += row->good;
    return 0;
}

static void test_apply(void **unused) {
    (void)unused;
    const char *golden = "golden=" LS_TEST_SOURCE "/tests/golden/mamba-block.safetensors";
    const char *const words[] = {"mixer=mamba", golden, NULL};
    const char *const strict[] = {"mixer=mamba", golden, "tol=1e-300", NULL};
    const char *const wrong[] = {"mixer=mamba", golden, "tolx=1", NULL};
    longshot_engine *engine = fixture_engine();
    compared c = {0}, s = {0};
    longshot_apply_options options = {
        .size = sizeof options, .settings = words, .on_row = on_tensor, .user = &c};
    OK(engine, longshot_apply(engine, "mixer", &options));
    assert_true(c.rows > 3 && c.good == c.rows);
    options.settings = strict;
    options.user = &s;
    OK(engine, longshot_apply(engine, "mixer", &options));
    assert_true(s.rows == c.rows && s.good < s.rows);
    options.settings = wrong;
    fixture_refused(engine, longshot_apply(engine, "mixer", &options), LONGSHOT_EUSE, "tol");
    fixture_refused(engine, longshot_apply(engine, "cloud", &options), LONGSHOT_EUSE, "cloud");
    longshot_engine_close(engine);
}

/* ---- the log ---- */

static void on_line(void *user, const char *line) {
    int64_t *lines = user;
    assert_true(strlen(line) > 0 && strchr(line, '\n') == NULL);
    ++*lines;
}

static void test_log(void **unused) {
    (void)unused;
    int64_t lines = 0;
    char cache[96];
    longshot_engine *engine;
    fixture_path(cache, sizeof cache, "cache");
    const longshot_engine_options options = {
        .size = sizeof options, .threads = 1, .cache = cache, .log = on_line, .log_user = &lines};
    OK(engine, longshot_engine_open(&options, &engine));
    OK(engine, fixture_train(engine, "logged", heads, NULL, NULL, NULL));
    assert_true(lines > 0);
    longshot_engine_close(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),       cmocka_unit_test(test_small_result),
        cmocka_unit_test(test_wrong_settings), cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_classifier),     cmocka_unit_test(test_encoder),
        cmocka_unit_test(test_mixers),         cmocka_unit_test(test_study),
        cmocka_unit_test(test_apply),          cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
