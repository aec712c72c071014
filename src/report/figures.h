/* Figures of `longshot bench`, from the files that it keeps: read and checked, put together, and
 * printed as tables. */
#ifndef LS_REPORT_FIGURES_H
#define LS_REPORT_FIGURES_H

#include "report/paper.h"

/* A new reference in *out. LS_EINPUT where the file is no result of the benchmark, or holds a
 * number that cannot be. */
ls_status ls_figures_read(ls_ctx *ctx, const char *path, json_t **out);
/* The same of what has been read; `path` names it in messages. */
ls_status ls_figures_check(ls_ctx *ctx, const json_t *figures, const char *path);

/* Whether a member of a row says what the row is of, not what was measured or how. */
bool ls_figures_name(const char *key, const json_t *value);
/* Whether two rows are of the same; `except` (or NULL) is a member that may differ. */
bool ls_figures_same_row(const json_t *a, const json_t *b, const char *except);
/* *out, a new reference: both together. Rows of `later` replace those of the same, new ones follow
 * the old ones of their part. LS_EINPUT where they are of two machines. */
ls_status ls_figures_merge(ls_ctx *ctx, const json_t *earlier, const json_t *later, json_t **out);
/* All files together, a later one over the earlier ones. */
ls_status ls_figures_read_all(ls_ctx *ctx, const char *const *paths, size_t count, json_t **out);

/* The tables of a part ("train", "attention", ...), what the machine is and was measured to do
 * ("machine"), or all of them (""). False: the figures have nothing of that name. */
bool ls_figures_part(ls_paper *paper, const json_t *figures, const char *part);

/* All rows in one table for a terminal, of 100 columns: what ours takes, and beside it each peer. */
void ls_figures_summary(ls_ctx *ctx, const json_t *figures, ls_text *out);

/* A chart of a part whose rows are of several lengths, as an SVG file, and its title: the rows that
 * "PART [KEY=VALUE ...]" names, all of one model and type. False: there are none such. */
bool ls_figures_chart(ls_ctx *ctx, const json_t *figures, const char *words, char *title,
                      size_t bytes, ls_text *out);

/* "PART MEASURE KEY=VALUE ...": what the one row of the part with these members was measured at, in
 * the units of the tables: tokens_per_second, ms, kB, MB, GB, spread (percent), or a member as it
 * is.
 * NAN: no row is the one. */
double ls_figures_lookup(const json_t *figures, const char *words);

#endif
