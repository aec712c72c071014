/* The guard between a gradient and the weights. Every step's loss and gradient norm are judged
 * BEFORE the update: what is not finite, or lies far above what the last accepted steps showed, is
 * rejected. "Far" is measured robustly: more than `spread` deviations above the median, where the
 * deviation comes from the median absolute deviation. Rejected values never enter the window. */
#ifndef LS_TRAIN_GUARD_H
#define LS_TRAIN_GUARD_H

#include "base/json.h"

typedef enum {
    LS_GUARD_SKIP,     /* leave the step out */
    LS_GUARD_LOWER,    /* leave it out, and go on with a lower learning rate */
    LS_GUARD_ROLLBACK, /* go back to the last good checkpoint, and on with the data after this */
    LS_GUARD_STOP,     /* end the run at once */
} ls_guard_policy;

enum { LS_GUARD_WINDOW_MAX = 1024 };

typedef struct ls_guard_settings {
    ls_guard_policy policy;
    int64_t window; /* accepted steps that are remembered; none is a spike before half of them */
    double spread;  /* of the loss; 0: spikes are let through */
    double norm_spread; /* of the gradient norm; 0: let through */
    int64_t rejections; /* so many in a row end the run */
    double lower;       /* factor on the learning rate, at each rejection under LS_GUARD_LOWER */
} ls_guard_settings;

typedef struct ls_guard_window {
    int64_t count, next;
    double values[LS_GUARD_WINDOW_MAX];
} ls_guard_window;

typedef struct ls_guard {
    ls_guard_settings settings;
    ls_guard_window loss, norm;
    int64_t rejected, in_a_row; /* of all steps, and of the last ones */
    double rate_factor;         /* 1 unless LS_GUARD_LOWER acted */
} ls_guard;

typedef enum {
    LS_GUARD_ACCEPTED,
    LS_GUARD_LOSS_NOT_FINITE,
    LS_GUARD_NORM_NOT_FINITE,
    LS_GUARD_LOSS_SPIKE,
    LS_GUARD_NORM_SPIKE,
} ls_guard_verdict;

/* Caller's storage, nothing to free. */
void ls_guard_init(ls_guard *guard, const ls_guard_settings *settings);
/* Judges one step and remembers it. */
ls_guard_verdict ls_guard_judge(ls_guard *guard, double loss, double norm);
/* Forgets what steps were like: the model is another one from now on. */
void ls_guard_forget(ls_guard *guard);
const char *ls_guard_reason(ls_guard_verdict verdict);
/* True where the run has to end after the last verdict. */
bool ls_guard_exhausted(const ls_guard *guard);

/* All but the settings, exactly. *out is a new reference; LS_ENOMEM, or LS_EINPUT for a state that
 * does not fit (then the guard is unchanged). `what` names the source. */
ls_status ls_guard_save(ls_ctx *ctx, const ls_guard *guard, json_t **out);
ls_status ls_guard_load(ls_ctx *ctx, const json_t *from, const char *what, ls_guard *guard);

#endif
