/* Pair merging, which every kind of byte-pair encoding shares: of the neighbours that a table joins
 * those of the lowest rank are joined, leftmost first, until there are none. */
#ifndef LS_DATA_TOKENIZER_MERGE_H
#define LS_DATA_TOKENIZER_MERGE_H

#include "base/memory.h"

/* Joins symbols left and right into result. Several merges may have one rank. */
typedef struct ls_merge {
    int32_t left, right, result, rank;
} ls_merge;

typedef struct ls_merges {
    ls_merge *list;
    int32_t count;
    int32_t *slots; /* open addressing: number in the list, or -1 */
    size_t mask;
    uint64_t *joins; /* or NULL: which characters a merge can join; bits by hash */
} ls_merges;

/* Indexes the list that the caller has filled in. Of merges of the same pair the last counts;
 * *again (may be NULL) is the number of one that is there twice, or -1. */
ls_status ls__merges_index(ls_ctx *ctx, ls_merges *merges, int32_t *again);
void ls__merges_clear(ls_ctx *ctx, ls_merges *merges);
const ls_merge *ls__merges_find(const ls_merges *merges, int32_t left, int32_t right); /* or NULL */

/* What one thread scribbles on. Zero-initialise. */
typedef struct ls_merge_work {
    int32_t *before, *after; /* a long word as a linked list */
    size_t before_capacity, after_capacity;
    uint64_t *heap; /* rank << 32 | place of the left half */
    size_t heap_count, heap_capacity;
    /* called, if set, for each merge that becomes possible */
    void (*seen)(void *user, const ls_merge *merge);
    void *user;
} ls_merge_work;
void ls__merge_work_clear(ls_ctx *ctx, ls_merge_work *work);

/* Merges symbols[0..*count) in place. No input takes quadratic time. */
ls_status ls__merge(ls_ctx *ctx, const ls_merges *merges, ls_merge_work *work, int32_t *symbols,
                    size_t *count);

/* Characters that no merge joins divide a text into parts that can be merged one by one. */
ls_status ls__merges_join_start(ls_ctx *ctx, ls_merges *merges);
void ls__merges_join(ls_merges *merges, int32_t last, int32_t first);
enum { LS_JOIN_BITS = 20 };
static inline uint32_t ls__join_hash(int32_t last, int32_t first) {
    uint32_t key = (uint32_t)last * 0x9E3779B1u ^ (uint32_t)first * 0x85EBCA77u;
    return (key ^ key >> 15) & ((1u << LS_JOIN_BITS) - 1);
}
/* Never false where a merge joins a symbol ending in `last` to one beginning with `first`. */
static inline bool ls__merges_may_join(const ls_merges *merges, int32_t last, int32_t first) {
    uint32_t hash = ls__join_hash(last, first);
    return merges->joins[hash / 64] >> hash % 64 & 1;
}
/* The length of the first part of a text. */
size_t ls__merges_part(const ls_merges *merges, const uint8_t *text, size_t length);

#endif
