#include "data/tokenizer/normalizer.h"

#include <string.h>

#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/fields.h"
#include "data/tokenizer/unicode.h"

struct ls_normalizer_step {
    ls_status (*run)(ls_ctx *ctx, const ls_normalizer_step *step, ls_matcher *matcher,
                     const uint8_t *text, size_t length, ls_text *out);
    bool compose, compatible; /* normal forms */
    bool left, right;         /* Strip */
    bool clean, chinese;      /* Bert; */
    bool strip, lower;        /* Bert: accents and capitals */
    ls_pattern *pattern;      /* Replace */
    char *content;            /* Replace, Prepend */
    size_t content_length;
    ls_charsmap charsmap; /* Precompiled */
};

#define RUN(name)                                                                                  \
    static ls_status name(ls_ctx *ctx, const ls_normalizer_step *step, ls_matcher *matcher,        \
                          const uint8_t *text, size_t length, ls_text *out)
#define UNUSED ((void)step, (void)matcher)

static void put_point(ls_ctx *ctx, int32_t point, ls_text *out) {
    uint8_t bytes[4];
    ls_text_append(ctx, out, bytes, ls__utf8_put(point, bytes));
}

/* Code points one by one, up to a byte that is not UTF-8: there is none, see tokenizer_json.c. */
#define FOR_POINTS(point)                                                                          \
    for (size_t at_ = 0, used_; (used_ = ls__utf8_take(text + at_, length - at_, &(point))) > 0;   \
         at_ += used_)

RUN(run_form) {
    UNUSED;
    return ls__normal_form(ctx, step->compose, step->compatible, text, length, out);
}

RUN(run_lower) {
    UNUSED;
    int32_t point, lower[2];
    FOR_POINTS(point) {
        int count = ls__lower(point, lower);
        for (int i = 0; i < count; i++) put_point(ctx, lower[i], out);
    }
    return ls_text_status(out);
}

RUN(run_strip_accents) {
    UNUSED;
    int32_t point;
    FOR_POINTS(point) {
        if (!ls__is_mark(point)) put_point(ctx, point, out);
    }
    return ls_text_status(out);
}

RUN(run_strip) {
    UNUSED;
    int32_t point;
    size_t begin = 0, end = 0;
    bool inside = false;
    FOR_POINTS(point) {
        if (ls__is_white(point)) continue;
        if (!inside) begin = at_;
        inside = true;
        end = at_ + used_;
    }
    if (!inside) begin = end = step->left ? length : 0;
    if (!step->left) begin = 0;
    if (!step->right) end = length;
    ls_text_append(ctx, out, text + begin, end - begin);
    return ls_text_status(out);
}

RUN(run_prepend) {
    UNUSED;
    if (length > 0) ls_text_append(ctx, out, step->content, step->content_length);
    ls_text_append(ctx, out, text, length);
    return ls_text_status(out);
}

RUN(run_replace) {
    return ls__pattern_replace(ctx, step->pattern, matcher, text, length, step->content,
                               step->content_length, out);
}

static bool is_chinese(int32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static void put_lower(ls_ctx *ctx, int32_t point, bool lower, ls_text *out) {
    int32_t small[2] = {point};
    int count = lower ? ls__lower(point, small) : 1;
    for (int i = 0; i < count; i++) put_point(ctx, small[i], out);
}

/* Clean-up and spaces around ideographs; with nothing to strip also lower case. */
static ls_status clean_bert(ls_ctx *ctx, const ls_normalizer_step *step, const uint8_t *text,
                            size_t length, bool lower, ls_text *out) {
    int32_t point;
    FOR_POINTS(point) {
        if (step->clean) {
            bool blank = point == '\t' || point == '\n' || point == '\r';
            if (point == 0xFFFD || (!blank && ls__is_control(point))) continue;
            if (ls__is_white(point)) point = ' ';
        }
        bool apart = step->chinese && is_chinese(point);
        if (apart) ls_text_append(ctx, out, " ", 1);
        put_lower(ctx, point, lower, out);
        if (apart) ls_text_append(ctx, out, " ", 1);
    }
    return ls_text_status(out);
}

RUN(run_bert) {
    (void)matcher;
    if (!step->strip) return clean_bert(ctx, step, text, length, step->lower, out);
    ls_text clean = {0}, apart = {0};
    ls_status status;
    int32_t point;
    ls_text_append(ctx, &clean, "", 0);
    LS_TRY_GOTO(clean_bert(ctx, step, text, length, false, &clean));
    LS_TRY_GOTO(
        ls__normal_form(ctx, false, false, (const uint8_t *)clean.bytes, clean.length, &apart));
    text = (const uint8_t *)apart.bytes;
    length = apart.length;
    FOR_POINTS(point) {
        if (!ls__is_nonspacing(point)) put_lower(ctx, point, step->lower, out);
    }
    status = ls_text_status(out);
fail:
    ls_text_clear(ctx, &clean);
    ls_text_clear(ctx, &apart);
    return status;
}

RUN(run_nmt) {
    UNUSED;
    int32_t c;
    FOR_POINTS(c) {
        if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
            c == 0x9F)
            continue;
        bool space = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 ||
                     (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
        put_point(ctx, space ? ' ' : c, out);
    }
    return ls_text_status(out);
}

/* A grapheme cluster of less than 6 bytes is replaced whole by the shortest rule that it begins
 * with; otherwise its characters are looked up one by one. */
RUN(run_precompiled) {
    (void)matcher;
    for (size_t at = 0, cluster; at < length; at += cluster) {
        size_t used;
        const char *found = NULL;
        bool plain = text[at] < 0x80 && at + 1 < length && text[at + 1] < 0x80 && text[at] != '\r';
        cluster = plain ? 1 : ls__grapheme(text + at, length - at);
        if (cluster < 6)
            found = ls__charsmap_find(&step->charsmap, text + at, cluster, true, &used);
        if (found != NULL) {
            ls_text_append(ctx, out, found, strlen(found));
            continue;
        }
        for (size_t inner = 0, one; inner < cluster; inner += one) {
            one = ls__utf8_length(text + at + inner, cluster - inner);
            found = ls__charsmap_find(&step->charsmap, text + at + inner, one, true, &used);
            if (found != NULL)
                ls_text_append(ctx, out, found, strlen(found));
            else
                ls_text_append(ctx, out, text + at + inner, one);
        }
    }
    return ls_text_status(out);
}

static ls_status take_content(ls_ctx *ctx, const json_t *json, const char *key, const char *what,
                              ls_normalizer_step *step) {
    const json_t *value = json_object_get(json, key);
    if (!json_is_string(value))
        return LS_FAIL(ctx, LS_EINPUT, "%s: `%s` must be a text", what, key);
    step->content = ls_copy_text(ctx, json_string_value(value));
    step->content_length = json_string_length(value);
    return step->content == NULL ? LS_ENOMEM : LS_OK;
}

static int base64_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static ls_status take_charsmap(ls_ctx *ctx, const json_t *json, const char *what,
                               ls_normalizer_step *step) {
    const char *text = json_string_value(json_object_get(json, "precompiled_charsmap"));
    if (text == NULL)
        return LS_FAIL(ctx, LS_EINPUT, "%s: Precompiled needs a `precompiled_charsmap`", what);
    ls_text bytes = {0};
    uint32_t held = 0;
    int bits = 0;
    bool good = true;
    ls_text_append(ctx, &bytes, "", 0);
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == '=') length--;
    for (size_t i = 0; i < length && good; i++) {
        int value = base64_value(text[i]);
        good = value >= 0;
        held = held << 6 | (uint32_t)(value & 63);
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        uint8_t byte = (uint8_t)(held >> bits);
        ls_text_append(ctx, &bytes, &byte, 1);
    }
    ls_status status = ls_text_status(&bytes);
    if (status == LS_OK && !good)
        status = LS_FAIL(ctx, LS_EINPUT, "%s: `precompiled_charsmap` is not base64", what);
    if (status == LS_OK)
        status = ls__charsmap_read(ctx, (const uint8_t *)bytes.bytes, bytes.length, what,
                                   &step->charsmap);
    ls_text_clear(ctx, &bytes);
    return status;
}

static ls_status read_bert(ls_ctx *ctx, const json_t *json, const char *what,
                           ls_normalizer_step *step) {
    LS_TRY(ls__fields_known(ctx, json, "clean_text|handle_chinese_chars|strip_accents|lowercase",
                            what));
    LS_TRY(ls__field_bool(ctx, json, "clean_text", true, what, &step->clean));
    LS_TRY(ls__field_bool(ctx, json, "handle_chinese_chars", true, what, &step->chinese));
    LS_TRY(ls__field_bool(ctx, json, "lowercase", true, what, &step->lower));
    LS_TRY(ls__field_bool(ctx, json, "strip_accents", step->lower, what, &step->strip));
    step->run = run_bert;
    return LS_OK;
}

static ls_status read_step(ls_ctx *ctx, const json_t *json, const char *type, const char *what,
                           ls_normalizer_step *step) {
    static const struct {
        const char *type;
        ls_status (*run)(ls_ctx *ctx, const ls_normalizer_step *step, ls_matcher *matcher,
                         const uint8_t *text, size_t length, ls_text *out);
        bool compose, compatible;
    } plain[] = {
        {"NFC", run_form, true, false},         {"NFD", run_form, false, false},
        {"NFKC", run_form, true, true},         {"NFKD", run_form, false, true},
        {"Lowercase", run_lower, false, false}, {"StripAccents", run_strip_accents, false, false},
        {"Nmt", run_nmt, false, false},
    };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(type, plain[i].type) == 0) {
            step->run = plain[i].run;
            step->compose = plain[i].compose;
            step->compatible = plain[i].compatible;
            return ls__fields_known(ctx, json, "", what);
        }
    if (strcmp(type, "BertNormalizer") == 0) return read_bert(ctx, json, what, step);
    if (strcmp(type, "Strip") == 0) {
        step->run = run_strip;
        LS_TRY(ls__fields_known(ctx, json, "strip_left|strip_right", what));
        LS_TRY(ls__field_bool(ctx, json, "strip_left", true, what, &step->left));
        return ls__field_bool(ctx, json, "strip_right", true, what, &step->right);
    }
    if (strcmp(type, "Prepend") == 0) {
        step->run = run_prepend;
        LS_TRY(ls__fields_known(ctx, json, "prepend", what));
        return take_content(ctx, json, "prepend", what, step);
    }
    if (strcmp(type, "Replace") == 0) {
        step->run = run_replace;
        LS_TRY(ls__fields_known(ctx, json, "pattern|content", what));
        LS_TRY(ls__field_pattern(ctx, json, "pattern", what, &step->pattern));
        return take_content(ctx, json, "content", what, step);
    }
    if (strcmp(type, "Precompiled") == 0) {
        step->run = run_precompiled;
        LS_TRY(ls__fields_known(ctx, json, "precompiled_charsmap", what));
        return take_charsmap(ctx, json, what, step);
    }
    return LS_FAIL(ctx, LS_EINPUT, "%s: the normaliser %.60s is not understood", what, type);
}

static ls_status add_step(ls_ctx *ctx, void *user, const json_t *json, const char *type,
                          const char *what) {
    ls_normalizer *n = user;
    if (!ls_array_reserve(ctx, &n->steps, &n->capacity, n->count + 1, sizeof *n->steps))
        return LS_ENOMEM;
    ls_normalizer_step *step = &n->steps[n->count++];
    *step = (ls_normalizer_step){0};
    return read_step(ctx, json, type, what, step);
}

ls_status ls__normalizer_read(ls_ctx *ctx, const json_t *json, const char *what,
                              ls_normalizer *out) {
    return ls__field_sequence(ctx, json, "normalizer", "normalizers", what, add_step, out);
}

void ls__normalizer_clear(ls_ctx *ctx, ls_normalizer *n) {
    for (size_t i = 0; i < n->count; i++) {
        ls__pattern_free(ctx, n->steps[i].pattern);
        ls_free(ctx, n->steps[i].content);
        ls__charsmap_clear(ctx, &n->steps[i].charsmap);
    }
    ls_free(ctx, n->steps);
    *n = (ls_normalizer){0};
}

ls_status ls__normalize(ls_ctx *ctx, const ls_normalizer *n, ls_matcher *matcher,
                        const uint8_t *text, size_t length, ls_text buffers[2], const uint8_t **out,
                        size_t *out_length) {
    for (size_t i = 0; i < n->count; i++) {
        ls_text *into = &buffers[i % 2];
        into->length = 0;
        ls_text_append(ctx, into, "", 0);
        LS_TRY(n->steps[i].run(ctx, &n->steps[i], matcher, text, length, into));
        text = (const uint8_t *)into->bytes;
        length = into->length;
    }
    *out = text;
    *out_length = length;
    return LS_OK;
}
