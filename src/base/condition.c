/* Conditions of options: see option.h. */
#include <string.h>

#include "base/option.h"

const ls_fact ls_training_facts[] = {{"training", "true"}, {0}};

enum { WORD_BYTES = 128 };

/* Copies the next word of a condition and moves past it; false at the end. */
static bool next_word(const char **text, char word[WORD_BYTES]) {
    *text += strspn(*text, " ");
    const size_t length = strcspn(*text, " ");
    if (length == 0 || length >= WORD_BYTES) return false;
    memcpy(word, *text, length);
    word[length] = '\0';
    *text += length;
    return true;
}

/* Whether a text is one of those between commas. */
static bool is_in_list(const char *text, const char *list) {
    const size_t length = strlen(text);
    for (;;) {
        list += strspn(list, " ");
        const size_t here = strcspn(list, ",");
        if (here == length && strncmp(text, list, length) == 0) return true;
        if (list[here] == '\0') return false;
        list += here + 1;
    }
}

/* Whether a field has the value that a text stands for. */
static bool field_is(const ls_option *option, const void *field, const char *text) {
    int64_t whole;
    double number;
    char name[WORD_BYTES];
    switch (option->type) {
    case LS_OPTION_INT:
        return ls_parse_int(text, &whole) && *(const int64_t *)field == whole;
    case LS_OPTION_REAL:
        return ls_parse_real(text, &number) && *(const double *)field == number;
    case LS_OPTION_BOOL:
        return strcmp(text, *(const bool *)field ? "true" : "false") == 0;
    case LS_OPTION_CHOICE:
        ls_option_choice_name(option, *(const int *)field, name, sizeof name);
        return strcmp(text, name) == 0;
    case LS_OPTION_TEXT:
        if (strcmp(text, "NUMBER") == 0) return ls_parse_int(field, &whole);
        return is_in_list(text, field);
    case LS_OPTION_INTS:
        return *text == '\0' && ((const ls_ints *)field)->count == 0;
    case LS_OPTION_REALS:
        return *text == '\0' && ((const ls_reals *)field)->count == 0;
    }
    return false;
}

/* What tests are made against. */
typedef struct values {
    const ls_option_table *table;
    const void *from;
    const ls_fact *facts;
} values;

static bool key_is(const values *v, const char *key, const char *value, bool wanted) {
    const ls_option *option = ls_options_find(v->table, key);
    if (option != NULL)
        return field_is(option, (const char *)v->from + option->offset, value) == wanted;
    for (const ls_fact *fact = v->facts; fact != NULL && fact->name != NULL; fact++)
        if (strcmp(fact->name, key) == 0 && (strcmp(fact->value, value) == 0) == wanted)
            return true;
    return false;
}

/* Whether a key is not empty, 0 or false; or the fact of that name holds. */
static bool is_set(const values *v, const char *key) {
    const ls_option *option = ls_options_find(v->table, key);
    if (option == NULL) return key_is(v, key, "true", true);
    const void *field = (const char *)v->from + option->offset;
    if (option->type == LS_OPTION_TEXT) return strcmp(field, "") != 0 && strcmp(field, "0") != 0;
    return !field_is(option, field, "") && !field_is(option, field, "0") &&
           !field_is(option, field, "false");
}

/* One test: KEY=A|B, KEY!=A, or KEY. */
static bool test_holds(const values *v, char *test) {
    char *equals = strchr(test, '=');
    if (equals == NULL) return is_set(v, test);
    const bool differs = equals > test && equals[-1] == '!';
    equals[differs ? -1 : 0] = '\0';
    char *value = equals + 1;
    for (;;) {
        char *bar = strchr(value, '|');
        if (bar != NULL) *bar = '\0';
        if (key_is(v, test, value, !differs)) return true;
        if (bar == NULL) return false;
        value = bar + 1;
    }
}

bool ls_option_has_effect(const ls_option *option, const ls_option_table *table, const void *from,
                          const ls_fact *facts) {
    const values v = {table, from, facts};
    const char *rest = option->needs;
    char word[WORD_BYTES];
    bool all = true, wanted = true; /* tests since the last `or`; false after `no` */
    if (rest == NULL) return true;
    while (next_word(&rest, word)) {
        if (strcmp(word, "or") == 0) {
            if (all) return true;
            all = true;
        } else if (strcmp(word, "no") == 0) {
            wanted = false;
        } else if (strcmp(word, "and") != 0) {
            all = all && test_holds(&v, word) == wanted;
            wanted = true;
        }
    }
    return all;
}

ls_status ls_option_check_effect(ls_ctx *ctx, const ls_option *option, const ls_option_table *table,
                                 const char *key, const void *from, const ls_fact *facts) {
    if (ls_option_has_effect(option, table, from, facts)) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "%s has no effect here: it needs %s", key, option->needs);
}
