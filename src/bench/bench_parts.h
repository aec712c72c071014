/* The parts of a benchmark. Each measures one thing, appends lines for people to `text` and
 * a member to the JSON result. */
#ifndef LS_BENCH_PARTS_H
#define LS_BENCH_PARTS_H

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

#include "bench/bench.h"
#include "bench/turns.h"
#include "model/model.h"
#include "tensor/engine/program.h"

typedef struct ls_bench {
    ls_ctx *ctx;
    const ls_bench_settings *settings;
    const ls_bench_hooks *hooks;
    ls_dtype types[2]; /* that are measured */
    int type_count;
    double bandwidth;           /* bytes per second, measured at the start */
    double peak[LS_REAL_TYPES]; /* operations per second of matrix products by type */
    char python[512];           /* of the peers; empty: none */
    char scripts[LS_OPTION_TEXT_BYTES];
    ls_text text;  /* what has been measured and not been shown yet */
    ls_text table; /* for the end */
    json_t *json;
    json_t *before; /* an earlier result, or NULL */
    json_t *kept;   /* what the file holds that this one is added to, or NULL */
} ls_bench;

ls_status ls_bench_train(ls_bench *bench);
ls_status ls_bench_mixers(ls_bench *bench);
ls_status ls_bench_attention(ls_bench *bench);
ls_status ls_bench_sparse(ls_bench *bench);
ls_status ls_bench_scan(ls_bench *bench);
ls_status ls_bench_conv(ls_bench *bench);
ls_status ls_bench_retention(ls_bench *bench);
ls_status ls_bench_decode(ls_bench *bench);
ls_status ls_bench_decode_mixers(ls_bench *bench);
ls_status ls_bench_ranks(ls_bench *bench);
/* Whether a model or a mixer that is trained here, or a kind of attention, has the name that `only`
 * asks for. */
bool ls_bench_train_has(const ls_bench *bench);
bool ls_bench_mixers_has(ls_bench *bench);
bool ls_bench_attention_has(const ls_bench *bench);
bool ls_bench_sparse_has(const ls_bench *bench);

/* LS_EUSE where `lengths` are none that ls_bench_mixers can measure. */
ls_status ls_bench_mixers_check(const ls_bench *bench);

/* A causal mixer as it is measured, in a small model that is the same for all. */
#define LS_BENCH_MIXER_MODEL "2 x 128, bytes"
enum { LS_BENCH_MIXER_VOCABULARY = 256 };
typedef struct ls_bench_mixer {
    const ls_mixer_type *type;
    const char *words; /* its settings other than the defaults */
    char name[64];
} ls_bench_mixer;
/* Each form of each causal mixer that `only` asks for, until one fails. */
typedef ls_status ls_bench_mixer_work(ls_bench *bench, const ls_bench_mixer *what, void *about);
ls_status ls_bench_each_mixer(ls_bench *bench, ls_bench_mixer_work *each, void *about);
/* Whether a type is measured here: on a device, as with attention, bf16 unless another is asked
 * for. */
bool ls_bench_mixer_type(const ls_bench *bench, ls_dtype type);
/* The model's settings but its vocabulary; and how a row of it begins. */
void ls_bench_mixer_words(const ls_bench_mixer *what, int64_t length, char *out, size_t bytes);
json_t *ls_bench_mixer_row(const ls_bench_mixer *what, ls_dtype type, size_t bytes);

typedef struct ls_train_shape ls_train_shape;
typedef struct ls_peer ls_peer;

/* A program of others that measures itself. */
typedef struct ls_outside {
    const char *name;                      /* llm.c, llama.cpp */
    char path[PATH_MAX], folder[PATH_MAX]; /* the program; where it runs, "": nowhere yet */
    /* A run of it: the seconds of what is measured, or why there are none. */
    double (*measure)(ls_bench *bench, struct ls_outside *outside);
    char why[160];  /* of the last run; empty: it went well, or a signal ended it */
    double seconds; /* of the last run, all of it */
    char version[40];
    /* what is measured: steps of a model, tokens that follow a text */
    const ls_train_shape *shape;
    int64_t depth, tokens;
} ls_outside;
/* LS_EUSE where a path is given at which there is nothing to run. */
ls_status ls_outside_check(ls_ctx *ctx, const char *key, const char *path);
/* Makes its folder; to be ended also on failure. */
ls_status ls_outside_begin(ls_bench *bench, const char *name, const char *path, ls_outside *out);
void ls_outside_end(ls_bench *bench, ls_outside *outside);
/* Runs it with these words (NULL-ended) until it ends or `enough` (or NULL) has been printed, which
 * goes to *out. False where it failed, took longer than the settings allow, or a signal came: `why`
 * and `seconds` are set. */
bool ls_outside_run(ls_bench *bench, ls_outside *outside, const char *const *words,
                    bool (*enough)(const ls_bench *bench, const char *printed), ls_text *out);
/* llm.c's trainer beside a model of ours, and llama.cpp's benchmark beside one that decodes; the
 * latter leaves both as they are where the settings name none. End the outside also on failure. */
ls_status ls_bench_llm_c(ls_bench *bench, const ls_train_shape *shape, ls_outside *outside,
                         ls_peer *out);
ls_status ls_bench_llama(ls_bench *bench, const ls_model_config *config, ls_outside *outside,
                         ls_peer *out);

/* A peer: a script that prints one JSON line when it is ready, and one for every line "go" it
 * reads; or a program of others. Where it cannot be started or ends early, `alive` is false and the
 * reason has been said. */
struct ls_peer {
    bool alive;
    ls_outside *outside; /* or NULL: a script */
    pid_t process;
    FILE *to, *from;
    FILE *said; /* what it wrote about itself (stderr), or NULL */
    /* kept when it has ended */
    char torch[40];
    ls_missing missing;
};
/* `words` (NULL-ended) follow the script's name. */
void ls_peer_start(ls_bench *bench, const char *script, const char *const *words, ls_peer *out);
/* One measurement; a new reference, or NULL where the peer is gone. */
json_t *ls_peer_go(ls_bench *bench, ls_peer *peer);
void ls_peer_stop(ls_peer *peer);
/* A turn of it, and what there is to say when all are over. */
void ls_peer_turn(ls_bench *bench, ls_peer *peer, ls_bench_times *times);
void ls_peer_finish(const ls_peer *peer, ls_bench_times *times);
/* The last line of a file that says something. */
void ls_peer_last_words(FILE *said, char *out, size_t bytes);
json_t *ls_outside_turn(ls_bench *bench, ls_peer *peer);

/* seconds = latency + per_byte bytes, with the least relative errors; worst: the largest of
 * them. */
typedef struct ls_line {
    double latency, per_byte, worst;
} ls_line;
ls_line ls_bench_line(const double *bytes, const double *seconds, int count);

/* Between measurements: LS_ESTOP once a signal has asked for the end. */
ls_status ls_bench_go_on(ls_bench *bench);

/* The machine's, or the one that the hooks bring. */
double ls_bench_clock(const ls_bench *bench);

/* Something that is done again and again for about so long. */
typedef struct ls_bench_work {
    ls_status (*run)(ls_bench *bench, void *about);
    void *about;
    double seconds; /* of a turn */
} ls_bench_work;
/* A turn of ours: the median of its runs is added to `turns`. */
ls_status ls_bench_turn(ls_bench *bench, const ls_bench_work *work, ls_turns *turns);
/* Ours and the peer's in turns, as many as the settings ask for. */
ls_status ls_bench_turns(ls_bench *bench, const ls_bench_work *work, ls_peer *peer,
                         ls_bench_times *out);
/* The same of a program. */
ls_status ls_bench_program_turns(ls_bench *bench, ls_program *program, ls_peer *peer,
                                 ls_bench_times *out);
/* What a row says of how it was taken: when, with what, how many turns of which length. */
json_t *ls_bench_taken(const ls_bench_times *times);
/* Adds that, and what the peer lacks, to a row. */
void ls_bench_put_taken(json_t *row, const ls_bench_times *times);
/* Ends a row of the table with the spread of ours and what the peer's methods took, and adds it to
 * `rows`. */
void ls_bench_row(ls_bench *bench, json_t *rows, json_t *row, const ls_bench_times *times);

/* A model that is trained, and what the peer, which has no presets, is told of it. */
struct ls_train_shape {
    const char *name, *words; /* words: the model's settings */
    int64_t batch, length, vocabulary;
    bool device;
    const char *layers, *width, *heads, *position;
    bool llm_c; /* it is held against llm.c, and against nothing else */
};
typedef struct ls_trainer {
    const ls_train_shape *shape;
    ls_model_config config;
    ls_model *model;
    ls_program *program;
    struct ls_optimizer *optimizer;
    int64_t step;
} ls_trainer;
/* To be cleared also on failure. */
ls_status ls_bench_trainer_make(ls_bench *bench, const ls_train_shape *shape, ls_dtype type,
                                ls_trainer *out);
void ls_bench_trainer_clear(ls_ctx *ctx, ls_trainer *t);
/* Everything that training keeps: arena and workspace, weights, gradients, moments. */
size_t ls_bench_trainer_bytes(const ls_trainer *t);
/* Forward, backward and update, as the work of a turn. */
ls_status ls_bench_trainer_step(ls_bench *bench, void *trainer);
/* Adds to a row what of its training is not the model's: sizes of a batch, recompute, matmul. */
void ls_bench_trainer_name(const ls_bench *bench, const ls_trainer *t, json_t *row);
/* Prints and adds to a row the peer by the fastest of its ways: that of so many tokens a turn. In
 * print `before` stands in front of the way, and a bracket behind it; empty: neither. */
void ls_bench_put_peer(ls_bench *bench, const ls_bench_times *times, const char *before,
                       double tokens, json_t *row);
ls_status ls_bench_train_shape(ls_bench *bench, const ls_train_shape *shape, json_t *rows);
/* Decoding after so many tokens. */
typedef struct ls_decoded {
    ls_bench_times times;
    double tokens;               /* of all sequences in a turn */
    double rate;                 /* tokens per second */
    double prefill, with_logits; /* the same of the tokens before (0: none), and of steps whose
                                    logits the caller gets */
} ls_decoded;
/* Where each sequence is decoded by `each` tokens a turn: room for `depth` tokens and for those. */
int64_t ls_bench_decode_room(const ls_bench *bench, int64_t depth, int64_t each);
ls_status ls_bench_decode_turns(ls_bench *bench, ls_model *model, int64_t batch, int64_t depth,
                                int64_t each, ls_peer *peer, ls_decoded *out);
/* Ends a row with what was measured of it, and adds it to `rows`. */
void ls_bench_decode_row(ls_bench *bench, json_t *rows, json_t *row, int64_t batch, int64_t depth,
                         const ls_decoded *decoded);
ls_status ls_bench_decode_at(ls_bench *bench, ls_model *model, int64_t batch, int64_t depth,
                             ls_peer *peer, json_t *rows);

#endif
