/* Weights under public names: loaded, given back to the last bit, what is left over and missing;
 * comparisons as a library gives them, also without memory. */
#include "harness.h"

#include "compare/compare.h"
#include "failing_allocator.h"
#include "model/public_weights.h"

/* A case of tests/golden with the settings that describe its model. */
static const struct {
    const char *file, *names, *settings;
} cases[] = {
    {"rmt-gpt2-left", "gpt2",
     "model.layers=2 model.width=16 model.vocabulary=29 model.activation=gelu_tanh "
     "model.position=learned position.length=32 mixer.heads=2 mixer.bias=true model.segment=14 "
     "model.memory=3"},
    {"rmt-llama-right", "llama",
     "model.layers=1 model.width=16 model.hidden=20 model.vocabulary=19 model.norm=rms "
     "model.activation=swiglu model.bias=false model.tied=false model.position=rope mixer.heads=4 "
     "mixer.kv_heads=2 model.segment=7 model.memory=2"},
    {"xl-untied", "transformer-xl",
     "model.mixer=transformer_xl model.layers=1 model.width=12 model.hidden=16 "
     "model.vocabulary=19 model.norm_place=post model.tied=false model.adaptive_cutoffs=6,11 "
     "model.adaptive_divisor=2 model.adaptive_projections=all mixer.heads=2 mixer.head_width=5 "
     "mixer.segment=6 mixer.memory=6"},
    {"xl-pre-adaptive", "transformer-xl",
     "model.mixer=transformer_xl model.layers=2 model.width=12 model.hidden=16 "
     "model.vocabulary=23 model.last_norm=false model.adaptive_cutoffs=5,11,19 mixer.heads=2 "
     "mixer.head_width=5 mixer.segment=7 mixer.memory=9"},
    {"memformer", "memformer",
     "model.encoder_layers=2 model.layers=1 model.width=12 model.vocabulary=29 "
     "model.encoder_embedding=true model.tied=false model.head_bias=true "
     "model.memory_kind=slots model.memory=5 model.memory_heads=2 model.memory_update=gru "
     "model.segment=17 model.cross_heads=2 model.cross_bias=true mixer.heads=2 mixer.bias=true "
     "model.position=t5"},
};
enum { CASES = sizeof cases / sizeof cases[0] };

typedef struct fixture {
    ls_ctx ctx;
    ls_settings settings;
    ls_model_config config;
    ls_model *model;
    ls_safetensors file;
} fixture;

static void open_case(fixture *f, int which) {
    char path[512];
    *f = (fixture){.ctx = ls_ctx_default()};
    expect(&f->ctx, ls_settings_put_words(&f->ctx, &f->settings, cases[which].settings));
    snprintf(path, sizeof path, "%s/tests/golden/%s.safetensors", LS_TEST_SOURCE,
             cases[which].file);
    expect(&f->ctx, ls_safetensors_open(&f->ctx, path, &f->file));
    expect(&f->ctx, ls_model_config_read(&f->ctx, &f->settings, &f->config));
    expect(&f->ctx, ls_model_plan(&f->ctx, &f->config, LS_F64, false, &f->model));
}

static void close_case(fixture *f) {
    ls_model_free(f->model);
    ls_model_config_clear(&f->ctx, &f->config);
    ls_safetensors_close(&f->ctx, &f->file);
    ls_settings_clear(&f->ctx, &f->settings);
}

/* Every value of the file comes back, wherever it stood in between. */
static void give_back(fixture *f, const ls_naming *naming) {
    ls_mixer *mixers = ls_public_mixers(&f->ctx, &f->config);
    const ls_public_scope scope = {f->model->store, naming, &f->config, mixers};
    int64_t values = 0;
    assert_non_null(mixers);
    for (size_t i = 0; i < f->file.count; i++) {
        ls_safetensor shape = f->file.items[i];
        double *wanted, *ours;
        if (ls_name_after(shape.name, "w.") == NULL) continue;
        expect(&f->ctx, ls_safetensor_values(&f->ctx, &shape, &wanted));
        ours = ls_new(&f->ctx, (size_t)shape.count, sizeof *ours);
        shape.name += 2;
        shape.data = NULL;
        expect(&f->ctx, ls_public_values(&f->ctx, &scope, &shape, ours));
        assert_memory_equal(ours, wanted, (size_t)shape.count * sizeof *ours);
        values += shape.count;
        ls_free(&f->ctx, wanted);
        ls_free(&f->ctx, ours);
    }
    assert_int_equal(values, ls_parameters_elements(f->model->store));
    ls_free(&f->ctx, mixers);
}

static void loads_and_gives_back(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        fixture f;
        ls_naming naming;
        ls_public_report report = {0};
        open_case(&f, i);
        expect(&f.ctx, ls_naming_read(&f.ctx, cases[i].names, ls_public_names_own, &naming));
        expect(&f.ctx, ls_model_load_public(f.model, &naming, &f.file, "w.", &report));
        assert_int_equal(report.left_over, 0);
        assert_int_equal(report.incomplete, 0);
        assert_true(report.loaded > 10);
        give_back(&f, &naming);
        ls_public_report_clear(&f.ctx, &report);
        ls_naming_clear(&f.ctx, &naming);
        close_case(&f);
    }
}

/* Without the rules nothing is known; without one of them the rest is. */
static void reports_what_is_left(void **state) {
    (void)state;
    fixture f;
    ls_naming naming;
    ls_public_report report = {0};
    open_case(&f, 1);
    expect(&f.ctx, ls_naming_parse(&f.ctx, "no rules", "# nothing\n", &naming));
    expect(&f.ctx, ls_model_load_public(f.model, &naming, &f.file, "w.", &report));
    assert_int_equal(f.ctx.error.code, LS_OK);
    assert_int_equal(report.loaded, 0);
    assert_int_equal(report.left_over, 13);
    assert_int_equal(report.incomplete, f.model->store->count);
    assert_non_null(strstr(report.left_over_names.bytes, "w.memory_cell.model.lm_head.weight"));
    ls_public_report_clear(&f.ctx, &report);
    ls_naming_clear(&f.ctx, &naming);
    expect(&f.ctx, ls_naming_read(&f.ctx, "llama", "", &naming));
    expect(&f.ctx, ls_model_load_public(f.model, &naming, &f.file, "w.", &report));
    assert_int_equal(report.left_over, 1);
    assert_string_equal(report.left_over_names.bytes, "w.memory_cell.memory");
    assert_int_equal(report.incomplete, 1);
    assert_string_equal(report.incomplete_names.bytes, "memory.start");
    ls_public_report_clear(&f.ctx, &report);
    assert_int_equal(ls_model_load_public(f.model, &naming, &f.file, "w.", NULL), LS_EINPUT);
    ls_naming_clear(&f.ctx, &naming);
    close_case(&f);
}

/* ---- comparisons ---- */

static ls_status compare(ls_ctx *ctx, const char *what, const char *words, const char *golden,
                         ls_comparison *out) {
    ls_settings settings = {0};
    ls_comparer *comparer = NULL;
    ls_compare_keys keys;
    *out = (ls_comparison){0};
    ls_status status = ls_options_default(ctx, &ls_compare_options, &keys);
    snprintf(keys.golden, sizeof keys.golden, "%s/tests/golden/%s.safetensors", LS_TEST_SOURCE,
             golden);
    if (status == LS_OK) status = ls_settings_put_words(ctx, &settings, words);
    for (size_t i = 0; status == LS_OK && i < ls_compare_options.count; i++) {
        const char *value = ls_settings_get(&settings, ls_compare_options.options[i].key);
        if (value != NULL)
            status = ls_options_set(ctx, &ls_compare_options, "", ls_compare_options.options[i].key,
                                    value, &keys);
    }
    if (status == LS_OK) status = ls_comparer_new(ctx, what, &keys, &settings, &comparer);
    if (status == LS_OK) status = ls_comparer_run(comparer, out);
    ls_comparer_free(comparer);
    ls_settings_clear(ctx, &settings);
    return status;
}

/* A signal is heard before all weights are there: there may be many. */
static void stops(void **state) {
    (void)state;
    fixture f;
    const volatile int stop = 1;
    ls_naming naming = {0};
    ls_public_report report = {0};
    open_case(&f, 0);
    expect(&f.ctx, ls_naming_read(&f.ctx, cases[0].names, ls_public_names_own, &naming));
    f.model->ctx->stop = &stop;
    assert_int_equal(ls_model_load_public(f.model, &naming, &f.file, "w.", &report), LS_ESTOP);
    assert_int_equal(report.loaded, 0);
    f.model->ctx->stop = NULL;
    ls_public_report_clear(&f.ctx, &report);
    ls_naming_clear(&f.ctx, &naming);
    close_case(&f);
}

static void gives_rows(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_comparison comparison;
    expect(&ctx, compare(&ctx, "mixer", "mixer=mamba conv_bias=false bias=true", "mamba-narrow",
                         &comparison));
    assert_false(comparison.beyond);
    assert_string_equal(comparison.rows[0].tensor, "out.y");
    assert_true(comparison.rows[0].good && comparison.rows[0].difference < 1e-11);
    assert_non_null(strstr(comparison.sizes.bytes, "d_state=5"));
    ls_comparison_clear(&ctx, &comparison);
    expect(&ctx, compare(&ctx, "mixer",
                         "mixer=attention heads=2 position=rope tol=0 "
                         "position.layout=interleaved position.base=500",
                         "rope-attn-half", &comparison));
    assert_true(comparison.beyond);
    ls_comparison_clear(&ctx, &comparison);
    assert_int_equal(compare(&ctx, "nothing", "", "mamba-narrow", &comparison), LS_EUSE);
    ls_comparison_clear(&ctx, &comparison);
}

/* Wherever memory ends there is a status, and nothing leaks. */
static void survives_without_memory(void **state) {
    static const char *const kinds[][3] = {
        {"mixer", "mixer=attention position=rope cut=7", "rope-attn-half"},
        {"position", "position=alibi heads=8 tensor=H8", "alibi-slopes"},
        {"scan", "cut=40", "mamba-scan-constant"},
        {"tables", "", "longt5-blockids"},
        {"model",
         "model.norm=rms model.activation=swiglu model.bias=false model.tied=false "
         "model.position=rope mixer.heads=4 model.segment=7 names=llama cut=2,7,7,7",
         "rmt-llama-right"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        int64_t step = 1;
        for (int64_t at = -1;; at += step) {
            failing_allocator allocator = {.fail_at = at};
            ls_ctx ctx = failing_ctx(&allocator);
            ls_comparison comparison;
            ctx.threads = 1;
            const ls_status status =
                compare(&ctx, kinds[k][0], kinds[k][1], kinds[k][2], &comparison);
            ls_comparison_clear(&ctx, &comparison);
            assert_int_equal(allocator.live, 0);
            if (at < 0) {
                assert_int_equal(status, LS_OK);
                step = ls_max(1, allocator.taken / 150);
            }
            if (at >= 0 && allocator.taken <= at) break; /* it never came to that */
            if (at >= 0) assert_int_equal(status, LS_ENOMEM);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_and_gives_back),
        cmocka_unit_test(reports_what_is_left),
        cmocka_unit_test(stops),
        cmocka_unit_test(gives_rows),
        cmocka_unit_test(survives_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
