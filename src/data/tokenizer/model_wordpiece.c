/* The model WordPiece of tokenizer.json: the longest piece first, from the left. */
#include <string.h>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/subword.h"
#include "data/tokenizer/unicode.h"

typedef struct model {
    ls_subword base;
    ls_trie first, inner; /* pieces at the beginning of a word, and within one */
    int64_t most;         /* characters of a word */
} model;

static ls_status make_trie(ls_ctx *ctx, const ls_vocabulary *v, const char *prefix, ls_trie *out) {
    size_t count = 0, skip = strlen(prefix);
    ls_trie_key *keys = ls_new(ctx, (size_t)v->count, sizeof *keys);
    if (keys == NULL) return LS_ENOMEM;
    for (int32_t id = 0; id < v->count; id++) {
        ls_bytes piece = ls__vocabulary_at(v, id);
        if (piece.length > skip && memcmp(piece.at, prefix, skip) == 0)
            keys[count++] =
                (ls_trie_key){(const uint8_t *)piece.at + skip, piece.length - skip, id};
    }
    ls_status status = ls__trie_make(ctx, keys, count, out);
    ls_free(ctx, keys);
    return status;
}

static ls_status read(ls_ctx *ctx, const json_t *json, bool bytes, const char *what,
                      ls_subword *out) {
    model *m = (model *)out;
    const char *prefix;
    LS_TRY(ls__fields_known(
        ctx, json, "unk_token|continuing_subword_prefix|max_input_chars_per_word|vocab", what));
    if (bytes)
        return LS_FAIL(ctx, LS_EINPUT, "%s: WordPiece behind ByteLevel is not understood", what);
    LS_TRY(ls__subword_vocabulary(ctx, json_object_get(json, "vocab"), what, &out->vocabulary));
    LS_TRY(ls__subword_unknown(ctx, json, what, out));
    if (out->unk < 0) return LS_FAIL(ctx, LS_EINPUT, "%s: WordPiece needs an unk_token", what);
    LS_TRY(ls_json_text(ctx, json, "continuing_subword_prefix", what, &prefix));
    LS_TRY(ls_json_int(ctx, json, "max_input_chars_per_word", what, 1, INT32_MAX, &m->most));
    LS_TRY(make_trie(ctx, &out->vocabulary, "", &m->first));
    return make_trie(ctx, &out->vocabulary, prefix, &m->inner);
}

static void clear(ls_ctx *ctx, ls_subword *out) {
    model *m = (model *)out;
    ls__trie_clear(ctx, &m->first);
    ls__trie_clear(ctx, &m->inner);
}

static ls_status encode(ls_ctx *ctx, const ls_subword *base, ls_subword_work *work,
                        const uint8_t *word, size_t length, ls_ids *out) {
    const model *m = (const model *)base;
    const size_t before = out->count;
    int64_t characters = 0;
    (void)work;
    for (size_t i = 0; i < length; i++) characters += (word[i] & 0xC0) != 0x80;
    bool good = characters <= m->most;
    for (size_t at = 0, used; at < length && good; at += used) {
        const ls_trie *trie = at == 0 ? &m->first : &m->inner;
        int32_t id = ls__trie_longest(trie, word + at, length - at, &used);
        good = id >= 0;
        if (good) LS_TRY(ls_ids_append(ctx, out, &id, 1));
    }
    if (good) return LS_OK;
    out->count = before;
    return ls_ids_append(ctx, out, &base->unk, 1);
}

const ls_subword_type ls__subword_wordpiece = {
    .name = "WordPiece", .size = sizeof(model), .read = read, .clear = clear, .encode = encode};
