#include "report/figures_print.h"

#include <math.h>
#include <string.h>

enum { FIGURES_BYTES = 16 << 20, METHODS_MAX = 16, TEXT_MAX = 512, MEMBERS_MAX = 64 };

static const double count_max = 9007199254740992; /* 2^53: whole numbers up to here are exact */

/* ---- what a file may hold ---- */

typedef enum { TEXT, COUNT, REAL, FLAG } member_kind;
typedef struct member {
    const char *key;
    member_kind kind;
    double low, high; /* of numbers */
} member;

static const member of_machine[] = {
    {"name", TEXT, 0, 0},         {"processor", TEXT, 0, 0},      {"instructions", TEXT, 0, 0},
    {"system", TEXT, 0, 0},       {"threads", COUNT, 1, 1 << 20}, {"memory_bytes", COUNT, 0, 1e18},
    {"bandwidth", REAL, 1, 1e18}, {"peak_f64", REAL, 1, 1e21},    {"peak_f32", REAL, 1, 1e21},
    {"peak_bf16", REAL, 1, 1e21},
};
static const member of_row[] = {
    {"kind", TEXT, 0, 0},
    {"model", TEXT, 0, 0},
    {"dtype", TEXT, 0, 0},
    {"matmul", TEXT, 0, 0},
    {"settings", TEXT, 0, 0},
    {"peer_mode", TEXT, 0, 0},
    {"recompute", FLAG, 0, 0},
    {"backward", FLAG, 0, 0},
    {"batch", COUNT, 1, 1e12},
    {"length", COUNT, 1, 1e12},
    {"channels", COUNT, 1, 1e12},
    {"states", COUNT, 1, 1e12},
    {"complex_states", COUNT, 1, 1e12},
    {"heads", COUNT, 1, 1e12},
    {"width", COUNT, 1, 1e12},
    {"keys", COUNT, 1, 1e12},
    {"values", COUNT, 1, 1e12},
    {"depth", COUNT, 0, 1e12},
    {"streams", COUNT, 1, 1e12},
    {"bytes", COUNT, 0, 1e18},
    {"seconds", REAL, 1e-12, 1e9},
    {"tokens_per_second", REAL, 1e-9, 1e15},
    {"spread", REAL, 0, 1e9},
    {"gflops", REAL, 0, 1e15},
    {"peak_share", REAL, 0, 1e3},
    {"share", REAL, 0, 1e3},
    {"bandwidth_limit", REAL, 0, 1e15},
    {"prefill_tokens_per_second", REAL, 0, 1e15},
    {"logits_tokens_per_second", REAL, 0, 1e15},
    {"share_of_pairs", REAL, 0, 1e6},
    {"times_as_fast", REAL, 0, 1e9},
    {"nanoseconds_per_token_and_channel", REAL, 0, 1e15},
    {"nanoseconds_per_n_log_n", REAL, 0, 1e15},
    {"peer_tokens_per_second", REAL, 1e-9, 1e15},
    {"peer_spread", REAL, 0, 1e9},
    {"ratio", REAL, 1e-12, 1e12},
};
static const member of_method[] = {
    {"seconds", REAL, 1e-12, 1e9}, {"spread", REAL, 0, 1e9}, {"ratio", REAL, 1e-12, 1e12}};
static const member of_taken[] = {{"date", TEXT, 0, 0},
                                  {"longshot", TEXT, 0, 0},
                                  {"torch", TEXT, 0, 0},
                                  {"turns", COUNT, 1, 1e6},
                                  {"seconds", REAL, 0, 1e6}};
#define MEMBERS(table) table, sizeof(table) / sizeof *(table)

typedef struct place {
    ls_ctx *ctx;
    const char *path, *part;
    size_t row;
} place;

static ls_status refuse(const place *at, const char *key, const char *must) {
    if (at->part == NULL)
        return LS_FAIL(at->ctx, LS_EINPUT, "%s: `%.60s` of the machine must be %s", at->path, key,
                       must);
    return LS_FAIL(at->ctx, LS_EINPUT, "%s: `%.60s` of %s, row %zu, must be %s", at->path, key,
                   at->part, at->row + 1, must);
}

static bool is_text(const json_t *value) {
    return json_is_string(value) && json_string_length(value) <= TEXT_MAX;
}

static ls_status check_member(const place *at, const member *m, const json_t *value) {
    char range[96];
    snprintf(range, sizeof range, "a %snumber from %g to %g", m->kind == COUNT ? "whole " : "",
             m->low, m->high);
    switch (m->kind) {
    case TEXT:
        return is_text(value) ? LS_OK : refuse(at, m->key, "a short text");
    case FLAG:
        return json_is_boolean(value) ? LS_OK : refuse(at, m->key, "true or false");
    case COUNT:
        if (!json_is_integer(value) || fabs(json_number_value(value)) > count_max)
            return refuse(at, m->key, range);
        break;
    case REAL:
        if (!json_is_number(value)) return refuse(at, m->key, range);
        break;
    }
    const double number = json_number_value(value);
    return number >= m->low && number <= m->high ? LS_OK : refuse(at, m->key, range);
}

/* Members that are there; what the table does not name may be anything, and is not printed. */
static ls_status check_members(const place *at, const json_t *object, const member *members,
                               size_t count) {
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, members[i].key);
        if (value != NULL) LS_TRY(check_member(at, &members[i], value));
    }
    return LS_OK;
}

/* A ratio that its two figures do not give is of a file that was changed. */
static ls_status check_ratio(const place *at, double ratio, double figures) {
    if (fabs(ratio / figures - 1) < 1e-6) return LS_OK;
    return refuse(at, "ratio", "that of its figures");
}

static ls_status check_peers(const place *at, const json_t *row) {
    json_t *peers = json_object_get(row, "peers"), *method;
    const double ours = ls_member_real(row, "seconds");
    const char *name;
    if (peers == NULL) return LS_OK;
    if (!json_is_object(peers) || json_object_size(peers) > METHODS_MAX)
        return refuse(at, "peers", "an object with few members");
    json_object_foreach(peers, name, method) {
        if (!json_is_object(method) || strlen(name) > TEXT_MAX)
            return refuse(at, "peers", "objects of short names");
        LS_TRY(check_members(at, method, MEMBERS(of_method)));
        for (size_t i = 0; i < sizeof of_method / sizeof of_method[0]; i++)
            if (json_object_get(method, of_method[i].key) == NULL)
                return refuse(at, of_method[i].key, "there for every peer");
        LS_TRY(check_ratio(at, ls_member_real(method, "ratio"),
                           ls_member_real(method, "seconds") / ours));
    }
    return LS_OK;
}

static ls_status check_missing(const place *at, const json_t *row) {
    json_t *missing = json_object_get(row, "missing"), *why;
    const char *name;
    if (missing == NULL) return LS_OK;
    if (!json_is_object(missing) || json_object_size(missing) > METHODS_MAX)
        return refuse(at, "missing", "an object with few members");
    json_object_foreach(missing, name, why) if (strlen(name) > TEXT_MAX ||
                                                !is_text(why)) return refuse(at, "missing",
                                                                             "short texts");
    return LS_OK;
}

static ls_status check_row(const place *at, const json_t *row) {
    if (!json_is_object(row) || json_object_size(row) > MEMBERS_MAX)
        return refuse(at, "a row", "an object with few members");
    LS_TRY(check_members(at, row, MEMBERS(of_row)));
    const json_t *taken = json_object_get(row, "taken");
    if (taken != NULL && !json_is_object(taken)) return refuse(at, "taken", "an object");
    LS_TRY(check_members(at, taken, MEMBERS(of_taken)));
    const bool rate = json_object_get(row, "tokens_per_second") != NULL;
    if (rate == (json_object_get(row, "seconds") != NULL))
        return refuse(at, "seconds", "there, or `tokens_per_second`, and not both");
    if (json_object_get(row, "spread") == NULL) return refuse(at, "spread", "there");
    LS_TRY(check_peers(at, row));
    LS_TRY(check_missing(at, row));
    if (json_object_get(row, "ratio") == NULL) return LS_OK;
    if (json_object_get(row, "peer_tokens_per_second") == NULL)
        return refuse(at, "peer_tokens_per_second", "there beside `ratio`");
    return check_ratio(at, ls_member_real(row, "ratio"),
                       ls_member_real(row, "tokens_per_second") /
                           ls_member_real(row, "peer_tokens_per_second"));
}

static ls_status check_part(place *at, const json_t *rows) {
    if (json_array_size(rows) > LS_FIGURES_ROWS_MAX)
        return LS_FAIL(at->ctx, LS_EINPUT, "%s: %.60s has more than %d rows", at->path, at->part,
                       LS_FIGURES_ROWS_MAX);
    for (at->row = 0; at->row < json_array_size(rows); at->row++)
        LS_TRY(check_row(at, json_array_get(rows, at->row)));
    return LS_OK;
}

ls_status ls_figures_check(ls_ctx *ctx, const json_t *figures, const char *path) {
    const json_t *machine = json_object_get(figures, "machine");
    place at = {.ctx = ctx, .path = path};
    json_t *rows;
    if (ls_member_text(machine, "name")[0] == '\0')
        return LS_FAIL(ctx, LS_EINPUT, "%s is no result of `longshot bench` that names its machine",
                       path);
    LS_TRY(check_members(&at, machine, MEMBERS(of_machine)));
    static const member peak = {"peak_bytes", COUNT, 0, 1e18};
    LS_TRY(check_members(&at, figures, &peak, 1));
    json_object_foreach((json_t *)(uintptr_t)figures, at.part, rows) if (json_is_array(rows))
        LS_TRY(check_part(&at, rows));
    return LS_OK;
}

ls_status ls_figures_read(ls_ctx *ctx, const char *path, json_t **out) {
    LS_TRY(ls_json_read(ctx, path, FIGURES_BYTES, out));
    const ls_status status = ls_figures_check(ctx, *out, path);
    if (status == LS_OK) return LS_OK;
    json_decref(*out);
    *out = NULL;
    return status;
}

/* ---- rows ---- */

bool ls_figures_name(const char *key, const json_t *value) {
    return (json_is_string(value) || json_is_integer(value) || json_is_boolean(value)) &&
           strcmp(key, "bytes") != 0 && strcmp(key, "peer_mode") != 0;
}

/* Whether all that names `a` is in `b` too. */
static bool within(const json_t *a, const json_t *b, const char *except) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)a, key, value) {
        if (!ls_figures_name(key, value) || (except != NULL && strcmp(key, except) == 0)) continue;
        if (!json_equal(value, json_object_get(b, key))) return false;
    }
    return true;
}

bool ls_figures_same_row(const json_t *a, const json_t *b, const char *except) {
    return within(a, b, except) && within(b, a, except);
}

/* ---- several files ---- */

/* Threads decide nothing where a device computes. */
static bool same_machine(const json_t *a, const json_t *b) {
    const bool device =
        json_object_get(a, "processor") != NULL || json_object_get(b, "processor") != NULL;
    return strcmp(ls_member_text(a, "name"), ls_member_text(b, "name")) == 0 &&
           (device || json_equal(json_object_get(a, "threads"), json_object_get(b, "threads")));
}

/* Of what was measured of the machine the highest counts: other work can only lower it. */
static void merge_machine(json_t *into, const json_t *later) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)later, key, value) {
        const bool lower = json_is_real(value) &&
                           json_number_value(value) < json_number_value(json_object_get(into, key));
        if (!lower) json_object_set(into, key, value);
    }
}

static void merge_rows(json_t *into, const json_t *later) {
    for (size_t i = 0; i < json_array_size(later); i++) {
        json_t *row = json_array_get(later, i);
        size_t at = 0;
        while (at < json_array_size(into) &&
               !ls_figures_same_row(json_array_get(into, at), row, NULL))
            at++;
        if (at < json_array_size(into))
            json_array_set(into, at, row);
        else
            json_array_append(into, row);
    }
}

ls_status ls_figures_merge(ls_ctx *ctx, const json_t *earlier, const json_t *later, json_t **out) {
    const json_t *machine = json_object_get(later, "machine");
    const char *key;
    json_t *value;
    *out = NULL;
    if (!same_machine(json_object_get(earlier, "machine"), machine))
        return LS_FAIL(ctx, LS_EINPUT,
                       "figures of two machines (%.100s, %.100s) do not go into one file",
                       ls_member_text(json_object_get(earlier, "machine"), "name"),
                       ls_member_text(machine, "name"));
    json_t *all = json_deep_copy(earlier);
    json_object_foreach((json_t *)(uintptr_t)later, key, value) {
        json_t *old = json_object_get(all, key);
        if (value == machine)
            merge_machine(old, machine);
        else if (json_is_array(value) && json_is_array(old))
            merge_rows(old, value);
        else if (strcmp(key, "peak_bytes") != 0 ||
                 json_number_value(value) > json_number_value(old))
            json_object_set(all, key, value);
    }
    json_object_del(all, "compared"); /* of one run */
    if (all == NULL || ls_json_starved()) {
        json_decref(all);
        return LS_FAIL(ctx, LS_ENOMEM, "no memory for the figures");
    }
    *out = all;
    return LS_OK;
}

ls_status ls_figures_read_all(ls_ctx *ctx, const char *const *paths, size_t count, json_t **out) {
    ls_status status = LS_OK;
    *out = NULL;
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        json_t *next = NULL, *both = NULL;
        status = ls_figures_read(ctx, paths[i], &next);
        if (status == LS_OK && i > 0) {
            status = ls_figures_merge(ctx, *out, next, &both);
            json_decref(next);
            next = both;
        }
        json_decref(*out);
        *out = next;
    }
    /* together they may be more than one may hold */
    return status == LS_OK && count > 1 ? ls_figures_check(ctx, *out, paths[count - 1]) : status;
}
