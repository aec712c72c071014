/* LongBench: 21 data sets of questions, summaries, classes and code about long contexts.
 *
 * generate: the official prompts, cut in the middle, greedy, with the official metrics. Chinese is
 * cut into characters (`zh-char`), so those scores are no LongBench scores.
 * likelihood: the answer ranked against those of other items, or all classes, paragraph numbers or
 * counts; the contrast is the prompt with an empty context. An own form: docs/suites.md. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite/lib/haystack.h"
#include "suite/lib/lines.h"

enum { NUMBERS = 30, CANDIDATES_MAX = 1024, FILES_MAX = 64, NAME = 64 };

typedef struct source {
    char path[LS_OPTION_TEXT_BYTES + 256], dataset[NAME];
    bool buckets; /* LongBench-E: by length */
    ls_lines lines;
    int64_t first, count; /* groups */
    const ls_longbench_prompt *prompt;
    const ls_longbench_rule *rule;
} source;

typedef struct longbench {
    source files[FILES_MAX];
    int64_t file_count;
} longbench;

/* What stands before the number that is asked for; NULL: something else is. */
static const char *before_number(const source *from) {
    static const char *const all[][2] = {{"passage_count", ""},
                                         {"passage_retrieval_en", "Paragraph "},
                                         {"passage_retrieval_zh", "\xE6\xAE\xB5\xE8\x90\xBD"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(from->dataset, all[i][0]) == 0) return all[i][1];
    return NULL;
}

static bool has_classes(const source *from) {
    return strcmp(from->rule->metric, "classification_score") == 0;
}

/* DATASET.jsonl or DATASET_e.jsonl; false: neither. */
static bool read_name(const char *name, source *out) {
    const char *slash = strrchr(name, '/');
    snprintf(out->dataset, sizeof out->dataset, "%s", slash == NULL ? name : slash + 1);
    char *end = strstr(out->dataset, ".jsonl");
    if (end == NULL || end[6] != '\0') return false;
    *end = '\0';
    out->buckets = end - out->dataset > 2 && strcmp(end - 2, "_e") == 0;
    if (out->buckets) end[-2] = '\0';
    out->prompt = ls_longbench_prompt_of(out->dataset);
    out->rule = ls_longbench_rule_of(out->dataset);
    return out->prompt != NULL && out->rule != NULL;
}

static bool is_asked(const char *tasks, const char *dataset) {
    const size_t length = strlen(dataset);
    if (tasks[0] == '\0') return true;
    for (const char *at = tasks; (at = strstr(at, dataset)) != NULL; at++)
        if ((at == tasks || at[-1] == ',') && (at[length] == '\0' || at[length] == ','))
            return true;
    return false;
}

static ls_status add_file(ls_suite *suite, const char *path, bool must) {
    longbench *own = suite->own;
    source *out = &own->files[own->file_count];
    if (!read_name(path, out) || !is_asked(suite->settings.tasks, out->dataset)) {
        if (!must) return LS_OK;
        return LS_FAIL(suite->ctx, LS_EUSE,
                       "%s is not named after a data set of LongBench, or not "
                       "one of suite.tasks",
                       path);
    }
    if (own->file_count == FILES_MAX)
        return LS_FAIL(suite->ctx, LS_EUSE, "%s: more than %d files", path, FILES_MAX);
    snprintf(out->path, sizeof out->path, "%s", path);
    own->file_count++;
    LS_TRY(ls_lines_open(suite, out->path, &out->lines));
    out->first = suite->groups;
    out->count = suite->settings.samples > 0 ? ls_min(suite->settings.samples, out->lines.count)
                                             : out->lines.count;
    suite->groups += out->count;
    return LS_OK;
}

static ls_status open_files(ls_suite *suite) {
    longbench *own = suite->own;
    ls_ctx *ctx = suite->ctx;
    char **names = NULL, path[LS_OPTION_TEXT_BYTES + 256];
    size_t count = 0;
    ls_status status = LS_OK;
    if (!ls_path_is_folder(suite->settings.path))
        LS_TRY(add_file(suite, suite->settings.path, true));
    else
        LS_TRY(ls_folder_list(ctx, suite->settings.path, &names, &count));
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        status = ls_path_join(ctx, path, sizeof path, suite->settings.path, names[i]);
        if (status == LS_OK) status = add_file(suite, path, false);
    }
    ls_names_free(ctx, names, count);
    LS_TRY(status);
    if (own->file_count == 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s has no file DATASET.jsonl of LongBench",
                       suite->settings.path);
    bool draws = false; /* candidates from other items */
    for (int64_t f = 0; f < own->file_count; f++)
        draws |= before_number(&own->files[f]) == NULL && !has_classes(&own->files[f]);
    if (!draws) LS_TRY(ls_suite_refuse(suite, "candidates", "the files have their own"));
    suite->lengths = ls_new(ctx, (size_t)suite->groups, sizeof *suite->lengths);
    if (suite->lengths == NULL) return LS_ENOMEM;
    for (int64_t f = 0; f < own->file_count; f++)
        for (int64_t i = 0; i < own->files[f].count; i++)
            suite->lengths[own->files[f].first + i] = (int64_t)own->files[f].lines.length[i];
    suite->measure = suite->generates ? "the metric of each data set (Chinese: zh-char)"
                                      : "the right answer gains most from the context";
    return LS_OK;
}

typedef struct item {
    json_t *json;
    const char *context, *input;
    size_t context_length, input_length;
    const json_t *answers;
} item;

static ls_status read_item(ls_suite *suite, const source *from, int64_t line, ls_suite_group *group,
                           item *out) {
    LS_TRY(ls_lines_json(suite->ctx, &from->lines, line, &out->json));
    if (ls_group_keep(group, out->json) == NULL) return LS_ENOMEM;
    LS_TRY(ls_lines_text(suite->ctx, &from->lines, line, out->json, "context", &out->context,
                         &out->context_length));
    LS_TRY(ls_lines_text(suite->ctx, &from->lines, line, out->json, "input", &out->input,
                         &out->input_length));
    return ls_lines_texts(suite->ctx, &from->lines, line, out->json, "answers", &out->answers);
}

/* The prompt, cut in the middle where it and the answer are more than the model can take. */
static ls_status put_prompt(ls_suite *suite, const source *from, const item *it, bool bare,
                            ls_suite_group *group, ls_tokens *out) {
    ls_text text = {0};
    const ls_filling fillings[] = {{"context", it->context, bare ? 0 : it->context_length},
                                   {"input", it->input, it->input_length},
                                   {0}};
    int64_t tokens;
    ls_fill(suite->ctx, from->prompt->template, fillings, &text);
    ls_status status = ls_text_status(&text);
    const int64_t most = suite->window - from->prompt->new_tokens;
    if (status == LS_OK && suite->window > 0 && most < 2)
        status =
            LS_FAIL(suite->ctx, LS_EUSE,
                    "%s: answers have %lld tokens, and the model can "
                    "take %lld",
                    from->dataset, (long long)from->prompt->new_tokens, (long long)suite->window);
    if (status == LS_OK && suite->window > 0)
        status = ls_longbench_cut(suite->ctx, suite->tokenizer, &text, most, false, &tokens);
    if (status == LS_OK)
        status = ls_suite_encode(suite, &group->pool, text.bytes, text.length, 0, out);
    ls_text_clear(suite->ctx, &text);
    return status;
}

/* Characters as words; runs of ASCII letters and digits are whole. */
static ls_points_list characters(ls_pool *pool, ls_points text) {
    ls_points_list out = {ls_pool_take(pool, text.count, sizeof *out.at), 0};
    for (size_t i = 0; out.at != NULL && i < text.count;) {
        const size_t start = i++;
        while (text.at[start] < 0x80 && ls_point_is_word(text.at[start]) && i < text.count &&
               text.at[i] < 0x80 && ls_point_is_word(text.at[i]))
            i++;
        if (!ls_point_is_space(text.at[start]))
            out.at[out.count++] = (ls_points){text.at + start, i - start};
    }
    return out;
}

static double judge(ls_pool *pool, const ls_suite_item *asked) {
    const ls_longbench_rule *rule = asked->judge_with;
    const ls_metric *metric = ls_metric_find("longbench", rule->metric);
    ls_answer answer = asked->answer;
    ls_points_list said = {0};
    if (metric->segmented) {
        const size_t count = answer.references.count;
        ls_points_list *wanted = ls_pool_take(pool, count, sizeof *wanted);
        if (wanted == NULL) return 0;
        for (size_t i = 0; i < count; i++) wanted[i] = characters(pool, answer.references.at[i]);
        said = characters(pool, answer.prediction);
        answer.prediction_words = &said;
        answer.reference_words = wanted;
    }
    return ls_longbench_item(pool, rule, false, &answer);
}

static bool points_of(ls_pool *pool, const json_t *texts, ls_points_list *out) {
    const size_t count = json_array_size(texts);
    *out = (ls_points_list){ls_pool_take(pool, count, sizeof *out->at), count};
    for (size_t i = 0; out->at != NULL && i < count; i++) {
        const char *text = json_string_value(json_array_get(texts, i));
        if (text == NULL) return false;
        out->at[i] = ls_points_text(pool, text);
    }
    return out->at != NULL;
}

static ls_status put_generate(ls_suite *suite, const source *from, int64_t line, const item *it,
                              ls_suite_group *group) {
    ls_suite_item *asked = &group->items[0];
    const json_t *classes = json_object_get(it->json, "all_classes");
    asked->new_tokens = from->prompt->new_tokens;
    asked->stop_at_line = strcmp(from->dataset, "samsum") == 0;
    asked->judge = judge;
    asked->judge_with = from->rule;
    if (!points_of(&group->pool, it->answers, &asked->answer.references)) return LS_ENOMEM;
    if (strcmp(from->rule->metric, "classification_score") == 0 &&
        (json_array_size(classes) == 0 ||
         !points_of(&group->pool, classes, &asked->answer.classes)))
        return LS_FAIL(suite->ctx, LS_EINPUT, "%s: line %lld has no list of texts `all_classes`",
                       from->path, (long long)from->lines.number[line]);
    return LS_OK;
}

/* Answers to choose from. */
typedef struct choices {
    const char *texts[CANDIDATES_MAX];
    int64_t count, truth;
} choices;

static ls_status add_choice(ls_suite_group *group, const char *text, choices *out) {
    out->texts[out->count++] = ls_pool_join(&group->pool, " ", 1, text, strlen(text));
    return ls_pool_status(&group->pool);
}

static ls_status add_numbers(ls_suite_group *group, const char *before, choices *out) {
    char text[64];
    for (int n = 1; n <= NUMBERS; n++) {
        snprintf(text, sizeof text, "%s%d", before, n);
        LS_TRY(add_choice(group, text, out));
    }
    return LS_OK;
}

/* The first answers of other items that are not this one's. */
static ls_status add_others(ls_suite *suite, const source *from, int64_t line, const char *right,
                            ls_suite_group *group, choices *out) {
    const int64_t wanted = suite->settings.candidates;
    const ls_random random = ls_suite_random(suite, "longbench others", line);
    const int64_t truth = ls_suite_slot(suite, line, line, wanted);
    for (int64_t i = 0; i < from->lines.count && out->count < wanted; i++) {
        const int64_t other =
            (int64_t)ls_random_permute(random, (uint64_t)i, (uint64_t)from->lines.count);
        item it;
        if (out->count == truth) LS_TRY(add_choice(group, right, out));
        if (other == line || out->count == wanted) continue;
        LS_TRY(read_item(suite, from, other, group, &it));
        const char *text = json_string_value(json_array_get(it.answers, 0));
        if (strcmp(text, right) != 0) LS_TRY(add_choice(group, text, out));
    }
    if (out->count == truth && out->count < wanted) LS_TRY(add_choice(group, right, out));
    if (out->count == wanted) return LS_OK;
    return LS_FAIL(suite->ctx, LS_EINPUT,
                   "%s has too few items with other answers for "
                   "suite.candidates=%lld",
                   from->path, (long long)wanted);
}

static ls_status put_choices(ls_suite *suite, const source *from, int64_t line, const item *it,
                             ls_suite_group *group, choices *out) {
    const char *right = json_string_value(json_array_get(it->answers, 0));
    const json_t *classes = json_object_get(it->json, "all_classes");
    *out = (choices){.truth = -1};
    if (before_number(from) != NULL) {
        LS_TRY(add_numbers(group, before_number(from), out));
    } else if (has_classes(from)) {
        for (size_t i = 0; i < json_array_size(classes) && i < CANDIDATES_MAX; i++) {
            const char *name = json_string_value(json_array_get(classes, i));
            if (name != NULL) LS_TRY(add_choice(group, name, out));
        }
    } else {
        LS_TRY(add_others(suite, from, line, right, group, out));
    }
    for (int64_t c = 0; c < out->count; c++)
        if (strcmp(out->texts[c] + 1, right) == 0) out->truth = c;
    if (out->truth >= 0 && out->count > 1) return LS_OK;
    return LS_FAIL(suite->ctx, LS_EINPUT, "%s: line %lld: its answer is none of the candidates",
                   from->path, (long long)from->lines.number[line]);
}

static json_t *cell_of(const source *from, const item *it, int64_t candidates) {
    const double length = json_number_value(json_object_get(it->json, "length"));
    json_t *cell = json_pack("{s:s}", "dataset", from->dataset);
    if (from->buckets)
        json_object_set_new(cell, "bucket",
                            json_string(length < 4000   ? "0-4k"
                                        : length < 8000 ? "4-8k"
                                                        : "8k+"));
    if (candidates > 0) json_object_set_new(cell, "chance", json_real(1.0 / (double)candidates));
    return cell;
}

static ls_status make(ls_suite *suite, int64_t number, ls_suite_group *out) {
    const longbench *own = suite->own;
    int64_t f = 0;
    while (number >= own->files[f].first + own->files[f].count) f++;
    const source *from = &own->files[f];
    const int64_t line = number - from->first;
    char id[NAME + 32];
    choices list = {0};
    item it;
    LS_TRY(ls_group_room(out, suite->generates ? 1 : 2, 1));
    LS_TRY(read_item(suite, from, line, out, &it));
    LS_TRY(put_prompt(suite, from, &it, false, out, &out->contexts[0]));
    ls_suite_item *asked = &out->items[0];
    if (suite->generates) {
        LS_TRY(put_generate(suite, from, line, &it, out));
    } else {
        LS_TRY(put_prompt(suite, from, &it, true, out, &out->contexts[1]));
        asked->bare = 1;
        LS_TRY(put_choices(suite, from, line, &it, out, &list));
        LS_TRY(ls_suite_candidates(suite, out, asked, list.texts, list.count, list.truth));
    }
    snprintf(id, sizeof id, "%s%s-%lld", from->dataset, from->buckets ? "_e" : "", (long long)line);
    asked->id = ls_pool_copy(&out->pool, id, strlen(id));
    asked->references = (json_t *)it.answers;
    asked->cell = ls_group_keep(out, cell_of(from, &it, list.count));
    return ls_pool_status(&out->pool);
}

/* The six categories. */
static const struct {
    const char *dataset;
    int category;
} categories[] = {
    {"narrativeqa", 0},
    {"qasper", 0},
    {"multifieldqa_en", 0},
    {"multifieldqa_zh", 0},
    {"hotpotqa", 1},
    {"2wikimqa", 1},
    {"musique", 1},
    {"dureader", 1},
    {"gov_report", 2},
    {"qmsum", 2},
    {"multi_news", 2},
    {"vcsum", 2},
    {"trec", 3},
    {"triviaqa", 3},
    {"samsum", 3},
    {"lsht", 3},
    {"passage_count", 4},
    {"passage_retrieval_en", 4},
    {"passage_retrieval_zh", 4},
    {"lcc", 5},
    {"repobench-p", 5},
};

/* The mean over categories of the means of their data sets: 100 times the score. */
static ls_status finish(ls_suite *suite, json_t *results) {
    const json_t *cells = json_object_get(results, "cells");
    double sums[6] = {0}, total = 0;
    int counts[6] = {0}, used = 0;
    (void)suite;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *cell = json_array_get(cells, i);
        const char *name = json_string_value(json_object_get(cell, "dataset"));
        for (size_t k = 0; k < sizeof categories / sizeof categories[0]; k++) {
            if (strcmp(categories[k].dataset, name) != 0) continue;
            sums[categories[k].category] += json_number_value(json_object_get(cell, "score"));
            counts[categories[k].category]++;
        }
    }
    for (int c = 0; c < 6; c++) {
        if (counts[c] == 0) continue;
        total += sums[c] / counts[c];
        used++;
    }
    json_object_set_new(results, "categories", json_integer(used));
    json_object_set_new(results, "average", json_real(used == 0 ? 0 : 100 * total / used));
    return LS_OK;
}

static void clear(ls_suite *suite) {
    longbench *own = suite->own;
    for (int64_t f = 0; f < own->file_count; f++) ls_lines_close(suite->ctx, &own->files[f].lines);
}

const ls_suite_type ls_suite_longbench = {
    .name = "longbench",
    .summary = "21 data sets of long contexts, with their prompts, cuts and metrics",
    .paper = "Bai et al. 2023 (LongBench)",
    .likelihood = true,
    .generate = true,
    .needs_path = true,
    .size = sizeof(longbench),
    .open = open_files,
    .make = make,
    .finish = finish,
    .clear = clear,
};
