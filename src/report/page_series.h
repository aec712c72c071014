/* Lines of charts, from the rows of a study. */
#ifndef LS_REPORT_PAGE_SERIES_H
#define LS_REPORT_PAGE_SERIES_H

#include "report/page.h"

/* Where a line's numbers stand in a list of rows, or in one row of columns. */
typedef struct ls_column {
    const json_t *rows;   /* NULL: none */
    const char *protocol; /* rows of this protocol, or group of a suite; NULL: all */
    const char *object;   /* that has the columns of a row */
    const char *x, *y, *beside;
    const char *band, *low, *high; /* the key whose interval is drawn, or the keys of its ends */
    double scale;
} ls_column;

bool ls_column_wants(const ls_column *from, const json_t *row);
/* Free .x of either. */
ls_chart_series ls_series_empty(const ls_page *page, size_t arm, size_t room);
ls_chart_series ls_series_of_rows(const ls_page *page, size_t arm, const ls_column *from);

/* A line whose numbers stand in columns of one row: row[object][x], [y], and where there is a
 * column y_sd the interval over the row's n seeds. */
ls_chart_series ls_series_of_columns(const ls_page *page, size_t arm, const json_t *row,
                                     const ls_column *from);

/* An arm's loss by position, of a protocol's longest windows; NULL: there is none. */
const json_t *ls_series_positions(const json_t *arm, const char *protocol);
/* The same as a line. Single positions are few tokens and much noise, so neighbours are joined until
 * a doubling of the position has at most four points; each stands at the geometric middle of its
 * positions, counted from 1. */
ls_chart_series ls_series_of_positions(const ls_page *page, size_t arm, const char *protocol);

#endif
