#include "data/tokenizer/unicode.h"

#include <string.h>
#include <utf8proc.h>

size_t ls__utf8_take_long(const uint8_t *at, size_t left, int32_t *point) {
    if (left == 0) return 0;
    utf8proc_int32_t letter;
    utf8proc_ssize_t used = utf8proc_iterate(at, (utf8proc_ssize_t)(left < 4 ? left : 4), &letter);
    *point = letter;
    return used > 0 ? (size_t)used : 0;
}

size_t ls__utf8_put(int32_t point, uint8_t out[4]) {
    return (size_t)utf8proc_encode_char(point, out);
}

size_t ls__utf8_valid(const uint8_t *text, size_t length) {
    size_t at = 0;
    int32_t point;
    for (size_t used; at < length; at += used)
        if ((used = ls__utf8_take(text + at, length - at, &point)) == 0) break;
    return at;
}

/* How many bytes from `at`, which begin no character, could still have begun one; at least 1. */
static size_t broken_length(const uint8_t *at, size_t left) {
    uint8_t lead = at[0], low = 0x80, high = 0xBF;
    size_t wanted = lead >= 0xC2 && lead <= 0xDF   ? 2
                    : lead >= 0xE0 && lead <= 0xEF ? 3
                    : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                   : 1;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    size_t used = 1;
    for (; used < wanted && used < left && at[used] >= low && at[used] <= high; used++) {
        low = 0x80;
        high = 0xBF;
    }
    return used;
}

void ls__utf8_append_valid(ls_ctx *ctx, const uint8_t *text, size_t length, ls_text *out) {
    ls_text_append(ctx, out, "", 0);
    while (length > 0) {
        size_t valid = ls__utf8_valid(text, length);
        ls_text_append(ctx, out, text, valid);
        text += valid;
        length -= valid;
        if (length == 0) break;
        size_t broken = broken_length(text, length);
        ls_text_append(ctx, out, LS_REPLACEMENT, 3);
        text += broken;
        length -= broken;
    }
}

bool ls__is_white(int32_t c) {
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool ls__is_punctuation(int32_t c) {
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
               (c >= '{' && c <= '~');
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool ls__is_numeric(int32_t c) {
    if (c < 0x80) return c >= '0' && c <= '9';
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool ls__is_mark(int32_t c) {
    if (c < 0x80) return false;
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool ls__is_nonspacing(int32_t c) {
    return c >= 0x80 && utf8proc_category(c) == UTF8PROC_CATEGORY_MN;
}

bool ls__is_control(int32_t c) {
    if (c < 0x80) return c < 0x20 || c == 0x7F;
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_CO;
}

bool ls__is_word(int32_t c) {
    if (c < 0x80)
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_';
    if (c == 0x200C || c == 0x200D) return true; /* joiners */
    /* symbols that count as letters: circled and squared ones */
    if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
        (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189))
        return true;
    utf8proc_category_t category = utf8proc_category(c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
           category == UTF8PROC_CATEGORY_PC;
}

int ls__lower(int32_t point, int32_t out[2]) {
    if (point == 0x130) { /* the one letter whose lower case is two */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = point < 0x80 ? (point >= 'A' && point <= 'Z' ? point + 32 : point)
                          : utf8proc_tolower(point);
    return 1;
}

/* Normalises a part by itself. */
static ls_status normal_part(ls_ctx *ctx, utf8proc_option_t options, const uint8_t *text,
                             size_t length, int32_t **points, size_t *capacity, ls_text *out) {
    utf8proc_ssize_t count = utf8proc_decompose(text, (utf8proc_ssize_t)length, *points,
                                                (utf8proc_ssize_t)*capacity, options);
    if (count < 0) return LS_FAIL(ctx, LS_EINPUT, "%s", utf8proc_errmsg(count));
    if ((size_t)count > *capacity) {
        if (!ls_array_reserve(ctx, points, capacity, (size_t)count, sizeof **points))
            return LS_ENOMEM;
        count = utf8proc_decompose(text, (utf8proc_ssize_t)length, *points,
                                   (utf8proc_ssize_t)*capacity, options);
    }
    count = utf8proc_normalize_utf32(*points, count, options);
    if (count < 0) return LS_FAIL(ctx, LS_EINPUT, "%s", utf8proc_errmsg(count));
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        uint8_t bytes[4];
        ls_text_append(ctx, out, bytes, ls__utf8_put((*points)[i], bytes));
    }
    return LS_OK;
}

/* An ASCII character never joins what stands before it, so each run of others is normalised with
 * the one character before it, and plain text is only copied. */
ls_status ls__normal_form(ls_ctx *ctx, bool compose, bool compatible, const uint8_t *text,
                          size_t length, ls_text *out) {
    utf8proc_option_t options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
    if (compatible) options |= UTF8PROC_COMPAT;
    int32_t *points = NULL;
    size_t capacity = 0;
    ls_status status = LS_OK;
    ls_text_append(ctx, out, "", 0);
    for (size_t at = 0; at < length && status == LS_OK;) {
        size_t plain = at;
        while (plain < length && text[plain] < 0x80) plain++;
        if (plain < length && plain > at) plain--;
        ls_text_append(ctx, out, text + at, plain - at);
        if (plain == length) break;
        at = plain + 1;
        while (at < length && text[at] >= 0x80) at++;
        status = normal_part(ctx, options, text + plain, at - plain, &points, &capacity, out);
    }
    ls_free(ctx, points);
    return status != LS_OK ? status : ls_text_status(out);
}

size_t ls__grapheme(const uint8_t *text, size_t length) {
    int32_t before, after;
    utf8proc_int32_t state = 0;
    size_t at = ls__utf8_take(text, length, &before), used;
    if (at == 0) return length > 0;
    for (; at < length; at += used, before = after) {
        used = ls__utf8_take(text + at, length - at, &after);
        if (used == 0 || utf8proc_grapheme_break_stateful(before, after, &state)) break;
    }
    return at;
}
