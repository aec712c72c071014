/* The model BPE of tokenizer.json: over bytes behind ByteLevel, else over characters. */
#include <string.h>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/kind.h"
#include "data/tokenizer/subword.h"
#include "data/tokenizer/unicode.h"

enum { PART_FROM = 32 };

typedef struct model {
    ls_subword base;
    bool bytes, byte_fallback, fuse_unk, ignore_merges;
    bool parts; /* a long text can be merged part by part */
    ls_merges merges;
    int32_t byte_id[256];  /* of the byte's letter, or of <0xHH>; -1: none */
    int32_t *direct;       /* [LS_DIRECT] ids of characters, -1: none; not for bytes */
    ls_vocabulary spelled; /* bytes: the tokens as bytes, indexed; for ignore_merges */
} model;

static int32_t first_point(ls_bytes token) {
    int32_t point = -1;
    ls__utf8_take((const uint8_t *)token.at, token.length, &point);
    return point;
}

static int32_t last_point(ls_bytes token) {
    size_t at = token.length;
    while (at > 0 && ((uint8_t)token.at[--at] & 0xC0) == 0x80) continue;
    return first_point((ls_bytes){token.at + at, token.length - at});
}

/* A text may be cut between two characters that no merge joins. Merges of bytes or of the unknown
 * token would join characters that are not their own: with those nothing is cut. */
static ls_status find_joins(ls_ctx *ctx, model *m) {
    m->parts = !m->ignore_merges; /* which asks for whole words */
    LS_TRY(ls__merges_join_start(ctx, &m->merges));
    for (int32_t i = 0; i < m->merges.count; i++) {
        const ls_merge *merge = &m->merges.list[i];
        ls_bytes left = ls__vocabulary_at(&m->base.vocabulary, merge->left);
        ls_bytes right = ls__vocabulary_at(&m->base.vocabulary, merge->right);
        ls__merges_join(&m->merges, last_point(left), first_point(right));
        if (merge->left == m->base.unk || merge->right == m->base.unk) m->parts = false;
        for (int byte = 0; byte < 256; byte++)
            if (m->byte_id[byte] >= 0 &&
                (merge->left == m->byte_id[byte] || merge->right == m->byte_id[byte]))
                m->parts = false;
    }
    return LS_OK;
}

static ls_status read_merge(ls_ctx *ctx, model *m, const json_t *json, int32_t rank,
                            const char *what) {
    const ls_vocabulary *v = &m->base.vocabulary;
    const char *left = NULL, *right = NULL;
    size_t left_length = 0;
    ls_text both = {0};
    if (json_is_string(json)) {
        left = json_string_value(json);
        right = strchr(left, ' ');
        left_length = right == NULL ? 0 : (size_t)(right - left);
        if (right != NULL) right++;
    } else if (json_array_size(json) == 2) {
        left = json_string_value(json_array_get(json, 0));
        right = json_string_value(json_array_get(json, 1));
        left_length = left == NULL ? 0 : strlen(left);
    }
    ls_merge *merge = &m->merges.list[rank];
    *merge = (ls_merge){-1, -1, -1, rank};
    if (left != NULL && right != NULL) {
        ls_text_append(ctx, &both, left, left_length);
        ls_text_append(ctx, &both, right, strlen(right));
        LS_TRY(ls_text_status(&both));
        merge->left = ls__vocabulary_find(v, left, left_length);
        merge->right = ls__vocabulary_find(v, right, strlen(right));
        merge->result = ls__vocabulary_find(v, both.bytes, both.length);
        ls_text_clear(ctx, &both);
    }
    if (merge->left >= 0 && merge->right >= 0 && merge->result >= 0) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "%s: merge number %ld does not join two tokens into a third",
                   what, (long)rank);
}

static ls_status read_merges(ls_ctx *ctx, model *m, const json_t *list, const char *what) {
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > LS_VOCABULARY_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: `merges` must be a list of at most %d", what,
                       LS_VOCABULARY_MAX);
    m->merges.list = ls_new(ctx, count + 1, sizeof *m->merges.list);
    if (m->merges.list == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        LS_TRY(read_merge(ctx, m, json_array_get(list, i), (int32_t)i, what));
        m->merges.count++;
    }
    return ls__merges_index(ctx, &m->merges, NULL);
}

/* Behind ByteLevel a word is bytes: tokens by the bytes that they spell. */
static ls_status spell_out(ls_ctx *ctx, model *m, const char *what) {
    const ls_vocabulary *v = &m->base.vocabulary;
    ls_status status = LS_ENOMEM;
    size_t used;
    ls_bytes *entries = ls_new(ctx, (size_t)v->count, sizeof *entries);
    char *pool = entries == NULL ? NULL : ls_new(ctx, v->begin[v->count] + 1, 1);
    if (pool == NULL) goto fail;
    for (int byte = 0; byte < 256; byte++) m->byte_id[byte] = -1;
    for (int32_t id = 0; id < v->count; id++) {
        ls_bytes token = ls__vocabulary_at(v, id);
        char *at = pool + v->begin[id];
        if (!ls__byte_letters_read(token.at, token.length, (uint8_t *)at, &used)) continue;
        entries[id] = (ls_bytes){at, used};
        if (used == 1) m->byte_id[(uint8_t)*at] = id;
    }
    LS_TRY_GOTO(ls__vocabulary_make(ctx, entries, (size_t)v->count, what, &m->spelled));
    LS_TRY_GOTO(ls__vocabulary_index(ctx, &m->spelled, NULL));
fail:
    ls_free(ctx, entries);
    ls_free(ctx, pool);
    return status;
}

static ls_status index_characters(ls_ctx *ctx, model *m) {
    m->direct = ls__vocabulary_characters(ctx, &m->base.vocabulary);
    if (m->direct == NULL) return LS_ENOMEM;
    for (int byte = 0; byte < 256; byte++) m->byte_id[byte] = -1;
    if (m->byte_fallback) ls__subword_byte_ids(&m->base.vocabulary, m->byte_id);
    return find_joins(ctx, m);
}

static ls_status refuse_set(ls_ctx *ctx, const json_t *json, const char *key, const char *what) {
    const json_t *value = json_object_get(json, key);
    bool nothing = value == NULL || json_is_null(value) ||
                   (json_is_string(value) && json_string_length(value) == 0) ||
                   (json_is_number(value) && json_number_value(value) == 0);
    if (nothing) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "%s: BPE with `%s` is not understood", what, key);
}

static ls_status read(ls_ctx *ctx, const json_t *json, bool bytes, const char *what,
                      ls_subword *out) {
    model *m = (model *)out;
    LS_TRY(ls__fields_known(ctx, json,
                            "dropout|unk_token|continuing_subword_prefix|end_of_word_suffix|"
                            "fuse_unk|byte_fallback|ignore_merges|vocab|merges",
                            what));
    LS_TRY(refuse_set(ctx, json, "dropout", what));
    LS_TRY(refuse_set(ctx, json, "continuing_subword_prefix", what));
    LS_TRY(refuse_set(ctx, json, "end_of_word_suffix", what));
    LS_TRY(ls__field_bool(ctx, json, "fuse_unk", false, what, &m->fuse_unk));
    LS_TRY(ls__field_bool(ctx, json, "byte_fallback", false, what, &m->byte_fallback));
    LS_TRY(ls__field_bool(ctx, json, "ignore_merges", false, what, &m->ignore_merges));
    LS_TRY(ls__subword_vocabulary(ctx, json_object_get(json, "vocab"), what, &out->vocabulary));
    LS_TRY(ls__subword_unknown(ctx, json, what, out));
    LS_TRY(read_merges(ctx, m, json_object_get(json, "merges"), what));
    m->bytes = bytes;
    return bytes ? spell_out(ctx, m, what) : index_characters(ctx, m);
}

static void clear(ls_ctx *ctx, ls_subword *out) {
    model *m = (model *)out;
    ls__merges_clear(ctx, &m->merges);
    ls__vocabulary_clear(ctx, &m->spelled);
    ls_free(ctx, m->direct);
}

/* The first symbols of a word: at most one for each byte. */
static size_t symbols_of(const model *m, const uint8_t *word, size_t length, int32_t *out) {
    size_t count = 0;
    bool unknown = false; /* the last symbol is one that fused */
    for (size_t at = 0, used; at < length; at += used) {
        int32_t point = 0, id;
        if (m->bytes) {
            used = 1;
            id = m->byte_id[word[at]];
        } else {
            used = ls__utf8_take(word + at, length - at, &point);
            if (used == 0) used = 1;
            id = point < LS_DIRECT ? m->direct[point]
                                   : ls__vocabulary_find(&m->base.vocabulary, word + at, used);
        }
        if (id >= 0) {
            out[count++] = id;
            unknown = false;
            continue;
        }
        bool all = m->byte_fallback && !m->bytes;
        for (size_t i = 0; i < used && all; i++) all = m->byte_id[word[at + i]] >= 0;
        if (all) {
            for (size_t i = 0; i < used; i++) out[count++] = m->byte_id[word[at + i]];
            unknown = false;
        } else if (m->base.unk >= 0 && !(unknown && m->fuse_unk)) {
            out[count++] = m->base.unk;
            unknown = true;
        }
    }
    return count;
}

static ls_status encode_part(ls_ctx *ctx, const model *m, ls_subword_work *work,
                             const uint8_t *word, size_t length, ls_ids *out) {
    if (!ls_array_reserve(ctx, &out->at, &out->capacity, out->count + length, sizeof *out->at))
        return LS_ENOMEM;
    int32_t *symbols = out->at + out->count;
    size_t count = symbols_of(m, word, length, symbols);
    LS_TRY(ls__merge(ctx, &m->merges, &work->merge, symbols, &count));
    out->count += count;
    return LS_OK;
}

/* The same through the cache; an unknown token joins one before it. */
static ls_status encode_cached(ls_ctx *ctx, const model *m, ls_subword_work *work,
                               const uint8_t *word, size_t length, size_t begin, ls_ids *out) {
    bool known;
    size_t before = out->count;
    ls_cached_word *cached = ls__word_cache_find(&work->cache, word, length, &known);
    if (known) {
        LS_TRY(ls_ids_append(ctx, out, cached->ids, cached->count));
    } else {
        LS_TRY(encode_part(ctx, m, work, word, length, out));
        ls__word_cache_keep(cached, word, length, out->at + before, out->count - before);
    }
    if (m->fuse_unk && m->base.unk >= 0 && before > begin && out->count > before &&
        out->at[before - 1] == m->base.unk && out->at[before] == m->base.unk) {
        memmove(out->at + before, out->at + before + 1,
                (out->count - before - 1) * sizeof *out->at);
        out->count--;
    }
    return LS_OK;
}

/* Cuts a text between characters that no merge joins. */
static ls_status encode_parts(ls_ctx *ctx, const model *m, ls_subword_work *work,
                              const uint8_t *text, size_t length, ls_ids *out) {
    const size_t begin = out->count;
    for (size_t at = 0, used; at < length; at += used) {
        used = ls__merges_part(&m->merges, text + at, length - at);
        LS_TRY(encode_cached(ctx, m, work, text + at, used, begin, out));
    }
    return LS_OK;
}

static ls_status encode(ls_ctx *ctx, const ls_subword *base, ls_subword_work *work,
                        const uint8_t *word, size_t length, ls_ids *out) {
    const model *m = (const model *)base;
    if (m->ignore_merges) {
        int32_t id = ls__vocabulary_find(m->bytes ? &m->spelled : &base->vocabulary, word, length);
        if (id >= 0) return ls_ids_append(ctx, out, &id, 1);
    }
    if (m->parts && length > PART_FROM) return encode_parts(ctx, m, work, word, length, out);
    return encode_part(ctx, m, work, word, length, out);
}

const ls_subword_type ls__subword_bpe = {
    .name = "BPE", .size = sizeof(model), .read = read, .clear = clear, .encode = encode};
