#include "base/deadline.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

enum { LOOK_EVERY_NS = 20 * 1000 * 1000 };

static void *look(void *of) {
    ls_deadline *d = of;
    pthread_mutex_lock(&d->lock);
    while (!d->ends && !d->raised) {
        struct timespec until;
        if (ls_clock() >= d->at || (d->other != NULL && *d->other != 0)) d->raised = 1;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_EVERY_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (!d->raised) pthread_cond_timedwait(&d->wake, &d->lock, &until);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

ls_status ls_deadline_begin(ls_ctx *ctx, double at, const volatile sig_atomic_t *other,
                            ls_deadline *out) {
    *out = (ls_deadline){.at = at, .other = other};
    pthread_mutex_init(&out->lock, NULL);
    pthread_cond_init(&out->wake, NULL);
    if (pthread_create(&out->thread, NULL, look, out) != 0)
        return LS_FAIL(ctx, LS_ENOMEM, "no thread can be started to look at the clock");
    out->running = true;
    return LS_OK;
}

void ls_deadline_end(ls_deadline *d) {
    if (!d->running) return;
    pthread_mutex_lock(&d->lock);
    d->ends = true;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->wake);
    d->running = false;
}
