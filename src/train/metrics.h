/* What a run measures as it goes: metrics.jsonl, metrics.csv and TensorBoard event files in the run
 * folder, and the line a user sees. On resume the rows after the checkpoint are cut off, so that an
 * interrupted run leaves the same rows as an undisturbed one (the columns of time aside). */
#ifndef LS_TRAIN_METRICS_H
#define LS_TRAIN_METRICS_H

#include "base/file.h"

typedef struct ls_metrics_row {
    int64_t step;             /* steps done, this one included */
    double loss, rate, norm;  /* of this step */
    double auxiliary;         /* what is minimised beside the loss: see ls_auxiliary */
    int64_t tokens, rejected; /* since the run began */
    double seconds;           /* since the run began, without the pauses between its parts */
    double tokens_per_second; /* since the last row */
    double peak_share;        /* of the machine's measured peak; 0: not known */
    bool shared;              /* several ranks work on it, and this of the time: */
    double communication;     /* is spent in exchanges between them, since the last row */
    bool validated;           /* the validation loss was measured after this step: */
    double validation;
} ls_metrics_row;

typedef struct ls_metrics ls_metrics;

/* Opens the files of a run folder to append after cutting off what lies behind `step`, and begins a
 * new file of events. With `validates` rows may have a validation loss. There is a row at least
 * every `every` steps (0: not known): where one is missing, it is said (ls_say). LS_EIO names the
 * file that cannot be written. */
ls_status ls_metrics_open(ls_ctx *ctx, const char *folder, int64_t step, int64_t every,
                          bool validates, ls_metrics **out);
/* Writes one row everywhere; makes no allocation. */
ls_status ls_metrics_add(ls_ctx *ctx, ls_metrics *metrics, const ls_metrics_row *row);
/* Cuts the rows behind `step` off again: the run went back to it. */
ls_status ls_metrics_rewind(ls_ctx *ctx, ls_metrics *metrics, int64_t step);
/* Everything written so far is on the disk; called before a checkpoint claims its step. */
ls_status ls_metrics_sync(ls_ctx *ctx, ls_metrics *metrics);
/* Syncs and closes; frees in any case. NULL is fine. */
ls_status ls_metrics_close(ls_ctx *ctx, ls_metrics *metrics);

/* The line of progress, e.g. "step 120/1000  loss 2.3456  lr 3.0e-04  norm 0.87  12.3k tokens/s
 * 41% of peak  3m12s left". seconds_left < 0: not known. */
void ls_metrics_line(const ls_metrics_row *row, int64_t steps, double seconds_left, char *out,
                     size_t bytes);

#endif
