/* Text from a model, token by token: for `longshot generate` and the public interface. */
#ifndef LS_API_GENERATE_H
#define LS_API_GENERATE_H

#include "train/trained.h"

/* The way a checkpoint says that its tokens are drawn (generation_config.json) takes the place of
 * what was not given. One that draws nothing is greedy, unless top_k or top_p is given. Both that
 * and what it asks for in vain are said. */
typedef struct ls_sampling_given {
    bool temperature, top_k, top_p;
} ls_sampling_given;
void ls_generate_as_published(const ls_trained *trained, ls_sampling_given given, ls_sampling *how);

/* Gets a token and its bytes; a status other than LS_OK ends the generation and is passed on. */
typedef ls_status (*ls_generate_text)(void *user, int32_t token, const char *bytes, size_t length);

/* The ids that a text to go on from begins with. An empty one is the start of a document, or of a
 * line where the tokenizer knows no documents. */
ls_status ls_generate_prompt(const ls_trained *trained, const char *prompt, ls_ids *out);
/* Whether a token ends the text. */
bool ls_generate_ends(const ls_trained *trained, int32_t token);
/* Goes on from the prompt, or answers it where the model has an encoder, for at most `tokens`
 * tokens, or to the end of a document. */
ls_status ls_generate(ls_trained *trained, const char *prompt, int64_t tokens,
                      const ls_sampling *how, ls_generate_text text, void *user);

#endif
