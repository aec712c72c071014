#include "train/guard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ls_guard_init(ls_guard *guard, const ls_guard_settings *settings) {
    *guard = (ls_guard){.settings = *settings, .rate_factor = 1};
    guard->settings.window = ls_min(ls_max(settings->window, 2), LS_GUARD_WINDOW_MAX);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int64_t count) {
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 == 1 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

static bool is_spike(const ls_guard_window *window, int64_t full, double spread, double value) {
    if (spread <= 0 || window->count < (full + 1) / 2) return false;
    double sorted[LS_GUARD_WINDOW_MAX];
    memcpy(sorted, window->values, (size_t)window->count * sizeof *sorted);
    double middle = median(sorted, window->count);
    for (int64_t i = 0; i < window->count; i++) sorted[i] = fabs(sorted[i] - middle);
    /* 1.4826: what makes it the standard deviation of a normal distribution. Nearly equal
     * values must not turn noise into spikes, nor a solved task its hardest samples: hence the
     * floor. */
    double deviation = 1.4826 * median(sorted, window->count);
    deviation = fmax(deviation, 0.01 * fabs(middle) + 0.01);
    return value > middle + spread * deviation;
}

static void remember(ls_guard_window *window, int64_t full, double value) {
    window->values[window->next] = value;
    window->next = (window->next + 1) % full;
    window->count = ls_min(window->count + 1, full);
}

ls_guard_verdict ls_guard_judge(ls_guard *guard, double loss, double norm) {
    const ls_guard_settings *settings = &guard->settings;
    ls_guard_verdict verdict = LS_GUARD_ACCEPTED;
    if (!isfinite(loss))
        verdict = LS_GUARD_LOSS_NOT_FINITE;
    else if (!isfinite(norm))
        verdict = LS_GUARD_NORM_NOT_FINITE;
    else if (is_spike(&guard->loss, settings->window, settings->spread, loss))
        verdict = LS_GUARD_LOSS_SPIKE;
    else if (is_spike(&guard->norm, settings->window, settings->norm_spread, norm))
        verdict = LS_GUARD_NORM_SPIKE;
    if (verdict == LS_GUARD_ACCEPTED) {
        remember(&guard->loss, settings->window, loss);
        remember(&guard->norm, settings->window, norm);
        guard->in_a_row = 0;
        return verdict;
    }
    guard->rejected++;
    guard->in_a_row++;
    if (settings->policy == LS_GUARD_LOWER) guard->rate_factor *= settings->lower;
    return verdict;
}

void ls_guard_forget(ls_guard *guard) {
    guard->loss = guard->norm = (ls_guard_window){0};
}

const char *ls_guard_reason(ls_guard_verdict verdict) {
    switch (verdict) {
    case LS_GUARD_ACCEPTED:
        return "accepted";
    case LS_GUARD_LOSS_NOT_FINITE:
        return "the loss is not finite";
    case LS_GUARD_NORM_NOT_FINITE:
        return "the gradient is not finite";
    case LS_GUARD_LOSS_SPIKE:
        return "the loss is a spike";
    case LS_GUARD_NORM_SPIKE:
        return "the gradient norm is a spike";
    }
    return "unknown";
}

bool ls_guard_exhausted(const ls_guard *guard) {
    if (guard->in_a_row == 0) return false;
    return guard->settings.policy == LS_GUARD_STOP || guard->in_a_row >= guard->settings.rejections;
}

/* Oldest first, so that the place in the ring need not be stored. */
static json_t *window_json(const ls_guard_window *window, int64_t full) {
    json_t *list = json_array();
    int64_t first = window->count < full ? 0 : window->next;
    for (int64_t i = 0; list != NULL && i < window->count; i++)
        if (json_array_append_new(list, json_real(window->values[(first + i) % full])) != 0) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

ls_status ls_guard_save(ls_ctx *ctx, const ls_guard *guard, json_t **out) {
    *out = json_pack("{s:I,s:I,s:f,s:o,s:o}", "rejected", (json_int_t)guard->rejected, "in_a_row",
                     (json_int_t)guard->in_a_row, "rate_factor", guard->rate_factor, "loss",
                     window_json(&guard->loss, guard->settings.window), "norm",
                     window_json(&guard->norm, guard->settings.window));
    return *out == NULL ? LS_FAIL(ctx, LS_ENOMEM, "no memory for the guard's state") : LS_OK;
}

static ls_status load_window(ls_ctx *ctx, const json_t *from, const char *key, const char *what,
                             int64_t full, ls_guard_window *out) {
    const json_t *list = json_object_get(from, key);
    if (!json_is_array(list) || json_array_size(list) > (size_t)full)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the guard's `%s` does not fit its window", what, key);
    *out = (ls_guard_window){0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_number(value)) /* JSON has finite ones alone */
            return LS_FAIL(ctx, LS_EINPUT, "%s: the guard's `%s` must hold numbers", what, key);
        remember(out, full, json_number_value(value));
    }
    return LS_OK;
}

ls_status ls_guard_load(ls_ctx *ctx, const json_t *from, const char *what, ls_guard *guard) {
    ls_guard loaded = *guard;
    LS_TRY(ls_json_int(ctx, from, "rejected", what, 0, INT64_MAX / 2, &loaded.rejected));
    LS_TRY(ls_json_int(ctx, from, "in_a_row", what, 0, loaded.rejected, &loaded.in_a_row));
    LS_TRY(ls_json_real(ctx, from, "rate_factor", what, 0, 1, &loaded.rate_factor));
    LS_TRY(load_window(ctx, from, "loss", what, guard->settings.window, &loaded.loss));
    LS_TRY(load_window(ctx, from, "norm", what, guard->settings.window, &loaded.norm));
    *guard = loaded;
    return LS_OK;
}
