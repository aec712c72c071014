/* Lost in the Middle: does it matter where in a context the answer stands?
 *
 * Without a file: pairs of short hexadecimal keys and values that the program makes, several of
 * which are asked for in one context. With one: nq-open (questions, whose gold document goes to
 * each position among documents of other questions) or kv-retrieval (the pair that is asked for
 * goes to each position). The contrast of both is the question without any documents or pairs.
 *
 * Two references are asked beside: closed book, the question without anything, and oracle, with
 * nothing but the document or pair that has the answer. Without a file once for each context. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite/lib/haystack.h"
#include "suite/lib/lines.h"

enum { HEX = 8, CANDIDATES_MAX = 256, ANSWER_TOKENS = 100 };

typedef struct middle {
    ls_lines lines;
    bool from_file, questions;                     /* a file; of questions, not of pairs */
    int64_t pairs[LS_OPTION_LIST_MAX], pair_count; /* sizes of contexts */
    int64_t trials;
} middle;

static ls_status open_file(ls_suite *suite) {
    middle *own = suite->own;
    json_t *first = NULL;
    LS_TRY(ls_lines_open(suite, suite->settings.path, &own->lines));
    LS_TRY(ls_lines_json(suite->ctx, &own->lines, 0, &first));
    own->questions = json_object_get(first, "question") != NULL;
    const bool known = own->questions || json_object_get(first, "ordered_kv_records") != NULL;
    json_decref(first);
    if (!known)
        return LS_FAIL(suite->ctx, LS_EINPUT,
                       "%s: line 1 has neither `question` nor `ordered_kv_records`",
                       suite->settings.path);
    if (!own->questions) LS_TRY(ls_suite_refuse(suite, "documents", "the file has pairs"));
    if (own->questions && own->lines.count < suite->settings.documents)
        return LS_FAIL(suite->ctx, LS_EINPUT, "%s has %lld questions, too few for %lld documents",
                       suite->settings.path, (long long)own->lines.count,
                       (long long)suite->settings.documents);
    const int64_t asked = suite->settings.samples;
    own->trials = asked > 0 ? ls_min(asked, own->lines.count) : own->lines.count;
    return LS_OK;
}

static ls_status open_suite(ls_suite *suite) {
    static const int64_t usual[] = {16, 32, 64, 128};
    middle *own = suite->own;
    const ls_suite_settings *s = &suite->settings;
    own->from_file = s->path[0] != '\0';
    own->pair_count = s->pairs.count > 0 ? s->pairs.count : 4;
    for (int64_t i = 0; i < own->pair_count; i++)
        own->pairs[i] = s->pairs.count > 0 ? s->pairs.at[i] : usual[i];
    for (int64_t i = 0; !own->from_file && i < own->pair_count; i++)
        if (own->pairs[i] < s->candidates)
            return LS_FAIL(suite->ctx, LS_EUSE,
                           "suite.pairs=%lld has fewer values than suite.candidates=%lld",
                           (long long)own->pairs[i], (long long)s->candidates);
    if (own->from_file) {
        LS_TRY(open_file(suite));
        own->pair_count = 1;
    } else if (suite->generates) {
        return LS_FAIL(suite->ctx, LS_EUSE,
                       "form generate of middle reads a file: give "
                       "suite.path=");
    } else {
        const int64_t each = s->samples > 0 ? s->samples : 20;
        own->trials = ls_ceil_div(each * s->depths, s->questions);
    }
    suite->groups = own->pair_count * own->trials;
    suite->lengths = ls_new(suite->ctx, (size_t)suite->groups, sizeof *suite->lengths);
    if (suite->lengths == NULL) return LS_ENOMEM;
    for (int64_t g = 0; g < suite->groups; g++)
        suite->lengths[g] = own->from_file ? (int64_t)own->lines.length[g]
                                           : own->pairs[g / own->trials] * (2 * HEX + 8);
    suite->chance = suite->generates ? NAN : 1.0 / (double)s->candidates;
    suite->measure = !suite->generates ? "the right answer gains most from the context"
                     : own->questions  ? "an answer stands in the first line"
                                       : "the value stands in the answer";
    return LS_OK;
}

/* What closed book and oracle count to. Without documents there is no contrast. */
static json_t *reference_cell(const char *of, int64_t count, bool closed) {
    return json_pack("{s:s, s:I}", "reference", closed ? "closed book" : "oracle", of,
                     (json_int_t)count);
}

static ls_status encode(const ls_suite *suite, ls_suite_group *group, ls_text *text,
                        ls_tokens *out) {
    ls_status status = ls_text_status(text);
    if (status == LS_OK)
        status = ls_suite_encode(suite, &group->pool, text->bytes, text->length, 0, out);
    ls_text_clear(suite->ctx, text);
    return status;
}

/* ---- pairs made here: one context, many questions ---- */

typedef struct made_pair {
    char key[HEX + 1], value[HEX + 1];
} made_pair;

/* Everything up to the question is the context. */
static ls_status pairs_context(const ls_suite *suite, ls_suite_group *group, const ls_pair *pairs,
                               size_t count, ls_tokens *out) {
    ls_text text = {0};
    ls_middle_pairs(suite->ctx, false, pairs, count, "", &text);
    LS_TRY(ls_text_status(&text));
    text.length = (size_t)(strstr(text.bytes, "\n\nKey: ") - text.bytes);
    return encode(suite, group, &text, out);
}

/* All pairs; none; and that alone which is asked for first. */
enum { ALL_PAIRS, NO_PAIRS, ONE_PAIR, PAIR_CONTEXTS };
static ls_status pairs_contexts(const ls_suite *suite, ls_suite_group *group, const made_pair *made,
                                int64_t count, int64_t first) {
    ls_pair *pairs = ls_pool_take(&group->pool, (size_t)count, sizeof *pairs);
    if (pairs == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < count; i++) pairs[i] = (ls_pair){made[i].key, made[i].value};
    LS_TRY(pairs_context(suite, group, pairs, (size_t)count, &group->contexts[ALL_PAIRS]));
    LS_TRY(pairs_context(suite, group, pairs, 0, &group->contexts[NO_PAIRS]));
    return pairs_context(suite, group, pairs + first, 1, &group->contexts[ONE_PAIR]);
}

/* The place of the pair that a depth asks for. */
static int64_t pair_at(const ls_suite *suite, int64_t count, int64_t depth_index) {
    return (int64_t)rint((double)(count - 1) * ls_suite_depth(depth_index, suite->settings.depths) /
                         100);
}

/* The first question again, without the other pairs or without any. */
static ls_status pairs_references(ls_suite_group *group, int64_t questions, int64_t count,
                                  int64_t trial) {
    for (int closed = 0; closed < 2; closed++) {
        ls_suite_item *item = &group->items[questions + closed];
        char id[64];
        *item = group->items[0];
        snprintf(id, sizeof id, "%lld-%lld-%s", (long long)count, (long long)trial,
                 closed ? "closed" : "oracle");
        item->id = ls_pool_copy(&group->pool, id, strlen(id));
        item->context = closed ? NO_PAIRS : ONE_PAIR;
        item->bare = closed ? -1 : NO_PAIRS;
        item->cell = ls_group_keep(group, reference_cell("pairs", count, closed));
    }
    return ls_pool_status(&group->pool);
}

static ls_status pairs_item(const ls_suite *suite, ls_suite_group *group, const made_pair *made,
                            int64_t count, int64_t trial, int64_t j, int64_t depth_index) {
    const ls_suite_settings *s = &suite->settings;
    const int64_t candidates = s->candidates;
    const double depth = ls_suite_depth(depth_index, s->depths);
    const int64_t at = pair_at(suite, count, depth_index);
    const int64_t number = trial * s->questions + j;
    const int64_t truth = ls_suite_slot(suite, trial, number, candidates);
    const ls_random random = ls_suite_random(suite, "middle others", number);
    ls_suite_item *item = &group->items[j];
    char texts[CANDIDATES_MAX][HEX + 4], id[64], question[64];
    const char *list[CANDIDATES_MAX];
    int64_t drawn = 0;
    for (int64_t c = 0; c < candidates; c++) {
        int64_t which = at;
        while (c != truth && which == at)
            which = (int64_t)ls_random_permute(random, (uint64_t)drawn++, (uint64_t)count);
        snprintf(texts[c], sizeof texts[c], " \"%s\"", made[which].value);
        list[c] = texts[c];
    }
    snprintf(id, sizeof id, "%lld-%lld-%lld", (long long)count, (long long)trial, (long long)j);
    snprintf(question, sizeof question, "\n\nKey: \"%s\"\nCorresponding value:", made[at].key);
    item->id = ls_pool_copy(&group->pool, id, strlen(id));
    item->bare = NO_PAIRS;
    item->references = ls_group_keep(group, json_pack("[s]", made[at].value));
    item->cell = ls_group_keep(
        group, json_pack("{s:I, s:f}", "pairs", (json_int_t)count, "position", depth));
    LS_TRY(ls_suite_encode(suite, &group->pool, question, strlen(question), 0, &item->question));
    return ls_suite_candidates(suite, group, item, list, candidates, truth);
}

static ls_status make_pairs(ls_suite *suite, int64_t count, int64_t trial, ls_suite_group *out) {
    const ls_suite_settings *s = &suite->settings;
    made_pair *made = ls_pool_take(&out->pool, (size_t)count, sizeof *made);
    if (made == NULL) return LS_ENOMEM;
    LS_TRY(ls_group_room(out, PAIR_CONTEXTS, s->questions + 2));
    for (int64_t i = 0; i < count; i++) {
        ls_suite_digits(suite, "middle keys", trial, i, HEX, true, made[i].key);
        ls_suite_digits(suite, "middle values", trial, i, HEX, true, made[i].value);
    }
    LS_TRY(pairs_contexts(suite, out, made, count,
                          pair_at(suite, count, trial * s->questions % s->depths)));
    for (int64_t j = 0; j < s->questions; j++)
        LS_TRY(
            pairs_item(suite, out, made, count, trial, j, (trial * s->questions + j) % s->depths));
    LS_TRY(pairs_references(out, s->questions, count, trial));
    return ls_suite_check_window(suite, "a context with its question", out->contexts[0].count + 64);
}

/* ---- files ---- */

/* Where the answer goes: positions from the first to the last. */
static int64_t positions_of(const ls_suite *suite, int64_t among) {
    return ls_min(suite->settings.depths, among);
}

static int64_t position_at(const ls_suite *suite, int64_t p, int64_t among) {
    const int64_t count = positions_of(suite, among);
    return count == 1 ? 0 : (int64_t)rint((double)p * (double)(among - 1) / (double)(count - 1));
}

static ls_status document_of(const ls_suite *suite, int64_t line, const json_t *item,
                             ls_document *out) {
    const middle *own = suite->own;
    const json_t *gold = json_array_get(json_object_get(item, "ctxs"), 0);
    out->title = json_string_value(json_object_get(gold, "title"));
    out->text = json_string_value(json_object_get(gold, "text"));
    if (out->title != NULL && out->text != NULL) return LS_OK;
    return LS_FAIL(suite->ctx, LS_EINPUT,
                   "%s: line %lld has no document with `title` and `text` in `ctxs`",
                   own->lines.path, (long long)own->lines.number[line]);
}

static bool says_any(const char *text, const json_t *answers) {
    for (size_t i = 0; i < json_array_size(answers); i++)
        if (strcasestr(text, json_string_value(json_array_get(answers, i))) != NULL) return true;
    return false;
}

/* Documents of other questions that say none of the answers, and answers of theirs. */
static ls_status find_others(ls_suite *suite, ls_suite_group *group, int64_t number,
                             const json_t *answers, ls_document *documents, const char **others,
                             int64_t document_count, int64_t other_count) {
    const middle *own = suite->own;
    const ls_random random = ls_suite_random(suite, "middle documents", number);
    int64_t found = 0, named = 0;
    for (int64_t i = 0; i < own->lines.count && (found < document_count || named < other_count);
         i++) {
        const int64_t line =
            (int64_t)ls_random_permute(random, (uint64_t)i, (uint64_t)own->lines.count);
        json_t *item = NULL;
        const json_t *theirs;
        ls_document document;
        if (line == number) continue;
        LS_TRY(ls_lines_json(suite->ctx, &own->lines, line, &item));
        if (ls_group_keep(group, item) == NULL) return LS_ENOMEM;
        LS_TRY(document_of(suite, line, item, &document));
        LS_TRY(ls_lines_texts(suite->ctx, &own->lines, line, item, "answers", &theirs));
        if (says_any(document.text, answers)) continue;
        if (found < document_count) documents[found++] = document;
        if (named < other_count) others[named++] = json_string_value(json_array_get(theirs, 0));
    }
    if (found == document_count && named == other_count) return LS_OK;
    return LS_FAIL(suite->ctx, LS_EINPUT, "%s has too few other questions for line %lld",
                   own->lines.path, (long long)own->lines.number[number]);
}

static ls_status set_answers(ls_suite_group *group, ls_suite_item *item, const json_t *answers) {
    const size_t count = json_array_size(answers);
    item->answer.references =
        (ls_points_list){ls_pool_take(&group->pool, count, sizeof(ls_points)), count};
    if (item->answer.references.at == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < count; i++)
        item->answer.references.at[i] =
            ls_points_text(&group->pool, json_string_value(json_array_get(answers, i)));
    item->answer.first_line = true;
    item->new_tokens = ANSWER_TOKENS;
    return LS_OK;
}

static ls_status question_item(ls_suite *suite, ls_suite_group *group, int64_t number, int64_t p,
                               int64_t position, const json_t *answers, const char **others) {
    const int64_t count = suite->settings.candidates;
    const int64_t truth = ls_suite_slot(suite, number, number, count);
    ls_suite_item *item = &group->items[p];
    const char *list[CANDIDATES_MAX];
    char id[64];
    snprintf(id, sizeof id, "%lld-%lld", (long long)number, (long long)position);
    item->id = ls_pool_copy(&group->pool, id, strlen(id));
    item->context = p;
    item->references = (json_t *)answers;
    item->cell = ls_group_keep(group, json_pack("{s:I, s:I}", "documents",
                                                (json_int_t)suite->settings.documents, "position",
                                                (json_int_t)position));
    if (suite->generates) {
        item->metric = ls_metric_find("lost_in_the_middle", "best_subspan_em");
        return set_answers(group, item, answers);
    }
    item->bare = group->context_count - 1;
    for (int64_t c = 0, other = 0; c < count; c++) {
        const char *text =
            c == truth ? json_string_value(json_array_get(answers, 0)) : others[other++];
        list[c] = ls_pool_join(&group->pool, " ", 1, text, strlen(text));
    }
    LS_TRY(ls_pool_status(&group->pool));
    return ls_suite_candidates(suite, group, item, list, count, truth);
}

/* The two items behind those of the positions. */
static ls_status file_references(ls_suite *suite, ls_suite_group *out, int64_t number,
                                 int64_t positions, const char *of, int64_t count,
                                 const json_t *answers, const char **others) {
    for (int closed = 0; closed < 2; closed++) {
        ls_suite_item *item = &out->items[positions + closed];
        char id[64];
        LS_TRY(question_item(suite, out, number, positions + closed, 0, answers, others));
        snprintf(id, sizeof id, "%lld-%s", (long long)number, closed ? "closed" : "oracle");
        item->id = ls_pool_copy(&out->pool, id, strlen(id));
        item->cell = ls_group_keep(out, reference_cell(of, count, closed));
        if (closed) item->bare = -1;
    }
    return ls_pool_status(&out->pool);
}

static ls_status make_question(ls_suite *suite, int64_t number, ls_suite_group *out) {
    const middle *own = suite->own;
    const ls_suite_settings *s = &suite->settings;
    const int64_t among = s->documents, positions = positions_of(suite, among);
    const int64_t others_count = suite->generates ? 0 : s->candidates - 1;
    json_t *item = NULL;
    const json_t *answers;
    const char *question;
    size_t length;
    ls_document *documents = ls_pool_take(&out->pool, (size_t)among, sizeof *documents);
    ls_document *shown = ls_pool_take(&out->pool, (size_t)among, sizeof *shown);
    const char **others = ls_pool_take(&out->pool, (size_t)others_count + 1, sizeof *others);
    ls_document gold;
    LS_TRY(ls_group_room(out, positions + 2, positions + 2));
    LS_TRY(ls_lines_json(suite->ctx, &own->lines, number, &item));
    if (ls_group_keep(out, item) == NULL) return LS_ENOMEM;
    LS_TRY(ls_lines_text(suite->ctx, &own->lines, number, item, "question", &question, &length));
    LS_TRY(ls_lines_texts(suite->ctx, &own->lines, number, item, "answers", &answers));
    LS_TRY(document_of(suite, number, item, &gold));
    LS_TRY(find_others(suite, out, number, answers, documents, others, among - 1, others_count));
    for (int64_t p = 0; p < positions + 2; p++) { /* behind the positions: oracle, closed book */
        ls_text text = {0};
        const int64_t at = p < positions ? position_at(suite, p, among) : 0;
        for (int64_t i = 0; i < among; i++) shown[i] = i == at ? gold : documents[i - (i > at)];
        ls_middle_qa(suite->ctx, LS_QA_PLAIN, shown,
                     p < positions    ? (size_t)among
                     : p == positions ? 1
                                      : 0,
                     question, &text);
        LS_TRY(encode(suite, out, &text, &out->contexts[p]));
        LS_TRY(ls_suite_check_window(suite, "a prompt with its documents", out->contexts[p].count));
    }
    for (int64_t p = 0; p < positions; p++)
        LS_TRY(question_item(suite, out, number, p, position_at(suite, p, among), answers, others));
    return file_references(suite, out, number, positions, "documents", among, answers, others);
}

/* The pair that is asked for at each position, the others in their order. */
static ls_status pair_contexts(ls_suite *suite, ls_suite_group *out, int64_t number,
                               const json_t *item, const char *key, int64_t count,
                               int64_t positions) {
    const middle *own = suite->own;
    const json_t *all = json_object_get(item, "ordered_kv_records");
    ls_pair *pairs = ls_pool_take(&out->pool, (size_t)count, sizeof *pairs);
    ls_pair *shown = ls_pool_take(&out->pool, (size_t)count, sizeof *shown);
    LS_TRY(ls_pool_status(&out->pool));
    int64_t gold = -1;
    for (int64_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(all, (size_t)i);
        pairs[i] = (ls_pair){json_string_value(json_array_get(pair, 0)),
                             json_string_value(json_array_get(pair, 1))};
        if (pairs[i].key == NULL || pairs[i].value == NULL)
            return LS_FAIL(suite->ctx, LS_EINPUT, "%s: line %lld has a record that is no pair",
                           own->lines.path, (long long)own->lines.number[number]);
        if (strcmp(pairs[i].key, key) == 0) gold = i;
    }
    if (gold < 0)
        return LS_FAIL(suite->ctx, LS_EINPUT, "%s: line %lld asks for a key that it has not",
                       own->lines.path, (long long)own->lines.number[number]);
    for (int64_t p = 0; p < positions + 2; p++) { /* behind the positions: oracle, closed book */
        ls_text text = {0};
        const int64_t at = p < positions ? position_at(suite, p, count) : 0;
        for (int64_t i = 0; i < count; i++) {
            const int64_t other = i - (i > at);
            shown[i] = i == at ? pairs[gold] : pairs[other + (other >= gold)];
        }
        ls_middle_pairs(suite->ctx, false, shown,
                        p < positions    ? (size_t)count
                        : p == positions ? 1
                                         : 0,
                        key, &text);
        LS_TRY(encode(suite, out, &text, &out->contexts[p]));
        LS_TRY(ls_suite_check_window(suite, "a prompt with its pairs", out->contexts[p].count));
    }
    return LS_OK;
}

/* Values of other pairs, as many as there are wrong candidates. */
static ls_status other_values(const ls_suite *suite, int64_t number, const json_t *all,
                              const char *value, const char **out) {
    const middle *own = suite->own;
    const ls_random random = ls_suite_random(suite, "middle others", number);
    const uint64_t count = json_array_size(all);
    int64_t found = 0;
    for (uint64_t i = 0; i < count && found < suite->settings.candidates - 1; i++) {
        const size_t which = (size_t)ls_random_permute(random, i, count);
        const char *other = json_string_value(json_array_get(json_array_get(all, which), 1));
        if (strcmp(other, value) != 0) out[found++] = other;
    }
    if (found == suite->settings.candidates - 1) return LS_OK;
    return LS_FAIL(suite->ctx, LS_EINPUT, "%s: line %lld has too few pairs for suite.candidates",
                   own->lines.path, (long long)own->lines.number[number]);
}

static ls_status make_pair_file(ls_suite *suite, int64_t number, ls_suite_group *out) {
    const middle *own = suite->own;
    json_t *item = NULL;
    const char *key, *value;
    size_t length;
    LS_TRY(ls_lines_json(suite->ctx, &own->lines, number, &item));
    if (ls_group_keep(out, item) == NULL) return LS_ENOMEM;
    const json_t *all = json_object_get(item, "ordered_kv_records");
    const int64_t count = (int64_t)json_array_size(all);
    LS_TRY(ls_lines_text(suite->ctx, &own->lines, number, item, "key", &key, &length));
    LS_TRY(ls_lines_text(suite->ctx, &own->lines, number, item, "value", &value, &length));
    if (count < 2)
        return LS_FAIL(suite->ctx, LS_EINPUT, "%s: line %lld has fewer than two pairs",
                       own->lines.path, (long long)own->lines.number[number]);
    const int64_t positions = positions_of(suite, count);
    LS_TRY(ls_group_room(out, positions + 2, positions + 2));
    LS_TRY(pair_contexts(suite, out, number, item, key, count, positions));
    const json_t *answers = ls_group_keep(out, json_pack("[s]", value));
    const char *others[CANDIDATES_MAX] = {NULL};
    if (!suite->generates) LS_TRY(other_values(suite, number, all, value, others));
    LS_TRY(ls_pool_status(&out->pool));
    for (int64_t p = 0; p < positions; p++) {
        const int64_t at = position_at(suite, p, count);
        LS_TRY(question_item(suite, out, number, p, at, answers, others));
        ls_suite_item *made = &out->items[p];
        made->cell = ls_group_keep(
            out, json_pack("{s:I, s:I}", "pairs", (json_int_t)count, "position", (json_int_t)at));
        if (suite->generates) made->metric = ls_metric_find("lost_in_the_middle", "kv_accuracy");
    }
    LS_TRY(file_references(suite, out, number, positions, "pairs", count, answers, others));
    for (int64_t i = positions; suite->generates && i < positions + 2; i++)
        out->items[i].metric = ls_metric_find("lost_in_the_middle", "kv_accuracy");
    return ls_pool_status(&out->pool);
}

static ls_status make(ls_suite *suite, int64_t number, ls_suite_group *out) {
    const middle *own = suite->own;
    if (!own->from_file)
        return make_pairs(suite, own->pairs[number / own->trials], number % own->trials, out);
    return own->questions ? make_question(suite, number, out) : make_pair_file(suite, number, out);
}

static void clear(ls_suite *suite) {
    ls_lines_close(suite->ctx, &((middle *)suite->own)->lines);
}

const ls_suite_type ls_suite_middle = {
    .name = "middle",
    .summary = "documents and key-value pairs by the position of the answer",
    .paper = "Liu et al. 2023 (Lost in the Middle)",
    .likelihood = true,
    .generate = true,
    .size = sizeof(middle),
    .open = open_suite,
    .make = make,
    .clear = clear,
};
