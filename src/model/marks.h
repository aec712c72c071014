/* Rows that a model puts into the text by itself, one after every so many tokens: landmarks
 * (src/position/extend_landmark.c). One is put when the next token comes, so that the last row is
 * always a token's. They are rows as any other to the layers; the head does not see them, so that
 * the token before one is followed by the token behind it, and nobody predicts them. */
#ifndef LS_MODEL_MARKS_H
#define LS_MODEL_MARKS_H

#include "model/model.h"

/* Tokens between two of them; 0: the model puts none. */
static inline int64_t ls_marks_every(const ls_model_config *config) {
    return ls_position_marks(&config->position);
}
/* Rows that T tokens are, the first one's place being the first of a block or within it; `due`: a
 * mark comes first. And back. */
int64_t ls_marks_rows(int64_t every, int64_t T, bool due);
int64_t ls_marks_tokens(int64_t every, int64_t rows, bool due);

/* x [B,T,D] of tokens -> [B,rows,D], and back. */
ls_tensor *ls_marks_put(ls_program *p, const ls_model_config *config, bool due, ls_tensor *x);
ls_tensor *ls_marks_drop(ls_program *p, const ls_model_config *config, bool due, ls_tensor *x);

#endif
