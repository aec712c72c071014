/* Encoding with byte pairs: text -> words -> bytes -> merges, lowest merge number first, leftmost
 * of equals. Short words scan for the next merge; long ones (a line of 10,000 dashes) keep a heap,
 * so that no input takes quadratic time. A bounded cache remembers words already seen. */
#include <string.h>
#include <utf8proc.h>

#include "base/file.h"
#include "data/bpe.h"

enum { CACHE_SLOTS = 1 << 14, CACHE_BYTES = 30, CACHE_IDS = 8, CACHE_FROM = 4096, SHORT_WORD = 64 };

typedef struct cache_entry {
    uint8_t length, count;
    uint8_t bytes[CACHE_BYTES];
    int32_t ids[CACHE_IDS];
} cache_entry;

struct ls_encoder {
    const ls_tokenizer *tokenizer;
    pcre2_match_data *match;
    cache_entry *cache; /* made for the first text of CACHE_FROM bytes: prompts do without */
    int32_t *symbols, *before, *after; /* a long word as a linked list; symbol -1 is gone */
    size_t symbol_capacity;
    uint64_t *heap; /* merge number << 32 | place of its left half */
    size_t heap_count, heap_capacity;
    ls_ids *out; /* during one call */
};

ls_status ls__bpe_match_new(ls_ctx *ctx, const ls_tokenizer *tokenizer, pcre2_match_data **out) {
    *out = pcre2_match_data_create(1, tokenizer->memory);
    if (*out == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for matching words");
    return LS_OK;
}

/* The length of the longest prefix that is valid UTF-8. */
static size_t valid_prefix(const uint8_t *text, size_t length) {
    size_t at = 0;
    while (at < length) {
        if (text[at] < 0x80) {
            at++;
            continue;
        }
        utf8proc_int32_t letter;
        size_t left = length - at;
        utf8proc_ssize_t used =
            utf8proc_iterate(text + at, (utf8proc_ssize_t)(left < 4 ? left : 4), &letter);
        if (used <= 0) break;
        at += (size_t)used;
    }
    return at;
}

ls_status ls__bpe_words(ls_ctx *ctx, const ls_tokenizer *tokenizer, pcre2_match_data *match,
                        const uint8_t *text, size_t length, ls_bpe_take take, void *user) {
    while (length > 0) {
        size_t valid = valid_prefix(text, length);
        for (size_t at = 0; at < valid;) {
            int found = pcre2_match(tokenizer->pattern, text, valid, at,
                                    PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, match, NULL);
            if (found < 0)
                return LS_FAIL(ctx, found == PCRE2_ERROR_NOMATCH ? LS_EBUG : LS_ENOMEM,
                               "cutting a text into words failed with PCRE2 code %d", found);
            size_t end = pcre2_get_ovector_pointer(match)[1];
            LS_TRY(take(ctx, user, text + at, end - at));
            at = end;
        }
        text += valid;
        length -= valid;
        if (length > 0) {
            LS_TRY(take(ctx, user, text, 1));
            text++;
            length--;
        }
    }
    return LS_OK;
}

static size_t merge_short(const ls_tokenizer *t, const uint8_t *word, size_t length,
                          int32_t ids[SHORT_WORD]) {
    int32_t ranks[SHORT_WORD];
    size_t count = length;
    for (size_t i = 0; i < count; i++) ids[i] = t->byte_id[word[i]];
    for (size_t i = 0; i + 1 < count; i++) ranks[i] = ls__bpe_rank(t, ids[i], ids[i + 1]);
    for (;;) {
        size_t best = count;
        for (size_t i = 0; i + 1 < count; i++)
            if (ranks[i] >= 0 && (best == count || ranks[i] < ranks[best])) best = i;
        if (best == count) return count;
        ids[best] = t->merges[ranks[best]].result;
        count--;
        for (size_t i = best + 1; i < count; i++) ids[i] = ids[i + 1];
        for (size_t i = best + 1; i + 1 < count; i++) ranks[i] = ranks[i + 1];
        if (best + 1 < count) ranks[best] = ls__bpe_rank(t, ids[best], ids[best + 1]);
        if (best > 0) ranks[best - 1] = ls__bpe_rank(t, ids[best - 1], ids[best]);
    }
}

static ls_status heap_push(ls_ctx *ctx, ls_encoder *e, uint64_t key) {
    if (!ls_array_reserve(ctx, &e->heap, &e->heap_capacity, e->heap_count + 1, sizeof *e->heap))
        return LS_ENOMEM;
    size_t at = e->heap_count++;
    for (; at > 0 && e->heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = key;
    return LS_OK;
}

static uint64_t heap_pop(ls_encoder *e) {
    uint64_t top = e->heap[0], key = e->heap[--e->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < e->heap_count; at = child) {
        if (child + 1 < e->heap_count && e->heap[child + 1] < e->heap[child]) child++;
        if (e->heap[child] >= key) break;
        e->heap[at] = e->heap[child];
    }
    e->heap[at] = key;
    return top;
}

static ls_status push_pair(ls_ctx *ctx, ls_encoder *e, int32_t at) {
    if (at < 0 || e->after[at] < 0) return LS_OK;
    int32_t rank = ls__bpe_rank(e->tokenizer, e->symbols[at], e->symbols[e->after[at]]);
    return rank < 0 ? LS_OK : heap_push(ctx, e, (uint64_t)rank << 32 | (uint32_t)at);
}

static ls_status reserve_symbols(ls_ctx *ctx, ls_encoder *e, size_t length) {
    size_t capacity[3] = {e->symbol_capacity, e->symbol_capacity, e->symbol_capacity};
    int32_t **arrays[3] = {&e->symbols, &e->before, &e->after};
    if (length <= e->symbol_capacity) return LS_OK;
    e->symbol_capacity = 0; /* until all three have grown */
    for (int i = 0; i < 3; i++) {
        ls_free(ctx, *arrays[i]);
        *arrays[i] = NULL;
        capacity[i] = 0;
        if (!ls_array_reserve(ctx, arrays[i], &capacity[i], length, sizeof **arrays[i]))
            return LS_ENOMEM;
    }
    e->symbol_capacity = capacity[0];
    return LS_OK;
}

static ls_status merge_long(ls_ctx *ctx, ls_encoder *e, const uint8_t *word, size_t length) {
    const ls_tokenizer *t = e->tokenizer;
    if (length > INT32_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "a word of %zu bytes is too long to encode", length);
    LS_TRY(reserve_symbols(ctx, e, length));
    e->heap_count = 0;
    int32_t count = (int32_t)length;
    for (int32_t i = 0; i < count; i++) {
        e->symbols[i] = t->byte_id[word[i]];
        e->before[i] = i - 1;
        e->after[i] = i + 1 < count ? i + 1 : -1;
    }
    for (int32_t i = 0; i < count; i++) LS_TRY(push_pair(ctx, e, i));
    while (e->heap_count > 0) {
        uint64_t top = heap_pop(e);
        const ls_bpe_merge *merge = &t->merges[top >> 32];
        int32_t left = (int32_t)(uint32_t)top, right = e->after[left];
        /* entries are never taken out when their pair is: they are told here by not fitting */
        if (right < 0 || e->symbols[left] != merge->left || e->symbols[right] != merge->right)
            continue;
        e->symbols[left] = merge->result;
        e->symbols[right] = -1;
        e->after[left] = e->after[right];
        if (e->after[left] >= 0) e->before[e->after[left]] = left;
        e->after[right] = -1;
        LS_TRY(push_pair(ctx, e, e->before[left]));
        LS_TRY(push_pair(ctx, e, left));
    }
    for (int32_t at = 0; at >= 0; at = e->after[at])
        LS_TRY(ls_ids_append(ctx, e->out, &e->symbols[at], 1));
    return LS_OK;
}

static ls_status encode_word(ls_ctx *ctx, void *user, const uint8_t *word, size_t length) {
    ls_encoder *e = user;
    if (length > SHORT_WORD) return merge_long(ctx, e, word, length);
    int32_t ids[SHORT_WORD];
    if (e->cache == NULL || length > CACHE_BYTES) {
        size_t count = merge_short(e->tokenizer, word, length, ids);
        return ls_ids_append(ctx, e->out, ids, count);
    }
    cache_entry *entry = &e->cache[ls_hash(word, length) % CACHE_SLOTS];
    if (entry->length == length && memcmp(entry->bytes, word, length) == 0)
        return ls_ids_append(ctx, e->out, entry->ids, entry->count);
    size_t count = merge_short(e->tokenizer, word, length, ids);
    if (count <= CACHE_IDS) {
        entry->length = (uint8_t)length;
        entry->count = (uint8_t)count;
        memcpy(entry->bytes, word, length);
        memcpy(entry->ids, ids, count * sizeof *ids);
    }
    return ls_ids_append(ctx, e->out, ids, count);
}

ls_status ls_encoder_new(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_encoder **out) {
    *out = NULL;
    ls_encoder *encoder = ls_new(ctx, 1, sizeof *encoder);
    if (encoder == NULL) return LS_ENOMEM;
    encoder->tokenizer = tokenizer;
    ls_status status = tokenizer->bpe ? ls__bpe_match_new(ctx, tokenizer, &encoder->match) : LS_OK;
    if (status == LS_OK)
        *out = encoder;
    else
        ls_encoder_free(ctx, encoder);
    return status;
}

void ls_encoder_free(ls_ctx *ctx, ls_encoder *encoder) {
    if (encoder == NULL) return;
    if (encoder->match != NULL) pcre2_match_data_free(encoder->match);
    ls_free(ctx, encoder->cache);
    ls_free(ctx, encoder->symbols);
    ls_free(ctx, encoder->before);
    ls_free(ctx, encoder->after);
    ls_free(ctx, encoder->heap);
    ls_free(ctx, encoder);
}

static ls_status encode_bytes(ls_ctx *ctx, const uint8_t *text, size_t length, ls_ids *out) {
    if (!ls_array_reserve(ctx, &out->at, &out->capacity, out->count + length, sizeof *out->at))
        return LS_ENOMEM;
    for (size_t i = 0; i < length; i++) out->at[out->count + i] = text[i];
    out->count += length;
    return LS_OK;
}

ls_status ls_encoder_encode(ls_ctx *ctx, ls_encoder *encoder, const char *text, size_t length,
                            bool special, ls_ids *out) {
    static const char end_text[] = LS_BPE_END_TEXT;
    const ls_tokenizer *t = encoder->tokenizer;
    if (!t->bpe) return encode_bytes(ctx, (const uint8_t *)text, length, out);
    if (encoder->cache == NULL && length >= CACHE_FROM) {
        encoder->cache = ls_new(ctx, CACHE_SLOTS, sizeof *encoder->cache);
        if (encoder->cache == NULL) return LS_ENOMEM;
    }
    encoder->out = out;
    while (length > 0) {
        const char *found = NULL;
        if (special && t->end >= 0) found = memmem(text, length, end_text, sizeof end_text - 1);
        size_t part = found == NULL ? length : (size_t)(found - text);
        LS_TRY(ls__bpe_words(ctx, t, encoder->match, (const uint8_t *)text, part, encode_word,
                             encoder));
        if (found != NULL) {
            LS_TRY(ls_ids_append(ctx, out, &t->end, 1));
            part += sizeof end_text - 1;
        }
        text += part;
        length -= part;
    }
    return LS_OK;
}
