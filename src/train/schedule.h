/* Learning-rate schedules: pure functions of the step. A linear warm-up, then one of four ways. */
#ifndef LS_TRAIN_SCHEDULE_H
#define LS_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum {
    LS_SCHEDULE_POLYNOMIAL, /* from peak to floor as (1 - progress)^power */
    LS_SCHEDULE_COSINE,     /* from peak to floor along half a cosine */
    LS_SCHEDULE_WSD,        /* peak, and over the last share of the steps down to floor, linearly */
    LS_SCHEDULE_CONSTANT,   /* peak */
} ls_schedule_kind;

typedef struct ls_schedule {
    ls_schedule_kind kind;
    double peak, floor;
    int64_t warmup, steps; /* steps of all, warm-up included */
    double power;          /* POLYNOMIAL */
    double decay_share;    /* WSD: of all steps */
} ls_schedule;

/* The rate of the update with number `step`, from 0. The warm-up's first rate is peak / warmup and
 * its last is peak; at `steps` and after the rate is the floor (constant: the peak). */
double ls_schedule_rate(const ls_schedule *schedule, int64_t step);

#endif
