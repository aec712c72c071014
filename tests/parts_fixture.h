/* Parts of one stream (ls_parts) as threads of one process. */
#ifndef LS_TESTS_PARTS_FIXTURE_H
#define LS_TESTS_PARTS_FIXTURE_H

#include <pthread.h>
#include <string.h>

#include "tensor/engine/program.h"

enum { MOST_PARTS = 4 };

typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    const void *offer[MOST_PARTS][MOST_PARTS]; /* from, to */
    bool gone;                                 /* one has failed: nobody waits for it */
} meeting;

typedef struct member {
    meeting *with;
    int64_t own;
} member;

/* As the ranks' exchange: returns once both have what they wanted. */
static inline ls_status meet(void *user, int64_t with, const void *send, void *receive,
                             size_t bytes) {
    const member *m = user;
    meeting *all = m->with;
    pthread_mutex_lock(&all->lock);
    all->offer[m->own][with] = send;
    pthread_cond_broadcast(&all->moved);
    while (all->offer[with][m->own] == NULL && !all->gone)
        pthread_cond_wait(&all->moved, &all->lock);
    const bool there = all->offer[with][m->own] != NULL;
    if (there) memcpy(receive, all->offer[with][m->own], bytes);
    all->offer[with][m->own] = NULL;
    pthread_cond_broadcast(&all->moved);
    while (all->offer[m->own][with] != NULL && !all->gone)
        pthread_cond_wait(&all->moved, &all->lock);
    pthread_mutex_unlock(&all->lock);
    return there ? LS_OK : LS_ERANK;
}

static inline void leave(meeting *all) {
    pthread_mutex_lock(&all->lock);
    all->gone = true;
    pthread_cond_broadcast(&all->moved);
    pthread_mutex_unlock(&all->lock);
}

#endif
