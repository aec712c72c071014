#include "train/metrics.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "train/events.h"

enum { PATH_BYTES = 4096 };

#define COLUMNS                                                                                    \
    "step,loss,lr,grad_norm,auxiliary,tokens,rejected,seconds,tokens_per_second,peak_share"
static const char csv_head[] = COLUMNS "\n", validating_head[] = COLUMNS ",validation_loss\n";
static const char jsonl_start[] = "{\"step\":";

typedef struct output {
    char path[PATH_BYTES];
    FILE *file;
} output;

struct ls_metrics {
    output jsonl, csv, events;
    int64_t every;
    bool validates;
};

static double wall_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The step at the start of a row; -1 where there is none. */
static int64_t step_of(const uint8_t *line, size_t length, const char *start) {
    size_t skip = strlen(start);
    if (length <= skip || memcmp(line, start, skip) != 0) return -1;
    int64_t step = 0;
    size_t i = skip;
    for (; i < length && line[i] >= '0' && line[i] <= '9'; i++)
        if (!ls_mul(step, 10, &step) || !ls_add(step, line[i] - '0', &step)) return -1;
    return i > skip && i < length && line[i] == ',' ? step : -1;
}

/* How many bytes of a file stay: `head`, then whole rows up to `step`. A row that was torn by a
 * crash ends them; rows up to a checkpoint's step were on the disk before it. *last: the step of
 * the last that stays. */
static ls_status bytes_to_keep(ls_ctx *ctx, const char *path, const char *head, const char *start,
                               int64_t step, int64_t *last, size_t *keep) {
    ls_whole whole;
    LS_TRY(ls_whole_read(ctx, path, false, &whole));
    size_t at = strlen(head);
    *last = 0;
    *keep = 0;
    if (whole.length >= at && (at == 0 || memcmp(whole.bytes, head, at) == 0)) {
        while (at < whole.length) {
            const uint8_t *line = whole.bytes + at, *end = memchr(line, '\n', whole.length - at);
            if (end == NULL) break;
            int64_t found = step_of(line, (size_t)(end - line), start);
            if (found < 0 || found > step) break;
            *last = found;
            at += (size_t)(end - line) + 1;
        }
        *keep = at;
    }
    ls_whole_free(&whole);
    return LS_OK;
}

/* No crash explains that a row of a step that is done is gone. */
static void say_lost(ls_ctx *ctx, const output *out, int64_t last, int64_t step, int64_t every) {
    const int64_t due = every > 0 ? step / every * every : 0;
    if (last < due)
        ls_say(ctx, "%s was damaged or cut: its rows of steps %lld to %lld are lost", out->path,
               (long long)last + 1, (long long)due);
}

static ls_status open_rows(ls_ctx *ctx, output *out, const char *head, const char *start,
                           int64_t step, int64_t every) {
    int64_t last = 0;
    size_t keep = 0;
    if (ls_path_exists(out->path)) {
        LS_TRY(bytes_to_keep(ctx, out->path, head, start, step, &last, &keep));
        if (truncate(out->path, (off_t)keep) != 0)
            return LS_FAIL(ctx, LS_EIO, "cutting %s: %s", out->path, strerror(errno));
    }
    say_lost(ctx, out, last, step, every);
    LS_TRY(ls_file_create(ctx, out->path, true, &out->file));
    return keep > 0 ? LS_OK : ls_file_put(ctx, out->file, out->path, head, strlen(head));
}

static ls_status close_output(ls_ctx *ctx, output *out) {
    if (out->file == NULL) return LS_OK;
    FILE *file = out->file;
    out->file = NULL;
    return ls_file_finish(ctx, file, out->path);
}

static ls_status open_both(ls_ctx *ctx, ls_metrics *metrics, int64_t step) {
    LS_TRY(open_rows(ctx, &metrics->jsonl, "", jsonl_start, step, metrics->every));
    return open_rows(ctx, &metrics->csv, metrics->validates ? validating_head : csv_head, "", step,
                     metrics->every);
}

static ls_status open_events(ls_ctx *ctx, const char *folder, int64_t step, output *out) {
    char host[65] = "localhost", name[160];
    double now = wall_time();
    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "localhost");
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld", (long long)now, host,
             (long)getpid());
    LS_TRY(ls_path_join(ctx, out->path, sizeof out->path, folder, name));
    LS_TRY(ls_file_create(ctx, out->path, true, &out->file));
    LS_TRY(ls_events_begin(ctx, out->file, out->path, now));
    return step == 0 ? LS_OK : ls_events_restart(ctx, out->file, out->path, now, step + 1);
}

ls_status ls_metrics_open(ls_ctx *ctx, const char *folder, int64_t step, int64_t every,
                          bool validates, ls_metrics **out) {
    *out = NULL;
    ls_metrics *metrics = ls_new(ctx, 1, sizeof *metrics);
    if (metrics == NULL) return LS_ENOMEM;
    ls_status status;
    metrics->every = every;
    metrics->validates = validates;
    LS_TRY_GOTO(ls_path_join(ctx, metrics->csv.path, PATH_BYTES, folder, "metrics.csv"));
    LS_TRY_GOTO(ls_path_join(ctx, metrics->jsonl.path, PATH_BYTES, folder, "metrics.jsonl"));
    LS_TRY_GOTO(open_both(ctx, metrics, step));
    LS_TRY_GOTO(open_events(ctx, folder, step, &metrics->events));
    LS_TRY_GOTO(ls_folder_sync(ctx, folder)); /* rows that are synced need a name */
    *out = metrics;
    return LS_OK;
fail:
    ls_metrics_close(ctx, metrics);
    return status;
}

/* JSON has no word for what is not finite. */
static const char *json_number(double value, char *out, size_t bytes) {
    if (isfinite(value))
        snprintf(out, bytes, "%.9g", value);
    else
        snprintf(out, bytes, "null");
    return out;
}

ls_status ls_metrics_add(ls_ctx *ctx, ls_metrics *metrics, const ls_metrics_row *row) {
    char line[512], loss[32], norm[32], auxiliary[32], validation[64] = "", shared[64] = "";
    if (row->shared)
        snprintf(shared, sizeof shared, ",\"communication_share\":%.4f", row->communication);
    if (row->validated) {
        json_number(row->validation, loss, sizeof loss);
        snprintf(validation, sizeof validation, ",\"validation_loss\":%s", loss);
    }
    int length = snprintf(
        line, sizeof line,
        "%s%lld,\"loss\":%s,\"lr\":%.9g,\"grad_norm\":%s,\"auxiliary\":%s,\"tokens\":%lld,"
        "\"rejected\":%lld,\"seconds\":%.3f,\"tokens_per_second\":%.1f,\"peak_share\":%.4f%s%s}\n",
        jsonl_start, (long long)row->step, json_number(row->loss, loss, sizeof loss), row->rate,
        json_number(row->norm, norm, sizeof norm),
        json_number(row->auxiliary, auxiliary, sizeof auxiliary), (long long)row->tokens,
        (long long)row->rejected, row->seconds, row->tokens_per_second, row->peak_share, shared,
        validation);
    LS_TRY(ls_file_put(ctx, metrics->jsonl.file, metrics->jsonl.path, line, (size_t)length));
    validation[0] = '\0'; /* a column of its own, empty where nothing was measured */
    if (metrics->validates) strcpy(validation, ",");
    if (row->validated) snprintf(validation, sizeof validation, ",%.9g", row->validation);
    length = snprintf(line, sizeof line, "%lld,%.9g,%.9g,%.9g,%.9g,%lld,%lld,%.3f,%.1f,%.4f%s\n",
                      (long long)row->step, row->loss, row->rate, row->norm, row->auxiliary,
                      (long long)row->tokens, (long long)row->rejected, row->seconds,
                      row->tokens_per_second, row->peak_share, validation);
    LS_TRY(ls_file_put(ctx, metrics->csv.file, metrics->csv.path, line, (size_t)length));
    enum { ALWAYS = 8 };
    ls_scalar scalars[ALWAYS + 2] = {{"train/loss", row->loss},
                                     {"train/lr", row->rate},
                                     {"train/grad_norm", row->norm},
                                     {"train/auxiliary", row->auxiliary},
                                     {"train/tokens", (double)row->tokens},
                                     {"train/rejected", (double)row->rejected},
                                     {"speed/tokens_per_second", row->tokens_per_second},
                                     {"speed/peak_share", row->peak_share}};
    size_t count = ALWAYS;
    if (row->shared)
        scalars[count++] = (ls_scalar){"speed/communication_share", row->communication};
    if (row->validated) scalars[count++] = (ls_scalar){"validation/loss", row->validation};
    LS_TRY(ls_events_add(ctx, metrics->events.file, metrics->events.path, wall_time(), row->step,
                         scalars, count));
    /* a watcher sees rows as they come; the disk is only waited for at checkpoints */
    output *outputs[] = {&metrics->jsonl, &metrics->csv, &metrics->events};
    for (int i = 0; i < 3; i++)
        if (fflush(outputs[i]->file) != 0)
            return LS_FAIL(ctx, LS_EIO, "writing %s: %s", outputs[i]->path, strerror(errno));
    return LS_OK;
}

ls_status ls_metrics_rewind(ls_ctx *ctx, ls_metrics *metrics, int64_t step) {
    LS_TRY(close_output(ctx, &metrics->jsonl));
    LS_TRY(close_output(ctx, &metrics->csv));
    LS_TRY(open_both(ctx, metrics, step));
    return ls_events_restart(ctx, metrics->events.file, metrics->events.path, wall_time(),
                             step + 1);
}

ls_status ls_metrics_sync(ls_ctx *ctx, ls_metrics *metrics) {
    output *outputs[] = {&metrics->jsonl, &metrics->csv, &metrics->events};
    for (int i = 0; i < 3; i++)
        if (fflush(outputs[i]->file) != 0 || fsync(fileno(outputs[i]->file)) != 0)
            return LS_FAIL(ctx, LS_EIO, "writing %s: %s", outputs[i]->path, strerror(errno));
    return LS_OK;
}

ls_status ls_metrics_close(ls_ctx *ctx, ls_metrics *metrics) {
    if (metrics == NULL) return LS_OK;
    ls_status first = close_output(ctx, &metrics->jsonl);
    ls_status second = close_output(ctx, &metrics->csv);
    ls_status third = close_output(ctx, &metrics->events);
    ls_free(ctx, metrics);
    return first != LS_OK ? first : second != LS_OK ? second : third;
}

static void short_number(double value, char *out, size_t bytes) {
    if (value >= 1e6)
        snprintf(out, bytes, "%.2fM", value / 1e6);
    else if (value >= 1e4)
        snprintf(out, bytes, "%.1fk", value / 1e3);
    else
        snprintf(out, bytes, "%.0f", value);
}

void ls_metrics_line(const ls_metrics_row *row, int64_t steps, double seconds_left, char *out,
                     size_t bytes) {
    char speed[32], share[32] = "", waits[32] = "", left[48] = "", validation[40] = "";
    if (row->validated)
        snprintf(validation, sizeof validation, "  validation %.4f", row->validation);
    short_number(row->tokens_per_second, speed, sizeof speed);
    if (row->peak_share > 0 && row->peak_share <= 1) /* above 1 the peak was taken too low */
        snprintf(share, sizeof share, "  %.0f%% of peak", 100 * row->peak_share);
    if (row->shared)
        snprintf(waits, sizeof waits, "  %.0f%% communication", 100 * row->communication);
    if (seconds_left >= 0) {
        long long s = (long long)(seconds_left + 0.5);
        if (s >= 3600)
            snprintf(left, sizeof left, "  %lldh%02lldm left", s / 3600, s / 60 % 60);
        else if (s >= 60)
            snprintf(left, sizeof left, "  %lldm%02llds left", s / 60, s % 60);
        else
            snprintf(left, sizeof left, "  %llds left", s);
    }
    snprintf(out, bytes, "step %lld/%lld  loss %.4f%s  lr %.2e  norm %.2f  %s tokens/s%s%s%s",
             (long long)row->step, (long long)steps, row->loss, validation, row->rate, row->norm,
             speed, share, waits, left);
}
