/* Documents encoded on all threads; what comes out is in their order, and does not depend on how
 * many threads there are. */
#ifndef LS_DATA_ENCODE_TEAM_H
#define LS_DATA_ENCODE_TEAM_H

#include "data/tokenizer.h"

typedef struct ls_encode_team ls_encode_team;

/* Takes the ids of a document, the end of it included; called in the order of the documents. */
typedef ls_status (*ls_encoded_fn)(ls_ctx *ctx, void *user, const int32_t *ids, size_t count,
                                   size_t text_bytes);

/* As many encoders as the context has threads. The tokenizer is borrowed. */
ls_status ls_encode_team_new(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_encoded_fn put,
                             void *user, ls_encode_team **out);
void ls_encode_team_free(ls_ctx *ctx, ls_encode_team *team); /* NULL is fine */

/* Adds a document; its ids come now or with those of later ones. */
ls_status ls_encode_team_add(ls_ctx *ctx, ls_encode_team *team, const char *text, size_t length);
/* Gives what still waits. */
ls_status ls_encode_team_finish(ls_ctx *ctx, ls_encode_team *team);

#endif
