/* Benchmark suites: questions about long texts, put to a trained model and scored.
 *
 * A suite is one file, src/suite/NAME.c, that defines `const ls_suite_type ls_suite_NAME`; the
 * build lists them. It makes groups of items: the items of a group share contexts, which are
 * computed once. Everything else is common: batches, resuming, records, intervals and results. */
#ifndef LS_SUITE_SUITE_H
#define LS_SUITE_SUITE_H

#include <signal.h>

#include "base/json.h"
#include "base/random.h"
#include "suite/lib/metric.h"
#include "suite/lib/pool.h"
#include "train/trained.h"

typedef struct ls_suite_settings {
    char path[LS_OPTION_TEXT_BYTES], out[LS_OPTION_TEXT_BYTES], tasks[LS_OPTION_TEXT_BYTES];
    int form; /* ls_suite_form */
    int64_t samples, questions, depths, candidates, documents, window, batch, chunk, resamples;
    ls_ints lengths, pairs;
    bool share;
} ls_suite_settings;
extern const ls_option_table ls_suite_options; /* section "suite" */

typedef enum { LS_FORM_AUTO, LS_FORM_LIKELIHOOD, LS_FORM_GENERATE } ls_suite_form;

typedef struct ls_tokens {
    const int32_t *at;
    int64_t count;
} ls_tokens;

/* A question. Either its candidates are ranked by their log-likelihood, or the model goes on in its
 * own words. */
typedef struct ls_suite_item {
    const char *id;        /* among the items of the suite: names it in samples.jsonl */
    int64_t context;       /* of the group's contexts */
    int64_t bare;          /* the context without the evidence; -1: no contrast is made */
    ls_tokens question;    /* follows the context; may be empty */
    ls_tokens *candidates; /* [candidate_count] */
    const char **names;    /* [candidate_count]: the candidates for people */
    int64_t candidate_count, truth;
    int64_t new_tokens; /* to generate at most; 0: candidates are ranked */
    bool stop_at_line;  /* a newline ends what is generated */
    ls_answer answer;   /* its prediction is set by what is generated */
    /* How good that is: by a metric, or by a rule of the suite's own. */
    const ls_metric *metric;
    double (*judge)(ls_pool *pool, const struct ls_suite_item *item);
    const void *judge_with;
    /* Owned by the group: which part of the results it counts to. With a key "reference" it counts
     * to none of them: it is what others are held against. */
    json_t *cell;
    json_t *references;
} ls_suite_item;

typedef struct ls_suite_group {
    ls_pool pool;
    json_t *owned; /* array that keeps the cells and references alive */
    ls_tokens *contexts;
    int64_t context_count;
    ls_suite_item *items;
    int64_t item_count;
    bool started; /* contexts have what the tokenizer puts before a text, or do without */
} ls_suite_group;

typedef struct ls_suite {
    ls_ctx *ctx;
    const struct ls_suite_type *type;
    ls_suite_settings settings;
    bool generates; /* the form that was chosen */
    uint64_t seed;
    uint64_t model_hash;      /* of the weights, the description and the arithmetic */
    const ls_settings *asked; /* suite=NAME and suite.KEY: borrowed, while it is opened alone */
    const ls_settings *run;   /* the run's own settings: borrowed */
    ls_model *model;          /* with its tokenizer: borrowed */
    const ls_tokenizer *tokenizer;
    ls_encoder *encoder;
    ls_frame frame; /* of a public checkpoint's tokenizer: BOS goes before every context, once */
    int64_t window; /* tokens that the model can take at once; 0: any number */
    /* Set by the suite's open: */
    int64_t groups, *lengths; /* [groups]: about how many tokens each has, allocated by ls_new */
    double chance;            /* of the score; NAN: not known */
    const char *measure;      /* what the score is: "top-1 of 10", "exact match" */
    json_t *notes;            /* object: facts about the data that results.json carries, or NULL */
    void *own;
} ls_suite;

enum { LS_SUITE_BATCH_MAX = 4096 };

typedef struct ls_suite_type {
    const char *name, *summary, *paper;
    bool likelihood, generate; /* forms it has; `auto` takes the first */
    bool needs_path;           /* reads the user's files */
    bool batched;              /* groups are single items, which go through the model together */
    size_t size;               /* of what `own` points to, which begins as zeros */
    ls_status (*open)(ls_suite *suite);
    ls_status (*make)(ls_suite *suite, int64_t group, ls_suite_group *out);
    /* In place of make, for suites that ask models of classes: the records (samples.h) of `count`
     * groups of one item, computed in batches of `batch`. */
    ls_status (*answer)(ls_suite *suite, const int64_t *groups, int64_t count, int64_t batch,
                        json_t **records);
    /* In place of make, where nothing is asked: appends the records of a group, as samples.jsonl
     * has them, of which the machine fills in "group" and "of". stop: LS_ESTOP where it is
     * raised. */
    ls_status (*measure)(ls_suite *suite, int64_t group, const volatile sig_atomic_t *stop,
                         json_t *records);
    /* Adds to the results what is not a mean over items; may be NULL. */
    ls_status (*finish)(ls_suite *suite, json_t *results);
    void (*clear)(ls_suite *suite); /* may be NULL */
} ls_suite_type;
extern const ls_suite_type *const ls_suite_types[]; /* ends with NULL */
extern const size_t ls_suite_count;

typedef struct ls_suite_hooks {
    const volatile sig_atomic_t *stop; /* or NULL */
    /* or NULL: items done, of how many, and about how many seconds are left (-1: not known) */
    void (*progress)(void *user, int64_t done, int64_t total, double seconds_left);
    void *user;
    /* or NULL: alone. They share the groups; rank 0 alone writes, and has results. */
    struct ls_ranks *ranks;
} ls_suite_hooks;

/* The suite of a name; LS_EUSE names the nearest. */
ls_status ls_suite_find(ls_ctx *ctx, const char *name, const ls_suite_type **out);
/* LS_EUSE where a suite cannot be asked of such a model; `text`: it was trained on text, not on a
 * task. */
ls_status ls_suite_suits(ls_ctx *ctx, const ls_suite_type *type, const ls_model_config *config,
                         bool text);
/* Reads suite=NAME and suite.KEY; opens its files. The trained model is borrowed. */
ls_status ls_suite_open(ls_ctx *ctx, const ls_settings *settings, ls_trained *trained,
                        uint64_t seed, ls_suite *out);
/* Puts all questions, writing samples.jsonl and results.json into `folder` (NULL: nowhere), where
 * samples that are there already are not asked again. *results is a new reference; NULL on another
 * rank than 0. */
ls_status ls_suite_run(ls_suite *suite, const char *folder, const ls_suite_hooks *hooks,
                       json_t **results);
void ls_suite_clear(ls_suite *suite);
/* The folder of the results: suite.out, or one in the run's folder that is named after the suite
 * and its settings. false: a public checkpoint, and nothing is to be written. */
bool ls_suite_folder(const ls_suite *suite, const ls_trained *trained, char *out, size_t bytes);
/* Of the weights, the description with extensions, and the arithmetic. */
ls_status ls_suite_model_hash(ls_ctx *ctx, const ls_model *model, uint64_t *out);
/* The table for people. */
void ls_suite_print(ls_ctx *ctx, const json_t *results, ls_text *out);

/* ---- for the suites ---- */

/* Ids of a text, in the group's pool; flags as of ls_encoder_encode. */
ls_status ls_suite_encode(const ls_suite *suite, ls_pool *pool, const char *text, size_t length,
                          unsigned flags, ls_tokens *out);
/* What the tokenizer puts before a text, before a context that does not begin with it. */
ls_status ls_suite_start(const ls_suite *suite, ls_pool *pool, ls_tokens *context);
/* LS_EUSE where the context, the question and what follows are more than the model can take. */
ls_status ls_suite_check_window(const ls_suite *suite, const char *what, int64_t tokens);
/* While it is opened: LS_EUSE where a key was given that has no effect with what was read. */
ls_status ls_suite_refuse(const ls_suite *suite, const char *key, const char *why);
/* Keeps a JSON value as long as the group; NULL where memory is short. */
json_t *ls_group_keep(ls_suite_group *group, json_t *value);
/* Room in a group; LS_ENOMEM where memory is short. */
ls_status ls_group_room(ls_suite_group *group, int64_t contexts, int64_t items);
/* Random numbers of the suite for one purpose and one example. */
ls_random ls_suite_random(const ls_suite *suite, const char *purpose, int64_t example);

#endif
