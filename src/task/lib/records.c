#include "task/lib/records.h"

#include <string.h>

#include "base/random.h"

#define FIELD(name) ls_records_settings, name
const ls_option ls_records_options[3] = {
    LS_TEXT("path", FIELD(path), "", "Folder of the files; must be given."),
    LS_CHOICE("split", FIELD(split), "test", "train|validation|test",
              "Part of the samples that `eval` tests on."),
    LS_REAL("holdout", FIELD(holdout), "0.1", 0, 0.9,
            "Share of the training samples kept for validation where no file has samples for it."),
};

enum { PATH_BYTES = 4096, LOOK_EVERY = 1024 };   /* records between looks whether to stop */
static const size_t texts_max = (size_t)4 << 30; /* bytes of a folder's texts */

const char *ls_records_part_name(int part) {
    static const char *const names[] = {"training", "validation", "test"};
    return names[part];
}

void ls_records_free(ls_ctx *ctx, ls_records *records) {
    if (records == NULL) return;
    for (int p = 0; p < LS_RECORDS_PARTS; p++) ls_free(ctx, records->parts[p].at);
    for (size_t i = 0; i < records->file_count; i++) ls_whole_free(&records->files[i]);
    for (size_t i = 0; i < records->text_count; i++) ls_text_clear(ctx, &records->texts[i]);
    ls_free(ctx, records->files);
    ls_free(ctx, records->texts);
    ls_free(ctx, records);
}

ls_status ls_records_add(ls_ctx *ctx, ls_records *records, int part, ls_labelled record) {
    ls_records_part *to = &records->parts[part];
    if (!ls_array_reserve(ctx, &to->at, &to->capacity, to->count + 1, sizeof *to->at))
        return LS_ENOMEM;
    to->at[to->count++] = record;
    return LS_OK;
}

ls_status ls_records_read(ls_ctx *ctx, ls_records *records, const char *path, ls_bytes *out) {
    ls_whole whole;
    if (!ls_array_reserve(ctx, &records->files, &records->file_capacity, records->file_count + 1,
                          sizeof *records->files))
        return LS_ENOMEM;
    LS_TRY(ls_whole_read(ctx, path, true, &whole));
    records->files[records->file_count++] = whole;
    *out = (ls_bytes){whole.bytes, whole.length};
    return LS_OK;
}

/* A table may have millions of records. */
static ls_status look(ls_ctx *ctx, size_t number) {
    return number % LOOK_EVERY == 0 ? ls_check_stop(ctx, "reading the files of a task") : LS_OK;
}

/* ---- texts ---- */

static bool ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), more = strlen(end);
    return length > more && strcmp(name + length - more, end) == 0;
}

/* Texts move while more are read: their records have offsets until all are there. */
static ls_status read_texts(ls_ctx *ctx, const char *folder, char **names, size_t count,
                            ls_text *out, size_t *ends) {
    char path[PATH_BYTES];
    for (size_t i = 0; i < count; i++) {
        const size_t before = out->length;
        ends[i] = before;
        if (!ends_with(names[i], ".txt")) continue;
        LS_TRY(look(ctx, i));
        LS_TRY(ls_path_join(ctx, path, sizeof path, folder, names[i]));
        LS_TRY(ls_file_read(ctx, path, texts_max, out));
        if (out->length == before) return LS_FAIL(ctx, LS_EINPUT, "%s is empty", path);
        ends[i] = out->length;
    }
    return LS_OK;
}

static ls_status add_pieces(ls_ctx *ctx, ls_records *records, int part, int32_t label,
                            const ls_text *text, const size_t *ends, size_t count) {
    size_t from = 0;
    for (size_t i = 0; i < count; i++) {
        const ls_bytes piece = {(const uint8_t *)text->bytes + from, ends[i] - from};
        from = ends[i];
        if (piece.count == 0) continue;
        LS_TRY(ls_records_add(ctx, records, part, (ls_labelled){.text = {piece}, .label = label}));
    }
    return LS_OK;
}

ls_status ls_records_add_texts(ls_ctx *ctx, ls_records *records, int part, const char *folder,
                               int32_t label) {
    char **names = NULL;
    size_t count = 0, *ends = NULL;
    ls_status status = LS_OK;
    if (!ls_array_reserve(ctx, &records->texts, &records->text_capacity, records->text_count + 1,
                          sizeof *records->texts))
        return LS_ENOMEM;
    ls_text *text = &records->texts[records->text_count++];
    *text = (ls_text){0};
    LS_TRY(ls_folder_list(ctx, folder, &names, &count));
    ends = ls_new(ctx, count + 1, sizeof *ends);
    if (ends == NULL) status = LS_ENOMEM;
    if (status == LS_OK) status = read_texts(ctx, folder, names, count, text, ends);
    if (status == LS_OK) status = add_pieces(ctx, records, part, label, text, ends, count);
    ls_names_free(ctx, names, count);
    ls_free(ctx, ends);
    return status;
}

ls_status ls_records_hash(ls_ctx *ctx, const ls_records_part *part, uint64_t *out) {
    uint64_t hash = part->count;
    for (size_t i = 0; i < part->count; i++) {
        LS_TRY(look(ctx, i));
        const ls_labelled *record = &part->at[i];
        uint64_t parts[6] = {hash, (uint64_t)record->label};
        for (int t = 0; t < 2; t++) {
            const ls_bytes text = record->text[t];
            parts[2 + t] = text.count;
            parts[4 + t] = text.count > 0 ? ls_hash(text.at, text.count) : 0;
        }
        hash = ls_hash(parts, sizeof parts);
    }
    *out = hash;
    return LS_OK;
}

/* ---- holding out ---- */

ls_status ls_records_hold_out(ls_ctx *ctx, double share, ls_records *records) {
    ls_records_part *train = &records->parts[LS_RECORDS_TRAIN];
    const size_t all = train->count, held = (size_t)(share * (double)all);
    const ls_random key = {.stream = ls_stream_of("task holdout")};
    if (records->parts[LS_RECORDS_VALIDATION].count > 0 || held == 0) return LS_OK;
    train->count = 0;
    for (size_t i = 0; i < all; i++) {
        const ls_labelled record = train->at[i];
        LS_TRY(look(ctx, i));
        if (ls_random_permute(key, i, all) < held)
            LS_TRY(ls_records_add(ctx, records, LS_RECORDS_VALIDATION, record));
        else
            train->at[train->count++] = record;
    }
    return LS_OK;
}

/* ---- tables ---- */

/* Fields of a line; false where it has not enough of them. */
static bool split_line(ls_bytes line, int columns, ls_bytes *fields) {
    for (int i = 0; i + 1 < columns; i++) {
        const uint8_t *tab = memchr(line.at, '\t', line.count);
        if (tab == NULL) return false;
        const size_t length = (size_t)(tab - line.at);
        fields[i] = (ls_bytes){line.at, length};
        line = (ls_bytes){tab + 1, line.count - length - 1};
    }
    fields[columns - 1] = line;
    return true;
}

/* Takes a line off, without its end. */
static ls_bytes take_line(ls_bytes *lines) {
    const uint8_t *end = memchr(lines->at, '\n', lines->count);
    ls_bytes line = {lines->at, end == NULL ? lines->count : (size_t)(end - lines->at)};
    const size_t taken = line.count + (end != NULL);
    lines->at += taken;
    lines->count -= taken;
    if (line.count > 0 && line.at[line.count - 1] == '\r') line.count--;
    return line;
}

static bool is_text(ls_bytes bytes, const char *text) {
    return text != NULL && bytes.count == strlen(text) && memcmp(bytes.at, text, bytes.count) == 0;
}

ls_status ls_records_add_lines(ls_ctx *ctx, ls_records *records, int part, const ls_table *table,
                               const char *path, ls_bytes lines) {
    for (int64_t number = 1; lines.count > 0; number++) {
        const ls_bytes line = take_line(&lines);
        ls_bytes fields[LS_TABLE_COLUMNS];
        ls_labelled record = {0};
        LS_TRY(look(ctx, (size_t)number));
        if (line.count == 0 || (number == 1 && is_text(line, table->header))) continue;
        if (!split_line(line, table->columns, fields))
            return LS_FAIL(ctx, LS_EINPUT, "%s, line %lld: there must be %d fields between tabs",
                           path, (long long)number, table->columns);
        const char *wrong = table->record(fields, &record);
        if (wrong != NULL)
            return LS_FAIL(ctx, LS_EINPUT, "%s, line %lld: %s", path, (long long)number, wrong);
        LS_TRY(ls_records_add(ctx, records, part, record));
    }
    return LS_OK;
}

/* The part that a table is of, by its name; -1: none. "eval" is validation too. */
static int part_named(const char *name) {
    static const char *const words[] = {"train", "val", "test"};
    if (!ends_with(name, ".tsv")) return -1;
    for (int p = 0; p < LS_RECORDS_PARTS; p++)
        if (strstr(name, words[p]) != NULL) return p;
    return -1;
}

static ls_status add_table(ls_ctx *ctx, ls_records *records, int part, const char *folder,
                           const char *name, const ls_table *table) {
    char path[PATH_BYTES];
    ls_bytes lines;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, name));
    if (records->parts[part].count > 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s: another table of the folder has the %s set", path,
                       ls_records_part_name(part));
    LS_TRY(ls_records_read(ctx, records, path, &lines));
    return ls_records_add_lines(ctx, records, part, table, path, lines);
}

ls_status ls_records_add_tables(ls_ctx *ctx, ls_records *records, const char *folder,
                                const ls_table *table) {
    char **names = NULL;
    size_t count = 0;
    ls_status status = LS_OK;
    LS_TRY(ls_folder_list(ctx, folder, &names, &count));
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        const int part = part_named(names[i]);
        if (part >= 0) status = add_table(ctx, records, part, folder, names[i], table);
    }
    ls_names_free(ctx, names, count);
    return status;
}

bool ls_label_read(ls_bytes field, int classes, int32_t *out) {
    if (field.count == 3 && field.at[1] == '.' && field.at[2] == '0') field.count = 1;
    if (field.count != 1 || field.at[0] < '0' || field.at[0] >= '0' + classes) return false;
    *out = field.at[0] - '0';
    return true;
}

/* ---- encoding ---- */

int64_t ls_bytes_encode(ls_bytes text, int64_t room, int32_t *tokens) {
    const int64_t count = ls_min(room, (int64_t)text.count);
    for (int64_t t = 0; t < count; t++) tokens[t] = text.at[t];
    return count;
}

int64_t ls_bytes_vocabulary(const void *given) {
    (void)given;
    return 256;
}

ls_status ls_bytes_check(ls_ctx *ctx, const char *task, int64_t length) {
    if (length >= 2) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "task %s needs a length of at least 2", task);
}
