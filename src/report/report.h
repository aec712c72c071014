/* The page and the table of a study, from the files in its folder alone: results.json and, where it
 * is there, timing.json become report.html and results.csv. Results of a suite become a page alone.
 * The same files give the same bytes. */
#ifndef LS_REPORT_REPORT_H
#define LS_REPORT_REPORT_H

#include "base/memory.h"

/* LS_EINPUT where the folder has no results.json, or one of something else. *table (or NULL):
 * whether there is a results.csv. */
ls_status ls_report_write(ls_ctx *ctx, const char *folder, bool *table);
/* The results of a study as tables for a paper, appended to *out. */
ls_status ls_report_tables(ls_ctx *ctx, const char *folder, bool latex, ls_text *out);
/* The tables, charts and numbers of a Markdown page, by the results of a study (document.h). */
ls_status ls_report_document(ls_ctx *ctx, const char *folder, const char *page, bool check);

/* Figures that `longshot bench` kept, of one machine, rows of later files over those of earlier
 * ones: as tables, or in the parts of a Markdown page that name the first file, without its folder
 * and ending. */
ls_status ls_report_figures(ls_ctx *ctx, const char *const *paths, size_t count, bool latex,
                            ls_text *out);
ls_status ls_report_figures_page(ls_ctx *ctx, const char *const *paths, size_t count,
                                 const char *page, bool check);

#endif
