/* Records of a .jsonl file that public code made, each held against ours. */
#ifndef LS_COMPARE_GOLDEN_RECORDS_H
#define LS_COMPARE_GOLDEN_RECORDS_H

#include "base/json.h"
#include "compare/comparer.h"
#include "suite/lib/points.h"

typedef struct ls_golden {
    ls_ctx *ctx;
    const json_t *json;
    const char *what; /* the file */
    int64_t line;
    void *user;
    ls_pool *pool;     /* cleared after each record */
    char group[96];    /* out: records of one group make one row */
    double difference; /* out: 0: equal; of texts 0 or infinity */
} ls_golden;

/* Calls `each` for every record in order, and adds a row for every group. A group's row says how
 * many records it has, and the line of the worst where one is beyond the tolerance. */
ls_status ls_goldens_compare(ls_comparer *comparer, double tolerance,
                             ls_status (*each)(ls_golden *record), void *user, ls_comparison *out);
/* Calls `each` for every record, for what must be known before any is compared. */
ls_status ls_goldens_walk(ls_comparer *comparer, ls_status (*each)(ls_golden *record), void *user);

/* Members of a record; LS_EINPUT naming the file, the line and the key where one is missing or of
 * another type. */
ls_status ls_golden_text(const ls_golden *record, const char *key, const char **out);
ls_status ls_golden_points(const ls_golden *record, const char *key, ls_points *out);
ls_status ls_golden_int(const ls_golden *record, const char *key, int64_t low, int64_t high,
                        int64_t *out);
ls_status ls_golden_fail(const ls_golden *record, const char *key, const char *wanted);
/* The same of a value of any object or list; `key` is what messages call it. */
ls_status ls_golden_value(const ls_golden *record, const char *key, const json_t *value,
                          int64_t low, int64_t high, int64_t *out);
/* A text of any object or array; an array of texts. */
bool ls_json_points(ls_pool *pool, const json_t *text, ls_points *out);
bool ls_json_points_list(ls_pool *pool, const json_t *texts, ls_points_list *out);
/* 0 where both are the same bytes, else infinity. */
double ls_golden_same(const char *a, size_t a_length, const json_t *wanted);

#endif
