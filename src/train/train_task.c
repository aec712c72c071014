/* Batches of a task's samples. */
#include "train/train.h"

#include "base/file.h"

static void task_rows(const void *user, int64_t batch, int64_t row, int64_t rows, int32_t *inputs,
                      int32_t *targets, bool *fresh) {
    const ls_task_batches *from = user;
    const int64_t read = ls_task_inputs(from->task, from->length);
    const int64_t scored = ls_task_targets(from->task, from->length);
    /* each is a pure function of its number */
#pragma omp parallel for schedule(dynamic) num_threads((int)ls_max(1, from->threads))
    for (int64_t i = 0; i < rows; i++) {
        ls_task_training_sample(from->task, from->seed, batch * from->batch + row + i, from->length,
                                inputs + i * read, targets + i * scored);
        fresh[i] = true;
    }
}

ls_status ls_train_source_of_task(ls_ctx *ctx, const ls_task_batches *from, int64_t vocabulary,
                                  ls_train_source *out) {
    LS_TRY(ls_task_check(ctx, from->task, from->length));
    *out = (ls_train_source){.user = from, .rows = task_rows, .vocabulary = vocabulary};
    /* settings are compared as such; that they still mean the same is told by the first sample */
    const int64_t read = ls_task_inputs(from->task, from->length);
    const size_t count = (size_t)(read + ls_task_targets(from->task, from->length));
    int32_t *sample = ls_new(ctx, count, sizeof *sample);
    if (sample == NULL) return LS_ENOMEM;
    ls_task_training_sample(from->task, from->seed, 0, from->length, sample, sample + read);
    out->identity = ls_hash(sample, count * sizeof *sample);
    ls_free(ctx, sample);
    return LS_OK;
}
