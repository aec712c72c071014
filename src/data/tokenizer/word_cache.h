/* Words seen before and their ids: most words of a text are. Bounded; a new word takes the place of
 * the one before it in its slot. */
#ifndef LS_DATA_TOKENIZER_WORD_CACHE_H
#define LS_DATA_TOKENIZER_WORD_CACHE_H

#include <string.h>

#include "base/file.h"
#include "data/tokenizer.h"

enum { LS_CACHE_SLOTS = 1 << 14, LS_CACHE_BYTES = 30, LS_CACHE_IDS = 8, LS_CACHE_FROM = 4096 };

typedef struct ls_cached_word {
    uint8_t length, count;
    uint8_t bytes[LS_CACHE_BYTES];
    int32_t ids[LS_CACHE_IDS];
} ls_cached_word;

typedef struct ls_word_cache {
    ls_cached_word *words; /* NULL until a text is long enough to pay for it */
} ls_word_cache;

static inline ls_status ls__word_cache_start(ls_ctx *ctx, ls_word_cache *cache,
                                             size_t text_length) {
    if (cache->words != NULL || text_length < LS_CACHE_FROM) return LS_OK;
    cache->words = ls_new(ctx, LS_CACHE_SLOTS, sizeof *cache->words);
    return cache->words == NULL ? LS_ENOMEM : LS_OK;
}

/* The word's place, or NULL where it cannot be kept. *known: its ids are there. */
static inline ls_cached_word *ls__word_cache_find(ls_word_cache *cache, const uint8_t *word,
                                                  size_t length, bool *known) {
    *known = false;
    if (cache->words == NULL || length == 0 || length > LS_CACHE_BYTES) return NULL;
    ls_cached_word *at = &cache->words[ls_hash(word, length) % LS_CACHE_SLOTS];
    *known = at->length == length && memcmp(at->bytes, word, length) == 0;
    return at;
}

/* Keeps a word at the place that was found for it. */
static inline void ls__word_cache_keep(ls_cached_word *at, const uint8_t *word, size_t length,
                                       const int32_t *ids, size_t count) {
    if (at == NULL || count > LS_CACHE_IDS) return;
    at->length = (uint8_t)length;
    at->count = (uint8_t)count;
    memcpy(at->bytes, word, length);
    if (count > 0) memcpy(at->ids, ids, count * sizeof *ids);
}

#endif
