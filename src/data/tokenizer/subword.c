#include "data/tokenizer/subword.h"

#include <stdio.h>
#include <string.h>

#include "data/tokenizer/fields.h"

void ls__subword_work_clear(ls_ctx *ctx, ls_subword_work *work) {
    ls__merge_work_clear(ctx, &work->merge);
    ls__unigram_work_clear(ctx, &work->unigram);
    ls_free(ctx, work->cache.words);
    work->cache.words = NULL;
}

ls_status ls__subword_encode(ls_ctx *ctx, const ls_subword *model, ls_subword_work *work,
                             const uint8_t *word, size_t length, ls_ids *out) {
    bool known;
    LS_TRY(ls_check_stop(ctx, "tokenising"));
    ls_cached_word *cached = ls__word_cache_find(&work->cache, word, length, &known);
    if (known) return ls_ids_append(ctx, out, cached->ids, cached->count);
    size_t before = out->count;
    LS_TRY(model->type->encode(ctx, model, work, word, length, out));
    if (cached != NULL)
        ls__word_cache_keep(cached, word, length, out->at + before, out->count - before);
    return LS_OK;
}

ls_status ls__subword_vocabulary(ls_ctx *ctx, const json_t *vocab, const char *what,
                                 ls_vocabulary *out) {
    const char *key;
    json_t *value;
    size_t count = json_object_size(vocab), room = 0;
    if (!json_is_object(vocab) || count == 0 || count > LS_VOCABULARY_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: `vocab` must map 1 to %d tokens to ids", what,
                       LS_VOCABULARY_MAX);
    /* ids may leave holes, but not so many that a small file takes much memory */
    int64_t most = (int64_t)(2 * count + 65536);
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value) {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= most)
            return LS_FAIL(ctx, LS_EINPUT, "%s: the token \"%.64s\" needs an id from 0 to %lld",
                           what, key, (long long)most - 1);
        if ((size_t)id >= room) room = (size_t)id + 1;
    }
    ls_bytes *entries = ls_new(ctx, room, sizeof *entries);
    if (entries == NULL) return LS_ENOMEM;
    ls_status status = LS_OK;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value) {
        ls_bytes *entry = &entries[json_integer_value(value)];
        if (entry->at != NULL) {
            status = LS_FAIL(ctx, LS_EINPUT, "%s: the tokens \"%.64s\" and \"%.64s\" have one id",
                             what, entry->at, key);
            break;
        }
        *entry = (ls_bytes){key, strlen(key)};
    }
    if (status == LS_OK) status = ls__vocabulary_make(ctx, entries, room, what, out);
    if (status == LS_OK) status = ls__vocabulary_index(ctx, out, NULL);
    ls_free(ctx, entries);
    return status;
}

ls_status ls__subword_unknown(ls_ctx *ctx, const json_t *json, const char *what,
                              ls_subword *model) {
    const json_t *value = json_object_get(json, "unk_token");
    model->unk = -1;
    if (value == NULL || json_is_null(value)) return LS_OK;
    if (!json_is_string(value))
        return LS_FAIL(ctx, LS_EINPUT, "%s: `unk_token` must be a text", what);
    model->unk = ls__vocabulary_find(&model->vocabulary, json_string_value(value),
                                     json_string_length(value));
    if (model->unk >= 0) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "%s: the unk_token \"%.60s\" is not in the vocabulary", what,
                   json_string_value(value));
}

void ls__subword_byte_ids(const ls_vocabulary *vocabulary, int32_t out[256]) {
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        out[byte] = ls__vocabulary_find(vocabulary, name, 6);
    }
}

/* Older files leave the type out: the members tell. */
static const char *guess_type(const json_t *json) {
    if (json_is_array(json_object_get(json, "vocab"))) return "Unigram";
    return json_object_get(json, "merges") != NULL ? "BPE" : "WordPiece";
}

ls_status ls__subword_new(ls_ctx *ctx, const json_t *json, bool bytes, const char *what,
                          ls_subword **out) {
    static const ls_subword_type *const types[] = {&ls__subword_bpe, &ls__subword_unigram,
                                                   &ls__subword_wordpiece};
    *out = NULL;
    if (!json_is_object(json)) return LS_FAIL(ctx, LS_EINPUT, "%s has no `model`", what);
    const char *name = json_string_value(json_object_get(json, "type"));
    if (name == NULL) name = guess_type(json);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(name, types[i]->name) != 0) continue;
        ls_subword *model = ls_new(ctx, 1, types[i]->size);
        if (model == NULL) return LS_ENOMEM;
        model->type = types[i];
        ls_status status = types[i]->read(ctx, json, bytes, what, model);
        if (status == LS_OK)
            *out = model;
        else
            ls__subword_free(ctx, model);
        return status;
    }
    return LS_FAIL(ctx, LS_EINPUT, "%s: the model %.60s is not understood", what, name);
}

void ls__subword_free(ls_ctx *ctx, ls_subword *model) {
    if (model == NULL) return;
    if (model->type->clear != NULL) model->type->clear(ctx, model);
    ls__vocabulary_clear(ctx, &model->vocabulary);
    ls_free(ctx, model);
}
