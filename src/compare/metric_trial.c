/* Metrics of the benchmark suites against scores of the official code: `apply metric`. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/golden_records.h"
#include "suite/lib/metric.h"

enum { RECURSION_OVERHEAD = 11 }; /* frames below the walk, of the limit that Python has */

typedef struct metric_trial {
    json_t *words; /* of Chinese texts, as the records give them: text to its words */
} metric_trial;

/* Options that any metric may have. */
static ls_status read_options(const ls_golden *record, ls_answer *out) {
    const json_t *options = json_object_get(record->json, "options");
    const json_t *classes = json_object_get(options, "all_classes");
    if (classes == NULL) classes = json_object_get(options, "labels");
    if (classes != NULL && !json_is_null(classes) &&
        !ls_json_points_list(record->pool, classes, &out->classes))
        return ls_golden_fail(record, "options", "right: its classes are no list of texts");
    ls_json_points(record->pool, json_object_get(options, "question"), &out->question);
    const char *backend = json_string_value(json_object_get(options, "backend"));
    out->levenshtein = backend != NULL && strcmp(backend, "levenshtein") == 0;
    if (backend != NULL && !out->levenshtein && strcmp(backend, "difflib") != 0)
        return ls_golden_fail(record, "options.backend", "difflib or levenshtein");
    out->first_line = json_is_true(json_object_get(options, "first_line"));
    const json_t *given = json_object_get(options, "recursion_limit");
    int64_t limit = 0;
    if (given != NULL && !json_is_null(given))
        LS_TRY(ls_golden_value(record, "options.recursion_limit", given, 0, 1 << 30, &limit));
    out->most_steps = limit > RECURSION_OVERHEAD ? limit - RECURSION_OVERHEAD : 0;
    return LS_OK;
}

/* Words of a text: those of the record, or of another record with the same text. */
static ls_status words_of(const ls_golden *record, const json_t *given, const json_t *text,
                          ls_points_list *out) {
    const metric_trial *trial = record->user;
    if (given == NULL) given = json_object_get(trial->words, json_string_value(text));
    if (ls_json_points_list(record->pool, given, out)) return LS_OK;
    return LS_FAIL(record->ctx, LS_EINPUT, "%s: line %lld: a Chinese text has no words beside it",
                   record->what, (long long)record->line);
}

static ls_status read_words(const ls_golden *record, const json_t *prediction,
                            const json_t *references, ls_answer *out) {
    const json_t *options = json_object_get(record->json, "options");
    const json_t *given = json_object_get(options, "reference_tokens");
    const size_t count = json_array_size(references);
    ls_points_list *said = ls_pool_take(record->pool, 1, sizeof *said);
    ls_points_list *wanted = ls_pool_take(record->pool, count, sizeof *wanted);
    if (said == NULL || wanted == NULL) return LS_ENOMEM;
    LS_TRY(words_of(record, json_object_get(options, "prediction_tokens"), prediction, said));
    for (size_t i = 0; i < count; i++)
        LS_TRY(
            words_of(record, json_array_get(given, i), json_array_get(references, i), &wanted[i]));
    out->prediction_words = said;
    out->reference_words = wanted;
    return LS_OK;
}

static ls_status read_answer(const ls_golden *record, const ls_metric *metric,
                             const json_t *prediction, const json_t *references, ls_answer *out) {
    *out = (ls_answer){0};
    LS_TRY(read_options(record, out));
    if (!ls_json_points(record->pool, prediction, &out->prediction))
        return ls_golden_fail(record, "prediction", "a text");
    if (!ls_json_points_list(record->pool, references, &out->references))
        return ls_golden_fail(record, "references", "a list of texts");
    return metric->segmented ? read_words(record, prediction, references, out) : LS_OK;
}

static ls_status compare_one(ls_golden *record, const ls_metric *metric) {
    const json_t *options = json_object_get(record->json, "options");
    const json_t *cleaned = json_object_get(options, "postprocessed");
    ls_answer answer;
    LS_TRY(read_answer(record, metric, json_object_get(record->json, "prediction"),
                       json_object_get(record->json, "references"), &answer));
    double score = ls_metric_score(record->pool, metric, &answer);
    if (metric->percent) score = ls_round_percent(100 * score);
    record->difference = fabs(score - json_number_value(json_object_get(record->json, "score")));
    ls_points wanted;
    if (ls_json_points(record->pool, cleaned, &wanted) &&
        !ls_points_equal(wanted, ls_ruler_clean(record->pool, answer.prediction)))
        record->difference = INFINITY;
    return LS_OK;
}

static ls_status compare_text(ls_golden *record, const char *name) {
    ls_points text, wanted;
    LS_TRY(ls_golden_points(record, "prediction", &text));
    LS_TRY(ls_golden_points(record, "score", &wanted));
    text = strcmp(name, "normalize_zh_answer") == 0 ? ls_normalize_zh_answer(record->pool, text)
                                                    : ls_normalize_answer(record->pool, text);
    record->difference = ls_points_equal(text, wanted) ? 0 : INFINITY;
    return LS_OK;
}

/* Buckets of lengths: LongBench-E's, and those of LCEG. */
typedef struct bucket {
    const char *name;
    double least, below;
} bucket;
static const bucket buckets_e[] = {{"0-4k", 0, 4000}, {"4-8k", 4000, 8000}, {"8k+", 8000, 1e18}};
static const bucket buckets_lceg[] = {{"0-4k", 0, 4000},
                                      {"4-8k", 4000, 8000},
                                      {"8-16k", 8000, 16000},
                                      {"16-32k", 16000, 1e18},
                                      {"4k+", 4001, 1e18}};

/* In numpy's order, which decides ties of the rounding: eight sums side by side, halves of what is
 * longer than a block. */
static double numpy_sum(const double *at, size_t count) {
    double parts[8], sum = 0;
    if (count > 128) {
        const size_t half = count / 2 - count / 2 % 8;
        return numpy_sum(at, half) + numpy_sum(at + half, count - half);
    }
    size_t i = 0;
    if (count >= 8) {
        for (size_t k = 0; k < 8; k++) parts[k] = at[k];
        for (i = 8; i + 8 <= count; i += 8)
            for (size_t k = 0; k < 8; k++) parts[k] += at[i + k];
        sum = ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
              ((parts[4] + parts[5]) + (parts[6] + parts[7]));
    }
    for (; i < count; i++) sum += at[i];
    return sum;
}

static double bucket_difference(const json_t *wanted, const bucket *b, const double *scores,
                                const json_t *lengths, size_t count, double *inside) {
    char counted[16];
    double worst = 0;
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const double length = json_number_value(json_array_get(lengths, i));
        if (length < b->least || length >= b->below) continue;
        inside[n++] = scores[i];
    }
    const json_t *score = json_object_get(wanted, b->name);
    snprintf(counted, sizeof counted, "#%s", b->name);
    const json_t *number = json_object_get(wanted, counted);
    if (number != NULL) worst = fabs((double)n - json_number_value(number));
    if (n == 0) return json_is_null(score) ? worst : INFINITY;
    if (!json_is_number(score)) return INFINITY;
    /* means of buckets are numpy's numbers, which round by scaling */
    const double rounded = rint(100 * (numpy_sum(inside, n) / (double)n) * 100) / 100;
    return fmax(worst, fabs(rounded - json_number_value(score)));
}

/* The score of a whole data set, also by buckets of lengths. */
static double set_difference(const ls_golden *record, const double *scores, size_t count,
                             const bucket *buckets, size_t bucket_count) {
    const json_t *wanted = json_object_get(record->json, "score");
    const json_t *lengths = json_object_get(json_object_get(record->json, "options"), "lengths");
    double sum = 0, worst = 0, *inside = ls_pool_take(record->pool, count, sizeof *inside);
    if (inside == NULL) return INFINITY;
    for (size_t i = 0; i < count; i++) sum += scores[i];
    const double total = ls_round_percent(100 * sum / (double)count);
    if (json_is_number(wanted)) return fabs(total - json_number_value(wanted));
    if (!json_is_object(wanted) || json_array_size(lengths) != count) return INFINITY;
    for (size_t i = 0; i < bucket_count; i++)
        worst = fmax(worst, bucket_difference(wanted, &buckets[i], scores, lengths, count, inside));
    const json_t *all = json_object_get(wanted, "total_score");
    return all == NULL ? worst : fmax(worst, fabs(total - json_number_value(all)));
}

/* Predictions and references of a data set: LongBench's scorers, LCEG's, RULER's aggregates. */
static ls_status compare_set(ls_golden *record, const char *suite, const char *name) {
    const json_t *predictions = json_object_get(record->json, "prediction");
    const json_t *references = json_object_get(record->json, "references");
    const json_t *options = json_object_get(record->json, "options");
    const char *dataset = json_string_value(json_object_get(options, "dataset"));
    const bool lceg = strcmp(suite, "lceg") == 0, e = strcmp(name, "scorer_e") == 0;
    const size_t count = json_array_size(predictions);
    double *scores = ls_pool_take(record->pool, count, sizeof *scores);
    if (scores == NULL) return LS_ENOMEM;
    if (count == 0 || json_array_size(references) != count)
        return ls_golden_fail(record, "references", "a list as long as the predictions");
    const bool many = strcmp(name, "many_shot_trec") == 0;
    const ls_longbench_rule *rule =
        dataset == NULL ? NULL : ls_longbench_rule_of(many ? "trec" : dataset);
    const ls_metric *metric =
        rule != NULL ? ls_metric_find("longbench", rule->metric) : ls_metric_find(suite, name);
    if (metric == NULL) return ls_golden_fail(record, "metric", "one that is known here");
    for (size_t i = 0; i < count; i++) {
        ls_answer answer;
        LS_TRY(read_answer(record, metric, json_array_get(predictions, i),
                           json_array_get(references, i), &answer));
        scores[i] = rule != NULL ? ls_longbench_item(record->pool, rule, lceg, &answer)
                                 : ls_metric_score(record->pool, metric, &answer);
    }
    record->difference = e ? set_difference(record, scores, count, buckets_e, 3)
                           : set_difference(record, scores, count, buckets_lceg, 5);
    return LS_OK;
}

static ls_status compare(ls_golden *record) {
    const char *suite, *name;
    LS_TRY(ls_golden_text(record, "suite", &suite));
    LS_TRY(ls_golden_text(record, "metric", &name));
    snprintf(record->group, sizeof record->group, "%.40s %.40s", suite, name);
    if (strncmp(name, "normalize_", 10) == 0) return compare_text(record, name);
    if (json_is_array(json_object_get(record->json, "prediction")))
        return compare_set(record, suite, name);
    const ls_metric *metric = ls_metric_find(suite, name);
    if (metric == NULL) return ls_golden_fail(record, "metric", "one that is known here");
    return compare_one(record, metric);
}

static ls_status keep_words(ls_golden *record) {
    metric_trial *trial = record->user;
    const json_t *options = json_object_get(record->json, "options");
    const json_t *said = json_object_get(options, "prediction_tokens");
    const json_t *wanted = json_object_get(options, "reference_tokens");
    const json_t *references = json_object_get(record->json, "references");
    const char *text = json_string_value(json_object_get(record->json, "prediction"));
    if (said == NULL || text == NULL) return LS_OK;
    int failed = json_object_set(trial->words, text, (json_t *)said);
    for (size_t i = 0; i < json_array_size(wanted); i++) {
        text = json_string_value(json_array_get(references, i));
        if (text != NULL) failed |= json_object_set(trial->words, text, json_array_get(wanted, i));
    }
    return failed ? LS_FAIL(record->ctx, LS_ENOMEM, "no memory for the words") : LS_OK;
}

static ls_status read(ls_comparer *comparer) {
    return ls_compare_needs_golden(comparer);
}

static ls_status run(ls_comparer *comparer, ls_comparison *out) {
    metric_trial *trial = comparer->own;
    const double tolerance =
        ls_settings_has(comparer->settings, "tol") ? comparer->keys->tol : 1e-9;
    trial->words = json_object();
    if (trial->words == NULL) return LS_FAIL(comparer->ctx, LS_ENOMEM, "no memory for the words");
    LS_TRY(ls_goldens_walk(comparer, keep_words, trial));
    return ls_goldens_compare(comparer, tolerance, compare, trial, out);
}

static void clear(ls_comparer *comparer) {
    json_decref(((metric_trial *)comparer->own)->words);
}

const ls_comparer_type ls_metric_comparer = {
    .name = "metric",
    .size = sizeof(metric_trial),
    .read = read,
    .run = run,
    .clear = clear,
};
