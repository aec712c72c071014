/* The checkpoint with the least validation loss: checkpoints/best-N, apart from those that a run
 * goes on from. While a better one replaces it both are there; the loss in their state tells. */
#include <stdio.h>
#include <string.h>

#include "train/checkpoint_parts.h"
#include "train/validation.h"

enum { PATH_BYTES = 4096, STATE_MAX = 64 << 20 };

static ls_status best_path(ls_ctx *ctx, const char *folder, const char *name, const char *end,
                           char *out) {
    if ((size_t)snprintf(out, PATH_BYTES, "%s/%s%s", folder, name, end) >= PATH_BYTES)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", folder);
    return LS_OK;
}

/* Removes all but the one named. */
static ls_status remove_others(ls_ctx *ctx, const char *folder, const char *kept) {
    char **names, path[PATH_BYTES], doomed[PATH_BYTES];
    size_t count;
    LS_TRY(ls_folder_list(ctx, folder, &names, &count));
    ls_status status = LS_OK;
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        if (ls__checkpoint_step(names[i], LS_CHECKPOINT_BEST) < 0 || strcmp(names[i], kept) == 0)
            continue;
        LS_TRY_GOTO(best_path(ctx, folder, names[i], "", path));
        LS_TRY_GOTO(best_path(ctx, folder, names[i], ".tmp", doomed));
        LS_TRY_GOTO(ls_path_rename(ctx, path, doomed)); /* at once; a crash's rest is swept away */
        status = ls_folder_remove(ctx, doomed);
    }
fail:
    ls_names_free(ctx, names, count);
    return status;
}

ls_status ls_checkpoint_save_best(ls_ctx *ctx, const char *folder, const ls_checkpoint *checkpoint,
                                  ls_optimizer *optimizer) {
    char name[48], path[PATH_BYTES], unfinished[PATH_BYTES];
    snprintf(name, sizeof name, LS_CHECKPOINT_BEST "%08lld", (long long)checkpoint->step);
    LS_TRY(best_path(ctx, folder, name, "", path));
    LS_TRY(best_path(ctx, folder, name, ".tmp", unfinished));
    LS_TRY(ls_folder_make(ctx, folder));
    ls_status status = ls__checkpoint_write(ctx, unfinished, checkpoint, optimizer);
    if (status == LS_OK) status = ls_folder_remove(ctx, path);
    if (status == LS_OK) status = ls_path_rename(ctx, unfinished, path);
    if (status == LS_OK) return remove_others(ctx, folder, name);
    const ls_error first = ctx->error;
    ls_folder_remove(ctx, unfinished);
    ctx->error = first;
    return status;
}

static ls_status read_loss(ls_ctx *ctx, const char *path, int64_t step, double *out) {
    char file[PATH_BYTES];
    json_t *state;
    ls_best best;
    LS_TRY(ls__checkpoint_verify_weights(ctx, path, step));
    LS_TRY(ls_path_join(ctx, file, sizeof file, path, "state.json"));
    LS_TRY(ls_json_read(ctx, file, STATE_MAX, &state));
    ls_status status =
        ls_best_load(ctx, json_object_get(state, "validation"), file, INT64_MAX, &best);
    json_decref(state);
    *out = best.loss;
    return status;
}

/* The best of those that are there; *gone where one was replaced while it was looked at. */
static ls_status find_least(ls_ctx *ctx, const char *folder, char *path, size_t bytes,
                            int64_t *step, bool *gone) {
    char **names, here[PATH_BYTES];
    size_t count;
    double least = 0;
    *step = -1;
    *gone = false;
    LS_TRY(ls_folder_list(ctx, folder, &names, &count));
    ls_status status = LS_OK;
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        const int64_t at = ls__checkpoint_step(names[i], LS_CHECKPOINT_BEST);
        double loss;
        if (at < 0) continue;
        LS_TRY_GOTO(best_path(ctx, folder, names[i], "", here));
        status = read_loss(ctx, here, at, &loss);
        *gone = status != LS_OK && status != LS_ENOMEM && !ls_path_exists(here);
        if (status != LS_OK || (*step >= 0 && !(loss < least))) continue;
        least = loss;
        *step = at;
        status = ls_path_join(ctx, path, bytes, folder, names[i]);
    }
fail:
    ls_names_free(ctx, names, count);
    return status;
}

ls_status ls_checkpoint_find_best(ls_ctx *ctx, const char *folder, char *path, size_t bytes,
                                  int64_t *step) {
    enum { TRIES = 10 };
    bool gone = true;
    ls_status status = LS_OK;
    *step = -1;
    if (!ls_path_is_folder(folder)) return LS_OK;
    for (int i = 0; i < TRIES && gone; i++) { /* a run may be at work there */
        ctx->error = (ls_error){0};
        status = find_least(ctx, folder, path, bytes, step, &gone);
    }
    return status;
}
