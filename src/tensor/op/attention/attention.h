/* What the attention operation and its kernels share: the recorded attributes, the order of the
 * operands, and the whole resolved to addresses for one run. */
#ifndef LS_TENSOR_OP_ATTENTION_H
#define LS_TENSOR_OP_ATTENTION_H

#include <math.h>

#include "tensor/engine/program.h"
#include "tensor/op/attention/tile_schedule.h"
#include "tensor/op/rotate/rotate.h"

enum { LS_KEY_SETS_MAX = 4 };
/* One set of keys that a query may see, and how it is scored. Position of query row i is n, of key
 * row j is m (true positions: a cache's extent, or start + row). Admitted are pairs with
 *   lo <= n - m <= hi,  key_first <= m < key_end,  valid[b][j] != 0,
 *   and with block > 0: 0 <= floor(n / block) - floor(m / block) <= 1, `alone` just 0; n + shift
 *     and m + shift in place of n and m where the blocks begin earlier,
 *   and with group > 0 (without dilation): m < floor(n / group), the groups that are complete,
 *   and with a list: the block of m is in the row of the block of n (of whole sequences, without
 *   bounds or dilation; times > 1 adds its logarithm to the score),
 *   or with span.block > 0: span.from <= m - floor(n / span.block) * span.step < span.to,
 *   and with dilation: (n - m) divisible by the head's dilation d, lo <= (n - m) / d <= hi.
 * Score: scale * q.k [with xPos decay] + bias of the distance between query and key coordinate. */
typedef struct ls_key_set {
    ls_tensor *q;     /* [B,T,H,K] */
    ls_tensor *k, *v; /* [B,N,G,K], [B,N,G,V]: plain, or a cache from ls_cache_append */
    int64_t lo, hi;   /* LS_FAR for no bound */
    int64_t key_first, key_end;
    int64_t block, group;
    bool alone;
    int64_t shift;             /* of blocks: 0 <= shift < block */
    const ls_block_rows *list; /* copied; or NULL */
    ls_span span;
    const int64_t *dilation;          /* [H] or NULL; copied */
    ls_tensor *valid;                 /* u8 [B,N] or NULL */
    ls_position_map query_at, key_at; /* coordinates whose difference the bias sees */
    ls_tensor *query_max; /* i32 [B] or NULL: no query's coordinate is above its sequence's */
    ls_tensor *slopes;    /* wide [H]: bias = -slope * distance (|distance| where bidirectional) */
    ls_tensor *table;     /* wide [H,R]: bias = table[clamp(distance + table_zero, 0, R - 1)] */
    int64_t table_zero;   /* column of distance 0 */
    /* [R,H,K], [B,T,H,K] (Transformer-XL):
     *   score += scale * relative_q . relative[clamp(distance, 0, R - 1)] */
    ls_tensor *relative, *relative_q;
    ls_xpos xpos; /* how keys were scaled when they were rotated */
} ls_key_set;
/* A set that admits everything: lo = -LS_FAR, hi = LS_FAR, all keys, no bias. */
ls_key_set ls_key_set_all(ls_tensor *q, ls_tensor *k, ls_tensor *v);
typedef struct ls_attention_options {
    double scale;
    bool off_by_one; /* the softmax's sum has an extra 1 (a key of score 0 without value) */
    double cap; /* > 0: scores, biases included, become cap tanh(score / cap); not with lists */
} ls_attention_options;
/* One softmax over all sets. Returns [B,T,H,V]; *lse (optional) is the log of the sum of
 * exponentials, wide [B,H,T] (no gradient flows through it). A row that may see no key gives 0 and
 * -infinity. Memory is linear in T and N. Gradients reach q, k, v, table, relative, relative_q. */
ls_tensor *ls_attention(ls_program *p, int sets, const ls_key_set *set,
                        ls_attention_options options, ls_tensor **lse);
/* Attention without a softmax: the weight of a key is a function of its score alone. */
typedef enum {
    LS_WEIGHT_LAPLACE, /* (1 + erf((s - mean) / (deviation sqrt(2)))) / 2 */
    LS_WEIGHT_RELU2,   /* max(s, 0)^2 */
} ls_weight_kind;
typedef struct ls_weighting {
    ls_weight_kind kind;
    double mean, deviation; /* LAPLACE */
} ls_weighting;
/* How much of all heads' and queries' attention each key of set 0 got: wide or narrow [B,N,H,V]
 * as its values, whose every element is the sum over queries of the softmax's weights. out and lse
 * are the attention's, of the same sets. No gradient. */
ls_tensor *ls_attention_received(ls_program *p, int sets, const ls_key_set *set,
                                 ls_attention_options options, ls_tensor *out, ls_tensor *lse);

/* ---- for the kernels ---- */

/* Operands of one set, in the order of a node's inputs. `attention` has them for each set and gives
 * O and LSE; `score_profile` has the same and gives a table, `pointwise_attention` O alone;
 * `attention_pattern` has LSE behind them. `attention_grad` has them too, then O, LSE and dO (of
 * `pointwise_attention_grad` the first two are NULL), and gives a gradient in the place of each
 * operand (NULL where none is wanted). */
typedef enum {
    LS_ATTENTION_Q,
    LS_ATTENTION_K,
    LS_ATTENTION_V,
    LS_ATTENTION_VALID,
    LS_ATTENTION_SLOPES,
    LS_ATTENTION_TABLE,
    LS_ATTENTION_RELATIVE,
    LS_ATTENTION_RELATIVE_Q,
    LS_ATTENTION_LIST, /* i32: rows of the queries' blocks, then of the keys': first, at, times;
                          then the pieces and joins of either (ls_block_plan) */
    LS_ATTENTION_QUERY_MAX,
    LS_ATTENTION_SLOTS,
} ls_attention_slot;

/* A recorded set. Its tensors are the node's inputs, its list and dilation are kept apart. */
typedef struct ls_key_set_plan {
    ls_key_set set;
    ls_tile_rule rule; /* its bounds are widened by the dilation */
    bool dilated;
    ls_block_rows list;    /* its sizes; size 0: there is none */
    int64_t list_entries;  /* of all heads that have rows */
    ls_block_plan plan[2]; /* of the rows of queries and of keys */
    double list_pairs;     /* that it admits, of all heads of a sequence */
} ls_key_set_plan;

typedef struct ls_attention_attributes {
    int sets;
    double scale, cap;
    bool off_by_one;
    ls_weighting weighting; /* of `pointwise_attention` */
    ls_pattern_view view;   /* of `attention_pattern` */
    bool listed; /* a list, groups or bounded coordinates: under a name of its own, as not every
                    device has them */
    ls_key_set_plan set[LS_KEY_SETS_MAX];
    int64_t dilation[]; /* [sets][H], 1 where there is none */
} ls_attention_attributes;

/* Checks the sets of an operation that reads them, writes the operands to in[sets *
 * LS_ATTENTION_SLOTS] and gives the attributes (ls_free them; *bytes long). NULL where the program
 * has failed. */
ls_attention_attributes *ls_attention_describe(ls_program *p, int sets, const ls_key_set *set,
                                               ls_attention_options options, ls_tensor **in,
                                               size_t *bytes);

/* A tensor with the axes batch, row, head and a contiguous last one. */
typedef struct ls_attention_array {
    void *data; /* NULL: absent */
    ls_dtype type;
    int64_t batch, row, head; /* strides in elements */
} ls_attention_array;

/* One set of one run. */
typedef struct ls_key_set_run {
    const ls_key_set_plan *about;
    const int64_t *dilation;                          /* [H] or NULL */
    ls_interval held;                                 /* positions of the key rows */
    int64_t key_rows;                                 /* rows of the key tensor, held or not */
    ls_attention_array q, k, v, relative, relative_q; /* relative: row = distance */
    ls_block_rows seen_by_queries, seen_by_keys;      /* the list, both ways round */
    const int32_t *pieces[2];                         /* of those rows, with the joins behind */
    const int32_t *query_max;                         /* [B] or NULL */
    const uint8_t *valid;
    int64_t valid_batch;
    const void *slopes, *table; /* wide */
    int64_t table_rows, table_stride, relative_rows;
    /* gradients, data NULL where not wanted */
    ls_attention_array dq, dk, dv, drelative_q, drelative;
    void *dtable; /* wide */
    int64_t dtable_stride;
} ls_key_set_run;

typedef struct ls_attention_job {
    int64_t B, T, H, G, K, V;
    int64_t start; /* position of query row 0 */
    double scale, cap;
    bool off_by_one;
    int sets;
    ls_key_set_run set[LS_KEY_SETS_MAX];
    ls_attention_array out, dout;
    void *lse; /* wide [B,H,T], natural logarithm */
    int threads;
    void *workspace;
} ls_attention_job;

/* Fills in the job of a node of any of the operations (of `score_profile`, out and lse mean
 * nothing). With run == NULL only shapes, types and
 * attributes (what a workspace depends on), every key row counting as held. */
void ls_attention_resolve(const ls_run *run, const ls_node *node, ls_attention_job *job);

/* The query positions for which a head admits the key at position m, every `step`-th counted from
 * `first`; validity is not looked at. */
typedef struct ls_attention_reach {
    int64_t first, end, step;
} ls_attention_reach;
ls_attention_reach ls_attention_reach_of(const ls_key_set_run *set, int64_t head, int64_t m);
/* Whether query n admits key m, by the same rules. */
bool ls_attention_admits(const ls_key_set_run *set, int64_t head, int64_t n, int64_t m);

/* The coordinate of the query at position n of sequence b. */
static inline double ls_attention_query_at(const ls_key_set_run *set, int64_t b, int64_t n) {
    double at = ls_position_map_at(set->about->set.query_at, n);
    return set->query_max == NULL ? at : fmin(at, set->query_max[b]);
}
/* How often key m counts for query n by the set's list; 1 where it has none. */
static inline int32_t ls_attention_times(const ls_key_set_run *set, int64_t head, int64_t n,
                                         int64_t m) {
    const ls_block_rows *rows = &set->seen_by_queries;
    if (rows->first == NULL) return 1;
    return ls_block_times(rows, head, ls_block_of(rows, n), ls_block_of(rows, m));
}

/* Pairs that a run of a node admits, summed over heads and sequences. */
double ls_attention_pairs(const ls_node *node);

/* The pair of rotated elements to which element e of a head belongs; -1 where it is not rotated. */
static inline int64_t ls_attention_decay_pair(const ls_key_set_plan *about, int64_t e) {
    if (e >= 2 * about->set.xpos.pairs) return -1;
    return about->set.xpos.halves ? e % about->set.xpos.pairs : e / 2;
}

#endif
