/* Numbers that stored results may hold, and where they must lie: checked where a file is read. */
#ifndef LS_REPORT_RANGES_H
#define LS_REPORT_RANGES_H

#include "base/json.h"

typedef struct ls_range {
    const char *key;
    double low, high;
} ls_range;
typedef struct ls_ranges {
    const ls_range *at;
    size_t count;
} ls_ranges;
#define LS_RANGES(table) ((ls_ranges){table, sizeof(table) / sizeof *(table)})

/* Of an evaluation at a length, of a suite, of one of its cells, of what a job took. */
extern const ls_ranges ls_ranges_row, ls_ranges_suite, ls_ranges_cell, ls_ranges_cost;
#define LS_COUNT_MAX 9007199254740992.0 /* 2^53: whole numbers up to here are exact */

/* Rows of an evaluation; cells of a suite: of heads as many as layers, heads and lengths make. */
enum { LS_ROWS_MAX = 4096, LS_CELLS_MAX = 1 << 20 };

/* Members may be missing, or null, which is not known. LS_EINPUT naming the file, `what` and the
 * key. */
ls_status ls_range_object(ls_ctx *ctx, const char *path, const char *what, const json_t *object,
                          ls_ranges ranges);
/* A list of at most so many such objects under a key, or nothing. */
ls_status ls_range_list(ls_ctx *ctx, const char *path, const json_t *object, const char *key,
                        size_t most, ls_ranges ranges);
/* Columns of one length: counts, and behind them numbers that may be unknown, of which the last may
 * be absent. */
typedef struct ls_columns {
    const char *what, *const *keys;
    size_t counts, needed, all;
} ls_columns;
ls_status ls_range_columns(ls_ctx *ctx, const char *path, const json_t *list, ls_columns of);
/* Results of a suite, as the suite wrote them or as a study has them of an arm. */
ls_status ls_range_suite(ls_ctx *ctx, const char *path, const json_t *suite);

#endif
