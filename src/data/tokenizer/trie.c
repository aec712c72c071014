#include "data/tokenizer/trie.h"

#include <stdlib.h>

static int compare_keys(const void *a, const void *b) {
    const ls_trie_key *left = a, *right = b;
    size_t shorter = left->length < right->length ? left->length : right->length;
    int order = shorter == 0 ? 0 : memcmp(left->bytes, right->bytes, shorter);
    if (order != 0) return order;
    if (left->length != right->length) return left->length < right->length ? -1 : 1;
    return left->value < right->value ? -1 : left->value > right->value;
}

/* The sorted keys below a node. */
typedef struct range {
    size_t low, high, depth;
} range;

typedef struct maker {
    ls_trie *trie;
    range *ranges; /* [nodes] */
    size_t capacity;
} maker;

static ls_status add_node(ls_ctx *ctx, maker *m, uint8_t label, range keys) {
    ls_trie *trie = m->trie;
    size_t wanted = trie->count + 1;
    if (wanted > UINT32_MAX) return LS_FAIL(ctx, LS_EINPUT, "a vocabulary is too large");
    if (!ls_array_reserve(ctx, &trie->nodes, &trie->capacity, wanted, sizeof *trie->nodes) ||
        !ls_array_reserve(ctx, &trie->labels, &trie->label_capacity, wanted, 1) ||
        !ls_array_reserve(ctx, &m->ranges, &m->capacity, wanted, sizeof *m->ranges))
        return LS_ENOMEM;
    trie->nodes[trie->count] = (ls_trie_node){.value = -1};
    trie->labels[trie->count] = label;
    m->ranges[trie->count++] = keys;
    return LS_OK;
}

static ls_status add_children(ls_ctx *ctx, maker *m, const ls_trie_key *keys, size_t node) {
    range here = m->ranges[node];
    size_t low = here.low;
    for (; low < here.high && keys[low].length == here.depth; low++)
        if (m->trie->nodes[node].value < 0 && here.depth > 0)
            m->trie->nodes[node].value = keys[low].value;
    m->trie->nodes[node].first = (uint32_t)m->trie->count;
    while (low < here.high) {
        uint8_t label = keys[low].bytes[here.depth];
        size_t high = low + 1;
        while (high < here.high && keys[high].bytes[here.depth] == label) high++;
        if (node == 0) m->trie->root[label] = (uint32_t)m->trie->count;
        LS_TRY(add_node(ctx, m, label, (range){low, high, here.depth + 1}));
        m->trie->nodes[node].count++;
        low = high;
    }
    return LS_OK;
}

ls_status ls__trie_make(ls_ctx *ctx, ls_trie_key *keys, size_t count, ls_trie *out) {
    *out = (ls_trie){0};
    maker m = {.trie = out};
    if (count > 0) qsort(keys, count, sizeof *keys, compare_keys);
    ls_status status = add_node(ctx, &m, 0, (range){0, count, 0});
    for (size_t node = 0; node < out->count && status == LS_OK; node++)
        status = add_children(ctx, &m, keys, node);
    ls_free(ctx, m.ranges);
    if (status != LS_OK) ls__trie_clear(ctx, out);
    return status;
}

void ls__trie_clear(ls_ctx *ctx, ls_trie *trie) {
    ls_free(ctx, trie->nodes);
    ls_free(ctx, trie->labels);
    *trie = (ls_trie){0};
}
