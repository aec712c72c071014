#include "train/task_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static ls_status put_number(ls_ctx *ctx, ls_settings *settings, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return ls_settings_put(ctx, settings, key, text);
}

/* Head and classes of the model. */
static ls_status settle_head(ls_ctx *ctx, const ls_task *task, ls_settings *settings) {
    const int64_t classes = task->type->classes;
    const char *head = ls_settings_get(settings, "model.head");
    const char *wanted = classes == 0 ? "lm" : task->type->pairs ? "match" : "classify";
    int64_t given = 0;
    if (head != NULL && strcmp(head, wanted) != 0)
        return LS_FAIL(ctx, LS_EUSE, "task %s asks for %s: model.head must be %s, not %s",
                       task->type->name, classes > 0 ? "a class" : "tokens", wanted, head);
    if (classes == 0) return LS_OK;
    if (head == NULL) LS_TRY(ls_settings_put(ctx, settings, "model.head", wanted));
    const char *number = ls_settings_get(settings, "model.classes");
    if (number == NULL || (ls_parse_int(number, &given) && given == 0))
        return put_number(ctx, settings, "model.classes", classes);
    if (given > 0 && given != classes)
        return LS_FAIL(ctx, LS_EUSE, "task %s has %" PRId64 " classes: leave model.classes out",
                       task->type->name, classes);
    return LS_OK;
}

ls_status ls_task_settle(ls_ctx *ctx, const ls_task *task, ls_settings *settings) {
    const int64_t needed = ls_task_vocabulary(task);
    int64_t given;
    for (size_t i = 0; i < settings->count; i++)
        if (strncmp(settings->items[i].key, "data.", 5) == 0)
            return LS_FAIL(ctx, LS_EUSE, "%s is of no use: task %s makes its own data",
                           settings->items[i].key, task->type->name);
    LS_TRY(settle_head(ctx, task, settings));
    /* once nearly all answers are right, the batches with a wrong one look like spikes, and they
     * are what is left to learn from */
    if (ls_settings_get(settings, "train.guard_spread") == NULL)
        LS_TRY(put_number(ctx, settings, "train.guard_spread", 0));
    const char *vocabulary = ls_settings_get(settings, "model.vocabulary");
    if (vocabulary == NULL) return put_number(ctx, settings, "model.vocabulary", needed);
    if (ls_parse_int(vocabulary, &given) && given < needed)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.vocabulary=%s is too small: task %s has %" PRId64 " tokens",
                       vocabulary, task->type->name, needed);
    return LS_OK;
}
