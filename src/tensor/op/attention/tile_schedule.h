/* Which tiles of keys a tile of queries meets, and the other way round.
 *
 * Every rule of an attention set admits, for one query, an interval of key positions, and for
 * one key an interval of query positions. So the tiles that matter are found by arithmetic on the
 * ends of a tile: at most three runs (partial, full, partial), with no table to build or to store.
 * A pair inside a FULL tile needs no predicate. */
#ifndef LS_TENSOR_TILE_SCHEDULE_H
#define LS_TENSOR_TILE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum { LS_TILE_QUERIES = 32, LS_TILE_KEYS = 64, LS_TILE_RUNS_MAX = 3 };

/* Keys by the block a query lies in: query n admits from <= m - n / block * step < to. `step` is
 * how many keys there are to a block of queries: `block` of them, or fewer where keys stand for
 * several tokens each. */
typedef struct ls_span {
    int64_t block; /* 0: no such bound */
    int64_t step, from, to;
} ls_span;

typedef struct ls_tile_rule {
    int64_t lo, hi;             /* admitted distances n - m; of a dilated set the widest head's */
    int64_t key_first, key_end; /* admitted key positions */
    int64_t block;              /* > 0: 0 <= n / block - m / block <= 1 */
    bool alone;                 /* with a block: n / block = m / block */
    int64_t shift;              /* with a block: positions count from -shift for it, >= 0 */
    int64_t group;              /* > 0: m < n / group */
    ls_span span;               /* where block is 0 */
    bool checked;               /* validity or dilation: no tile is FULL */
} ls_tile_rule;

typedef struct ls_interval {
    int64_t first, end; /* empty where end <= first */
} ls_interval;

typedef struct ls_tile_run {
    int64_t first, end; /* tile numbers */
    bool full;
} ls_tile_run;

/* Key positions that some (any) or every (all) query at a position of [first, end) admits. The
 * rule's `checked` is not looked at. */
ls_interval ls_keys_any(const ls_tile_rule *rule, ls_interval queries);
ls_interval ls_keys_all(const ls_tile_rule *rule, ls_interval queries);
/* Query positions that admit some or every key position of [first, end). */
ls_interval ls_queries_any(const ls_tile_rule *rule, ls_interval keys);
ls_interval ls_queries_all(const ls_tile_rule *rule, ls_interval keys);

/* The blocks of queries that a span lets see some or every key position of [first, end). */
ls_interval ls_span_any(ls_span span, ls_interval keys);
ls_interval ls_span_all(ls_span span, ls_interval keys);
/* The span that a rule amounts to, for queries n + rule->shift; its block is 0 where there is
 * none. */
ls_span ls_rule_span(const ls_tile_rule *rule);

/* The runs of key tiles (rows [64 t, 64 t + 64) of a tensor whose rows hold the positions `held`)
 * for queries at the given positions. Only complete tiles are FULL. Returns the number of runs. */
int ls_tile_runs_of_queries(const ls_tile_rule *rule, ls_interval queries, ls_interval held,
                            ls_tile_run runs[LS_TILE_RUNS_MAX]);
/* The runs of query tiles (rows [32 t, 32 t + 32) of queries at the positions `asked`) that meet
 * the keys at the given positions. The last query tile may be FULL and incomplete. */
int ls_tile_runs_of_keys(const ls_tile_rule *rule, ls_interval keys, ls_interval asked,
                         ls_tile_run runs[LS_TILE_RUNS_MAX]);

/* Which blocks of positions meet which: row i of head h has the blocks at[first[h * blocks + i] ..
 * first[h * blocks + i + 1]), rising, each counted times[..] times. Position p lies in block
 * (p + shift) / size. */
typedef struct ls_block_rows {
    int64_t size, shift, blocks;
    int64_t heads;                     /* 1: the same rows for all heads */
    const int32_t *first, *at, *times; /* first NULL: every block meets every other once */
} ls_block_rows;

static inline int64_t ls_block_of(const ls_block_rows *rows, int64_t position) {
    return (position + rows->shift) / rows->size;
}
/* The first position of the block after that of `position`. */
static inline int64_t ls_block_end(const ls_block_rows *rows, int64_t position) {
    return (ls_block_of(rows, position) + 1) * rows->size - rows->shift;
}
/* How often the row of `block` counts `other`: 0 where it does not have it. */
int32_t ls_block_times(const ls_block_rows *rows, int64_t head, int64_t block, int64_t other);
/* The first tile from number `from` on, of `tile` positions each, in which lies a block that the
 * row of some position of `these` has; INT64_MAX where there is none. */
int64_t ls_block_next_tile(const ls_block_rows *rows, int64_t head, ls_interval these, int64_t tile,
                           int64_t from);

/* Rows cut into pieces of about the same work, for devices that do many at once: a row of more than
 * `longest` entries is several pieces, whose results are parts to be joined. The long ones come
 * first. A piece is (row, first entry, end, part or -1), a join (row, first part, parts). */
enum { LS_PIECE_WORDS = 4, LS_JOIN_WORDS = 3 };
typedef struct ls_block_plan {
    int64_t longest, pieces, parts, joins;
} ls_block_plan;
/* first[rows + 1]: where each row's entries begin. */
ls_block_plan ls_block_plan_of(const double *first, int64_t rows);
/* Writes the pieces, then the joins. */
void ls_block_plan_write(const ls_block_plan *plan, const double *first, int64_t rows, double *to);
static inline int64_t ls_block_plan_words(const ls_block_plan *plan) {
    return LS_PIECE_WORDS * plan->pieces + LS_JOIN_WORDS * plan->joins;
}

/* The interval that lies in both. */
static inline ls_interval ls_interval_cut(ls_interval a, ls_interval b) {
    ls_interval both = {a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
    return both;
}
static inline int64_t ls_interval_length(ls_interval a) {
    return a.end > a.first ? a.end - a.first : 0;
}

#endif
