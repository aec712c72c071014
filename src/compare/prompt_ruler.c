/* RULER's prompts, rebuilt from the draws that a record lists. Sentences of essays are cut by
 * another tool: there the borders of the record are taken. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/prompt_trial.h"
#include "suite/lib/prompts.h"
#include "suite/lib/python_random.h"
#include "suite/lib/ruler.h"
#include "task/lib/writing.h"

typedef struct niah_task {
    const char *name, *haystack, *keys, *values;
    size_t key_count, value_count, query_count;
} niah_task;
static const niah_task niah_tasks[] = {
    {"niah_single_1", "noise", "words", "numbers", 1, 1, 1},
    {"niah_single_2", "essay", "words", "numbers", 1, 1, 1},
    {"niah_single_3", "essay", "words", "uuids", 1, 1, 1},
    {"niah_multikey_1", "essay", "words", "numbers", 4, 1, 1},
    {"niah_multikey_2", "needle", "words", "numbers", 1, 1, 1},
    {"niah_multikey_3", "needle", "uuids", "uuids", 1, 1, 1},
    {"niah_multivalue", "essay", "words", "numbers", 1, 4, 1},
    {"niah_multiquery", "essay", "words", "numbers", 4, 1, 4},
};

enum { VALUES_MAX = 8 };

typedef struct draws {
    ls_golden *record;
    const json_t *list;
    size_t at;
} draws;

static ls_status fail(const draws *d) {
    LS_TRY(ls_pool_status(d->record->pool));
    return ls_golden_fail(d->record, "draws", "what the task draws");
}

static const json_t *next(draws *d) {
    return json_array_get(json_array_get(d->list, d->at++), 1);
}

/* What drew: empty after the last one. */
static const char *drawn_by(const draws *d, size_t at) {
    const char *name = json_string_value(json_array_get(json_array_get(d->list, at), 0));
    return name == NULL ? "" : name;
}

static const char seeded[] = "Random(";

/* The seed of a draw called "Random(51,).shuffle". */
static uint32_t seed_of(const draws *d, size_t at) {
    const char *name = drawn_by(d, at);
    return strncmp(name, seeded, strlen(seeded)) != 0
               ? 0
               : (uint32_t)strtoul(name + strlen(seeded), NULL, 10);
}

/* A draw is a text and a value, its seed one of 32 bits. */
static ls_status check_draws(const draws *d) {
    const size_t count = json_array_size(d->list);
    for (size_t i = 0; i < count; i++) {
        const json_t *draw = json_array_get(d->list, i);
        const char *name = json_string_value(json_array_get(draw, 0));
        if (json_array_size(draw) != 2 || name == NULL) return fail(d);
        if (strncmp(name, seeded, strlen(seeded)) != 0) continue;
        const char *digits = name + strlen(seeded);
        const size_t length = strspn(digits, "0123456789");
        if (length == 0 || length > 10 || strtoul(digits, NULL, 10) > UINT32_MAX) return fail(d);
    }
    return count == 0 ? fail(d) : LS_OK;
}

/* How much of something a prompt is made of. It is in the prompt, which no text of more can be. */
static ls_status size_of(const draws *d, int64_t *out) {
    const json_t *size = json_array_get(json_object_get(d->record->json, "size"), 0);
    const size_t most = json_string_length(json_object_get(d->record->json, "input"));
    return ls_golden_value(d->record, "size", size, 0, (int64_t)most, out);
}

/* Lines before which others are put. */
static ls_status places_of(const draws *d, const json_t *sample, int64_t lines, size_t count,
                           size_t *out) {
    if (json_array_size(sample) != count) return fail(d);
    for (size_t i = 0; i < count; i++) {
        int64_t place;
        LS_TRY(ls_golden_value(d->record, "a place among lines", json_array_get(sample, i), 0,
                               lines, &place));
        out[i] = (size_t)place;
    }
    return LS_OK;
}

/* 128 random bits, in decimal, as a version 4 UUID. */
static const char *uuid_of(ls_pool *pool, const char *decimal) {
    uint32_t parts[4] = {0}; /* the highest first */
    for (; *decimal >= '0' && *decimal <= '9'; decimal++) {
        uint64_t carry = (uint64_t)(*decimal - '0');
        for (int i = 3; i >= 0; i--) {
            carry += (uint64_t)parts[i] * 10;
            parts[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    parts[1] = (parts[1] & 0xFFFF0FFFu) | 0x4000u;
    parts[2] = (parts[2] & 0x3FFFFFFFu) | 0x80000000u;
    char *out = ls_pool_take(pool, 40, 1);
    if (out != NULL)
        snprintf(out, 40, "%08x-%04x-%04x-%04x-%04x%08x", parts[0], parts[1] >> 16,
                 parts[1] & 0xFFFF, parts[2] >> 16, parts[2] & 0xFFFF, parts[3]);
    return out;
}

/* A key or a value as it is written. */
static const char *drawn_text(draws *d) {
    const bool bits = strcmp(drawn_by(d, d->at), "getrandbits") == 0;
    const json_t *value = next(d);
    ls_pool *pool = d->record->pool;
    if (json_is_integer(value)) {
        char *out = ls_pool_take(pool, 24, 1);
        if (out != NULL) snprintf(out, 24, "%lld", (long long)json_integer_value(value));
        return bits && out != NULL ? uuid_of(pool, out) : out;
    }
    const char *text = json_string_value(value);
    return bits && text != NULL ? uuid_of(pool, text) : text;
}

static const char *needle_of(ls_golden *record, const char *type, const char *key,
                             const char *value) {
    ls_text text = {0};
    ls_ruler_needle(record->ctx, type, key, value, &text);
    const char *copy = ls_pool_copy(record->pool, text.bytes, text.length);
    ls_text_clear(record->ctx, &text);
    return copy;
}

/* The sentences of an essay around the needles, from the record, with our needles put back. */
static ls_status essay_context(ls_golden *record, ls_words needles, ls_text *out) {
    const char *input, *at, *end;
    LS_TRY(ls_golden_text(record, "input", &input));
    at = strchr(input, '\n');
    end = strrchr(input, '\n');
    if (at == NULL || end <= at) return ls_golden_fail(record, "input", "a prompt");
    at++;
    for (size_t i = 0; i <= needles.count; i++) {
        const char *stop = i < needles.count ? strstr(at, needles.at[i]) : end;
        if (stop == NULL || stop > end) return LS_OK; /* will differ */
        if (i < needles.count && stop > at) stop--;   /* the blank before the needle */
        ls_text_append(record->ctx, out, at, (size_t)(stop - at));
        if (i == needles.count) break;
        ls_text_append(record->ctx, out, " ", 1);
        ls_text_append(record->ctx, out, needles.at[i], strlen(needles.at[i]));
        at = stop + strlen(needles.at[i]) + 1;
        if (*stop != ' ') at--;
        if (at > end) return ls_golden_fail(record, "input", "a prompt with its needles inside");
        if (at < end && *at == ' ') {
            ls_text_append(record->ctx, out, " ", 1);
            at++;
        }
    }
    return ls_text_status(out);
}

static ls_status line_context(draws *d, const niah_task *task, ls_words needles, ls_text *out) {
    ls_golden *record = d->record;
    const char **own = NULL;
    size_t place;
    int64_t lines;
    LS_TRY(size_of(d, &lines));
    if (strcmp(task->haystack, "needle") == 0) {
        own = ls_pool_take(record->pool, (size_t)lines, sizeof *own);
        if (own == NULL) return LS_ENOMEM;
        for (int64_t i = 0; i < lines; i++) {
            const char *key = drawn_text(d), *value = drawn_text(d);
            if (key == NULL || value == NULL) return fail(d);
            own[i] = needle_of(record, task->values, key, value);
        }
    }
    LS_TRY(places_of(d, next(d), lines, 1, &place));
    LS_TRY(ls_pool_status(record->pool));
    ls_ruler_lines(record->ctx, own, ls_noise_sentence, (size_t)lines, needles, &place, out);
    return LS_OK;
}

static ls_status niah(draws *d, const niah_task *task, ls_text *out, size_t *prefix) {
    ls_golden *record = d->record;
    const char *keys[VALUES_MAX], *needles[VALUES_MAX], *mixed[VALUES_MAX], *asked[VALUES_MAX];
    const size_t count = task->key_count * task->value_count;
    size_t order[VALUES_MAX], n = 0;
    ls_python_random random;
    ls_text context = {0};
    for (size_t k = 0; k < task->key_count; k++) {
        keys[k] = drawn_text(d);
        for (size_t v = 0; v < task->value_count; v++) {
            const char *value = drawn_text(d);
            if (keys[k] == NULL || value == NULL) return fail(d);
            needles[n++] = needle_of(record, task->values, keys[k], value);
        }
    }
    LS_TRY(ls_pool_status(record->pool));
    ls_python_seed(&random, seed_of(d, d->at++));
    ls_python_shuffle(&random, order, count);
    for (size_t i = 0; i < count; i++) mixed[i] = needles[order[i]];
    const ls_words all = {mixed, count};
    const bool essay = strcmp(task->haystack, "essay") == 0;
    if (essay) d->at++; /* the depths */
    ls_status status =
        essay ? essay_context(record, all, &context) : line_context(d, task, all, &context);
    const json_t *indices = next(d);
    for (size_t i = 0; status == LS_OK && i < task->query_count; i++) {
        int64_t which = 0;
        status = ls_golden_value(record, "a key that is asked for", json_array_get(indices, i), 0,
                                 (int64_t)task->key_count - 1, &which);
        if (status == LS_OK) asked[i] = keys[which];
    }
    if (status == LS_OK)
        ls_ruler_niah(record->ctx, task->values, context.bytes == NULL ? "" : context.bytes,
                      context.length, (ls_words){asked, task->query_count},
                      task->query_count * task->value_count, out, prefix);
    ls_text_clear(record->ctx, &context);
    return status;
}

/* Letters that were drawn one by one. */
static const char *drawn_letters(draws *d) {
    const json_t *letters = next(d);
    const size_t count = json_array_size(letters);
    char *out = ls_pool_take(d->record->pool, count + 1, 1);
    for (size_t i = 0; out != NULL && i < count; i++) {
        const char *letter = json_string_value(json_array_get(letters, i));
        out[i] = letter == NULL ? '?' : letter[0];
    }
    return out;
}

static int by_size(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

/* Where the statements of the worked example stand is not among the draws: it is read off. */
static size_t example_places(const char *input, size_t places[5]) {
    size_t lines = 0, found = 0;
    for (const char *at = strstr(input, "\n\n"); at != NULL; at = strchr(at, '\n')) {
        while (*at == '\n') at++;
        if (strncmp(at, "Question:", 9) == 0) break;
        if (strncmp(at, "VAR ", 4) != 0)
            lines++;
        else if (found < 5)
            places[found++] = lines;
    }
    return found == 5 ? lines : 0;
}

static ls_status tracking(draws *d, ls_text *out, size_t *prefix) {
    ls_golden *record = d->record;
    const char *names[5], *example[5], *input;
    size_t places[5], example_at[5];
    for (size_t i = 0; i < 5; i++) names[i] = drawn_letters(d);
    const char *value = drawn_text(d);
    int64_t own;
    LS_TRY(size_of(d, &own));
    LS_TRY(places_of(d, next(d), own, 5, places));
    qsort(places, 5, sizeof *places, by_size);
    for (size_t i = 0; i < 5; i++) example[i] = drawn_letters(d);
    const char *example_value = drawn_text(d);
    LS_TRY(ls_pool_status(record->pool));
    LS_TRY(ls_golden_text(record, "input", &input));
    const size_t lines = example_places(input, example_at);
    if (value == NULL || example_value == NULL || lines == 0 || own < 1) return fail(d);
    ls_ruler_tracking(record->ctx, record->pool, (ls_words){example, 5}, &example_value, lines,
                      example_at, out, prefix);
    for (size_t i = 0; i < 5; i++)
        ls_text_printf(record->ctx, out, "%s%s", i == 0 ? " " : " ", example[i]);
    ls_text_printf(record->ctx, out, "\n\n");
    ls_ruler_tracking(record->ctx, record->pool, (ls_words){names, 5}, &value, (size_t)own, places,
                      out, prefix);
    return LS_OK;
}

static ls_status words_of(draws *d, ls_words *out) {
    const json_t *list = next(d);
    const size_t count = json_array_size(list);
    *out = (ls_words){ls_pool_take(d->record->pool, count, sizeof *out->at), count};
    if (out->at == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        out->at[i] = json_string_value(json_array_get(list, i));
        if (out->at[i] == NULL) return fail(d);
    }
    return count == 0 ? fail(d) : LS_OK;
}

static ls_status common(draws *d, ls_text *out, size_t *prefix) {
    ls_golden *record = d->record;
    ls_words example, words;
    int64_t length;
    LS_TRY(ls_golden_int(record, "max_seq_length", 1, 1 << 30, &length));
    const bool shorter = length < 4096;
    LS_TRY(words_of(d, &example));
    ls_ruler_common(record->ctx, record->pool, example, shorter ? 3 : 10, shorter ? 1 : 3,
                    seed_of(d, d->at++), out, prefix);
    for (size_t i = 0; i < 10 && i < example.count; i++)
        ls_text_printf(record->ctx, out, " %zu. %s", i + 1, example.at[i]);
    ls_text_printf(record->ctx, out, "\n");
    LS_TRY(words_of(d, &words));
    ls_ruler_common(record->ctx, record->pool, words, shorter ? 6 : 30, shorter ? 1 : 3,
                    seed_of(d, d->at), out, prefix);
    return LS_OK;
}

static ls_status coded(draws *d, ls_text *out, size_t *prefix) {
    ls_golden *record = d->record;
    const size_t all = json_array_size(d->list);
    const json_t *last = json_array_get(json_array_get(d->list, all - 1), 1);
    const size_t input = json_string_length(json_object_get(record->json, "input"));
    int64_t budget, wanted; /* tokens; words, each of them in the prompt */
    LS_TRY(ls_golden_value(record, "size", json_array_get(json_object_get(record->json, "size"), 0),
                           64, 1 << 24, &budget));
    LS_TRY(ls_golden_value(record, "n", json_object_get(last, "n"), 1, (int64_t)input, &wanted));
    ls_words drawn = {ls_pool_take(record->pool, all, sizeof *drawn.at), 0};
    if (drawn.at == NULL) return LS_ENOMEM;
    while (d->at < all && seed_of(d, d->at) == 0) drawn.at[drawn.count++] = drawn_letters(d);
    if (drawn.count == 0) return fail(d);
    const uint32_t seed = seed_of(d, d->at);
    const ls_words vocabulary = ls_ruler_vocabulary(record->pool, drawn, seed);
    LS_TRY(ls_pool_status(record->pool));
    for (int64_t count = budget / 6; count < 4 * budget; count += budget / 32) {
        if ((int64_t)ls_ruler_coded_words(vocabulary.count, (size_t)count) != wanted) continue;
        ls_ruler_coded(record->ctx, record->pool, vocabulary, (size_t)count, seed, out, prefix);
        return LS_OK;
    }
    return fail(d);
}

static ls_status documents(draws *d, ls_text *out, size_t *prefix) {
    ls_golden *record = d->record;
    const char *input;
    ls_words list;
    LS_TRY(ls_golden_text(record, "input", &input));
    d->at = json_array_size(d->list) - 1;
    LS_TRY(words_of(d, &list));
    const char *question = NULL;
    for (const char *at = input; (at = strstr(at, "\nQuestion: ")) != NULL; at++)
        question = at + 11;
    if (question == NULL) return fail(d);
    ls_ruler_qa(record->ctx, list, question, out, prefix);
    return LS_OK;
}

ls_status ls_prompt_ruler(ls_golden *record) {
    const char *task;
    draws d = {record, json_object_get(record->json, "draws"), 0};
    ls_text text = {0};
    size_t prefix = 0;
    LS_TRY(ls_golden_text(record, "task", &task));
    snprintf(record->group, sizeof record->group, "ruler %.40s", task);
    LS_TRY(check_draws(&d));
    const niah_task *found = NULL;
    for (size_t i = 0; i < sizeof niah_tasks / sizeof niah_tasks[0]; i++)
        if (strcmp(niah_tasks[i].name, task) == 0) found = &niah_tasks[i];
    ls_status status = found != NULL              ? niah(&d, found, &text, &prefix)
                       : strcmp(task, "vt") == 0  ? tracking(&d, &text, &prefix)
                       : strcmp(task, "cwe") == 0 ? common(&d, &text, &prefix)
                       : strcmp(task, "fwe") == 0 ? coded(&d, &text, &prefix)
                                                  : documents(&d, &text, &prefix);
    if (status == LS_OK) status = ls_pool_status(record->pool);
    if (status == LS_OK) status = ls_text_status(&text);
    if (status == LS_OK) {
        const json_t *input = json_object_get(record->json, "input");
        const json_t *rest = json_object_get(record->json, "answer_prefix");
        record->difference = fmax(ls_golden_same(text.bytes, prefix, input),
                                  ls_golden_same(text.bytes + prefix, text.length - prefix, rest));
    }
    ls_text_clear(record->ctx, &text);
    return status;
}
