/* What pages and tables read of a study, a suite or a reach. */
#ifndef LS_REPORT_PAGE_H
#define LS_REPORT_PAGE_H

#include "base/interval.h"
#include "base/json.h"
#include "report/chart.h"

/* results.json and timing.json as they are; arms in the order of the study. */
typedef struct ls_study_files {
    json_t *results, *timing; /* timing may be NULL */
    uint64_t hash;            /* of the bytes of results.json */
    json_t *runs;             /* of runs.json (runs.h), or NULL */
    uint64_t runs_hash;
} ls_study_files;

void ls_page_write(ls_ctx *ctx, const ls_study_files *files, ls_text *out);
void ls_table_write(ls_ctx *ctx, const ls_study_files *files, ls_text *out);
/* Tables for a paper, in LaTeX or in Markdown. */
void ls_paper_write(ls_ctx *ctx, const ls_study_files *files, bool latex, ls_text *out);

/* The 95 % interval of KEY of a row over its seeds; NAN for one seed. Shares stay within 0 and 1,
 * and are no surer than so many samples make them; a perplexity and bits per byte have that of
 * their loss. */
typedef struct ls_band {
    double low, high;
} ls_band;
ls_band ls_band_of(const json_t *row, const char *key);
bool ls_band_is_share(const char *key);
/* Answers of a task's row, or of a suite, that are no better than the most frequent one: the 95 %
 * interval of the share over all samples reaches down to chance. */
bool ls_at_chance(const json_t *row);
bool ls_suite_at_chance(const json_t *suite);
/* Intervals of a suite whose scores are shares of right answers, from the scores and questions:
 * files of older versions have some of no width. */
void ls_suite_mend(json_t *suite);
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
/* The same of what attention heads do: cells have length, layer, head and metrics. */
bool ls_heads_are_in(const ls_suite_view *view);
void ls_heads_pictures(const ls_suite_view *view, ls_text *out);
void ls_heads_table(const ls_suite_view *view, ls_text *out);
void ls_suite_page_write(ls_ctx *ctx, const json_t *results, ls_text *out);

enum { LS_PAGE_PROTOCOLS_MAX = 16, LS_PAGE_LENGTHS_MAX = 64, LS_PAGE_TITLE_BYTES = 700 };

/* The page while it is written. */
typedef struct ls_page {
    ls_ctx *ctx;
    const json_t *results, *timing, *arms, *runs;
    uint64_t hash, runs_hash;            /* of results.json, of runs.json */
    size_t count;                        /* of the arms */
    double trained_length, trained_most; /* of its arms: the shortest, the longest */
    ls_chart_style *styles;              /* [count] */
    size_t *members, *begins;            /* arms by group, and where groups begin in that list */
    size_t groups;
    const size_t *group;  /* the one that ls_page_group was asked for last */
    int sections, shares; /* so far: headings; sets of charts that share axes */
    ls_text contents, *out;
} ls_page;

/* A page of these files, before its groups and styles are chosen. */
ls_page ls_page_of(ls_ctx *ctx, const ls_study_files *files);

/* ---- groups and styles (page_groups.c) ---- */

/* Whether an arm's weights are its own. */
bool ls_page_trains(const json_t *arm);
/* Group 0: the arms that train. Further ones: an arm and those that test its weights. Finds all of
 * them, in one pass; false without memory. */
bool ls_page_find_groups(ls_page *page);
/* Points page->group at one and returns how many arms it has; 0 where there is no such group. */
size_t ls_page_group(ls_page *page, size_t index, const char **title);
/* Arms that differ in nothing but a length: {key: [index, ...]}; NULL: no memory. */
json_t *ls_page_families(ls_page *page);
/* task[i]: the number of what arm i was asked, a task by its name and options; arms that were asked
 * the same have the same number. What is best is said among these alone. Returns how many numbers
 * there are; 0: no arms, or no memory. */
size_t ls_page_find_tasks(const ls_page *page, size_t *task);
/* How long an arm's label is without the trained length that a study adds where arms differ in it.
 */
size_t ls_page_stem(const ls_page *page, const json_t *arm);
/* Its short name for the end of a line; "": the label is short enough. */
void ls_page_end(const ls_page *page, const json_t *arm, char out[LS_CHART_END_BYTES]);
/* The look of every arm; after the groups. False without memory. */
bool ls_page_choose_styles(ls_page *page);

/* The names of all suites that arms were asked. */
enum { LS_PAGE_SUITES_MAX = 64 };
size_t ls_page_list_suites(const ls_page *page, const char *names[LS_PAGE_SUITES_MAX]);
/* A suite of an arm by its name; NULL: it was not asked. */
const json_t *ls_page_suite(const json_t *arm, const char *name);
/* Scores of a suite against x, a chart for each group of arms; `group`: of its rows, or NULL. */
void ls_page_curves(ls_page *page, const char *suite, const char *x, const char *group,
                    ls_chart chart);
/* A row of a table that begins with an arm's label. */
void ls_page_open_row(ls_page *page, const json_t *arm);

/* The cell that tells how many seeds an arm, or a suite of it, has. */
void ls_page_seeds(ls_page *page, const json_t *of);

/* ---- rows ---- */

/* The length that an arm was trained at. */
double ls_page_trained(const ls_page *page, const json_t *arm);
/* Where arms were trained at different lengths, this one's; else 0. */
double ls_page_own_length(const ls_page *page, size_t arm);
/* The protocols of the study, in order of appearance. */
typedef struct ls_page_protocols {
    const char *name[LS_PAGE_PROTOCOLS_MAX];
    size_t count;
} ls_page_protocols;
ls_page_protocols ls_page_list_protocols(const ls_page *page);
/* The row of an arm's results at its trained length, else at the shortest; NULL: none. */
const json_t *ls_row_as_trained(const ls_page *page, const json_t *arm, const char *protocol);
/* A task's rows have answers that are right or wrong, others a loss alone. */
bool ls_page_judged(const ls_page *page, const char *protocol);
/* The row of an arm's list at a length; NULL: none. */
const json_t *ls_page_row(const json_t *arm, const char *list, const char *protocol, double length);
/* The lengths of a list in the order of appearance; how many. */
size_t ls_page_lengths(const ls_page *page, const char *list, const char *protocol,
                       double lengths[LS_PAGE_LENGTHS_MAX]);

/* ---- parts of the page ---- */

/* What the study found, in one sentence or two made from the numbers (page_finding.c). */
void ls_page_finding(ls_page *page, const char *protocol);
/* <h2>, with its line in the contents. */
/* What the evaluations computed in; "" where arms differ, whose settings then tell it, or where an
 * older version wrote the file. */
const char *ls_page_dtype(const ls_page *page);
void ls_page_heading(ls_page *page, const char *title);
/* Heading, a soft line, and the beginning of a grid of charts, which </div> ends. */
void ls_page_charts(ls_page *page, const char *title, const char *note);

/* Sections; each writes its heading, or nothing where there is nothing to draw. */
void ls_page_perplexity(ls_page *page, const char *protocol);
void ls_page_accuracy(ls_page *page, const char *protocol);
void ls_page_trained_tested(ls_page *page, const char *protocol);
void ls_page_positions(ls_page *page, const char *protocol);
void ls_page_resolution(ls_page *page);
void ls_page_scores(ls_page *page); /* by distance: measured, and expected of a rotation */
/* Suites that arms were asked: curves of all arms, a heat map for each, tables. */
void ls_page_suites(ls_page *page);
void ls_page_learning(ls_page *page);
void ls_page_cost(ls_page *page);
void ls_page_lengths_table(ls_page *page, const char *protocol);
void ls_page_resolution_table(ls_page *page);
void ls_page_cost_table(ls_page *page);

extern const char ls_page_style[], ls_page_script[]; /* page.css and page.js */

#endif
