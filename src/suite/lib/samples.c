#include "suite/lib/samples.h"

#include <stdlib.h>
#include <string.h>

static ls_status no_memory(ls_ctx *ctx) {
    return LS_FAIL(ctx, LS_ENOMEM, "no memory for the samples");
}

static ls_status keep(ls_samples *s, int64_t group, json_t *record) {
    if (s->groups[group] == NULL) s->groups[group] = json_array();
    if (s->groups[group] == NULL || json_array_append(s->groups[group], record) != 0)
        return no_memory(s->ctx);
    s->items++;
    return LS_OK;
}

/* What the results need of a record must be there. */
static bool is_record(const ls_samples *s, const json_t *record, int64_t *number) {
    const json_t *group = json_object_get(record, "group"), *of = json_object_get(record, "of");
    *number = json_integer_value(group);
    return json_is_integer(group) && *number >= 0 && *number < s->group_count &&
           json_integer_value(of) >= 1 && json_is_object(json_object_get(record, "cell")) &&
           json_is_number(json_object_get(json_object_get(record, "metrics"), "score"));
}

bool ls_samples_fit(const ls_samples *s, int64_t group, const json_t *records) {
    const json_t *record;
    const size_t count = json_array_size(records);
    size_t index;
    bool fits = count > 0;
    json_array_foreach(records, index, record) {
        int64_t number;
        fits = fits && is_record(s, record, &number) && number == group &&
               json_integer_value(json_object_get(record, "of")) == (json_int_t)count;
    }
    return fits;
}

static ls_status read_record(ls_samples *s, json_t *record, int64_t line) {
    int64_t number;
    if (!is_record(s, record, &number))
        return LS_FAIL(s->ctx, LS_EINPUT, "%s: line %lld is no sample of this suite", s->path,
                       (long long)line);
    return keep(s, number, record);
}

/* Reads whole lines; a last one that was cut off by a kill is left out. */
static ls_status read_lines(ls_samples *s, const char *text, size_t length, const json_t *identity,
                            size_t *good) {
    ls_status status = LS_OK;
    *good = 0;
    for (int64_t line = 1; status == LS_OK && *good < length; line++) {
        const char *at = text + *good, *end = memchr(at, '\n', length - *good);
        json_t *json = NULL;
        if (end == NULL) return LS_OK;
        LS_TRY(ls_json_parse_line(s->ctx, at, (size_t)(end - at), s->path, line, &json));
        if (line > 1)
            status = read_record(s, json, line);
        else if (!json_equal(json, identity))
            status = LS_FAIL(s->ctx, LS_EUSE,
                             "%s has samples of another model, data or settings: remove it, or "
                             "choose another suite.out",
                             s->path);
        json_decref(json);
        *good = (size_t)(end - text) + 1;
    }
    return status;
}

/* A group of which only some records were written is asked again as a whole. */
static void drop_parts(ls_samples *s) {
    for (int64_t g = 0; g < s->group_count; g++) {
        if (s->groups[g] == NULL || ls_samples_has(s, g)) continue;
        s->items -= (int64_t)json_array_size(s->groups[g]);
        json_decref(s->groups[g]);
        s->groups[g] = NULL;
    }
}

static void append(ls_ctx *ctx, ls_text *text, const json_t *json) {
    char *line = ls_json_dump(json, JSON_COMPACT);
    if (line == NULL) {
        text->failed = true;
        (void)no_memory(ctx);
        return;
    }
    ls_text_append(ctx, text, line, strlen(line));
    ls_text_append(ctx, text, "\n", 1);
    free(line);
}

/* Writes what is known, so that the file holds whole groups and nothing else. */
static ls_status write_again(ls_samples *s, const json_t *identity) {
    ls_text text = {0};
    append(s->ctx, &text, identity);
    for (int64_t g = 0; g < s->group_count; g++)
        for (size_t i = 0; i < json_array_size(s->groups[g]); i++)
            append(s->ctx, &text, json_array_get(s->groups[g], i));
    ls_status status = ls_text_status(&text);
    if (status == LS_OK) status = ls_file_write(s->ctx, s->path, text.bytes, text.length);
    ls_text_clear(s->ctx, &text);
    return status;
}

ls_status ls_samples_open(ls_ctx *ctx, const char *folder, const json_t *identity, int64_t groups,
                          ls_samples *out) {
    enum { FILE_MOST = 1 << 30 };
    *out = (ls_samples){.ctx = ctx, .group_count = groups};
    out->groups = ls_new(ctx, (size_t)groups, sizeof *out->groups);
    if (out->groups == NULL) return LS_ENOMEM;
    if (folder == NULL) return LS_OK;
    LS_TRY(ls_folder_make(ctx, folder));
    LS_TRY(ls_path_join(ctx, out->path, sizeof out->path, folder, "samples.jsonl"));
    if (ls_path_exists(out->path)) {
        ls_text text = {0};
        size_t good;
        ls_status status = ls_file_read(ctx, out->path, FILE_MOST, &text);
        if (status == LS_OK) status = read_lines(out, text.bytes, text.length, identity, &good);
        ls_text_clear(ctx, &text);
        LS_TRY(status);
        drop_parts(out);
    }
    LS_TRY(write_again(out, identity));
    return ls_file_create(ctx, out->path, true, &out->file);
}

bool ls_samples_has(const ls_samples *s, int64_t group) {
    const json_t *records = s->groups[group];
    const json_t *of = json_object_get(json_array_get(records, 0), "of");
    return records != NULL && (int64_t)json_array_size(records) == json_integer_value(of);
}

ls_status ls_samples_add(ls_samples *s, int64_t group, json_t *records) {
    ls_text text = {0};
    for (size_t i = 0; i < json_array_size(records); i++)
        append(s->ctx, &text, json_array_get(records, i));
    ls_status status = ls_text_status(&text);
    if (status == LS_OK && s->file != NULL) {
        status = ls_file_put(s->ctx, s->file, s->path, text.bytes, text.length);
        if (status == LS_OK && fflush(s->file) != 0)
            status = LS_FAIL(s->ctx, LS_EIO, "%s cannot be written", s->path);
    }
    ls_text_clear(s->ctx, &text);
    if (status != LS_OK) {
        json_decref(records);
        return status;
    }
    json_decref(s->groups[group]);
    s->groups[group] = records;
    s->items += (int64_t)json_array_size(records);
    return LS_OK;
}

void ls_samples_forget(ls_samples *s, int64_t group) {
    s->items -= (int64_t)json_array_size(s->groups[group]);
    json_decref(s->groups[group]);
    s->groups[group] = NULL;
}

ls_status ls_samples_close(ls_samples *s) {
    FILE *file = s->file;
    s->file = NULL;
    return file == NULL ? LS_OK : ls_file_finish(s->ctx, file, s->path);
}

void ls_samples_clear(ls_samples *s) {
    for (int64_t g = 0; s->groups != NULL && g < s->group_count; g++) json_decref(s->groups[g]);
    ls_free(s->ctx, s->groups);
    if (s->file != NULL) fclose(s->file);
    *s = (ls_samples){.ctx = s->ctx};
}
