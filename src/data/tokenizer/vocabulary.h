/* Byte strings by number and numbers by byte string. */
#ifndef LS_DATA_TOKENIZER_VOCABULARY_H
#define LS_DATA_TOKENIZER_VOCABULARY_H

#include "base/memory.h"

enum { LS_VOCABULARY_MAX = 1 << 24 };

typedef struct ls_vocabulary {
    int32_t count;
    uint32_t *begin; /* [count + 1] into the pool; an empty entry is an id that nothing has */
    uint8_t *pool;
    int32_t *slots; /* open addressing by bytes, or NULL: not indexed */
    size_t mask;
} ls_vocabulary;

typedef struct ls_bytes {
    const char *at;
    size_t length;
} ls_bytes;

/* Copies the entries (those of length 0 are holes). LS_EINPUT where they are too many or too long
 * in all; `what` names their source. */
ls_status ls__vocabulary_make(ls_ctx *ctx, const ls_bytes *entries, size_t count, const char *what,
                              ls_vocabulary *out);
/* Makes ls__vocabulary_find possible. Of equal entries the last is found. `skip` (or NULL) leaves
 * entries out. */
ls_status ls__vocabulary_index(ls_ctx *ctx, ls_vocabulary *vocabulary, const bool *skip);
void ls__vocabulary_clear(ls_ctx *ctx, ls_vocabulary *vocabulary);
int32_t ls__vocabulary_find(const ls_vocabulary *vocabulary, const void *bytes, size_t length);

/* Ids of the characters below LS_DIRECT, -1 for those that are no entry; NULL: no memory. */
enum { LS_DIRECT = 0x3000 };
int32_t *ls__vocabulary_characters(ls_ctx *ctx, const ls_vocabulary *vocabulary);

static inline ls_bytes ls__vocabulary_at(const ls_vocabulary *v, int32_t id) {
    return (ls_bytes){(const char *)v->pool + v->begin[id], v->begin[id + 1] - v->begin[id]};
}

#endif
