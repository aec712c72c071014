/* Learning curves, from the rows that runs write as they go (metrics.jsonl). A run that was cut has
 * the rows of one that was not, so the curves of a finished study are the same bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study/study_progress.h"

enum { POINTS_MAX = 200 };

/* Rows of one run. */
typedef struct rows {
    int64_t *step;
    double *loss;
    size_t count, room;
} rows;

static ls_status rows_add(ls_ctx *ctx, rows *list, int64_t step, double loss) {
    if (list->count == list->room) {
        const size_t room = list->room == 0 ? 256 : 2 * list->room;
        int64_t *steps = ls_new_raw(ctx, room, sizeof *steps);
        double *losses = ls_new_raw(ctx, room, sizeof *losses);
        if (steps == NULL || losses == NULL) {
            ls_free(ctx, steps);
            ls_free(ctx, losses);
            return LS_ENOMEM;
        }
        if (list->count > 0) memcpy(steps, list->step, list->count * sizeof *steps);
        if (list->count > 0) memcpy(losses, list->loss, list->count * sizeof *losses);
        ls_free(ctx, list->step);
        ls_free(ctx, list->loss);
        *list = (rows){steps, losses, list->count, room};
    }
    list->step[list->count] = step;
    list->loss[list->count++] = loss;
    return LS_OK;
}

static void rows_clear(ls_ctx *ctx, rows *list) {
    ls_free(ctx, list->step);
    ls_free(ctx, list->loss);
}

double ls_study_member(const char *line, size_t length, const char *key) {
    char copy[48];
    const char *found = memmem(line, length, key, strlen(key));
    if (found == NULL) return NAN;
    found += strlen(key);
    const size_t left = (size_t)(line + length - found);
    const size_t bytes = left < sizeof copy - 1 ? left : sizeof copy - 1;
    memcpy(copy, found, bytes);
    copy[bytes] = '\0';
    char *end;
    const double value = strtod(copy, &end);
    return end == copy ? NAN : value;
}

/* A row that is being written, and what is no row, are left out. */
static ls_status read_rows(ls_ctx *ctx, const char *path, const char *key, rows *out) {
    ls_whole whole;
    ls_status status = LS_OK;
    LS_TRY(ls_whole_read(ctx, path, false, &whole));
    for (size_t at = 0; at < whole.length && status == LS_OK;) {
        const char *line = (const char *)whole.bytes + at;
        const char *end = memchr(line, '\n', whole.length - at);
        if (end == NULL) break;
        const size_t length = (size_t)(end - line);
        const double step = ls_study_member(line, length, "\"step\":");
        const double loss = ls_study_member(line, length, key);
        if (step >= 0 && step < 9e15 && isfinite(loss))
            status = rows_add(ctx, out, (int64_t)step, loss);
        at += length + 1;
    }
    ls_whole_free(&whole);
    return status;
}

/* ---- over seeds ---- */

typedef struct point {
    double step, sum, low, high;
    int64_t n;
} point;

/* Rows of all seeds are at the same steps; a seed that is not as far has fewer of them. */
static json_t *curve_json(const rows *seeds, int64_t count) {
    size_t longest = 0;
    for (int64_t s = 0; s < count; s++)
        if (seeds[s].count > longest) longest = seeds[s].count;
    const size_t stride = (longest + POINTS_MAX - 1) / POINTS_MAX;
    json_t *step = json_array(), *loss = json_array(), *low = json_array(), *high = json_array();
    for (size_t first = 0; first < longest; first += stride) {
        point p = {.low = INFINITY, .high = -INFINITY};
        for (int64_t s = 0; s < count; s++) {
            double sum = 0;
            size_t n = 0;
            for (size_t i = first; i < first + stride && i < seeds[s].count; i++, n++) {
                sum += seeds[s].loss[i];
                p.step = fmax(p.step, (double)seeds[s].step[i]);
            }
            if (n == 0) continue;
            p.sum += sum / (double)n;
            p.low = fmin(p.low, sum / (double)n);
            p.high = fmax(p.high, sum / (double)n);
            p.n++;
        }
        json_array_append_new(step, json_integer((json_int_t)p.step));
        json_array_append_new(loss, json_real(p.sum / (double)p.n));
        json_array_append_new(low, json_real(p.low));
        json_array_append_new(high, json_real(p.high));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "step", step, "loss", loss, "loss_min", low,
                     "loss_max", high);
}

/* The rows of a seed; none where it has none yet, or no file that can hold any. */
static ls_status read_seed(const ls_study *study, size_t arm, int64_t seed, const char *key,
                           rows *out) {
    ls_ctx *ctx = study->ctx;
    char path[LS_STUDY_PATH_BYTES];
    LS_TRY(ls_study_file(study, arm, seed, "metrics.jsonl", path, sizeof path));
    if (!ls_path_exists(path)) return LS_OK;
    const ls_status status = read_rows(ctx, path, key, out);
    if (status != LS_EINPUT) return status; /* one that cannot be read now may be whole */
    ctx->error = (ls_error){0};
    return LS_OK;
}

ls_status ls_study_curve(const ls_study *study, size_t arm, const char *key, json_t **out) {
    const ls_ints *seeds = &study->arms[arm].seeds;
    char member_key[64];
    rows all[LS_OPTION_LIST_MAX] = {0};
    ls_status status = LS_OK;
    *out = NULL;
    snprintf(member_key, sizeof member_key, "\"%s\":", key);
    for (int64_t i = 0; status == LS_OK && i < seeds->count; i++)
        status = read_seed(study, arm, seeds->at[i], member_key, &all[i]);
    if (status == LS_OK) *out = curve_json(all, seeds->count);
    for (int64_t i = 0; i < seeds->count; i++) rows_clear(study->ctx, &all[i]);
    return status;
}
