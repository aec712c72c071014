/* The kind `sentencepiece`: a unigram or BPE model of SentencePiece with its normaliser. */
#include "data/tokenizer/sentencepiece.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/option.h"
#include "data/tokenizer/tokenizer_config.h"
#include "data/tokenizer/unicode.h"

#define UNKNOWN_PENALTY 10.0f
static const char usual_unk_surface[] = " \xE2\x81\x87 "; /* U+2047 between spaces */

static bool is_reserved(const ls_sentencepiece *sp, int32_t id) {
    return sp->types[id] != LS_PIECE_NORMAL && sp->types[id] != LS_PIECE_USER &&
           sp->types[id] != LS_PIECE_UNUSED;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The unknown piece, the bytes, and which pieces a text can be made of. */
static ls_status sort_pieces(ls_ctx *ctx, ls_sentencepiece *sp, const char *what) {
    bool *skip = ls_new(ctx, (size_t)sp->names.count, sizeof *skip);
    if (skip == NULL) return LS_ENOMEM;
    ls_status status = LS_OK;
    sp->unk = -1;
    for (int byte = 0; byte < 256; byte++) sp->byte_id[byte] = -1;
    for (int32_t id = 0; id < sp->names.count && status == LS_OK; id++) {
        ls_bytes name = ls__vocabulary_at(&sp->names, id);
        skip[id] = is_reserved(sp, id);
        if (sp->types[id] == LS_PIECE_UNKNOWN) {
            if (sp->unk >= 0) status = LS_FAIL(ctx, LS_EINPUT, "%s has two unknown pieces", what);
            sp->unk = id;
        }
        if (sp->types[id] == LS_PIECE_BYTE) {
            int high = name.length == 6 ? hex_value(name.at[3]) : -1;
            int low = name.length == 6 ? hex_value(name.at[4]) : -1;
            if (high < 0 || low < 0 || memcmp(name.at, "<0x", 3) != 0 || name.at[5] != '>')
                status = LS_FAIL(ctx, LS_EINPUT, "%s: the byte piece %.20s is not <0xHH>", what,
                                 name.at);
            else
                sp->byte_id[high * 16 + low] = id;
        }
        sp->any_user |= sp->types[id] == LS_PIECE_USER;
        sp->any_unused |= sp->types[id] == LS_PIECE_UNUSED;
    }
    if (status == LS_OK && sp->unk < 0)
        status = LS_FAIL(ctx, LS_EINPUT, "%s has no unknown piece", what);
    for (int byte = 0; byte < 256 && sp->byte_fallback && status == LS_OK; byte++)
        if (sp->byte_id[byte] < 0)
            status = LS_FAIL(ctx, LS_EINPUT, "%s has no piece for the byte 0x%02x", what,
                             (unsigned)byte);
    if (status == LS_OK) status = ls__vocabulary_index(ctx, &sp->names, skip);
    ls_free(ctx, skip);
    return status;
}

/* A trie of the pieces that `wanted` chooses. */
static ls_status make_trie(ls_ctx *ctx, const ls_sentencepiece *sp,
                           bool (*wanted)(const ls_sentencepiece *sp, int32_t id), ls_trie *out) {
    size_t count = 0;
    ls_trie_key *keys = ls_new(ctx, (size_t)sp->names.count, sizeof *keys);
    if (keys == NULL) return LS_ENOMEM;
    for (int32_t id = 0; id < sp->names.count; id++) {
        ls_bytes name = ls__vocabulary_at(&sp->names, id);
        if (wanted(sp, id))
            keys[count++] = (ls_trie_key){(const uint8_t *)name.at, name.length, id};
    }
    ls_status status = ls__trie_make(ctx, keys, count, out);
    ls_free(ctx, keys);
    return status;
}

static bool is_user(const ls_sentencepiece *sp, int32_t id) {
    return sp->types[id] == LS_PIECE_USER;
}

static bool is_scored(const ls_sentencepiece *sp, int32_t id) {
    return sp->types[id] == LS_PIECE_USER || sp->types[id] == LS_PIECE_NORMAL;
}

static ls_status make_unigram(ls_ctx *ctx, ls_sentencepiece *sp) {
    ls_unigram *u = &sp->unigram;
    size_t count = (size_t)sp->names.count;
    float lowest = FLT_MAX, highest = FLT_MIN; /* the smallest positive number, as there */
    u->scores = ls_new(ctx, count, sizeof *u->scores);
    u->user = u->scores == NULL ? NULL : ls_new(ctx, count, sizeof *u->user);
    if (u->user == NULL) return LS_ENOMEM;
    for (int32_t id = 0; id < sp->names.count; id++) {
        u->scores[id] = (double)sp->scores[id];
        u->user[id] = is_user(sp, id);
        if (sp->types[id] != LS_PIECE_NORMAL) continue;
        lowest = fminf(lowest, sp->scores[id]);
        highest = fmaxf(highest, sp->scores[id]);
    }
    u->user_score = highest;
    u->unk_score = (double)(lowest - UNKNOWN_PENALTY);
    u->unk = sp->unk;
    u->single = true;
    return make_trie(ctx, sp, is_scored, &u->trie);
}

/* The symbol of a part of a piece: a piece, or a single character; -1: neither. */
static int32_t symbol_of(const ls_sentencepiece *sp, const char *at, size_t length) {
    int32_t point, id = ls__vocabulary_find(&sp->names, at, length);
    if (id >= 0) return id;
    return ls__utf8_take((const uint8_t *)at, length, &point) == length ? LS_STRANGER(sp, point)
                                                                        : -1;
}

static int compare_scores(const void *a, const void *b) {
    float left = *(const float *)a, right = *(const float *)b;
    return left > right ? -1 : left < right; /* the highest first */
}

/* The number of different scores above this one. */
static int32_t rank_of(const float *sorted, size_t count, float score) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (sorted[middle] > score)
            low = middle + 1;
        else
            high = middle;
    }
    return (int32_t)low;
}

static int32_t last_point(const char *at, size_t length) {
    size_t begin = length - 1;
    int32_t point = 0;
    while (begin > 0 && ((uint8_t)at[begin] & 0xC0) == 0x80) begin--;
    ls__utf8_take((const uint8_t *)at + begin, length - begin, &point);
    return point;
}

/* Every way to cut a piece in two symbols is a merge; the piece's score ranks it. */
static ls_status add_merges(ls_ctx *ctx, ls_sentencepiece *sp, int32_t id, int32_t rank,
                            size_t *capacity) {
    ls_bytes name = ls__vocabulary_at(&sp->names, id);
    ls_merges *m = &sp->merges;
    for (size_t cut = 1; cut < name.length; cut++) {
        if (((uint8_t)name.at[cut] & 0xC0) == 0x80) continue;
        int32_t left = symbol_of(sp, name.at, cut), point = 0;
        int32_t right = left < 0 ? -1 : symbol_of(sp, name.at + cut, name.length - cut);
        if (right < 0) continue;
        if (m->count == INT32_MAX ||
            !ls_array_reserve(ctx, &m->list, capacity, (size_t)m->count + 1, sizeof *m->list))
            return LS_ENOMEM;
        m->list[m->count++] = (ls_merge){left, right, id, rank};
        ls__utf8_take((const uint8_t *)name.at + cut, name.length - cut, &point);
        ls__merges_join(m, last_point(name.at, cut), point);
    }
    return LS_OK;
}

static ls_status make_merges(ls_ctx *ctx, ls_sentencepiece *sp) {
    size_t count = (size_t)sp->names.count, capacity = 0;
    float *sorted = ls_new(ctx, count, sizeof *sorted);
    if (sorted == NULL) return LS_ENOMEM;
    memcpy(sorted, sp->scores, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_scores);
    ls_status status = ls__merges_join_start(ctx, &sp->merges);
    for (int32_t id = 0; id < sp->names.count && status == LS_OK; id++)
        if (!is_reserved(sp, id))
            status = add_merges(ctx, sp, id, rank_of(sorted, count, sp->scores[id]), &capacity);
    ls_free(ctx, sorted);
    LS_TRY(status);
    LS_TRY(ls__merges_index(ctx, &sp->merges, NULL));
    sp->direct = ls__vocabulary_characters(ctx, &sp->names);
    return sp->direct == NULL ? LS_ENOMEM : LS_OK;
}

/* Appends a piece's text: spaces for U+2581. */
static void put_piece(ls_ctx *ctx, const char *at, size_t length, ls_text *out) {
    for (const char *mark; (mark = memmem(at, length, LS_METASPACE, 3)) != NULL;) {
        ls_text_append(ctx, out, at, (size_t)(mark - at));
        ls_text_append(ctx, out, " ", 1);
        length -= (size_t)(mark - at) + 3;
        at = mark + 3;
    }
    ls_text_append(ctx, out, at, length);
}

static uint8_t byte_of(const ls_sentencepiece *sp, int32_t id) {
    ls_bytes name = ls__vocabulary_at(&sp->names, id);
    return (uint8_t)(hex_value(name.at[3]) * 16 + hex_value(name.at[4]));
}

/* What a piece is where it stands alone. */
static void put_alone(ls_ctx *ctx, const ls_sentencepiece *sp, int32_t id, ls_text *out) {
    if (id >= sp->names.count) {
        const ls_added_token *added = ls__added_find(&sp->added, id);
        if (added != NULL) ls_text_append(ctx, out, added->content, added->length);
        return;
    }
    ls_bytes name = ls__vocabulary_at(&sp->names, id);
    uint8_t byte;
    switch (sp->types[id]) {
    case LS_PIECE_CONTROL:
        break;
    case LS_PIECE_UNKNOWN:
        ls_text_append(ctx, out, sp->unk_surface, strlen(sp->unk_surface));
        break;
    case LS_PIECE_BYTE:
        byte = byte_of(sp, id);
        ls_text_append(ctx, out, &byte, 1);
        break;
    default:
        put_piece(ctx, name.at, name.length, out);
    }
}

static ls_status make_pieces(ls_ctx *ctx, ls_sentencepiece *sp, const char *what) {
    size_t count = (size_t)sp->base.vocabulary;
    ls_text pool = {0};
    size_t *ends = ls_new(ctx, count, sizeof *ends);
    ls_bytes *entries = ends == NULL ? NULL : ls_new(ctx, count, sizeof *entries);
    ls_status status = entries == NULL ? LS_ENOMEM : LS_OK;
    ls_text_append(ctx, &pool, "", 0);
    for (size_t id = 0; id < count && status == LS_OK; id++) {
        put_alone(ctx, sp, (int32_t)id, &pool);
        ends[id] = pool.length;
        status = ls_text_status(&pool);
    }
    for (size_t id = 0, begin = 0; id < count && status == LS_OK; begin = ends[id++])
        entries[id] = (ls_bytes){pool.bytes + begin, ends[id] - begin};
    if (status == LS_OK) status = ls__vocabulary_make(ctx, entries, count, what, &sp->base.pieces);
    ls_text_clear(ctx, &pool);
    ls_free(ctx, ends);
    ls_free(ctx, entries);
    return status;
}

/* A run of byte pieces: its characters, and with `utf8` U+FFFD for each byte that is in none. */
static void put_bytes(ls_ctx *ctx, ls_text *bytes, bool utf8, ls_text *out) {
    const uint8_t *at = (const uint8_t *)bytes->bytes;
    for (size_t i = 0, used; i < bytes->length; i += used) {
        int32_t point;
        used = ls__utf8_take(at + i, bytes->length - i, &point);
        if (used > 0 || !utf8)
            ls_text_append(ctx, out, at + i, used > 0 ? used : 1);
        else
            ls_text_append(ctx, out, LS_REPLACEMENT, 3);
        if (used == 0) used = 1;
    }
    bytes->length = 0;
}

static ls_status decode(ls_ctx *ctx, const ls_tokenizer *base, const int32_t *ids, size_t count,
                        unsigned flags, ls_text *out) {
    const ls_sentencepiece *sp = (const ls_sentencepiece *)base;
    const size_t begin = out->length;
    const bool utf8 = (flags & LS_DECODE_UTF8) != 0, strips = sp->dummy_prefix || sp->remove_extra;
    bool first = true, seen = false;
    ls_text bytes = {0};
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= sp->base.vocabulary) continue;
        const ls_added_token *added = ls__added_find(&sp->added, ids[i]);
        bool inside = ids[i] < sp->names.count;
        ls_bytes name = inside          ? ls__vocabulary_at(&sp->names, ids[i])
                        : added != NULL ? (ls_bytes){added->content, added->length}
                                        : (ls_bytes){"", 0};
        ls_piece_type type = inside ? (ls_piece_type)sp->types[ids[i]] : LS_PIECE_NORMAL;
        if (added != NULL && added->special && (flags & LS_DECODE_SKIP_SPECIAL)) continue;
        if (type == LS_PIECE_BYTE) {
            uint8_t byte = byte_of(sp, ids[i]);
            ls_text_append(ctx, &bytes, &byte, 1);
            continue;
        }
        put_bytes(ctx, &bytes, utf8, out);
        if (seen || out->length > begin) first = false;
        seen = false;
        if (type == LS_PIECE_CONTROL) continue;
        if (type == LS_PIECE_UNKNOWN) {
            if (!(flags & LS_DECODE_SKIP_SPECIAL))
                ls_text_append(ctx, out, sp->unk_surface, strlen(sp->unk_surface));
            continue;
        }
        if (first && strips && name.length >= 3 && memcmp(name.at, LS_METASPACE, 3) == 0) {
            name.at += 3;
            name.length -= 3;
            seen = !sp->remove_extra;
        }
        put_piece(ctx, name.at, name.length, out);
    }
    put_bytes(ctx, &bytes, utf8, out);
    ls_status status = bytes.failed ? LS_ENOMEM : ls_text_status(out);
    ls_text_clear(ctx, &bytes);
    return status;
}

static void clear(ls_ctx *ctx, ls_tokenizer *base) {
    ls_sentencepiece *sp = (ls_sentencepiece *)base;
    ls__vocabulary_clear(ctx, &sp->names);
    ls_free(ctx, sp->scores);
    ls_free(ctx, sp->types);
    ls_free(ctx, sp->unk_surface);
    ls__charsmap_clear(ctx, &sp->map);
    ls__trie_clear(ctx, &sp->user);
    ls__unigram_clear(ctx, &sp->unigram);
    ls__merges_clear(ctx, &sp->merges);
    ls_free(ctx, sp->direct);
    ls__added_clear(ctx, &sp->added);
    ls__post_processor_clear(ctx, &sp->post);
}

static const ls_tokenizer_type sentencepiece_kind = {
    .name = "sentencepiece",
    .clear = clear,
    .decode = decode,
    .encoder_size = sizeof(ls_sentencepiece_encoder),
    .encoder_clear = ls__sentencepiece_encoder_clear,
    .encode = ls__sentencepiece_encode,
};

static int32_t find_piece(const ls_tokenizer *base, const char *token) {
    const ls_sentencepiece *sp = (const ls_sentencepiece *)base;
    size_t length = strlen(token);
    for (int32_t id = 0; id < sp->names.count; id++) {
        ls_bytes name = ls__vocabulary_at(&sp->names, id);
        if (name.length == length && memcmp(name.at, token, length) == 0) return id;
    }
    return -1;
}

/* added_tokens_decoder: {"id": {"content": ..., "special": ...}}: recognised in a text. One that
 * the model lacks has an id behind its pieces. */
static ls_status read_added(ls_ctx *ctx, const json_t *config, const char *what,
                            ls_sentencepiece *sp) {
    json_t *list = json_object_get(config, "added_tokens_decoder"), *about;
    const int64_t most = (int64_t)sp->names.count + 65536;
    const char *key;
    json_object_foreach(list, key, about) {
        const json_t *content = json_object_get(about, "content");
        int64_t id = -1;
        if (json_is_string(content)) id = find_piece(&sp->base, json_string_value(content));
        if (id < 0 && (!ls_parse_int(key, &id) || id < sp->names.count || id >= most ||
                       json_string_length(content) == 0))
            return LS_FAIL(ctx, LS_EINPUT, "%s: the added token %.20s has no content or place",
                           what, key);
        ls_added_token token = {.id = (int32_t)id};
        token.special = json_is_true(json_object_get(about, "special"));
        token.lstrip = json_is_true(json_object_get(about, "lstrip"));
        token.rstrip = json_is_true(json_object_get(about, "rstrip"));
        token.single_word = json_is_true(json_object_get(about, "single_word"));
        if (id >= sp->base.vocabulary) sp->base.vocabulary = id + 1;
        LS_TRY(ls__added_put(ctx, &sp->added, token, json_string_value(content),
                             json_string_length(content)));
    }
    return ls__added_finish(ctx, &sp->added);
}

/* BOS and EOS around a text: the flags, or what the tokenizer's class does without them. */
static ls_status read_template(ls_ctx *ctx, const json_t *config, ls_sentencepiece *sp) {
    const char *name = json_string_value(json_object_get(config, "tokenizer_class"));
    const json_t *bos = json_object_get(config, "add_bos_token");
    const json_t *eos = json_object_get(config, "add_eos_token");
    bool llama = name != NULL && (strstr(name, "Llama") != NULL || strstr(name, "Gemma") != NULL);
    bool t5 = name != NULL && strstr(name, "T5") != NULL;
    bool begins = json_is_boolean(bos) ? json_is_true(bos) : llama;
    bool ends = json_is_boolean(eos) ? json_is_true(eos) : t5;
    const ls_special_ids *special = &sp->base.special;
    if (begins && special->bos >= 0) LS_TRY(ls_ids_append(ctx, &sp->post.before, &special->bos, 1));
    if (ends && special->eos >= 0) LS_TRY(ls_ids_append(ctx, &sp->post.after, &special->eos, 1));
    return LS_OK;
}

static ls_status finish(ls_ctx *ctx, const json_t *config, const char *what, ls_sentencepiece *sp) {
    ls_special_ids *special = &sp->base.special;
    if (sp->unk_surface == NULL) {
        sp->unk_surface = ls_copy_text(ctx, usual_unk_surface);
        if (sp->unk_surface == NULL) return LS_ENOMEM;
    }
    LS_TRY(sort_pieces(ctx, sp, what));
    LS_TRY(make_trie(ctx, sp, is_user, &sp->user));
    LS_TRY(sp->bpe ? make_merges(ctx, sp) : make_unigram(ctx, sp));
    sp->base.vocabulary = sp->names.count;
    LS_TRY(read_added(ctx, config, what, sp));
    LS_TRY(make_pieces(ctx, sp, what));
    special->unk = sp->unk;
    int32_t *const ids[] = {&special->bos, &special->eos, &special->pad};
    for (int i = 0; i < 3; i++)
        if (*ids[i] >= sp->names.count || (*ids[i] >= 0 && !is_reserved(sp, *ids[i]))) *ids[i] = -1;
    if (config != NULL) ls__config_special(config, find_piece, &sp->base);
    return read_template(ctx, config, sp);
}

ls_status ls__tokenizer_new_sentencepiece(ls_ctx *ctx, const ls_text *model,
                                          const ls_text *config_text, const char *what,
                                          ls_tokenizer **out) {
    ls_sentencepiece *sp = NULL;
    json_t *config = NULL;
    ls_status status;
    *out = NULL;
    LS_TRY_GOTO(ls__config_parse(ctx, config_text, &config));
    LS_TRY_GOTO(ls__tokenizer_new(ctx, &sentencepiece_kind, sizeof *sp, &sp));
    LS_TRY_GOTO(
        ls__sentencepiece_parse(ctx, (const uint8_t *)model->bytes, model->length, what, sp));
    LS_TRY_GOTO(finish(ctx, config, what, sp));
    LS_TRY_GOTO(ls__tokenizer_keep(ctx, &sp->base, "tokenizer.model", model->bytes, model->length));
    if (config != NULL)
        LS_TRY_GOTO(ls__tokenizer_keep(ctx, &sp->base, "tokenizer_config.json", config_text->bytes,
                                       config_text->length));
    uint64_t parts[2] = {ls_hash(model->bytes, model->length),
                         config == NULL ? 0 : ls_hash(config_text->bytes, config_text->length)};
    sp->base.hash = ls_hash(parts, sizeof parts);
    *out = &sp->base;
    sp = NULL;
fail:
    json_decref(config);
    if (sp != NULL) ls_tokenizer_free(ctx, &sp->base);
    return status;
}
