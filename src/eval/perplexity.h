/* Perplexity at given lengths.
 *
 * Documents of more tokens than the largest length are cut, from their starts, into pieces of that
 * length; the rest of a document is left out, and where fewer tokens are wanted each document gives
 * about the same number. Every length then cuts the same stretches into pieces
 * of its own, each of which starts from nothing: token j of a piece is predicted from the j tokens
 * before it in the piece (the first from the document's token just before, as input). Where the
 * lengths divide each other, each scores exactly the same tokens. Pieces go through the model in
 * chunks, so that memory is that of the states and one chunk. */
#ifndef LS_EVAL_PERPLEXITY_H
#define LS_EVAL_PERPLEXITY_H

#include <signal.h>

#include "data/token_file.h"
#include "model/model.h"

typedef struct ls_perplexity_settings {
    const int64_t *lengths;
    size_t count;
    int64_t tokens; /* to score, about; 0: all */
    int64_t batch, chunk;
    const volatile sig_atomic_t *stop; /* or NULL: not 0 ends the measurement */
} ls_perplexity_settings;

typedef struct ls_perplexity {
    int64_t length, pieces, tokens;
    double loss;       /* mean, in nats per token */
    double perplexity; /* exp of it */
    double seconds;
    size_t bytes; /* states, programs and workspaces */
} ls_perplexity;

/* The stretches of a file that are scored for a largest length. */
typedef struct ls_stretches {
    int64_t documents, tokens; /* used; tokens that are scored at the largest length */
    int64_t longest;           /* document of the file, in tokens */
} ls_stretches;
ls_stretches ls_perplexity_stretches(const ls_token_file *file, int64_t longest, int64_t tokens);

/* Fills one row per length. LS_EINPUT where no document is long enough, saying how long they are.
 */
ls_status ls_perplexity_measure(ls_model *model, const ls_token_file *file,
                                const ls_perplexity_settings *settings, ls_perplexity *out);

#endif
