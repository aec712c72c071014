/* A study: arms that train a model, and arms that test another arm's weights under a test-time
 * method; each with several seeds. Every training and every evaluation is a job: a call of the
 * program, in its own process and with its own log.
 *
 * An arm may also begin with a checkpoint or with what another arm trained: it is trained on where
 * the arm has train.steps, and else only tested.
 *
 * OUT/study.yaml           the settings of the study, as they were resolved
 * OUT/arms/ARM/seed-N/     a run folder (arms that train), with
 *     trained.json         what the training gave, written once it has ended
 *     result.json          what the evaluation gave, written once it has ended
 *     suite-NAME.json      what a suite gave; NAME-HASH/ has its samples
 *     train.log, eval.log, suite-NAME.log   what the jobs said
 * OUT/results.json         everything measured: the same bytes however the study was cut
 * OUT/timing.json          seconds, tokens per second, bytes: other each time
 * OUT/report.html, OUT/results.csv   made from these two alone (src/report) */
#ifndef LS_STUDY_STUDY_H
#define LS_STUDY_STUDY_H

#include <jansson.h>
#include <signal.h>

#include "base/file.h"
#include "base/settings.h"
#include "ranks/ranks.h"
#include "suite/suite.h"
#include "train/trained.h"

enum { LS_STUDY_NAME_BYTES = 64, LS_STUDY_PATH_BYTES = 4096, LS_STUDY_HASH_BYTES = 17 };

typedef struct ls_study_keys {
    char out[LS_OPTION_TEXT_BYTES], title[LS_OPTION_TEXT_BYTES], about[LS_OPTION_TEXT_BYTES];
    char suites[LS_OPTION_TEXT_BYTES]; /* of arms that say nothing else */
    ls_ints seeds;
    int64_t jobs;
    int launch;              /* ls_study_launch */
    int dtype;               /* "auto", as trained; read from the settings, for an arm may differ */
    int sweep_by;            /* ls_sweep_by */
    int sweep_keep;          /* ls_sweep_keep */
    double equal_parameters; /* percent; 0: arms may differ */
    bool check;
} ls_study_keys;
typedef enum { LS_LAUNCH_HERE, LS_LAUNCH_SLURM } ls_study_launch;
typedef enum { LS_SWEEP_PRODUCT, LS_SWEEP_ZIP } ls_sweep_by;
typedef enum { LS_SWEEP_ALL, LS_SWEEP_BEST } ls_sweep_keep;
extern const ls_option_table ls_study_options;

/* A suite that an arm is asked. */
typedef struct ls_study_suite {
    char name[LS_STUDY_NAME_BYTES]; /* its label, or the suite's own name */
    const ls_suite_type *type;
    ls_settings settings; /* suite.KEY */
} ls_study_suite;

typedef struct ls_study_arm {
    char name[LS_STUDY_NAME_BYTES], label[LS_OPTION_TEXT_BYTES];
    char one_of[LS_STUDY_NAME_BYTES]; /* arms that share it compete; "": with none */
    int64_t parent; /* index of the arm whose weights it tests; -1: they are its own */
    int64_t begins; /* index of the arm whose weights its training begins with; -1: none */
    bool trains;    /* its own weights: from scratch, a checkpoint or another arm's */
    bool sorted;    /* its keys are where they belong */
    char checkpoint[LS_OPTION_TEXT_BYTES]; /* a run or a public checkpoint; "": none */
    char found[LS_OPTION_TEXT_BYTES];      /* where it lies: there, or so from above the study */
    int64_t parameters;                    /* of the checkpoint */
    ls_settings given;                     /* what the study file says of this arm alone */
    ls_settings training; /* sections model, mixer, position, data, train; of the parent if any */
    ls_settings testing;  /* eval.KEY, dtype, extend; mixer and task where they may differ */
    ls_settings asking;   /* suites, suite.KEY, suite.NAME.KEY */
    ls_study_suite *suites;
    size_t suite_count;
    ls_ints seeds;
    int64_t trained_length; /* what its lengths are measured against */
} ls_study_arm;

/* What a study is made from; everything is borrowed for the study's life. */
typedef struct ls_study_request {
    /* The study file, overridden: arms.*, sweep.*, and sections that all arms share. What is read
     * is marked as used. */
    const ls_settings *settings;
    const ls_study_keys *keys;
    const char *file;    /* path of the study file: it names the study */
    const char *command; /* how the study was asked for: results.json tells */
    const char *program; /* path of the program, whose train and eval are the jobs */
    const char *device;  /* of the jobs: "cpu", "cuda" */
    const char *cache;   /* of the jobs; empty: the user's */
    int64_t threads;     /* of each job; 0: as the jobs share the processors */
    int ranks;           /* that share the jobs, one each; 0 or 1: alone */
} ls_study_request;

typedef struct ls_study {
    ls_ctx *ctx;
    ls_study_request from;
    ls_study_keys keys;             /* with the folder and the number of jobs settled */
    char name[LS_STUDY_NAME_BYTES]; /* of the study file, without folder and ending */
    int64_t threads;                /* per job; jobs is in keys */
    ls_settings common;             /* what the study file says outside arms */
    ls_settings sweep;              /* lists of values that arms are made of: see study_sweep.c */
    ls_study_arm *arms;
    size_t count, capacity;
} ls_study;

typedef struct ls_study_hooks {
    const volatile sig_atomic_t *stop; /* or NULL: not 0 asks the jobs to end: LS_ESTOP */
    /* or NULL: a line for every job that ends, and how many of how many are done */
    void (*progress)(void *user, const char *line, size_t done, size_t count);
    /* or NULL: every second, a line for each job that runs and one for the whole */
    void (*state)(void *user, const char *lines);
    ls_ranks
        *ranks; /* or NULL: alone. The others serve (study_process.h) until the study is over */
    void *user;
} ls_study_hooks;

/* Reads and checks everything: every arm's model, training and evaluation; the caller then looks
 * whether some settings were not used (ls_settings_finish). Clear *out in any case. */
ls_status ls_study_read(ls_ctx *ctx, const ls_study_request *request, ls_study *out);
void ls_study_clear(ls_study *study);
/* Runs all jobs that are not done, and writes the results after each evaluation. LS_ESTOP where it
 * was stopped: the same study goes on later; the error of the first job that failed, once all
 * others are done. */
ls_status ls_study_run(ls_study *study, const ls_study_hooks *hooks);
/* Parameters, memory, tokens and time of every arm as a table, and of all of them; a few steps of
 * each training are timed, nothing is kept. */
ls_status ls_study_check(const ls_study *study, ls_text *out);
/* One line per arm of what results.json holds, and where the files are. */
ls_status ls_study_summary(const ls_study *study, ls_text *out);

/* Whether a path is a study file (.yaml) or the folder of a study. */
bool ls_study_is_at(const char *path);
/* {"study", "settings", "arms": {NAME: settings}}, of a folder also how many seeds are "done" and
 * whether it is "finished"; LS_EINPUT where it is no study. A new reference. */
ls_status ls_study_describe(ls_ctx *ctx, const char *path, json_t **out);
void ls_study_describe_print(ls_ctx *ctx, const json_t *study, ls_text *out);
/* The name of a study that is made of sweep.* alone: "sweep-lr-mixer"; false where there are
 * none. */
bool ls_study_sweep_name(const ls_settings *settings, char *out, size_t bytes);

/* ---- the parts of a study ---- */

/* The settings as YAML that ls_study_read reads back. */
void ls_study_print(const ls_study *study, ls_text *out);
/* Where the weights are that an arm tests. */
ls_status ls_study_weights(const ls_study *study, size_t arm, int64_t seed, char *out,
                           size_t bytes);
/* What an arm that opens a checkpoint, or tests one, makes of it; clear *out in any case. */

ls_status ls_study_checkpoint(const ls_study *study, const ls_study_arm *arm, ls_trained *out);
/* The checkpoint whose weights an arm tests as they are; NULL: they are trained here. */
const char *ls_study_opens(const ls_study *study, const ls_study_arm *arm);
/* OUT/arms/ARM/seed-N, and a file in it. */
ls_status ls_study_folder(const ls_study *study, size_t arm, int64_t seed, char *out, size_t bytes);
ls_status ls_study_file(const ls_study *study, size_t arm, int64_t seed, const char *file,
                        char *out, size_t bytes);
/* What a job does: a training, an evaluation, or the arm's suite number `kind - LS_STUDY_ASK`. */
enum { LS_STUDY_TRAIN, LS_STUDY_EVAL, LS_STUDY_ASK };
/* Names the settings of a job: what its result must carry to be believed. */
ls_status ls_study_hash(const ls_study *study, size_t arm, int64_t seed, size_t kind,
                        char out[LS_STUDY_HASH_BYTES]);
/* The stored result of a job; *out NULL where there is none, or it is of other settings. */
ls_status ls_study_stored(const ls_study *study, size_t arm, int64_t seed, size_t kind,
                          json_t **out);
ls_status ls_study_store(const ls_study *study, size_t arm, int64_t seed, size_t kind,
                         json_t *result);
/* What an arm may have at test that its weights do not depend on: extend.KEY, mixer.KEY, dtype. */
bool ls_study_may_differ(const char *key);

/* Which suites an arm is asked, from its `asking`. LS_EUSE where a key has no effect on any. */
ls_status ls_study_read_suites(ls_ctx *ctx, ls_study_arm *arm, const ls_model_config *config,
                               bool text);
void ls_study_suites_clear(ls_ctx *ctx, ls_study_arm *arm);
/* What the seeds of an arm gave, a list with an object for each suite. */
ls_status ls_study_suites_json(const ls_study *study, size_t arm, json_t **out);

/* Says (ls_say) of which arms the stored results were made with other data than their corpus holds
 * now. */
ls_status ls_study_compare_data(const ls_study *study);

/* The arm that competes, or was trained from scratch, whose weights this one tests or goes on
 * from. */
size_t ls_study_root(const ls_study *study, size_t arm);
/* Arms with the same one_of compete: each is trained with its first seed, and the one with the
 * lowest validation loss alone has further seeds and is tested, with the arms that rest on it. */
bool ls_study_compete(const ls_study *study, size_t a, size_t b); /* with itself: at all */
/* Whether a job is the training that decides. */
bool ls_study_is_trial(const ls_study *study, size_t arm, int64_t seed, size_t kind);
typedef struct ls_study_verdict {
    bool open, chosen; /* not judged yet; goes on */
    double loss;       /* by which it was judged; NAN: none */
} ls_study_verdict;
/* By the stored results; `all`: open as long as one is missing, else those that are there
 * decide. */
ls_status ls_study_judge(const ls_study *study, size_t arm, bool all, ls_study_verdict *out);
/* LS_EUSE where equal_parameters is given and an arm that trains has more or fewer parameters. */
ls_status ls_study_check_sizes(const ls_study *study);

/* The learning curve of an arm that trains, from the rows that its runs have so far: {step, loss,
 * loss_min, loss_max} over seeds, of a member of the rows; NULL where there is no memory for JSON. */
ls_status ls_study_curve(const ls_study *study, size_t arm, const char *key, json_t **out);

/* Writes results.json, timing.json and the pages from the stored results; `finished`: no job is
 * left to do. */
ls_status ls_study_publish(const ls_study *study, bool finished);

#endif
