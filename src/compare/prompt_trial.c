/* Prompts of the suites against those of the official code: `apply prompt`. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/golden_records.h"
#include "compare/prompt_trial.h"

typedef struct prompt_kind {
    const char *suite;
    ls_status (*compare)(ls_golden *record);
} prompt_kind;

static const prompt_kind kinds[] = {
    {"longbench", ls_prompt_longbench}, {"lost_in_the_middle", ls_prompt_middle},
    {"niah", ls_prompt_needle},         {"passkey", ls_prompt_passkey},
    {"ruler", ls_prompt_ruler},         {"babilong", ls_prompt_babilong}};

ls_status ls_prompt_source(ls_golden *record, const char *file, int64_t index, json_t **out) {
    ls_prompt_trial *trial = record->user;
    ls_ctx *ctx = record->ctx;
    char path[LS_OPTION_TEXT_BYTES + 256];
    size_t length = strlen(file);
    if (length > 3 && strcmp(file + length - 3, ".xz") == 0) length -= 3;
    if (trial->folder[0] == '\0')
        return LS_FAIL(ctx, LS_EUSE, "%s is made from %.*s: give input=, the folder that has it",
                       record->what, (int)length, file);
    snprintf(path, sizeof path, "%s/%.*s", trial->folder, (int)length, file);
    if (strcmp(path, trial->open) != 0) {
        ls_whole_free(&trial->whole);
        trial->open[0] = '\0';
        LS_TRY(ls_whole_read(ctx, path, &trial->whole));
        snprintf(trial->open, sizeof trial->open, "%s", path);
    }
    const char *at = (const char *)trial->whole.bytes, *end = at + trial->whole.length;
    for (int64_t line = 0; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL) stop = end;
        if (line == index)
            return ls_json_parse_line(ctx, at, (size_t)(stop - at), path, line + 1, out);
        at = stop + 1;
    }
    return LS_FAIL(ctx, LS_EINPUT, "%s has no line %lld", path, (long long)index + 1);
}

void ls_prompt_same(ls_golden *record, const ls_text *text, const char *key) {
    const json_t *wanted = json_object_get(record->json, key);
    char hash[65];
    if (wanted == NULL && strcmp(key, "prompt") == 0) { /* too long to be there itself */
        ls_sha256(text->bytes, text->length, hash);
        const char *stated = json_string_value(json_object_get(record->json, "prompt_sha256"));
        if (stated == NULL || strcmp(stated, hash) != 0) record->difference = INFINITY;
        return;
    }
    record->difference =
        fmax(record->difference, ls_golden_same(text->bytes, text->length, wanted));
}

void ls_prompt_number(ls_golden *record, double ours, const json_t *wanted) {
    if (!(fabs(ours - json_number_value(wanted)) <= 1e-9)) record->difference = INFINITY;
}

ls_status ls_prompt_tokenizer(const ls_golden *record, const ls_tokenizer **out) {
    ls_prompt_trial *trial = record->user;
    if (trial->tokenizer == NULL && trial->from[0] == '\0')
        return LS_FAIL(record->ctx, LS_EUSE,
                       "%s counts tokens: give from=, a folder with the tokenizer", record->what);
    if (trial->tokenizer == NULL)
        LS_TRY(ls_tokenizer_load(record->ctx, trial->from, &trial->tokenizer));
    *out = trial->tokenizer;
    return LS_OK;
}

static ls_status compare(ls_golden *record) {
    const char *suite;
    LS_TRY(ls_golden_text(record, "suite", &suite));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].suite, suite) == 0) return kinds[i].compare(record);
    return ls_golden_fail(record, "suite", "one that has prompts here");
}

static ls_status read(ls_comparer *comparer) {
    ls_prompt_trial *trial = comparer->own;
    trial->from = comparer->keys->from;
    trial->folder = comparer->keys->input;
    return ls_compare_needs_golden(comparer);
}

static ls_status run(ls_comparer *comparer, ls_comparison *out) {
    ls_prompt_trial *trial = comparer->own;
    trial->hays = json_object();
    LS_TRY(ls_goldens_walk(comparer, ls_prompt_keep_hay, trial));
    return ls_goldens_compare(comparer, 0, compare, comparer->own, out);
}

static void clear(ls_comparer *comparer) {
    ls_prompt_trial *trial = comparer->own;
    ls_tokenizer_free(comparer->ctx, trial->tokenizer);
    ls_whole_free(&trial->whole);
    json_decref(trial->hays);
}

const ls_comparer_type ls_prompt_comparer = {
    .name = "prompt",
    .size = sizeof(ls_prompt_trial),
    .read = read,
    .run = run,
    .clear = clear,
};
