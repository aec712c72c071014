/* Blocks: how what a sublayer makes joins the residual stream, and where norms stand.
 *
 * A block is some sublayers one after the other (mixer, reading of other rows, feed-forward layer).
 * All forms of it that public models have are written by one function from LS_BLOCK_FORMS. */
#ifndef LS_MODEL_BLOCK_H
#define LS_MODEL_BLOCK_H

#include "model/layers.h"

/* The forms of a block, model.norm_place: name, word, and where its norms stand:
 *   before  of what a sublayer reads
 *   after   of what it makes, before the sum
 *   of_sum  of the sum
 *   last    after the last block, as what leaves a block is no norm's result */
#define LS_BLOCK_FORMS(FORM)                                                                       \
    FORM(PRE, "pre", .before = true, .last = true) /* x + f(norm(x)) */                            \
    FORM(POST, "|post", .of_sum = true)            /* norm(x + f(x)) */                            \
    FORM(SANDWICH, "|sandwich", .before = true, .after = true, .last = true)                       \
    /* x + norm(f(norm(x))): Gemma 2 and 3 */                                                      \
    FORM(BRANCH, "|branch", .after = true, .last = true) /* x + norm(f(x)): OLMo 2 */              \
    FORM(NONE, "|none", .last = true)                    /* x + f(x) */

#define LS_BLOCK_FORM_PLACE(name, word, ...) LS_PLACE_##name,
typedef enum { LS_BLOCK_FORMS(LS_BLOCK_FORM_PLACE) } ls_norm_place;
#define LS_BLOCK_FORM_WORD(name, word, ...) word
#define LS_NORM_PLACES LS_BLOCK_FORMS(LS_BLOCK_FORM_WORD)

/* model.parallel: all sublayers of a block read what the block was given. */
typedef enum {
    LS_PARALLEL_NO,
    LS_PARALLEL_ONE_NORM,  /* x + f(norm(x)) + g(norm(x)): GPT-J, Phi, Falcon 7B */
    LS_PARALLEL_TWO_NORMS, /* x + f(norm1(x)) + g(norm2(x)): GPT-NeoX, Falcon 40B */
} ls_parallel;

/* model.residual */
typedef enum {
    LS_RESIDUAL_SUM,
    LS_RESIDUAL_GRU,    /* a gated recurrent unit in place of the sum */
    LS_RESIDUAL_NORMED, /* norm(x) + f(norm(x)): BLOOM with its residuals after the norm */
    LS_RESIDUAL_NONE,   /* f(norm(x)) */
} ls_residual_kind;

/* Refuses choices that do not go together. */
ls_status ls_block_check(ls_ctx *ctx, const ls_model_settings *about);

/* Rows [B,T,D] on their way through the blocks: x + delta. The sum is left to the next norm, which
 * is one operation with it. */
typedef struct ls_residual {
    ls_tensor *x, *delta;  /* delta may be NULL: nothing is to be added */
    bool begun;            /* a sublayer of this block has been added */
    ls_tensor *block_norm; /* the norm that sublayers of a parallel block share */
    ls_tensor *valid;      /* which rows count in a batch norm; NULL: all */
} ls_residual;

/* What a sublayer reads. */
typedef struct ls_sublayer_input {
    ls_tensor *x;
    ls_tensor *stream; /* rows of which x is the norm; NULL: x is none */
    ls_norm norm;      /* that one */
} ls_sublayer_input;

typedef struct ls_sublayer {
    const char *scope, *suffix; /* its norms are SCOPEnormSUFFIX and SCOPEnormSUFFIX_after, its gate
                                   SCOPEgateSUFFIX */
    ls_tensor *(*make)(ls_program *p, const ls_model_settings *about, const void *what,
                       const ls_sublayer_input *in);
    const void *what;
} ls_sublayer;

void ls_block_begin(ls_residual *rows);
/* Adds a sublayer with its residual and its norms. */
void ls_block_add(ls_program *p, const ls_model_settings *about, const ls_sublayer *sublayer,
                  ls_residual *rows);
/* The rows, with nothing left to be added. */
ls_tensor *ls_residual_sum(ls_program *p, ls_residual *rows);
/* The rows after the last block, through a last norm of that name where the model has one. */
ls_tensor *ls_block_last(ls_program *p, const ls_model_settings *about, const char *norm,
                         ls_residual *rows);

#endif
