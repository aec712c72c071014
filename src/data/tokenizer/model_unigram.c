/* The model Unigram of tokenizer.json. */
#include <math.h>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/subword.h"

#define UNKNOWN_PENALTY 10.0

typedef struct model {
    ls_subword base;
    ls_unigram unigram;
    bool byte_fallback;
    int32_t byte_id[256];
} model;

static ls_status read_pieces(ls_ctx *ctx, model *m, const json_t *list, const char *what) {
    size_t count = json_array_size(list);
    double lowest = INFINITY;
    ls_status status = LS_OK;
    if (!json_is_array(list) || count == 0 || count > LS_VOCABULARY_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: `vocab` must list 1 to %d pieces", what,
                       LS_VOCABULARY_MAX);
    ls_bytes *entries = ls_new(ctx, count, sizeof *entries);
    if (entries == NULL) return LS_ENOMEM;
    m->unigram.scores = ls_new(ctx, count, sizeof *m->unigram.scores);
    if (m->unigram.scores == NULL) status = LS_ENOMEM;
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        const json_t *pair = json_array_get(list, i), *piece = json_array_get(pair, 0);
        const json_t *score = json_array_get(pair, 1);
        if (!json_is_string(piece) || !json_is_number(score)) {
            status = LS_FAIL(ctx, LS_EINPUT, "%s: piece number %zu must be [text, score]", what, i);
            break;
        }
        entries[i] = (ls_bytes){json_string_value(piece), json_string_length(piece)};
        m->unigram.scores[i] = json_number_value(score);
        lowest = fmin(lowest, m->unigram.scores[i]);
    }
    m->unigram.unk_score = lowest - UNKNOWN_PENALTY;
    if (status == LS_OK)
        status = ls__vocabulary_make(ctx, entries, count, what, &m->base.vocabulary);
    if (status == LS_OK) status = ls__vocabulary_index(ctx, &m->base.vocabulary, NULL);
    ls_free(ctx, entries);
    return status;
}

static ls_status make_trie(ls_ctx *ctx, model *m) {
    const ls_vocabulary *v = &m->base.vocabulary;
    size_t count = 0;
    ls_trie_key *keys = ls_new(ctx, (size_t)v->count, sizeof *keys);
    if (keys == NULL) return LS_ENOMEM;
    for (int32_t id = 0; id < v->count; id++) {
        ls_bytes piece = ls__vocabulary_at(v, id);
        /* of equal pieces the last counts */
        if (piece.length > 0 && ls__vocabulary_find(v, piece.at, piece.length) == id)
            keys[count++] = (ls_trie_key){(const uint8_t *)piece.at, piece.length, id};
    }
    ls_status status = ls__trie_make(ctx, keys, count, &m->unigram.trie);
    ls_free(ctx, keys);
    return status;
}

static ls_status read(ls_ctx *ctx, const json_t *json, bool bytes, const char *what,
                      ls_subword *out) {
    model *m = (model *)out;
    const json_t *unk = json_object_get(json, "unk_id");
    LS_TRY(ls__fields_known(ctx, json, "unk_id|vocab|byte_fallback", what));
    if (bytes)
        return LS_FAIL(ctx, LS_EINPUT, "%s: Unigram behind ByteLevel is not understood", what);
    LS_TRY(ls__field_bool(ctx, json, "byte_fallback", false, what, &m->byte_fallback));
    LS_TRY(read_pieces(ctx, m, json_object_get(json, "vocab"), what));
    out->unk = -1;
    if (unk != NULL && !json_is_null(unk)) {
        json_int_t id = json_is_integer(unk) ? json_integer_value(unk) : -1;
        if (id < 0 || id >= out->vocabulary.count)
            return LS_FAIL(ctx, LS_EINPUT, "%s: `unk_id` is not in the vocabulary", what);
        out->unk = (int32_t)id;
    }
    m->unigram.unk = out->unk;
    ls__subword_byte_ids(&out->vocabulary, m->byte_id);
    return make_trie(ctx, m);
}

static void clear(ls_ctx *ctx, ls_subword *out) {
    ls__unigram_clear(ctx, &((model *)out)->unigram);
}

typedef struct encoding {
    const model *model;
    ls_ids *out;
    const uint8_t *unknown; /* a stretch of unknown characters, or NULL */
    size_t unknown_length;
} encoding;

static ls_status end_unknown(ls_ctx *ctx, encoding *e) {
    const model *m = e->model;
    if (e->unknown == NULL) return LS_OK;
    const uint8_t *at = e->unknown;
    e->unknown = NULL;
    int32_t id = ls__vocabulary_find(&m->base.vocabulary, at, e->unknown_length);
    bool all = m->byte_fallback && id < 0;
    for (size_t i = 0; i < e->unknown_length && all; i++) all = m->byte_id[at[i]] >= 0;
    for (size_t i = 0; i < e->unknown_length && all; i++)
        LS_TRY(ls_ids_append(ctx, e->out, &m->byte_id[at[i]], 1));
    if (all) return LS_OK;
    if (id < 0) id = m->base.unk;
    return ls_ids_append(ctx, e->out, &id, 1);
}

static ls_status take(ls_ctx *ctx, void *user, const uint8_t *piece, size_t length, int32_t id) {
    encoding *e = user;
    if (id < 0)
        return LS_FAIL(ctx, LS_EINPUT, "a character is no piece of a vocabulary without unk_id");
    if (id == e->model->base.unk) {
        if (e->unknown == NULL) {
            e->unknown = piece;
            e->unknown_length = 0;
        }
        e->unknown_length += length;
        return LS_OK;
    }
    LS_TRY(end_unknown(ctx, e));
    return ls_ids_append(ctx, e->out, &id, 1);
}

static ls_status encode(ls_ctx *ctx, const ls_subword *base, ls_subword_work *work,
                        const uint8_t *word, size_t length, ls_ids *out) {
    const model *m = (const model *)base;
    encoding e = {.model = m, .out = out};
    LS_TRY(ls__unigram_run(ctx, &m->unigram, &work->unigram, word, length, take, &e));
    return end_unknown(ctx, &e);
}

const ls_subword_type ls__subword_unigram = {
    .name = "Unigram", .size = sizeof(model), .read = read, .clear = clear, .encode = encode};
