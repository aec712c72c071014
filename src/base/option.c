#include "base/option.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool ls_parse_int(const char *text, int64_t *out) {
    bool negative = *text == '-';
    const char *c = text + (negative || *text == '+');
    if (!isdigit((unsigned char)*c)) return false;
    int64_t value = 0;
    for (; isdigit((unsigned char)*c); c++)
        if (!ls_mul(value, 10, &value) || !ls_add(value, *c - '0', &value)) return false;
    static const struct {
        const char *suffix;
        int64_t times;
    } scales[] = {{"", 1},         {"k", 1000},     {"M", 1000000}, {"G", 1000000000},
                  {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}};
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
        if (strcmp(c, scales[i].suffix) == 0) {
            if (!ls_mul(value, scales[i].times, &value)) return false;
            *out = negative ? -value : value;
            return true;
        }
    return false;
}

bool ls_parse_real(const char *text, double *out) {
    if (*text == '\0' || isspace((unsigned char)*text)) return false;
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (*end != '\0' || isnan(value) || (errno == ERANGE && fabs(value) > 1)) return false;
    *out = value;
    return true;
}

/* Edits that turn one text into the other. */
static int distance(const char *a, const char *b) {
    enum { LENGTH_MAX = 64 };
    int row[LENGTH_MAX + 1];
    size_t n = strlen(b);
    if (n > LENGTH_MAX || strlen(a) > LENGTH_MAX) return LENGTH_MAX;
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

const char *ls_name_in_array(const void *list, size_t index) {
    return ((const char *const *)list)[index];
}

const char *ls_name_nearest(const char *word, ls_name_at name_at, const void *list) {
    enum { EDITS_MAX = 3 };
    const char *nearest = NULL, *name;
    int fewest = EDITS_MAX + 1;
    if ((int)strlen(word) < fewest) fewest = (int)strlen(word); /* not every letter of it */
    for (size_t i = 0; (name = name_at(list, i)) != NULL; i++) {
        const char *dot = strchr(word, '.') == NULL ? strrchr(name, '.') : NULL;
        const int whole = distance(word, name),
                  bare = dot == NULL ? whole : distance(word, dot + 1);
        const int edits = bare < whole ? bare : whole; /* it may lack its section */
        if (edits < fewest) fewest = edits, nearest = name;
    }
    return nearest;
}

ls_status ls_fail_unknown(ls_ctx *ctx, const char *what, const char *where, const char *word,
                          ls_name_at name_at, const void *list) {
    const char *nearest = ls_name_nearest(word, name_at, list), *name;
    char names[300] = "";
    size_t used = 0;
    for (size_t i = 0; (name = name_at(list, i)) != NULL; i++) {
        if (strcmp(word, name) == 0)
            return LS_FAIL(ctx, LS_EUSE, "the %s %s%s has no effect here", what, where, word);
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s%s",
                                     used == 0 ? "" : ", ", where, name);
    }
    if (nearest != NULL)
        return LS_FAIL(ctx, LS_EUSE, "there is no %s %s%s: did you mean %s%s?", what, where, word,
                       where, nearest);
    if (used == 0 || used >= sizeof names)
        return LS_FAIL(ctx, LS_EUSE, "there is no %s %s%s here", what, where, word);
    return LS_FAIL(ctx, LS_EUSE, "there is no %s %s%s; there are %s", what, where, word, names);
}

/* How many keys of ctx->sections have the last word of one that is in none of its own section; the
 * first of them into `out`. 0 where it is there itself: that one has no effect, or another kind of
 * mixer has it. */
static int keys_elsewhere(const ls_ctx *ctx, const char *where, const char *word, char *out,
                          size_t bytes) {
    const char *dot = strrchr(word, '.'), *last = dot == NULL ? word : dot + 1;
    char given[256], key[256];
    int found = 0;
    snprintf(given, sizeof given, "%s%s", where, word);
    for (const ls_section *const *list = ctx->sections; list != NULL && *list != NULL; list++)
        for (const ls_section *s = *list; s->table != NULL; s++) {
            if (ls_options_find(s->table, last) == NULL) continue;
            snprintf(key, sizeof key, "%s%s%s", s->prefix, s->prefix[0] == '\0' ? "" : ".", last);
            if (strcmp(key, given) == 0) return 0;
            if (found > 0 && strcmp(key, out) == 0) continue; /* a section of two tables */
            if (found++ == 0) snprintf(out, bytes, "%s", key);
        }
    return found;
}

ls_status ls_fail_unknown_key(ls_ctx *ctx, const char *where, const char *word, ls_name_at name_at,
                              const void *list) {
    char key[256];
    const int found = keys_elsewhere(ctx, where, word, key, sizeof key);
    const char *nearest = ls_name_nearest(word, name_at, list);
    if (found == 1 && nearest != NULL && strchr(nearest, '.') == NULL &&
        distance(word, nearest) == 1)
        return LS_FAIL(ctx, LS_EUSE, "there is no key %s%s: did you mean %s or %s%s?", where, word,
                       key, where, nearest);
    if (found == 1 || (found > 1 && nearest == NULL))
        return LS_FAIL(ctx, LS_EUSE, "there is no key %s%s: did you mean %s?", where, word, key);
    return ls_fail_unknown(ctx, "key", where, word, name_at, list);
}

ls_status ls_name_find(ls_ctx *ctx, const char *what, const char *word, ls_name_at name_at,
                       const void *list, size_t *index) {
    const char *name;
    for (*index = 0; (name = name_at(list, *index)) != NULL; ++*index)
        if (strcmp(name, word) == 0) return LS_OK;
    return ls_fail_unknown(ctx, what, "", word, name_at, list);
}

const ls_option *ls_options_find(const ls_option_table *table, const char *key) {
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->options[i].key, key) == 0) return &table->options[i];
    return NULL;
}

static int choice_index(const char *choices, const char *value) {
    size_t length = strlen(value);
    int index = 0;
    for (const char *c = choices; length > 0; index++) {
        size_t here = strcspn(c, "|");
        if (here == length && memcmp(c, value, length) == 0) return index;
        if (c[here] == '\0') break;
        c += here + 1;
    }
    return -1;
}

void ls_option_choice_name(const ls_option *option, int index, char *out, size_t bytes) {
    const char *c = option->choices;
    for (; index > 0 && *c != '\0'; index--) {
        c += strcspn(c, "|");
        if (*c == '|') c++;
    }
    snprintf(out, bytes, "%.*s", (int)strcspn(c, "|"), c);
}

static ls_status out_of_range(ls_ctx *ctx, const char *where, const ls_option *option,
                              const char *value) {
    return LS_FAIL(ctx, LS_EUSE, "%s%s=%s is out of range: use %.12g to %.12g (%s)", where,
                   option->key, value, option->low, option->high, option->help);
}

/* A whole number, also in the notation of reals: 2e+04. */
static bool parse_whole(const char *text, int64_t *out) {
    const double exact = 9007199254740992.0; /* 2^53: reals below it are whole numbers exactly */
    double number;
    if (ls_parse_int(text, out)) return true;
    if (!ls_parse_real(text, &number) || fabs(number) > exact || number != floor(number))
        return false;
    *out = (int64_t)number;
    return true;
}

/* One number of a list, into its place. */
static ls_status set_element(ls_ctx *ctx, const char *where, const ls_option *option,
                             const char *text, int64_t i, void *list) {
    const bool ints = option->type == LS_OPTION_INTS;
    int64_t whole;
    double number;
    if (parse_whole(text, &whole))
        number = (double)whole;
    else if (ints || !ls_parse_real(text, &number))
        return LS_FAIL(ctx, LS_EUSE, "%s%s: `%s` is not a %snumber (write them as 1,2,4)", where,
                       option->key, text, ints ? "whole " : "");
    if (number < option->low || number > option->high)
        return out_of_range(ctx, where, option, text);
    if (ints)
        ((ls_ints *)list)->at[i] = whole;
    else
        ((ls_reals *)list)->at[i] = number;
    return LS_OK;
}

static ls_status set_list(ls_ctx *ctx, const char *where, const ls_option *option,
                          const char *value, void *into) {
    union {
        ls_ints ints;
        ls_reals reals;
    } list = {0};
    int64_t count = 0;
    for (const char *c = value; *c != '\0'; count++) {
        char one[64];
        c += strspn(c, " ");
        const size_t here = strcspn(c, ",");
        if (count == LS_OPTION_LIST_MAX)
            return LS_FAIL(ctx, LS_EUSE, "%s%s: at most %d numbers fit", where, option->key,
                           LS_OPTION_LIST_MAX);
        snprintf(one, sizeof one, "%.*s", (int)(here < sizeof one ? here : sizeof one - 1), c);
        LS_TRY(set_element(ctx, where, option, one, count, &list));
        c += here;
        if (*c == ',') c++;
    }
    if (option->type == LS_OPTION_INTS) {
        list.ints.count = count;
        *(ls_ints *)into = list.ints;
    } else {
        list.reals.count = count;
        *(ls_reals *)into = list.reals;
    }
    return LS_OK;
}

static ls_status set_field(ls_ctx *ctx, const char *where, const ls_option *option,
                           const char *value, void *field) {
    switch (option->type) {
    case LS_OPTION_INT: {
        int64_t number;
        if (!ls_parse_int(value, &number))
            return LS_FAIL(ctx, LS_EUSE, "%s%s=%s is not a whole number (%s)", where, option->key,
                           value, option->help);
        if ((double)number < option->low || (double)number > option->high)
            return out_of_range(ctx, where, option, value);
        *(int64_t *)field = number;
        return LS_OK;
    }
    case LS_OPTION_REAL: {
        double number;
        if (!ls_parse_real(value, &number))
            return LS_FAIL(ctx, LS_EUSE, "%s%s=%s is not a number (%s)", where, option->key, value,
                           option->help);
        if (number < option->low || number > option->high)
            return out_of_range(ctx, where, option, value);
        *(double *)field = number;
        return LS_OK;
    }
    case LS_OPTION_BOOL: {
        static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
        for (int i = 0; i < 8; i++)
            if (strcmp(value, words[i]) == 0) {
                *(bool *)field = i % 2 == 1;
                return LS_OK;
            }
        return LS_FAIL(ctx, LS_EUSE, "%s%s=%s: write true or false (%s)", where, option->key, value,
                       option->help);
    }
    case LS_OPTION_CHOICE: {
        int index = choice_index(option->choices, value);
        if (index < 0)
            return LS_FAIL(ctx, LS_EUSE, "%s%s=%s: choose one of %s", where, option->key, value,
                           option->choices);
        *(int *)field = index;
        return LS_OK;
    }
    case LS_OPTION_TEXT: {
        const size_t bytes = option->bytes == 0 ? LS_OPTION_TEXT_BYTES : option->bytes;
        if (strlen(value) >= bytes)
            return LS_FAIL(ctx, LS_EUSE, "%s%s: the text is longer than %zu bytes", where,
                           option->key, bytes - 1);
        memset(field, 0, bytes);
        memcpy(field, value, strlen(value));
        return LS_OK;
    }
    case LS_OPTION_INTS:
    case LS_OPTION_REALS:
        return set_list(ctx, where, option, value, field);
    }
    return LS_FAIL(ctx, LS_EBUG, "option %s has no type", option->key);
}

ls_status ls_options_default(ls_ctx *ctx, const ls_option_table *table, void *into) {
    memset(into, 0, table->size);
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        if (set_field(ctx, "", option, option->fallback, (char *)into + option->offset) != LS_OK)
            return LS_EBUG;
    }
    return LS_OK;
}

static const char *key_at(const void *list, size_t index) {
    const ls_option_table *table = list;
    return index < table->count ? table->options[index].key : NULL;
}

ls_status ls_options_set(ls_ctx *ctx, const ls_option_table *table, const char *where,
                         const char *key, const char *value, void *into) {
    const ls_option *option = ls_options_find(table, key);
    if (option != NULL) return set_field(ctx, where, option, value, (char *)into + option->offset);
    return ls_fail_unknown_key(ctx, where, key, key_at, table);
}

/* The shortest text that strtod reads back to the same bits. */
static void print_real(ls_ctx *ctx, ls_text *out, double value) {
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    ls_text_printf(ctx, out, "%s", text);
}

void ls_option_print(ls_ctx *ctx, const ls_option *option, const void *from, ls_text *out) {
    const void *field = (const char *)from + option->offset;
    switch (option->type) {
    case LS_OPTION_INT:
        ls_text_printf(ctx, out, "%lld", (long long)*(const int64_t *)field);
        break;
    case LS_OPTION_REAL:
        print_real(ctx, out, *(const double *)field);
        break;
    case LS_OPTION_BOOL:
        ls_text_printf(ctx, out, "%s", *(const bool *)field ? "true" : "false");
        break;
    case LS_OPTION_CHOICE: {
        char name[64];
        ls_option_choice_name(option, *(const int *)field, name, sizeof name);
        ls_text_printf(ctx, out, "%s", name);
        break;
    }
    case LS_OPTION_TEXT:
        ls_text_printf(ctx, out, "%s", (const char *)field);
        break;
    case LS_OPTION_INTS: {
        const ls_ints *ints = field;
        for (int64_t i = 0; i < ints->count; i++)
            ls_text_printf(ctx, out, "%s%lld", i > 0 ? "," : "", (long long)ints->at[i]);
        break;
    }
    case LS_OPTION_REALS: {
        const ls_reals *reals = field;
        for (int64_t i = 0; i < reals->count; i++) {
            if (i > 0) ls_text_append(ctx, out, ",", 1);
            print_real(ctx, out, reals->at[i]);
        }
        break;
    }
    }
}
