#include "bench/ratchet.h"

#include <math.h>
#include <string.h>

#include "report/figures.h"
#include "tensor/engine/device.h"
#include "tensor/engine/machine.h"

enum { NAME_BYTES = 256 };

/* ---- machines ---- */

json_t *ls_ratchet_machine(const ls_ctx *ctx) {
    ls_machine about;
    char device[NAME_BYTES];
    ls_device_title(ctx, device, sizeof device);
    ls_machine_describe(&about);
    if (device[0] != '\0') /* threads decide nothing */
        return json_pack("{s:s, s:s}", "name", device, "processor", about.name);
    return json_pack("{s:s, s:i}", "name", about.name, "threads", ctx->threads);
}

ls_status ls_ratchet_check(ls_ctx *ctx, const json_t *before, const json_t *machine,
                           const char *path) {
    const json_t *then = json_object_get(before, "machine");
    const char *name = json_string_value(json_object_get(then, "name"));
    const char *here = json_string_value(json_object_get(machine, "name"));
    if (name == NULL || here == NULL)
        return LS_FAIL(ctx, LS_EINPUT, "%s is no result of `longshot bench` that names its machine",
                       path);
    const json_t *threads = json_object_get(machine, "threads");
    if (strcmp(name, here) != 0 ||
        (threads != NULL && !json_equal(threads, json_object_get(then, "threads"))))
        return LS_FAIL(ctx, LS_EINPUT,
                       "%s is of another machine (%.100s, %lld threads): only figures of one kind "
                       "are compared",
                       path, name, (long long)json_integer_value(json_object_get(then, "threads")));
    return LS_OK;
}

/* ---- rows ---- */

/* "retention bf16, batch 1, length 65536, backward". */
static void name_row(const char *part, const json_t *row, char *out) {
    const char *key;
    json_t *value;
    size_t used = (size_t)snprintf(out, NAME_BYTES, "%.40s", part);
    json_object_foreach((json_t *)(uintptr_t)row, key, value) {
        if (used >= NAME_BYTES || !ls_figures_name(key, value) || json_is_false(value)) continue;
        if (json_is_string(value))
            used +=
                (size_t)snprintf(out + used, NAME_BYTES - used, " %.60s", json_string_value(value));
        else if (json_is_true(value))
            used += (size_t)snprintf(out + used, NAME_BYTES - used, ", %.40s", key);
        else
            used += (size_t)snprintf(out + used, NAME_BYTES - used, ", %.40s %lld", key,
                                     (long long)json_integer_value(value));
    }
}

/* Seconds of a row, or those of a token; 0 where it has neither. */
static double seconds_of(const json_t *row) {
    const double seconds = json_number_value(json_object_get(row, "seconds"));
    const double rate = json_number_value(json_object_get(row, "tokens_per_second"));
    const double figure = seconds > 0 ? seconds : rate > 0 ? 1 / rate : 0;
    return isfinite(figure) ? figure : 0;
}

ls_status ls_ratchet_row(ls_ctx *ctx, const json_t *before, const json_t *now, ls_ratchet *out) {
    const json_t *const rows[2] = {before, now};
    double seconds[2];
    *out = (ls_ratchet){.allowed = 1 + LS_RATCHET_LEAST};
    for (int i = 0; i < 2; i++) {
        const double spread = json_number_value(json_object_get(rows[i], "spread"));
        seconds[i] = seconds_of(rows[i]);
        if (!(seconds[i] > 0) || !(spread >= 0) || !isfinite(spread))
            return LS_FAIL(ctx, LS_EINPUT,
                           "a row of the earlier result has no figure or no spread");
        out->allowed = fmax(out->allowed, 1 + spread);
    }
    out->slowed = seconds[1] / seconds[0];
    return LS_OK;
}

static const json_t *find_row(const json_t *rows, const json_t *like) {
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (ls_figures_same_row(json_array_get(rows, i), like, NULL))
            return json_array_get(rows, i);
    return NULL;
}

/* ---- all of them ---- */

typedef struct counts {
    json_int_t rows, added, missing;
    json_t *slower, *faster;
} counts;

static ls_status compare_row(ls_ctx *ctx, const char *part, const json_t *before, const json_t *now,
                             ls_text *text, counts *c) {
    char name[NAME_BYTES];
    ls_ratchet r;
    LS_TRY(ls_ratchet_row(ctx, before, now, &r));
    c->rows++;
    const bool slower = r.slowed > r.allowed, faster = r.slowed * r.allowed < 1;
    if (!slower && !faster) return LS_OK;
    name_row(part, now, name);
    ls_text_printf(ctx, text, "  %s: %s, %.2f times the time of before, %.0f%% allowed\n",
                   slower ? "slower" : "faster", name, r.slowed, 100 * (r.allowed - 1));
    json_array_append_new(slower ? c->slower : c->faster, json_string(name));
    return LS_OK;
}

static ls_status compare_part(ls_ctx *ctx, const char *part, const json_t *before,
                              const json_t *now, ls_text *text, counts *c) {
    for (size_t i = 0; i < json_array_size(now); i++) {
        const json_t *row = json_array_get(now, i), *then = find_row(before, row);
        if (then == NULL)
            c->added++;
        else
            LS_TRY(compare_row(ctx, part, then, row, text, c));
    }
    for (size_t i = 0; i < json_array_size(before); i++)
        if (find_row(now, json_array_get(before, i)) == NULL) c->missing++;
    return LS_OK;
}

static ls_status compare_parts(ls_ctx *ctx, const json_t *before, const json_t *now, ls_text *text,
                               counts *c) {
    const char *part;
    json_t *rows;
    json_object_foreach((json_t *)(uintptr_t)now, part, rows) {
        const json_t *then = json_object_get(before, part);
        if (json_is_array(rows) && json_is_array(then))
            LS_TRY(compare_part(ctx, part, then, rows, text, c));
    }
    return LS_OK;
}

ls_status ls_ratchet_compare(ls_ctx *ctx, const json_t *before, const json_t *now, ls_text *text,
                             json_t **out) {
    counts c = {.slower = json_array(), .faster = json_array()};
    *out = NULL;
    ls_text_printf(ctx, text, "beside the earlier result\n");
    ls_status status = compare_parts(ctx, before, now, text, &c);
    ls_text_printf(
        ctx, text,
        "  %lld rows compared: %zu slower, %zu faster; %lld new, %lld not measured now\n",
        (long long)c.rows, json_array_size(c.slower), json_array_size(c.faster), (long long)c.added,
        (long long)c.missing);
    if (status == LS_OK && c.rows == 0)
        status = LS_FAIL(ctx, LS_EINPUT, "the earlier result has none of the rows measured now");
    if (status == LS_OK) {
        *out = json_pack("{s:I, s:I, s:I, s:O, s:O}", "rows", c.rows, "added", c.added, "missing",
                         c.missing, "slower", c.slower, "faster", c.faster);
        if (*out == NULL) status = LS_FAIL(ctx, LS_ENOMEM, "no memory for the results");
    }
    json_decref(c.slower);
    json_decref(c.faster);
    return status;
}
