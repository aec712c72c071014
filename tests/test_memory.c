/* What a study's check=true says a job will take is what it takes: for every mixer and every way of
 * training, and for evaluations, within 3%. Both are counted by the allocator; test_memory_rss.sh
 * holds them against what the system counts.
 * Tier: slow, unsanitized. */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/meter.h"
#include "data_fixture.h"
#include "eval/evaluation.h"
#include "mixer/mixer.h"
#include "train/training.h"

static const double tolerance = 0.03;

/* Ways of training; each must be possible for so many mixers at least; 0: for all. */
static const struct {
    const char *name, *words;
    size_t least;
} modes[] = {
    {"plain", "", 0},
    {"carry", "data.loader=stream train.carry=512", 15},
    {"recompute", "train.recompute=true", 0},
    {"bf16", "train.dtype=bf16", 0},
    {"fp8", "train.dtype=fp8", 0},
    {"accumulate", "train.accumulate=2", 0},
    {"carry in parts", "data.loader=stream train.carry=512 train.accumulate=2", 15},
    {"f64", "train.dtype=f64", 0},
    {"context", "train.context=4", 14},
    {"validation", "data.validation_share=0.2 train.validate_every=1 train.validate_tokens=4096",
     15},
    {"rows of memory", "model.segment=32 model.memory=8 data.loader=stream train.carry=512", 15},
    {"slots of memory",
     "model.segment=32 model.memory=8 model.memory_kind=slots model.memory_heads=2 "
     "data.loader=stream train.carry=512",
     15},
};
enum { MODES = sizeof modes / sizeof modes[0] };

static void put_words(ls_ctx *ctx, ls_settings *settings, const char *text) {
    if (ls_settings_put_words(ctx, settings, text) != LS_OK) fail_msg("%s", ctx->error.message);
}

/* A mixer that only reads whole sequences learns a task with classes. */
static void put_recipe(ls_ctx *ctx, ls_settings *settings, const ls_mixer_type *type,
                       const char *more) {
    char line[800];
    snprintf(line, sizeof line, "model.mixer=%s model.layers=1 model.width=64 train.batch=4",
             type->name);
    put_words(ctx, settings, line);
    put_words(ctx, settings, "train.steps=2 train.checkpoint_every=1 model.position=none");
    if ((type->traits & LS_MIXER_CAUSAL) != 0) {
        snprintf(line, sizeof line, "data.corpus=%s model.length=128", fixture_path("corpus.txt"));
        put_words(ctx, settings, line);
    } else {
        put_words(ctx, settings, "task=listops train.length=128 model.causal=false");
    }
    put_words(ctx, settings, more);
}

static volatile sig_atomic_t stop; /* ends a training where it begins */

static ls_status train(ls_ctx *ctx, const ls_mixer_type *type, const char *more,
                       ls_settings *config) {
    ls_settings settings = {0};
    ls_training training;
    ls_train_result result;
    put_recipe(ctx, &settings, type, more);
    const ls_training_request request = {
        .settings = &settings, .folder = fixture_path("run"), .cache = fixture_path("cache")};
    const ls_training_hooks hooks = {.stop = &stop};
    ls_status status = ls_training_read(ctx, &request, &training);
    if (status == LS_OK) status = ls_settings_finish(ctx, &settings, NULL);
    if (status == LS_OK) status = ls_training_run(&training, &hooks, &result);
    if (status == LS_ESTOP && stop) status = LS_OK;
    if (status == LS_OK && config != NULL)
        status = ls_settings_parse(ctx, config, training.config.bytes, training.config.length, "");
    ls_training_clear(&training);
    ls_settings_clear(ctx, &settings);
    return status;
}

static void compare(const char *what, const char *mode, size_t said, size_t used) {
    const double off = (double)said / (double)used - 1;
    if (!(off > -tolerance && off < tolerance))
        fail_msg("%s, %s: %zu bytes were said and %zu used (%+.1f%%)", what, mode, said, used,
                 100 * off);
}

/* The folder is new for each: what is there already would be gone on with. */
static void start_anew(ls_ctx *ctx) {
    assert_int_equal(ls_folder_remove(ctx, fixture_path("run")), LS_OK);
}

static bool measure_training(const ls_mixer_type *type, const char *name, const char *words) {
    ls_ctx plain = ls_ctx_default();
    ls_meter said, used;
    ls_ctx rehearsal = ls_meter_of(&plain, true, &said), real = ls_meter_of(&plain, false, &used);
    const ls_status status = train(&rehearsal, type, words, NULL);
    assert_int_equal(said.live, 0);
    if (status == LS_EUSE) { /* not for this mixer */
        print_message("%s, %s: %s\n", type->name, name, rehearsal.error.message);
        return false;
    }
    if (status != LS_OK) fail_msg("%s: %s", type->name, rehearsal.error.message);
    assert_false(ls_path_exists(fixture_path("run"))); /* it was only rehearsed */
    if (train(&real, type, words, NULL) != LS_OK)
        fail_msg("%s, %s: %s", type->name, name, real.error.message);
    assert_int_equal(used.live, 0);
    compare(type->name, name, said.peak, used.peak);
    start_anew(&plain);
    return true;
}

static void test_training(void **state) {
    (void)state;
    for (int mode = 0; mode < MODES; mode++) {
        size_t measured = 0;
        for (size_t i = 0; i < ls_mixer_count; i++)
            measured += measure_training(ls_mixer_types[i], modes[mode].name, modes[mode].words);
        print_message("%s: %zu mixers\n", modes[mode].name, measured);
        assert_true(measured >= (modes[mode].least == 0 ? ls_mixer_count : modes[mode].least));
    }
}

/* Adapters, whose base is a run of the same mixer. */
static void test_adapters(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char words[600];
    snprintf(words, sizeof words,
             "train.from=%s train.lora.rank=16 train.lora.targets=all train.lora.embeddings=true",
             fixture_path("base"));
    size_t measured = 0;
    for (size_t i = 0; i < ls_mixer_count; i++) {
        const ls_mixer_type *type = ls_mixer_types[i];
        if ((type->traits & LS_MIXER_CAUSAL) == 0) continue; /* other tasks have other heads */
        if (train(&ctx, type, "", NULL) != LS_OK) fail_msg("%s: %s", type->name, ctx.error.message);
        assert_int_equal(rename(fixture_path("run"), fixture_path("base")), 0);
        measured += measure_training(type, "adapters", words);
        assert_int_equal(ls_folder_remove(&ctx, fixture_path("base")), LS_OK);
    }
    print_message("adapters: %zu mixers\n", measured);
    assert_true(measured >= 15);
}

/* Images that are kept, 20.5 MB of them. */
static void test_kept_samples(void **state) {
    (void)state;
    const ls_mixer_type *reader = ls_mixer_find("linformer"); /* it reads whole sequences */
    assert_true(measure_training(reader, "kept images",
                                 "task=pathfinder task.samples=20000 train.length=1024 "
                                 "mixer.length=1024 model.width=16 train.batch=1"));
}

/* A run that is long enough measures the machine's peak first, which takes more than a small
 * model. */
static void test_long_training(void **state) {
    (void)state;
    stop = 1;
    const bool measured =
        measure_training(ls_mixer_find("attention"), "long", "train.steps=100000");
    stop = 0;
    assert_true(measured);
}

static ls_status evaluate(ls_ctx *ctx, const char *words, const ls_settings *planned) {
    ls_settings settings = {0};
    ls_evaluation evaluation;
    put_words(ctx, &settings, words);
    const ls_evaluation_request request = {.path = fixture_path("run"),
                                           .planned = planned,
                                           .settings = &settings,
                                           .cache = fixture_path("cache")};
    ls_status status = ls_evaluation_open(ctx, &request, &evaluation);
    if (status == LS_OK) status = ls_evaluation_run(&evaluation, NULL);
    ls_evaluation_clear(&evaluation);
    ls_settings_clear(ctx, &settings);
    return status;
}

/* The same of an evaluation, whose run the rehearsal knows by its settings alone. */
static void measure_evaluation(const ls_mixer_type *type, const char *words) {
    ls_ctx plain = ls_ctx_default(), real = plain;
    ls_meter none, said, used;
    ls_settings config = {0};
    ls_ctx planning = ls_meter_of(&plain, true, &none);
    if (train(&planning, type, "train.steps=1", &config) != LS_OK)
        fail_msg("%s: %s", type->name, planning.error.message);
    ls_ctx rehearsal = ls_meter_of(&plain, true, &said);
    if (evaluate(&rehearsal, words, &config) != LS_OK)
        fail_msg("%s: %s", type->name, rehearsal.error.message);
    assert_int_equal(said.live, 0);
    ls_settings_clear(&planning, &config);
    if (train(&real, type, "train.steps=1", NULL) != LS_OK)
        fail_msg("%s: %s", type->name, real.error.message);
    real = ls_meter_of(&plain, false, &used);
    if (evaluate(&real, words, NULL) != LS_OK) fail_msg("%s: %s", type->name, real.error.message);
    compare(type->name, words, said.peak, used.peak);
    start_anew(&plain);
}

static void test_evaluation(void **state) {
    (void)state;
    for (size_t i = 0; i < ls_mixer_count; i++)
        measure_evaluation(ls_mixer_types[i], (ls_mixer_types[i]->traits & LS_MIXER_CAUSAL) != 0
                                                  ? "eval.lengths=128,512 eval.tokens=4096"
                                                  : "eval.lengths=128 eval.samples=32");
}

static void test_protocols(void **state) {
    (void)state;
    const ls_mixer_type *attention = ls_mixer_find("attention");
    static const char *const words[] = {
        "eval.protocol=slide,lex eval.lengths=128,384 eval.tokens=4096",
        "eval.protocol=stream eval.lengths=256 eval.tokens=4096 eval.chunk=64",
        "eval.resolution=true eval.lengths=256 eval.tokens=2048",
        "eval.batch=2 eval.lengths=512 eval.tokens=4096 extend=bca",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        measure_evaluation(attention, words[i]);
}

static int make_all(void **state) {
    ls_ctx ctx = ls_ctx_default();
    ls_text text = {0};
    if (fixture_make(state) != 0) return 1;
    for (int i = 0; i < 4000; i++) ls_text_printf(&ctx, &text, "line %d of a short text\n", i);
    ls_status status = ls_file_write(&ctx, fixture_path("corpus.txt"), text.bytes, text.length);
    ls_text_clear(&ctx, &text);
    return status != LS_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),     cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_kept_samples), cmocka_unit_test(test_long_training),
        cmocka_unit_test(test_evaluation),   cmocka_unit_test(test_protocols),
    };
    return cmocka_run_group_tests(tests, make_all, fixture_remove);
}
