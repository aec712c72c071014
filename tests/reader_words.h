/* Lists of words in the tables of readers' tests, and settings that must be as such a list says. */
#ifndef LS_TESTS_READER_WORDS_H
#define LS_TESTS_READER_WORDS_H

#include <math.h>
#include <stdlib.h>

#include "base/settings.h"
#include "reader_edges.h"

/* One word of a list with spaces between them: up to `=` its name, behind it its value. A name that
 * begins with A. is below that of an architecture. */
typedef struct word {
    char name[160];
    const char *value;
    size_t length;
} word;

static inline bool next_word(const char **at, const char *architecture, word *out) {
    *at += strspn(*at, " ");
    if (**at == '\0') return false;
    const size_t name = strcspn(*at, "= "), whole = strcspn(*at, " ");
    const size_t mark = **at == '-', own = strncmp(*at + mark, "A.", 2) == 0;
    snprintf(out->name, sizeof out->name, "%s%s%.*s", mark ? "-" : "", own ? architecture : "",
             (int)(name - mark - own), *at + mark + own);
    out->value = *at + name + (name < whole);
    out->length = name < whole ? whole - name - 1 : 0;
    *at += whole;
    return true;
}

/* KEY=VALUE, numbers by their value; -KEY: there is none. NULL: whatever they are. */
static inline void expect_settings(const char *about, const ls_settings *settings,
                                   const char *words) {
    word w;
    while (words != NULL && next_word(&words, "", &w)) {
        char wanted[160];
        snprintf(wanted, sizeof wanted, "%.*s", (int)w.length, w.value);
        const bool none = w.name[0] == '-';
        const char *given = ls_settings_get(settings, w.name + none);
        char *end = NULL;
        const double number = strtod(wanted, &end);
        const bool is_number = *end == '\0' && wanted[0] != '\0';
        const bool good = none || given == NULL ? none && given == NULL
                          : is_number ? fabs(strtod(given, NULL) - number) <= 1e-6 * fabs(number)
                                      : strcmp(given, wanted) == 0;
        if (!good)
            fail_msg("%s: %s is %s in place of %s", about, w.name + none,
                     given == NULL ? "missing" : given, none ? "nothing" : wanted);
    }
}

#endif
