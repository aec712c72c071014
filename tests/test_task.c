/* Tasks: what each sample must satisfy, told from the sample alone; the settings; and what the
 * evaluation makes of them against the definition. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "eval/task.h"
#include "train/train.h"

enum { LONGEST = 4096 };
static int32_t inputs[LONGEST], targets[LONGEST];

/* "task=mqar task.pairs=2 ..." */
static ls_status read_words(ls_ctx *ctx, const char *words, ls_settings *settings) {
    char copy[512], *left = copy, *word;
    snprintf(copy, sizeof copy, "%s", words);
    while ((word = strsep(&left, " ")) != NULL) LS_TRY(ls_settings_put_word(ctx, settings, word));
    return LS_OK;
}

static ls_status read_task(ls_ctx *ctx, const char *words, ls_task *out) {
    ls_settings settings = {0};
    ls_status status = read_words(ctx, words, &settings);
    if (status == LS_OK) status = ls_task_read(ctx, &settings, out);
    ls_settings_clear(ctx, &settings);
    return status;
}

static ls_task make_task(ls_ctx *ctx, const char *words) {
    ls_task task;
    if (read_task(ctx, words, &task) != LS_OK) fail_msg("%s: %s", words, ctx->error.message);
    return task;
}

static void test_sample(const ls_task *task, int64_t number, int64_t length) {
    assert_in_range(length, 1, LONGEST);
    ls_task_sample(task, LS_TASK_TEST, 7, number, length, inputs, targets);
}

static int64_t count_scored(int64_t length) {
    int64_t count = 0;
    for (int64_t t = 0; t < length; t++) count += targets[t] >= 0;
    return count;
}

/* ---- all of them ---- */

static void every_task_is_sound(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    assert_true(ls_task_count >= 5);
    for (size_t i = 0; i < ls_task_count; i++) {
        const ls_task_type *type = ls_task_types[i];
        char words[128];
        snprintf(words, sizeof words, "task=%s", type->name);
        ls_task task = make_task(&ctx, words);
        assert_true(type->summary[0] != '\0' && type->paper[0] != '\0');
        assert_int_equal(ls_task_check(&ctx, &task, 1), LS_EUSE);
        assert_non_null(strstr(ctx.error.message, type->name));
        ctx.error = (ls_error){0};
        const int64_t lengths[] = {type->length, 2 * type->length};
        for (int l = 0; l < 2 && lengths[l] <= LONGEST; l++) {
            const int64_t length = lengths[l], vocabulary = ls_task_vocabulary(&task);
            const size_t bytes = (size_t)length * sizeof *inputs;
            int32_t *first = malloc(2 * bytes), *kept = first + length;
            if (l == 0 || ls_task_check(&ctx, &task, length) == LS_OK) {
                assert_int_equal(ls_task_check(&ctx, &task, length), LS_OK);
                test_sample(&task, 3, length);
                memcpy(first, inputs, bytes);
                memcpy(kept, targets, bytes);
                assert_true(count_scored(length) > 0);
                for (int64_t t = 0; t < length; t++) {
                    assert_in_range(inputs[t], 0, vocabulary - 1);
                    assert_true(targets[t] >= -1 && targets[t] < vocabulary);
                }
                test_sample(&task, 4, length); /* another one */
                assert_memory_not_equal(first, inputs, bytes);
                test_sample(&task, 3, length); /* the same again */
                assert_memory_equal(first, inputs, bytes);
                assert_memory_equal(kept, targets, bytes);
                ls_task_sample(&task, LS_TASK_TRAIN, 7, 3, length, inputs, targets);
                assert_memory_not_equal(first, inputs, bytes);
                ls_task_sample(&task, LS_TASK_TEST, 8, 3, length, inputs, targets);
                assert_memory_not_equal(first, inputs, bytes);
            }
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

/* ---- one by one ---- */

static void induction_answers_with_what_followed(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_task task = make_task(&ctx, "task=induction");
    assert_int_equal(ls_task_vocabulary(&task), 16);
    assert_int_equal(task.type->length, 256);
    static const int64_t lengths[] = {3, 4, 9, 256, 4096};
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        const int64_t length = lengths[l];
        int64_t lowest = length, highest = -1;
        double mean = 0, samples = 200;
        for (int64_t i = 0; i < (int64_t)samples; i++) {
            int64_t marks = 0, place = -1;
            test_sample(&task, i, length);
            for (int64_t t = 0; t + 1 < length; t++)
                if (inputs[t] == 15) marks++, place = t;
            assert_int_equal(marks, 1);
            assert_int_equal(inputs[length - 1], 15);
            assert_int_equal(count_scored(length), 1);
            assert_int_equal(targets[length - 1], inputs[place + 1]);
            assert_in_range(inputs[place + 1], 0, 14);
            assert_in_range(place, 0, length - 3);
            lowest = ls_min(lowest, place);
            highest = ls_max(highest, place);
            mean += (double)place / samples;
        }
        /* uniform over all places: five deviations */
        const double middle = (double)(length - 3) / 2;
        assert_true(fabs(mean - middle) <= 5 * (double)length / sqrt(12 * samples));
        if (length < 10) assert_true(lowest == 0 && highest == length - 3);
    }
    ls_task_clear(&ctx, &task);
}

static void h3_induction_copies_after_every_mark(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    static const struct {
        const char *words;
        int64_t copy, triggers;
    } cases[] = {{"task=h3_induction", 1, 1},
                 {"task=h3_induction task.copy=3 task.triggers=4", 3, 4}};
    for (int c = 0; c < 2; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t copy = cases[c].copy, length = 30 + copy, n = 30;
        int64_t single = 0, samples = 1000;
        assert_int_equal(ls_task_vocabulary(&task), 20);
        for (int64_t i = 0; i < samples; i++) {
            int64_t marks = 0;
            test_sample(&task, i, length);
            assert_int_equal(inputs[n], 18);
            assert_int_equal(count_scored(length), copy);
            for (int64_t k = 0; k < copy; k++) {
                assert_in_range(targets[n + k], 0, 17);
                if (k + 1 < copy) assert_int_equal(inputs[n + 1 + k], targets[n + k]);
            }
            for (int64_t t = 0; t < n; t++) {
                assert_true(inputs[t] < 19);
                if (inputs[t] != 18) continue;
                assert_true(t < n - 1 - copy);
                for (int64_t k = 0; k < copy; k++)
                    assert_int_equal(inputs[t + 1 + k], targets[n + k]);
                marks++;
            }
            assert_in_range(marks, 1, cases[c].triggers);
            single += marks == 1;
        }
        if (cases[c].triggers == 1) assert_int_equal(single, samples);
        /* half of them, and a few more whose places met */
        if (cases[c].triggers > 1) assert_in_range(single, 430, 650);
        ls_task_clear(&ctx, &task);
    }
}

static void recall_answers_with_the_value(void **state) {
    (void)state;
    enum { LENGTH = 24 };
    ls_ctx ctx = ls_ctx_default();
    static const struct {
        const char *words;
        int64_t key_tokens, alphabet, mark;
        bool absent;
    } cases[] = {{"task=associative_recall", 1, 4, 8, false},
                 {"task=associative_recall task.absent=true task.vocabulary=42", 1, 20, 40, true},
                 {"task=associative_recall task.key_tokens=2", 2, 4, 8, false}};
    for (int c = 0; c < 3; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t width = cases[c].key_tokens, step = width + 1, end = LENGTH - step;
        int64_t missing = 0;
        for (int64_t i = 0; i < 300; i++) {
            int32_t value = -1;
            test_sample(&task, i, LENGTH);
            assert_int_equal(count_scored(LENGTH), 1);
            assert_int_equal(inputs[end], cases[c].mark);
            for (int64_t t = 0; t < end; t += step) {
                for (int64_t k = 0; k < width; k++)
                    assert_in_range(inputs[t + k], 0, cases[c].alphabet - 1);
                assert_in_range(inputs[t + width], cases[c].alphabet, cases[c].mark - 1);
                const size_t bytes = (size_t)width * sizeof *inputs;
                for (int64_t u = 0; u < t; u += step) /* repeats agree */
                    if (memcmp(inputs + t, inputs + u, bytes) == 0)
                        assert_int_equal(inputs[t + width], inputs[u + width]);
                if (memcmp(inputs + t, inputs + end + 1, bytes) == 0) value = inputs[t + width];
            }
            missing += value < 0;
            if (value < 0) value = (int32_t)cases[c].mark + 1;
            assert_int_equal(targets[LENGTH - 1], value);
        }
        assert_true(cases[c].absent ? missing > 100 && missing < 290 : missing == 0);
        ls_task_clear(&ctx, &task);
    }
}

static void copy_keeps_the_order(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    static const struct {
        const char *words;
        int64_t tokens, length;
        int32_t mark;
        bool scattered;
    } cases[] = {{"task=selective_copy", 16, 4096, 15, true},
                 {"task=selective_copy task.tokens=3 task.vocabulary=5", 3, 10, 4, true},
                 {"task=selective_copy task.tokens=4", 4, 8, 15, true},
                 {"task=selective_copy task.scattered=false", 16, 100, 15, false}};
    for (int c = 0; c < 4; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t length = cases[c].length, tokens = cases[c].tokens, places = length - tokens;
        double mean = 0, samples = 300;
        for (int64_t i = 0; i < (int64_t)samples; i++) {
            int64_t found = 0;
            test_sample(&task, i, length);
            assert_int_equal(count_scored(length), tokens);
            for (int64_t t = 0; t < places; t++) {
                assert_int_equal(targets[t], -1);
                assert_true(inputs[t] < cases[c].mark);
                if (inputs[t] == 0) continue;
                mean += (double)t / (samples * (double)tokens);
                if (!cases[c].scattered) assert_int_equal(t, found);
                assert_int_equal(targets[places + found++], inputs[t]);
            }
            assert_int_equal(found, tokens);
            for (int64_t t = places; t < length; t++) assert_int_equal(inputs[t], cases[c].mark);
        }
        const double middle = (double)(places - 1) / 2;
        if (cases[c].scattered)
            assert_true(fabs(mean - middle) <=
                        5 * (double)places / sqrt(12 * samples * (double)tokens));
        ls_task_clear(&ctx, &task);
    }
}

static void mqar_asks_every_key_once(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    static const struct {
        const char *words;
        int64_t vocabulary, pairs, passes, length;
    } cases[] = {{"task=mqar", 8192, 8, 1, 64},
                 {"task=mqar task.pairs=16 task.random_fill=false", 8192, 16, 1, 64},
                 {"task=mqar task.vocabulary=64 task.pairs=5 task.passes=3", 64, 5, 3, 90}};
    for (int c = 0; c < 3; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t pairs = cases[c].pairs, context = 2 * pairs * cases[c].passes;
        const int64_t half = cases[c].vocabulary / 2, length = cases[c].length;
        assert_int_equal(ls_task_vocabulary(&task), cases[c].vocabulary);
        assert_int_equal(ls_task_check(&ctx, &task, context + 2 * pairs), LS_OK);
        assert_int_equal(ls_task_check(&ctx, &task, context + 2 * pairs - 2), LS_EUSE);
        ctx.error = (ls_error){0};
        assert_int_equal(ls_task_check(&ctx, &task, length + 1), LS_EUSE);
        ctx.error = (ls_error){0};
        for (int64_t i = 0; i < 100; i++) {
            test_sample(&task, i, length);
            assert_int_equal(count_scored(length), pairs);
            for (int64_t k = 0; k < pairs; k++) {
                assert_in_range(inputs[2 * k], 1, half - 1);
                assert_in_range(inputs[2 * k + 1], half, cases[c].vocabulary - 1);
                for (int64_t j = 0; j < k; j++) {
                    assert_int_not_equal(inputs[2 * k], inputs[2 * j]);
                    assert_int_not_equal(inputs[2 * k + 1], inputs[2 * j + 1]);
                }
                int64_t asked = 0;
                for (int64_t t = context; t < length; t++)
                    if (targets[t] == inputs[2 * k + 1]) {
                        assert_int_equal(inputs[t], inputs[2 * k]);
                        assert_int_equal((t - context) % 2, 0);
                        asked++;
                    }
                assert_int_equal(asked, 1);
            }
            for (int64_t t = 2 * pairs; t < context; t++)
                assert_int_equal(inputs[t], inputs[t - 2 * pairs]);
            for (int64_t t = context; c == 1 && t < length; t++)
                assert_true(targets[t] >= 0 || inputs[t] == 0);
        }
        ls_task_clear(&ctx, &task);
    }
}

/* One question in 20 slots, 20000 times, against i^(power - 1). */
static void mqar_gaps_follow_the_power_law(void **state) {
    (void)state;
    enum { SLOTS = 20, LENGTH = 2 + 2 * SLOTS, SAMPLES = 20000 };
    static const struct {
        const char *words;
        double power;
    } cases[] = {{"task=mqar task.pairs=1 task.random_fill=false", 0.01},
                 {"task=mqar task.pairs=1 task.random_fill=false task.power=0", 0},
                 {"task=mqar task.pairs=1 task.random_fill=false task.power=1", 1}};
    ls_ctx ctx = ls_ctx_default();
    for (int c = 0; c < 3; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        double counts[SLOTS] = {0}, sum = 0;
        for (int64_t i = 0; i < SAMPLES; i++) {
            test_sample(&task, i, LENGTH);
            for (int64_t slot = 0; slot < SLOTS; slot++) counts[slot] += targets[2 + 2 * slot] >= 0;
        }
        for (int slot = 1; slot <= SLOTS; slot++) sum += pow(slot, cases[c].power - 1);
        for (int slot = 1; slot <= SLOTS; slot++) {
            double share = pow(slot, cases[c].power - 1) / sum, wanted = SAMPLES * share;
            assert_true(fabs(counts[slot - 1] - wanted) <= 5 * sqrt(wanted * (1 - share)));
        }
        ls_task_clear(&ctx, &task);
    }
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
    ls_task task = make_task(&ctx, "model.width=3"), again;
    assert_null(task.type);
    ls_task_clear(&ctx, &task);
    task = make_task(&ctx, "task=mqar task.pairs=5 task.power=0.25 task.loss=all task.samples=9");
    ls_text text = {0};
    ls_settings settings = {0};
    ls_task_print(&ctx, &task, &text);
    assert_int_equal(ls_settings_parse(&ctx, &settings, text.bytes, text.length, "text"), LS_OK);
    assert_int_equal(ls_task_read(&ctx, &settings, &again), LS_OK);
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
        assert_int_equal(read_words(&ctx, models[m], &settings), LS_OK);
        assert_int_equal(ls_model_config_read(&ctx, &settings, &config), LS_OK);
        assert_int_equal(ls_task_read(&ctx, &settings, &task), LS_OK);
        assert_int_equal(ls_model_new(&ctx, &config, LS_F64, 2, false, &model), LS_OK);
        for (int w = 0; w < 3; w++) {
            ls_settings asked = {0};
            ls_eval_settings how;
            ls_eval_results results;
            assert_int_equal(ls_options_default(&ctx, &ls_eval_options, &how), LS_OK);
            assert_int_equal(read_words(&ctx, ways[w], &asked), LS_OK);
            assert_int_equal(read_words(&ctx, "eval.samples=11 eval.lengths=20,24", &asked), LS_OK);
            assert_int_equal(ls_settings_apply(&ctx, &asked, "eval", &ls_eval_options, &how),
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
            how.lengths = (ls_reals){.count = 1, .at = {2}};
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

/* Logits of a model in bf16 are numbers near those of the same weights in f64. */
static void narrow_logits_are_read(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    ls_model_config config;
    double logits[2][2 * 16];
    static const int32_t tokens[4] = {3, 1, 4, 1}, at[2] = {1, 3};
    assert_int_equal(read_words(&ctx,
                                "model.vocabulary=16 model.width=16 model.layers=1 mixer.heads=2 "
                                "model.length=8 model.init=0.3",
                                &settings),
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
        cmocka_unit_test(induction_answers_with_what_followed),
        cmocka_unit_test(h3_induction_copies_after_every_mark),
        cmocka_unit_test(recall_answers_with_the_value),
        cmocka_unit_test(copy_keeps_the_order),
        cmocka_unit_test(mqar_asks_every_key_once),
        cmocka_unit_test(mqar_gaps_follow_the_power_law),
        cmocka_unit_test(settings_are_read_and_written),
        cmocka_unit_test(rounds_visit_every_sample),
        cmocka_unit_test(all_tokens_are_scored_in_training_alone),
        cmocka_unit_test(batches_are_made_of_samples),
        cmocka_unit_test(evaluation_is_the_definition),
        cmocka_unit_test(narrow_logits_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
