/* A task from words, and its samples, for tests. */
#ifndef LS_TESTS_TASK_FIXTURE_H
#define LS_TESTS_TASK_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "eval/task.h"
#include "train/train.h"

enum { LONGEST = 4096 };
static int32_t inputs[LONGEST], targets[LONGEST];

/* "task=mqar task.pairs=2 ..." */
static inline ls_status read_task(ls_ctx *ctx, const char *words, ls_task *out) {
    ls_settings settings = {0};
    ls_status status = ls_settings_put_words(ctx, &settings, words);
    if (status == LS_OK) status = ls_task_read(ctx, &settings, ls_training_facts, out);
    ls_settings_clear(ctx, &settings);
    return status;
}

static inline ls_task make_task(ls_ctx *ctx, const char *words) {
    ls_task task;
    if (read_task(ctx, words, &task) != LS_OK) fail_msg("%s: %s", words, ctx->error.message);
    return task;
}

static inline void test_sample(const ls_task *task, int64_t number, int64_t length) {
    assert_in_range(length, 1, LONGEST);
    ls_task_sample(task, LS_TASK_TEST, 7, number, length, inputs, targets);
}

static inline int64_t count_scored(int64_t length) {
    int64_t count = 0;
    for (int64_t t = 0; t < length; t++) count += targets[t] >= 0;
    return count;
}

#endif
