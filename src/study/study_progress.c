/* Where a study stands: a line for every job that runs, and how long the whole still takes. */
#include "study/study_progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/source.h"
#include "train/metrics.h"
#include "train/train.h"

enum { TAIL_BYTES = 4096 };

/* The last whole row of a run's metrics. Whatever is wrong with the file: there is none. */
static bool last_row(const ls_study *study, size_t arm, int64_t seed, ls_metrics_row *out) {
    char path[LS_STUDY_PATH_BYTES], tail[TAIL_BYTES + 1];
    if (ls_study_file(study, arm, seed, "metrics.jsonl", path, sizeof path) != LS_OK) return false;
    ls_ctx quiet = *study->ctx;
    ls_source *source;
    size_t bytes;
    if (ls_source_open(&quiet, path, &source, &bytes) != LS_OK) return false;
    const size_t got = bytes < TAIL_BYTES ? bytes : TAIL_BYTES;
    ls_source_read(source, bytes - got, got, tail);
    ls_source_close(&quiet, source);
    tail[got] = '\0';
    char *end = strrchr(tail, '\n');
    if (end == NULL) return false;
    *end = '\0';
    const char *start = strrchr(tail, '\n'), *row = start == NULL ? tail : start + 1;
    const size_t length = strlen(row);
    *out = (ls_metrics_row){
        .step = (int64_t)fmin(fmax(ls_study_member(row, length, "\"step\":"), 0), 9e15),
        .loss = ls_study_member(row, length, "\"loss\":"),
        .rate = ls_study_member(row, length, "\"lr\":"),
        .norm = ls_study_member(row, length, "\"grad_norm\":"),
        .seconds = ls_study_member(row, length, "\"seconds\":"),
        .tokens_per_second = ls_study_member(row, length, "\"tokens_per_second\":")};
    return out->step > 0;
}

static int64_t steps_of(const ls_study *study, size_t arm) {
    const char *given = ls_settings_get(&study->arms[arm].training, "train.steps");
    ls_train_settings usual;
    ls_ctx quiet = *study->ctx;
    if (given != NULL) return strtoll(given, NULL, 10);
    return ls_options_default(&quiet, &ls_train_options, &usual) == LS_OK ? usual.steps : 0;
}

void ls_study_job_line(const ls_study *study, ls_study_job *job, char *out, size_t bytes) {
    const char *name = study->arms[job->arm].name;
    ls_metrics_row row;
    job->left = -1;
    if (job->kind != LS_STUDY_TRAIN) {
        snprintf(out, bytes, "  %s, seed %" PRId64 "  evaluating for %.0f s", name, job->seed,
                 job->elapsed);
    } else if (!last_row(study, job->arm, job->seed, &row)) {
        snprintf(out, bytes, "  %s, seed %" PRId64 "  starting", name, job->seed);
    } else {
        const int64_t steps = steps_of(study, job->arm);
        job->left = row.seconds * (double)(steps - row.step) / (double)row.step;
        if (!(job->left >= 0)) job->left = -1;
        const double speed = row.tokens_per_second;
        char time[32];
        ls_study_put_time(job->left, time, sizeof time);
        snprintf(out, bytes,
                 "  %s, seed %" PRId64 "  step %" PRId64 "/%" PRId64 "  loss %.4f  %.*f%s tokens/s"
                 "  %s left",
                 name, job->seed, row.step, steps, row.loss, speed >= 1e3 ? 1 : 0,
                 speed >= 1e6   ? 1e-6 * speed
                 : speed >= 1e3 ? 1e-3 * speed
                                : speed,
                 speed >= 1e6   ? "M"
                 : speed >= 1e3 ? "k"
                                : "",
                 job->left < 0 ? "?" : time);
    }
}

/* ---- the whole ---- */

/* What a job takes, from those that are known: of its arm, or else of all. */
static double expected(const ls_study_job *jobs, size_t count, const ls_study_job *of,
                       size_t kind) {
    double own = 0, all = 0;
    int own_count = 0, all_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (jobs[i].kind != kind || !(jobs[i].took > 0)) continue;
        all += jobs[i].took;
        all_count++;
        if (jobs[i].arm != of->arm) continue;
        own += jobs[i].took;
        own_count++;
    }
    return own_count > 0 ? own / own_count : all_count > 0 ? all / all_count : -1;
}

double ls_study_left(const ls_study *study, ls_study_job *jobs, size_t count) {
    double sum = 0, longest = 0;
    bool known = false;
    for (size_t i = 0; i < count; i++)
        if (jobs[i].state == LS_JOB_RUNNING && jobs[i].left >= 0)
            jobs[i].took = jobs[i].elapsed + jobs[i].left;
    for (size_t i = 0; i < count; i++) {
        ls_study_job *j = &jobs[i];
        if (j->state != LS_JOB_WAITING && j->state != LS_JOB_RUNNING) continue;
        double whole = expected(jobs, count, j, j->kind);
        known |= whole >= 0;
        if (whole < 0 && j->kind != LS_STUDY_TRAIN)
            whole = 0.1 * expected(jobs, count, j, LS_STUDY_TRAIN);
        const double left = fmax(0, whole - (j->state == LS_JOB_RUNNING ? j->elapsed : 0));
        sum += left;
        longest = fmax(longest, left);
    }
    for (size_t i = 0; i < count; i++) /* a projection, not a measurement */
        if (jobs[i].state == LS_JOB_RUNNING) jobs[i].took = 0;
    return known ? fmax(longest, sum / (double)study->keys.jobs) : -1;
}

void ls_study_put_time(double seconds, char *out, size_t bytes) {
    const int64_t s = (int64_t)fmin(fmax(seconds, 0), 1e9);
    if (s >= 3600)
        snprintf(out, bytes, "%" PRId64 "h%02" PRId64 "m", s / 3600, s / 60 % 60);
    else if (s >= 60)
        snprintf(out, bytes, "%" PRId64 "m%02" PRId64 "s", s / 60, s % 60);
    else
        snprintf(out, bytes, "%" PRId64 "s", s);
}
