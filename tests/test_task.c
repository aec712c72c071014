/* Tasks: what holds of all of them; the settings; and what the evaluation makes of their samples
 * against the definition.
 * Tier: threads. */
#include "task_fixture.h"

/* ---- all of them ---- */

static void every_task_is_sound(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    assert_true(ls_task_count >= 11);
    for (size_t i = 0; i < ls_task_count; i++) {
        const ls_task_type *type = ls_task_types[i];
        char words[128];
        if (type->load != NULL) continue; /* tests/test_lra.c */
        snprintf(words, sizeof words, "task=%s", type->name);
        ls_task task = make_task(&ctx, words);
        assert_true(type->summary[0] != '\0' && type->paper[0] != '\0');
        assert_int_equal(ls_task_check(&ctx, &task, 1), LS_EUSE);
        assert_non_null(strstr(ctx.error.message, type->name));
        ctx.error = (ls_error){0};
        const int64_t lengths[] = {type->length, 2 * type->length};
        for (int l = 0; l < 2 && lengths[l] <= LONGEST; l++) {
            const int64_t length = lengths[l], vocabulary = ls_task_vocabulary(&task);
            const int64_t scored = ls_task_targets(&task, length);
            const size_t bytes = (size_t)length * sizeof *inputs;
            int32_t *first = malloc(2 * bytes), *kept = first + length;
            if (l == 0 || ls_task_check(&ctx, &task, length) == LS_OK) {
                assert_int_equal(ls_task_check(&ctx, &task, length), LS_OK);
                test_sample(&task, 3, length);
                memcpy(first, inputs, bytes);
                memcpy(kept, targets, (size_t)scored * sizeof *targets);
                assert_true(count_scored(scored) > 0);
                for (int64_t t = 0; t < length; t++) {
                    assert_true(inputs[t] < vocabulary);
                    /* padding is for classes, and comes last */
                    if (inputs[t] < 0) assert_true(inputs[t] == -1 && type->classes > 0);
                    if (t > 0 && inputs[t - 1] < 0) assert_int_equal(inputs[t], -1);
                }
                for (int64_t t = 0; t < scored; t++)
                    assert_true(targets[t] >= -1 &&
                                targets[t] < (type->classes > 0 ? type->classes : vocabulary));
                test_sample(&task, 4, length); /* another one */
                assert_memory_not_equal(first, inputs, bytes);
                test_sample(&task, 3, length); /* the same again */
                assert_memory_equal(first, inputs, bytes);
                assert_memory_equal(kept, targets, (size_t)scored * sizeof *targets);
                ls_task_sample(&task, LS_TASK_TRAIN, 7, 3, length, inputs, targets);
                assert_memory_not_equal(first, inputs, bytes);
                ls_task_sample(&task, LS_TASK_TEST, 8, 3, length, inputs, targets);
                assert_memory_not_equal(first, inputs, bytes);
            }
            ctx.error = (ls_error){0};
            free(first);
        }
        ls_task_clear(&ctx, &task);
    }
}

/* Where the sets meet by chance (few tokens, short samples) nothing can be said; at these sizes
 * they must not. */
static void test_samples_are_not_trained_on(void **state) {
    (void)state;
    enum { TRAINED = 400, TESTED = 100, LENGTH = 64 };
    ls_ctx ctx = ls_ctx_default();
    ls_task task = make_task(&ctx, "task=induction");
    int32_t *trained = malloc(TRAINED * LENGTH * sizeof *trained);
    for (int64_t i = 0; i < TRAINED; i++)
        ls_task_sample(&task, LS_TASK_TRAIN, 7, i, LENGTH, trained + i * LENGTH, targets);
    for (int64_t j = 0; j < TESTED; j++) {
        test_sample(&task, j, LENGTH);
        for (int64_t i = 0; i < TRAINED; i++)
            assert_memory_not_equal(trained + i * LENGTH, inputs, LENGTH * sizeof *inputs);
    }
    free(trained);
    ls_task_clear(&ctx, &task);
}

/* ---- settings ---- */

static void refuses(const char *words, const char *says) {
    ls_ctx ctx = ls_ctx_default();
    ls_task task;
    assert_int_equal(read_task(&ctx, words, &task), LS_EUSE);
    if (strstr(ctx.error.message, says) == NULL) fail_msg("%s: %s", words, ctx.error.message);
    ls_task_clear(&ctx, &task);
}

static void settings_are_read_and_written(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    refuses("task=inductoin", "did you mean induction?");
    refuses("task=mqar task.piars=3", "task.pairs");
    refuses("task=induction task.vocabulary=1", "task.vocabulary");
    refuses("task=listops task.loss=all", "asks for a class");
    ls_task task = make_task(&ctx, "model.width=3"), again;
    assert_null(task.type);
    ls_task_clear(&ctx, &task);
    task = make_task(&ctx, "task=mqar task.pairs=5 task.power=0.25 task.loss=all task.samples=9");
    ls_text text = {0};
    ls_settings settings = {0};
    ls_task_print(&ctx, &task, &text);
    assert_int_equal(ls_settings_parse(&ctx, &settings, text.bytes, text.length, "text"), LS_OK);
    assert_int_equal(ls_task_read(&ctx, &settings, ls_training_facts, &again), LS_OK);
    assert_ptr_equal(again.type, task.type);
    assert_memory_equal(again.options, task.options, task.type->options.size);
    assert_int_equal(again.settings.loss, 1);
    assert_int_equal(again.settings.samples, 9);
    ls_task_clear(&ctx, &again);
    ls_task_clear(&ctx, &task);
    ls_settings_clear(&ctx, &settings);
    ls_text_clear(&ctx, &text);
}

/* Nine samples, each once a round, in another order the next time. */
static void rounds_visit_every_sample(void **state) {
    (void)state;
    enum { SAMPLES = 9, LENGTH = 32 };
    ls_ctx ctx = ls_ctx_default();
    ls_task task = make_task(&ctx, "task=induction task.samples=9");
    int32_t all[SAMPLES][LENGTH];
    int order[2][SAMPLES];
    for (int64_t i = 0; i < SAMPLES; i++)
        ls_task_sample(&task, LS_TASK_TRAIN, 7, i, LENGTH, all[i], targets);
    for (int round = 0; round < 2; round++) {
        int seen = 0;
        for (int i = 0; i < SAMPLES; i++) {
            ls_task_training_sample(&task, 7, round * SAMPLES + i, LENGTH, inputs, targets);
            int which = 0;
            while (which < SAMPLES && memcmp(all[which], inputs, sizeof all[0]) != 0) which++;
            assert_in_range(which, 0, SAMPLES - 1);
            seen |= 1 << which;
            order[round][i] = which;
        }
        assert_int_equal(seen, (1 << SAMPLES) - 1);
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    ls_task_clear(&ctx, &task);
}

static void all_tokens_are_scored_in_training_alone(void **state) {
    (void)state;
    enum { LENGTH = 20 };
    ls_ctx ctx = ls_ctx_default();
    ls_task task = make_task(&ctx, "task=induction task.loss=all");
    test_sample(&task, 0, LENGTH);
    assert_int_equal(count_scored(LENGTH), 1);
    ls_task_sample(&task, LS_TASK_TRAIN, 7, 0, LENGTH, inputs, targets);
    assert_int_equal(count_scored(LENGTH), LENGTH);
    for (int t = 0; t + 1 < LENGTH; t++) assert_int_equal(targets[t], inputs[t + 1]);
    ls_task_clear(&ctx, &task);
}

static void batches_are_made_of_samples(void **state) {
    (void)state;
    enum { BATCH = 3, LENGTH = 16 };
    ls_ctx ctx = ls_ctx_default();
    ls_task task = make_task(&ctx, "task=induction");
    ls_task_batches from = {.task = &task, .batch = BATCH, .length = LENGTH, .seed = 7};
    ls_train_source source, other;
    bool fresh[BATCH] = {false};
    int32_t rows[2][BATCH * LENGTH];
    assert_int_equal(ls_train_source_of_task(&ctx, &from, 16, &source), LS_OK);
    source.rows(source.user, 5, 1, 2, rows[0], rows[1], fresh);
    for (int64_t i = 0; i < 2; i++) {
        ls_task_sample(&task, LS_TASK_TRAIN, 7, 5 * BATCH + 1 + i, LENGTH, inputs, targets);
        assert_memory_equal(rows[0] + i * LENGTH, inputs, LENGTH * sizeof *inputs);
        assert_memory_equal(rows[1] + i * LENGTH, targets, LENGTH * sizeof *inputs);
        assert_true(fresh[i]);
    }
    from.seed = 8;
    assert_int_equal(ls_train_source_of_task(&ctx, &from, 16, &other), LS_OK);
    assert_true(source.identity != other.identity);
    from.length = 2;
    assert_int_equal(ls_train_source_of_task(&ctx, &from, 16, &other), LS_EUSE);
    ls_task_clear(&ctx, &task);
}

static void batches_of_classes_have_one_target_each(void **state) {
    (void)state;
    enum { BATCH = 3, LENGTH = 32 };
    ls_ctx ctx = ls_ctx_default();
    ls_task task = make_task(&ctx, "task=listops");
    ls_task_batches from = {.task = &task, .batch = BATCH, .length = LENGTH, .seed = 7};
    ls_train_source source;
    bool fresh[BATCH] = {false};
    int32_t rows[BATCH * LENGTH], classes[BATCH];
    assert_int_equal(ls_train_source_of_task(&ctx, &from, 15, &source), LS_OK);
    source.rows(source.user, 5, 0, BATCH, rows, classes, fresh);
    for (int64_t i = 0; i < BATCH; i++) {
        ls_task_sample(&task, LS_TASK_TRAIN, 7, 5 * BATCH + i, LENGTH, inputs, targets);
        assert_memory_equal(rows + i * LENGTH, inputs, LENGTH * sizeof *inputs);
        assert_int_equal(classes[i], targets[0]);
        assert_true(fresh[i]);
    }
    ls_task_clear(&ctx, &task);
}

/* ---- evaluation ---- */

typedef struct wanted {
    double accuracy, exact, loss;
} wanted;

/* By the definition: one sample after another, one token after another. */
static wanted by_definition(ls_model *model, const ls_task *task, int64_t samples, int64_t length) {
    const int64_t vocabulary = model->config->model.vocabulary;
    double *logits = malloc((size_t)vocabulary * sizeof *logits), right = 0, scored = 0;
    wanted out = {0};
    ls_stream *stream;
    assert_int_equal(ls_stream_new(model, 1, length, 1, &stream), LS_OK);
    for (int64_t i = 0; i < samples; i++) {
        bool whole = true;
        test_sample(task, i, length);
        ls_stream_reset(stream);
        for (int64_t t = 0; t < length; t++) {
            assert_int_equal(ls_stream_logits(stream, inputs + t, 1, 1, logits), LS_OK);
            if (targets[t] < 0) continue;
            double sum = 0;
            int64_t best = 0;
            for (int64_t v = 0; v < vocabulary; v++) {
                sum += exp(logits[v]);
                if (logits[v] > logits[best]) best = v;
            }
            out.loss += log(sum) - logits[targets[t]];
            right += best == targets[t];
            whole &= best == targets[t];
            scored++;
        }
        out.exact += whole / (double)samples;
    }
    out.accuracy = right / scored;
    out.loss /= scored;
    ls_stream_free(stream);
    free(logits);
    return out;
}

static void evaluation_is_the_definition(void **state) {
    (void)state;
    enum { SAMPLES = 11 };
    static const char *const models[] = {
        "task=mqar task.vocabulary=16 task.pairs=4 model.vocabulary=16 model.width=16 "
        "model.layers=1 mixer.heads=2 model.length=24 model.init=1 model.tied=false",
        "task=selective_copy task.vocabulary=4 task.tokens=3 model.vocabulary=4 model.width=16 "
        "model.layers=1 model.mixer=mamba model.length=24 model.init=1 model.tied=false"};
    static const char *const ways[] = {"eval.chunk=512", "eval.chunk=7 eval.batch=3",
                                       "eval.chunk=1 eval.batch=11"};
    for (int m = 0; m < 2; m++) {
        ls_ctx ctx = ls_ctx_default();
        ls_settings settings = {0};
        ls_model_config config;
        ls_model *model;
        ls_task task;
        assert_int_equal(ls_settings_put_words(&ctx, &settings, models[m]), LS_OK);
        assert_int_equal(ls_model_config_read(&ctx, &settings, &config), LS_OK);
        assert_int_equal(ls_task_read(&ctx, &settings, ls_training_facts, &task), LS_OK);
        assert_int_equal(ls_model_new(&ctx, &config, LS_F64, 2, false, &model), LS_OK);
        for (int w = 0; w < 3; w++) {
            ls_settings asked = {0};
            ls_eval_settings how;
            ls_eval_results results;
            assert_int_equal(ls_options_default(&ctx, &ls_eval_options, &how), LS_OK);
            assert_int_equal(ls_settings_put_words(&ctx, &asked, ways[w]), LS_OK);
            assert_int_equal(
                ls_settings_put_words(&ctx, &asked, "eval.samples=11 eval.lengths=20,24"), LS_OK);
            assert_int_equal(ls_settings_apply(&ctx, &asked, "eval", &ls_eval_options,
                                               ls_eval_facts(true, NULL), &how),
                             LS_OK);
            assert_int_equal(ls_eval_task(model, &task, 7, &how, NULL, &results), LS_OK);
            assert_int_equal(results.count, 2);
            for (int r = 0; r < 2; r++) {
                const ls_eval_row *row = &results.rows[r];
                const wanted want = by_definition(model, &task, SAMPLES, row->length);
                assert_int_equal(row->length, 20 + 4 * r);
                assert_int_equal(row->windows, SAMPLES);
                assert_true(row->accuracy == want.accuracy);
                assert_true(fabs(row->exact - want.exact) < 1e-12);
                assert_true(fabs(row->loss - want.loss) < 1e-10 * want.loss);
                assert_true(want.accuracy > 0 && want.accuracy < 1);
            }
            ls_eval_results_clear(&ctx, &results);
            how.lengths = (ls_ints){.count = 1, .at = {2}};
            assert_int_equal(ls_eval_task(model, &task, 7, &how, NULL, &results), LS_EUSE);
            ls_eval_results_clear(&ctx, &results);
            ctx.error = (ls_error){0};
            ls_settings_clear(&ctx, &asked);
        }
        ls_model_free(model);
        ls_task_clear(&ctx, &task);
        ls_model_config_clear(&ctx, &config);
        ls_settings_clear(&ctx, &settings);
    }
}

/* Classes by the definition: each sample alone, without padding. */
static wanted classes_by_definition(ls_model *model, const ls_task *task, int64_t samples,
                                    int64_t length) {
    const int64_t classes = model->config->model.classes;
    double logits[16];
    wanted out = {0};
    assert_in_range(classes, 2, 16);
    for (int64_t i = 0; i < samples; i++) {
        int64_t own = 0, best = 0;
        double sum = 0;
        ls_program *program;
        test_sample(task, i, length);
        while (own < length && inputs[own] >= 0) own++;
        const ls_program_options options = {.batch = 1, .length = own};
        assert_int_equal(ls_model_program(model, LS_MODEL_LOGITS, options, &program), LS_OK);
        assert_int_equal(ls_model_put_tokens(model, program, "tokens", inputs), LS_OK);
        assert_int_equal(ls_program_run(program, NULL, 0, 0), LS_OK);
        assert_int_equal(ls_model_read(program, "logits", logits), LS_OK);
        ls_program_free(program);
        for (int64_t v = 0; v < classes; v++) {
            sum += exp(logits[v]);
            if (logits[v] > logits[best]) best = v;
        }
        out.loss += (log(sum) - logits[targets[0]]) / (double)samples;
        out.accuracy += (best == targets[0]) / (double)samples;
    }
    return out;
}

static void classes_are_evaluated_as_defined(void **state) {
    (void)state;
    enum { SAMPLES = 40 };
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    ls_model_config config;
    ls_model *model;
    ls_task task;
    assert_int_equal(
        ls_settings_put_words(&ctx, &settings,
                              "task=listops model.vocabulary=15 model.head=classify "
                              "model.classes=10 model.width=16 model.layers=1 mixer.heads=2 "
                              "model.position=rope model.causal=false model.init=1"),
        LS_OK);
    assert_int_equal(ls_model_config_read(&ctx, &settings, &config), LS_OK);
    assert_int_equal(ls_task_read(&ctx, &settings, ls_training_facts, &task), LS_OK);
    assert_int_equal(ls_model_new(&ctx, &config, LS_F64, 2, false, &model), LS_OK);
    ls_eval_settings how;
    assert_int_equal(ls_options_default(&ctx, &ls_eval_options, &how), LS_OK);
    how.samples = SAMPLES;
    how.lengths = (ls_ints){.count = 2, .at = {24, 40}};
    for (how.batch = 0; how.batch < 12; how.batch += 11) {
        ls_eval_results results;
        assert_int_equal(ls_eval_task(model, &task, 7, &how, NULL, &results), LS_OK);
        for (size_t r = 0; r < 2; r++) {
            const ls_eval_row *row = &results.rows[r];
            const wanted want = classes_by_definition(model, &task, SAMPLES, row->length);
            assert_int_equal(row->tokens, SAMPLES);
            assert_true(fabs(row->accuracy - want.accuracy) < 1e-12);
            assert_true(row->exact == row->accuracy);
            assert_true(fabs(row->loss - want.loss) < 1e-10 * want.loss);
            assert_true(want.accuracy > 0 && want.accuracy < 1);
        }
        ls_eval_results_clear(&ctx, &results);
    }
    ls_task tokens = make_task(&ctx, "task=induction task.vocabulary=15");
    ls_eval_results results;
    assert_int_equal(ls_eval_task(model, &tokens, 7, &how, NULL, &results), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "does not answer with what task induction"));
    ls_eval_results_clear(&ctx, &results);
    ls_task_clear(&ctx, &tokens);
    ls_model_free(model);
    ls_task_clear(&ctx, &task);
    ls_model_config_clear(&ctx, &config);
    ls_settings_clear(&ctx, &settings);
}

/* Logits of a model in bf16 are numbers near those of the same weights in f64. */
static void narrow_logits_are_read(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    ls_model_config config;
    double logits[2][2 * 16];
    static const int32_t tokens[4] = {3, 1, 4, 1}, at[2] = {1, 3};
    assert_int_equal(
        ls_settings_put_words(&ctx, &settings,
                              "model.vocabulary=16 model.width=16 model.layers=1 mixer.heads=2 "
                              "model.length=8 model.init=0.3"),
        LS_OK);
    assert_int_equal(ls_model_config_read(&ctx, &settings, &config), LS_OK);
    for (int i = 0; i < 2; i++) {
        ls_model *model;
        ls_stream *stream;
        double last[16];
        assert_int_equal(ls_model_new(&ctx, &config, i == 0 ? LS_F64 : LS_BF16, 5, false, &model),
                         LS_OK);
        assert_int_equal(ls_stream_new(model, 1, 8, 4, &stream), LS_OK);
        assert_int_equal(ls_stream_logits_at(stream, tokens, 4, 4, at, 2, logits[i]), LS_OK);
        ls_stream_reset(stream);
        assert_int_equal(ls_stream_logits(stream, tokens, 4, 4, last), LS_OK);
        assert_memory_equal(last, logits[i] + 16, sizeof last);
        ls_stream_free(stream);
        ls_model_free(model);
    }
    double size = 0;
    for (int i = 0; i < 32; i++) size = fmax(size, fabs(logits[0][i]));
    for (int i = 0; i < 32; i++) assert_true(fabs(logits[0][i] - logits[1][i]) < 0.05 * size);
    ls_model_config_clear(&ctx, &config);
    ls_settings_clear(&ctx, &settings);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_is_sound),
        cmocka_unit_test(test_samples_are_not_trained_on),
        cmocka_unit_test(settings_are_read_and_written),
        cmocka_unit_test(rounds_visit_every_sample),
        cmocka_unit_test(all_tokens_are_scored_in_training_alone),
        cmocka_unit_test(batches_are_made_of_samples),
        cmocka_unit_test(batches_of_classes_have_one_target_each),
        cmocka_unit_test(evaluation_is_the_definition),
        cmocka_unit_test(classes_are_evaluated_as_defined),
        cmocka_unit_test(narrow_logits_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
