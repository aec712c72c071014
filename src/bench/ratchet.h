/* A result of `longshot bench` held against an earlier one, row by row. */
#ifndef LS_BENCH_RATCHET_H
#define LS_BENCH_RATCHET_H

#include "base/json.h"

/* What a machine is called: figures of one kind are compared, of two they are not. */
json_t *ls_ratchet_machine(const ls_ctx *ctx);

/* LS_EINPUT where `before`, read from `path`, is no result, or of another kind of machine. */
ls_status ls_ratchet_check(ls_ctx *ctx, const json_t *before, const json_t *machine,
                           const char *path);

/* How many times as long a row takes as before, and what is allowed: 1 and the larger of both
 * spreads, which is at least LS_RATCHET_LEAST. */
#define LS_RATCHET_LEAST 0.02
typedef struct ls_ratchet {
    double slowed, allowed;
} ls_ratchet;
/* LS_EINPUT where a row has no figure. */
ls_status ls_ratchet_row(ls_ctx *ctx, const json_t *before, const json_t *now, ls_ratchet *out);

/* All rows of the parts that both have. Says in `text` which are slower or faster than their
 * spreads allow; *out, a new reference: {rows, added, missing, slower: [names], faster:
 * [names]}. */
ls_status ls_ratchet_compare(ls_ctx *ctx, const json_t *before, const json_t *now, ls_text *text,
                             json_t **out);

#endif
