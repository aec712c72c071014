/* The post-processors of tokenizer.json: the special tokens that are put around a text. */
#ifndef LS_DATA_TOKENIZER_POST_PROCESSOR_H
#define LS_DATA_TOKENIZER_POST_PROCESSOR_H

#include "base/json.h"
#include "data/tokenizer.h"

typedef struct ls_post_processor {
    ls_ids before, after;
} ls_post_processor;

/* LS_EINPUT naming what is not understood. Ids are not checked against the vocabulary. */
ls_status ls__post_processor_read(ls_ctx *ctx, const json_t *json, const char *what,
                                  ls_post_processor *out);
void ls__post_processor_clear(ls_ctx *ctx, ls_post_processor *post);

#endif
