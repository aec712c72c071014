/* A Markdown page whose tables, charts and numbers are those of a study's results, of figures of
 * the benchmark, or of several of them. */
#ifndef LS_REPORT_DOCUMENT_H
#define LS_REPORT_DOCUMENT_H

#include "report/page.h"

/* Writes the page's generated parts again, and the charts beside it; numbers in its sentences are
 * compared. check: writes nothing. LS_EBAR where something is not what the results hold. */
ls_status ls_document_make(ls_ctx *ctx, const ls_study_files *files, const char *path, bool check);

/* The same of figures (figures.h): the parts `begin figures NAME`, `begin figures NAME PART` and
 * `begin chart FILE.svg figures NAME PART ...` are written, numbers with a comment
 * `figures NAME PART MEASURE ...` are compared, and all else stays as it is. LS_EINPUT where the
 * page has no part of that name. */
ls_status ls_document_figures(ls_ctx *ctx, const json_t *figures, const char *name,
                              const char *path, bool check);

#endif
