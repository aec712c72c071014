/* Mixers: functions (x, state) -> (y, state') along time. One folder here is one mechanism:
 * src/mixer/NAME/NAME.c defines ls_mixer_NAME; the build finds it by its name. */
#ifndef LS_MIXER_MIXER_H
#define LS_MIXER_MIXER_H

#include "position/position.h"

typedef enum {
    LS_MIXER_CAUSAL = 1,
    LS_MIXER_BIDIRECTIONAL = 2,
    LS_MIXER_STREAMING = 4,     /* obeys the law of the cut */
    LS_MIXER_POSITIONS = 8,     /* takes a position method */
    LS_MIXER_SECOND_INPUT = 16, /* takes a second input beside x */
    LS_MIXER_PLACES = 32,       /* takes positions that are given (ls_mixer.places) */
} ls_mixer_traits;

/* A norm with its parameters, of the program that is being recorded; see ls_residual_norm, and
 * ls_batch_norm_rows of one that has a mean and a variance. */
typedef struct ls_norm {
    ls_norm_kind kind;
    double epsilon;
    ls_tensor *weight, *bias;
    ls_tensor *mean, *variance, *valid;
    bool unbiased;
} ls_norm;
ls_tensor *ls_norm_rows(ls_program *p, const ls_norm *norm, ls_tensor *x, ls_tensor *delta,
                        ls_tensor **sum);

/* A mixer in its place: what its functions are given. */
typedef struct ls_mixer {
    const struct ls_mixer_type *type;
    const void *options;
    int64_t width; /* D */
    bool causal;
    const ls_position *position; /* NULL where the type takes none */
    ls_tensor *valid; /* u8 [B,T]: 0 for rows that are padding, which no other row may see; NULL:
                          all rows count. Padding comes after all tokens of a sequence, so what
                          looks back alone never sees any. Of the program that is being recorded */
    ls_tensor
        *places; /* i32 [B,T]: where the rows stand, as training may draw it; NULL: at 0, 1, ..
                          Of the program that is being recorded */
    ls_tensor *second; /* [B,M,W]: a second input, where the type takes one; NULL: none. Of the
                          program that is being recorded */
    /* Where x is the norm of rows of a model's residual stream: those rows [B,T,D], and the norm;
     * else NULL. What keeps its input over several steps of training keeps the rows, so that old
     * ones have a part in the norm's gradient as well. Of the program that is being recorded */
    ls_tensor *stream;
    const ls_norm *norm;
    int64_t layer;          /* its number in the model, from 0; 0: not in a model */
    int64_t trained_length; /* l: model.length, what the model is made for; 0: not known */
    int64_t start;          /* tokens before those that `row` is asked about */
    int64_t branches; /* of the model that add to the residual stream, for initial weights that
                         shrink with depth; 0: not in a model */
} ls_mixer;

/* What comes out of a mixer; all zero: a row for each of x. */
typedef struct ls_mixer_result {
    bool whole;      /* it takes the place of x: norms and sums are the mixer's own */
    bool other_rows; /* its rows are others than x's, of the model's width; none is padding */
    int64_t trained; /* so many rows at the end of a text are computed in training, others are 0; 0:
                        all */
} ls_mixer_result;

/* How a row of a tensor in a public checkpoint maps to ours. */
typedef struct ls_alias {
    /* name in the public code, below the layer's prefix; {n} is any number, a * at its end any
     * ending, one at its beginning any names with dots, or nothing */
    const char *official;
    const char *ours; /* parameter name below the mixer's scope, or with a leading / outside all
                         scopes, where {n} and an ending stand for what was found */
    int layout;       /* the mixer's own number for how rows are ordered, for `row` */
} ls_alias;
/* Two of them, for a layer's weight and its bias. */
#define LS_ALIAS_LAYER(official, ours, layout)                                                     \
    {official ".weight", ours ".weight", layout}, {                                                \
        official ".bias", ours ".bias", layout                                                     \
    }
/* In a layout, beside the mixer's number: */
enum {
    /* the official tensor ends with an axis of re and im, which are rows of their own here; its row
     * r is 2 r and 2 r + 1 */
    LS_ALIAS_PAIRS = 1 << 16,
    LS_ALIAS_TRANSPOSED = 1 << 17,      /* its first two axes are exchanged; or */
    LS_ALIAS_LAST_TRANSPOSED = 1 << 18, /* its last two */
    /* rows for which `row` says -1 stand in another parameter: that of another alias with the same
     * official name */
    LS_ALIAS_PART = 1 << 19,
    /* where rows stand depends on how far the sequence is (ls_mixer.start); nowhere is -1 */
    LS_ALIAS_MOVES = 1 << 20,
    /* its columns are those of several parameters side by side, one alias for
     * each in their order */
    LS_ALIAS_SIDE = 1 << 21,
    LS_ALIAS_DEPTHWISE = 1 << 22, /* it has an axis of 1 behind the first */
    LS_ALIAS_COLUMN = 1 << 23,    /* and one at its end */
    LS_ALIAS_FLAGS = LS_ALIAS_PAIRS | LS_ALIAS_TRANSPOSED | LS_ALIAS_LAST_TRANSPOSED |
                     LS_ALIAS_PART | LS_ALIAS_MOVES | LS_ALIAS_SIDE | LS_ALIAS_DEPTHWISE |
                     LS_ALIAS_COLUMN,
};

/* A tensor that files of public code have and that no parameter stands for: a table that follows
 * from the options, or something computed on the way. */
typedef struct ls_buffer {
    const char *official; /* with its kind, as w.NAME, in.NAME or out.NAME; a pattern as above */
    /* Its values with the mixer's options and a text of T tokens (free with ls_free): none where
     * these options have no such thing. NULL: nothing here computes it, so it is not compared. */
    ls_status (*values)(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                        int64_t *count);
} ls_buffer;

/* Where the values of heads come from and go to, for what weights alone tell of a head. Rows first
 * + g width .. of `in` make the value of group g; columns h width .. of `out` take that of head
 * h. */
typedef struct ls_value_rows {
    const char *in, *out; /* parameters below the mixer's scope */
    int64_t first, groups, width;
} ls_value_rows;

typedef struct ls_mixer_type {
    const char *name, *summary, *paper;
    ls_option_table options;
    unsigned traits;
    /* Refuses options that do not fit (one sentence); may be NULL. Called by ls_mixer_check, which
     * sees to the traits. */
    ls_status (*check)(ls_ctx *ctx, const ls_mixer *mixer);
    /* Records y [B,T,D] for x [B,T,D], declaring parameters and state as it goes. Called by
     * ls_mixer_record. */
    ls_tensor *(*forward)(ls_program *p, const ls_mixer *mixer, ls_tensor *x);
    /* Bytes of state of one sequence after T tokens (capacity T, elements of `size` bytes, chunks
     * of one token); floating-point operations of a forward pass over T tokens from the start.
     * Checked against what is recorded. */
    int64_t (*state_bytes)(const ls_mixer *mixer, int64_t T, int64_t size);
    double (*flops)(const ls_mixer *mixer, int64_t T);
    const ls_alias *aliases;  /* ends with {0} */
    const ls_buffer *buffers; /* ends with {0}; may be NULL: none */
    /* The row of our parameter at which row r of the official tensor stands; NULL: the same row. */
    int64_t (*row)(const ls_mixer *mixer, int layout, int64_t r);
    /* Options that may differ between training and test, as the weights do not depend on them; ends
     * with NULL. May be NULL itself: none. */
    const char *const *at_test;
    /* What comes out, where it is not a row for each of x that a model adds to it. May be NULL. */
    ls_mixer_result (*result)(const ls_mixer *mixer);
    /* NULL: values do not go straight from one product to another. Width 0: not with these
     * options. */
    ls_value_rows (*value_rows)(const ls_mixer *mixer);
} ls_mixer_type;

extern const ls_mixer_type *const ls_mixer_types[];
extern const size_t ls_mixer_count;

const ls_mixer_type *ls_mixer_find(const char *name); /* or NULL */
/* The option that a setting mixer.KEY or mixer.NAME.KEY names, where it may be another one at test;
 * or NULL. NAME is the type's, or `label`. */
const char *ls_mixer_option_at_test(const ls_mixer_type *type, const char *label, const char *key);

/* Refuses what cannot be in its place: a mixer that cannot look the way the model does, and what
 * its own check refuses. */
ls_status ls_mixer_check(ls_ctx *ctx, const ls_mixer *mixer);
/* What comes out of it: see ls_mixer_type. */
ls_mixer_result ls_mixer_result_of(const ls_mixer *mixer);
/* Records the mixer; refuses a stream where it cannot take a sequence in chunks. */
ls_tensor *ls_mixer_record(ls_program *p, const ls_mixer *mixer, ls_tensor *x);

#endif
