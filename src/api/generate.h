/* Text from a model, token by token: for `longshot generate` and the public interface. */
#ifndef LS_API_GENERATE_H
#define LS_API_GENERATE_H

#include "train/trained.h"

/* Gets a token and its bytes; a status other than LS_OK ends the generation and is passed on. */
typedef ls_status (*ls_generate_text)(void *user, int32_t token, const char *bytes, size_t length);

/* Goes on from the prompt, or answers it where the model has an encoder, for at most `tokens` tokens, or to the end of a document. An empty prompt
 * is the start of a document, or of a line where the tokenizer knows no documents. */
ls_status ls_generate(ls_trained *trained, const char *prompt, int64_t tokens,
                      const ls_sampling *how, ls_generate_text text, void *user);

#endif
