/* What a file of single runs may hold, and where a sentence finds its numbers. */
#include "report/runs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/members.h"

enum {
    RUNS_BYTES = 4 << 20,
    TABLES_MAX = 64,
    COLUMNS_MAX = 32,
    ROWS_MAX = 256,
    WHERE_BYTES = 160,
    NAME_BYTES = 64
};
static const double number_max = 1e15; /* tables print no larger one */

static const ls_member of_file[] = {{"format", LS_TEXT_MEMBER, 0, 0},
                                    {"origin", LS_TEXT_MEMBER, 0, 0}};
static const ls_member of_table[] = {
    {"name", LS_TEXT_MEMBER, 0, 0},     {"caption", LS_TEXT_MEMBER, 0, 0},
    {"head", LS_TEXT_MEMBER, 0, 0},     {"steps", LS_COUNT_MEMBER, 1, 1e12},
    {"chance", LS_REAL_MEMBER, 0, 100}, {"judge", LS_TEXT_MEMBER, 0, 0}};
static const ls_member of_column[] = {
    {"name", LS_TEXT_MEMBER, 0, 0},      {"label", LS_TEXT_MEMBER, 0, 0},
    {"unit", LS_TEXT_MEMBER, 0, 0},      {"samples", LS_COUNT_MEMBER, 1, 1e12},
    {"decimals", LS_COUNT_MEMBER, 0, 6}, {"sign", LS_FLAG_MEMBER, 0, 0}};
static const ls_member of_row[] = {
    {"name", LS_TEXT_MEMBER, 0, 0},        {"label", LS_TEXT_MEMBER, 0, 0},
    {"seed", LS_COUNT_MEMBER, 0, 1e15},    {"steps", LS_COUNT_MEMBER, 1, 1e12},
    {"planned", LS_COUNT_MEMBER, 1, 1e12}, {"published", LS_FLAG_MEMBER, 0, 0}};
#define MEMBERS(table) table, sizeof(table) / sizeof *(table)

typedef struct place {
    ls_ctx *ctx;
    const char *path;
    char where[WHERE_BYTES]; /* in the file, for messages */
} place;

static ls_status refuse(const place *at, const char *key, const char *must) {
    return ls_member_refuse(at->ctx, at->path, at->where, key, must);
}

/* An object with these members and the lists beside them, and no others. */
static ls_status check_object(const place *at, const json_t *object, const ls_member *members,
                              size_t count, const char *const *lists) {
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return LS_FAIL(at->ctx, LS_EINPUT, "%s: %s must be an object", at->path, at->where);
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        bool known = false;
        for (size_t i = 0; i < count; i++) known |= strcmp(members[i].key, key) == 0;
        for (size_t i = 0; lists[i] != NULL; i++) known |= strcmp(lists[i], key) == 0;
        if (!known) return refuse(at, key, "left out: nothing reads it");
    }
    return ls_members_check(at->ctx, at->path, at->where, object, members, count);
}

static ls_status check_list(const place *at, const json_t *object, const char *key, size_t most) {
    char must[64];
    const json_t *list = json_object_get(object, key);
    const size_t count = json_array_size(list);
    snprintf(must, sizeof must, "a list of 1 to %zu", most);
    return json_is_array(list) && count > 0 && count <= most ? LS_OK : refuse(at, key, must);
}

/* Words of comments name tables, columns and rows. */
static ls_status check_name(const place *at, const json_t *list, size_t index) {
    const char *name = ls_member_text(json_array_get(list, index), "name");
    const size_t length = strlen(name);
    if (length == 0 || length >= NAME_BYTES ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") < length)
        return refuse(at, "name", "made of letters, digits, `.`, `_` and `-`");
    for (size_t i = 0; i < index; i++)
        if (strcmp(ls_member_text(json_array_get(list, i), "name"), name) == 0)
            return refuse(at, "name", "its own");
    return LS_OK;
}

static bool is_there(const json_t *object, const char *key) {
    return json_object_get(object, key) != NULL;
}

const json_t *ls__runs_named(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(ls_member_text(json_array_get(list, i), "name"), name) == 0)
            return json_array_get(list, i);
    return NULL;
}

double ls__runs_planned(const json_t *table, const json_t *row) {
    return is_there(row, "planned") ? ls_member_real(row, "planned")
                                    : ls_member_real(table, "steps");
}

static ls_status check_columns(place *at, const json_t *table) {
    static const char *const none[] = {NULL};
    const char *name = ls_member_text(table, "name");
    const json_t *columns = json_object_get(table, "columns");
    LS_TRY(check_list(at, table, "columns", COLUMNS_MAX));
    for (size_t i = 0; i < json_array_size(columns); i++) {
        snprintf(at->where, WHERE_BYTES, "%.60s, column %zu,", name, i + 1);
        LS_TRY(check_object(at, json_array_get(columns, i), MEMBERS(of_column), none));
        LS_TRY(check_name(at, columns, i));
    }
    return LS_OK;
}

static ls_status check_cell(const place *at, const json_t *column, const json_t *value) {
    const bool share = is_there(column, "samples"), number = is_there(column, "decimals");
    const double it = json_number_value(value);
    if (json_is_null(value)) return LS_OK;
    if (share && !(json_is_number(value) && it >= 0 && it <= 100))
        return refuse(at, ls_member_text(column, "name"), "null or a number from 0 to 100");
    if (!share && number && !(json_is_number(value) && fabs(it) < number_max))
        return refuse(at, ls_member_text(column, "name"), "null or a number below 1e15");
    if (!share && !number && !ls_member_is_text(value))
        return refuse(at, ls_member_text(column, "name"), "null or a short text");
    return LS_OK;
}

static ls_status check_row(const place *at, const json_t *table, const json_t *row) {
    static const char *const lists[] = {"values", "samples", NULL};
    static const ls_member of_samples = {"samples", LS_COUNT_MEMBER, 1, 1e12};
    const json_t *columns = json_object_get(table, "columns"),
                 *values = json_object_get(row, "values"),
                 *samples = json_object_get(row, "samples");
    const size_t count = json_array_size(columns);
    LS_TRY(check_object(at, row, MEMBERS(of_row), lists));
    if (!json_is_array(values) || json_array_size(values) != count)
        return refuse(at, "values", "a list of as many as there are columns");
    if (samples != NULL && (!json_is_array(samples) || json_array_size(samples) != count))
        return refuse(at, "samples", "a list of as many as there are columns");
    for (size_t i = 0; i < count; i++) {
        const json_t *column = json_array_get(columns, i), *asked = json_array_get(samples, i);
        LS_TRY(check_cell(at, column, json_array_get(values, i)));
        if (asked == NULL || json_is_null(asked)) continue;
        if (!ls_member_fits(&of_samples, asked) || !is_there(column, "samples"))
            return refuse(at, "samples", "null, or a whole number from 1 where a share is");
    }
    if (is_there(row, "steps") && !(ls_member_real(row, "steps") <= ls__runs_planned(table, row)))
        return refuse(at, "steps",
                      "no more than were planned (`planned`, or `steps` of the table)");
    return LS_OK;
}

static ls_status check_table(place *at, const json_t *table) {
    static const char *const lists[] = {"columns", "rows", NULL};
    const char *name = ls_member_text(table, "name");
    const json_t *rows = json_object_get(table, "rows");
    LS_TRY(check_object(at, table, MEMBERS(of_table), lists));
    if (ls_member_text(table, "caption")[0] == '\0') return refuse(at, "caption", "a short text");
    LS_TRY(check_list(at, table, "rows", ROWS_MAX));
    LS_TRY(check_columns(at, table));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        snprintf(at->where, WHERE_BYTES, "%.60s, row %zu,", name, i + 1);
        LS_TRY(check_row(at, table, json_array_get(rows, i)));
        LS_TRY(check_name(at, rows, i));
    }
    snprintf(at->where, WHERE_BYTES, "%.60s", name);
    const json_t *judge =
        ls__runs_named(json_object_get(table, "columns"), ls_member_text(table, "judge"));
    if (is_there(table, "chance") != is_there(judge, "samples"))
        return refuse(at, "judge", "the column of shares that `chance` is held against");
    return LS_OK;
}

static ls_status check_file(place *at, const json_t *file) {
    static const char *const lists[] = {"tables", NULL};
    const json_t *tables = json_object_get(file, "tables");
    if (strcmp(ls_member_text(file, "format"), "longshot-runs-1") != 0)
        return LS_FAIL(at->ctx, LS_EINPUT, "%s holds no single runs (format longshot-runs-1)",
                       at->path);
    snprintf(at->where, WHERE_BYTES, "the file");
    LS_TRY(check_object(at, file, MEMBERS(of_file), lists));
    if (ls_member_text(file, "origin")[0] == '\0')
        return refuse(at, "origin", "a short text: where the figures come from");
    LS_TRY(check_list(at, file, "tables", TABLES_MAX));
    for (size_t i = 0; i < json_array_size(tables); i++) {
        snprintf(at->where, WHERE_BYTES, "table %zu", i + 1);
        LS_TRY(check_name(at, tables, i));
        LS_TRY(check_table(at, json_array_get(tables, i)));
    }
    return LS_OK;
}

ls_status ls_runs_read(ls_ctx *ctx, const char *path, json_t **out) {
    place at = {.ctx = ctx, .path = path};
    LS_TRY(ls_json_read(ctx, path, RUNS_BYTES, out));
    const ls_status status = check_file(&at, *out);
    if (status == LS_OK) return LS_OK;
    json_decref(*out);
    *out = NULL;
    return status;
}

/* ---- by name ---- */

const json_t *ls__runs_table(const ls_page *page, const char *name) {
    return ls__runs_named(json_object_get(page->runs, "tables"), name);
}

double ls__runs_number(const json_t *row, size_t column) {
    const json_t *value = json_array_get(json_object_get(row, "values"), column);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

double ls_runs_lookup(const ls_page *page, const char *words) {
    char table_name[NAME_BYTES] = "", row[NAME_BYTES] = "", column[NAME_BYTES] = "", rest[2];
    if (sscanf(words, "%63s %63s %63s %1s", table_name, row, column, rest) != 3) return NAN;
    const json_t *table = ls__runs_table(page, table_name);
    const json_t *columns = json_object_get(table, "columns");
    for (size_t i = 0; i < json_array_size(columns); i++)
        if (strcmp(ls_member_text(json_array_get(columns, i), "name"), column) == 0)
            return ls__runs_number(ls__runs_named(json_object_get(table, "rows"), row), i);
    return NAN;
}

const char *ls_runs_name(const ls_page *page, size_t index) {
    const json_t *tables = json_object_get(page->runs, "tables");
    for (size_t t = 0; t < json_array_size(tables); t++) {
        const json_t *table = json_array_get(tables, t);
        const json_t *lists[] = {json_object_get(table, "rows"), json_object_get(table, "columns")};
        if (index-- == 0) return ls_member_text(table, "name");
        for (size_t k = 0; k < 2; k++) {
            const size_t count = json_array_size(lists[k]);
            if (index < count) return ls_member_text(json_array_get(lists[k], index), "name");
            index -= count;
        }
    }
    return NULL;
}
