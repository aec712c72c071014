/* Option tables: one table yields the parsing, the checks, the help, the manual, the completion
 * and the machine-readable listing of every setting.
 *
 * A table describes the fields of a C struct. Values arrive as text (from the command line or
 * from a recipe) and are typed by the table, never by guessing. */
#ifndef LS_BASE_OPTION_H
#define LS_BASE_OPTION_H

#include "base/memory.h"

typedef enum {
    LS_OPTION_INT,    /* int64_t, decimal digits; suffixes k, M, G = 1000^n, Ki, Mi, Gi = 1024^n */
    LS_OPTION_REAL,   /* double */
    LS_OPTION_BOOL,   /* bool: true|false|yes|no|on|off|1|0 */
    LS_OPTION_CHOICE, /* int: index into `choices`, which reads "a|b|c" */
    LS_OPTION_TEXT,   /* char[LS_OPTION_TEXT_BYTES] */
    LS_OPTION_REALS,  /* ls_reals: comma-separated numbers, may be empty */
} ls_option_type;

enum { LS_OPTION_TEXT_BYTES = 512, LS_OPTION_REALS_MAX = 256 };

typedef struct ls_reals {
    int64_t count;
    double at[LS_OPTION_REALS_MAX];
} ls_reals;

typedef struct ls_option {
    const char *key;
    ls_option_type type;
    size_t offset;        /* of the field in the options struct */
    const char *fallback; /* default, in the text form a user would write */
    double low, high;     /* inclusive range of INT, REAL and each of REALS */
    const char *choices;  /* CHOICE only */
    const char *help;     /* one sentence */
} ls_option;

typedef struct ls_option_table {
    const ls_option *options;
    size_t count;
    size_t size; /* sizeof the options struct */
} ls_option_table;

#define LS_OPTIONS(array, type)                                                                    \
    { (array), sizeof(array) / sizeof((array)[0]), sizeof(type) }

/* Fills `into` with the table's defaults. A default that does not parse is LS_EBUG. */
ls_status ls_options_default(ls_ctx *ctx, const ls_option_table *table, void *into);
/* Sets one field. `where` names the section for messages ("model." or ""). LS_EUSE for an unknown
 * key (naming the nearest), a value of the wrong type, or one out of range. */
ls_status ls_options_set(ls_ctx *ctx, const ls_option_table *table, const char *where,
                         const char *key, const char *value, void *into);
const ls_option *ls_options_find(const ls_option_table *table, const char *key);
/* Appends the field's value in the form that ls_options_set reads back to the same bits. */
void ls_option_print(ls_ctx *ctx, const ls_option *option, const void *from, ls_text *out);
/* The name of choice `index` of an option, copied into out. */
void ls_option_choice_name(const ls_option *option, int index, char *out, size_t bytes);
/* The names that a word was chosen from: that of an index, NULL after the last. */
typedef const char *(*ls_name_at)(const void *list, size_t index);
/* LS_EUSE for a word that is none of them: "there is no WHAT WORD: did you mean NAME?" where one is
 * near, else with all the names where they are few. `where` ("model." or "") stands before the word
 * and the names. A word that is one of the names has no effect where it was given, and the message
 * says that. */
ls_status ls_fail_unknown(ls_ctx *ctx, const char *what, const char *where, const char *word,
                          ls_name_at name_at, const void *list);
/* The index of the one that the word is, or LS_EUSE as above. */
ls_status ls_name_find(ls_ctx *ctx, const char *what, const char *word, ls_name_at name_at,
                       const void *list, size_t *index);
/* ls_name_at of a NULL-ended array of texts. */
const char *ls_name_in_array(const void *list, size_t index);
/* Strict whole-text numbers; false where anything is left over or out of range. */
bool ls_parse_int(const char *text, int64_t *out);
bool ls_parse_real(const char *text, double *out);

#endif
