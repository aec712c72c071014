/* Where a study stands: what its jobs do, and how long it still takes. */
#ifndef LS_STUDY_STUDY_PROGRESS_H
#define LS_STUDY_STUDY_PROGRESS_H

#include <sys/types.h>

#include "study/study.h"

typedef enum { LS_JOB_WAITING, LS_JOB_RUNNING, LS_JOB_DONE, LS_JOB_FAILED } ls_job_state;

typedef struct ls_study_job {
    size_t arm;
    int64_t seed;
    size_t kind;   /* LS_STUDY_TRAIN, _EVAL, or a suite */
    int64_t needs; /* job that must be done before; -1: none */
    ls_job_state state;
    bool judged; /* its arm goes on, or competes with none */
    int post;    /* of one that runs: the rank where; 0: here */
    pid_t process;
    double started;
    double elapsed; /* of one that runs: seconds so far */
    double left;    /* of one that runs: seconds it still takes; -1: not known */
    double took;    /* seconds of one that has ended here; 0: not known */
} ls_study_job;

/* "  rope, seed 1  step 120/1000  loss 2.3456 ...": of a job that runs. Sets job->left. */
void ls_study_job_line(const ls_study *study, ls_study_job *job, char *out, size_t bytes);
/* Seconds that all jobs that are not done still take, from those that are; -1: not known. */
double ls_study_left(const ls_study *study, ls_study_job *jobs, size_t count);
/* The number behind `"key":` in a row of metrics.jsonl; NAN where there is none. */
double ls_study_member(const char *row, size_t length, const char *key);
/* 3m12s */
void ls_study_put_time(double seconds, char *out, size_t bytes);

#endif
