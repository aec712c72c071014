/* An evaluation of a trained run: its model, data and settings opened together, measured, and
 * written beside the run. ls_evaluation_open, _run, _json, _write, _clear. */
#ifndef LS_EVAL_EVALUATION_H
#define LS_EVAL_EVALUATION_H

#include "base/settings.h"
#include "data/data.h"
#include "eval/eval.h"
#include "task/task.h"
#include "train/trained.h"

/* Everything is borrowed. */
typedef struct ls_evaluation_request {
    const char *path; /* folder of a run, of one of its checkpoints, or of a public checkpoint */
    /* or NULL: what the config.yaml of a run that is not there would say. In a rehearsal alone:
     * there are no weights. */
    const ls_settings *planned;
    /* Sections eval, data or task, extend, and mixer where it may differ at test: they go before
     * what the run says. What is read is marked as used. */
    const ls_settings *settings;
    const ls_dtype *type; /* NULL: as trained */
    const char *cache;    /* of token files: see ls_data_open */
    const char *paths;    /* of a planned run: the folder whose paths these are (ls_path_find) */
    uint64_t seed;        /* of a task's samples */
} ls_evaluation_request;

typedef struct ls_evaluation {
    ls_ctx *ctx;
    const char *cache, *paths;
    uint64_t seed;
    ls_trained trained;
    ls_eval_settings settings;
    ls_task task;            /* of the run; type NULL: a corpus */
    ls_data_settings data;   /* the corpus, always with the run's tokenizer */
    bool data_given;         /* documents, or a task's files, are the request's own */
    bool test_alone;         /* test documents of the request's own: no others are opened */
    ls_eval_results results; /* of ls_evaluation_run */
    uint64_t data_hash;      /* of the corpus, or of those test documents, likewise */
} ls_evaluation;

/* Opens the run and reads all settings before any data are touched; the caller then looks whether
 * some were not used (ls_settings_finish). Clear *out in any case. */
ls_status ls_evaluation_open(ls_ctx *ctx, const ls_evaluation_request *request, ls_evaluation *out);
/* The corpus that is measured on; the caller closes it. LS_EINPUT where nothing is kept for
 * testing. */
ls_status ls_evaluation_data(const ls_evaluation *evaluation, ls_dataset *out);
/* Measures: fills the results. */
ls_status ls_evaluation_run(ls_evaluation *evaluation, const ls_eval_hooks *hooks);
/* The most memory that a process takes at one time: bytes[i] with every text cut over 2^i ranks, up
 * to eval.context. Nothing is measured. */
enum { LS_EVALUATION_FORECASTS = 16 };
typedef struct ls_evaluation_forecast {
    int counts;
    size_t bytes[LS_EVALUATION_FORECASTS];
} ls_evaluation_forecast;
ls_status ls_evaluation_foresee(ls_ctx *ctx, const ls_evaluation_request *request,
                                ls_evaluation_forecast *out);
json_t *ls_evaluation_forecast_json(const ls_evaluation_forecast *forecast);
void ls_evaluation_forecast_print(ls_ctx *ctx, const ls_evaluation_forecast *forecast,
                                  ls_text *out);
/* The results, and what they are of: step, corpus or task, extension, all settings. A new
 * reference, NULL where memory is short. */
json_t *ls_evaluation_json(const ls_evaluation *evaluation);
/* Writes that to eval/ in the run's folder (public checkpoints have none), under a name that no
 * other measurement has, and the losses of all tokens where settings.losses names a file. */
ls_status ls_evaluation_write(const ls_evaluation *evaluation, const json_t *json);
void ls_evaluation_clear(ls_evaluation *evaluation);

#endif
