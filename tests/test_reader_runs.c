/* Studies and the folders of runs against tables: which weights an arm has, what is refused, and paths
 * that are nearly too long. */
#include "reader_paths.h"
#include "study/study.h"
#include "train_fixture.h"

static void expect_sentence(const char *about, ls_status status, const ls_ctx *ctx,
                            const char *sentence) {
    const bool said = ctx->error.code == status && sentence != NULL &&
                      strstr(ctx->error.message, sentence) != NULL;
    if (sentence == NULL ? status != LS_OK : status == LS_OK || !said)
        fail_msg("%s: %s, \"%s\" in place of \"%s\"", about, ls_status_name(status),
                 ctx->error.message, sentence == NULL ? "" : sentence);
}

/* ---- studies ---- */

#define OPENED LS_TEST_SOURCE "/tests/golden/checkpoints/gguf-llama"
#define COMMON "model: {layers: 1, width: 16, length: 16}\ntrain: {steps: 1}\n"
static const struct {
    const char *text, *sentence;
} studies[] = {
    {COMMON "arms: {a: {train.lr: 1e-3}}\n", NULL},
    {COMMON "arms: {a: {label: it's \"one\", train.lr: 1e-3}}\n", NULL},
    {COMMON "arms: {a: {seeds: [1, 2]}}\n", NULL},
    {COMMON "arms: {a: {task: copy}}\n", NULL},
    {COMMON "arms: {a: {train.lr: 1e-3}, b: {from: a, eval.lengths: [32]}}\n", NULL},
    {COMMON "arms: {a: {train.lr: 1e-3}, b: {from: a, extend: ntk}}\n", NULL},
    {COMMON, "a study needs arms"},
    {COMMON "arms: {A: {train.lr: 1e-3}}\n", "the name of an arm is made of"},
    {COMMON "arms: {-a: {train.lr: 1e-3}}\n", "the name of an arm is made of"},
    {COMMON "arms.a: 3\n", "must have keys"},
    {COMMON "arms: {a123456789012345678901234567890123456789012345678901234567890123456789: "
            "{train.lr: 1e-3}}\n",
     "is too long"},
    {COMMON "arms: {a: {unheard: 3}}\n", "unheard"},
    {COMMON "arms: {a: {extend: ntk}}\n", "extends a trained model"},
    {COMMON "arms: {a: {from: nowhere}}\n", "there is no such arm, nor a folder"},
    {COMMON "arms: {a: {train.lr: 1e-3}, b: {from: a, seeds: [2]}}\n", "is for arms that train"},
    {COMMON "arms: {a: {train.lr: 1e-3}, b: {from: a, train.lr: 1}}\n", "is for arms that train"},
    {COMMON "arms: {a: {train.lr: 1e-3}, b: {from: a, mixer.heads: 1}}\n", "is for training"},
    {COMMON "arms: {a: {train.lr: 1e-3}, b: {from: a}, c: {from: b}}\n", "does not train itself"},
    {COMMON "arms: {a: {seeds: [1, 1]}}\n", "seed 1 is given twice"},
    {COMMON "arms: {a: {seeds: []}}\n", "seed"},
    {COMMON "arms: {a: {seeds: [-1]}}\n", "seeds"},
    {COMMON "arms: {a: {train.steps: none}}\n", "arm a: "},
    {COMMON "arms: {a: {eval.lengths: none}}\n", "arm a: "},
    {COMMON "arms: {a: {data.loader: none}}\n", "arm a: "},
    {COMMON "arms: {a: {model.width: 15}}\n", "arm a: "},
    {COMMON "equal_parameters: 5\narms: {a: {train.lr: 1e-3}, b: {train.lr: 1e-4}}\n", NULL},
    {COMMON "arms: {a: {one_of: g, train.lr: 1e-3}, b: {one_of: g, train.lr: 1e-4}}\n",
     "arm a is one of g, which validation chooses"},
    {COMMON "arms: {a: {label: \"two\\nlines\", train.lr: 1e-3}}\n", NULL},
    {COMMON "arms: {a: {steps: 3}}\n", "did you mean train.steps?"},
    {COMMON "arms: {a: {task: copy, eval.lengths: [16]}, b: {from: a, task.length: 3}}\n",
     "arm b: "},
    {COMMON "arms: {a: {train.lr: 1e-3}, b: {from: a, task.symbols: 3}}\n", "arm b: "},
    {COMMON "arms: {a: {from: a, train.steps: 1}}\n", "arm a is from itself in the end"},
    {COMMON "arms: {a: {from: b, train.steps: 1}, b: {from: a, train.steps: 1}}\n", "from itself"},
    /* weights of a checkpoint */
    {"arms: {a: {from: " OPENED "}}\n", NULL},
    {"arms: {a: {from: " OPENED "}, b: {from: " OPENED ", eval.lengths: [32]}}\n", NULL},
    {"arms: {a: {from: " OPENED ", extend: ntk}, b: {from: " OPENED "}}\n", NULL},
    {"arms: {a: {from: " OPENED ", train.steps: 1}, b: {from: " OPENED "}}\n", NULL},
    {"arms: {a: {from: " OPENED "}, b: {from: a, train.steps: 1}}\n", NULL},
    {"arms: {a: {from: " OPENED ", mixer.heads: 1}}\n", "arm a: "},
    {"arms: {a: {from: " OPENED ", dtype: f16}}\n", "arm a: "},
    {"arms: {a: {from: " OPENED ", train.lr: 1}}\n", "has weights from a checkpoint"},
    {"arms: {a: {from: " OPENED ", task.symbols: 3}}\n", "arm a: "},
    {"arms: {a: {from: /}}\n", "arm a: "},
};

static void test_studies(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof studies / sizeof studies[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_settings settings = {0};
        ls_study_keys keys;
        ls_study study = {.ctx = &ctx};
        ls_text yaml = {0};
        const char *text = studies[i].text;
        assert_int_equal(ls_settings_parse(&ctx, &settings, text, strlen(text), "s.yaml"), LS_OK);
        assert_int_equal(ls_options_default(&ctx, &ls_study_options, &keys), LS_OK);
        assert_int_equal(ls_settings_apply(&ctx, &settings, "", &ls_study_options, NULL, &keys),
                         LS_OK);
        const ls_study_request request = {.settings = &settings,
                                          .keys = &keys,
                                          .file = i % 2 == 0 ? "s.yaml" : "/.yaml",
                                          .command = "longshot study",
                                          .program = "longshot",
                                          .device = i % 3 == 0 ? "cuda" : "cpu",
                                          .cache = ""};
        keys.jobs = (int64_t)(i % 2);
        const ls_status status = ls_study_read(&ctx, &request, &study);
        expect_sentence(text, status, &ctx, studies[i].sentence);
        if (status == LS_OK) {
            ls_study_print(&study, &yaml);
            assert_int_equal(ls_text_status(&yaml), LS_OK);
            assert_non_null(strstr(yaml.bytes, "arms"));
        }
        ls_text_clear(&ctx, &yaml);
        ls_study_clear(&study);
        ls_settings_clear(&ctx, &settings);
    }
}

/* A checkpoint is opened where it lies, or not at all. */
static void test_studies_of_long_paths(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    ls_study_keys keys;
    ls_study study = {.ctx = &ctx};
    static char path[LONGEST + 8], text[LONGEST + 64];
    pad(path, OPENED, 600);
    const int length = snprintf(text, sizeof text, "arms: {a: {from: %s}}\n", path);
    assert_int_equal(ls_settings_parse(&ctx, &settings, text, (size_t)length, "s.yaml"), LS_OK);
    assert_int_equal(ls_options_default(&ctx, &ls_study_options, &keys), LS_OK);
    const ls_study_request request = {.settings = &settings,
                                      .keys = &keys,
                                      .file = "s.yaml",
                                      .command = "longshot study",
                                      .program = "longshot",
                                      .device = "cpu",
                                      .cache = ""};
    expect_sentence(text, ls_study_read(&ctx, &request, &study), &ctx, "is too long");
    ls_study_clear(&study);
    ls_settings_clear(&ctx, &settings);
}

/* Several ranks have one job each at a time. */
static void test_studies_of_ranks(void **state) {
    (void)state;
    static const struct {
        int64_t jobs, launch;
        const char *sentence;
    } rows[] = {{0, LS_LAUNCH_HERE, NULL},
                {1, LS_LAUNCH_HERE, "3 ranks have one job each at a time"},
                {0, LS_LAUNCH_HERE + 1, "3 ranks have one job each at a time"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_settings settings = {0};
        ls_study_keys keys;
        ls_study study = {.ctx = &ctx};
        const char *text = studies[0].text;
        assert_int_equal(ls_settings_parse(&ctx, &settings, text, strlen(text), "s.yaml"), LS_OK);
        assert_int_equal(ls_options_default(&ctx, &ls_study_options, &keys), LS_OK);
        const ls_study_request request = {.settings = &settings,
                                          .keys = &keys,
                                          .file = "s.yaml",
                                          .command = "longshot study",
                                          .program = "longshot",
                                          .device = "cpu",
                                          .cache = "",
                                          .ranks = 3};
        keys.jobs = rows[i].jobs;
        keys.launch = (int)rows[i].launch;
        const ls_status status = ls_study_read(&ctx, &request, &study);
        expect_sentence("ranks", status, &ctx, rows[i].sentence);
        if (status == LS_OK) assert_int_equal(study.keys.jobs, 3);
        if (status == LS_OK) assert_int_equal(study.threads, 1);
        ls_study_clear(&study);
        ls_settings_clear(&ctx, &settings);
    }
}

/* A signal is heard between the arms. */
static void test_studies_stop(void **state) {
    (void)state;
    const volatile int stop = 1;
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    ls_study_keys keys;
    ls_study study = {.ctx = &ctx};
    const char *text = studies[0].text;
    assert_int_equal(ls_settings_parse(&ctx, &settings, text, strlen(text), "s.yaml"), LS_OK);
    assert_int_equal(ls_options_default(&ctx, &ls_study_options, &keys), LS_OK);
    const ls_study_request request = {.settings = &settings,
                                      .keys = &keys,
                                      .file = "s.yaml",
                                      .command = "longshot study",
                                      .program = "longshot",
                                      .device = "cpu",
                                      .cache = ""};
    ctx.stop = &stop;
    assert_int_equal(ls_study_read(&ctx, &request, &study), LS_ESTOP);
    expect_sentence("stop", LS_ESTOP, &ctx, "reading the study");
    ls_study_clear(&study);
    ls_settings_clear(&ctx, &settings);
}

/* Which weights an arm of a checkpoint has. */
static void test_studies_of_checkpoints(void **state) {
    (void)state;
    static const struct {
        const char *arms; /* the second's: */
        int64_t parent, begins;
        bool trains, opens;
    } rows[] = {
        /* one that was opened already is not opened twice */
        {"a: {from: " OPENED "}, b: {from: " OPENED ", eval.lengths: [32]}", 0, -1, false, false},
        {"a: {from: " OPENED ", extend: ntk}, b: {from: " OPENED "}", -1, -1, false, true},
        {"a: {from: " OPENED ", train.steps: 1}, b: {from: " OPENED "}", -1, -1, false, true},
        {"a: {from: " OPENED "}, b: {from: a, eval.lengths: [32]}", 0, -1, false, false},
        /* who trains on what another opens begins with the checkpoint itself */
        {"a: {from: " OPENED "}, b: {from: a, train.steps: 1}", -1, -1, true, true},
        {"a: {from: " OPENED ", train.steps: 1}, b: {from: a, train.steps: 1}", -1, 0, true, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_settings settings = {0};
        ls_study_keys keys;
        ls_study study = {.ctx = &ctx};
        char text[1024];
        const int length = snprintf(text, sizeof text, "arms: {%s}\n", rows[i].arms);
        assert_int_equal(ls_settings_parse(&ctx, &settings, text, (size_t)length, "s.yaml"), LS_OK);
        assert_int_equal(ls_options_default(&ctx, &ls_study_options, &keys), LS_OK);
        const ls_study_request request = {.settings = &settings,
                                          .keys = &keys,
                                          .file = "s.yaml",
                                          .command = "longshot study",
                                          .program = "longshot",
                                          .device = "cpu",
                                          .cache = ""};
        expect_sentence(text, ls_study_read(&ctx, &request, &study), &ctx, NULL);
        const ls_study_arm *arm = &study.arms[1];
        assert_int_equal(arm->parent, rows[i].parent);
        assert_int_equal(arm->begins, rows[i].begins);
        assert_int_equal(arm->trains, rows[i].trains);
        assert_string_equal(arm->checkpoint, rows[i].opens ? OPENED : "");
        ls_study_clear(&study);
        ls_settings_clear(&ctx, &settings);
    }
}

/* ---- checkpoints of a training ---- */

static ls_status verify(ls_ctx *ctx, const char *path) {
    return ls_checkpoint_verify(ctx, path, 4);
}

static ls_status find(ls_ctx *ctx, const char *path) {
    char found[LONGEST];
    int64_t step;
    const ls_status status = ls_checkpoint_find(ctx, path, found, sizeof found, &step);
    if (status == LS_OK) assert_int_equal(step, 4);
    return status;
}

static ls_status look_for_edits(ls_ctx *ctx, const char *path) {
    bool edited = false;
    const ls_status status =
        ls_checkpoint_edited(ctx, path, LS_TEST_SOURCE "/CMakeLists.txt", &edited);
    if (status == LS_OK) assert_true(edited);
    return status;
}

static void test_checkpoints(void **state) {
    (void)state;
    fixture f;
    char folder[200], one[256];
    fixture_open(&f, NULL, "steps=4", "checkpoint_every=4", NULL);
    fixture_expect(&f, LS_OK);
    fixture_path(&f, "checkpoints", folder, sizeof folder);
    snprintf(one, sizeof one, "%s/step-00000004", folder);
    sweep("a step", folder, verify);
    sweep("the newest step", folder, find);
    sweep("the settings of a step", one, look_for_edits);
    sweep("what is swept", folder, ls_checkpoint_sweep);
    fixture_close(&f, true);
}

/* ---- folders of a study ---- */

static void test_study_folders(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_study_arm arm = {.parent = -1, .begins = -1, .name = "a", .trains = true};
    ls_study study = {.ctx = &ctx, .arms = &arm, .count = 1};
    char path[64];
    snprintf(study.keys.out, sizeof study.keys.out, "runs/s");
    static const char wanted[] = "runs/s/arms/a/seed-7", opened[] = "/somewhere";
    for (size_t room = 1; room <= sizeof path; room++) {
        const bool fits = room > strlen(wanted), fits_opened = room > strlen(opened);
        expect_sentence("folder", ls_study_folder(&study, 0, 7, path, room), &ctx,
                        fits ? NULL : "too long");
        ctx.error = (ls_error){0};
        if (fits) assert_string_equal(path, wanted);
        expect_sentence("weights", ls_study_weights(&study, 0, 7, path, room), &ctx,
                        fits ? NULL : "too long");
        ctx.error = (ls_error){0};
        arm.trains = false;
        snprintf(arm.checkpoint, sizeof arm.checkpoint, "as-given");
        snprintf(arm.found, sizeof arm.found, "%s", opened);
        expect_sentence("opened", ls_study_weights(&study, 0, 7, path, room), &ctx,
                        fits_opened ? NULL : "too long");
        ctx.error = (ls_error){0};
        if (fits_opened) assert_string_equal(path, opened);
        arm.trains = true;
        arm.checkpoint[0] = '\0';
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_studies),
        cmocka_unit_test(test_studies_of_long_paths),
        cmocka_unit_test(test_studies_of_ranks),
        cmocka_unit_test(test_studies_stop),
        cmocka_unit_test(test_studies_of_checkpoints),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_study_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
