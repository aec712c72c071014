/* An allocator for tests: counts what is live, fills fresh memory with rubbish, and fails at the
 * allocation it is told to. Include after cmocka.h. */
#ifndef LS_TESTS_FAILING_ALLOCATOR_H
#define LS_TESTS_FAILING_ALLOCATOR_H

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

typedef struct failing_allocator {
    int64_t fail_at; /* number of the allocation that fails, from 0; -1: none */
    int64_t taken;   /* allocations asked for */
    int64_t live;    /* not given back */
} failing_allocator;

static inline void *failing_take(void *user, size_t bytes) {
    failing_allocator *allocator = user;
    if (allocator->taken++ == allocator->fail_at) return NULL;
    size_t rounded = (bytes + 64) & ~(size_t)63;
    void *pointer = aligned_alloc(64, rounded);
    if (pointer != NULL) {
        memset(pointer, 0xA5, rounded);
        allocator->live++;
    }
    return pointer;
}

static inline void failing_give(void *user, void *pointer) {
    failing_allocator *allocator = user;
    allocator->live--;
    free(pointer);
}

static inline ls_ctx failing_ctx(failing_allocator *allocator) {
    ls_ctx ctx = ls_ctx_default();
    ctx.allocator = (ls_allocator){.take = failing_take, .give = failing_give, .user = allocator};
    return ctx;
}

/* Runs `body` with the k-th allocation failing, for k = 0, 1, ... until it no longer needs that
 * many. Each run must say LS_ENOMEM, or succeed without that allocation, and give all back. */
static inline void fail_each_allocation(ls_status (*body)(ls_ctx *ctx, void *user), void *user) {
    for (int64_t k = 0;; k++) {
        failing_allocator allocator = {.fail_at = k};
        ls_ctx ctx = failing_ctx(&allocator);
        ls_status status = body(&ctx, user);
        assert_int_equal(allocator.live, 0);
        bool failed = allocator.taken > k;
        if (!failed) {
            assert_int_equal(status, LS_OK);
            return;
        }
        if (status != LS_ENOMEM && status != LS_OK)
            fail_msg("without allocation %lld: %s, %s", (long long)k, ls_status_name(status),
                     ctx.error.message);
        if (status == LS_ENOMEM) assert_int_equal(ctx.error.code, LS_ENOMEM);
    }
}

#endif
