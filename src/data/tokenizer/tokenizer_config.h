/* tokenizer_config.json. */
#ifndef LS_DATA_TOKENIZER_TOKENIZER_CONFIG_H
#define LS_DATA_TOKENIZER_TOKENIZER_CONFIG_H

#include "base/json.h"
#include "data/tokenizer/kind.h"

/* The object in *out, NULL where the text is empty; json_decref it. */
ls_status ls__config_parse(ls_ctx *ctx, const ls_text *text, json_t **out);
/* A token such as `bos_token`, written as text or as {"content": text}; NULL where there is none.
 */
const char *ls__config_token(const json_t *config, const char *key);
/* Fills bos, eos, unk and pad of a tokenizer from those tokens through `find`. */
typedef int32_t (*ls_config_find)(const ls_tokenizer *tokenizer, const char *token);
void ls__config_special(const json_t *config, ls_config_find find, ls_tokenizer *tokenizer);

#endif
