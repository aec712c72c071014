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

static ls_status open_source(ls_ctx *ctx, const char *path, ls_prompt_trial *trial) {
    ls_whole_free(&trial->whole);
    trial->open[0] = '\0';
    trial->lines = 0;
    LS_TRY(ls_whole_read(ctx, path, true, &trial->whole));
    const char *text = (const char *)trial->whole.bytes;
    for (size_t at = 0; at < trial->whole.length; at++) {
        if (!ls_array_reserve(ctx, &trial->starts, &trial->capacity, trial->lines + 1,
                              sizeof *trial->starts))
            return LS_ENOMEM;
        trial->starts[trial->lines++] = at;
        const char *stop = memchr(text + at, '\n', trial->whole.length - at);
        at = stop == NULL ? trial->whole.length - 1 : (size_t)(stop - text);
    }
    snprintf(trial->open, sizeof trial->open, "%s", path);
    return LS_OK;
}

ls_status ls_prompt_source(ls_golden *record, const char *file, const json_t *index, json_t **out) {
    ls_prompt_trial *trial = record->user;
    ls_ctx *ctx = record->ctx;
    char path[LS_OPTION_TEXT_BYTES + 256];
    int64_t line;
    size_t length = strlen(file);
    *out = NULL;
    LS_TRY(ls_golden_value(record, "the index of an item", index, 0, INT32_MAX, &line));
    if (length > 3 && strcmp(file + length - 3, ".xz") == 0) length -= 3;
    if (length > 200 || strchr(file, '/') != NULL)
        return ls_golden_fail(record, "source.file", "the name of a file");
    if (trial->folder[0] == '\0')
        return LS_FAIL(ctx, LS_EUSE, "%s is made from %.*s: give input=, the folder that has it",
                       record->what, (int)length, file);
    snprintf(path, sizeof path, "%s/%.*s", trial->folder, (int)length, file);
    if (strcmp(path, trial->open) != 0) LS_TRY(open_source(ctx, path, trial));
    if (line >= (int64_t)trial->lines)
        return LS_FAIL(ctx, LS_EINPUT, "%s has no line %lld", path, (long long)line + 1);
    const size_t from = trial->starts[line], next = (size_t)line + 1;
    const size_t to = next < trial->lines ? trial->starts[next] - 1 : trial->whole.length;
    return ls_json_parse_line(ctx, (const char *)trial->whole.bytes + from, to - from, path,
                              line + 1, out);
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
    if (trial->hays == NULL) return LS_FAIL(comparer->ctx, LS_ENOMEM, "no memory for the texts");
    LS_TRY(ls_goldens_walk(comparer, ls_prompt_keep_hay, trial));
    return ls_goldens_compare(comparer, 0, compare, comparer->own, out);
}

static void clear(ls_comparer *comparer) {
    ls_prompt_trial *trial = comparer->own;
    ls_tokenizer_free(comparer->ctx, trial->tokenizer);
    ls_whole_free(&trial->whole);
    ls_free(comparer->ctx, trial->starts);
    json_decref(trial->hays);
}

const ls_comparer_type ls_prompt_comparer = {
    .name = "prompt",
    .size = sizeof(ls_prompt_trial),
    .read = read,
    .run = run,
    .clear = clear,
};
