/* Needles in a haystack, and the grids of their lengths and depths. The haystack itself is not in
 * the file: it is what the context with the needle at its end has before it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/prompt_trial.h"
#include "suite/lib/prompts.h"

static void length_key(const ls_golden *record, char out[24]) {
    snprintf(out, 24, "%lld",
             (long long)json_integer_value(json_object_get(record->json, "context_length")));
}

ls_status ls_prompt_keep_hay(ls_golden *record) {
    ls_prompt_trial *trial = record->user;
    const json_t *context = json_object_get(record->json, "context");
    const json_t *needle = json_object_get(record->json, "needle");
    const size_t whole = json_string_length(context), part = json_string_length(needle);
    char key[24];
    if (!json_is_string(needle) || !json_is_string(context) || whole < part ||
        json_number_value(json_object_get(record->json, "depth_percent")) != 100)
        return LS_OK;
    length_key(record, key);
    if (json_object_set_new(trial->hays, key,
                            json_stringn(json_string_value(context), whole - part)) != 0)
        return LS_FAIL(record->ctx, LS_ENOMEM, "no memory for a haystack");
    return LS_OK;
}

static ls_status encode(const ls_golden *record, const json_t *text, ls_ids *out) {
    const ls_tokenizer *tokenizer;
    if (!json_is_string(text)) return ls_golden_fail(record, "a needle", "a text");
    LS_TRY(ls_prompt_tokenizer(record, &tokenizer));
    return ls_tokenizer_encode(record->ctx, tokenizer, json_string_value(text),
                               json_string_length(text), 0, out);
}

/* Inserts the needles one after the other, the later ones evenly over what is left. */
static ls_status insert(ls_golden *record, const json_t *needles, ls_haystack *hay) {
    ls_ctx *ctx = record->ctx;
    const json_t *shares = json_object_get(record->json, "insertion_percentages");
    const size_t count = json_array_size(needles);
    double start;
    ls_status status =
        ls_json_real(ctx, record->json, "depth_percent", record->what, 0, 100, &start);
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        ls_ids needle = {0};
        size_t index = 0;
        const double step = (100 - start) / (double)count;
        double depth = start;
        for (size_t k = 0; k < i; k++) depth += step;
        status = encode(record, json_array_get(needles, i), &needle);
        if (status == LS_OK)
            status = ls_needle_insert(ctx, hay, needle.at, needle.count,
                                      i > 0 && depth == 100 ? 100 - 1e-12 : depth, &index);
        ls_ids_clear(ctx, &needle);
        if (shares != NULL)
            ls_prompt_number(record, (double)index / (double)hay->ids.count * 100,
                             json_array_get(shares, i));
        else
            ls_prompt_number(record, (double)index,
                             json_object_get(record->json, "insertion_index"));
    }
    return status;
}

enum { NEEDLES_MAX = 1024 };

static ls_status needle_context(ls_golden *record, const json_t *needles) {
    ls_prompt_trial *trial = record->user;
    ls_ctx *ctx = record->ctx;
    const ls_tokenizer *tokenizer;
    ls_haystack hay = {0};
    ls_ids stops = {0}, one = {0};
    ls_text text = {0};
    char key[24];
    int64_t length, buffer, kept;
    ls_status status = LS_OK;
    length_key(record, key);
    const json_t *stored = json_object_get(trial->hays, key);
    LS_TRY(ls_golden_int(record, "context_length", 1, 1 << 24, &length));
    LS_TRY(ls_golden_int(record, "buffer", 0, length, &buffer));
    LS_TRY(ls_prompt_tokenizer(record, &tokenizer));
    if (stored == NULL)
        return ls_golden_fail(record, "context_length", "one with a needle at its end");
    if (json_array_size(needles) < 1 || json_array_size(needles) > NEEDLES_MAX)
        return ls_golden_fail(record, "needle", "one, or a list of at most 1024");
    kept = length - buffer;
    LS_TRY_GOTO(ls_tokenizer_encode(ctx, tokenizer, ".", 1, 0, &stops));
    LS_TRY_GOTO(encode(record, stored, &hay.ids));
    for (size_t i = 0; i < json_array_size(needles); i++) {
        one.count = 0;
        LS_TRY_GOTO(encode(record, json_array_get(needles, i), &one));
        kept -= (int64_t)one.count;
    }
    if (kept < 0) LS_TRY_GOTO(ls_golden_fail(record, "context_length", "enough for the needles"));
    if ((int64_t)hay.ids.count > kept) hay.ids.count = (size_t)kept;
    hay.stops = stops.at;
    hay.stop_count = stops.count;
    LS_TRY_GOTO(insert(record, needles, &hay));
    LS_TRY_GOTO(
        ls_tokenizer_decode_text(ctx, tokenizer, hay.ids.at, hay.ids.count, LS_DECODE_UTF8, &text));
    LS_TRY_GOTO(ls_text_status(&text));
    ls_prompt_same(record, &text, "context");
fail:
    ls_text_clear(ctx, &text);
    ls_ids_clear(ctx, &one);
    ls_ids_clear(ctx, &stops);
    ls_ids_clear(ctx, &hay.ids);
    return status;
}

static void compare_grid(ls_golden *record, const json_t *ends, bool sigmoid, bool backwards,
                         const json_t *wanted) {
    const int64_t count = json_integer_value(json_array_get(ends, 2));
    if (json_is_null(wanted)) return;
    if (count < 1 || count != (int64_t)json_array_size(wanted)) {
        record->difference = INFINITY;
        return;
    }
    double *values = ls_pool_take(record->pool, (size_t)count, sizeof *values);
    if (values == NULL) return;
    ls_needle_grid(json_number_value(json_array_get(ends, 0)),
                   json_number_value(json_array_get(ends, 1)), count, sigmoid, backwards, values);
    for (int64_t i = 0; i < count; i++)
        ls_prompt_number(record, values[i], json_array_get(wanted, (size_t)i));
}

static ls_status compare_grids(ls_golden *record) {
    const char *type;
    LS_TRY(ls_golden_text(record, "type", &type));
    const bool sigmoid = strcmp(type, "sigmoid") == 0;
    const json_t *depths = json_object_get(record->json, "depths");
    compare_grid(record, json_object_get(record->json, "lengths"), false, false,
                 json_object_get(record->json, "context_lengths"));
    compare_grid(record, depths, sigmoid, true, json_object_get(record->json, "depth_percents"));
    compare_grid(record, depths, sigmoid, false,
                 json_object_get(record->json, "depth_percents_lceg"));
    return LS_OK;
}

ls_status ls_prompt_needle(ls_golden *record) {
    const char *kind;
    LS_TRY(ls_golden_text(record, "kind", &kind));
    snprintf(record->group, sizeof record->group, "niah %.40s", kind);
    if (strcmp(kind, "grid") == 0) return compare_grids(record);
    if (strcmp(kind, "multi") == 0)
        return needle_context(record, json_object_get(record->json, "needles"));
    if (strcmp(kind, "single") == 0) {
        json_t *one = json_pack("[O]", json_object_get(record->json, "needle"));
        ls_status status = needle_context(record, one);
        json_decref(one);
        return status;
    }
    const char *context;
    ls_text text = {0};
    LS_TRY(ls_golden_text(record, "context", &context));
    const ls_filling fillings[] = {{"context", context, strlen(context)},
                                   {"question", ls_needle_question, strlen(ls_needle_question)},
                                   {0}};
    ls_fill(record->ctx, ls_needle_lceg, fillings, &text);
    ls_status status = ls_text_status(&text);
    if (status == LS_OK) ls_prompt_same(record, &text, "prompt");
    ls_text_clear(record->ctx, &text);
    return status;
}
