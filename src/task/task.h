/* Tasks: sequences with answers that can be checked. Most are made by the program; some are read
 * from files that the user has.
 *
 * A sample that is made is a pure function of (set, seed, number, length, options), so nothing is
 * stored, a run that goes on draws the same ones, and any number of tests agree on theirs. Training
 * and test samples come from streams of random numbers that have nothing in common. One file here
 * is one task: src/task/NAME.c defines ls_task_NAME. */
#ifndef LS_TASK_TASK_H
#define LS_TASK_TASK_H

#include "base/random.h"
#include "base/settings.h"
#include "task/lib/records.h"

typedef struct ls_task_type {
    const char *name, *summary, *paper;
    ls_option_table options;
    int64_t length;  /* that of the source */
    int64_t classes; /* of a sample; 0: tokens are predicted where they are scored */
    bool one_length; /* samples are what they are: tests go to other lengths only where asked to */
    bool bytes;      /* tokens are the bytes of a text: see data.mix */
    bool pairs;      /* with classes: a sample is two sequences, one behind the other */
    bool costly;     /* a sample takes long to make, and its tokens are bytes: training keeps those
                        that it will see again */
    int64_t (*vocabulary)(const void *options);
    /* Refuses options and lengths that do not fit (LS_EUSE, one sentence). */
    ls_status (*check)(ls_ctx *ctx, const void *options, int64_t length);
    /* Fills inputs[length] and those of targets[length] that are scored: all are -1 before. With
     * classes there is one target, and inputs behind the sample's end are -1. Draws from `key`
     * alone, in streams of its own naming (ls_task_stream). */
    void (*fill)(const void *options, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets);
    /* Where the first target is, if that is the same in all samples; NULL: it is not, or there are
     * classes. */
    int64_t (*first_answer)(const void *options, int64_t length);
    /* In place of fill, for tasks with classes whose options are ls_records_options: reads and
     * checks all records of a folder (LS_EINPUT names the file) ... */
    ls_status (*load)(ls_ctx *ctx, const char *folder, ls_records *out);
    /* ... of which this makes at most `room` tokens; their number. */
    int64_t (*encode)(ls_bytes text, int64_t room, int32_t *tokens);
} ls_task_type;

extern const ls_task_type *const ls_task_types[];
extern const size_t ls_task_count;

/* What every task has. */
typedef struct ls_task_settings {
    int loss; /* 0: where the task scores; 1: every next token too, in training */
    int64_t samples;
} ls_task_settings;
extern const ls_option_table ls_task_options; /* section "task", with those of the type */

/* A chosen task with its options. */
typedef struct ls_task {
    const ls_task_type *type; /* NULL: none was chosen */
    void *options;
    ls_task_settings settings;
    ls_records *records; /* of files; NULL before they are opened, and where none are read */
} ls_task;

/* From `task` and `task.KEY`; without `task` none is chosen. LS_EUSE names the nearest. Clear *out
 * in any case. */
ls_status ls_task_read(ls_ctx *ctx, const ls_settings *settings, const ls_fact *facts,
                       ls_task *out);
/* The task of a name, with options from the keys that begin with `section` ("task.NAME."). */
ls_status ls_task_read_named(ls_ctx *ctx, const ls_settings *settings, const ls_fact *facts,
                             const char *name, const char *section, ls_task *out);
void ls_task_clear(ls_ctx *ctx, ls_task *task);
/* The settings as YAML that ls_task_read reads back. */
void ls_task_print(ls_ctx *ctx, const ls_task *task, ls_text *out);
/* Its options alone, under a section. */
void ls_task_print_options(ls_ctx *ctx, const ls_task *task, const char *section, ls_text *out);
ls_status ls_task_check(ls_ctx *ctx, const ls_task *task, int64_t length);
int64_t ls_task_vocabulary(const ls_task *task);
/* Inputs of a sample: its length, or twice that for a pair. */
int64_t ls_task_inputs(const ls_task *task, int64_t length);
/* Targets of a sample: its length, or one for a class. */
int64_t ls_task_targets(const ls_task *task, int64_t length);

typedef enum { LS_TASK_TRAIN, LS_TASK_TEST } ls_task_set;
/* Opens the files of a task that reads some, before its first sample is asked for. LS_EUSE where
 * task.path is not given, LS_EINPUT where the files are not as they should be or have nothing for
 * the set. The path is that of `run`, the folder of a run whose settings it is of, or NULL
 * (ls_path_find). */
ls_status ls_task_open(ls_ctx *ctx, ls_task *task, ls_task_set set, const char *run);
/* How many samples the files have for a set; 0: it has no end. */
int64_t ls_task_stored(const ls_task *task, ls_task_set set);
/* Of all that the files have for a set; 0: the task reads none. */
ls_status ls_task_hash(ls_ctx *ctx, const ls_task *task, ls_task_set set, uint64_t *out);
/* One sample: inputs[ls_task_inputs] and targets[ls_task_targets], -1 where nothing is scored. */
void ls_task_sample(const ls_task *task, ls_task_set set, uint64_t seed, int64_t number,
                    int64_t length, int32_t *inputs, int32_t *targets);
/* The training sample that stands at a place of the endless sequence of them: a new one each time,
 * or with task.samples, and from files, one of so many, in another order each time round. */
void ls_task_training_sample(const ls_task *task, uint64_t seed, int64_t place, int64_t length,
                             int32_t *inputs, int32_t *targets);
/* Its number, and how many numbers there are; 0: no end. */
int64_t ls_task_training_number(const ls_task *task, uint64_t seed, int64_t place);
int64_t ls_task_training_samples(const ls_task *task);

/* ---- in two parts ---- */

/* For models that read a source and then answer, samples of tokens are cut before the first input
 * that has a target: all before it is the source, and what follows goes on with the answers. Most
 * tokens that the parts have. */
typedef struct ls_task_parts {
    int64_t source, rest;
} ls_task_parts;
ls_task_parts ls_task_parts_of(const ls_task *task, int64_t length);
/* Refuses a task that has no such parts, or scores what is read (LS_EUSE, one sentence). */
ls_status ls_task_parts_check(ls_ctx *ctx, const ls_task *task);
/* Cuts a sample [length]: cut[source + rest], both parts filled up with -1, and the targets of the
 * second, scored[rest]. */
void ls_task_cut(ls_task_parts parts, int64_t length, const int32_t *inputs, const int32_t *targets,
                 int32_t *cut, int32_t *scored);

/* ---- for tasks ---- */

/* The same key for another purpose. */
ls_random ls_task_stream(ls_random key, const char *purpose);
/* Independent tokens, uniform in [0, bound). */
void ls_task_tokens(ls_random key, int64_t bound, int64_t count, int32_t *tokens);

#endif
