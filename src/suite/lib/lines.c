#include "suite/lib/lines.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

/* The number of the line with the first byte that is not UTF-8; 0: all is. */
static int64_t bad_line(const ls_whole *whole) {
    int64_t line = 1;
    for (size_t at = 0; at < whole->length;) {
        utf8proc_int32_t point;
        if (whole->bytes[at] < 0x80) {
            line += whole->bytes[at++] == '\n';
            continue;
        }
        const utf8proc_ssize_t taken =
            utf8proc_iterate(whole->bytes + at, (utf8proc_ssize_t)(whole->length - at), &point);
        if (taken <= 0) return line;
        at += (size_t)taken;
    }
    return 0;
}

ls_status ls_lines_check(ls_ctx *ctx, const char *path, const ls_whole *whole) {
    const int64_t bad = bad_line(whole);
    if (bad == 0) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "%s: line %lld is not UTF-8", path, (long long)bad);
}

static ls_status find_lines(ls_ctx *ctx, ls_lines *out) {
    if (out->whole.length == 0) return LS_OK; /* and no bytes */
    const char *text = (const char *)out->whole.bytes, *end = text + out->whole.length;
    int64_t all = 1, number = 0;
    for (size_t i = 0; i < out->whole.length; i++) all += text[i] == '\n';
    out->at = ls_new(ctx, (size_t)all, sizeof *out->at);
    out->length = ls_new(ctx, (size_t)all, sizeof *out->length);
    out->number = ls_new(ctx, (size_t)all, sizeof *out->number);
    if (out->at == NULL || out->length == NULL || out->number == NULL) return LS_ENOMEM;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((stop == NULL ? end : stop) - text);
        number++;
        if (length > 0 && text[length - 1] == '\r') length--;
        if (length > 0) {
            out->at[out->count] = text;
            out->length[out->count] = length;
            out->number[out->count++] = number;
        }
        text = stop == NULL ? end : stop + 1;
    }
    return LS_OK;
}

ls_status ls_lines_open(ls_suite *suite, const char *path, ls_lines *out) {
    ls_ctx *ctx = suite->ctx;
    char hash[20];
    *out = (ls_lines){.path = path};
    LS_TRY(ls_whole_read(ctx, path, true, &out->whole));
    LS_TRY(ls_lines_check(ctx, path, &out->whole));
    LS_TRY(find_lines(ctx, out));
    if (out->count == 0) return LS_FAIL(ctx, LS_EINPUT, "%s has no lines", path);
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)ls_hash(out->whole.bytes, out->whole.length));
    const char *name = strrchr(path, '/');
    json_object_set_new(suite->notes, name == NULL ? path : name + 1, json_string(hash));
    return LS_OK;
}

void ls_lines_close(ls_ctx *ctx, ls_lines *lines) {
    ls_whole_free(&lines->whole);
    ls_free(ctx, lines->at);
    ls_free(ctx, lines->length);
    ls_free(ctx, lines->number);
    *lines = (ls_lines){0};
}

ls_status ls_lines_json(ls_ctx *ctx, const ls_lines *lines, int64_t index, json_t **out) {
    LS_TRY(ls_json_parse_line(ctx, lines->at[index], lines->length[index], lines->path,
                              lines->number[index], out));
    if (json_is_object(*out)) return LS_OK;
    json_decref(*out);
    *out = NULL;
    return LS_FAIL(ctx, LS_EINPUT, "%s: line %lld is no JSON object", lines->path,
                   (long long)lines->number[index]);
}

ls_status ls_lines_text(ls_ctx *ctx, const ls_lines *lines, int64_t index, const json_t *object,
                        const char *key, const char **out, size_t *length) {
    const json_t *value = json_object_get(object, key);
    *out = json_string_value(value);
    *length = json_string_length(value);
    if (*out != NULL) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "%s: line %lld has no text `%s`", lines->path,
                   (long long)lines->number[index], key);
}

ls_status ls_lines_texts(ls_ctx *ctx, const ls_lines *lines, int64_t index, const json_t *object,
                         const char *key, const json_t **out) {
    *out = json_object_get(object, key);
    bool good = json_array_size(*out) > 0;
    for (size_t i = 0; i < json_array_size(*out); i++)
        good = good && json_is_string(json_array_get(*out, i));
    if (good) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "%s: line %lld has no list of texts `%s`, or an empty one",
                   lines->path, (long long)lines->number[index], key);
}
