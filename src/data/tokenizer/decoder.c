#include "data/tokenizer/decoder.h"

#include <string.h>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/kind.h"
#include "data/tokenizer/unicode.h"

typedef struct running {
    ls_matcher *matcher;
    unsigned flags;
    bool fused;              /* all tokens have become one */
    const ls_token_list *in; /* of the present step */
    ls_token_list *out;
} running;

struct ls_decoder_step {
    ls_status (*run)(ls_ctx *ctx, const ls_decoder_step *step, running *r);
    ls_pattern *pattern; /* Replace */
    char *content;       /* Replace; Strip's character; Metaspace's mark; WordPiece's prefix */
    int64_t start, stop; /* Strip */
    bool first;          /* Metaspace: marks of the first token vanish */
    bool cleanup;        /* WordPiece */
};

ls_status ls__token_list_add(ls_ctx *ctx, ls_token_list *list, const void *bytes, size_t length) {
    if (!ls_array_reserve(ctx, &list->ends, &list->capacity, list->count + 1, sizeof *list->ends))
        return LS_ENOMEM;
    ls_text_append(ctx, &list->text, bytes, length);
    list->ends[list->count++] = list->text.length;
    return ls_text_status(&list->text);
}

void ls__token_list_clear(ls_ctx *ctx, ls_token_list *list) {
    ls_text_clear(ctx, &list->text);
    ls_free(ctx, list->ends);
    *list = (ls_token_list){0};
}

static const uint8_t *token_at(const ls_token_list *list, size_t i, size_t *length) {
    size_t begin = i == 0 ? 0 : list->ends[i - 1];
    *length = list->ends[i] - begin;
    return (const uint8_t *)list->text.bytes + begin;
}

static ls_status run_byte_level(ls_ctx *ctx, const ls_decoder_step *step, running *r) {
    ls_text all = {0};
    size_t length, used;
    (void)step;
    ls_text_append(ctx, &all, "", 0);
    for (size_t i = 0; i < r->in->count; i++) {
        const uint8_t *token = token_at(r->in, i, &length);
        size_t before = all.length;
        ls_text_append(ctx, &all, token, length);
        if (all.failed) break;
        if (ls__byte_letters_read((const char *)token, length, (uint8_t *)all.bytes + before,
                                  &used))
            all.length = before + used;
        else /* what was overwritten is put back: the token stands for itself */
            memcpy(all.bytes + before, token, length);
    }
    ls_status status = ls_text_status(&all);
    if (status == LS_OK && (r->flags & LS_DECODER_UTF8)) {
        ls_text valid = {0};
        ls__utf8_append_valid(ctx, (const uint8_t *)all.bytes, all.length, &valid);
        status = ls_text_status(&valid);
        ls_text_clear(ctx, &all);
        all = valid;
    }
    if (status == LS_OK) status = ls__token_list_add(ctx, r->out, all.bytes, all.length);
    ls_text_clear(ctx, &all);
    r->fused = true;
    return status;
}

static int hex_value(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of a token <0xHH>, or -1. */
static int byte_token(const uint8_t *token, size_t length) {
    if (length != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') return -1;
    int high = hex_value(token[3]), low = hex_value(token[4]);
    if (token[3] == '+' && low >= 0) return low; /* the library's number reader takes a sign */
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Ends a run of byte tokens, which lies in `bytes`. */
static ls_status put_bytes(ls_ctx *ctx, running *r, ls_text *bytes) {
    if (bytes->length == 0) return LS_OK;
    const uint8_t *text = (const uint8_t *)bytes->bytes;
    bool good = ls__utf8_valid(text, bytes->length) == bytes->length;
    ls_status status = LS_OK;
    if (good || !(r->flags & LS_DECODER_UTF8))
        status = ls__token_list_add(ctx, r->out, text, bytes->length);
    else
        for (size_t i = 0; i < bytes->length && status == LS_OK; i++)
            status = ls__token_list_add(ctx, r->out, LS_REPLACEMENT, 3);
    bytes->length = 0;
    return status;
}

static ls_status run_byte_fallback(ls_ctx *ctx, const ls_decoder_step *step, running *r) {
    ls_text bytes = {0};
    ls_status status = LS_OK;
    size_t length;
    (void)step;
    for (size_t i = 0; i < r->in->count && status == LS_OK; i++) {
        const uint8_t *token = token_at(r->in, i, &length);
        int value = byte_token(token, length);
        if (value >= 0) {
            uint8_t byte = (uint8_t)value;
            ls_text_append(ctx, &bytes, &byte, 1);
            status = ls_text_status(&bytes);
            continue;
        }
        status = put_bytes(ctx, r, &bytes);
        if (status == LS_OK) status = ls__token_list_add(ctx, r->out, token, length);
    }
    if (status == LS_OK) status = put_bytes(ctx, r, &bytes);
    ls_text_clear(ctx, &bytes);
    return status;
}

/* Adds a part to the token that is being made; end_token ends it. */
static void part(ls_ctx *ctx, running *r, const void *bytes, size_t length) {
    ls_text_append(ctx, &r->out->text, bytes, length);
}

static ls_status end_token(ls_ctx *ctx, running *r) {
    return ls__token_list_add(ctx, r->out, "", 0);
}

static ls_status run_metaspace(ls_ctx *ctx, const ls_decoder_step *step, running *r) {
    size_t mark = strlen(step->content), length;
    for (size_t i = 0; i < r->in->count; i++) {
        const uint8_t *token = token_at(r->in, i, &length), *found;
        bool drop = i == 0 && step->first && !(r->flags & LS_DECODER_INNER);
        while ((found = memmem(token, length, step->content, mark)) != NULL) {
            part(ctx, r, token, (size_t)(found - token));
            if (!drop) part(ctx, r, " ", 1);
            length -= (size_t)(found - token) + mark;
            token = found + mark;
        }
        part(ctx, r, token, length);
        LS_TRY(end_token(ctx, r));
    }
    return LS_OK;
}

/* Replaces all occurrences, left to right, in place: `with` is never longer. */
static void replace_all(ls_text *text, const char *from, const char *with) {
    size_t out = 0, from_length = strlen(from), with_length = strlen(with);
    for (size_t at = 0; at < text->length;) {
        bool here =
            text->length - at >= from_length && memcmp(text->bytes + at, from, from_length) == 0;
        if (here) {
            memcpy(text->bytes + out, with, with_length);
            out += with_length;
            at += from_length;
        } else {
            text->bytes[out++] = text->bytes[at++];
        }
    }
    text->length = out;
    text->bytes[out] = '\0';
}

static ls_status run_word_piece(ls_ctx *ctx, const ls_decoder_step *step, running *r) {
    static const char *const clean[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    ls_text token = {0};
    ls_status status = LS_OK;
    size_t prefix = strlen(step->content), length;
    for (size_t i = 0; i < r->in->count && status == LS_OK; i++) {
        const uint8_t *bytes = token_at(r->in, i, &length);
        bool inner = i > 0 || (r->flags & LS_DECODER_INNER);
        bool goes_on = length >= prefix && memcmp(bytes, step->content, prefix) == 0;
        token.length = 0;
        if (inner && !goes_on) ls_text_append(ctx, &token, " ", 1);
        size_t skip = inner && goes_on ? prefix : 0;
        ls_text_append(ctx, &token, bytes + skip, length - skip);
        status = ls_text_status(&token);
        for (size_t c = 0; step->cleanup && status == LS_OK && c < sizeof clean / sizeof clean[0];
             c++)
            replace_all(&token, clean[c][0], clean[c][1]);
        if (status == LS_OK) status = ls__token_list_add(ctx, r->out, token.bytes, token.length);
    }
    ls_text_clear(ctx, &token);
    return status;
}

static ls_status run_replace(ls_ctx *ctx, const ls_decoder_step *step, running *r) {
    size_t length;
    for (size_t i = 0; i < r->in->count; i++) {
        const uint8_t *token = token_at(r->in, i, &length);
        while (length > 0) { /* bytes that are not UTF-8 are passed over: patterns take text */
            size_t valid = ls__utf8_valid(token, length);
            LS_TRY(ls__pattern_replace(ctx, step->pattern, r->matcher, token, valid, step->content,
                                       strlen(step->content), &r->out->text));
            size_t used = valid < length ? valid + 1 : valid;
            part(ctx, r, token + valid, used - valid);
            token += used;
            length -= used;
        }
        LS_TRY(end_token(ctx, r));
    }
    return LS_OK;
}

static ls_status run_fuse(ls_ctx *ctx, const ls_decoder_step *step, running *r) {
    (void)step;
    r->fused = true;
    part(ctx, r, r->in->text.bytes, r->in->text.length);
    return end_token(ctx, r);
}

static ls_status run_strip(ls_ctx *ctx, const ls_decoder_step *step, running *r) {
    size_t size = strlen(step->content), length;
    bool inner = r->fused && (r->flags & LS_DECODER_INNER);
    for (size_t i = 0; i < r->in->count; i++) {
        const uint8_t *token = token_at(r->in, i, &length);
        for (int64_t n = 0; n < step->start && length >= size && !inner; n++) {
            if (memcmp(token, step->content, size) != 0) break;
            token += size;
            length -= size;
        }
        for (int64_t n = 0; n < step->stop && length >= size && !inner; n++) {
            if (memcmp(token + length - size, step->content, size) != 0) break;
            length -= size;
        }
        LS_TRY(ls__token_list_add(ctx, r->out, token, length));
    }
    return LS_OK;
}

static ls_status take_content(ls_ctx *ctx, const json_t *json, const char *key, const char *what,
                              ls_decoder_step *step) {
    const char *text;
    LS_TRY(ls_json_text(ctx, json, key, what, &text));
    step->content = ls_copy_text(ctx, text);
    return step->content == NULL ? LS_ENOMEM : LS_OK;
}

static ls_status read_metaspace(ls_ctx *ctx, const json_t *json, const char *what,
                                ls_decoder_step *step) {
    bool old;
    step->run = run_metaspace;
    LS_TRY(ls__fields_known(ctx, json, "replacement|prepend_scheme|add_prefix_space|split|str_rep",
                            what));
    LS_TRY(ls__field_bool(ctx, json, "add_prefix_space", true, what, &old));
    const char *scheme = json_string_value(json_object_get(json, "prepend_scheme"));
    step->first = scheme == NULL ? old : strcmp(scheme, "never") != 0;
    LS_TRY(take_content(ctx, json, "replacement", what, step));
    if (*step->content == '\0')
        return LS_FAIL(ctx, LS_EINPUT, "%s: Metaspace needs a `replacement`", what);
    return LS_OK;
}

static ls_status read_strip(ls_ctx *ctx, const json_t *json, const char *what,
                            ls_decoder_step *step) {
    step->run = run_strip;
    LS_TRY(ls__fields_known(ctx, json, "content|start|stop", what));
    LS_TRY(ls_json_int(ctx, json, "start", what, 0, INT32_MAX, &step->start));
    LS_TRY(ls_json_int(ctx, json, "stop", what, 0, INT32_MAX, &step->stop));
    LS_TRY(take_content(ctx, json, "content", what, step));
    size_t length = strlen(step->content);
    int32_t point;
    if (length == 0 || ls__utf8_take((const uint8_t *)step->content, length, &point) != length)
        return LS_FAIL(ctx, LS_EINPUT, "%s: Strip's `content` must be one character", what);
    return LS_OK;
}

static ls_status read_step(ls_ctx *ctx, const json_t *json, const char *type, const char *what,
                           ls_decoder_step *step) {
    if (strcmp(type, "ByteLevel") == 0) {
        step->run = run_byte_level;
        return ls__fields_known(ctx, json, "add_prefix_space|trim_offsets|use_regex", what);
    }
    if (strcmp(type, "ByteFallback") == 0 || strcmp(type, "Fuse") == 0) {
        step->run = *type == 'F' ? run_fuse : run_byte_fallback;
        return ls__fields_known(ctx, json, "", what);
    }
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(ctx, json, what, step);
    if (strcmp(type, "Strip") == 0) return read_strip(ctx, json, what, step);
    if (strcmp(type, "WordPiece") == 0) {
        step->run = run_word_piece;
        LS_TRY(ls__fields_known(ctx, json, "prefix|cleanup", what));
        LS_TRY(ls__field_bool(ctx, json, "cleanup", true, what, &step->cleanup));
        return take_content(ctx, json, "prefix", what, step);
    }
    if (strcmp(type, "Replace") == 0) {
        step->run = run_replace;
        LS_TRY(ls__fields_known(ctx, json, "pattern|content", what));
        LS_TRY(ls__field_pattern(ctx, json, "pattern", what, &step->pattern));
        return take_content(ctx, json, "content", what, step);
    }
    return LS_FAIL(ctx, LS_EINPUT, "%s: the decoder %.60s is not understood", what, type);
}

static ls_status add_step(ls_ctx *ctx, void *user, const json_t *json, const char *type,
                          const char *what) {
    ls_decoder *d = user;
    if (!ls_array_reserve(ctx, &d->steps, &d->capacity, d->count + 1, sizeof *d->steps))
        return LS_ENOMEM;
    ls_decoder_step *step = &d->steps[d->count++];
    *step = (ls_decoder_step){0};
    return read_step(ctx, json, type, what, step);
}

ls_status ls__decoder_read(ls_ctx *ctx, const json_t *json, const char *what, ls_decoder *out) {
    out->none = json == NULL || json_is_null(json);
    return ls__field_sequence(ctx, json, "decoder", "decoders", what, add_step, out);
}

void ls__decoder_clear(ls_ctx *ctx, ls_decoder *d) {
    for (size_t i = 0; i < d->count; i++) {
        ls__pattern_free(ctx, d->steps[i].pattern);
        ls_free(ctx, d->steps[i].content);
    }
    ls_free(ctx, d->steps);
    *d = (ls_decoder){0};
}

static ls_status join_by_spaces(ls_ctx *ctx, unsigned flags, const ls_token_list *tokens,
                                ls_text *out) {
    size_t length;
    for (size_t i = 0; i < tokens->count; i++) {
        const uint8_t *token = token_at(tokens, i, &length);
        if (i > 0 || (flags & LS_DECODER_INNER)) ls_text_append(ctx, out, " ", 1);
        ls_text_append(ctx, out, token, length);
    }
    return ls_text_status(out);
}

ls_status ls__decoder_run(ls_ctx *ctx, const ls_decoder *decoder, ls_matcher *matcher,
                          unsigned flags, ls_token_list *tokens, ls_text *out) {
    if (decoder->none) return join_by_spaces(ctx, flags, tokens, out);
    ls_token_list next = {0};
    running r = {.matcher = matcher, .flags = flags, .in = tokens, .out = &next};
    ls_status status = LS_OK;
    for (size_t i = 0; i < decoder->count && status == LS_OK; i++) {
        next.count = 0;
        next.text.length = 0;
        ls_text_append(ctx, &next.text, "", 0);
        status = decoder->steps[i].run(ctx, &decoder->steps[i], &r);
        ls_token_list swapped = *tokens;
        *tokens = next;
        next = swapped;
    }
    if (status == LS_OK) ls_text_append(ctx, out, tokens->text.bytes, tokens->text.length);
    ls__token_list_clear(ctx, &next);
    return status == LS_OK ? ls_text_status(out) : status;
}
