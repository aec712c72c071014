/* Relative effective context lengths of a group of models, from the files of token losses that
 * their evaluations wrote (eval.losses). */
#ifndef LS_EVAL_RECL_FILES_H
#define LS_EVAL_RECL_FILES_H

#include <jansson.h>

#include "base/option.h"

enum { LS_RECL_NAME_BYTES = 64 };

typedef struct ls_recl_file {
    char model[LS_RECL_NAME_BYTES];
    int64_t context;
    const char *path; /* borrowed */
} ls_recl_file;

typedef struct ls_recl_settings {
    ls_reals share;
    double least;
} ls_recl_settings;
extern const ls_option_table ls_recl_options;

/* {"tokens", "contexts": [...], "results": [row, ...]}, a row for every share and model; a new
 * reference. LS_EUSE where a model was not measured at every context, LS_EINPUT where the files are
 * not of the same tokens. */
ls_status ls_recl_run(ls_ctx *ctx, const ls_recl_file *files, size_t count,
                      const ls_recl_settings *settings, json_t **out);
/* The same as a table for people. */
void ls_recl_print(ls_ctx *ctx, const json_t *results, ls_text *out);

#endif
