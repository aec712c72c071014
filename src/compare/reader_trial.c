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

typedef struct vocabulary {
    json_t *ids; /* by name */
    int64_t unknown;
} vocabulary;

/* A list of names, which count from 1, the first of equal ones, and a number more is unknown; or a
 * mapping to numbers, of which 1 is unknown. *out is cleared by the caller in any case. */
static ls_status read_vocabulary(const ls_golden *record, vocabulary *out) {
    json_t *given = json_object_get(json_object_get(record->json, "options"), "vocabulary"), *one;
    const char *name;
    size_t i;
    *out = (vocabulary){.unknown = 1};
    if (json_is_object(given)) {
        int64_t id;
        out->ids = json_incref(given);
        json_object_foreach(given, name, one)
            LS_TRY(ls_golden_value(record, "an entry of vocabulary", one, 0, INT32_MAX, &id));
        return LS_OK;
    }
    if (!json_is_array(given)) return ls_golden_fail(record, "vocabulary", "a list or a mapping");
    out->ids = json_object();
    out->unknown = (int64_t)json_array_size(given) + 1;
    bool good = out->ids != NULL;
    json_array_foreach(given, i, one) {
        name = json_string_value(one);
        if (name == NULL) return ls_golden_fail(record, "an entry of vocabulary", "a text");
        if (json_object_get(out->ids, name) != NULL) continue;
        good = good && json_object_set_new(out->ids, name, json_integer((json_int_t)i + 1)) == 0;
    }
    return good ? LS_OK : LS_FAIL(record->ctx, LS_ENOMEM, "no memory for a vocabulary");
}

static int64_t id_of(const vocabulary *names, const char *name) {
    const json_t *id = json_object_get(names->ids, name);
    return id == NULL ? names->unknown : json_integer_value(id);
}

static ls_status compare_grey(ls_golden *record, const char *key,
                              int32_t (*grey)(uint8_t, uint8_t, uint8_t)) {
    const json_t *pixels = json_object_get(record->json, "input");
    ids out = {record, json_object_get(record->json, key), 0};
    for (size_t i = 0; i < json_array_size(pixels); i++) {
        const json_t *pixel = json_array_get(pixels, i);
        int64_t colours[3];
        for (size_t c = 0; c < 3; c++)
            LS_TRY(ls_golden_value(record, "a colour", json_array_get(pixel, c), 0, UINT8_MAX,
                                   &colours[c]));
        add(&out, grey((uint8_t)colours[0], (uint8_t)colours[1], (uint8_t)colours[2]));
    }
    finish(&out);
    return LS_OK;
}

static void compare_listops(ls_golden *record, const vocabulary *names, ls_bytes rest, bool s4) {
    ids out = {record, json_object_get(record->json, "ids"), 0};
    ls_bytes token;
    while (ls_listops_token(&rest, &token)) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)token.count, (const char *)token.at);
        add(&out, id_of(names, name));
    }
    if (s4) add(&out, id_of(names, "<eos>"));
    finish(&out);
}

/* Characters that the vocabulary has, one fewer than there is room for, and the end. */
static ls_status compare_characters(ls_golden *record, const vocabulary *names) {
    const json_t *options = json_object_get(record->json, "options");
    ids out = {record, json_object_get(record->json, "ids"), 0};
    ls_points text;
    int64_t room;
    LS_TRY(ls_golden_points(record, "input", &text));
    LS_TRY(ls_golden_value(record, "options.l_max", json_object_get(options, "l_max"), 0, 1 << 30,
                           &room));
    for (size_t i = 0; i < text.count && (int64_t)i + 1 < room; i++) {
        ls_text name = {0};
        ls_points_append(record->ctx, (ls_points){text.at + i, 1}, &name);
        LS_TRY(ls_text_status(&name));
        add(&out, id_of(names, name.bytes));
        ls_text_clear(record->ctx, &name);
    }
    add(&out, id_of(names, "<eos>"));
    finish(&out);
    return LS_OK;
}

/* Readers that have a vocabulary. */
static ls_status compare_named(ls_golden *record, const char *reader, ls_bytes text) {
    vocabulary names;
    ls_status status = read_vocabulary(record, &names);
    if (status == LS_OK && strcmp(reader, "char_s4") == 0)
        status = compare_characters(record, &names);
    else if (status == LS_OK)
        compare_listops(record, &names, text, strcmp(reader, "listops_s4") == 0);
    json_decref(names.ids);
    return status;
}

static ls_status compare(ls_golden *record) {
    const char *reader;
    LS_TRY(ls_golden_text(record, "reader", &reader));
    snprintf(record->group, sizeof record->group, "lra %.40s", reader);
    const json_t *input = json_object_get(record->json, "input");
    const ls_bytes text = {(const uint8_t *)json_string_value(input), json_string_length(input)};
    if (strcmp(reader, "grey") == 0) {
        LS_TRY(compare_grey(record, "grey_lra", ls_grey_lra));
        return compare_grey(record, "grey_s4", ls_grey_s4);
    }
    if (!json_is_string(input)) return ls_golden_fail(record, "input", "a text");
    if (strcmp(reader, "char_s4") == 0 || strncmp(reader, "listops_", 8) == 0)
        return compare_named(record, reader, text);
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
