/* Option tables: one table yields the parsing, the checks, the help, the manual, the completion
 * and the machine-readable listing of every setting.
 *
 * A table describes the fields of a C struct. Values arrive as text (from the command line or
 * from a recipe) and are typed by the table, never by guessing. */
#ifndef LS_BASE_OPTION_H
#define LS_BASE_OPTION_H

#include "base/memory.h"

/* The largest seed anywhere: one that a study takes suits its trainings too. Below 2^53, so exact as
 * a real. */
#define LS_SEED_MAX 9e15

typedef enum {
    LS_OPTION_INT,    /* int64_t, decimal digits; suffixes k, M, G = 1000^n, Ki, Mi, Gi = 1024^n */
    LS_OPTION_REAL,   /* double */
    LS_OPTION_BOOL,   /* bool: true|false|yes|no|on|off|1|0 */
    LS_OPTION_CHOICE, /* int: index into `choices`, which reads "a|b|c" */
    LS_OPTION_TEXT,   /* char[LS_OPTION_TEXT_BYTES], or of more bytes */
    LS_OPTION_INTS,   /* ls_ints: comma-separated whole numbers, may be empty */
    LS_OPTION_REALS,  /* ls_reals: comma-separated numbers, may be empty */
} ls_option_type;

enum { LS_OPTION_TEXT_BYTES = 512, LS_OPTION_LONG_TEXT_BYTES = 64 << 10, LS_OPTION_LIST_MAX = 256 };

typedef char ls_option_text[LS_OPTION_TEXT_BYTES];
typedef char ls_option_long_text[LS_OPTION_LONG_TEXT_BYTES];

typedef struct ls_ints {
    int64_t count, at[LS_OPTION_LIST_MAX];
} ls_ints;

typedef struct ls_reals {
    int64_t count;
    double at[LS_OPTION_LIST_MAX];
} ls_reals;

typedef struct ls_option {
    const char *key;
    ls_option_type type;
    size_t offset;        /* of the field in the options struct */
    const char *fallback; /* default, in the text form a user would write */
    double low, high;     /* inclusive range of INT, REAL and each of INTS and REALS */
    const char *choices;  /* CHOICE only */
    size_t bytes;         /* TEXT only: of the field; 0: LS_OPTION_TEXT_BYTES */
    const char *help;     /* a sentence: "Heads of queries; 0: as many as heads." */
    const char *needs;    /* condition without which the option has no effect; NULL: none */
} ls_option;

/* Rows of a table: LS_INT("heads", FIELD(heads), "8", 1, 4096, "Query heads."). FIELD(name), which
 * a file defines as `its_options, name`, stands for a struct and a field of it, whose C type must
 * be that of the option. After the help there may be .needs = "rotation=xpos". */
#define LS_INT(name, at, usual, least, most, ...)                                                  \
    {                                                                                              \
        .key = name, .type = LS_OPTION_INT, .offset = LS_OFFSET(int64_t, at), .fallback = usual,   \
        .low = least, .high = most, .help = __VA_ARGS__                                            \
    }
#define LS_REAL(name, at, usual, least, most, ...)                                                 \
    {                                                                                              \
        .key = name, .type = LS_OPTION_REAL, .offset = LS_OFFSET(double, at), .fallback = usual,   \
        .low = least, .high = most, .help = __VA_ARGS__                                            \
    }
#define LS_INTS(name, at, usual, least, most, ...)                                                 \
    {                                                                                              \
        .key = name, .type = LS_OPTION_INTS, .offset = LS_OFFSET(ls_ints, at), .fallback = usual,  \
        .low = least, .high = most, .help = __VA_ARGS__                                            \
    }
#define LS_REALS(name, at, usual, least, most, ...)                                                \
    {                                                                                              \
        .key = name, .type = LS_OPTION_REALS, .offset = LS_OFFSET(ls_reals, at),                   \
        .fallback = usual, .low = least, .high = most, .help = __VA_ARGS__                         \
    }
#define LS_BOOL(name, at, usual, ...)                                                              \
    {                                                                                              \
        .key = name, .type = LS_OPTION_BOOL, .offset = LS_OFFSET(bool, at), .fallback = usual,     \
        .help = __VA_ARGS__                                                                        \
    }
#define LS_TEXT(name, at, usual, ...)                                                              \
    {                                                                                              \
        .key = name, .type = LS_OPTION_TEXT, .offset = LS_OFFSET(ls_option_text, at),              \
        .fallback = usual, .help = __VA_ARGS__                                                     \
    }
#define LS_LONG_TEXT(name, at, usual, ...)                                                         \
    {                                                                                              \
        .key = name, .type = LS_OPTION_TEXT, .offset = LS_OFFSET(ls_option_long_text, at),         \
        .bytes = LS_OPTION_LONG_TEXT_BYTES, .fallback = usual, .help = __VA_ARGS__                 \
    }
#define LS_CHOICE(name, at, usual, names, ...)                                                     \
    {                                                                                              \
        .key = name, .type = LS_OPTION_CHOICE, .offset = LS_OFFSET(int, at), .fallback = usual,    \
        .choices = names, .help = __VA_ARGS__                                                      \
    }
/* The offset of a field of that type; of another type it does not compile. */
#define LS_OFFSET(type, ...) LS_OFFSET_OF(type, __VA_ARGS__)
#define LS_OFFSET_OF(type, options, field)                                                         \
    _Generic(&((options *)0)->field, type * : offsetof(options, field))

typedef struct ls_option_table {
    const ls_option *options;
    size_t count;
    size_t size; /* sizeof the options struct */
} ls_option_table;

#define LS_OPTIONS(array, type)                                                                    \
    { (array), sizeof(array) / sizeof((array)[0]), sizeof(type) }

/* Keys "prefix.KEY" (prefix "": KEY alone) of one table. */
typedef struct ls_section {
    const char *prefix;
    const ls_option_table *table; /* NULL ends a list */
} ls_section;

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

/* Conditions
 *
 * A condition reads "rotation=xpos", "head=classify|match", "adaptive_cutoffs" or "queries=learned
 * or features=fourier and no grid": tests joined by `and`, and these by `or`. A test is of a key of
 * the same table, or of a fact: KEY=A|B, KEY!=A, KEY for one that is not empty, 0 or false, `no
 * KEY` for one that is. Of a text with commas each part counts ("protocol=slide|winmean"), and
 * KEY=NUMBER is a text that is a whole number. */
typedef struct ls_fact {
    const char *name, *value;
} ls_fact;

/* Whether an option has an effect: its condition holds for the values of its table in `from`, and
 * the facts (ended by {0}; NULL: none). A fact with several values has each of them somewhere. */
bool ls_option_has_effect(const ls_option *option, const ls_option_table *table, const void *from,
                          const ls_fact *facts);
/* The facts of a training, which options that shape it alone need. */
extern const ls_fact ls_training_facts[];
/* LS_EUSE where it has none: "mixer.scale_base has no effect here: it needs rotation=xpos". */
ls_status ls_option_check_effect(ls_ctx *ctx, const ls_option *option, const ls_option_table *table,
                                 const char *key, const void *from, const ls_fact *facts);

/* The names that a word was chosen from: that of an index, NULL after the last. */
typedef const char *(*ls_name_at)(const void *list, size_t index);
/* The one that a word was perhaps meant to be; NULL where none is near. */
const char *ls_name_nearest(const char *word, ls_name_at name_at, const void *list);
/* LS_EUSE for a word that is none of them: "there is no WHAT WORD: did you mean NAME?" where one is
 * near, else with all the names where they are few. `where` ("model." or "") stands before the word
 * and the names. A word that is one of the names has no effect where it was given, and the message
 * says that. */
ls_status ls_fail_unknown(ls_ctx *ctx, const char *what, const char *where, const char *word,
                          ls_name_at name_at, const void *list);
/* The same of a key that its own section (`where`, or `word` itself) has not. If another section of
 * ctx->sections has one of that name, it is named before any that is spelled much alike; if several
 * have one, only where none is spelled alike. */
ls_status ls_fail_unknown_key(ls_ctx *ctx, const char *where, const char *word, ls_name_at name_at,
                              const void *list);
/* The index of the one that the word is, or LS_EUSE as above. */
ls_status ls_name_find(ls_ctx *ctx, const char *what, const char *word, ls_name_at name_at,
                       const void *list, size_t *index);
/* ls_name_at of a NULL-ended array of texts. */
const char *ls_name_in_array(const void *list, size_t index);
/* Strict whole-text numbers; false where anything is left over or out of range. */
bool ls_parse_int(const char *text, int64_t *out);
bool ls_parse_real(const char *text, double *out);

#endif
