#include "base/json.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

/* jansson tells want of memory badly: as a fault of the text, as an object that lacks a member, or
 * not at all. So its allocations are watched, one thread's apart from another's. While it reads it
 * goes on with a text that it could not keep, and beyond the end of that: it is left there. */
static json_malloc_t take;
static _Thread_local bool starved;
static _Thread_local jmp_buf *way_out;

static void *watched(size_t bytes) {
    void *pointer = take(bytes);
    if (pointer != NULL) return pointer;
    starved = true;
    if (way_out != NULL) longjmp(*way_out, 1);
    return NULL;
}

__attribute__((constructor)) static void watch(void) {
    json_free_t give;
    json_get_alloc_funcs(&take, &give);
    json_set_alloc_funcs(watched, give);
}

bool ls_json_starved(void) {
    const bool was = starved;
    starved = false;
    return was;
}

/* json_loadb, with *out NULL where memory was short on the way; what was read until then is
 * lost. */
static ls_status load(ls_ctx *ctx, const char *text, size_t length, size_t flags, const char *what,
                      json_error_t *error, json_t **out) {
    const bool before = ls_json_starved();
    jmp_buf here;
    way_out = &here;
    if (setjmp(here) != 0)
        *out = NULL;
    else
        *out = json_loadb(text, length, flags, error);
    way_out = NULL;
    const bool short_of = ls_json_starved();
    starved = before;
    return short_of ? LS_FAIL(ctx, LS_ENOMEM, "no memory to read %s", what) : LS_OK;
}

json_t *ls_json_constant(const char *text) {
    ls_ctx unused = {0};
    json_error_t error;
    json_t *out;
    const bool short_of = load(&unused, text, strlen(text), 0, "a constant", &error, &out) != LS_OK;
    starved |= short_of; /* the document that it belongs to is not whole */
    return out;
}

/* jansson recurses to a depth fixed when it was built; ours is checked before it sees the text. */
static bool too_deep(const char *text, size_t length) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (quoted) {
            if (c == '\\')
                i++;
            else if (c == '"')
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++depth > DEPTH_MAX) return true;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return false;
}

ls_status ls_json_parse(ls_ctx *ctx, const char *text, size_t length, const char *what,
                        json_t **out) {
    *out = NULL;
    if (too_deep(text, length))
        return LS_FAIL(ctx, LS_EINPUT, "%s: JSON nested deeper than %d", what, DEPTH_MAX);
    json_error_t error;
    LS_TRY(load(ctx, text, length, JSON_REJECT_DUPLICATES, what, &error, out));
    if (*out == NULL)
        return LS_FAIL(ctx, LS_EINPUT, "%s, line %d: %s", what, error.line, error.text);
    return LS_OK;
}

ls_status ls_json_parse_line(ls_ctx *ctx, const char *text, size_t length, const char *what,
                             int64_t line, json_t **out) {
    *out = NULL;
    if (too_deep(text, length))
        return LS_FAIL(ctx, LS_EINPUT, "%s, line %lld: JSON nested deeper than %d", what,
                       (long long)line, DEPTH_MAX);
    json_error_t error;
    LS_TRY(load(ctx, text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, what, &error, out));
    if (*out == NULL)
        return LS_FAIL(ctx, LS_EINPUT, "%s, line %lld, column %d: %s", what, (long long)line,
                       error.column, error.text);
    return LS_OK;
}

ls_status ls_json_read(ls_ctx *ctx, const char *path, size_t most, json_t **out) {
    ls_text text = {0};
    *out = NULL;
    ls_status status = ls_file_read(ctx, path, most, &text);
    if (status == LS_OK) status = ls_json_parse(ctx, text.bytes, text.length, path, out);
    ls_text_clear(ctx, &text);
    return status;
}

char *ls_json_dump(const json_t *json, size_t flags) {
    char *text = json_dumps(json, flags);
    if (!ls_json_starved()) return text;
    free(text);
    return NULL;
}

ls_status ls_json_write(ls_ctx *ctx, const char *path, const json_t *json) {
    char *text = ls_json_dump(json, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    if (text == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory to write %s", path);
    ls_text line = {0};
    ls_text_printf(ctx, &line, "%s\n", text);
    free(text);
    ls_status status = ls_text_status(&line);
    if (status == LS_OK) status = ls_file_write(ctx, path, line.bytes, line.length);
    ls_text_clear(ctx, &line);
    return status;
}

ls_status ls_json_int(ls_ctx *ctx, const json_t *object, const char *key, const char *what,
                      int64_t low, int64_t high, int64_t *out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        return LS_FAIL(ctx, LS_EINPUT, "%s: `%s` must be a whole number", what, key);
    const int64_t number = json_integer_value(value);
    if (number < low || number > high)
        return LS_FAIL(ctx, LS_EINPUT, "%s: `%s` must be %lld to %lld, not %lld", what, key,
                       (long long)low, (long long)high, (long long)number);
    *out = number;
    return LS_OK;
}

ls_status ls_json_real(ls_ctx *ctx, const json_t *object, const char *key, const char *what,
                       double low, double high, double *out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        return LS_FAIL(ctx, LS_EINPUT, "%s: `%s` must be a number", what, key);
    const double number = json_number_value(value);
    if (!(number >= low && number <= high))
        return LS_FAIL(ctx, LS_EINPUT, "%s: `%s` must be %g to %g, not %g", what, key, low, high,
                       number);
    *out = number;
    return LS_OK;
}

ls_status ls_json_text(ls_ctx *ctx, const json_t *object, const char *key, const char *what,
                       const char **out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return LS_FAIL(ctx, LS_EINPUT, "%s: `%s` must be a text", what, key);
    *out = json_string_value(value);
    return LS_OK;
}
