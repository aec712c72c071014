#include "suite/lib/pool.h"

#include <string.h>

enum { BLOCK_BYTES = 1 << 16, ALIGNMENT = 16 };

typedef struct ls_pool_block {
    struct ls_pool_block *before;
    size_t used, bytes;
    _Alignas(ALIGNMENT) uint8_t at[];
} block;

static block *add_block(ls_pool *pool, size_t bytes) {
    if (bytes > SIZE_MAX - sizeof(block)) return NULL;
    block *made = ls_new_raw(pool->ctx, 1, sizeof(block) + bytes);
    if (made == NULL) return NULL;
    made->used = 0;
    made->bytes = bytes;
    made->before = pool->last;
    pool->last = made;
    return made;
}

void *ls_pool_take(ls_pool *pool, size_t count, size_t size) {
    size_t bytes;
    if (pool->failed) return NULL;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - 2 * ALIGNMENT) {
        pool->failed = true;
        (void)LS_FAIL(pool->ctx, LS_ENOMEM, "%zu items of %zu bytes are too many", count, size);
        return NULL;
    }
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block *last = pool->last;
    if (last == NULL || last->bytes - last->used < bytes)
        last = add_block(pool, bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES);
    if (last == NULL) {
        pool->failed = true;
        return NULL;
    }
    void *at = last->at + last->used;
    last->used += bytes;
    return memset(at, 0, bytes);
}

char *ls_pool_copy(ls_pool *pool, const void *bytes, size_t length) {
    char *copy = ls_pool_take(pool, length + 1, 1);
    if (copy != NULL && length > 0) memcpy(copy, bytes, length);
    return copy;
}

char *ls_pool_join(ls_pool *pool, const void *a, size_t a_length, const void *b, size_t b_length) {
    char *joined = ls_pool_take(pool, a_length + b_length + 1, 1);
    if (joined == NULL) return NULL;
    if (a_length > 0) memcpy(joined, a, a_length);
    if (b_length > 0) memcpy(joined + a_length, b, b_length);
    return joined;
}

ls_status ls_pool_status(const ls_pool *pool) {
    return pool->failed ? LS_ENOMEM : LS_OK;
}

void ls_pool_clear(ls_pool *pool) {
    while (pool->last != NULL) {
        block *before = pool->last->before;
        ls_free(pool->ctx, pool->last);
        pool->last = before;
    }
    pool->failed = false;
}
