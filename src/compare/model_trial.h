/* The parts of a model's comparison, each a file model_PART.c that sees only those above it here;
 * model_trial.c puts them together. */
#ifndef LS_COMPARE_MODEL_TRIAL_H
#define LS_COMPARE_MODEL_TRIAL_H

#include "compare/comparer.h"
#include "compare/comparison.h"
#include "model/public_weights.h"

/* What a tensor out.NAME is of ours. */
typedef enum {
    LS_OUTPUT_ROWS,
    LS_OUTPUT_LOGITS,
    LS_OUTPUT_LOSS,
    LS_OUTPUT_SERIES, /* how many have a value for every token */
    LS_OUTPUT_MEAN_LOSS = LS_OUTPUT_SERIES,
    LS_OUTPUT_AUXILIARY,
    LS_OUTPUT_STATE,
    LS_OUTPUT_SEGMENT,
    LS_OUTPUT_NONE,
} ls_output_kind;
typedef struct ls_trial_output {
    ls_output_kind kind;
    int64_t piece;                           /* -1: the whole text */
    char name[LS_SAFETENSORS_NAME_MAX + 64]; /* of a state, or of what segments leave */
} ls_trial_output;

/* A value for every token, [B,T,width]. */
typedef struct ls_trial_series {
    int64_t width;
    double *value, *cot;
} ls_trial_series;

/* A model held against a file. */
typedef struct ls_trial {
    ls_ctx *ctx;
    const ls_compare_keys *keys;
    ls_model_config config;
    ls_model *model;
    ls_mixer *mixers; /* of the layers, then of the encoder's */
    ls_naming naming;
    ls_safetensors file;
    bool file_open;
    int64_t B, T, S; /* sequences; tokens of each that are fed, and of a source */
    int64_t given;   /* tokens that the file has: those behind T are targets alone */
    int32_t *tokens, *source;
    int32_t *mask, *source_mask;     /* of both: 0 is padding; NULL: none is */
    int32_t *types;                  /* of tokens; NULL: all 0 */
    double *x;                       /* [B,T,D]: rows in place of tokens; NULL: none */
    double *x_grad;                  /* of these */
    int64_t pieces, *first, *length; /* into which the tokens are cut */
    bool streams;                    /* a piece is a run of a stream; else all are one program, and
                                        pieces are its segments or sources */
    ls_trial_series series[LS_OUTPUT_SERIES];
    int64_t *set;    /* per parameter: elements that the file has given */
    double **moving; /* per tensor of the file: gradients of what moves, over all runs so far */
    ls_comparison *comparison;
} ls_trial;

/* What a run is of: a piece of a stream, or all pieces at once. */
typedef struct ls_trial_run {
    ls_program *program;
    ls_state *state; /* NULL without a stream */
    int64_t piece;   /* -1: all of them */
    int64_t first, count;
    bool trains; /* the second time: gradients of the auxiliary losses alone */
} ls_trial_run;

/* ---- names ---- */

/* Whether in.NAME is rows in place of tokens; name: with "in.", or NULL. */
bool ls_trial_gives_rows(const ls_trial *trial, const char *name);
/* Nothing in the file is passed over: LS_EINPUT for a name of no known kind. */
ls_status ls_trial_check_names(const ls_trial *trial);
/* name: without "out." */
ls_status ls_trial_output_of(const ls_trial *trial, const char *name, ls_trial_output *out);
/* name: without "w." */
ls_status ls_trial_weight_of(const ls_trial *trial, const char *name, ls_weight *out);
/* The output (without "out.") whose cotangent a tensor of this name is, or NULL. */
const char *ls_trial_cotangent_of(const char *name);

/* ---- weights ---- */

/* What is given once, or (moving) what stands elsewhere for each run. */
ls_status ls_trial_load_weights(ls_trial *trial, bool moving);
/* After a run: gradients of what moves are put where they belong in the file, and begin anew. */
ls_status ls_trial_gather_moving(ls_trial *trial, const char *prefix);

/* ---- inputs ---- */

ls_status ls_trial_read_inputs(ls_trial *trial);
/* By cut=, or by the segments of the model; what is behind the last output is left out. */
ls_status ls_trial_cut_pieces(ls_trial *trial);

/* ---- series ---- */

/* LS_EINPUT where a tensor of the file is not of rows [B,T,D]; or else their shape. */
ls_status ls_trial_rows_shape(const ls_trial *trial, const ls_safetensor *tensor, int64_t T,
                              int64_t D, ls_rows_shape *out);
/* Such a tensor's values (free with ls_free). */
ls_status ls_trial_read_rows(const ls_trial *trial, const ls_safetensor *tensor, int64_t T,
                             int64_t D, double **out);
/* The tokens of an output: a piece, or all. */
void ls_trial_span(const ls_trial *trial, const ls_trial_output *out, int64_t *first,
                   int64_t *count);
/* Room for the series, and their cotangents from the file. */
ls_status ls_trial_make_series(ls_trial *trial);

/* ---- run ---- */

/* The program of a run of run->count tokens. */
ls_status ls_trial_record(const ls_trial *trial, ls_trial_run *run);
/* Tokens, targets and cotangents. */
ls_status ls_trial_put_inputs(const ls_trial *trial, const ls_trial_run *run);
ls_status ls_trial_take_series(const ls_trial *trial, const ls_trial_run *run);

/* ---- compare ---- */

/* What can only be seen right after its run. */
ls_status ls_trial_compare_run(ls_trial *trial, const ls_trial_run *run);
/* Series and mean losses, once all runs are done. */
ls_status ls_trial_compare_outputs(ls_trial *trial);
/* prefix: "grad.w." or "grad.aux." */
ls_status ls_trial_compare_gradients(ls_trial *trial, const char *prefix);
/* Tables of the file that follow from the options. */
ls_status ls_trial_compare_buffers(ls_trial *trial);

#endif
