/* Passkey retrieval: a number hidden in noise, asked for at the end. The prompt is Landmark's; the
 * noise is as long as the length allows, and the key at a share of it.
 *
 * likelihood: the key ranked against other numbers of as many digits; the contrast is the same
 * noise without the line. generate: ten new tokens, the first number in them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite/lib/haystack.h"

enum { DIGITS = 5, CANDIDATES_MAX = 256, NEW_TOKENS = 10 };

typedef struct passkey {
    int64_t lengths[LS_OPTION_LIST_MAX], fillers[LS_OPTION_LIST_MAX], length_count;
    int64_t trials; /* of each depth */
} passkey;

static ls_status count_tokens(const ls_suite *suite, int64_t filler, int64_t *out) {
    ls_text text = {0};
    ls_ids ids = {0};
    ls_passkey_prompt(suite->ctx, filler, filler / 2, "12345", &text);
    ls_status status = ls_text_status(&text);
    if (status == LS_OK)
        status = ls_encoder_encode(suite->ctx, suite->encoder, text.bytes, text.length, 0, &ids);
    *out = (int64_t)ids.count;
    ls_ids_clear(suite->ctx, &ids);
    ls_text_clear(suite->ctx, &text);
    return status;
}

/* The most characters of noise with which prompt and answer have at most `length` tokens. A cut in
 * the noise may cost two tokens more than the one that is tried. */
static ls_status fit_filler(const ls_suite *suite, int64_t length, int64_t *out) {
    enum { SLACK = 2 };
    int64_t low = 0, high = 8 * length, tokens;
    LS_TRY(count_tokens(suite, 0, &tokens));
    const int64_t room = length - NEW_TOKENS - SLACK;
    if (tokens > room)
        return LS_FAIL(suite->ctx, LS_EUSE,
                       "a context of %lld tokens is too short: the prompt alone has %lld",
                       (long long)length, (long long)(tokens + NEW_TOKENS + SLACK));
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        LS_TRY(count_tokens(suite, middle, &tokens));
        if (tokens <= room)
            low = middle;
        else
            high = middle - 1;
    }
    *out = low;
    return LS_OK;
}

static ls_status open_lengths(ls_suite *suite) {
    passkey *own = suite->own;
    const ls_suite_settings *s = &suite->settings;
    LS_TRY(ls_suite_lengths(suite, own->lengths, &own->length_count));
    if (s->lengths.count == 0) { /* of its own choice: those that hold the prompt */
        int64_t least, kept = 0;
        LS_TRY(count_tokens(suite, 0, &least));
        for (int64_t i = 0; i < own->length_count; i++)
            if (own->lengths[i] >= least + NEW_TOKENS + 16) own->lengths[kept++] = own->lengths[i];
        if (kept == 0) own->lengths[kept++] = 2 * (least + NEW_TOKENS + 16);
        own->length_count = kept;
    }
    for (int64_t i = 0; i < own->length_count; i++)
        LS_TRY(fit_filler(suite, own->lengths[i], &own->fillers[i]));
    own->trials = s->samples > 0 ? s->samples : 20;
    suite->groups = own->length_count * s->depths * own->trials;
    suite->lengths = ls_new(suite->ctx, (size_t)suite->groups, sizeof *suite->lengths);
    if (suite->lengths == NULL) return LS_ENOMEM;
    for (int64_t g = 0; g < suite->groups; g++)
        suite->lengths[g] = own->lengths[g / (s->depths * own->trials)];
    suite->chance = suite->generates ? 1.0 / 90000 : 1.0 / (double)s->candidates;
    suite->measure =
        suite->generates ? "the first number is the key" : "the key gains most from the evidence";
    return LS_OK;
}

static ls_status put_context(const ls_suite *suite, ls_suite_group *group, int64_t filler,
                             int64_t before, const char *key, ls_tokens *out) {
    ls_text text = {0};
    ls_passkey_prompt(suite->ctx, filler, before, key, &text);
    ls_status status = ls_text_status(&text);
    if (status == LS_OK)
        status = ls_suite_encode(suite, &group->pool, text.bytes, text.length, 0, out);
    ls_text_clear(suite->ctx, &text);
    return status;
}

static ls_status put_candidates(const ls_suite *suite, ls_suite_group *group, int64_t number,
                                const char *key) {
    const int64_t count = suite->settings.candidates;
    const int64_t truth = ls_suite_slot(suite, number, number, count);
    char texts[CANDIDATES_MAX][DIGITS + 2];
    const char *list[CANDIDATES_MAX];
    for (int64_t c = 0; c < count; c++) {
        texts[c][0] = ' ';
        ls_suite_digits(suite, "passkey others", number, c, DIGITS, false, texts[c] + 1);
        if (c == truth) memcpy(texts[c] + 1, key, DIGITS + 1);
        list[c] = texts[c];
    }
    return ls_suite_candidates(suite, group, &group->items[0], list, count, truth);
}

static ls_status make(ls_suite *suite, int64_t number, ls_suite_group *out) {
    const passkey *own = suite->own;
    const int64_t depths = suite->settings.depths, which = number / (depths * own->trials);
    const int64_t filler = own->fillers[which];
    const double depth = ls_suite_depth(number / own->trials % depths, depths);
    const int64_t before = (int64_t)rint((double)filler * depth / 100);
    char key[DIGITS + 1], id[32];
    LS_TRY(ls_group_room(out, suite->generates ? 1 : 2, 1));
    ls_suite_item *item = &out->items[0];
    ls_suite_digits(suite, "passkey keys", number, 0, DIGITS, false, key);
    LS_TRY(put_context(suite, out, filler, before, key, &out->contexts[0]));
    if (!suite->generates) LS_TRY(put_context(suite, out, filler, before, NULL, &out->contexts[1]));
    snprintf(id, sizeof id, "%lld", (long long)number);
    item->id = ls_pool_copy(&out->pool, id, strlen(id));
    item->cell = ls_group_keep(
        out, json_pack("{s:I, s:f}", "length", (json_int_t)own->lengths[which], "depth", depth));
    item->references = ls_group_keep(out, json_pack("[s]", key));
    if (!suite->generates) {
        item->bare = 1;
        return put_candidates(suite, out, number, key);
    }
    item->new_tokens = NEW_TOKENS;
    item->metric = ls_metric_find("landmark", "passkey");
    item->answer.references.at = ls_pool_take(&out->pool, 1, sizeof(ls_points));
    LS_TRY(ls_pool_status(&out->pool));
    item->answer.references.at[0] = ls_points_text(&out->pool, key);
    item->answer.references.count = 1;
    return ls_pool_status(&out->pool);
}

const ls_suite_type ls_suite_passkey = {
    .name = "passkey",
    .summary = "a number hidden in noise",
    .paper = "Mohtashami and Jaggi 2023",
    .likelihood = true,
    .generate = true,
    .size = sizeof(passkey),
    .open = open_lengths,
    .make = make,
};
