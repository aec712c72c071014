/* A trie over byte strings, fixed once made. Children of a node lie together, in order. */
#ifndef LS_DATA_TOKENIZER_TRIE_H
#define LS_DATA_TOKENIZER_TRIE_H

#include <string.h>

#include "base/memory.h"

typedef struct ls_trie_key {
    const uint8_t *bytes;
    size_t length;
    int32_t value; /* at least 0 */
} ls_trie_key;

typedef struct ls_trie_node {
    uint32_t first; /* of its children */
    int32_t value;  /* -1: no key ends here */
    uint16_t count;
} ls_trie_node;

typedef struct ls_trie {
    ls_trie_node *nodes; /* 0 is the root */
    uint8_t *labels;     /* [nodes] the byte that leads to a node */
    uint32_t root[256];  /* the root's children, 0: none */
    size_t count, capacity, label_capacity;
} ls_trie;

/* Sorts `keys` in place. Of equal keys the one with the smallest value counts; empty ones are left
 * out. */
ls_status ls__trie_make(ls_ctx *ctx, ls_trie_key *keys, size_t count, ls_trie *out);
void ls__trie_clear(ls_ctx *ctx, ls_trie *trie);

/* The node that `byte` leads to from `node`, 0 where there is none. */
static inline uint32_t ls__trie_step(const ls_trie *trie, uint32_t node, uint8_t byte) {
    if (node == 0) return trie->root[byte];
    const ls_trie_node *from = &trie->nodes[node];
    const uint8_t *labels = trie->labels + from->first;
    for (uint32_t i = 0; i < from->count; i++)
        if (labels[i] == byte) return from->first + i;
    return 0;
}

/* The value of the longest key that the text begins with, and its length; -1 where there is none.
 */
static inline int32_t ls__trie_longest(const ls_trie *trie, const uint8_t *text, size_t length,
                                       size_t *used) {
    int32_t value = -1;
    uint32_t node = 0;
    *used = 0;
    for (size_t at = 0; at < length; at++) {
        node = ls__trie_step(trie, node, text[at]);
        if (node == 0) break;
        if (trie->nodes[node].value >= 0) {
            value = trie->nodes[node].value;
            *used = at + 1;
        }
    }
    return value;
}

#endif
