/* The parts of a mixer's comparison, each a file mixer_PART.c that sees only those above it here;
 * mixer_trial.c puts them together. */
#ifndef LS_COMPARE_MIXER_TRIAL_H
#define LS_COMPARE_MIXER_TRIAL_H

#include "compare/bare_heads.h"
#include "compare/comparer.h"
#include "compare/comparison.h"
#include "model/public_weights.h"

typedef struct ls_mixer_trial {
    ls_ctx *ctx;
    const ls_compare_keys *keys;
    ls_dtype type;
    ls_mixer mixer;
    void *mixer_options;
    bool *given; /* per option of the mixer: somebody chose it */
    ls_position position;
    ls_naming naming;
    ls_parameters *store;
    int64_t B, T, D;
    int64_t out_T, out_D;          /* of y; those of x where the mixer leaves the rows there are */
    int64_t latents, latent_width; /* of z, where the file gives latents to begin with; else 0 */
    ls_bare_heads heads;           /* of queries, keys and values in place of x */
    ls_safetensors input, weights; /* both are the golden file where there is one */
    bool input_open, weights_open, golden;
    double *x, *z, *cot; /* [B,T,D], [B,latents,latent_width], [B,out_T,out_D] */
    double *mask;        /* [B,T]: 0 padding, 1 a token, 2 a global one; NULL: all are tokens */
    bool global;         /* some are */
    int32_t *places;     /* [B,T]: where tokens stand; NULL: at 0, 1, .. */
    double *y, *grad_x, *grad_z;
    int64_t *set; /* per parameter: elements that the file has given */
    ls_text state;
} ls_mixer_trial;

/* ---- names: what the tensors of the input file are ---- */

typedef enum {
    LS_GIVEN_X,
    LS_GIVEN_Z,    /* latents */
    LS_GIVEN_MASK, /* then bare heads */
    LS_GIVEN_Q,
    LS_GIVEN_K,
    LS_GIVEN_V,
    LS_GIVEN_PLACES,
    LS_GIVEN_Y,
    LS_GIVEN_STEP,   /* y, one token at a time */
    LS_GIVEN_COT,    /* of y */
    LS_GIVEN_STATE,  /* before x */
    LS_GIVEN_BUFFER, /* the mixer's table has it */
    LS_GIVEN_NONE,   /* the naming says so */
    LS_GIVEN_WEIGHT,
    LS_GIVEN_GRADIENT,
} ls_given;
/* Reads names=; our own names of inputs and outputs come behind. */
ls_status ls_mixer_trial_read_names(ls_mixer_trial *a);
/* LS_EINPUT for a tensor of the input file that the mixer can make nothing of, or two that are the
 * same thing. */
ls_status ls_mixer_trial_check_names(const ls_mixer_trial *a);
/* The tensor of the input file with a role, or NULL; of several the first from *from on, which then
 * is the place behind it (from NULL: the first of all). */
const ls_safetensor *ls_mixer_trial_find(const ls_mixer_trial *a, ls_given role, size_t *from);
/* The gradient of such an input, or NULL. */
const ls_safetensor *ls_mixer_trial_find_gradient(const ls_mixer_trial *a, ls_given role);
/* The entry of the mixer's table for a tensor with LS_GIVEN_BUFFER. */
const ls_buffer *ls_mixer_trial_buffer(const ls_mixer_trial *a, const char *name);
/* The name of a weight in its file, or NULL where the tensor is none. */
const char *ls_mixer_trial_weight(const ls_mixer_trial *a, const char *name);
ls_public_scope ls_mixer_trial_scope(const ls_mixer_trial *a);

/* ---- inputs ---- */

ls_status ls_mixer_trial_open(ls_mixer_trial *a);
/* A tensor of the shape of y, which may be bare heads. */
ls_status ls_mixer_trial_read_outputs(ls_mixer_trial *a, const ls_safetensor *tensor, double **out);
/* Clears rows of `values`, like y, that are padding for which the file says nothing. */
ls_status ls_mixer_trial_clear_void(ls_mixer_trial *a, double *values);
ls_status ls_mixer_trial_load_weights(ls_mixer_trial *a);

/* ---- run ---- */

/* Tells the mixer which tokens are global: those of the first sequence that has any. */
ls_status ls_mixer_trial_choose_globals(ls_mixer_trial *a);
/* Declares the parameters, and finds the shape of y. */
ls_status ls_mixer_trial_declare(ls_mixer_trial *a);
/* All sequences at once; each alone where they differ in what is global. */
ls_status ls_mixer_trial_run_whole(ls_mixer_trial *a);
/* Chunks of the given lengths, the last of them repeated; the state passes from one to the next. */
ls_status ls_mixer_trial_run_cut(ls_mixer_trial *a, const int64_t *cuts, int64_t count, double *y);

/* ---- compare, or write into a file ---- */

ls_status ls_mixer_trial_compare(ls_mixer_trial *a, ls_comparison *comparison);
ls_status ls_mixer_trial_write(ls_mixer_trial *a);

#endif
