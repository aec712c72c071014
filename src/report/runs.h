/* Single runs: measured tables that no study's results.json has, from the file runs.json of a folder
 * of results. Shares of right answers have the 95 % interval (Wilson) of the samples asked, other
 * numbers none: one run does not tell how far another would be from it. */
#ifndef LS_REPORT_RUNS_H
#define LS_REPORT_RUNS_H

#include "report/paper.h"

/* A new reference in *out. LS_EINPUT where the file is none of single runs, or holds what cannot
 * be. */
ls_status ls_runs_read(ls_ctx *ctx, const char *path, json_t **out);

/* "about": that these are single runs, and where they come from; "TABLE": one table. False: there
 * is none of that name. */
bool ls_runs_part(ls_paper *paper, const char *words);
void ls_runs_all(ls_paper *paper);

/* "TABLE [ROW ...]" as an SVG file, and its title: columns whose names are numbers are places on
 * the x axis. False: there are none. */
bool ls_runs_chart(const ls_page *page, const char *words, char *title, size_t bytes, ls_text *out);

/* "TABLE ROW COLUMN": the number of that cell; NAN: there is none. */
double ls_runs_lookup(const ls_page *page, const char *words);
/* The names of tables, rows and columns, one after the other; NULL: no more. */
const char *ls_runs_name(const ls_page *page, size_t index);

/* ---- what tables and lookups have in common ---- */

const json_t *ls__runs_table(const ls_page *page, const char *name); /* NULL: there is none */
/* The object of a list with this name; NULL: there is none. */
const json_t *ls__runs_named(const json_t *list, const char *name);
/* The steps that a row was to take; NAN: not known. */
double ls__runs_planned(const json_t *table, const json_t *row);
double ls__runs_number(const json_t *row, size_t column); /* NAN: none */

#endif
