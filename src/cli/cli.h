/* The program: what its verbs share. A verb is one file here, src/cli/verb_NAME.c, that defines one
 * ls_verb; verbs.c lists them. Help, manual, completion and docs/options.md come from the tables.
 */
#ifndef LS_CLI_CLI_H
#define LS_CLI_CLI_H

#include <jansson.h>
#include <signal.h>

#include "model/model.h"
#include "ranks/ranks.h"
#include "tensor/engine/dtype.h"

/* Keys that every verb takes, without a section. */
typedef struct ls_common_settings {
    int64_t seed, threads;
    int device, isa;
    char cache[LS_OPTION_TEXT_BYTES];
} ls_common_settings;
extern const ls_option_table ls_common_options;

/* Text that comes in pieces and loses its control characters but newlines and tabs (terminal.c). */
typedef struct ls_plain_stream {
    bool lead; /* the first byte of one in UTF-8, which waits for the second */
    int more;  /* bytes that the present character still has */
} ls_plain_stream;
/* Gives the bytes that were made, at most one more than there were. */
size_t ls_cli_plain(ls_plain_stream *stream, const char *text, size_t length, char *out);

/* A call of the program. */
typedef struct ls_cli {
    ls_ctx ctx;
    const struct ls_verb *verb;
    int argc; /* the words as they were typed */
    char **argv;
    ls_settings settings;     /* the recipe, overridden by the key=value words */
    ls_known_keys known;      /* what these may be */
    const char *const *words; /* words that are neither settings nor flags */
    size_t word_count;
    const char *recipe; /* the file or folder that the settings began with, or NULL */
    const char *folder; /* that folder: what was made of them; or NULL */
    bool json, quiet, help;
    bool live;      /* progress is one line that is written again and again */
    bool line_open; /* such a line stands on the terminal now */
    int lines_open; /* lines of ls_cli_live_lines that the next output replaces */
    bool terminal;  /* the standard output is one */
    ls_plain_stream plain;
    ls_common_settings common;
    ls_ranks ranks; /* this process and those it works with */
} ls_cli;

typedef struct ls_verb {
    const char *name, *summary;
    int place;                  /* in lists of verbs: those used first have the lowest */
    const char *usage;          /* what follows the verb */
    const char *about;          /* a paragraph or two of help; lines of at most 90 columns */
    const ls_section *sections; /* or NULL */
    bool model_keys;            /* also takes mixer.*, position.*, extend and extend.* */
    bool recipe;                /* the first word may name a recipe */
    const char *kept_recipe;    /* or a folder, which has it under this name; NULL: it may not */
    bool sweeps;                /* takes -m KEY=A,B, which becomes sweep.KEY */
    bool computes;              /* runs programs: on device= */
    bool ranks;                 /* does one work with the others that a launcher started */
    bool orderly; /* heeds a signal itself, and has something to keep before it ends */
    ls_status (*run)(ls_cli *cli);
} ls_verb;

extern const ls_verb *const ls_verb_types[]; /* by name; ends with NULL */
extern const size_t ls_verb_count;
/* The verbs in their places; NULL after the last. */
const ls_verb *ls_verb_at(size_t index);
/* LS_EUSE names the nearest. */
ls_status ls_verb_find(ls_ctx *ctx, const char *name, const ls_verb **out);

/* Fills `into` from defaults and from the settings "prefix.KEY"; prefix "" takes only keys that the
 * table has, so that several tables can share the top level, and also takes VERB.KEY. */
ls_status ls_cli_read(ls_cli *cli, const char *prefix, const ls_option_table *table, void *into);
/* LS_EUSE naming a key that no one has read, and the nearest that the verb knows. */
ls_status ls_cli_finish_settings(ls_cli *cli);
/* A whole file, or with "-" the standard input to its end; at most so many bytes. */
ls_status ls_cli_input(ls_cli *cli, const char *path, size_t most, ls_text *out);
/* The prompt: prompt=, the second word, a file or, where one of them is "-", the standard input. */
ls_status ls_cli_prompt(ls_cli *cli, const char *file, ls_text *out);
/* Prints to stdout, on a terminal without control characters; a full disk or closed pipe is
 * LS_EIO. */
ls_status ls_cli_print(ls_cli *cli, const char *text, size_t length);
ls_status ls_cli_print_text(ls_cli *cli, ls_text *text); /* prints and clears */
/* Prints and releases; NULL is LS_ENOMEM. */
ls_status ls_cli_print_json(ls_cli *cli, json_t *json);
/* One line on stderr; nothing with --quiet. */
void ls_cli_progress(ls_cli *cli, const char *line);
/* The live line: overwritten by the next one. Not on a terminal it is a line like others. */
void ls_cli_live(ls_cli *cli, const char *line);
/* Several lines, which the next output replaces; on a terminal alone. */
void ls_cli_live_lines(ls_cli *cli, const char *lines);
/* Ends a live line, if one stands. */
void ls_cli_progress_end(ls_cli *cli);

/* What an option dtype= may choose, and the type of the choice of that number. */
#define LS_CLI_DTYPES "f64|f32|bf16"
ls_dtype ls_cli_dtype(int choice);

/* The device= of the call: "cpu", "cuda". */
const char *ls_cli_device(const ls_cli *cli);

/* The study that the settings describe; `file` names it. */
ls_status ls_cli_run_study(ls_cli *cli, const char *file);
/* eval with suite=NAME; type NULL: as trained. */
ls_status ls_cli_run_suite(ls_cli *cli, const ls_dtype *type);

/* Not 0 once SIGTERM, SIGINT or SIGUSR1 came. */
const volatile sig_atomic_t *ls_cli_stop(void);

/* Texts made from the tables: see manual.c. */
void ls_help_program(ls_ctx *ctx, ls_text *out);
void ls_help_verb(ls_ctx *ctx, const ls_verb *verb, ls_text *out);
void ls_manual_page(ls_ctx *ctx, ls_text *out);       /* troff, longshot(1) */
void ls_manual_options(ls_ctx *ctx, ls_text *out);    /* docs/options.md */
void ls_manual_errors(ls_ctx *ctx, ls_text *out);     /* docs/errors.md */
void ls_manual_completion(ls_ctx *ctx, ls_text *out); /* bash */
/* An option's range or choices: "1 to 64", "a|b|c", "text". */
void ls_option_range(const ls_option *option, char *out, size_t bytes);

#endif
