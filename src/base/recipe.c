/* Recipes: the part of YAML that settings need. Mappings nested by indentation or in braces, lists
 * of text below a key or in brackets, plain and quoted text on one line, text over several lines
 * below > or |, comments. What YAML has beyond it (anchors, tags, directives, quotes and plain text
 * over several lines, keys that are not text) is refused with a sentence. Nothing here is recursive
 * beyond DEPTH_MAX. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <utf8proc.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/settings.h"

enum { RECIPE_BYTES = 1 << 20, DEPTH_MAX = 16, KEY_BYTES = 256, NAME_BYTES = 200 };
enum { SETTINGS_MAX = 4096 }; /* keys are looked for one by one */

typedef struct reader {
    ls_ctx *ctx;
    ls_settings *settings;
    const char *what, *begin, *at, *end;
    int line;
    int64_t indent; /* of this line; -1: the text is over */
} reader;

__attribute__((format(printf, 2, 3))) static ls_status bad(const reader *r, const char *format,
                                                           ...) {
    char sentence[512];
    va_list values;
    va_start(values, format);
    vsnprintf(sentence, sizeof sentence, format, values);
    va_end(values);
    return LS_FAIL(r->ctx, LS_EINPUT, "%s, line %d: %s", r->what, r->line, sentence);
}

/* ---- characters and lines ---- */

/* UTF-8 without control characters: from here on 0 can stand for the end. */
static ls_status check_text(const reader *r) {
    reader here = *r;
    while (here.at < here.end) {
        utf8proc_int32_t point;
        const size_t left = (size_t)(here.end - here.at);
        utf8proc_ssize_t bytes = utf8proc_iterate((const utf8proc_uint8_t *)here.at,
                                                  (utf8proc_ssize_t)(left < 4 ? left : 4), &point);
        bool ends_line = point == '\n' || (point == '\r' && left > 1 && here.at[1] == '\n');
        if (bytes < 1 || (point < 32 && !ends_line && point != '\t') || point == 127)
            return bad(&here, "this is not plain UTF-8 text");
        here.line += point == '\n';
        here.at += bytes;
    }
    return LS_OK;
}

static char peek(const reader *r, int64_t ahead) {
    return r->end - r->at > ahead ? r->at[ahead] : '\0';
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* White space of any kind, or the end of the text. */
static bool is_border(char c) {
    return is_blank(c) || c == '\n' || c == '\r' || c == '\0';
}

static void skip_blanks(reader *r) {
    while (is_blank(peek(r, 0))) r->at++;
}

/* Nothing but a comment is left of the line. */
static bool line_is_over(const reader *r) {
    char c = peek(r, 0);
    if (c == '#') return r->at == r->begin || is_border(r->at[-1]);
    return c == '\0' || c == '\n' || c == '\r';
}

static void skip_line(reader *r) {
    const char *newline = memchr(r->at, '\n', (size_t)(r->end - r->at));
    r->at = newline == NULL ? r->end : newline + 1;
    r->line += newline != NULL;
}

/* From the beginning of a line to the first line with something on it. */
static ls_status find_line(reader *r) {
    for (; r->at < r->end; skip_line(r)) {
        const char *start = r->at;
        while (peek(r, 0) == ' ') r->at++;
        r->indent = r->at - start;
        skip_blanks(r);
        if (line_is_over(r)) continue;
        if (r->at - start != r->indent) return bad(r, "indent with spaces, not with tabs");
        return LS_OK;
    }
    r->indent = -1;
    return LS_OK;
}

static ls_status next_line(reader *r) {
    skip_line(r);
    return find_line(r);
}

/* A line of three such characters alone: a border of documents. */
static bool is_marker(const reader *r, char c) {
    return r->indent == 0 && peek(r, 0) == c && peek(r, 1) == c && peek(r, 2) == c &&
           is_border(peek(r, 3));
}

/* ---- text ---- */

static ls_status quoted_single(reader *r, ls_text *out) {
    for (r->at++; peek(r, 0) != '\'' || peek(r, 1) == '\''; r->at++) {
        if (peek(r, 0) == '\0' || peek(r, 0) == '\n') return bad(r, "a ' is not closed");
        ls_text_append(r->ctx, out, r->at, 1);
        if (peek(r, 0) == '\'') r->at++;
    }
    r->at++;
    return LS_OK;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* A character by its number, \xNN, \uNNNN or \UNNNNNNNN; stands on the letter. */
static ls_status escaped_point(reader *r, int digits, ls_text *out) {
    int64_t point = 0;
    for (int i = 0; i < digits; i++) {
        int digit = hex_digit(peek(r, 1 + i));
        if (digit < 0) return bad(r, "\\%c needs %d hexadecimal digits", peek(r, 0), digits);
        point = 16 * point + digit;
    }
    utf8proc_uint8_t bytes[4];
    if (point < 32 || point > 0x10ffff || !utf8proc_codepoint_valid((utf8proc_int32_t)point))
        return bad(r, "\\%c stands for no character here", peek(r, 0));
    ls_text_append(r->ctx, out, (const char *)bytes,
                   (size_t)utf8proc_encode_char((utf8proc_int32_t)point, bytes));
    r->at += digits;
    return LS_OK;
}

static ls_status quoted_double(reader *r, ls_text *out) {
    static const char letters[] = "\"\\/nt", meant[] = "\"\\/\n\t";
    for (r->at++; peek(r, 0) != '"'; r->at++) {
        if (peek(r, 0) == '\0' || peek(r, 0) == '\n') return bad(r, "a \" is not closed");
        if (peek(r, 0) != '\\') {
            ls_text_append(r->ctx, out, r->at, 1);
            continue;
        }
        r->at++;
        const char letter = peek(r, 0);
        const char *known = letter == '\0' ? NULL : strchr(letters, letter);
        if (known != NULL)
            ls_text_append(r->ctx, out, &meant[known - letters], 1);
        else if (letter == 'x' || letter == 'u' || letter == 'U')
            LS_TRY(escaped_point(r, letter == 'x' ? 2 : letter == 'u' ? 4 : 8, out));
        else
            return bad(r, "a \\ stands before \" \\ / n t x u or U");
    }
    r->at++;
    return LS_OK;
}

/* Text without quotes: to the end of the line, a comment, a colon with a blank behind it, or inside
 * brackets a comma or bracket. */
static ls_status plain(reader *r, bool bracketed, ls_text *out) {
    const char first = peek(r, 0), *start = r->at, *last = r->at;
    if (first == '\0') return bad(r, "the text ends inside brackets");
    if (strchr("&*!|>%@`,]}[{", first) != NULL || (strchr("-?:", first) && is_border(peek(r, 1))))
        return bad(r, "`%c` means something in YAML that recipes do not have: quote the text",
                   first);
    for (; !line_is_over(r); r->at++) {
        const char c = peek(r, 0);
        if (c == ':' && (is_border(peek(r, 1)) || (bracketed && strchr(",]}", peek(r, 1))))) break;
        if (bracketed && strchr(",[]{}", c) != NULL) break;
        if (!is_blank(c)) last = r->at + 1;
    }
    ls_text_append(r->ctx, out, start, (size_t)(last - start));
    return LS_OK;
}

static ls_status scalar(reader *r, bool bracketed, ls_text *out) {
    const char first = peek(r, 0);
    ls_text_append(r->ctx, out, "", 0);
    if (first == '\'') return quoted_single(r, out);
    if (first == '"') return quoted_double(r, out);
    return plain(r, bracketed, out);
}

/* Text below > (its lines are joined by blanks, an empty line parts paragraphs) or | (as it
 * stands), which end with a line break unless a - follows. Empty lines before it are line breaks.
 * Ends on the line after the text. */
static ls_status text_below(reader *r, ls_text *out) {
    const bool folded = peek(r, 0) == '>', stripped = peek(r, 1) == '-';
    const int64_t above = r->indent;
    int64_t indent = -1, breaks = 0, deepest = 0;
    r->at += stripped ? 2 : 1;
    skip_blanks(r);
    if (!line_is_over(r)) return bad(r, "behind > or | only a - may stand");
    for (skip_line(r); r->at < r->end; skip_line(r)) {
        const char *start = r->at, *last = r->at;
        while (peek(r, 0) == ' ') r->at++;
        const int64_t here = r->at - start;
        if (strchr("\r\n", peek(r, 0)) != NULL) { /* an empty line; the last has no line break */
            breaks++;
            if (indent < 0) deepest = ls_max(deepest, here);
            continue;
        }
        if (here <= above || (indent >= 0 && here < indent)) {
            r->at = start;
            break;
        }
        if (folded && indent >= 0 && here > indent)
            return bad(r, "the lines of a text below > are indented alike");
        if (here < deepest)
            return bad(r, "an empty line above this one has more blanks than its indentation");
        if (indent >= 0 && folded && breaks == 0) ls_text_append(r->ctx, out, " ", 1);
        for (int64_t i = folded || indent < 0 ? 1 : 0; i <= breaks; i++)
            ls_text_append(r->ctx, out, "\n", 1);
        breaks = deepest = 0;
        if (indent < 0) indent = here;
        for (start += indent; peek(r, 0) != '\n' && peek(r, 0) != '\0'; r->at++)
            if (peek(r, 0) != '\r') last = r->at + 1;
        ls_text_append(r->ctx, out, start, (size_t)(last - start));
    }
    if (indent >= 0 && !stripped) ls_text_append(r->ctx, out, "\n", 1);
    return find_line(r);
}

/* ---- keys and values ---- */

static ls_status put(reader *r, const char *key, const ls_text *value) {
    LS_TRY(ls_text_status(value));
    if (ls_settings_has(r->settings, key)) return bad(r, "%s is given twice", key);
    if (r->settings->count >= SETTINGS_MAX)
        return bad(r, "a recipe has at most %d settings", SETTINGS_MAX);
    return ls_settings_put(r->ctx, r->settings, key, value->bytes);
}

/* "name:" below the prefix; stands behind the colon then. */
static ls_status key_below(reader *r, const char *prefix, bool bracketed, char key[KEY_BYTES]) {
    ls_text name = {0};
    ls_status status = scalar(r, bracketed, &name);
    if (status == LS_OK) status = ls_text_status(&name);
    skip_blanks(r);
    if (status == LS_OK && (peek(r, 0) != ':' || !is_border(peek(r, 1))))
        status = bad(r, "`%.60s` is not a key with a colon and a blank behind it", name.bytes);
    if (status == LS_OK && (name.length == 0 || name.length >= NAME_BYTES))
        status = bad(r, "a key has 1 to %d bytes", NAME_BYTES - 1);
    if (status == LS_OK) {
        int used =
            snprintf(key, KEY_BYTES, "%s%s%s", prefix, *prefix == '\0' ? "" : ".", name.bytes);
        if (used >= KEY_BYTES) status = bad(r, "the keys above make too long a name");
        r->at++;
    }
    ls_text_clear(r->ctx, &name);
    return status;
}

/* Inside brackets lines may end anywhere. */
static void skip_space(reader *r) {
    for (skip_blanks(r); r->at < r->end && line_is_over(r); skip_blanks(r)) skip_line(r);
}

/* Behind an element in brackets: true where another follows, false at the closing one. */
static ls_status another(reader *r, char closing, bool *more) {
    skip_space(r);
    const char c = peek(r, 0);
    if (c != ',' && c != closing) return bad(r, "a `%c` is not closed", closing == ']' ? '[' : '{');
    *more = c == ',';
    r->at++;
    if (!*more) return LS_OK;
    skip_space(r);
    if (peek(r, 0) == closing) *more = false, r->at++;
    return LS_OK;
}

static ls_status bracketed_list(reader *r, ls_text *value) {
    bool more = true;
    r->at++;
    skip_space(r);
    if (peek(r, 0) == ']') more = false, r->at++;
    for (bool first = true; more; first = false) {
        if (!first) ls_text_append(r->ctx, value, ",", 1);
        LS_TRY(scalar(r, true, value));
        LS_TRY(another(r, ']', &more));
    }
    return LS_OK;
}

static ls_status braced(reader *r, const char *prefix, int depth);

/* What stands behind a key on its line. */
static ls_status inline_value(reader *r, const char *key, bool bracketed, int depth) {
    if (peek(r, 0) == '{') return braced(r, key, depth + 1);
    ls_text value = {0};
    ls_text_append(r->ctx, &value, "", 0);
    ls_status status = peek(r, 0) == '[' ? bracketed_list(r, &value) : scalar(r, bracketed, &value);
    if (status == LS_OK) status = put(r, key, &value);
    ls_text_clear(r->ctx, &value);
    return status;
}

static ls_status braced(reader *r, const char *prefix, int depth) {
    if (depth > DEPTH_MAX) return bad(r, "nested deeper than %d", DEPTH_MAX);
    const ls_text empty = {.bytes = ""};
    bool more = true;
    r->at++;
    skip_space(r);
    if (peek(r, 0) == '}') {
        r->at++;
        return put(r, prefix, &empty); /* a key without a value, as where its line ends */
    }
    while (more) {
        char key[KEY_BYTES];
        LS_TRY(key_below(r, prefix, true, key));
        skip_space(r);
        LS_TRY(peek(r, 0) == ',' || peek(r, 0) == '}' ? put(r, key, &empty)
                                                      : inline_value(r, key, true, depth));
        LS_TRY(another(r, '}', &more));
    }
    return LS_OK;
}

static bool is_item(const reader *r) {
    return peek(r, 0) == '-' && is_border(peek(r, 1));
}

/* "- text" lines of one indentation. */
static ls_status block_list(reader *r, const char *key) {
    const int64_t indent = r->indent;
    ls_text value = {0};
    ls_status status = LS_OK;
    ls_text_append(r->ctx, &value, "", 0);
    for (bool first = true; status == LS_OK && r->indent == indent && is_item(r); first = false) {
        if (!first) ls_text_append(r->ctx, &value, ",", 1);
        r->at++;
        skip_blanks(r);
        if (!line_is_over(r)) status = scalar(r, false, &value);
        skip_blanks(r);
        if (status == LS_OK && !line_is_over(r))
            status = bad(r, "%s must be plain text or a list of it", key);
        if (status == LS_OK) status = next_line(r);
    }
    if (status == LS_OK) status = put(r, key, &value);
    ls_text_clear(r->ctx, &value);
    return status;
}

static ls_status block(reader *r, const char *prefix, int depth);

/* What stands below a key that has nothing on its line but perhaps > or |. */
static ls_status value_below(reader *r, const char *key, int depth) {
    const int64_t above = r->indent;
    if (peek(r, 0) == '>' || peek(r, 0) == '|') {
        ls_text value = {0};
        ls_text_append(r->ctx, &value, "", 0);
        ls_status status = text_below(r, &value);
        if (status == LS_OK) status = put(r, key, &value);
        ls_text_clear(r->ctx, &value);
        return status;
    }
    LS_TRY(next_line(r));
    if (r->indent >= above && is_item(r)) return block_list(r, key);
    if (r->indent > above) return block(r, key, depth + 1);
    const ls_text empty = {.bytes = ""};
    return put(r, key, &empty);
}

/* "key: value" lines of one indentation, with what is below them. */
static ls_status block(reader *r, const char *prefix, int depth) {
    const int64_t indent = r->indent;
    if (depth > DEPTH_MAX) return bad(r, "nested deeper than %d", DEPTH_MAX);
    while (r->indent == indent) {
        char key[KEY_BYTES];
        if (is_item(r)) return bad(r, "a list stands below a key");
        if (is_marker(r, '-') || is_marker(r, '.')) return bad(r, "a recipe is one document");
        LS_TRY(key_below(r, prefix, false, key));
        skip_blanks(r);
        if (line_is_over(r) || peek(r, 0) == '>' || peek(r, 0) == '|') {
            LS_TRY(value_below(r, key, depth));
            continue;
        }
        LS_TRY(inline_value(r, key, false, depth));
        skip_blanks(r);
        if (!line_is_over(r)) return bad(r, "there is more behind the value of %s", key);
        LS_TRY(next_line(r));
    }
    if (r->indent > indent) return bad(r, "this line is indented deeper than those before it");
    return LS_OK;
}

ls_status ls_settings_parse(ls_ctx *ctx, ls_settings *settings, const char *text, size_t length,
                            const char *what) {
    reader r = {ctx, settings, what, text, text, text + length, 1, 0};
    LS_TRY(check_text(&r));
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    if (length >= 3 && memcmp(text, byte_order_mark, 3) == 0) r.at += 3, r.begin = r.at;
    LS_TRY(find_line(&r));
    if (is_marker(&r, '-')) LS_TRY(next_line(&r));
    if (r.indent < 0) return LS_OK;
    LS_TRY(block(&r, "", 0));
    return r.indent < 0 ? LS_OK : bad(&r, "this line is indented less than the first");
}

ls_status ls_settings_read(ls_ctx *ctx, ls_settings *settings, const char *path) {
    ls_text text = {0};
    struct stat about;
    if (stat(path, &about) != 0) return ls_fail_path(ctx, "the recipe", path, errno);
    ls_status status = ls_file_read(ctx, path, RECIPE_BYTES, &text);
    if (status == LS_OK) status = ls_settings_parse(ctx, settings, text.bytes, text.length, path);
    ls_text_clear(ctx, &text);
    ls_settings_mark_below(settings);
    return status;
}
