/* Needle in a haystack, by depth and length.
 *
 * likelihood: every context holds several sentences "The special magic number for KEY is VALUE.",
 * at different depths; each is asked for by its own beginning, and the value ranked against others.
 * The contrast is the same text without any of them. An own form: docs/suites.md.
 * generate: one needle a context, the published sentence and question in LCEG's prompt for base
 * models; the score is the share of the needle's words. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite/lib/haystack.h"

enum { DIGITS = 5, TEXT = 96, CANDIDATES_MAX = 256, NEW_TOKENS = 50 };

typedef struct needle {
    ls_hay hay;
    int64_t lengths[LS_OPTION_LIST_MAX], length_count;
    int64_t trials; /* contexts of each length */
} needle;

static ls_status open_hay(ls_suite *suite) {
    needle *own = suite->own;
    const ls_suite_settings *s = &suite->settings;
    LS_TRY(ls_hay_open(suite, &own->hay));
    LS_TRY(ls_suite_lengths(suite, own->lengths, &own->length_count));
    const int64_t each = s->samples > 0 ? s->samples : suite->generates ? 1 : 20;
    own->trials = suite->generates ? each * s->depths : ls_ceil_div(each * s->depths, s->questions);
    suite->groups = own->length_count * own->trials;
    suite->lengths = ls_new(suite->ctx, (size_t)suite->groups, sizeof *suite->lengths);
    if (suite->lengths == NULL) return LS_ENOMEM;
    for (int64_t g = 0; g < suite->groups; g++) suite->lengths[g] = own->lengths[g / own->trials];
    suite->chance = suite->generates ? NAN : 1.0 / (double)s->candidates;
    suite->measure = suite->generates ? "share of the needle's words in the answer"
                                      : "the right value gains most from the evidence";
    return LS_OK;
}

/* A needle of a context: its tokens, and those of its question. */
typedef struct hidden {
    char key[TEXT];
    double depth;
    ls_tokens text, question;
} hidden;

static ls_status hide(const ls_suite *suite, ls_suite_group *group, int64_t trial, int64_t j,
                      hidden *out) {
    const ls_suite_settings *s = &suite->settings;
    char value[DIGITS + 1], text[2 * TEXT];
    ls_suite_key(suite, trial, j, out->key, sizeof out->key);
    ls_suite_digits(suite, "needle values", trial, j, DIGITS, false, value);
    out->depth = ls_suite_depth((trial * s->questions + j) % s->depths, s->depths);
    snprintf(text, sizeof text, " The special magic number for %s is %s.", out->key, value);
    LS_TRY(ls_suite_encode(suite, &group->pool, text, strlen(text), 0, &out->text));
    snprintf(text, sizeof text, " The special magic number for %s is", out->key);
    return ls_suite_encode(suite, &group->pool, text, strlen(text), 0, &out->question);
}

static ls_status make_item(const ls_suite *suite, int64_t trial, int64_t j, int64_t length,
                           const hidden *what, ls_suite_group *group) {
    const int64_t count = suite->settings.candidates;
    const int64_t number = trial * suite->settings.questions + j;
    const int64_t truth = ls_suite_slot(suite, trial, number, count);
    ls_suite_item *item = &group->items[j];
    char texts[CANDIDATES_MAX][DIGITS + 2], id[64];
    const char *list[CANDIDATES_MAX];
    for (int64_t c = 0; c < count; c++) {
        texts[c][0] = ' ';
        if (c == truth)
            ls_suite_digits(suite, "needle values", trial, j, DIGITS, false, texts[c] + 1);
        else
            ls_suite_digits(suite, "needle others", trial, j * count + c, DIGITS, false,
                            texts[c] + 1);
        list[c] = texts[c];
    }
    snprintf(id, sizeof id, "%lld-%lld-%lld", (long long)length, (long long)trial, (long long)j);
    item->id = ls_pool_copy(&group->pool, id, strlen(id));
    item->context = 0;
    item->bare = 1;
    item->question = what->question;
    item->cell = ls_group_keep(
        group, json_pack("{s:I, s:f}", "length", (json_int_t)length, "depth", what->depth));
    item->references = ls_group_keep(group, json_pack("[s]", texts[truth] + 1));
    return ls_suite_candidates(suite, group, item, list, count, truth);
}

static ls_tokens keep_ids(ls_pool *pool, const ls_ids *ids) {
    int32_t *at = ls_pool_take(pool, ids->count, sizeof *at);
    if (at != NULL && ids->count > 0) memcpy(at, ids->at, ids->count * sizeof *at);
    return (ls_tokens){at, at == NULL ? 0 : (int64_t)ids->count};
}

/* Needles go in from the deepest on, so that each finds the text as it was. */
static ls_status insert_all(const ls_suite *suite, ls_haystack *hay, const hidden *what,
                            int64_t count) {
    const size_t length = hay->ids.count;
    bool done[CANDIDATES_MAX] = {false};
    for (int64_t n = 0; n < count; n++) {
        int64_t deepest = -1;
        for (int64_t j = 0; j < count; j++)
            if (!done[j] && (deepest < 0 || what[j].depth > what[deepest].depth)) deepest = j;
        done[deepest] = true;
        const hidden *one = &what[deepest];
        LS_TRY(ls_needle_put(suite->ctx, hay, one->text.at, (size_t)one->text.count,
                             ls_needle_place(hay, length, one->depth)));
    }
    return LS_OK;
}

static ls_status make_likelihood(ls_suite *suite, int64_t length, int64_t trial,
                                 ls_suite_group *out) {
    const needle *own = suite->own;
    const int64_t count = suite->settings.questions;
    hidden *what = ls_pool_take(&out->pool, (size_t)count, sizeof *what);
    ls_haystack hay = {0};
    ls_ids stops = {0};
    int64_t needles = 0, after = 0;
    ls_status status = what == NULL ? LS_ENOMEM : ls_group_room(out, 2, count);
    for (int64_t j = 0; status == LS_OK && j < count; j++) {
        status = hide(suite, out, trial, j, &what[j]);
        if (status == LS_OK) status = make_item(suite, trial, j, length, &what[j], out);
        if (status != LS_OK) break;
        needles += what[j].text.count;
        for (int64_t c = 0; c < out->items[j].candidate_count; c++)
            after = ls_max(after, what[j].question.count + out->items[j].candidates[c].count);
    }
    if (status == LS_OK && length < 2 * needles + after)
        status = LS_FAIL(suite->ctx, LS_EUSE,
                         "a context of %lld tokens is too short for %lld needles of %lld tokens: "
                         "ask fewer suite.questions, or choose longer suite.lengths",
                         (long long)length, (long long)count, (long long)needles);
    if (status == LS_OK)
        status = ls_hay_tokens(suite, &own->hay, trial, length - needles - after, &hay.ids);
    if (status == LS_OK) status = ls_encoder_encode(suite->ctx, suite->encoder, ".", 1, 0, &stops);
    if (status == LS_OK) {
        out->contexts[1] = keep_ids(&out->pool, &hay.ids);
        hay.stops = stops.at;
        hay.stop_count = stops.count;
        status = insert_all(suite, &hay, what, count);
    }
    if (status == LS_OK) out->contexts[0] = keep_ids(&out->pool, &hay.ids);
    ls_ids_clear(suite->ctx, &hay.ids);
    ls_ids_clear(suite->ctx, &stops);
    return status;
}

/* The published needle, at one depth. */
static ls_status make_text(ls_suite *suite, int64_t length, double depth, int64_t trial,
                           ls_text *out) {
    const needle *own = suite->own;
    ls_ctx *ctx = suite->ctx;
    ls_haystack hay = {0};
    ls_ids stops = {0}, sentence = {0};
    ls_text context = {0};
    size_t index;
    ls_status status;
    LS_TRY_GOTO(ls_encoder_encode(ctx, suite->encoder, ".", 1, 0, &stops));
    LS_TRY_GOTO(ls_encoder_encode(ctx, suite->encoder, ls_needle_text, strlen(ls_needle_text), 0,
                                  &sentence));
    const int64_t rest = length - NEW_TOKENS - (int64_t)sentence.count;
    const int64_t around = 50 * ls_max(1, (int64_t)stops.count); /* the prompt, about */
    if (rest - around < 16)
        LS_TRY_GOTO(LS_FAIL(ctx, LS_EUSE, "a context of %lld tokens is too short for the needle",
                            (long long)length));
    LS_TRY_GOTO(ls_hay_tokens(suite, &own->hay, trial, rest - around, &hay.ids));
    hay.stops = stops.at;
    hay.stop_count = stops.count;
    LS_TRY_GOTO(ls_needle_insert(ctx, &hay, sentence.at, sentence.count, depth, &index));
    LS_TRY_GOTO(ls_tokenizer_decode_text(ctx, suite->tokenizer, hay.ids.at, hay.ids.count,
                                         LS_DECODE_UTF8, &context));
    LS_TRY_GOTO(ls_text_status(&context));
    const ls_filling fillings[] = {{"context", context.bytes, context.length},
                                   {"question", ls_needle_question, strlen(ls_needle_question)},
                                   {0}};
    ls_fill(ctx, ls_needle_lceg, fillings, out);
    status = ls_text_status(out);
fail:
    ls_text_clear(ctx, &context);
    ls_ids_clear(ctx, &hay.ids);
    ls_ids_clear(ctx, &stops);
    ls_ids_clear(ctx, &sentence);
    return status;
}

static ls_status make_generate(ls_suite *suite, int64_t length, int64_t trial,
                               ls_suite_group *out) {
    static const char expected[] = "eat a sandwich and sit in dolores park on a sunny day.";
    const int64_t depths = suite->settings.depths;
    const double depth = ls_suite_depth(trial % depths, depths);
    ls_text text = {0};
    char id[64];
    LS_TRY(ls_group_room(out, 1, 1));
    ls_suite_item *item = &out->items[0];
    ls_status status = make_text(suite, length, depth, trial, &text);
    if (status == LS_OK)
        status = ls_suite_encode(suite, &out->pool, text.bytes, text.length, 0, &out->contexts[0]);
    ls_text_clear(suite->ctx, &text);
    LS_TRY(status);
    LS_TRY(ls_suite_check_window(suite, "a prompt", out->contexts[0].count + NEW_TOKENS));
    snprintf(id, sizeof id, "%lld-%lld", (long long)length, (long long)trial);
    item->id = ls_pool_copy(&out->pool, id, strlen(id));
    item->new_tokens = NEW_TOKENS;
    item->metric = ls_metric_find("lceg", "needle_plot_score");
    item->answer.references.at = ls_pool_take(&out->pool, 1, sizeof(ls_points));
    LS_TRY(ls_pool_status(&out->pool));
    item->answer.references.at[0] = ls_points_text(&out->pool, expected);
    item->answer.references.count = 1;
    item->references = ls_group_keep(out, json_pack("[s]", expected));
    item->cell =
        ls_group_keep(out, json_pack("{s:I, s:f}", "length", (json_int_t)length, "depth", depth));
    return ls_pool_status(&out->pool);
}

static ls_status make(ls_suite *suite, int64_t number, ls_suite_group *out) {
    const needle *own = suite->own;
    const int64_t length = own->lengths[number / own->trials], trial = number % own->trials;
    return suite->generates ? make_generate(suite, length, trial, out)
                            : make_likelihood(suite, length, trial, out);
}

static void clear(ls_suite *suite) {
    ls_hay_close(&((needle *)suite->own)->hay);
}

const ls_suite_type ls_suite_needle = {
    .name = "needle",
    .summary = "a sentence hidden at a depth of a long text",
    .paper = "Kamradt 2023; Lu et al. 2024 (LCEG)",
    .likelihood = true,
    .generate = true,
    .size = sizeof(needle),
    .open = open_hay,
    .make = make,
    .clear = clear,
};
