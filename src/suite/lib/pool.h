/* Memory that is freed all at once: what scoring one answer, or building one prompt, takes. A
 * request that fails is remembered and gives NULL or an empty text, so that whoever asks for much
 * looks once, at the end (ls_pool_status). */
#ifndef LS_SUITE_LIB_POOL_H
#define LS_SUITE_LIB_POOL_H

#include "base/memory.h"

typedef struct ls_pool {
    ls_ctx *ctx;
    struct ls_pool_block *last;
    bool failed;
} ls_pool;

/* count * size zeroed bytes, or NULL. */
void *ls_pool_take(ls_pool *pool, size_t count, size_t size);
char *ls_pool_copy(ls_pool *pool, const void *bytes, size_t length); /* with a NUL after it */
char *ls_pool_join(ls_pool *pool, const void *a, size_t a_length, const void *b, size_t b_length);
ls_status ls_pool_status(const ls_pool *pool); /* LS_OK or LS_ENOMEM */
void ls_pool_clear(ls_pool *pool);

#endif
