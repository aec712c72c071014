/* The kind `tokenizer.json`: added tokens, normaliser, pre-tokeniser, model, post-processor and
 * decoder of that file. */
#include <string.h>

#include "data/tokenizer/added.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/fields.h"
#include "data/tokenizer/kind.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/post_processor.h"
#include "data/tokenizer/pretokenizer.h"
#include "data/tokenizer/subword.h"
#include "data/tokenizer/tokenizer_config.h"
#include "data/tokenizer/unicode.h"

typedef struct pipeline {
    ls_tokenizer base;
    ls_added added;
    ls_normalizer normalizer;
    ls_pretokenizer pretokenizer;
    ls_subword *model;
    ls_post_processor post;
    ls_decoder decoder;
} pipeline;

typedef struct encoder {
    ls_encoder base;
    ls_matcher matcher;
    ls_text buffers[2]; /* of the normaliser */
    ls_text valid;      /* the text with U+FFFD in place of what is not UTF-8 */
    ls_pretokenizing words;
    ls_subword_work work;
    ls_ids *out;
} encoder;

static ls_status take_word(ls_ctx *ctx, void *user, const uint8_t *word, size_t length) {
    encoder *e = user;
    const pipeline *p = (const pipeline *)e->base.tokenizer;
    return ls__subword_encode(ctx, p->model, &e->work, word, length, e->out);
}

static ls_status encoder_init(ls_ctx *ctx, ls_encoder *base) {
    encoder *e = (encoder *)base;
    e->words =
        (ls_pretokenizing){.pretokenizer = &((const pipeline *)base->tokenizer)->pretokenizer,
                           .take = take_word,
                           .user = e,
                           .matcher = &e->matcher};
    LS_TRY(ls__pretokenizing_init(ctx, &e->words));
    return ls__matcher_init(ctx, &e->matcher);
}

static void encoder_clear(ls_ctx *ctx, ls_encoder *base) {
    encoder *e = (encoder *)base;
    ls__matcher_clear(&e->matcher);
    if (e->words.pretokenizer != NULL) ls__pretokenizing_clear(ctx, &e->words);
    for (int i = 0; i < 2; i++) ls_text_clear(ctx, &e->buffers[i]);
    ls_text_clear(ctx, &e->valid);
    ls__subword_work_clear(ctx, &e->work);
}

/* Takes the added tokens out of a text; what lies between them goes to `rest`. */
typedef ls_status (*take_rest)(ls_ctx *ctx, encoder *e, const uint8_t *text, size_t length,
                               bool start, bool special);
static ls_status take_added(ls_ctx *ctx, encoder *e, bool normalized, const uint8_t *text,
                            size_t length, bool start, bool special, take_rest rest) {
    const pipeline *p = (const pipeline *)e->base.tokenizer;
    size_t done = 0, from = 0;
    while (done < length) {
        ls_added_match match =
            ls__added_next(&p->added, normalized, special, text, length, from, done);
        size_t end = match.token == NULL ? length : match.begin;
        if (end > done) LS_TRY(rest(ctx, e, text + done, end - done, start && done == 0, special));
        if (match.token == NULL) break;
        LS_TRY(ls_ids_append(ctx, e->out, &match.token->id, 1));
        done = match.end;
        from = match.next;
    }
    return LS_OK;
}

static ls_status encode_words(ls_ctx *ctx, encoder *e, const uint8_t *text, size_t length,
                              bool start, bool special) {
    (void)special;
    return ls__pretokenize(ctx, &e->words, text, length, start);
}

static ls_status encode_rest(ls_ctx *ctx, encoder *e, const uint8_t *text, size_t length,
                             bool start, bool special) {
    const pipeline *p = (const pipeline *)e->base.tokenizer;
    LS_TRY(
        ls__normalize(ctx, &p->normalizer, &e->matcher, text, length, e->buffers, &text, &length));
    return take_added(ctx, e, true, text, length, start, special, encode_words);
}

/* Bytes that are not UTF-8 are words of their own where the model has bytes, else U+FFFD. */
static ls_status encode_any(ls_ctx *ctx, encoder *e, const uint8_t *text, size_t length,
                            bool special) {
    const bool bytes = ((const pipeline *)e->base.tokenizer)->pretokenizer.bytes;
    size_t valid = ls__utf8_valid(text, length);
    if (valid < length && !bytes) {
        e->valid.length = 0;
        while (length > 0) {
            ls_text_append(ctx, &e->valid, text, valid);
            if (valid < length) ls_text_append(ctx, &e->valid, LS_REPLACEMENT, 3);
            size_t used = valid < length ? valid + 1 : length;
            text += used;
            length -= used;
            valid = ls__utf8_valid(text, length);
        }
        LS_TRY(ls_text_status(&e->valid));
        text = (const uint8_t *)e->valid.bytes;
        valid = length = e->valid.length;
    }
    bool start = true;
    while (length > 0) {
        LS_TRY(take_added(ctx, e, false, text, valid, start, special, encode_rest));
        if (valid < length) LS_TRY(take_word(ctx, e, text + valid, 1));
        size_t used = valid < length ? valid + 1 : length;
        text += used;
        length -= used;
        valid = ls__utf8_valid(text, length);
        start = false;
    }
    return LS_OK;
}

static ls_status encode(ls_ctx *ctx, ls_encoder *base, const uint8_t *text, size_t length,
                        unsigned flags, ls_ids *out) {
    encoder *e = (encoder *)base;
    const pipeline *p = (const pipeline *)base->tokenizer;
    LS_TRY(ls__word_cache_start(ctx, &e->work.cache, length));
    e->out = out;
    if (flags & LS_ENCODE_TEMPLATE)
        LS_TRY(ls_ids_append(ctx, out, p->post.before.at, p->post.before.count));
    LS_TRY(encode_any(ctx, e, text, length, (flags & LS_ENCODE_SPECIAL) != 0));
    if (flags & LS_ENCODE_TEMPLATE)
        LS_TRY(ls_ids_append(ctx, out, p->post.after.at, p->post.after.count));
    return LS_OK;
}

/* The token of an id as the file spells it; length 0 where nothing has the id. */
static ls_bytes token_of(const pipeline *p, int32_t id) {
    const ls_added_token *added = ls__added_find(&p->added, id);
    if (added != NULL) return (ls_bytes){added->content, added->length};
    if (id < 0 || id >= p->model->vocabulary.count) return (ls_bytes){"", 0};
    return ls__vocabulary_at(&p->model->vocabulary, id);
}

static ls_status decode(ls_ctx *ctx, const ls_tokenizer *base, const int32_t *ids, size_t count,
                        unsigned flags, ls_text *out) {
    const pipeline *p = (const pipeline *)base;
    ls_token_list tokens = {0};
    ls_matcher matcher;
    LS_TRY(ls__matcher_init(ctx, &matcher));
    ls_status status = LS_OK;
    ls_text_append(ctx, &tokens.text, "", 0);
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        const ls_added_token *added = ls__added_find(&p->added, ids[i]);
        ls_bytes token = token_of(p, ids[i]);
        if (token.length == 0) continue;
        if ((flags & LS_DECODE_SKIP_SPECIAL) && added != NULL && added->special) continue;
        status = ls__token_list_add(ctx, &tokens, token.at, token.length);
    }
    unsigned how = (flags & LS_DECODE_UTF8) ? LS_DECODER_UTF8 : 0;
    if (status == LS_OK) status = ls__decoder_run(ctx, &p->decoder, &matcher, how, &tokens, out);
    ls__token_list_clear(ctx, &tokens);
    ls__matcher_clear(&matcher);
    return status;
}

static void clear(ls_ctx *ctx, ls_tokenizer *base) {
    pipeline *p = (pipeline *)base;
    ls__added_clear(ctx, &p->added);
    ls__normalizer_clear(ctx, &p->normalizer);
    ls__pretokenizer_clear(ctx, &p->pretokenizer);
    ls__subword_free(ctx, p->model);
    ls__post_processor_clear(ctx, &p->post);
    ls__decoder_clear(ctx, &p->decoder);
}

static const ls_tokenizer_type json_kind = {
    .name = "tokenizer.json",
    .clear = clear,
    .decode = decode,
    .encoder_size = sizeof(encoder),
    .encoder_init = encoder_init,
    .encoder_clear = encoder_clear,
    .encode = encode,
};

/* A normalized token is searched in, and decodes to, its normal form. One that the model has too
 * keeps the model's id. */
static ls_status settle_added(ls_ctx *ctx, pipeline *p, ls_matcher *matcher) {
    ls_text buffers[2] = {{0}, {0}};
    ls_status status = LS_OK;
    for (size_t i = 0; i < p->added.count && status == LS_OK; i++) {
        ls_added_token *token = &p->added.tokens[i];
        int32_t known = ls__vocabulary_find(&p->model->vocabulary, token->content, token->length);
        if (known >= 0) token->id = known;
        if (token->id >= p->base.vocabulary) p->base.vocabulary = token->id + 1;
        if (!token->normalized) continue;
        const uint8_t *form;
        size_t length;
        status = ls__normalize(ctx, &p->normalizer, matcher, (const uint8_t *)token->content,
                               token->length, buffers, &form, &length);
        if (status != LS_OK || form == (const uint8_t *)token->content) continue;
        char *content = ls_new(ctx, length + 1, 1);
        if (content == NULL) {
            status = LS_ENOMEM;
            break;
        }
        memcpy(content, form, length);
        ls_free(ctx, token->content);
        token->content = content;
        token->length = length;
    }
    for (int i = 0; i < 2; i++) ls_text_clear(ctx, &buffers[i]);
    return status == LS_OK ? ls__added_finish(ctx, &p->added) : status;
}

/* The bytes that each id adds to a text, in the middle of one. */
static ls_status make_pieces(ls_ctx *ctx, pipeline *p, ls_matcher *matcher, const char *what) {
    size_t count = (size_t)p->base.vocabulary;
    ls_text pool = {0};
    ls_token_list tokens = {0};
    ls_status status = LS_OK;
    size_t *ends = ls_new(ctx, count + 1, sizeof *ends);
    ls_bytes *entries = ends == NULL ? NULL : ls_new(ctx, count + 1, sizeof *entries);
    if (entries == NULL) {
        ls_free(ctx, ends);
        return LS_ENOMEM;
    }
    ls_text_append(ctx, &pool, "", 0);
    for (size_t id = 0; id < count && status == LS_OK; id++) {
        ls_bytes token = token_of(p, (int32_t)id);
        tokens.count = tokens.text.length = 0;
        if (token.length > 0) {
            status = ls__token_list_add(ctx, &tokens, token.at, token.length);
            if (status == LS_OK)
                status =
                    ls__decoder_run(ctx, &p->decoder, matcher, LS_DECODER_INNER, &tokens, &pool);
        }
        ends[id] = pool.length;
    }
    for (size_t id = 0, begin = 0; id < count && status == LS_OK; begin = ends[id++])
        entries[id] = (ls_bytes){pool.bytes + begin, ends[id] - begin};
    if (status == LS_OK) status = ls__vocabulary_make(ctx, entries, count, what, &p->base.pieces);
    ls__token_list_clear(ctx, &tokens);
    ls_text_clear(ctx, &pool);
    ls_free(ctx, ends);
    ls_free(ctx, entries);
    return status;
}

static int32_t find_token(const ls_tokenizer *base, const char *token) {
    const pipeline *p = (const pipeline *)base;
    size_t length = strlen(token);
    for (size_t i = 0; i < p->added.count; i++)
        if (p->added.tokens[i].length == length &&
            memcmp(p->added.tokens[i].content, token, length) == 0)
            return p->added.tokens[i].id;
    return ls__vocabulary_find(&p->model->vocabulary, token, length);
}

static ls_status check_post(ls_ctx *ctx, const pipeline *p, const char *what) {
    const ls_ids *lists[2] = {&p->post.before, &p->post.after};
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < lists[l]->count; i++)
            if (token_of(p, lists[l]->at[i]).length == 0)
                return LS_FAIL(ctx, LS_EINPUT, "%s: the post-processor adds the unknown id %ld",
                               what, (long)lists[l]->at[i]);
    return LS_OK;
}

static ls_status read_parts(ls_ctx *ctx, const json_t *json, const json_t *config, const char *what,
                            pipeline *p) {
    const json_t *prefix = json_object_get(config, "add_prefix_space");
    if (!json_is_object(json)) return LS_FAIL(ctx, LS_EINPUT, "%s must hold an object", what);
    LS_TRY(ls__fields_known(ctx, json,
                            "version|truncation|padding|added_tokens|normalizer|pre_tokenizer|"
                            "post_processor|decoder|model",
                            what));
    p->pretokenizer.prefix = json_is_boolean(prefix) ? json_is_true(prefix) : -1;
    LS_TRY(ls__normalizer_read(ctx, json_object_get(json, "normalizer"), what, &p->normalizer));
    LS_TRY(
        ls__pretokenizer_read(ctx, json_object_get(json, "pre_tokenizer"), what, &p->pretokenizer));
    LS_TRY(ls__subword_new(ctx, json_object_get(json, "model"), p->pretokenizer.bytes, what,
                           &p->model));
    LS_TRY(ls__post_processor_read(ctx, json_object_get(json, "post_processor"), what, &p->post));
    LS_TRY(ls__decoder_read(ctx, json_object_get(json, "decoder"), what, &p->decoder));
    LS_TRY(ls__added_read(ctx, json_object_get(json, "added_tokens"), what, &p->added));
    p->base.vocabulary = p->model->vocabulary.count;
    return LS_OK;
}

static ls_status finish(ls_ctx *ctx, const json_t *config, const char *what, pipeline *p) {
    ls_matcher matcher;
    LS_TRY(ls__matcher_init(ctx, &matcher));
    ls_status status = settle_added(ctx, p, &matcher);
    if (status == LS_OK) status = make_pieces(ctx, p, &matcher, what);
    ls__matcher_clear(&matcher);
    LS_TRY(status);
    ls__config_special(config, find_token, &p->base);
    if (p->base.special.unk < 0) p->base.special.unk = p->model->unk;
    return check_post(ctx, p, what);
}

ls_status ls__tokenizer_new_json(ls_ctx *ctx, const ls_text *text, const ls_text *config_text,
                                 const char *what, ls_tokenizer **out) {
    json_t *json = NULL, *config = NULL;
    pipeline *p = NULL;
    ls_status status;
    *out = NULL;
    LS_TRY_GOTO(ls_json_parse(ctx, text->bytes, text->length, what, &json));
    LS_TRY_GOTO(ls__config_parse(ctx, config_text, &config));
    LS_TRY_GOTO(ls__tokenizer_new(ctx, &json_kind, sizeof *p, &p));
    LS_TRY_GOTO(read_parts(ctx, json, config, what, p));
    LS_TRY_GOTO(finish(ctx, config, what, p));
    LS_TRY_GOTO(ls__tokenizer_keep(ctx, &p->base, "tokenizer.json", text->bytes, text->length));
    if (config != NULL)
        LS_TRY_GOTO(ls__tokenizer_keep(ctx, &p->base, "tokenizer_config.json", config_text->bytes,
                                       config_text->length));
    uint64_t parts[3] = {ls_hash(text->bytes, text->length), (uint64_t)p->pretokenizer.prefix,
                         (uint64_t)p->base.special.eos};
    p->base.hash = ls_hash(parts, sizeof parts);
    *out = &p->base;
    p = NULL;
fail:
    json_decref(json);
    json_decref(config);
    if (p != NULL) ls_tokenizer_free(ctx, &p->base);
    return status;
}

/* What the public constructors share. */
static ls_status from_memory(ls_ctx *ctx, const void *bytes, size_t length, const char *config,
                             const char *what,
                             ls_status (*make)(ls_ctx *, const ls_text *, const ls_text *,
                                               const char *, ls_tokenizer **),
                             ls_tokenizer **out) {
    ls_text text = {0}, about = {0};
    *out = NULL;
    ls_text_append(ctx, &text, bytes, length);
    ls_text_append(ctx, &about, config == NULL ? "" : config, config == NULL ? 0 : strlen(config));
    ls_status status =
        text.failed || about.failed ? LS_ENOMEM : make(ctx, &text, &about, what, out);
    ls_text_clear(ctx, &text);
    ls_text_clear(ctx, &about);
    return status;
}

ls_status ls_tokenizer_new_json(ls_ctx *ctx, const char *json, size_t length, const char *config,
                                const char *what, ls_tokenizer **out) {
    return from_memory(ctx, json, length, config, what, ls__tokenizer_new_json, out);
}

ls_status ls_tokenizer_new_sentencepiece(ls_ctx *ctx, const void *model, size_t length,
                                         const char *config, const char *what, ls_tokenizer **out) {
    return from_memory(ctx, model, length, config, what, ls__tokenizer_new_sentencepiece, out);
}
