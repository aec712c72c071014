/* Attributes of the operations on groups of rows, shared by their rules and their kernels. */
#ifndef LS_TENSOR_OP_ROW_GROUPS_H
#define LS_TENSOR_OP_ROW_GROUPS_H

#include "tensor/engine/program.h"

/* Rows that leave a memory, `rate` at a time. The memory holds `memory` rows before the segment in
 * which the sequence is; group k is made once rows [k rate, (k + 1) rate) lie before it. Rows of a
 * group are `dilation` apart and end with the last of these. segment and memory are multiples of
 * rate. */
typedef struct ls_groups {
    int64_t rate, dilation, segment, memory;
} ls_groups;
/* Groups that have been made when the sequence is at a position; and the most of one run of up to
 * `chunk` rows, in a sequence of up to `capacity`, at least 1. */
ls_row_rule ls_groups_rule(ls_groups groups);
int64_t ls_groups_due(ls_groups groups, int64_t position);
int64_t ls_groups_max(ls_groups groups, int64_t chunk, int64_t capacity);
/* The groups that this run makes from x [B,N,D] (a cache, or a whole sequence), side by side:
 * [B,most,rate*D]. They have an extent as a cache's rows do: number of the first, and count; what
 * lies behind it is 0. Rows before the sequence's start are 0. */
ls_tensor *ls_row_groups(ls_program *p, const char *name, ls_tensor *x, ls_groups groups);
/* Appends such rows x [B,most,...] (or what a row-wise operation made of them) to a cache of the
 * last `keep` before this run's; `most` is that of any program that shares the state. Without
 * streaming: x itself. */
ls_tensor *ls_rows_append(ls_program *p, const char *name, ls_tensor *x, int64_t keep,
                          int64_t most);
/* The same in two steps: x gives the shape of a row. Only where the program streams. */
ls_tensor *ls_rows_cache(ls_program *p, const char *name, ls_tensor *x, ls_row_rule rule,
                         int64_t keep, int64_t most);
void ls_rows_put(ls_program *p, ls_tensor *cache, ls_tensor *x, int64_t keep);
/* At the end of the run, so that it reads the cache as it was, the backward part too. */
void ls_rows_put_last(ls_program *p, ls_tensor *cache, ls_tensor *x, int64_t keep);
/* Of the rows that leave the memory with this segment, those 1 in `rate` that received the most
 * attention (ls_attention_received) from the segment's queries, in their order: [B,most,D], with an
 * extent as row_groups has. A run must lie within a segment. Only where the program streams; no
 * gradient. */
ls_tensor *ls_most_used(ls_program *p, const char *name, ls_tensor *x, ls_tensor *received,
                        ls_groups groups);
typedef enum { LS_BLEND_MEAN, LS_BLEND_MAX } ls_blend_kind;
/* y[.., D] of x[.., rate*D]: the mean or the largest of `rate` rows side by side. */
ls_tensor *ls_blend(ls_program *p, ls_blend_kind kind, ls_tensor *x, int64_t rate);

/* ---- for the kernels ---- */

typedef struct ls_groups_attributes {
    ls_groups groups;
    int64_t chunk; /* rows of a run */
} ls_groups_attributes;

typedef struct ls_blend_attributes {
    ls_blend_kind kind;
    int64_t rate;
} ls_blend_attributes;

#endif
