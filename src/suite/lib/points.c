#include "suite/lib/points.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { SIGMA = 0x3A3, SMALL_SIGMA = 0x3C3, FINAL_SIGMA = 0x3C2, DOTTED_I = 0x130 };

ls_points ls_points_of(ls_pool *pool, const char *text, size_t length) {
    int32_t *at = ls_pool_take(pool, length, sizeof *at);
    if (at == NULL) return (ls_points){0};
    const uint8_t *bytes = (const uint8_t *)text;
    size_t count = 0;
    for (size_t i = 0; i < length;) {
        utf8proc_int32_t point;
        utf8proc_ssize_t taken =
            bytes[i] < 0x80 ? 1
                            : utf8proc_iterate(bytes + i, (utf8proc_ssize_t)(length - i), &point);
        if (bytes[i] < 0x80) point = bytes[i];
        if (taken <= 0) {
            point = 0xFFFD;
            taken = 1;
        }
        at[count++] = point;
        i += (size_t)taken;
    }
    return (ls_points){at, count};
}

ls_points ls_points_text(ls_pool *pool, const char *text) {
    return ls_points_of(pool, text, strlen(text));
}

void ls_points_append(ls_ctx *ctx, ls_points points, ls_text *out) {
    for (size_t i = 0; i < points.count; i++) {
        utf8proc_uint8_t bytes[4];
        const utf8proc_ssize_t length = utf8proc_encode_char(points.at[i], bytes);
        ls_text_append(ctx, out, bytes, (size_t)length);
    }
}

bool ls_point_is_space(int32_t p) {
    return (p >= 0x09 && p <= 0x0D) || (p >= 0x1C && p <= 0x20) || p == 0x85 || p == 0xA0 ||
           p == 0x1680 || (p >= 0x2000 && p <= 0x200A) || p == 0x2028 || p == 0x2029 ||
           p == 0x202F || p == 0x205F || p == 0x3000;
}

bool ls_point_is_digit(int32_t p) {
    if (p < 0x80) return p >= '0' && p <= '9';
    return utf8proc_category(p) == UTF8PROC_CATEGORY_ND;
}

/* Digits of a script stand in tens, in order, from a point whose predecessor is none or a nine. */
int ls_point_digit(int32_t p) {
    if (p < 0x80) return p - '0';
    if (p >= 0x1D7CE && p <= 0x1D7FF) return (p - 0x1D7CE) % 10; /* mathematical: five tens */
    int value = 0;
    while (value < 9 && ls_point_is_digit(p - value - 1)) value++;
    return value;
}

bool ls_point_is_word(int32_t p) {
    if (p < 0x80)
        return (p >= '0' && p <= '9') || (p >= 'A' && p <= 'Z') || (p >= 'a' && p <= 'z') ||
               p == '_';
    switch (utf8proc_category(p)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return true;
    default:
        return false;
    }
}

bool ls_point_is_ascii_punctuation(int32_t p) {
    return (p >= 33 && p <= 47) || (p >= 58 && p <= 64) || (p >= 91 && p <= 96) ||
           (p >= 123 && p <= 126);
}

static bool is_cased(int32_t p) {
    switch (utf8proc_category(p)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
        return true;
    default:
        return false;
    }
}

static bool is_ignorable(int32_t p) {
    if (p == '\'' || p == '.' || p == ':' || p == 0xB7 || p == 0x2018 || p == 0x2019) return true;
    switch (utf8proc_category(p)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return false;
    }
}

/* A sigma ends a word where a cased letter stands before it and none after it. */
static int32_t lower_sigma(ls_points text, size_t at) {
    size_t before = at, after = at + 1;
    while (before > 0 && is_ignorable(text.at[before - 1])) before--;
    while (after < text.count && is_ignorable(text.at[after])) after++;
    const bool ends = before > 0 && is_cased(text.at[before - 1]) &&
                      !(after < text.count && is_cased(text.at[after]));
    return ends ? FINAL_SIGMA : SMALL_SIGMA;
}

ls_points ls_points_lower(ls_pool *pool, ls_points text) {
    int32_t *out = ls_pool_take(pool, 2 * text.count, sizeof *out);
    if (out == NULL) return (ls_points){0};
    size_t count = 0;
    for (size_t i = 0; i < text.count; i++) {
        const int32_t p = text.at[i];
        if (p < 0x80) {
            out[count++] = p >= 'A' && p <= 'Z' ? p + 32 : p;
        } else if (p == DOTTED_I) {
            out[count++] = 'i';
            out[count++] = 0x307;
        } else {
            out[count++] = p == SIGMA ? lower_sigma(text, i) : utf8proc_tolower(p);
        }
    }
    return (ls_points){out, count};
}

ls_points ls_points_strip(ls_points text) {
    while (text.count > 0 && ls_point_is_space(text.at[0])) {
        text.at++;
        text.count--;
    }
    while (text.count > 0 && ls_point_is_space(text.at[text.count - 1])) text.count--;
    return text;
}

size_t ls_utf8_strip_end(const char *text, size_t length) {
    while (length > 0) {
        size_t start = length - 1;
        while (start > 0 && ((uint8_t)text[start] & 0xC0) == 0x80) start--;
        utf8proc_int32_t point;
        if (utf8proc_iterate((const uint8_t *)text + start, (utf8proc_ssize_t)(length - start),
                             &point) <= 0 ||
            !ls_point_is_space(point))
            break;
        length = start;
    }
    return length;
}

ls_points_list ls_points_split(ls_pool *pool, ls_points text) {
    ls_points_list out = {ls_pool_take(pool, text.count / 2 + 1, sizeof *out.at), 0};
    for (size_t i = 0; out.at != NULL && i < text.count;) {
        if (ls_point_is_space(text.at[i])) {
            i++;
            continue;
        }
        const size_t start = i;
        while (i < text.count && !ls_point_is_space(text.at[i])) i++;
        out.at[out.count++] = (ls_points){text.at + start, i - start};
    }
    return out;
}

ls_points_list ls_points_cut(ls_pool *pool, ls_points text, int32_t mark) {
    size_t parts = 1;
    for (size_t i = 0; i < text.count; i++) parts += text.at[i] == mark;
    ls_points_list out = {ls_pool_take(pool, parts, sizeof *out.at), 0};
    if (out.at == NULL) return out;
    size_t start = 0;
    for (size_t i = 0; i <= text.count; i++) {
        if (i < text.count && text.at[i] != mark) continue;
        out.at[out.count++] = (ls_points){text.at + start, i - start};
        start = i + 1;
    }
    return out;
}

ls_points ls_points_without(ls_pool *pool, ls_points text, bool (*drop)(int32_t point)) {
    int32_t *out = ls_pool_take(pool, text.count, sizeof *out);
    size_t count = 0;
    for (size_t i = 0; out != NULL && i < text.count; i++)
        if (!drop(text.at[i])) out[count++] = text.at[i];
    return (ls_points){out, count};
}

ls_points ls_points_join(ls_pool *pool, ls_points_list parts, int32_t mark) {
    size_t room = parts.count, count = 0;
    for (size_t i = 0; i < parts.count; i++) room += parts.at[i].count;
    int32_t *out = ls_pool_take(pool, room, sizeof *out);
    for (size_t i = 0; out != NULL && i < parts.count; i++) {
        if (i > 0 && mark != 0) out[count++] = mark;
        if (parts.at[i].count > 0)
            memcpy(out + count, parts.at[i].at, parts.at[i].count * sizeof *out);
        count += parts.at[i].count;
    }
    return (ls_points){out, count};
}

ls_points_list ls_points_numbers(ls_pool *pool, ls_points text) {
    ls_points_list out = {ls_pool_take(pool, text.count / 2 + 1, sizeof *out.at), 0};
    for (size_t i = 0; out.at != NULL && i < text.count;) {
        if (!ls_point_is_digit(text.at[i])) {
            i++;
            continue;
        }
        const size_t start = i;
        while (i < text.count && ls_point_is_digit(text.at[i])) i++;
        out.at[out.count++] = (ls_points){text.at + start, i - start};
    }
    return out;
}

bool ls_points_equal(ls_points a, ls_points b) {
    return a.count == b.count && (a.count == 0 || memcmp(a.at, b.at, a.count * sizeof *a.at) == 0);
}

int ls_points_compare(ls_points a, ls_points b) {
    for (size_t i = 0; i < a.count && i < b.count; i++)
        if (a.at[i] != b.at[i]) return a.at[i] < b.at[i] ? -1 : 1;
    return a.count < b.count ? -1 : a.count > b.count;
}

size_t ls_points_find(ls_points text, ls_points part) {
    if (part.count == 0) return 0;
    for (size_t i = 0; i + part.count <= text.count; i++)
        if (text.at[i] == part.at[0] &&
            memcmp(text.at + i, part.at, part.count * sizeof *part.at) == 0)
            return i;
    return SIZE_MAX;
}

bool ls_points_has(ls_points text, ls_points part) {
    return ls_points_find(text, part) != SIZE_MAX;
}

ls_points ls_points_before(ls_points text, ls_points mark) {
    const size_t at = ls_points_find(text, mark);
    return at == SIZE_MAX ? text : (ls_points){text.at, at};
}

ls_points ls_points_first_line(ls_points text) {
    size_t end = 0;
    while (end < text.count && text.at[end] != '\n') end++;
    return (ls_points){text.at, end};
}
