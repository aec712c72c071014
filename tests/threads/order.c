/* Tells ThreadSanitizer what LLVM's OpenMP orders. The runtime is not built with the sanitizer, so
 * its forks, barriers and locks cannot be seen; it reports them to a tool (OMPT), which is this
 * library, opened through OMP_TOOL_LIBRARIES. What is not ordered by them stays a race. */
#include <omp-tools.h>
#include <pthread.h>
#include <stdlib.h>

void __tsan_acquire(void *address);
void __tsan_release(void *address);

/* A parallel region. Threads meet at barriers one after another: while some still leave one, others
 * may come to the next, so that two places take turns. */
typedef struct region {
    char begins, ends, barriers[2];
} region;

typedef struct task {
    region *in;
    unsigned barriers; /* that this thread has passed */
} task;

static void on_parallel_begin(ompt_data_t *parent, const ompt_frame_t *frame, ompt_data_t *parallel,
                              unsigned wanted, int flags, const void *caller) {
    (void)parent, (void)frame, (void)wanted, (void)flags, (void)caller;
    region *r = calloc(1, sizeof *r);
    parallel->ptr = r;
    __tsan_release(&r->begins);
}

static void on_parallel_end(ompt_data_t *parallel, ompt_data_t *parent, int flags,
                            const void *caller) {
    (void)parent, (void)flags, (void)caller;
    region *r = parallel->ptr;
    __tsan_acquire(&r->ends);
    free(r);
}

static void on_implicit_task(ompt_scope_endpoint_t end, ompt_data_t *parallel, ompt_data_t *data,
                             unsigned count, unsigned index, int flags) {
    (void)count, (void)index, (void)flags;
    if (end == ompt_scope_begin) {
        task *t = calloc(1, sizeof *t);
        data->ptr = t;
        t->in = parallel == NULL ? NULL : parallel->ptr;
        if (t->in != NULL) __tsan_acquire(&t->in->begins);
    } else {
        free(data->ptr);
        data->ptr = NULL;
    }
}

static void on_sync_region(ompt_sync_region_t kind, ompt_scope_endpoint_t end,
                           ompt_data_t *parallel, ompt_data_t *data, const void *caller) {
    (void)kind, (void)parallel, (void)caller;
    task *t = data == NULL ? NULL : data->ptr;
    if (t == NULL || t->in == NULL) return;
    if (end == ompt_scope_begin) {
        __tsan_release(&t->in->barriers[t->barriers % 2]);
        __tsan_release(&t->in->ends); /* the last barrier is the region's end */
    } else if (parallel != NULL) {    /* NULL: the region is over, and may be gone */
        __tsan_acquire(&t->in->barriers[t->barriers % 2]);
        t->barriers++;
    }
}

/* A lock of OpenMP, by its number. The runtime tells of a release after it: the next thread may be
 * told that it has the lock before that. It waits for the one before by a lock of ours. */
typedef struct lock {
    ompt_wait_id_t number;
    pthread_mutex_t told;
    struct lock *next;
} lock;

static lock *locks;
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;

static lock *lock_of(ompt_wait_id_t number) {
    pthread_mutex_lock(&listing);
    lock *l = locks;
    while (l != NULL && l->number != number) l = l->next;
    if (l == NULL) {
        l = calloc(1, sizeof *l);
        *l = (lock){number, PTHREAD_MUTEX_INITIALIZER, locks};
        locks = l;
    }
    pthread_mutex_unlock(&listing);
    return l;
}

static void on_acquired(ompt_mutex_t kind, ompt_wait_id_t number, const void *caller) {
    (void)kind, (void)caller;
    lock *l = lock_of(number);
    pthread_mutex_lock(&l->told);
    __tsan_acquire(l);
}

static void on_released(ompt_mutex_t kind, ompt_wait_id_t number, const void *caller) {
    (void)kind, (void)caller;
    lock *l = lock_of(number);
    __tsan_release(l);
    pthread_mutex_unlock(&l->told);
}

static int begin(ompt_function_lookup_t lookup, int device, ompt_data_t *data) {
    (void)device, (void)data;
    ompt_set_callback_t set = (ompt_set_callback_t)lookup("ompt_set_callback");
    if (set == NULL) return 0;
    set(ompt_callback_parallel_begin, (ompt_callback_t)on_parallel_begin);
    set(ompt_callback_parallel_end, (ompt_callback_t)on_parallel_end);
    set(ompt_callback_implicit_task, (ompt_callback_t)on_implicit_task);
    set(ompt_callback_sync_region, (ompt_callback_t)on_sync_region);
    set(ompt_callback_mutex_acquired, (ompt_callback_t)on_acquired);
    set(ompt_callback_mutex_released, (ompt_callback_t)on_released);
    return 1;
}

static void finish(ompt_data_t *data) {
    (void)data;
}

__attribute__((visibility("default"))) ompt_start_tool_result_t *
ompt_start_tool(unsigned version, const char *runtime) {
    (void)version, (void)runtime;
    static ompt_start_tool_result_t result = {begin, finish, {0}};
    return &result;
}
