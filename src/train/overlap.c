#include "train/overlap.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "tensor/engine/device.h"
#include "train/optimizer_ranks.h"

typedef struct bucket {
    int64_t number;
    size_t after; /* nodes that must have run */
} bucket;

struct ls_overlap {
    ls_ctx *ctx; /* the caller's */
    ls_ctx own;  /* the thread's: its errors, its order on the device */
    ls_program *program;
    ls_optimizer *optimizer;
    ls_leaves *leaves;
    bucket buckets[LS_OPTIMIZER_BUCKETS]; /* in the order in which they are finished */
    size_t count;
    size_t at[LS_OPTIMIZER_BUCKETS];   /* places of the program that are watched */
    size_t ends[LS_OPTIMIZER_BUCKETS]; /* how many buckets are finished there */
    size_t places;
    bool begun;        /* the present run is the last one */
    double before;     /* seconds in exchanges before it */
    volatile int stop; /* what the thread's exchanges see of a signal */
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t more, less;
    size_t posted, done;
    bool over;
    ls_status status;
};

/* ---- buckets ---- */

static int by_end(const void *a, const void *b) {
    const bucket *x = a, *y = b;
    if (x->after != y->after) return x->after < y->after ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* When the elements [first, end) are finished. Parameters lie in the order of their offsets;
 * *next is the first that may reach beyond `first`. */
static size_t finished(const ls_parameters *part, const size_t *after, size_t *next, int64_t first,
                       int64_t end) {
    size_t latest = 0, i = *next;
    for (; i < part->count && part->items[i].offset < end; i++) {
        if (part->items[i].offset + part->items[i].count <= first) {
            *next = i + 1;
            continue;
        }
        latest = after[i] > latest ? after[i] : latest;
    }
    return latest;
}

static void order_buckets(ls_overlap *o, const size_t *after) {
    const ls_optimizer *of = o->optimizer;
    size_t next = 0;
    for (int64_t b = 0; b < of->buckets; b++) {
        const int64_t first = of->cuts[of->bucket[b]], end = of->cuts[of->bucket[b + 1]];
        o->buckets[o->count++] = (bucket){b, finished(&of->part, after, &next, first, end)};
    }
    qsort(o->buckets, o->count, sizeof *o->buckets, by_end);
}

/* What is finished by the last node only is posted by ls_overlap_end. */
static void find_places(ls_overlap *o) {
    const size_t nodes = ls_program_nodes(o->program);
    for (size_t i = 0; i < o->count && o->buckets[i].after < nodes; i++) {
        const bool same = o->places > 0 && o->at[o->places - 1] == o->buckets[i].after;
        if (!same) o->at[o->places++] = o->buckets[i].after;
        o->ends[o->places - 1] = i + 1;
    }
}

/* after[i] of the i-th parameter that is trained. */
static ls_status find_ends(ls_overlap *o, size_t **out) {
    const ls_parameters *store = o->optimizer->store, *part = &o->optimizer->part;
    size_t *after = ls_new(o->ctx, store->count + 1, sizeof *after);
    *out = after;
    if (after == NULL) return LS_ENOMEM;
    ls_program_gradients_end(o->program, after);
    for (size_t i = 0, j = 0; i < store->count && j < part->count; i++)
        if (strcmp(store->items[i].name, part->items[j].name) == 0) after[j++] = after[i];
    return LS_OK;
}

/* ---- the thread ---- */

static ls_status sum_bucket(ls_overlap *o, size_t i) {
    ls_optimizer *of = o->optimizer;
    const int64_t b = o->buckets[i].number, first = of->cuts[of->bucket[b]];
    if (o->own.device != NULL) o->own.device->follow(o->own.device, (int)i);
    ls_leaves_sum(&o->own, o->leaves, first, of->cuts[of->bucket[b + 1]] - first);
    LS_TRY(ls__optimizer_reduce_bucket(&o->own, of, b));
    return i + 1 < o->count ? LS_OK : ls_device_settle(&o->own);
}

static void *work(void *user) {
    ls_overlap *o = user;
    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (o->posted == o->done && !o->over) pthread_cond_wait(&o->more, &o->lock);
        if (o->posted == o->done) break;
        const size_t i = o->done;
        pthread_mutex_unlock(&o->lock);
        const ls_status status = o->status == LS_OK ? sum_bucket(o, i) : o->status;
        pthread_mutex_lock(&o->lock);
        o->status = status;
        o->done++;
        pthread_cond_signal(&o->less);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* The buckets up to `end` may go. */
static void post(ls_overlap *o, size_t end) {
    for (size_t i = o->posted; o->own.device != NULL && i < end; i++)
        o->own.device->mark(o->own.device, (int)i);
    pthread_mutex_lock(&o->lock);
    o->posted = end;
    pthread_cond_signal(&o->more);
    pthread_mutex_unlock(&o->lock);
}

static void reached(void *user, size_t place) {
    ls_overlap *o = user;
    if (o->begun) post(o, o->ends[place]);
}

/* ---- life ---- */

static ls_status start(ls_overlap *o) {
    size_t *after;
    ls_status status = find_ends(o, &after);
    if (status == LS_OK) order_buckets(o, after);
    ls_free(o->ctx, after);
    LS_TRY(status);
    find_places(o);
    const uint64_t order = ls_hash(o->buckets, o->count * sizeof *o->buckets);
    LS_TRY(ls_ranks_compare(o->ctx, o->optimizer->ranks, order, "another order of gradients"));
    o->own = *o->ctx;
    o->own.threads = 1;
    o->own.stop = &o->stop;
    o->own.device = NULL;
    ls_device *device = o->ctx->device;
    if (device != NULL) o->own.device = device->beside(device, (int)o->count);
    if (device != NULL && o->own.device == NULL)
        return LS_FAIL(o->ctx, LS_ENOMEM, "the device has no room for sums beside its work");
    const int failed = pthread_create(&o->thread, NULL, work, o);
    if (failed != 0)
        return LS_FAIL(o->ctx, LS_ENOMEM, "no thread for exchanges could be started (%s)",
                       strerror(failed));
    o->runs = o->leaves->in_ranges = true;
    return ls_program_watch(o->program, &(ls_watch){o->places, o->at, reached, o});
}

ls_status ls_overlap_new(ls_ctx *ctx, ls_program *program, ls_optimizer *optimizer,
                         ls_leaves *leaves, ls_overlap **out) {
    const ls_ranks *ranks = optimizer->ranks;
    *out = NULL;
    if (ctx->rehearsal || ranks == NULL || ranks->transport == NULL ||
        !ranks->transport->any_thread)
        return LS_OK;
    ls_overlap *o = ls_new(ctx, 1, sizeof *o);
    if (o == NULL) return LS_ENOMEM;
    o->ctx = ctx;
    o->program = program;
    o->optimizer = optimizer;
    o->leaves = leaves;
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->more, NULL);
    pthread_cond_init(&o->less, NULL);
    const ls_status status = start(o);
    if (status == LS_OK)
        *out = o;
    else
        ls_overlap_free(o);
    return status;
}

void ls_overlap_free(ls_overlap *o) {
    if (o == NULL) return;
    ls_ranks *ranks = o->optimizer->ranks;
    if (o->runs) {
        o->stop = 1; /* this rank has failed: nobody is waited for */
        pthread_mutex_lock(&o->lock);
        o->over = true;
        pthread_cond_signal(&o->more);
        pthread_mutex_unlock(&o->lock);
        pthread_join(o->thread, NULL);
        /* that sums were broken off is no failure of the other rank's */
        if (o->begun && o->status == LS_ESTOP) ranks->failure = (ls_rank_failure){0};
        ls_program_watch(o->program, NULL);
        o->leaves->in_ranges = false;
    }
    if (o->own.device != NULL) o->own.device->close(o->own.device);
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->more);
    pthread_cond_destroy(&o->less);
    ls_free(o->ctx, o);
}

/* ---- a step ---- */

void ls_overlap_begin(ls_overlap *o) {
    if (o == NULL) return;
    o->before = o->optimizer->ranks->seconds;
    o->begun = true;
}

/* Sees to it that a signal reaches the thread's exchanges. */
static void wait_for_all(ls_overlap *o) {
    enum { LOOK_EVERY = 100000000 }; /* ns */
    pthread_mutex_lock(&o->lock);
    while (o->done < o->count) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_EVERY;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&o->less, &o->lock, &until);
        if (o->ctx->stop != NULL) o->stop = *o->ctx->stop;
    }
    o->posted = o->done = 0;
    pthread_mutex_unlock(&o->lock);
}

ls_status ls_overlap_end(ls_overlap *o) {
    const double begun = ls_clock();
    post(o, o->count);
    wait_for_all(o);
    o->begun = false;
    o->optimizer->ranks->seconds = o->before + ls_clock() - begun;
    if (o->status != LS_OK) o->ctx->error = o->own.error;
    return o->status;
}
