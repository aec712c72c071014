/* A flag that rises when another one does, or when the time is up: for work that asks for its end
 * through a flag. A thread of its own looks at the clock. */
#ifndef LS_BASE_DEADLINE_H
#define LS_BASE_DEADLINE_H

#include <pthread.h>
#include <signal.h>

#include "base/status.h"

typedef struct ls_deadline {
    volatile sig_atomic_t raised;
    const volatile sig_atomic_t *other; /* or NULL */
    double at;                          /* by ls_clock */
    bool ends, running;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} ls_deadline;

/* Starts to look; *out must stay where it is until ls_deadline_end. */
ls_status ls_deadline_begin(ls_ctx *ctx, double at, const volatile sig_atomic_t *other,
                            ls_deadline *out);
void ls_deadline_end(ls_deadline *deadline);

#endif
