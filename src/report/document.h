/* A Markdown page whose tables, charts and numbers are those of a study's results, or whose tables
 * are figures of the benchmark. */
#ifndef LS_REPORT_DOCUMENT_H
#define LS_REPORT_DOCUMENT_H

#include "report/page.h"

/* Writes the page's generated parts again, and the charts beside it; numbers in its sentences are
 * compared. check: writes nothing. LS_EBAR where something is not what the results hold. */
ls_status ls_document_make(ls_ctx *ctx, const ls_study_files *files, const char *path, bool check);

/* The same of figures (figures.h): the parts `begin figures NAME` and `begin figures NAME PART` are
 * written, all else stays as it is. LS_EINPUT where the page has none of that name. */
ls_status ls_document_figures(ls_ctx *ctx, const json_t *figures, const char *name,
                              const char *path, bool check);

#endif
