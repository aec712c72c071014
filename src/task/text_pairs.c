/* Key-value pairs as the suite `middle` writes them: a JSON object of short hexadecimal keys and
 * values, then questions for some of them, as many as fill the length. Scored are the values. */
#include <stdio.h>
#include <string.h>

#include "task/lib/writing.h"

typedef struct pairs_options {
    int64_t digits, pairs;
} pairs_options;
#define FIELD(name) pairs_options, name
static const ls_option options[] = {
    LS_INT("digits", FIELD(digits), "8", 1, 32, "Digits of a key, and of a value."),
    LS_INT("pairs", FIELD(pairs), "0", 0, 1 << 20,
           "Pairs at most, of which there are two at least; 0: as many as leave one question."),
};

enum { DIGITS = 33, LINE = 2 * DIGITS + 64 };
static const char json[] = "JSON data:\n";

static int64_t vocabulary(const void *given) {
    (void)given;
    return 256;
}

static int64_t pair_bytes(const pairs_options *o) {
    return 2 * o->digits + (int64_t)strlen("{\"\": \"\",\n");
}
static int64_t question_bytes(const pairs_options *o) {
    return 2 * o->digits + (int64_t)strlen("\n\nKey: \"\"\nCorresponding value: \"\"");
}
/* What is left for pairs and questions; the last pair ends without a comma and a newline, but with
 * a brace. */
static int64_t room(int64_t length) {
    return length + 2 - (int64_t)(strlen(ls_pairs_task) + strlen(json));
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    const pairs_options *o = given;
    const int64_t missing = 2 * pair_bytes(o) + question_bytes(o) - room(length);
    if (missing > 0)
        return LS_FAIL(ctx, LS_EUSE, "task text_pairs needs a length of at least %lld, not %lld",
                       (long long)(length + missing), (long long)length);
    return LS_OK;
}

static void put_pair(const pairs_options *o, ls_random keys, ls_random values, int64_t i,
                     int64_t pairs, ls_writing *w) {
    char key[DIGITS], value[DIGITS], line[LINE];
    ls_write_digits(keys, (uint64_t)i, o->digits, true, key);
    ls_write_digits(values, (uint64_t)i, o->digits, true, value);
    snprintf(line, sizeof line, "%s\"%s\": \"%s\"%s", i == 0 ? "{" : " ", key, value,
             i + 1 < pairs ? ",\n" : "}");
    ls_write_text(w, line, false);
}

static void put_question(const pairs_options *o, ls_random keys, ls_random values, int64_t i,
                         ls_writing *w) {
    char key[DIGITS], value[DIGITS], line[LINE];
    ls_write_digits(keys, (uint64_t)i, o->digits, true, key);
    ls_write_digits(values, (uint64_t)i, o->digits, true, value);
    snprintf(line, sizeof line, "\n\nKey: \"%s\"\nCorresponding value:", key);
    ls_write_text(w, line, false);
    snprintf(line, sizeof line, " \"%s\"", value);
    ls_write_text(w, line, true);
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const pairs_options *o = given;
    const ls_random keys = ls_task_stream(key, "keys"), values = ls_task_stream(key, "values");
    const ls_random asked = ls_task_stream(key, "questions");
    int64_t most = (room(length) - question_bytes(o)) / pair_bytes(o);
    if (o->pairs > 0) most = ls_max(2, ls_min(most, o->pairs));
    const int64_t pairs =
        2 + (int64_t)ls_random_below(ls_task_stream(key, "count"), 0, (uint64_t)most - 1);
    const int64_t left = room(length) - pairs * pair_bytes(o), questions = left / question_bytes(o);
    ls_writing w = {inputs, targets, length, 0};
    while (w.at < left - questions * question_bytes(o)) ls_write_text(&w, "\n", false);
    ls_write_text(&w, ls_pairs_task, false);
    ls_write_text(&w, json, false);
    for (int64_t i = 0; i < pairs; i++) put_pair(o, keys, values, i, pairs, &w);
    for (int64_t q = 0; q < questions; q++)
        put_question(o, keys, values, (int64_t)ls_random_below(asked, (uint64_t)q, (uint64_t)pairs),
                     &w);
}

const ls_task_type ls_task_text_pairs = {
    .name = "text_pairs",
    .summary = "key-value pairs and questions for them, as bytes of a text",
    .paper = "Liu et al. 2023 (Lost in the Middle)",
    .options = LS_OPTIONS(options, pairs_options),
    .length = 512,
    .bytes = true,
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
};
