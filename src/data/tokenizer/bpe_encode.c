/* Encoding with byte pairs: text -> words -> bytes -> merges. */
#include <string.h>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/word_cache.h"

typedef struct encoder {
    ls_encoder base;
    ls_matcher matcher;
    ls_word_cache cache;
    ls_merge_work work;
    ls_ids *out; /* during one call */
} encoder;

ls_status ls__bpe_words(ls_ctx *ctx, const ls_pattern *pattern, ls_matcher *matcher,
                        const uint8_t *text, size_t length, ls_bpe_take take, void *user) {
    while (length > 0) {
        size_t valid = ls__utf8_valid(text, length), begin, end;
        for (size_t at = 0; at < valid; at = end) {
            LS_TRY(ls_check_stop(ctx, "tokenising"));
            LS_TRY(ls__pattern_find(ctx, pattern, matcher, text, valid, at, &begin, &end));
            if (begin != at || end <= at)
                return LS_FAIL(ctx, LS_EBUG, "the word pattern left a character out");
            LS_TRY(take(ctx, user, text + at, end - at));
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

static ls_status encode_word(ls_ctx *ctx, void *user, const uint8_t *word, size_t length) {
    encoder *e = user;
    const ls_bpe *bpe = (const ls_bpe *)e->base.tokenizer;
    bool known;
    ls_cached_word *cached = ls__word_cache_find(&e->cache, word, length, &known);
    if (known) return ls_ids_append(ctx, e->out, cached->ids, cached->count);
    ls_ids *out = e->out;
    if (!ls_array_reserve(ctx, &out->at, &out->capacity, out->count + length, sizeof *out->at))
        return LS_ENOMEM;
    int32_t *symbols = out->at + out->count;
    for (size_t i = 0; i < length; i++) symbols[i] = bpe->byte_id[word[i]];
    size_t count = length;
    LS_TRY(ls__merge(ctx, &bpe->merges, &e->work, symbols, &count));
    ls__word_cache_keep(cached, word, length, symbols, count);
    out->count += count;
    return LS_OK;
}

static ls_status encoder_init(ls_ctx *ctx, ls_encoder *base) {
    return ls__matcher_init(ctx, &((encoder *)base)->matcher);
}

static void encoder_clear(ls_ctx *ctx, ls_encoder *base) {
    encoder *e = (encoder *)base;
    ls__matcher_clear(&e->matcher);
    ls_free(ctx, e->cache.words);
    ls__merge_work_clear(ctx, &e->work);
}

static ls_status encode(ls_ctx *ctx, ls_encoder *base, const uint8_t *text, size_t length,
                        unsigned flags, ls_ids *out) {
    static const char end_text[] = LS_BPE_END_TEXT;
    encoder *e = (encoder *)base;
    const ls_bpe *bpe = (const ls_bpe *)base->tokenizer;
    const int32_t end = bpe->base.special.eos;
    LS_TRY(ls__word_cache_start(ctx, &e->cache, length));
    e->out = out;
    while (length > 0) {
        const uint8_t *found = NULL;
        if ((flags & LS_ENCODE_SPECIAL) && end >= 0)
            found = memmem(text, length, end_text, sizeof end_text - 1);
        size_t part = found == NULL ? length : (size_t)(found - text);
        LS_TRY(ls__bpe_words(ctx, bpe->pattern, &e->matcher, text, part, encode_word, e));
        if (found != NULL) {
            LS_TRY(ls_ids_append(ctx, out, &end, 1));
            part += sizeof end_text - 1;
        }
        text += part;
        length -= part;
    }
    return LS_OK;
}

const ls_tokenizer_type ls__bpe_kind = {
    .name = "bpe",
    .clear = ls__bpe_clear,
    .save = ls__bpe_save,
    .encoder_size = sizeof(encoder),
    .encoder_init = encoder_init,
    .encoder_clear = encoder_clear,
    .encode = encode,
};
