#include "train/lengths.h"

#include <inttypes.h>
#include <stdio.h>

ls_status ls_lengths_settle(ls_ctx *ctx, const ls_task *task, ls_settings *settings) {
    const char *trained = ls_settings_get(settings, "train.length");
    const char *made = ls_settings_get(settings, "model.length");
    const char *length = trained != NULL ? trained : made;
    char own[32];
    int64_t number;
    if (length == NULL && task->type == NULL) return LS_OK;
    if (length == NULL) {
        snprintf(own, sizeof own, "%" PRId64, task->type->length);
        return ls_settings_put(ctx, settings, "model.length", own);
    }
    if (!ls_parse_int(length, &number) || number < 1) return LS_OK; /* refused where it is read */
    if (task->type != NULL) LS_TRY(ls_task_check(ctx, task, number));
    return made != NULL ? LS_OK : ls_settings_put(ctx, settings, "model.length", trained);
}

ls_status ls_lengths_check(ls_ctx *ctx, const ls_settings *settings, const ls_model_config *model) {
    const char *from = ls_settings_get(settings, "train.from");
    if (model->model.length == model->trained_length || (from != NULL && from[0] != '\0') ||
        ls_position_draws(&model->position))
        return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "model.length=%" PRId64 " and train.length=%" PRId64
                   " both name the trained length: give one of them (two are for train.from, and "
                   "for positions that are drawn, extend=pose)",
                   model->model.length, model->trained_length);
}
