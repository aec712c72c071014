/* A Markdown page whose tables, charts and numbers are those of a study's results. */
#ifndef LS_REPORT_DOCUMENT_H
#define LS_REPORT_DOCUMENT_H

#include "report/page.h"

/* Writes the page's generated parts again, and the charts beside it; numbers in its sentences are
 * compared. check: writes nothing. LS_EBAR where something is not what the results hold. */
ls_status ls_document_make(ls_ctx *ctx, const ls_study_files *files, const char *path, bool check);

#endif
