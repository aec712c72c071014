/* The attention operation: checks, recording, gradient rule, cost. */
#include "tensor/op/attention/attention.h"

#include <math.h>

static void attention_backward(ls_program *p, const ls_node *node);
static double attention_flops(const ls_node *node);
static double attention_grad_flops(const ls_node *node);

static const ls_op attention_op = {
    .name = "attention", .parts = true, .backward = attention_backward, .flops = attention_flops};
static const ls_op attention_grad_op = {.name = "attention_grad", .flops = attention_grad_flops};
static const ls_op listed_op = {.name = "listed_attention",
                                .parts = true,
                                .backward = attention_backward,
                                .flops = attention_flops};
static const ls_op listed_grad_op = {.name = "listed_attention_grad",
                                     .flops = attention_grad_flops};
/* The same with spans, under a name of its own: not every device has them. */
static const ls_op span_op = {.name = "span_attention",
                              .parts = true,
                              .backward = attention_backward,
                              .flops = attention_flops};
static const ls_op span_grad_op = {.name = "span_attention_grad", .flops = attention_grad_flops};

ls_key_set ls_key_set_all(ls_tensor *q, ls_tensor *k, ls_tensor *v) {
    return (ls_key_set){
        .q = q, .k = k, .v = v, .lo = -LS_FAR, .hi = LS_FAR, .key_first = 0, .key_end = LS_FAR};
}

/* ---- checks ---- */

static bool has_shape(const ls_tensor *tensor, int rank, const int64_t *dim) {
    if (tensor->rank != rank) return false;
    for (int i = 0; i < rank; i++)
        if (dim[i] >= 0 && tensor->dim[i] != dim[i]) return false;
    return true;
}

/* Axes of -1 may be anything. */
static void expect(ls_program *p, int at, const char *name, const ls_tensor *tensor, int rank,
                   const int64_t *dim, ls_dtype type) {
    if (!has_shape(tensor, rank, dim))
        ls_refuse(p, LS_EUSE, "attention: the shape of %s in set %d does not fit", name, at);
    else if (tensor->type != type)
        ls_refuse(p, LS_EUSE, "attention: %s in set %d is %s where %s is needed", name, at,
                  ls_dtype_name(tensor->type), ls_dtype_name(type));
}

static void expect_map(ls_program *p, int at, ls_position_map map) {
    const bool parted =
        map.kind == LS_MAP_GROUP || map.kind == LS_MAP_BLOCK || map.kind == LS_MAP_NEXT;
    if (parted && !(map.a >= 1))
        ls_refuse(p, LS_EUSE, "attention: positions of set %d are grouped by %g, below 1", at,
                  map.a);
}

static void check_list(ls_program *p, int at, const ls_key_set *s, int64_t H) {
    const ls_block_rows *list = s->list;
    const int64_t positions = ls_max(s->q->dim[1], s->k->dim[1]);
    bool bounded = s->lo > -LS_FAR || s->hi < LS_FAR || s->block > 0 || s->group > 0 ||
                   s->dilation != NULL || s->key_first > 0 || s->key_end < LS_FAR ||
                   s->k->port >= 0;
    bool fits = list->size > 0 && list->shift >= 0 && list->shift < list->size &&
                (list->heads == 1 || list->heads == H) &&
                positions + list->shift <= list->blocks * list->size;
    if (bounded || !fits) {
        ls_refuse(p, LS_EUSE, "attention: the list of blocks in set %d %s", at,
                  bounded ? "goes with no other bound and no cache" : "does not fit");
        return;
    }
    for (int64_t row = 0; row < list->heads * list->blocks; row++)
        for (int32_t i = list->first[row]; i < list->first[row + 1]; i++) {
            bool rises = i == list->first[row] || list->at[i] > list->at[i - 1];
            if (rises && list->at[i] >= 0 && list->at[i] < list->blocks && list->times[i] > 0)
                continue;
            ls_refuse(p, LS_EUSE, "attention: the blocks listed in set %d do not rise", at);
            return;
        }
}

static void check_segment(ls_program *p, int at, const ls_key_set *s, const ls_key_set *first) {
    const int64_t B = first->q->dim[0], T = first->q->dim[1], H = first->q->dim[2];
    const int64_t K = first->q->dim[3], N = s->k->dim[1], G = first->k->dim[2];
    const ls_dtype type = ls_type(p), wide = ls_wide_type(p);
    expect(p, at, "q", s->q, 4, (int64_t[]){B, T, H, K}, type);
    expect(p, at, "k", s->k, 4, (int64_t[]){B, -1, G, K}, type);
    expect(p, at, "v", s->v, 4, (int64_t[]){B, N, G, first->v->dim[3]}, type);
    if (G < 1 || H % G != 0)
        ls_refuse(p, LS_EUSE, "attention: %lld query heads do not divide into %lld key heads",
                  (long long)H, (long long)G);
    if (s->valid != NULL) expect(p, at, "valid", s->valid, 2, (int64_t[]){B, N}, LS_U8);
    if (s->slopes != NULL) expect(p, at, "slopes", s->slopes, 1, &H, wide);
    if (s->table != NULL) expect(p, at, "table", s->table, 2, (int64_t[]){H, -1}, wide);
    if ((s->relative == NULL) != (s->relative_q == NULL)) {
        ls_refuse(p, LS_EUSE, "attention: relative keys and their queries come together");
    } else if (s->relative != NULL) {
        expect(p, at, "relative", s->relative, 3, (int64_t[]){-1, H, K}, s->relative->type);
        expect(p, at, "relative_q", s->relative_q, 4, (int64_t[]){B, T, H, K}, type);
        bool real = s->relative->type == type || s->relative->type == wide;
        if (!real)
            ls_refuse(p, LS_EUSE, "attention: relative keys of set %d have no real type", at);
    }
    if (s->group < 0) ls_refuse(p, LS_EUSE, "attention: a group of %lld", (long long)s->group);
    if (s->block < 0) ls_refuse(p, LS_EUSE, "attention: a block of %lld keys", (long long)s->block);
    if (s->shift != 0 && (s->shift < 0 || s->shift >= s->block))
        ls_refuse(p, LS_EUSE, "attention: blocks of %lld cannot begin %lld earlier",
                  (long long)s->block, (long long)s->shift);
    if (s->span.block != 0 && (s->span.block < 1 || s->span.step < 1 || s->block > 0))
        ls_refuse(p, LS_EUSE, "attention: the span of set %d does not fit", at);
    for (int64_t h = 0; s->dilation != NULL && h < H; h++)
        if (s->dilation[h] < 1)
            ls_refuse(p, LS_EUSE, "attention: head %lld has a dilation below 1", (long long)h);
    if (s->xpos.pairs < 0 || s->xpos.pairs > LS_PAIRS_MAX || 2 * s->xpos.pairs > K ||
        (s->xpos.pairs > 0 && s->xpos.block < 1))
        ls_refuse(p, LS_EUSE, "attention: the decay of set %d does not fit heads of %lld", at,
                  (long long)K);
    bool leaps = s->query_at.kind > LS_MAP_GROUP || s->key_at.kind > LS_MAP_GROUP;
    bool linear = s->slopes != NULL || s->relative != NULL;
    if (leaps && (s->table != NULL || s->xpos.pairs > 0 || (linear && s->span.block == 0)))
        ls_refuse(p, LS_EUSE, "attention: coordinates of set %d that leap need a span", at);
    expect_map(p, at, s->query_at);
    expect_map(p, at, s->key_at);
    if (s->list != NULL && !ls_failed(p)) check_list(p, at, s, H);
    if (s->query_max != NULL) expect(p, at, "query_max", s->query_max, 1, &B, LS_I32);
}

/* ---- recording ---- */

static int64_t stretch(int64_t distance, int64_t dilation) {
    if (distance >= LS_FAR / dilation) return LS_FAR;
    if (distance <= -LS_FAR / dilation) return -LS_FAR;
    return distance * dilation;
}

static ls_key_set_plan describe(const ls_key_set *s, int64_t H, int64_t *dilation) {
    ls_key_set_plan about = {
        .rule = {.lo = s->lo,
                 .hi = s->hi,
                 .key_first = s->key_first,
                 .key_end = s->key_end,
                 .block = s->block,
                 .alone = s->alone,
                 .shift = s->shift,
                 .group = s->group,
                 .span = s->span,
                 .checked = s->valid != NULL || s->dilation != NULL},
        .set = *s,
        .dilated = s->dilation != NULL,
    };
    about.set.list = NULL;
    about.set.dilation = NULL;
    for (int64_t h = 0; h < H; h++) {
        dilation[h] = s->dilation == NULL ? 1 : s->dilation[h];
        about.rule.lo = ls_min(about.rule.lo, stretch(s->lo, dilation[h]));
        about.rule.hi = ls_max(about.rule.hi, stretch(s->hi, dilation[h]));
    }
    return about;
}

/* Rows of ls_block_rows as one tensor of whole numbers lie one after the other. */
static int64_t list_words(const ls_key_set_plan *about) {
    return about->list.heads * about->list.blocks + 1 + 2 * about->list_entries;
}

static ls_block_rows list_rows(const ls_key_set_plan *about, const int32_t *words) {
    ls_block_rows rows = about->list;
    rows.first = words;
    rows.at = rows.first + rows.heads * rows.blocks + 1;
    rows.times = rows.at + about->list_entries;
    return rows;
}

/* The rows of the other side: blocks of queries by blocks of keys. */
static void transpose_list(const ls_block_rows *list, double *first, double *at, double *times) {
    const int64_t blocks = list->blocks, rows = list->heads * blocks;
    for (int64_t i = 0; i <= rows; i++) first[i] = 0;
    for (int64_t row = 0; row < rows; row++)
        for (int32_t i = list->first[row]; i < list->first[row + 1]; i++)
            first[row / blocks * blocks + list->at[i] + 1]++;
    for (int64_t i = 0; i < rows; i++) first[i + 1] += first[i];
    for (int64_t row = 0; row < rows; row++) /* first[] walks to the next row's place */
        for (int32_t i = list->first[row]; i < list->first[row + 1]; i++) {
            int64_t entry = (int64_t)first[row / blocks * blocks + list->at[i]]++;
            at[entry] = (double)(row % blocks);
            times[entry] = list->times[i];
        }
    for (int64_t i = rows; i > 0; i--) first[i] = first[i - 1];
    first[0] = 0;
}

/* Both sides of the list as a constant, with their pieces. */
static ls_tensor *list_tensor(ls_program *p, const ls_block_rows *list, ls_block_plan plan[2]) {
    if (list == NULL) return NULL;
    const int64_t rows = list->heads * list->blocks, entries = list->first[rows];
    const int64_t words = rows + 1 + 2 * entries;
    double *both = ls_new(ls_program_ctx(p), (size_t)(2 * words), sizeof *both), *all = NULL;
    if (both != NULL) {
        for (int64_t i = 0; i <= rows; i++) both[i] = list->first[i];
        for (int64_t i = 0; i < entries; i++) {
            both[rows + 1 + i] = list->at[i];
            both[rows + 1 + entries + i] = list->times[i];
        }
        double *transposed = both + words;
        transpose_list(list, transposed, transposed + rows + 1, transposed + rows + 1 + entries);
        int64_t more = 0;
        for (int side = 0; side < 2; side++) {
            plan[side] = ls_block_plan_of(both + side * words, rows);
            more += ls_block_plan_words(&plan[side]);
        }
        all = ls_new(ls_program_ctx(p), (size_t)(2 * words + more), sizeof *all);
    }
    ls_tensor *tensor = NULL;
    if (all == NULL) {
        ls_refuse(p, LS_ENOMEM, "attention: no memory for a list of %lld blocks",
                  (long long)entries);
    } else {
        double *to = all + 2 * words;
        memcpy(all, both, (size_t)(2 * words) * sizeof *both);
        for (int side = 0; side < 2; to += ls_block_plan_words(&plan[side]), side++)
            ls_block_plan_write(&plan[side], both + side * words, rows, to);
        tensor = ls_constant(p, LS_I32, LS_DIMS(to - all), all);
    }
    ls_free(ls_program_ctx(p), all);
    ls_free(ls_program_ctx(p), both);
    return tensor;
}

/* Positions of a block that are below `count`. */
static int64_t block_length(const ls_block_rows *list, int64_t block, int64_t count) {
    int64_t first = ls_max(0, block * list->size - list->shift);
    return ls_max(0, ls_min(count, (block + 1) * list->size - list->shift) - first);
}

static void describe_list(const ls_key_set *s, ls_key_set_plan *about) {
    const ls_block_rows *list = s->list;
    const int64_t H = s->q->dim[2];
    about->list = (ls_block_rows){
        .size = list->size, .shift = list->shift, .blocks = list->blocks, .heads = list->heads};
    about->list_entries = list->first[list->heads * list->blocks];
    for (int64_t row = 0; row < list->heads * list->blocks; row++)
        for (int32_t i = list->first[row]; i < list->first[row + 1]; i++)
            about->list_pairs += (double)(H / list->heads) *
                                 (double)block_length(list, row % list->blocks, s->q->dim[1]) *
                                 (double)block_length(list, list->at[i], s->k->dim[1]);
}

/* Positions that a map takes together: sequences begin at multiples of them. 0: it goes one by one.
 * -1: what it gives does not only depend on distances. */
static int64_t map_period(ls_position_map map) {
    switch (map.kind) {
    case LS_MAP_GROUP:
    case LS_MAP_BLOCK:
    case LS_MAP_NEXT:
        return map.a == floor(map.a) ? (int64_t)map.a : -1;
    case LS_MAP_CLAMP:
    case LS_MAP_CONSTANT:
        return -1;
    default:
        return 0;
    }
}

void ls_map_fits_begins(ls_program *p, ls_position_map map) {
    const int64_t period = map_period(map);
    if (ls_begins_differ(p) && period < 0)
        ls_refuse_option(p, "resets",
                         "positions that count from the start of a stream do not go with sequences "
                         "that begin anew each for itself");
    ls_begins_fit(p, period);
}

/* Where sequences begin anew, a query sees the keys of its own alone. */
static void find_own_keys(ls_program *p, ls_key_set *s) {
    if (!ls_begins_differ(p) || s->k->port < 0) return;
    ls_begins_fit(p, s->block);
    ls_begins_fit(p, s->span.block);
    ls_begins_fit(p, s->group);
    ls_map_fits_begins(p, s->query_at);
    ls_map_fits_begins(p, s->key_at);
    if (s->valid != NULL || s->key_first > 0 || s->key_end < LS_FAR)
        ls_refuse_option(p, "resets",
                         "keys at given positions do not go with sequences that begin anew each "
                         "for itself");
    s->valid = ls_own_rows(p, s->k);
}

ls_attention_attributes *ls_attention_describe(ls_program *p, int sets, const ls_key_set *given,
                                               ls_attention_options options, ls_tensor **in,
                                               size_t *bytes) {
    ls_key_set set[LS_KEY_SETS_MAX];
    if (ls_failed(p)) return NULL;
    if (sets < 1 || sets > LS_KEY_SETS_MAX) {
        ls_refuse(p, LS_EUSE, "attention: %d sets, 1 to %d are possible", sets, LS_KEY_SETS_MAX);
        return NULL;
    }
    ls_block_plan plan[LS_KEY_SETS_MAX][2] = {0};
    for (int i = 0; i < sets; i++) {
        ls_key_set *s = &set[i];
        *s = given[i];
        if (s->q == NULL || s->k == NULL || s->v == NULL) return NULL;
        if (s->q->rank != 4 || s->k->rank != 4 || s->v->rank != 4) {
            ls_refuse(p, LS_EUSE, "attention: q, k and v of set %d need 4 axes", i);
            return NULL;
        }
        if (s->list != NULL && options.cap > 0)
            ls_refuse(p, LS_EUSE, "attention: scores of listed blocks cannot be capped");
        find_own_keys(p, s);
        check_segment(p, i, s, &set[0]);
        ls_tensor *const operands[LS_ATTENTION_SLOTS] = {
            s->q,        s->k,          s->v,
            s->valid,    s->slopes,     s->table,
            s->relative, s->relative_q, ls_failed(p) ? NULL : list_tensor(p, s->list, plan[i]),
            s->query_max};
        memcpy(in + i * LS_ATTENTION_SLOTS, operands, sizeof operands);
    }
    if (ls_failed(p)) return NULL;
    const int64_t H = set[0].q->dim[2];
    *bytes = sizeof(ls_attention_attributes) + (size_t)(sets * H) * sizeof(int64_t);
    ls_attention_attributes *attributes = ls_new(ls_program_ctx(p), *bytes, 1);
    if (attributes == NULL) {
        ls_refuse(p, LS_ENOMEM, "attention: no memory for %d sets", sets);
        return NULL;
    }
    attributes->sets = sets;
    attributes->scale = options.scale;
    attributes->cap = options.cap;
    attributes->off_by_one = options.off_by_one;
    for (int i = 0; i < sets; i++) {
        attributes->set[i] = describe(&set[i], H, attributes->dilation + i * H);
        if (set[i].list != NULL) describe_list(&set[i], &attributes->set[i]);
        memcpy(attributes->set[i].plan, plan[i], sizeof plan[i]);
        attributes->listed |= set[i].list != NULL || set[i].query_max != NULL || set[i].group > 0;
    }
    return attributes;
}

static bool has_span(const ls_attention_attributes *attributes) {
    bool any = false;
    for (int i = 0; i < attributes->sets; i++) any |= attributes->set[i].rule.span.block > 0;
    return any;
}

static const ls_op *op_of(const ls_attention_attributes *attributes, bool backward) {
    if (attributes->listed) return backward ? &listed_grad_op : &listed_op;
    if (has_span(attributes)) return backward ? &span_grad_op : &span_op;
    return backward ? &attention_grad_op : &attention_op;
}

/* Whether any set has keys of one part alone. Then the others', which all parts have, and the extra 1
 * of the sum are the first part's to count. */
static bool take_part(const ls_program *p, int sets, ls_key_set *set,
                      ls_attention_options *options) {
    bool any = false;
    for (int i = 0; i < sets; i++) any |= ls_in_parts(p, set[i].k);
    if (!any || ls_program_about(p)->parts.own == 0) return any;
    for (int i = 0; i < sets; i++)
        if (!ls_in_parts(p, set[i].k)) set[i].key_end = set[i].key_first;
    options->off_by_one = false;
    return true;
}

ls_tensor *ls_attention(ls_program *p, int sets, const ls_key_set *given,
                        ls_attention_options options, ls_tensor **lse) {
    ls_tensor *in[LS_KEY_SETS_MAX * LS_ATTENTION_SLOTS];
    ls_key_set set[LS_KEY_SETS_MAX];
    size_t bytes;
    if (lse != NULL) *lse = NULL;
    if (sets > 0 && sets <= LS_KEY_SETS_MAX) memcpy(set, given, (size_t)sets * sizeof *set);
    const bool part =
        !ls_failed(p) && sets > 0 && sets <= LS_KEY_SETS_MAX && take_part(p, sets, set, &options);
    ls_attention_attributes *attributes = ls_attention_describe(p, sets, set, options, in, &bytes);
    if (attributes == NULL) return NULL;
    const int64_t B = set[0].q->dim[0], T = set[0].q->dim[1], H = set[0].q->dim[2];
    ls_tensor *out[2] = {ls_activation(p, ls_type(p), LS_DIMS(B, T, H, set[0].v->dim[3])),
                         ls_activation(p, ls_wide_type(p), LS_DIMS(B, H, T))};
    ls_record(p, op_of(attributes, false), attributes, bytes, sets * LS_ATTENTION_SLOTS, in, 2,
              out);
    ls_free(ls_program_ctx(p), attributes);
    if (part) ls_merge_parts(p, &out[0], &out[1]);
    if (lse != NULL) *lse = out[1];
    return out[0];
}

/* The gradient of the values for a gradient of ones is what their keys received. */
ls_tensor *ls_attention_received(ls_program *p, int sets, const ls_key_set *set,
                                 ls_attention_options options, ls_tensor *out, ls_tensor *lse) {
    ls_tensor *in[LS_KEY_SETS_MAX * LS_ATTENTION_SLOTS + 3];
    ls_tensor *results[LS_KEY_SETS_MAX * LS_ATTENTION_SLOTS] = {NULL};
    const int count = sets * LS_ATTENTION_SLOTS;
    size_t bytes;
    ls_attention_attributes *attributes = ls_attention_describe(p, sets, set, options, in, &bytes);
    if (attributes == NULL || out == NULL || lse == NULL) return NULL;
    double *ones = ls_new(ls_program_ctx(p), (size_t)ls_count(out), sizeof *ones);
    for (int64_t i = 0; ones != NULL && i < ls_count(out); i++) ones[i] = 1;
    if (ones == NULL) ls_refuse(p, LS_ENOMEM, "attention: no memory for a constant");
    in[count] = out;
    in[count + 1] = lse;
    in[count + 2] = ls_constant(p, out->type, out->rank, out->dim, ones);
    const ls_tensor *v = set[0].v;
    ls_tensor *received = ls_activation(p, v->type, v->rank, v->dim);
    if (received != NULL) received->port = v->port;
    results[LS_ATTENTION_V] = received;
    ls_record(p, op_of(attributes, true), attributes, bytes, count + 3, in, count, results);
    if (received != NULL) received->needs_grad = false;
    ls_free(ls_program_ctx(p), attributes);
    ls_free(ls_program_ctx(p), ones);
    return received;
}

static const ls_attention_slot differentiable[] = {
    LS_ATTENTION_Q,     LS_ATTENTION_K,        LS_ATTENTION_V,
    LS_ATTENTION_TABLE, LS_ATTENTION_RELATIVE, LS_ATTENTION_RELATIVE_Q,
};
enum { DIFFERENTIABLE = sizeof differentiable / sizeof differentiable[0] };

/* Each set gets gradients of its own; the sum over sets that share a tensor is recorded by
 * ls_grad_add. */
static void attention_backward(ls_program *p, const ls_node *node) {
    const ls_attention_attributes *attributes = node->attributes;
    ls_tensor *in[LS_KEY_SETS_MAX * LS_ATTENTION_SLOTS + 3];
    ls_tensor *out[LS_KEY_SETS_MAX * LS_ATTENTION_SLOTS] = {NULL};
    if (ls_grad_of(node->out[0]) == NULL) return;
    memcpy(in, node->in, (size_t)node->in_count * sizeof *in);
    in[node->in_count] = node->out[0];
    in[node->in_count + 1] = node->out[1];
    in[node->in_count + 2] = ls_grad_of(node->out[0]);
    for (int s = 0; s < attributes->sets; s++)
        for (int i = 0; i < DIFFERENTIABLE; i++) {
            int at = s * LS_ATTENTION_SLOTS + (int)differentiable[i];
            if (in[at] == NULL || !in[at]->needs_grad) continue;
            bool again = false; /* a tensor that several sets share has one target only */
            for (int before = 0; before < at; before++) again |= in[before] == in[at];
            out[at] = again ? ls_activation(p, in[at]->type, in[at]->rank, in[at]->dim)
                            : ls_grad_target(p, in[at]);
            if (again && out[at] != NULL) out[at]->port = in[at]->port;
        }
    int64_t H = node->in[LS_ATTENTION_Q]->dim[2];
    size_t bytes =
        sizeof *attributes + (size_t)(attributes->sets * H) * sizeof attributes->dilation[0];
    ls_record(p, op_of(attributes, true), attributes, bytes, node->in_count + 3, in, node->in_count,
              out);
    for (int i = 0; i < node->in_count; i++)
        if (out[i] != NULL) ls_grad_add(p, in[i], out[i]);
}

/* ---- resolving ---- */

static ls_attention_array array_of(const ls_run *run, const ls_tensor *tensor) {
    if (tensor == NULL) return (ls_attention_array){0};
    /* without a run nothing has an address yet; what counts is that the operand is there */
    static char there;
    return (ls_attention_array){.data = run == NULL ? (void *)&there : ls_data(tensor),
                                .type = tensor->type,
                                .batch = tensor->stride[0],
                                .row = tensor->stride[1],
                                .head = tensor->stride[2]};
}

static ls_attention_array distances_of(const ls_run *run, const ls_tensor *tensor) {
    ls_attention_array array = array_of(run, tensor);
    if (tensor == NULL) return array;
    array.batch = 0;
    array.row = tensor->stride[0];
    array.head = tensor->stride[1];
    return array;
}

static void *address(const ls_run *run, const ls_tensor *tensor) {
    return array_of(run, tensor).data;
}

static void resolve_source(const ls_run *run, const ls_attention_attributes *attributes, int s,
                           ls_tensor *const *in, ls_tensor *const *grad, ls_key_set_run *set) {
    in += s * LS_ATTENTION_SLOTS;
    const ls_tensor *k = in[LS_ATTENTION_K], *table = in[LS_ATTENTION_TABLE];
    const ls_tensor *relative = in[LS_ATTENTION_RELATIVE], *valid = in[LS_ATTENTION_VALID];
    ls_extent extent = {0, k->dim[1]};
    if (run != NULL) extent = ls_cache_extent(run, k);
    *set = (ls_key_set_run){
        .about = &attributes->set[s],
        .held = {extent.first, extent.first + extent.count},
        .key_rows = k->dim[1],
        .q = array_of(run, in[LS_ATTENTION_Q]),
        .k = array_of(run, k),
        .v = array_of(run, in[LS_ATTENTION_V]),
        .relative = distances_of(run, relative),
        .relative_q = array_of(run, in[LS_ATTENTION_RELATIVE_Q]),
        .query_max = address(run, in[LS_ATTENTION_QUERY_MAX]),
        .valid = address(run, valid),
        .valid_batch = valid == NULL ? 0 : valid->stride[0],
        .slopes = address(run, in[LS_ATTENTION_SLOPES]),
        .table = address(run, table),
        .table_rows = table == NULL ? 0 : table->dim[1],
        .table_stride = table == NULL ? 0 : table->stride[0],
        .relative_rows = relative == NULL ? 0 : relative->dim[0],
    };
    const int32_t *list = run == NULL ? NULL : address(run, in[LS_ATTENTION_LIST]);
    if (list != NULL) {
        set->seen_by_queries = list_rows(set->about, list);
        set->seen_by_keys = list_rows(set->about, list + list_words(set->about));
        set->pieces[0] = list + 2 * list_words(set->about);
        set->pieces[1] = set->pieces[0] + ls_block_plan_words(&set->about->plan[0]);
    }
    if (attributes->set[s].dilated)
        set->dilation = attributes->dilation + s * in[LS_ATTENTION_Q]->dim[2];
    if (grad == NULL) return;
    grad += s * LS_ATTENTION_SLOTS;
    set->dq = array_of(run, grad[LS_ATTENTION_Q]);
    set->dk = array_of(run, grad[LS_ATTENTION_K]);
    set->dv = array_of(run, grad[LS_ATTENTION_V]);
    set->drelative_q = array_of(run, grad[LS_ATTENTION_RELATIVE_Q]);
    set->drelative = distances_of(run, grad[LS_ATTENTION_RELATIVE]);
    const ls_tensor *dtable = grad[LS_ATTENTION_TABLE];
    set->dtable = address(run, dtable);
    set->dtable_stride = dtable == NULL ? 0 : dtable->stride[0];
}

void ls_attention_resolve(const ls_run *run, const ls_node *node, ls_attention_job *job) {
    const ls_attention_attributes *attributes = node->attributes;
    const ls_tensor *q = node->in[LS_ATTENTION_Q], *k = node->in[LS_ATTENTION_K];
    int operands = attributes->sets * LS_ATTENTION_SLOTS;
    const int more = node->in_count - operands; /* 1: a lse alone, of `attention_pattern` */
    const bool backward = more > 1;
    const ls_tensor *out = backward ? node->in[operands] : node->out[0];
    const ls_tensor *lse = more > 0              ? node->in[operands + backward]
                           : node->out_count > 1 ? node->out[1]
                                                 : NULL;
    *job = (ls_attention_job){
        .B = q->dim[0],
        .T = q->dim[1],
        .H = q->dim[2],
        .G = k->dim[2],
        .K = q->dim[3],
        .V = node->in[LS_ATTENTION_V]->dim[3],
        .start = run == NULL ? 0 : run->start,
        .scale = attributes->scale,
        .cap = attributes->cap,
        .off_by_one = attributes->off_by_one,
        .sets = attributes->sets,
        .out = array_of(run, out),
        .dout = array_of(run, backward ? node->in[operands + 2] : NULL),
        .lse = address(run, lse),
        .threads = run == NULL ? 1 : run->threads,
        .workspace = run == NULL ? NULL : run->workspace,
    };
    for (int s = 0; s < job->sets; s++)
        resolve_source(run, attributes, s, node->in, backward ? node->out : NULL, &job->set[s]);
}

/* ---- what is admitted ---- */

ls_attention_reach ls_attention_reach_of(const ls_key_set_run *set, int64_t head, int64_t m) {
    const ls_key_set_plan *about = set->about;
    ls_attention_reach reach = {.step = set->dilation == NULL ? 1 : set->dilation[head]};
    if (m < about->rule.key_first || m >= about->rule.key_end) return reach;
    reach.first = m + stretch(about->set.lo, reach.step);
    reach.end = m + stretch(about->set.hi, reach.step) + 1;
    ls_span span = ls_rule_span(&about->rule);
    if (span.block > 0) {
        ls_interval blocks = ls_span_any(span, (ls_interval){m, m + 1});
        int64_t from = ls_max(0, blocks.first * span.block - about->rule.shift);
        if (reach.first < from) /* stay on the grid m + i * step */
            reach.first = from + ((m - from) % reach.step + reach.step) % reach.step;
        reach.end = ls_min(reach.end, blocks.end * span.block - about->rule.shift);
    } else if (reach.step > 1 && reach.first < 0) {
        reach.first = m % reach.step;
    }
    if (about->rule.group > 0) reach.first = ls_max(reach.first, (m + 1) * about->rule.group);
    return reach;
}

bool ls_attention_admits(const ls_key_set_run *set, int64_t head, int64_t n, int64_t m) {
    ls_attention_reach reach = ls_attention_reach_of(set, head, m);
    return n >= reach.first && n < reach.end && (n - reach.first) % reach.step == 0;
}

/* ---- cost ---- */

/* Admitted pairs of all heads of one sequence: each query admits an interval of keys, of a dilated
 * head every d-th. Validity is not known when recording and is taken as given. */
double ls_attention_pairs(const ls_node *node) {
    ls_attention_job job;
    ls_attention_resolve(NULL, node, &job);
    double pairs = 0;
    for (int s = 0; s < job.sets; s++) {
        const ls_key_set_run *set = &job.set[s];
        const ls_tensor *k = node->in[s * LS_ATTENTION_SLOTS + LS_ATTENTION_K];
        if (set->about->list.size > 0) {
            pairs += set->about->list_pairs;
            continue;
        }
        /* a stream is counted at its end, where the cache is full */
        int64_t start = k->port >= 0 ? ls_max(0, k->dim[1] - job.T) : 0;
        int64_t heads = set->dilation == NULL ? 1 : job.H;
        for (int64_t h = 0; h < heads; h++) {
            int64_t step = set->dilation == NULL ? 1 : set->dilation[h];
            ls_tile_rule rule = set->about->rule;
            rule.lo = stretch(set->about->set.lo, step);
            rule.hi = stretch(set->about->set.hi, step);
            for (int64_t n = start; n < start + job.T; n++) {
                ls_interval keys =
                    ls_interval_cut(ls_keys_any(&rule, (ls_interval){n, n + 1}), set->held);
                if (keys.end <= keys.first) continue;
                /* multiples of step among the distances n - m */
                int64_t far = n - keys.first, near = n - keys.end + 1;
                int64_t count = step == 1 ? far - near + 1
                                          : (int64_t)(floor((double)far / (double)step) -
                                                      ceil((double)near / (double)step)) +
                                                1;
                pairs += (double)count * (set->dilation == NULL ? (double)job.H : 1.0);
            }
        }
    }
    return pairs * (double)job.B;
}

static double attention_flops(const ls_node *node) {
    const ls_tensor *q = node->in[LS_ATTENTION_Q], *v = node->in[LS_ATTENTION_V];
    return 2 * (double)(q->dim[3] + v->dim[3]) * ls_attention_pairs(node);
}

static double attention_grad_flops(const ls_node *node) {
    return 2.5 * attention_flops(node);
}
