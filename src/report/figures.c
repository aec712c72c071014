#include "report/figures_print.h"

#include <math.h>
#include <string.h>

#include "report/members.h"

enum { FIGURES_BYTES = 16 << 20, METHODS_MAX = 16, MEMBERS_MAX = 64 };

/* ---- what a file may hold ---- */

static const ls_member of_machine[] = {
    {"name", LS_TEXT_MEMBER, 0, 0},           {"processor", LS_TEXT_MEMBER, 0, 0},
    {"instructions", LS_TEXT_MEMBER, 0, 0},   {"system", LS_TEXT_MEMBER, 0, 0},
    {"threads", LS_COUNT_MEMBER, 1, 1 << 20}, {"memory_bytes", LS_COUNT_MEMBER, 0, 1e18},
    {"bandwidth", LS_REAL_MEMBER, 1, 1e18},   {"peak_f64", LS_REAL_MEMBER, 1, 1e21},
    {"peak_f32", LS_REAL_MEMBER, 1, 1e21},    {"peak_bf16", LS_REAL_MEMBER, 1, 1e21},
};
static const ls_member of_row[] = {
    {"kind", LS_TEXT_MEMBER, 0, 0},
    {"model", LS_TEXT_MEMBER, 0, 0},
    {"dtype", LS_TEXT_MEMBER, 0, 0},
    {"matmul", LS_TEXT_MEMBER, 0, 0},
    {"settings", LS_TEXT_MEMBER, 0, 0},
    {"peer_mode", LS_TEXT_MEMBER, 0, 0},
    {"recompute", LS_FLAG_MEMBER, 0, 0},
    {"backward", LS_FLAG_MEMBER, 0, 0},
    {"batch", LS_COUNT_MEMBER, 1, 1e12},
    {"length", LS_COUNT_MEMBER, 1, 1e12},
    {"channels", LS_COUNT_MEMBER, 1, 1e12},
    {"states", LS_COUNT_MEMBER, 1, 1e12},
    {"complex_states", LS_COUNT_MEMBER, 1, 1e12},
    {"heads", LS_COUNT_MEMBER, 1, 1e12},
    {"width", LS_COUNT_MEMBER, 1, 1e12},
    {"keys", LS_COUNT_MEMBER, 1, 1e12},
    {"values", LS_COUNT_MEMBER, 1, 1e12},
    {"depth", LS_COUNT_MEMBER, 0, 1e12},
    {"streams", LS_COUNT_MEMBER, 1, 1e12},
    {"bytes", LS_COUNT_MEMBER, 0, 1e18},
    {"seconds", LS_REAL_MEMBER, 1e-12, 1e9},
    {"tokens_per_second", LS_REAL_MEMBER, 1e-9, 1e15},
    {"spread", LS_REAL_MEMBER, 0, 1e9},
    {"gflops", LS_REAL_MEMBER, 0, 1e15},
    {"peak_share", LS_REAL_MEMBER, 0, 1e3},
    {"share", LS_REAL_MEMBER, 0, 1e3},
    {"bandwidth_limit", LS_REAL_MEMBER, 0, 1e15},
    {"prefill_tokens_per_second", LS_REAL_MEMBER, 0, 1e15},
    {"logits_tokens_per_second", LS_REAL_MEMBER, 0, 1e15},
    {"share_of_pairs", LS_REAL_MEMBER, 0, 1e6},
    {"times_as_fast", LS_REAL_MEMBER, 0, 1e9},
    {"nanoseconds_per_token_and_channel", LS_REAL_MEMBER, 0, 1e15},
    {"nanoseconds_per_n_log_n", LS_REAL_MEMBER, 0, 1e15},
    {"peer_tokens_per_second", LS_REAL_MEMBER, 1e-9, 1e15},
    {"peer_spread", LS_REAL_MEMBER, 0, 1e9},
    {"ratio", LS_REAL_MEMBER, 1e-12, 1e12},
};
static const ls_member of_method[] = {{"seconds", LS_REAL_MEMBER, 1e-12, 1e9},
                                      {"spread", LS_REAL_MEMBER, 0, 1e9},
                                      {"ratio", LS_REAL_MEMBER, 1e-12, 1e12}};
static const ls_member of_taken[] = {
    {"date", LS_TEXT_MEMBER, 0, 0},     {"longshot", LS_TEXT_MEMBER, 0, 0},
    {"torch", LS_TEXT_MEMBER, 0, 0},    {"llama_cpp", LS_TEXT_MEMBER, 0, 0},
    {"turns", LS_COUNT_MEMBER, 1, 1e6}, {"seconds", LS_REAL_MEMBER, 0, 1e6}};
#define MEMBERS(table) table, sizeof(table) / sizeof *(table)

typedef struct place {
    ls_ctx *ctx;
    const char *path, *part;
    size_t row;
} place;

static const char *where(const place *at, char out[96]) {
    if (at->part == NULL) return "the machine";
    snprintf(out, 96, "%.60s, row %zu,", at->part, at->row + 1);
    return out;
}

static ls_status refuse(const place *at, const char *key, const char *must) {
    char text[96];
    return ls_member_refuse(at->ctx, at->path, where(at, text), key, must);
}

static ls_status check_members(const place *at, const json_t *object, const ls_member *members,
                               size_t count) {
    char text[96];
    return ls_members_check(at->ctx, at->path, where(at, text), object, members, count);
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
        if (!json_is_object(method) || strlen(name) > LS_MEMBER_TEXT_MAX)
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
    json_object_foreach(missing, name,
                        why) if (strlen(name) > LS_MEMBER_TEXT_MAX ||
                                 !ls_member_is_text(why)) return refuse(at, "missing",
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
    static const ls_member peak = {"peak_bytes", LS_COUNT_MEMBER, 0, 1e18};
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
    const json_t *ours = json_object_get(a, "threads"), *theirs = json_object_get(b, "threads");
    const bool device =
        json_object_get(a, "processor") != NULL || json_object_get(b, "processor") != NULL;
    const bool unsaid = ours == NULL && theirs == NULL; /* which are equal to nothing */
    return strcmp(ls_member_text(a, "name"), ls_member_text(b, "name")) == 0 &&
           (device || unsaid || json_equal(ours, theirs));
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
