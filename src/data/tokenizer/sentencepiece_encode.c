/* Encoding with SentencePiece: normalise, then the model. */
#include <string.h>

#include "data/tokenizer/sentencepiece.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/word_cache.h"

typedef ls_sentencepiece_encoder encoder;

void ls__sentencepiece_encoder_clear(ls_ctx *ctx, ls_encoder *base) {
    encoder *e = (encoder *)base;
    ls_text_clear(ctx, &e->normal);
    ls__merge_work_clear(ctx, &e->merge);
    ls__unigram_work_clear(ctx, &e->unigram);
    ls_free(ctx, e->cache);
    ls_ids_clear(ctx, &e->symbols);
    ls_ids_clear(ctx, &e->stack);
    ls_free(ctx, e->splits);
}

/* What the beginning of a text becomes, and how much of it that takes: a user-defined piece as it
 * is, the longest rule of the map, a character, or U+FFFD for a byte that is in none. */
static const char *next_normal(const ls_sentencepiece *sp, const uint8_t *text, size_t length,
                               size_t *used, size_t *normal_length) {
    int32_t point;
    if (sp->any_user && ls__trie_longest(&sp->user, text, length, used) >= 0) {
        *normal_length = *used;
        return (const char *)text;
    }
    const char *rule = ls__charsmap_find(&sp->map, text, length, false, used);
    if (rule != NULL) {
        *normal_length = strlen(rule);
        return rule;
    }
    *normal_length = *used = ls__utf8_take(text, length, &point);
    if (*used > 0) return (const char *)text;
    *used = 1;
    *normal_length = 3;
    return LS_REPLACEMENT;
}

static void put_space(ls_ctx *ctx, const ls_sentencepiece *sp, ls_text *out) {
    ls_text_append(ctx, out, sp->escape ? LS_METASPACE : " ", sp->escape ? 3 : 1);
}

static void put_normal(ls_ctx *ctx, const ls_sentencepiece *sp, const char *text, size_t length,
                       ls_text *out) {
    if (length == 1 && *text != ' ') { /* nearly always */
        ls_text_append(ctx, out, text, 1);
        return;
    }
    for (size_t i = 0; i < length; i++)
        if (text[i] == ' ')
            put_space(ctx, sp, out);
        else
            ls_text_append(ctx, out, text + i, 1);
}

static ls_status normalize(ls_ctx *ctx, const ls_sentencepiece *sp, const uint8_t *text,
                           size_t length, ls_text *out) {
    size_t used, size;
    out->length = 0;
    ls_text_append(ctx, out, "", 0);
    while (sp->remove_extra && length > 0) {
        const char *normal = next_normal(sp, text, length, &used, &size);
        if (size != 1 || *normal != ' ') break;
        text += used;
        length -= used;
    }
    if (length == 0) return ls_text_status(out);
    if (sp->dummy_prefix && !sp->suffix) put_space(ctx, sp, out);
    bool space = sp->remove_extra; /* the last character was one */
    for (; length > 0; text += used, length -= used) {
        const char *normal = next_normal(sp, text, length, &used, &size);
        while (space && size > 0 && *normal == ' ') {
            normal++;
            size--;
        }
        if (size == 0) continue;
        put_normal(ctx, sp, normal, size, out);
        space = sp->remove_extra && normal[size - 1] == ' ';
    }
    const char *mark = sp->escape ? LS_METASPACE : " ";
    size_t marks = strlen(mark);
    while (sp->remove_extra && out->length >= marks &&
           memcmp(out->bytes + out->length - marks, mark, marks) == 0)
        out->length -= marks;
    if (sp->dummy_prefix && sp->suffix) put_space(ctx, sp, out);
    return ls_text_status(out);
}

/* Unknown text: its bytes, or one unknown piece for all that follow each other. */
static ls_status put_unknown(ls_ctx *ctx, encoder *e, const uint8_t *text, size_t length) {
    const ls_sentencepiece *sp = (const ls_sentencepiece *)e->base.tokenizer;
    for (size_t i = 0; sp->byte_fallback && i < length; i++)
        LS_TRY(ls_ids_append(ctx, e->out, &sp->byte_id[text[i]], 1));
    if (sp->byte_fallback) return LS_OK;
    bool again = e->out->count > e->begin && e->out->at[e->out->count - 1] == sp->unk;
    return again ? LS_OK : ls_ids_append(ctx, e->out, &sp->unk, 1);
}

static ls_status take_unigram(ls_ctx *ctx, void *user, const uint8_t *piece, size_t length,
                              int32_t id) {
    encoder *e = user;
    if (id == ((const ls_sentencepiece *)e->base.tokenizer)->unk)
        return put_unknown(ctx, e, piece, length);
    return ls_ids_append(ctx, e->out, &id, 1);
}

static void note_split(void *user, const ls_merge *merge) {
    encoder *e = user;
    e->splits[merge->result] = (ls_piece_split){merge->left, merge->right};
}

/* A merged symbol: an unused piece is divided again as it was made. */
static ls_status put_symbol(ls_ctx *ctx, encoder *e, int32_t symbol) {
    const ls_sentencepiece *sp = (const ls_sentencepiece *)e->base.tokenizer;
    e->stack.count = 0;
    LS_TRY(ls_ids_append(ctx, &e->stack, &symbol, 1));
    while (e->stack.count > 0) {
        symbol = e->stack.at[--e->stack.count];
        if (symbol >= sp->names.count) {
            uint8_t bytes[4];
            LS_TRY(put_unknown(ctx, e, bytes, ls__utf8_put(symbol - sp->names.count, bytes)));
            continue;
        }
        ls_piece_split split = {-1, -1};
        if (sp->types[symbol] == LS_PIECE_UNUSED) split = e->splits[symbol];
        if (split.left < 0) {
            LS_TRY(ls_ids_append(ctx, e->out, &symbol, 1));
        } else {
            LS_TRY(ls_ids_append(ctx, &e->stack, &split.right, 1));
            LS_TRY(ls_ids_append(ctx, &e->stack, &split.left, 1));
        }
    }
    return LS_OK;
}

static ls_status merge_part(ls_ctx *ctx, encoder *e, const uint8_t *text, size_t length) {
    const ls_sentencepiece *sp = (const ls_sentencepiece *)e->base.tokenizer;
    ls_ids *symbols = &e->symbols;
    size_t count = 0;
    if (!ls_array_reserve(ctx, &symbols->at, &symbols->capacity, length, sizeof *symbols->at))
        return LS_ENOMEM;
    for (size_t at = 0, used; at < length; at += used) {
        int32_t point = 0xFFFD, id;
        used = ls__utf8_take(text + at, length - at, &point);
        if (used == 0) {
            used = 1;
            point = 0xFFFD;
        }
        id = point < LS_DIRECT ? sp->direct[point]
                               : ls__vocabulary_find(&sp->names, text + at, used);
        symbols->at[count++] = id >= 0 ? id : LS_STRANGER(sp, point);
    }
    LS_TRY(ls__merge(ctx, &sp->merges, &e->merge, symbols->at, &count));
    for (size_t i = 0; i < count; i++) LS_TRY(put_symbol(ctx, e, symbols->at[i]));
    return LS_OK;
}

/* Text without user-defined pieces, part by part through the cache. How unused pieces are divided
 * depends on the whole text, so with those it stays in one. */
static ls_status merge_text(ls_ctx *ctx, encoder *e, const uint8_t *text, size_t length) {
    const ls_sentencepiece *sp = (const ls_sentencepiece *)e->base.tokenizer;
    ls_word_cache cache = {e->cache};
    if (sp->any_unused) return merge_part(ctx, e, text, length);
    for (size_t at = 0, used; at < length; at += used) {
        bool known;
        LS_TRY(ls_check_stop(ctx, "tokenising"));
        used = ls__merges_part(&sp->merges, text + at, length - at);
        ls_cached_word *cached = ls__word_cache_find(&cache, text + at, used, &known);
        size_t before = e->out->count;
        if (known) {
            LS_TRY(ls_ids_append(ctx, e->out, cached->ids, cached->count));
            continue;
        }
        bool unknown = before > e->begin && e->out->at[before - 1] == sp->unk;
        LS_TRY(merge_part(ctx, e, text + at, used));
        const int32_t *ids = e->out->at + before;
        size_t count = e->out->count - before;
        /* parts with unknown pieces depend on what stands before them */
        for (size_t i = 0; i < count; i++) unknown |= ids[i] == sp->unk;
        if (!unknown && count > 0) ls__word_cache_keep(cached, text + at, used, ids, count);
    }
    return LS_OK;
}

static ls_status encode_bpe(ls_ctx *ctx, encoder *e, const uint8_t *text, size_t length) {
    const ls_sentencepiece *sp = (const ls_sentencepiece *)e->base.tokenizer;
    size_t done = 0;
    for (size_t at = 0, used; sp->any_user && at < length;) {
        int32_t id = ls__trie_longest(&sp->user, text + at, length - at, &used);
        if (id < 0) {
            at += ls__utf8_length(text + at, length - at);
            continue;
        }
        LS_TRY(merge_text(ctx, e, text + done, at - done));
        LS_TRY(ls_ids_append(ctx, e->out, &id, 1));
        done = at += used;
    }
    return merge_text(ctx, e, text + done, length - done);
}

static ls_status encode_rest(ls_ctx *ctx, encoder *e, const uint8_t *text, size_t length) {
    const ls_sentencepiece *sp = (const ls_sentencepiece *)e->base.tokenizer;
    LS_TRY(normalize(ctx, sp, text, length, &e->normal));
    const uint8_t *normal = (const uint8_t *)e->normal.bytes;
    e->begin = e->out->count;
    if (sp->bpe) return encode_bpe(ctx, e, normal, e->normal.length);
    return ls__unigram_run(ctx, &sp->unigram, &e->unigram, normal, e->normal.length, take_unigram,
                           e);
}

static ls_status prepare(ls_ctx *ctx, encoder *e, size_t length) {
    const ls_sentencepiece *sp = (const ls_sentencepiece *)e->base.tokenizer;
    ls_word_cache cache = {e->cache};
    LS_TRY(ls__word_cache_start(ctx, &cache, sp->bpe ? length : 0));
    e->cache = cache.words;
    if (!sp->bpe || !sp->any_unused) return LS_OK;
    e->merge.seen = note_split;
    e->merge.user = e;
    if (e->splits == NULL) {
        e->splits = ls_new(ctx, (size_t)sp->names.count, sizeof *e->splits);
        if (e->splits == NULL) return LS_ENOMEM;
    }
    for (int32_t id = 0; id < sp->names.count; id++) e->splits[id] = (ls_piece_split){-1, -1};
    return LS_OK;
}

ls_status ls__sentencepiece_encode(ls_ctx *ctx, ls_encoder *base, const uint8_t *text,
                                   size_t length, unsigned flags, ls_ids *out) {
    encoder *e = (encoder *)base;
    const ls_sentencepiece *sp = (const ls_sentencepiece *)base->tokenizer;
    const bool special = (flags & LS_ENCODE_SPECIAL) != 0;
    size_t done = 0, from = 0;
    LS_TRY(prepare(ctx, e, length));
    e->out = out;
    if (flags & LS_ENCODE_TEMPLATE)
        LS_TRY(ls_ids_append(ctx, out, sp->post.before.at, sp->post.before.count));
    while (done < length) {
        ls_added_match match = ls__added_next(&sp->added, false, special, text, length, from, done);
        size_t end = match.token == NULL ? length : match.begin;
        if (end > done) LS_TRY(encode_rest(ctx, e, text + done, end - done));
        if (match.token == NULL) break;
        LS_TRY(ls_ids_append(ctx, out, &match.token->id, 1));
        done = match.end;
        from = match.next;
    }
    if (flags & LS_ENCODE_TEMPLATE)
        LS_TRY(ls_ids_append(ctx, out, sp->post.after.at, sp->post.after.count));
    return LS_OK;
}
