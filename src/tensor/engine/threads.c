#include "tensor/engine/threads.h"

#include <pthread.h>
#include <string.h>

enum { THREADS_MAX = 1024 };

/* Waits until all that were wanted are there. */
static void *wait_for_all(void *lock) {
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* As many threads as could be made beside this one, all at once; they are gone again. */
static int try_to_make(int wanted, int *reason) {
    pthread_t made[THREADS_MAX];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int count = 0;
    *reason = 0;
    pthread_mutex_lock(&lock);
    while (count < wanted && *reason == 0) {
        *reason = pthread_create(&made[count], NULL, wait_for_all, &lock);
        count += *reason == 0;
    }
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < count; i++) pthread_join(made[i], NULL);
    pthread_mutex_destroy(&lock);
    return count;
}

ls_status ls_threads_check(ls_ctx *ctx) {
    static _Thread_local int checked = 1; /* a thread that computes has a team of its own */
    int reason;
    if (ctx->threads <= checked) return LS_OK;
    const int wanted = ctx->threads < THREADS_MAX ? ctx->threads : THREADS_MAX;
    const int possible = 1 + try_to_make(wanted - 1, &reason);
    if (possible < wanted)
        return LS_FAIL(ctx, LS_ENOMEM,
                       "only %d of %d threads can be started (%s): choose threads=%d or fewer",
                       possible, ctx->threads, strerror(reason), possible > 1 ? possible / 2 : 1);
    checked = ctx->threads;
    return LS_OK;
}
