/* One number of kept figures, by words: for sentences that say it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/figures_print.h"

enum { KEY_BYTES = 64 };

/* The = of the pair that begins here; NULL: none does. */
static const char *pair_at(const char *at) {
    const size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
    return length > 0 && length < KEY_BYTES && at[length] == '=' ? at + length : NULL;
}

/* A value ends where the next pair begins, or the words end. */
static const char *value_end(const char *value) {
    const char *at = value;
    while (*at != '\0' && !(*at == ' ' && pair_at(at + 1) != NULL)) at++;
    return at;
}

static bool is_value(const json_t *member, const char *value, size_t length) {
    char *behind;
    if (json_is_string(member))
        return json_string_length(member) == length &&
               memcmp(json_string_value(member), value, length) == 0;
    if (json_is_boolean(member)) {
        const char *word = json_is_true(member) ? "true" : "false";
        return strlen(word) == length && memcmp(word, value, length) == 0;
    }
    const double number = strtod(value, &behind);
    return json_is_number(member) && behind == value + length &&
           number == json_number_value(member);
}

bool ls__figures_has(const json_t *row, const char *words) {
    for (const char *at = words; *at != '\0';) {
        char key[KEY_BYTES];
        const char *equals = pair_at(at);
        if (equals == NULL) return false;
        const char *end = value_end(equals + 1);
        snprintf(key, sizeof key, "%.*s", (int)(equals - at), at);
        if (!is_value(json_object_get(row, key), equals + 1, (size_t)(end - equals - 1)))
            return false;
        at = *end == ' ' ? end + 1 : end;
    }
    return true;
}

/* In the units of the tables. */
static double measure_of(const json_t *row, const char *name) {
    static const struct {
        const char *name, *key;
        double scale;
    } units[] = {{"ms", "seconds", 1e3},
                 {"kB", "bytes", 1e-3},
                 {"MB", "bytes", 1e-6},
                 {"GB", "bytes", 1e-9},
                 {"spread", "spread", 100}};
    if (strcmp(name, "tokens_per_second") == 0) return ls__figures_rate(row);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(name, units[i].name) == 0)
            return units[i].scale * ls_member_real(row, units[i].key);
    return ls_member_real(row, name);
}

double ls_figures_lookup(const json_t *figures, const char *words) {
    char part[KEY_BYTES], measure[KEY_BYTES];
    const json_t *found = NULL;
    int used = 0;
    if (sscanf(words, "%63s %63s %n", part, measure, &used) != 2) return NAN;
    const json_t *rows = json_object_get(figures, part);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (!ls__figures_has(row, words + used)) continue;
        if (found != NULL) return NAN; /* which of them? */
        found = row;
    }
    return measure_of(found, measure);
}
