#include "tensor/op/attention/tile_schedule.h"

#include <stddef.h>

ls_span ls_rule_span(const ls_tile_rule *rule) {
    if (rule->block == 0) return rule->span;
    const int64_t before = rule->alone ? 0 : rule->block;
    return (ls_span){rule->block, rule->block, -before - rule->shift, rule->block - rule->shift};
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

ls_interval ls_span_any(ls_span span, ls_interval keys) {
    return (ls_interval){floor_div(keys.first - span.to, span.step) + 1,
                         floor_div(keys.end - 1 - span.from, span.step) + 1};
}

ls_interval ls_span_all(ls_span span, ls_interval keys) {
    return (ls_interval){floor_div(keys.end - 1 - span.to, span.step) + 1,
                         floor_div(keys.first - span.from, span.step) + 1};
}

static ls_interval queries_of(const ls_tile_rule *rule, ls_span span, ls_interval blocks) {
    return (ls_interval){blocks.first * span.block - rule->shift,
                         blocks.end * span.block - rule->shift};
}

/* What a span lets a query see, by the first key and the first behind the last. */
static int64_t span_begin(const ls_tile_rule *rule, ls_span span, int64_t query) {
    return (query + rule->shift) / span.block * span.step + span.from;
}

static int64_t span_end(const ls_tile_rule *rule, ls_span span, int64_t query) {
    return (query + rule->shift) / span.block * span.step + span.to;
}

ls_interval ls_keys_any(const ls_tile_rule *rule, ls_interval queries) {
    int64_t last = queries.end - 1;
    ls_interval keys = {queries.first - rule->hi, last - rule->lo + 1};
    ls_interval allowed = {rule->key_first, rule->key_end};
    keys = ls_interval_cut(keys, allowed);
    ls_span span = ls_rule_span(rule);
    if (span.block > 0)
        keys = ls_interval_cut(
            keys, (ls_interval){span_begin(rule, span, queries.first), span_end(rule, span, last)});
    if (rule->group > 0 && keys.end > last / rule->group) keys.end = last / rule->group;
    return keys;
}

ls_interval ls_keys_all(const ls_tile_rule *rule, ls_interval queries) {
    int64_t last = queries.end - 1;
    ls_interval keys = {last - rule->hi, queries.first - rule->lo + 1};
    ls_interval allowed = {rule->key_first, rule->key_end};
    keys = ls_interval_cut(keys, allowed);
    ls_span span = ls_rule_span(rule);
    if (span.block > 0)
        keys = ls_interval_cut(
            keys, (ls_interval){span_begin(rule, span, last), span_end(rule, span, queries.first)});
    if (rule->group > 0 && keys.end > queries.first / rule->group)
        keys.end = queries.first / rule->group;
    return keys;
}

ls_interval ls_queries_any(const ls_tile_rule *rule, ls_interval keys) {
    ls_interval allowed = {rule->key_first, rule->key_end};
    keys = ls_interval_cut(keys, allowed);
    if (keys.end <= keys.first) return (ls_interval){0, 0};
    int64_t last = keys.end - 1;
    ls_interval queries = {keys.first + rule->lo, last + rule->hi + 1};
    ls_span span = ls_rule_span(rule);
    if (span.block > 0)
        queries = ls_interval_cut(queries, queries_of(rule, span, ls_span_any(span, keys)));
    if (rule->group > 0 && queries.first < (keys.first + 1) * rule->group)
        queries.first = (keys.first + 1) * rule->group;
    return queries;
}

ls_interval ls_queries_all(const ls_tile_rule *rule, ls_interval keys) {
    if (keys.first < rule->key_first || keys.end > rule->key_end) return (ls_interval){0, 0};
    int64_t last = keys.end - 1;
    ls_interval queries = {last + rule->lo, keys.first + rule->hi + 1};
    ls_span span = ls_rule_span(rule);
    if (span.block > 0)
        queries = ls_interval_cut(queries, queries_of(rule, span, ls_span_all(span, keys)));
    if (rule->group > 0 && queries.first < keys.end * rule->group)
        queries.first = keys.end * rule->group;
    return queries;
}

/* Cuts the tiles of [any) rows into partial, full and partial runs. */
static int cut_runs(ls_interval any, ls_interval full_tiles, int64_t tile, ls_tile_run *runs) {
    if (any.end <= any.first) return 0;
    ls_interval tiles = {any.first / tile, (any.end + tile - 1) / tile};
    full_tiles = ls_interval_cut(full_tiles, tiles);
    if (full_tiles.end <= full_tiles.first) full_tiles.first = full_tiles.end = tiles.end;
    const ls_tile_run parts[LS_TILE_RUNS_MAX] = {
        {tiles.first, full_tiles.first, false},
        {full_tiles.first, full_tiles.end, true},
        {full_tiles.end, tiles.end, false},
    };
    int count = 0;
    for (int i = 0; i < LS_TILE_RUNS_MAX; i++)
        if (parts[i].end > parts[i].first) runs[count++] = parts[i];
    return count;
}

static ls_interval rows_of(ls_interval positions, ls_interval held) {
    positions = ls_interval_cut(positions, held);
    ls_interval rows = {positions.first - held.first, positions.end - held.first};
    return rows;
}

int ls_tile_runs_of_queries(const ls_tile_rule *rule, ls_interval queries, ls_interval held,
                            ls_tile_run runs[LS_TILE_RUNS_MAX]) {
    ls_interval any = rows_of(ls_keys_any(rule, queries), held);
    ls_interval full = {0, 0};
    if (!rule->checked) {
        ls_interval all = rows_of(ls_keys_all(rule, queries), held);
        full.first = (all.first + LS_TILE_KEYS - 1) / LS_TILE_KEYS;
        full.end = all.end > 0 ? all.end / LS_TILE_KEYS : 0;
    }
    return cut_runs(any, full, LS_TILE_KEYS, runs);
}

int ls_tile_runs_of_keys(const ls_tile_rule *rule, ls_interval keys, ls_interval asked,
                         ls_tile_run runs[LS_TILE_RUNS_MAX]) {
    ls_interval any = rows_of(ls_queries_any(rule, keys), asked);
    ls_interval full = {0, 0};
    if (!rule->checked) {
        ls_interval all = rows_of(ls_queries_all(rule, keys), asked);
        int64_t total = ls_interval_length(asked);
        full.first = (all.first + LS_TILE_QUERIES - 1) / LS_TILE_QUERIES;
        full.end = all.end >= total ? (total + LS_TILE_QUERIES - 1) / LS_TILE_QUERIES
                   : all.end > 0    ? all.end / LS_TILE_QUERIES
                                    : 0;
    }
    return cut_runs(any, full, LS_TILE_QUERIES, runs);
}

/* ---- lists of blocks ---- */

/* Where the row of `block` has its first entry that is not below `other`, and
 * where the row ends. */
static int64_t find_entry(const ls_block_rows *rows, int64_t head, int64_t block, int64_t other,
                          int64_t *end) {
    const int64_t row = (rows->heads > 1 ? head : 0) * rows->blocks + block;
    int64_t low = rows->first[row], high = rows->first[row + 1];
    *end = high;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (rows->at[middle] < other)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t ls_block_times(const ls_block_rows *rows, int64_t head, int64_t block, int64_t other) {
    if (rows->first == NULL) return 1;
    int64_t end, entry = find_entry(rows, head, block, other, &end);
    return entry < end && rows->at[entry] == other ? rows->times[entry] : 0;
}

int64_t ls_block_next_tile(const ls_block_rows *rows, int64_t head, ls_interval these, int64_t tile,
                           int64_t from) {
    if (rows->first == NULL) return from;
    const int64_t position = from * tile, least = ls_block_of(rows, position);
    int64_t found = INT64_MAX;
    for (int64_t p = these.first; p < these.end; p = ls_block_end(rows, p)) {
        int64_t end, entry = find_entry(rows, head, ls_block_of(rows, p), least, &end);
        if (entry == end) continue;
        int64_t begin = rows->at[entry] * rows->size - rows->shift;
        int64_t here = begin <= position ? from : begin / tile;
        if (here < found) found = here;
    }
    return found;
}

/* ---- pieces of rows ---- */

enum { PIECE_LEAST = 16, PARTS_MAX = 2048 };

/* Pieces of a row with so many entries; an empty row is one as well, since its result is 0. */
static int64_t pieces_in(int64_t entries, int64_t longest) {
    return entries <= longest ? 1 : (entries + longest - 1) / longest;
}

static int64_t entries_of(const double *first, int64_t row) {
    return (int64_t)first[row + 1] - (int64_t)first[row];
}

ls_block_plan ls_block_plan_of(const double *first, int64_t rows) {
    ls_block_plan plan = {.longest = PIECE_LEAST / 2, .parts = PARTS_MAX + 1};
    while (plan.parts > PARTS_MAX) { /* none are left when `longest` is that of a whole row */
        plan = (ls_block_plan){.longest = 2 * plan.longest};
        for (int64_t row = 0; row < rows; row++) {
            int64_t pieces = pieces_in(entries_of(first, row), plan.longest);
            plan.pieces += pieces;
            plan.parts += pieces > 1 ? pieces : 0;
            plan.joins += pieces > 1;
        }
    }
    return plan;
}

void ls_block_plan_write(const ls_block_plan *plan, const double *first, int64_t rows, double *to) {
    double *join = to + LS_PIECE_WORDS * plan->pieces;
    int64_t part = 0;
    for (int whole = 0; whole < 2; whole++)
        for (int64_t row = 0; row < rows; row++) {
            const int64_t entries = entries_of(first, row);
            const int64_t pieces = pieces_in(entries, plan->longest);
            if ((pieces == 1) != whole) continue;
            if (!whole) {
                *join++ = (double)row;
                *join++ = (double)part;
                *join++ = (double)pieces;
            }
            for (int64_t i = 0; i < pieces; i++) {
                *to++ = (double)row;
                *to++ = first[row] + (double)(entries * i / pieces);
                *to++ = first[row] + (double)(entries * (i + 1) / pieces);
                *to++ = whole ? -1 : (double)part++;
            }
        }
}
