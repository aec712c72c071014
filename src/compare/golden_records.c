#include "compare/golden_records.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/comparison.h"

typedef struct group {
    char name[96];
    int64_t records, worst_line;
    double worst;
} group;

typedef struct groups {
    group *at;
    size_t count, capacity;
} groups;

static ls_status add(ls_ctx *ctx, groups *all, const ls_golden *record) {
    size_t i = 0;
    while (i < all->count && strcmp(all->at[i].name, record->group) != 0) i++;
    if (i == all->count) {
        if (!ls_array_reserve(ctx, &all->at, &all->capacity, i + 1, sizeof *all->at))
            return LS_ENOMEM;
        all->at[all->count] = (group){.worst = -1};
        snprintf(all->at[all->count++].name, sizeof all->at->name, "%s", record->group);
    }
    group *g = &all->at[i];
    g->records++;
    if (!(record->difference <= g->worst)) {
        g->worst = isnan(record->difference) ? INFINITY : record->difference;
        g->worst_line = record->line;
    }
    return LS_OK;
}

/* Whole numbers that no 64 bits hold become texts. */
static ls_status parse(ls_ctx *ctx, const char *line, size_t length, const char *path,
                       int64_t number, json_t **out) {
    enum { DIGITS_MAX = 18 };
    ls_text text = {0};
    bool quoted = false;
    for (size_t at = 0, from = 0; at <= length; at++) {
        size_t digits = 0;
        if (at < length && line[at] == '"') quoted = !quoted;
        if (at < length && quoted && line[at] == '\\') at++;
        while (!quoted && at + digits < length && line[at + digits] >= '0' &&
               line[at + digits] <= '9')
            digits++;
        if (digits > DIGITS_MAX || at >= length) {
            ls_text_append(ctx, &text, line + from, (at < length ? at : length) - from);
            from = at + digits;
            if (digits > DIGITS_MAX) ls_text_printf(ctx, &text, "\"%.*s\"", (int)digits, line + at);
        }
        if (digits > 0) at += digits - 1;
    }
    ls_status status = ls_text_status(&text);
    if (status == LS_OK)
        status = ls_json_parse_line(ctx, text.bytes, text.length, path, number, out);
    ls_text_clear(ctx, &text);
    return status;
}

static ls_status walk(ls_comparer *comparer, ls_status (*each)(ls_golden *record), void *user,
                      groups *all) {
    ls_ctx *ctx = comparer->ctx;
    const char *path = comparer->keys->golden;
    ls_whole whole;
    ls_status status = LS_OK;
    LS_TRY(ls_whole_read(ctx, path, true, &whole));
    const char *at = (const char *)whole.bytes, *end = at + whole.length;
    for (int64_t line = 1; status == LS_OK && at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL) stop = end;
        json_t *json = NULL;
        ls_pool pool = {.ctx = ctx};
        ls_golden record = {.ctx = ctx, .what = path, .line = line, .user = user, .pool = &pool};
        if (stop > at) status = ls_check_stop(ctx, "comparing records");
        if (stop > at && status == LS_OK) {
            status = parse(ctx, at, (size_t)(stop - at), path, line, &json);
            record.json = json;
            if (status == LS_OK) status = each(&record);
            if (status == LS_OK) status = ls_pool_status(&pool);
            if (status == LS_OK && all != NULL) status = add(ctx, all, &record);
        }
        json_decref(json);
        ls_pool_clear(&pool);
        at = stop + 1;
    }
    ls_whole_free(&whole);
    return status;
}

ls_status ls_goldens_walk(ls_comparer *comparer, ls_status (*each)(ls_golden *record), void *user) {
    return walk(comparer, each, user, NULL);
}

ls_status ls_goldens_compare(ls_comparer *comparer, double tolerance,
                             ls_status (*each)(ls_golden *record), void *user, ls_comparison *out) {
    ls_ctx *ctx = comparer->ctx;
    groups all = {0};
    ls_status status = walk(comparer, each, user, &all);
    for (size_t i = 0; status == LS_OK && i < all.count; i++) {
        const group *g = &all.at[i];
        char name[192], where[48] = "";
        if (g->worst > tolerance)
            snprintf(where, sizeof where, ", worst in line %lld", (long long)g->worst_line);
        snprintf(name, sizeof name, "%s (%lld%s)", g->name, (long long)g->records, where);
        status = ls_comparison_add(ctx, out, name, g->worst, tolerance);
    }
    if (status == LS_OK && all.count == 0)
        status = LS_FAIL(ctx, LS_EINPUT, "%s has no records", comparer->keys->golden);
    ls_free(ctx, all.at);
    return status;
}

ls_status ls_golden_fail(const ls_golden *record, const char *key, const char *wanted) {
    return LS_FAIL(record->ctx, LS_EINPUT, "%s: line %lld: %s is not %s", record->what,
                   (long long)record->line, key, wanted);
}

ls_status ls_golden_text(const ls_golden *record, const char *key, const char **out) {
    *out = json_string_value(json_object_get(record->json, key));
    return *out == NULL ? ls_golden_fail(record, key, "a text") : LS_OK;
}

ls_status ls_golden_points(const ls_golden *record, const char *key, ls_points *out) {
    return ls_json_points(record->pool, json_object_get(record->json, key), out)
               ? LS_OK
               : ls_golden_fail(record, key, "a text");
}

ls_status ls_golden_int(const ls_golden *record, const char *key, int64_t low, int64_t high,
                        int64_t *out) {
    return ls_golden_value(record, key, json_object_get(record->json, key), low, high, out);
}

ls_status ls_golden_value(const ls_golden *record, const char *key, const json_t *value,
                          int64_t low, int64_t high, int64_t *out) {
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= low && *out <= high) return LS_OK;
    return LS_FAIL(record->ctx, LS_EINPUT,
                   "%s: line %lld: %s is not a whole number of %lld to %lld", record->what,
                   (long long)record->line, key, (long long)low, (long long)high);
}

bool ls_json_points(ls_pool *pool, const json_t *text, ls_points *out) {
    if (!json_is_string(text)) return false;
    *out = ls_points_of(pool, json_string_value(text), json_string_length(text));
    return true;
}

bool ls_json_points_list(ls_pool *pool, const json_t *texts, ls_points_list *out) {
    const size_t count = json_array_size(texts);
    *out = (ls_points_list){ls_pool_take(pool, count, sizeof *out->at), count};
    if (!json_is_array(texts) || out->at == NULL) return false;
    for (size_t i = 0; i < count; i++)
        if (!ls_json_points(pool, json_array_get(texts, i), &out->at[i])) return false;
    return true;
}

double ls_golden_same(const char *a, size_t a_length, const json_t *wanted) {
    return json_is_string(wanted) && json_string_length(wanted) == a_length &&
                   (a_length == 0 || memcmp(a, json_string_value(wanted), a_length) == 0)
               ? 0
               : INFINITY;
}
