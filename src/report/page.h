/* What pages and tables read of a study, a suite or a reach. */
#ifndef LS_REPORT_PAGE_H
#define LS_REPORT_PAGE_H

#include "base/json.h"
#include "report/chart.h"

/* results.json and timing.json as they are; arms in the order of the study. */
typedef struct ls_study_files {
    json_t *results, *timing; /* timing may be NULL */
} ls_study_files;

void ls_page_write(ls_ctx *ctx, const ls_study_files *files, ls_text *out);
void ls_table_write(ls_ctx *ctx, const ls_study_files *files, ls_text *out);

/* Members that may be missing: NAN and "". */
double ls_member_real(const json_t *object, const char *key);
const char *ls_member_text(const json_t *object, const char *key);

/* Results of a suite, to be shown: {"cells": [{..., n, score, low, high}], "chance",
 * "trained_length"}. */
typedef struct ls_suite_view {
    ls_ctx *ctx;
    const json_t *results;
    const char *title;
} ls_suite_view;
/* Its figures, and its table under the title. */
void ls_suite_pictures(const ls_suite_view *view, ls_text *out);
bool ls_suite_is_grid(const ls_suite_view *view);            /* by length and depth */
void ls_suite_heat(const ls_suite_view *view, ls_text *out); /* the heat map alone */
void ls_suite_table(const ls_suite_view *view, ls_text *out);
/* The 95 % interval of a share of n answers that are right (Wilson). */
void ls_share_interval(double share, double n, double *low, double *high);
void ls_suite_page_write(ls_ctx *ctx, const json_t *results, ls_text *out);

/* The page while it is written. */
typedef struct ls_page {
    ls_ctx *ctx;
    const json_t *results, *timing, *arms;
    size_t count;                        /* of the arms */
    double trained_length, trained_most; /* of its arms: the shortest, the longest */
    ls_chart_style *styles;              /* [count] */
    size_t *members, *begins;            /* arms by group, and where groups begin in that list */
    size_t groups;
    const size_t *group; /* the one that ls_page_group was asked for last */
    ls_text *out;
} ls_page;

/* Group 0: the arms that train. Further ones: an arm and those that test its weights. Finds all of
 * them, in one pass; false without memory. */
bool ls_page_find_groups(ls_page *page);
/* Points page->group at one and returns how many arms it has; 0 where there is no such group. */
size_t ls_page_group(ls_page *page, size_t index, const char **title);

/* A suite of an arm by its name; NULL: it was not asked. */
const json_t *ls_page_suite(const json_t *arm, const char *name);
/* Scores of a suite against x, a chart for each group of arms; `group`: of its rows, or NULL. */
void ls_page_curves(ls_page *page, const char *suite, const char *x, const char *group,
                    ls_chart chart);
/* A row of a table that begins with an arm's label. */
void ls_page_row(ls_page *page, const json_t *arm);

/* Sections of charts; each writes its heading, or nothing where there is nothing to draw. */
void ls_page_perplexity(ls_page *page, const char *protocol);
void ls_page_accuracy(ls_page *page, const char *protocol);
void ls_page_positions(ls_page *page, const char *protocol);
void ls_page_resolution(ls_page *page);
/* Suites that arms were asked: curves of all arms, a heat map for each, tables. */
void ls_page_suites(ls_page *page);
void ls_page_cost(ls_page *page);

extern const char ls_page_style[], ls_page_heat[], ls_page_print[], ls_page_script[];

#endif
