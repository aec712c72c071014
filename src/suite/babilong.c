/* BABILong: facts of a bAbI task hidden among sentences of a long text.
 *
 * suite.path is FACTS,TEXT: a file of bAbI, qaN_*.txt, and any text. Sentences end at `.`, `!`,
 * `?`; those of fewer than ten tokens are left out, as in the official code, which cuts them by
 * another tool. generate: the official prompt and score. likelihood: the labels of the task that
 * the question does not name; the contrast is the prompt without the facts. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite/lib/haystack.h"
#include "suite/lib/lines.h"

enum { FACTS_MAX = 256, SHORTEST = 10, LABELS_MAX = 16, NEW_TOKENS = 20 };

typedef struct question {
    int64_t first, line; /* the story's first line; the question's */
} question;

typedef struct babilong {
    char facts_path[LS_OPTION_TEXT_BYTES];
    ls_lines lines;
    ls_hay hay;
    const ls_babilong_prompt *prompt;
    question *questions;
    int64_t question_count, lengths[LS_OPTION_LIST_MAX], length_count, samples;
} babilong;

/* The number that a line begins with; 0: none. */
static int64_t number_of(const ls_lines *lines, int64_t line, const char **rest) {
    char *end;
    const long long number = strtoll(lines->at[line], &end, 10);
    *rest = end + 1;
    const bool begins = isdigit((unsigned char)lines->at[line][0]) && *end == ' ';
    return begins && number > 0 && number < FACTS_MAX ? number : 0;
}

static ls_status read_questions(ls_suite *suite) {
    babilong *own = suite->own;
    int64_t first = 0;
    const char *rest;
    own->questions = ls_new(suite->ctx, (size_t)own->lines.count, sizeof *own->questions);
    if (own->questions == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < own->lines.count; i++) {
        const int64_t number = number_of(&own->lines, i, &rest);
        if (number == 0 || (i == 0 && number != 1))
            return LS_FAIL(suite->ctx, LS_EINPUT,
                           "%s: line %lld does not begin with its number, "
                           "from 1 to %d",
                           own->lines.path, (long long)own->lines.number[i], FACTS_MAX - 1);
        if (number == 1) first = i;
        if (memchr(own->lines.at[i], '\t', own->lines.length[i]) != NULL)
            own->questions[own->question_count++] = (question){first, i};
    }
    if (own->question_count > 0) return LS_OK;
    return LS_FAIL(suite->ctx, LS_EINPUT, "%s has no questions", own->lines.path);
}

/* qa1_single-supporting-fact_test.txt: the task is what stands before the underscore. */
static ls_status read_task(ls_suite *suite) {
    babilong *own = suite->own;
    const char *slash = strrchr(own->facts_path, '/');
    char task[16];
    snprintf(task, sizeof task, "%.15s", slash == NULL ? own->facts_path : slash + 1);
    char *end = strpbrk(task, "_.");
    if (end != NULL) *end = '\0';
    own->prompt = ls_babilong_prompt_of(task);
    if (own->prompt != NULL) return LS_OK;
    return LS_FAIL(suite->ctx, LS_EUSE, "%s is not named after a task: qa1_ to qa20_",
                   own->facts_path);
}

static ls_status open_files(ls_suite *suite) {
    babilong *own = suite->own;
    char *comma;
    snprintf(own->facts_path, sizeof own->facts_path, "%s", suite->settings.path);
    comma = strchr(own->facts_path, ',');
    if (comma == NULL)
        return LS_FAIL(suite->ctx, LS_EUSE,
                       "suite babilong reads two files: suite.path=FACTS,TEXT");
    *comma = '\0';
    memmove(suite->settings.path, comma + 1, strlen(comma + 1) + 1); /* of the haystack */
    LS_TRY(read_task(suite));
    LS_TRY(ls_lines_open(suite, own->facts_path, &own->lines));
    LS_TRY(read_questions(suite));
    LS_TRY(ls_hay_open(suite, &own->hay));
    LS_TRY(ls_suite_lengths(suite, own->lengths, &own->length_count));
    own->samples =
        ls_min(suite->settings.samples > 0 ? suite->settings.samples : 100, own->question_count);
    suite->groups = own->length_count * own->samples;
    suite->lengths = ls_new(suite->ctx, (size_t)suite->groups, sizeof *suite->lengths);
    if (suite->lengths == NULL) return LS_ENOMEM;
    for (int64_t g = 0; g < suite->groups; g++) suite->lengths[g] = own->lengths[g / own->samples];
    suite->measure = suite->generates ? "the labels that the answer names are the target"
                                      : "the right label gains most from the facts";
    return LS_OK;
}

/* ---- one sample ---- */

typedef struct story {
    const char *facts[FACTS_MAX]; /* each after a blank, in the pool */
    int64_t fact_count, tokens;   /* of the facts */
    const char *question, *answer;
} story;

static ls_status read_story(ls_suite *suite, int64_t which, ls_suite_group *group, story *out) {
    const babilong *own = suite->own;
    const question *q = &own->questions[which];
    *out = (story){0};
    for (int64_t i = q->first; i <= q->line; i++) {
        const char *rest, *end = own->lines.at[i] + own->lines.length[i];
        number_of(&own->lines, i, &rest);
        const char *tab = memchr(own->lines.at[i], '\t', own->lines.length[i]);
        if (i == q->line) {
            const char *stop = memchr(tab + 1, '\t', (size_t)(end - tab - 1));
            out->question = ls_pool_copy(&group->pool, rest, (size_t)(tab - rest));
            out->answer = ls_pool_copy(&group->pool, tab + 1,
                                       (size_t)((stop == NULL ? end : stop) - tab - 1));
        } else if (tab == NULL && out->fact_count < FACTS_MAX) {
            ls_tokens ids;
            const char *fact = ls_pool_join(&group->pool, " ", 1, rest, (size_t)(end - rest));
            if (fact == NULL) return LS_ENOMEM;
            LS_TRY(ls_suite_encode(suite, &group->pool, fact, strlen(fact), 0, &ids));
            out->tokens += ids.count;
            out->facts[out->fact_count++] = fact;
        }
    }
    return ls_pool_status(&group->pool);
}

/* Sentences from a place that the sample draws, until they have so many tokens; the last is cut off
 * whole. */
static ls_status take_noise(ls_suite *suite, int64_t number, int64_t room, ls_text *out,
                            size_t *ends, int64_t *count) {
    const babilong *own = suite->own;
    enum { SENTENCES_MAX = 1 << 16 };
    const ls_random random = ls_suite_random(suite, "babilong noise", number);
    size_t at = ls_random_below(random, 0, own->hay.length);
    int64_t turns = 0, had = -1; /* sentences when the text last began */
    *count = 0;
    while (room > 0 && *count < SENTENCES_MAX && turns < 2 * SENTENCES_MAX) {
        size_t end = at;
        ls_ids ids = {0};
        LS_TRY(ls_check_stop(suite->ctx, "making a prompt"));
        if (turns > 0 && at == 0 && *count == had)
            return LS_FAIL(suite->ctx, LS_EINPUT,
                           "the text of suite.path has no sentence of %d tokens or more", SHORTEST);
        if (turns > 0 && at == 0) had = *count;
        turns++;
        while (end < own->hay.length && strchr(".!?", own->hay.text[end]) == NULL) end++;
        end = end < own->hay.length ? end + 1 : end;
        while (at < end && strchr(" \t\r\n", own->hay.text[at]) != NULL) at++;
        const size_t before = out->length;
        ls_text_append(suite->ctx, out, " ", 1);
        ls_text_append(suite->ctx, out, own->hay.text + at, end - at);
        LS_TRY(ls_text_status(out));
        LS_TRY(ls_encoder_encode(suite->ctx, suite->encoder, out->bytes + before,
                                 out->length - before, 0, &ids));
        const int64_t tokens = (int64_t)ids.count;
        ls_ids_clear(suite->ctx, &ids);
        at = end >= own->hay.length ? 0 : end;
        if (tokens < SHORTEST || turns == 1 || tokens > room) { /* the first may be half of one */
            out->length = before;
            if (tokens > room) return LS_OK;
            continue;
        }
        room -= tokens;
        ends[(*count)++] = out->length;
    }
    return LS_OK;
}

/* The prompt, with the facts before sentences that were drawn, in their order. */
static ls_status put_prompt(ls_suite *suite, const story *s, const ls_text *noise,
                            const size_t *ends, int64_t count, const int64_t *places, bool bare,
                            ls_suite_group *group, ls_tokens *out) {
    const babilong *own = suite->own;
    ls_text context = {0}, text = {0};
    size_t from = 0;
    int64_t fact = bare ? s->fact_count : 0;
    for (int64_t i = 0; i <= count; i++) {
        for (; fact < s->fact_count && places[fact] == i; fact++)
            ls_text_append(suite->ctx, &context, s->facts[fact], strlen(s->facts[fact]));
        if (i == count) break;
        ls_text_append(suite->ctx, &context, noise->bytes + from, ends[i] - from);
        from = ends[i];
    }
    ls_status status = ls_text_status(&context);
    if (status == LS_OK) {
        ls_babilong_fill(suite->ctx, own->prompt, context.bytes == NULL ? "" : context.bytes,
                         context.length, s->question, &text);
        if (!suite->generates) ls_text_printf(suite->ctx, &text, "\nAnswer:");
        status = ls_text_status(&text);
    }
    if (status == LS_OK)
        status = ls_suite_encode(suite, &group->pool, text.bytes, text.length, 0, out);
    ls_text_clear(suite->ctx, &context);
    ls_text_clear(suite->ctx, &text);
    return status;
}

/* The labels of the task as texts in the pool. */
static int64_t labels_of(const babilong *own, ls_pool *pool, const char *out[LABELS_MAX]) {
    int64_t count = 0;
    for (const char *at = own->prompt->labels; at != NULL && count < LABELS_MAX;) {
        const char *stop = strchr(at, '|');
        out[count++] = ls_pool_copy(pool, at, stop == NULL ? strlen(at) : (size_t)(stop - at));
        at = stop == NULL ? NULL : stop + 1;
    }
    return count;
}

static ls_status put_labels(ls_suite *suite, const story *s, ls_suite_group *group) {
    const babilong *own = suite->own;
    const char *labels[LABELS_MAX], *list[LABELS_MAX];
    int64_t count = 0, truth = -1, all = labels_of(own, &group->pool, labels);
    LS_TRY(ls_pool_status(&group->pool));
    for (int64_t l = 0; l < all; l++) {
        const bool right = strcasecmp(labels[l], s->answer) == 0;
        if (!right && strcasestr(s->question, labels[l]) != NULL) continue;
        if (right) truth = count;
        list[count++] = ls_pool_join(&group->pool, " ", 1, labels[l], strlen(labels[l]));
    }
    if (truth < 0 || count < 2) /* lists of things are no labels */
        return LS_FAIL(suite->ctx, LS_EUSE,
                       "%s: the answer %s is none of the labels: choose "
                       "suite.form=generate",
                       own->facts_path, s->answer);
    json_object_set_new(group->items[0].cell, "candidates", json_integer(count));
    return ls_suite_candidates(suite, group, &group->items[0], list, count, truth);
}

static ls_status put_answer(ls_suite *suite, const story *s, ls_suite_group *group) {
    const babilong *own = suite->own;
    ls_suite_item *item = &group->items[0];
    const char *labels[LABELS_MAX];
    const int64_t all = labels_of(own, &group->pool, labels);
    item->new_tokens = NEW_TOKENS;
    item->metric = ls_metric_find("babilong", "compare_answers");
    item->answer.references = (ls_points_list){ls_pool_take(&group->pool, 1, sizeof(ls_points)), 1};
    item->answer.classes =
        (ls_points_list){ls_pool_take(&group->pool, (size_t)all, sizeof(ls_points)), (size_t)all};
    LS_TRY(ls_pool_status(&group->pool));
    item->answer.references.at[0] = ls_points_text(&group->pool, s->answer);
    item->answer.question = ls_points_text(&group->pool, s->question);
    for (int64_t l = 0; l < all; l++)
        item->answer.classes.at[l] = ls_points_text(&group->pool, labels[l]);
    return ls_pool_status(&group->pool);
}

static int by_number(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static ls_status fill_group(ls_suite *suite, int64_t number, const story *s, ls_text *noise,
                            size_t *ends, ls_suite_group *out) {
    const babilong *own = suite->own;
    const int64_t length = own->lengths[number / own->samples];
    const ls_random random = ls_suite_random(suite, "babilong places", number);
    int64_t places[FACTS_MAX], count;
    LS_TRY(put_prompt(suite, s, noise, ends, 0, places, true, out, &out->contexts[0]));
    const int64_t room = length - out->contexts[0].count - s->tokens - NEW_TOKENS;
    if (room < SHORTEST)
        return LS_FAIL(suite->ctx, LS_EUSE,
                       "a context of %lld tokens is too short: the prompt and "
                       "the facts alone have %lld",
                       (long long)length,
                       (long long)(out->contexts[0].count + s->tokens + NEW_TOKENS));
    LS_TRY(take_noise(suite, number, room, noise, ends, &count));
    for (int64_t f = 0; f < s->fact_count; f++)
        places[f] = (int64_t)ls_random_below(random, (uint64_t)f, (uint64_t)count + 1);
    qsort(places, (size_t)s->fact_count, sizeof *places, by_number);
    LS_TRY(put_prompt(suite, s, noise, ends, count, places, false, out, &out->contexts[0]));
    if (suite->generates) return LS_OK;
    out->items[0].bare = 1;
    return put_prompt(suite, s, noise, ends, count, places, true, out, &out->contexts[1]);
}

static ls_status make(ls_suite *suite, int64_t number, ls_suite_group *out) {
    const babilong *own = suite->own;
    size_t *ends = ls_pool_take(&out->pool, (1 << 16) + 1, sizeof *ends);
    ls_text noise = {0};
    story s;
    char id[64];
    LS_TRY(ls_group_room(out, suite->generates ? 1 : 2, 1));
    ls_suite_item *item = &out->items[0];
    LS_TRY(read_story(suite, number % own->samples, out, &s));
    snprintf(id, sizeof id, "%lld", (long long)number);
    item->id = ls_pool_copy(&out->pool, id, strlen(id));
    item->cell = ls_group_keep(out, json_pack("{s:s, s:I}", "task", own->prompt->task, "length",
                                              (json_int_t)own->lengths[number / own->samples]));
    item->references = ls_group_keep(out, json_pack("[s]", s.answer));
    LS_TRY(ls_pool_status(&out->pool));
    ls_status status = fill_group(suite, number, &s, &noise, ends, out);
    ls_text_clear(suite->ctx, &noise);
    LS_TRY(status);
    return suite->generates ? put_answer(suite, &s, out) : put_labels(suite, &s, out);
}

static void clear(ls_suite *suite) {
    babilong *own = suite->own;
    ls_lines_close(suite->ctx, &own->lines);
    ls_hay_close(&own->hay);
    ls_free(suite->ctx, own->questions);
}

const ls_suite_type ls_suite_babilong = {
    .name = "babilong",
    .summary = "facts of bAbI hidden among sentences of a long text",
    .paper = "Kuratov et al. 2024 (BABILong); Weston et al. 2015",
    .likelihood = true,
    .generate = true,
    .needs_path = true,
    .size = sizeof(babilong),
    .open = open_files,
    .make = make,
    .clear = clear,
};
