#include "data/tokenizer/pattern.h"

#include <string.h>

#include "data/tokenizer/unicode.h"

enum { MATCH_STEPS = 1000000, REGEX_MAX = 100000 };

struct ls_pattern {
    ls_allocator allocator; /* a copy, so that PCRE2 can keep a pointer to it */
    pcre2_general_context *memory;
    pcre2_code *code; /* NULL: the fixed string */
    bool compiled;    /* to machine code */
    char *string;
    size_t string_length;
};

const char ls__gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                                "|\\s+(?!\\S)|\\s+";

/* \s is written out: PCRE2's own has U+180E in it, which is no white space since Unicode 6.3. */
#define WHITE                                                                                      \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

static void *pcre_take(size_t bytes, void *user) {
    const ls_allocator *allocator = user;
    return allocator->take(allocator->user, bytes);
}

static void pcre_give(void *pointer, void *user) {
    const ls_allocator *allocator = user;
    if (pointer != NULL) allocator->give(allocator->user, pointer);
}

/* One pass over an expression. */
typedef struct translation {
    ls_ctx *ctx;
    const char *at, *what;
    ls_text *out;
    int depth;   /* of character classes */
    bool first;  /* in a class nothing has come yet but ^ */
    bool behind; /* one within it has just ended */
} translation;

static void put(translation *t, const char *text) {
    ls_text_append(t->ctx, t->out, text, strlen(text));
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* \xHH, \x{H...} or \uHHHH, all of which become \x{...}. */
static ls_status put_number(translation *t) {
    char digits[9];
    size_t count = 0;
    bool braces = t->at[1] == '{';
    size_t wanted = braces ? 8 : t->at[0] == 'u' ? 4 : 2;
    const char *at = t->at + 1 + braces;
    while (count < wanted && is_hex(*at)) digits[count++] = *at++;
    digits[count] = '\0';
    bool plain_byte = t->at[0] == 'x' && !braces && count == 2 && digits[0] >= '8';
    if (count == 0 || (braces && *at != '}') || (!braces && count != wanted) || plain_byte)
        return LS_FAIL(t->ctx, LS_EINPUT,
                       "%s: the number in a pattern at `%.20s` is not understood", t->what,
                       t->at - 1);
    ls_text_printf(t->ctx, t->out, "\\x{%s}", digits);
    t->at = at + braces;
    return LS_OK;
}

/* After a backslash. */
static ls_status put_escape(translation *t) {
    char c = *t->at;
    const char *set = c == 's' || c == 'S'   ? WHITE
                      : c == 'w' || c == 'W' ? WORD
                      : c == 'd' || c == 'D' ? "\\p{Nd}"
                                             : NULL;
    bool negative = c == 'S' || c == 'W' || c == 'D';
    if (set != NULL && !(negative && t->depth > 0)) {
        if (t->depth == 0) put(t, negative ? "[^" : "[");
        put(t, set);
        if (t->depth == 0) put(t, "]");
        t->at++;
    } else if (c == 'x' || c == 'u') {
        return put_number(t);
    } else if (c == 'p' || c == 'P' || c == 'r' || c == 'n' || c == 't' || c == 'f' || c == 'a' ||
               c == 'e' || (t->depth == 0 && (c == 'A' || c == 'z' || c == 'Z'))) {
        char both[3] = {'\\', c, '\0'};
        put(t, both);
        t->at++;
    } else if (c == 'v') { /* one character there, a class in PCRE2 */
        put(t, "\\x{b}");
        t->at++;
    } else if (c != '\0' && (uint8_t)c < 0x80 && ls__is_punctuation(c)) {
        char both[3] = {'\\', c, '\0'};
        put(t, both);
        t->at++;
    } else {
        return LS_FAIL(t->ctx, LS_EINPUT, "%s: \\%c in the pattern is not understood%s", t->what,
                       c == '\0' ? ' ' : c, t->depth > 0 ? " inside brackets" : "");
    }
    return LS_OK;
}

/* Inside brackets, where Oniguruma has classes in classes; a union is flattened. */
static ls_status put_in_class(translation *t) {
    char c = *t->at;
    const bool behind = t->behind;
    t->behind = false;
    if (c == '[') {
        if (t->at[1] == ':' || t->at[1] == '^' || t->depth >= 7)
            return LS_FAIL(t->ctx, LS_EINPUT,
                           "%s: the class `%.12s` inside brackets of the pattern is not understood",
                           t->what, t->at);
        t->depth++;
        t->at++;
    } else if (c == ']' && !t->first) {
        t->behind = --t->depth > 0;
        if (!t->behind) put(t, "]");
        t->at++;
    } else if (c == '-' && behind) { /* itself: a class begins no range */
        put(t, "\\-");
        t->at++;
    } else if ((c == '&' && t->at[1] == '&') || (c == '-' && t->at[1] == '[' && !t->first)) {
        return LS_FAIL(t->ctx, LS_EINPUT, "%s: `%.2s` in brackets of the pattern is not understood",
                       t->what, t->at);
    } else if (c == '\\') {
        t->at++;
        LS_TRY(put_escape(t));
    } else {
        if (c == ']') put(t, "\\");
        ls_text_append(t->ctx, t->out, t->at++, 1);
    }
    t->first = false;
    return LS_OK;
}

/* A group that is not simply (...): the same in both dialects, or refused. */
static ls_status check_group(translation *t) {
    static const char *const same[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"};
    if (t->at[1] == '*')
        return LS_FAIL(t->ctx, LS_EINPUT, "%s: `(*` in the pattern is not understood", t->what);
    if (t->at[1] != '?') return LS_OK;
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (strncmp(t->at, same[i], strlen(same[i])) == 0) return LS_OK;
    return LS_FAIL(t->ctx, LS_EINPUT, "%s: the group `%.8s` in the pattern is not understood",
                   t->what, t->at);
}

static ls_status translate(translation *t) {
    while (*t->at != '\0') {
        if (t->depth > 0) {
            LS_TRY(put_in_class(t));
        } else if (*t->at == '\\') {
            t->at++;
            LS_TRY(put_escape(t));
        } else if (*t->at == '[') {
            t->depth = 1;
            t->first = true;
            put(t, "[");
            if (*++t->at == '^') {
                put(t, "^");
                t->at++;
            }
        } else {
            if (*t->at == '(') LS_TRY(check_group(t));
            ls_text_append(t->ctx, t->out, t->at++, 1);
        }
    }
    return ls_text_status(t->out);
}

static ls_status compile(ls_ctx *ctx, ls_pattern *pattern, const ls_text *regex, const char *what) {
    pattern->allocator = ctx->allocator;
    pattern->memory = pcre2_general_context_create(pcre_take, pcre_give, &pattern->allocator);
    if (pattern->memory == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for a pattern");
    pcre2_compile_context *how = pcre2_compile_context_create(pattern->memory);
    if (how == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for a pattern");
    int code;
    PCRE2_SIZE where;
    pcre2_set_newline(how, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(how, 50);
    pattern->code =
        pcre2_compile((PCRE2_SPTR)regex->bytes, regex->length,
                      PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &where, how);
    pcre2_compile_context_free(how);
    if (pattern->code == NULL) {
        PCRE2_UCHAR reason[128];
        if (code == PCRE2_ERROR_HEAP_FAILED)
            return LS_FAIL(ctx, LS_ENOMEM, "no memory for a pattern");
        pcre2_get_error_message(code, reason, sizeof reason);
        return LS_FAIL(ctx, LS_EINPUT, "%s: the pattern is not understood: %s", what,
                       (const char *)reason);
    }
    /* without machine code (a hardened system may refuse it) the interpreter gives the same */
    pattern->compiled = pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE) == 0;
    return LS_OK;
}

ls_status ls__pattern_regex(ls_ctx *ctx, const char *regex, const char *what, ls_pattern **out) {
    ls_text text = {0};
    ls_status status;
    *out = NULL;
    size_t length = strlen(regex);
    if (length > REGEX_MAX || ls__utf8_valid((const uint8_t *)regex, length) != length)
        return LS_FAIL(ctx, LS_EINPUT, "%s: a pattern is not text or too long", what);
    ls_pattern *pattern = ls_new(ctx, 1, sizeof *pattern);
    if (pattern == NULL) return LS_ENOMEM;
    translation t = {.ctx = ctx, .at = regex, .what = what, .out = &text};
    ls_text_append(ctx, &text, "", 0);
    LS_TRY_GOTO(translate(&t));
    LS_TRY_GOTO(compile(ctx, pattern, &text, what));
    *out = pattern;
    pattern = NULL;
fail:
    ls_text_clear(ctx, &text);
    ls__pattern_free(ctx, pattern);
    return status;
}

ls_status ls__pattern_string(ls_ctx *ctx, const char *text, size_t length, ls_pattern **out) {
    *out = NULL;
    ls_pattern *pattern = ls_new(ctx, 1, sizeof *pattern);
    if (pattern == NULL) return LS_ENOMEM;
    pattern->string = ls_new(ctx, length + 1, 1);
    if (pattern->string == NULL) {
        ls_free(ctx, pattern);
        return LS_ENOMEM;
    }
    if (length > 0) memcpy(pattern->string, text, length);
    pattern->string_length = length;
    *out = pattern;
    return LS_OK;
}

void ls__pattern_free(ls_ctx *ctx, ls_pattern *pattern) {
    if (pattern == NULL) return;
    if (pattern->code != NULL) pcre2_code_free(pattern->code);
    if (pattern->memory != NULL) pcre2_general_context_free(pattern->memory);
    ls_free(ctx, pattern->string);
    ls_free(ctx, pattern);
}

ls_status ls__matcher_init(ls_ctx *ctx, ls_matcher *matcher) {
    *matcher = (ls_matcher){.allocator = ctx->allocator};
    pcre2_general_context *memory =
        pcre2_general_context_create(pcre_take, pcre_give, &matcher->allocator);
    if (memory != NULL) {
        matcher->data = pcre2_match_data_create(1, memory);
        matcher->limits = pcre2_match_context_create(memory);
        pcre2_general_context_free(memory);
    }
    if (matcher->data == NULL || matcher->limits == NULL) {
        ls__matcher_clear(matcher);
        return LS_FAIL(ctx, LS_ENOMEM, "no memory for matching patterns");
    }
    pcre2_set_match_limit(matcher->limits, MATCH_STEPS);
    return LS_OK;
}

void ls__matcher_clear(ls_matcher *matcher) {
    if (matcher->data != NULL) pcre2_match_data_free(matcher->data);
    if (matcher->limits != NULL) pcre2_match_context_free(matcher->limits);
    matcher->data = NULL;
    matcher->limits = NULL;
}

ls_status ls__pattern_find(ls_ctx *ctx, const ls_pattern *pattern, ls_matcher *matcher,
                           const uint8_t *text, size_t length, size_t from, size_t *begin,
                           size_t *end) {
    *begin = *end = length + 1;
    if (pattern->code == NULL) {
        if (pattern->string_length == 0) return LS_OK;
        const uint8_t *found =
            pattern->string_length == 1
                ? memchr(text + from, (uint8_t)pattern->string[0], length - from)
                : memmem(text + from, length - from, pattern->string, pattern->string_length);
        if (found == NULL) return LS_OK;
        *begin = (size_t)(found - text);
        *end = *begin + pattern->string_length;
        return LS_OK;
    }
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (pattern->compiled)
        found = pcre2_jit_match(pattern->code, text, length, from, PCRE2_NO_UTF_CHECK,
                                matcher->data, matcher->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(pattern->code, text, length, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                            matcher->data, matcher->limits);
    if (found == PCRE2_ERROR_NOMATCH) return LS_OK;
    if (found == PCRE2_ERROR_NOMEMORY) return LS_FAIL(ctx, LS_ENOMEM, "no memory for matching");
    if (found < 0)
        return LS_FAIL(ctx, LS_EINPUT, "a tokenizer's pattern takes too long (PCRE2 code %d)",
                       found);
    const PCRE2_SIZE *where = pcre2_get_ovector_pointer(matcher->data);
    *begin = where[0];
    *end = where[1] < where[0] ? where[0] : where[1];
    return LS_OK;
}

ls_status ls__pattern_next(ls_ctx *ctx, const ls_pattern *pattern, ls_matcher *matcher,
                           const uint8_t *text, size_t length, ls_match *match) {
    while (match->from <= length) {
        size_t before = match->end;
        LS_TRY(ls__pattern_find(ctx, pattern, matcher, text, length, match->from, &match->begin,
                                &match->end));
        bool empty = match->begin == match->end, first = match->from == 0;
        if (match->begin > length) return LS_OK;
        match->from = match->end;
        if (!empty) return LS_OK;
        match->from +=
            match->end == length ? 1 : ls__utf8_length(text + match->end, length - match->end);
        if (first || match->end != before) return LS_OK;
    }
    match->begin = match->end = length + 1;
    return LS_OK;
}

ls_status ls__pattern_replace(ls_ctx *ctx, const ls_pattern *pattern, ls_matcher *matcher,
                              const uint8_t *text, size_t length, const char *with,
                              size_t with_length, ls_text *out) {
    size_t done = 0;
    ls_match match = {0};
    ls_text_append(ctx, out, "", 0);
    for (;;) {
        LS_TRY(ls__pattern_next(ctx, pattern, matcher, text, length, &match));
        if (match.begin > length) break;
        ls_text_append(ctx, out, text + done, match.begin - done);
        ls_text_append(ctx, out, with, with_length);
        done = match.end;
    }
    ls_text_append(ctx, out, text + done, length - done);
    return ls_text_status(out);
}
