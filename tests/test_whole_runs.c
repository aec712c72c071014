/* Trainings, evaluations and studies as a program that embeds the library asks for them: from
 * settings, with callbacks, without a word on any output. */
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/bench.h"
#include "data_fixture.h"
#include "eval/evaluation.h"
#include "study/study.h"
#include "train/describe.h"
#include "train/training.h"

enum { STEPS = 6 };

static void must(ls_ctx *ctx, ls_status status) {
    if (status != LS_OK) fail_msg("%s", ctx->error.message);
}

static void put_words(ls_ctx *ctx, ls_settings *settings, const char *text) {
    must(ctx, ls_settings_put_words(ctx, settings, text));
}

/* What the callbacks saw. */
typedef struct witness {
    int64_t steps, last, rows, stop_at;
    double shares;
    volatile sig_atomic_t stop;
} witness;

static void see_step(void *user, const ls_train_step *step) {
    witness *w = user;
    assert_true(w->steps == 0 || step->step == w->last + 1);
    assert_true(step->accepted && isfinite(step->loss) && step->norm > 0);
    assert_int_equal(step->steps, STEPS);
    w->steps++;
    w->last = step->step;
    if (step->step == w->stop_at) w->stop = 1;
}

static void see_row(void *user, const ls_metrics_row *row, const char *line) {
    assert_true(row->step > 0 && line[0] != '\0');
    ((witness *)user)->rows++;
}

static ls_status train(ls_ctx *ctx, const char *folder, const char *more, witness *w,
                       ls_train_result *result) {
    ls_settings settings = {0};
    ls_training training;
    put_words(ctx, &settings,
              "model.layers=1 model.width=16 mixer.heads=2 model.length=16 train.steps=6 "
              "train.batch=2 train.log_every=2");
    char corpus[700];
    snprintf(corpus, sizeof corpus, "data.corpus=%s", fixture_path("corpus.txt"));
    must(ctx, ls_settings_put_word(ctx, &settings, corpus));
    put_words(ctx, &settings, more);
    const ls_training_request request = {.settings = &settings,
                                         .folder = fixture_path(folder),
                                         .cache = fixture_path("cache"),
                                         .seed = 3};
    const ls_training_hooks hooks = {
        .stop = &w->stop, .step = see_step, .progress = see_row, .user = w};
    ls_status status = ls_training_read(ctx, &request, &training);
    if (status == LS_OK) status = ls_settings_finish(ctx, &settings, NULL);
    if (status == LS_OK) status = ls_training_run(&training, &hooks, result);
    ls_training_clear(&training);
    ls_settings_clear(ctx, &settings);
    return status;
}

static int make_all(void **state) {
    ls_ctx ctx = ls_ctx_default();
    ls_text text = {0};
    if (fixture_make(state) != 0) return 1;
    for (int i = 0; i < 400; i++) ls_text_printf(&ctx, &text, "line %d of a short text\n", i);
    ls_status status = ls_file_write(&ctx, fixture_path("corpus.txt"), text.bytes, text.length);
    ls_text_clear(&ctx, &text);
    return status != LS_OK;
}

static void same_weights(ls_ctx *ctx, const char *a, const char *b) {
    static const char *const file = "checkpoints/step-00000006/model.safetensors";
    const char *folders[] = {a, b};
    ls_text bytes[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        char path[700];
        must(ctx, ls_path_join(ctx, path, sizeof path, fixture_path(folders[i]), file));
        must(ctx, ls_file_read(ctx, path, 1 << 24, &bytes[i]));
    }
    assert_int_equal(bytes[0].length, bytes[1].length);
    assert_memory_equal(bytes[0].bytes, bytes[1].bytes, bytes[0].length);
    for (int i = 0; i < 2; i++) ls_text_clear(ctx, &bytes[i]);
}

/* Every step is seen once, also across a stop, and a run that was stopped ends with the same
 * bytes. */
static void test_training(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_train_result result;
    witness whole = {0}, first = {.stop_at = 3}, second = {0}, third = {0};
    must(&ctx, train(&ctx, "whole", "", &whole, &result));
    assert_int_equal(whole.steps, STEPS);
    assert_int_equal(whole.rows, STEPS / 2);
    assert_int_equal(result.step, STEPS);
    assert_true(ls_path_exists(fixture_path("whole/config.yaml")));
    assert_true(ls_path_exists(fixture_path("whole/env.json")));
    assert_true(ls_path_is_folder(fixture_path("whole/tokenizer")));
    assert_int_equal(train(&ctx, "cut", "", &first, &result), LS_ESTOP);
    assert_int_equal(first.steps, 3);
    ctx.error = (ls_error){0};
    must(&ctx, train(&ctx, "cut", "", &second, &result));
    assert_int_equal(result.resumed, 3);
    assert_int_equal(second.steps, STEPS - 3);
    assert_int_equal(second.last, STEPS);
    same_weights(&ctx, "whole", "cut");
    must(&ctx, train(&ctx, "cut", "", &third, &result));
    assert_int_equal(third.steps, 0);
    assert_int_equal(result.resumed, STEPS);
}

/* What a kill or a full disk leaves of a run's tokenizer is written again when the run goes on. */
static void test_tokenizer_comes_back(void **state) {
    (void)state;
    static const char *const kinds[] = {"data.tokenizer=byte",
                                        "data.tokenizer=train data.vocabulary=300"};
    ls_ctx ctx = ls_ctx_default();
    ls_train_result result;
    for (int kind = 0; kind < 2; kind++) {
        const char *folder = kind == 0 ? "bytes" : "pairs";
        char path[700], file[800], beside[800];
        witness first = {.stop_at = 2};
        ls_tokenizer *tokenizer;
        assert_int_equal(train(&ctx, folder, kinds[kind], &first, &result), LS_ESTOP);
        snprintf(path, sizeof path, "%s/tokenizer", fixture_path(folder));
        snprintf(beside, sizeof beside, "%s.tmp", path);
        must(&ctx, ls_tokenizer_load(&ctx, path, &tokenizer));
        const uint64_t hash = ls_tokenizer_hash(tokenizer);
        ls_tokenizer_free(&ctx, tokenizer);
        for (int damage = 0; damage < (kind == 0 ? 2 : 5); damage++) {
            witness again = {.stop_at = 1 << 20};
            snprintf(file, sizeof file, "%s/%s", path, damage == 2 ? "merges.txt" : "vocab.json");
            if (damage <= 1) must(&ctx, ls_folder_remove(&ctx, path));
            if (damage == 1) must(&ctx, ls_folder_make(&ctx, path)); /* killed before the files */
            if (damage == 2) assert_int_equal(unlink(file), 0);
            if (damage == 3) assert_int_equal(truncate(file, 100), 0);
            if (damage == 4) must(&ctx, ls_folder_make(&ctx, beside)); /* half of another one */
            again.stop = 1;
            assert_int_equal(train(&ctx, folder, kinds[kind], &again, &result), LS_ESTOP);
            ctx.error = (ls_error){0};
            must(&ctx, ls_tokenizer_load(&ctx, path, &tokenizer));
            assert_true(ls_tokenizer_hash(tokenizer) == hash);
            ls_tokenizer_free(&ctx, tokenizer);
        }
    }
}

static void test_training_refuses(void **state) {
    (void)state;
    static const struct {
        const char *more, *words;
    } cases[] = {
        {"train.stesp=3", "did you mean train.steps?"},
        {"modle.width=3", "there is no key modle.width"},
        {"extend=windwo model.position=rope", "did you mean window?"},
        {"extend=yarn model.position=alibi", "which position method alibi lacks"},
        {"task=copy", "data.corpus is of no use"},
        {"model.vocabulary=5", "too small"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_train_result result;
        witness w = {0};
        assert_int_equal(train(&ctx, "refused", cases[i].more, &w, &result), LS_EUSE);
        if (strstr(ctx.error.message, cases[i].words) == NULL) fail_msg("%s", ctx.error.message);
        assert_false(ls_path_exists(fixture_path("refused")));
    }
}

static void see_share(void *user, const char *what, int64_t length, double share) {
    assert_string_equal(what, "nonoverlap");
    assert_true(length > 0 && share >= 0 && share <= 1);
    ((witness *)user)->shares++;
}

static ls_status evaluate(ls_ctx *ctx, const char *words, witness *w, json_t **out) {
    ls_settings settings = {0};
    ls_evaluation evaluation;
    put_words(ctx, &settings, words);
    const ls_evaluation_request request = {.path = fixture_path("whole"),
                                           .settings = &settings,
                                           .cache = fixture_path("cache"),
                                           .seed = 1};
    const ls_eval_hooks hooks = {.stop = &w->stop, .progress = see_share, .user = w};
    *out = NULL;
    ls_status status = ls_evaluation_open(ctx, &request, &evaluation);
    if (status == LS_OK) status = ls_settings_finish(ctx, &settings, NULL);
    if (status == LS_OK) status = ls_evaluation_run(&evaluation, &hooks);
    if (status == LS_OK) {
        *out = ls_evaluation_json(&evaluation);
        status = ls_evaluation_write(&evaluation, *out);
    }
    ls_evaluation_clear(&evaluation);
    ls_settings_clear(ctx, &settings);
    return status;
}

static void test_evaluation(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    witness w = {0}, stopped = {.stop = 1};
    json_t *json;
    must(&ctx, evaluate(&ctx, "eval.lengths=16,32 eval.tokens=256 eval.documents=all", &w, &json));
    assert_true(w.shares > 0);
    const json_t *rows = json_object_get(json, "results");
    assert_int_equal(json_array_size(rows), 2);
    const double loss = json_number_value(json_object_get(json_array_get(rows, 0), "loss"));
    assert_true(loss > 0 && loss < 10);
    assert_int_equal(json_integer_value(json_object_get(json, "step")), STEPS);
    glob_t found;
    assert_int_equal(glob(fixture_path("whole/eval/nonoverlap-all-16+32-*.json"), 0, NULL, &found),
                     0);
    globfree(&found);
    json_decref(json);
    assert_int_equal(evaluate(&ctx, "eval.documents=all", &stopped, &json), LS_ESTOP);
    ctx.error = (ls_error){0};
    assert_int_equal(evaluate(&ctx, "eval.lenghts=16", &w, &json), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "did you mean eval.lengths?"));
    ctx.error = (ls_error){0};
    assert_int_equal(evaluate(&ctx, "task.pairs=4", &w, &json), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "task.pairs"));
}

static void test_description(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    json_t *json;
    must(&ctx, ls_describe_run(&ctx, fixture_path("whole"), &json));
    assert_int_equal(json_integer_value(json_object_get(json, "step")), STEPS);
    assert_true(json_is_object(json_object_get(json, "weights")));
    ls_text text = {0};
    ls_describe_print(&ctx, json, &text);
    assert_non_null(strstr(text.bytes, "step-00000006: intact"));
    assert_non_null(strstr(text.bytes, "model.width=16"));
    ls_text_clear(&ctx, &text);
    json_decref(json);
}

static ls_status read_study(ls_ctx *ctx, const char *program, const char *words,
                            ls_settings *settings, ls_study *out) {
    ls_study_keys keys;
    char corpus[700];
    must(ctx, ls_options_default(ctx, &ls_study_options, &keys));
    snprintf(corpus, sizeof corpus, "data.corpus=%s", fixture_path("corpus.txt"));
    must(ctx, ls_settings_put_word(ctx, settings, corpus));
    put_words(ctx, settings, words);
    const ls_study_request request = {.settings = settings,
                                      .keys = &keys,
                                      .file = "folder/small.yaml",
                                      .command = "none",
                                      .program = program,
                                      .device = "cpu",
                                      .cache = fixture_path("cache"),
                                      .threads = 1};
    ls_status status = ls_study_read(ctx, &request, out);
    snprintf(out->keys.out, sizeof out->keys.out, "%s", fixture_path("study"));
    return status;
}

static void see_job(void *user, const char *line, size_t done, size_t count) {
    assert_non_null(strstr(line, "failed"));
    assert_true(done == 0 && count == 2);
    ((witness *)user)->rows++;
}

/* The jobs are calls of the program that the caller names. */
static void test_study(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    ls_study study;
    ls_text text = {0};
    witness w = {0};
    must(&ctx,
         read_study(&ctx, "/bin/false",
                    "model.width=16 model.layers=1 mixer.heads=2 train.steps=2 eval.lengths=256 "
                    "arms.plain.model.position=rope",
                    &settings, &study));
    must(&ctx, ls_settings_finish(&ctx, &settings, NULL));
    assert_string_equal(study.name, "small");
    must(&ctx, ls_study_check(&study, &text));
    assert_non_null(strstr(text.bytes, "plain"));
    const ls_study_hooks hooks = {.stop = &w.stop, .progress = see_job, .user = &w};
    assert_int_equal(ls_study_run(&study, &hooks), LS_EBAR); /* what it ends with */
    assert_int_equal(w.rows, 1);
    ctx.error = (ls_error){0};
    study.from.program = fixture_path("nothing");
    assert_int_equal(ls_study_run(&study, &hooks), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "cannot be run"));
    ls_text_clear(&ctx, &text);
    ls_study_clear(&study);
    ls_settings_clear(&ctx, &settings);
    ctx.error = (ls_error){0};
    assert_int_equal(read_study(&ctx, "/bin/false", "arms.plain.form=x", &settings, &study),
                     LS_EUSE);
    assert_non_null(
        strstr(ctx.error.message, "arm plain: there is no key form: did you mean from?"));
    ls_study_clear(&study);
    ls_settings_clear(&ctx, &settings);
}

static void test_bench_refuses(void **state) {
    (void)state;
    static const char *const wrong[] = {"mem", "", "train,", ",train", "gemm,trai", "all"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_bench_settings settings;
        json_t *json;
        must(&ctx, ls_options_default(&ctx, &ls_bench_options, &settings));
        snprintf(settings.what, sizeof settings.what, "%s", wrong[i]);
        const ls_bench_hooks hooks = {0};
        assert_int_equal(ls_bench_run(&ctx, &settings, &hooks, &json), LS_EUSE);
        assert_non_null(strstr(ctx.error.message, "choose from gemm, train, mixers, attention"));
        assert_null(json);
    }
}

static void test_unknown_names(void **state) {
    (void)state;
    static const char *const names[] = {"alpha", "beta", "gamma", NULL};
    static const struct {
        const char *word, *message;
    } cases[] = {
        {"gama", "there is no thing x.gama: did you mean x.gamma?"},
        {"zz", "there is no thing x.zz; there are x.alpha, x.beta, x.gamma"},
        {"delta", "there is no thing x.delta: did you mean x.beta?"},
        {"b", "there is no thing x.b; there are x.alpha, x.beta, x.gamma"},
        {"beta", "the thing x.beta has no effect here"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        assert_int_equal(
            ls_fail_unknown(&ctx, "thing", "x.", cases[i].word, ls_name_in_array, names), LS_EUSE);
        assert_string_equal(ctx.error.message, cases[i].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),      cmocka_unit_test(test_training_refuses),
        cmocka_unit_test(test_evaluation),    cmocka_unit_test(test_description),
        cmocka_unit_test(test_study),         cmocka_unit_test(test_bench_refuses),
        cmocka_unit_test(test_unknown_names), cmocka_unit_test(test_tokenizer_comes_back),
    };
    return cmocka_run_group_tests(tests, make_all, fixture_remove);
}
