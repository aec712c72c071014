/* Batches of a task's samples. */
#include "train/train.h"

#include "base/file.h"

/* ---- samples that are kept ---- */

/* A state for each, then their tokens, a byte each, then their classes. */
enum { UNMADE, BEING_KEPT, KEPT, KEPT_MOST = 1 << 30 /* bytes */ };

size_t ls_task_kept_bytes(const ls_task_batches *from) {
    const int64_t samples = ls_task_training_samples(from->task);
    const size_t each = 2 + (size_t)from->length; /* state, class */
    if (!from->task->type->costly || from->held_out || from->whole != NULL || samples == 0 ||
        (size_t)samples > KEPT_MOST / each)
        return 0;
    return (size_t)samples * each;
}

/* Of threads that want the same sample at once one keeps it. */
static void training_sample(const ls_task_batches *from, int64_t place, int32_t *x, int32_t *y) {
    const int64_t number = ls_task_training_number(from->task, from->seed, place);
    uint8_t unmade = UNMADE;
    if (from->kept == NULL) {
        ls_task_sample(from->task, LS_TASK_TRAIN, from->seed, number, from->length, x, y);
        return;
    }
    const int64_t samples = ls_task_training_samples(from->task);
    uint8_t *state = from->kept + number, *tokens = from->kept + samples + number * from->length;
    uint8_t *class = from->kept + samples * (1 + from->length) + number;
    if (__atomic_load_n(state, __ATOMIC_ACQUIRE) == KEPT) {
        for (int64_t t = 0; t < from->length; t++) x[t] = tokens[t];
        y[0] = *class;
        return;
    }
    ls_task_sample(from->task, LS_TASK_TRAIN, from->seed, number, from->length, x, y);
    if (!__atomic_compare_exchange_n(state, &unmade, BEING_KEPT, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return;
    for (int64_t t = 0; t < from->length; t++) tokens[t] = (uint8_t)x[t];
    *class = (uint8_t)y[0];
    __atomic_store_n(state, KEPT, __ATOMIC_RELEASE);
}

/* ---- batches ---- */

static void task_rows(const void *user, int64_t batch, int64_t row, int64_t rows, int32_t *inputs,
                      int32_t *targets, bool *fresh) {
    const ls_task_batches *from = user;
    const int64_t length = from->length;
    const ls_task_parts parts = ls_task_parts_of(from->task, length);
    const int64_t read = ls_task_inputs(from->task, length);
    const int64_t scored = ls_task_targets(from->task, length);
    /* each is a pure function of its number */
#pragma omp parallel for schedule(dynamic) num_threads((int)ls_max(1, from->threads))
    for (int64_t i = 0; i < rows; i++) {
        int32_t *whole = from->whole == NULL ? NULL : from->whole + 2 * (row + i) * length;
        const int64_t place = batch * from->batch + row + i;
        int32_t *x = whole == NULL ? inputs + i * read : whole;
        int32_t *y = whole == NULL ? targets + i * scored : whole + length;
        if (from->held_out)
            ls_task_sample(from->task, LS_TASK_TEST, from->seed, place, length, x, y);
        else
            training_sample(from, place, x, y);
        if (whole != NULL)
            ls_task_cut(parts, length, whole, whole + length,
                        inputs + i * (parts.source + parts.rest), targets + i * parts.rest);
        fresh[i] = true;
    }
}

ls_status ls_train_source_of_task(ls_ctx *ctx, const ls_task_batches *from, int64_t vocabulary,
                                  ls_train_source *out) {
    LS_TRY(ls_task_check(ctx, from->task, from->length));
    *out = (ls_train_source){.user = from, .rows = task_rows, .vocabulary = vocabulary};
    if (from->whole != NULL) {
        const ls_task_parts parts = ls_task_parts_of(from->task, from->length);
        LS_TRY(ls_task_parts_check(ctx, from->task));
        out->source = parts.source;
        out->inputs = parts.source + parts.rest;
        out->targets = parts.rest;
    }
    /* settings are compared as such; that they still mean the same is told by the first sample */
    const int64_t read = ls_task_inputs(from->task, from->length);
    const size_t count = (size_t)(read + ls_task_targets(from->task, from->length));
    int32_t *sample = ls_new(ctx, count, sizeof *sample);
    if (sample == NULL) return LS_ENOMEM;
    ls_task_training_sample(from->task, from->seed, 0, from->length, sample, sample + read);
    out->identity = ls_hash(sample, count * sizeof *sample);
    ls_free(ctx, sample);
    return ls_task_hash(ctx, from->task, LS_TASK_TRAIN, &out->records);
}
