/* The normalisers of tokenizer.json. */
#ifndef LS_DATA_TOKENIZER_NORMALIZER_H
#define LS_DATA_TOKENIZER_NORMALIZER_H

#include "base/json.h"
#include "data/tokenizer/pattern.h"

typedef struct ls_normalizer_step ls_normalizer_step;
typedef struct ls_normalizer {
    ls_normalizer_step *steps;
    size_t count, capacity;
} ls_normalizer;

/* Adds the steps of a normaliser (null: none). LS_EINPUT naming what is not understood. */
ls_status ls__normalizer_read(ls_ctx *ctx, const json_t *json, const char *what,
                              ls_normalizer *out);
void ls__normalizer_clear(ls_ctx *ctx, ls_normalizer *normalizer);

/* Normalises valid UTF-8. *out and *out_length are the text itself, or lie in one of the buffers,
 * which are overwritten. */
ls_status ls__normalize(ls_ctx *ctx, const ls_normalizer *normalizer, ls_matcher *matcher,
                        const uint8_t *text, size_t length, ls_text buffers[2], const uint8_t **out,
                        size_t *out_length);

#endif
