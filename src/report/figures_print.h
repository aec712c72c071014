/* What tables of figures have in common: how numbers are printed, and when rows were taken. */
#ifndef LS_REPORT_FIGURES_PRINT_H
#define LS_REPORT_FIGURES_PRINT_H

#include "report/figures.h"

enum { LS_FIGURES_ROWS_MAX = 512, LS_FIGURES_CELL_BYTES = 512 };

/* With commas between thousands. */
void ls__figures_count(double value, char *out, size_t bytes);
/* Three digits that count, no more than `most` behind the point. */
void ls__figures_real(double value, int most, char *out, size_t bytes);
void ls__figures_percent(double share, char *out, size_t bytes);
/* Appends, with `between` where there is something before it. */
void ls__figures_join(char *out, size_t bytes, const char *between, const char *text);
/* "causal, bf16, 32 x 1,024, 12 heads of 64". */
void ls__figures_case(const json_t *row, char out[LS_FIGURES_CELL_BYTES]);
/* "Taken 2026-11-18 with longshot 0.2.0, 3 turns of 1 s; ...", each way of taking them once. */
void ls__figures_say_taken(ls_paper *paper, const json_t *rows);

/* Tables of rows of several lengths, or depths: a line for each kind, a column for each length.
 * False: there are no rows. */
bool ls__figures_by_length(ls_paper *paper, const json_t *rows, const char *caption);
bool ls__figures_by_depth(ls_paper *paper, const json_t *rows, const char *caption);
/* Tokens of a row and of a second; NAN where the row does not say. */
double ls__figures_tokens(const json_t *row);
double ls__figures_rate(const json_t *row);
/* Whether a row has the members that "KEY=VALUE KEY=VALUE ..." names; values may have spaces. */
bool ls__figures_has(const json_t *row, const char *words);

#endif
