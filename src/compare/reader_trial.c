/* Readers of LRA and S4 against ids of the official code: `apply reader`. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/golden_records.h"
#include "task/lib/readers.h"

/* The tokens of a record as they are compared, one after the other. */
typedef struct ids {
    ls_golden *record;
    const json_t *wanted;
    size_t count;
} ids;

static void add(ids *out, int64_t id) {
    const json_t *there = json_array_get(out->wanted, out->count++);
    if (!json_is_integer(there) || json_integer_value(there) != id)
        out->record->difference = INFINITY;
}

static void finish(const ids *out) {
    if (out->count != json_array_size(out->wanted)) out->record->difference = INFINITY;
}

/* Of a list of names, from 1; of a mapping, its number. Others are unknown. */
static int64_t id_of(const json_t *vocabulary, const char *name) {
    if (json_is_object(vocabulary)) {
        const json_t *id = json_object_get(vocabulary, name);
        return id == NULL ? 1 : json_integer_value(id);
    }
    for (size_t i = 0; i < json_array_size(vocabulary); i++)
        if (strcmp(json_string_value(json_array_get(vocabulary, i)), name) == 0)
            return (int64_t)i + 1;
    return (int64_t)json_array_size(vocabulary) + 1;
}

static void compare_grey(ls_golden *record, const char *key,
                         int32_t (*grey)(uint8_t, uint8_t, uint8_t)) {
    const json_t *pixels = json_object_get(record->json, "input");
    ids out = {record, json_object_get(record->json, key), 0};
    for (size_t i = 0; i < json_array_size(pixels); i++) {
        const json_t *pixel = json_array_get(pixels, i);
        uint8_t colours[3];
        for (size_t c = 0; c < 3; c++)
            colours[c] = (uint8_t)json_integer_value(json_array_get(pixel, c));
        add(&out, grey(colours[0], colours[1], colours[2]));
    }
    finish(&out);
}

static void compare_listops(ls_golden *record, ls_bytes rest, bool s4) {
    const json_t *vocabulary =
        json_object_get(json_object_get(record->json, "options"), "vocabulary");
    ids out = {record, json_object_get(record->json, "ids"), 0};
    ls_bytes token;
    while (ls_listops_token(&rest, &token)) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)token.count, (const char *)token.at);
        add(&out, id_of(vocabulary, name));
    }
    if (s4) add(&out, id_of(vocabulary, "<eos>"));
    finish(&out);
}

/* Characters that the vocabulary has, one fewer than there is room for, and the end. */
static ls_status compare_characters(ls_golden *record) {
    const json_t *options = json_object_get(record->json, "options");
    const json_t *vocabulary = json_object_get(options, "vocabulary");
    const size_t room = (size_t)json_integer_value(json_object_get(options, "l_max"));
    ids out = {record, json_object_get(record->json, "ids"), 0};
    ls_points text;
    LS_TRY(ls_golden_points(record, "input", &text));
    for (size_t i = 0; i < text.count && i + 1 < room; i++) {
        ls_text name = {0};
        ls_points_append(record->ctx, (ls_points){text.at + i, 1}, &name);
        LS_TRY(ls_text_status(&name));
        add(&out, id_of(vocabulary, name.bytes));
        ls_text_clear(record->ctx, &name);
    }
    add(&out, id_of(vocabulary, "<eos>"));
    finish(&out);
    return LS_OK;
}

static ls_status compare(ls_golden *record) {
    const char *reader;
    LS_TRY(ls_golden_text(record, "reader", &reader));
    snprintf(record->group, sizeof record->group, "lra %.40s", reader);
    const json_t *input = json_object_get(record->json, "input");
    const ls_bytes text = {(const uint8_t *)json_string_value(input), json_string_length(input)};
    if (strcmp(reader, "grey") == 0) {
        compare_grey(record, "grey_lra", ls_grey_lra);
        compare_grey(record, "grey_s4", ls_grey_s4);
        return LS_OK;
    }
    if (!json_is_string(input)) return ls_golden_fail(record, "input", "a text");
    if (strcmp(reader, "char_s4") == 0) return compare_characters(record);
    if (strncmp(reader, "listops_", 8) == 0) {
        compare_listops(record, text, strcmp(reader, "listops_s4") == 0);
        return LS_OK;
    }
    if (strcmp(reader, "byte") != 0) return ls_golden_fail(record, "reader", "one that is known");
    ids out = {record, json_object_get(record->json, "ids"), 0};
    int64_t most;
    LS_TRY(ls_golden_int(record, "max_length", 0, 1 << 24, &most));
    for (size_t i = 0; i < text.count && (int64_t)i < most; i++) add(&out, text.at[i] + 1);
    finish(&out);
    return LS_OK;
}

static ls_status read(ls_comparer *comparer) {
    return ls_compare_needs_golden(comparer);
}

static ls_status run(ls_comparer *comparer, ls_comparison *out) {
    return ls_goldens_compare(comparer, 0, compare, NULL, out);
}

static void clear(ls_comparer *comparer) {
    (void)comparer;
}

const ls_comparer_type ls_reader_comparer = {
    .name = "reader",
    .size = 1,
    .read = read,
    .run = run,
    .clear = clear,
};
