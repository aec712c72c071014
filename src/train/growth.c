#include "train/growth.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "train/checkpoint.h"

enum { PATH_BYTES = 4096, CONFIG_MAX = 1 << 20 };

/* The first line in which two texts differ: where it begins in each. */
static void first_difference(const char *a, const char *b, const char **line_a,
                             const char **line_b) {
    for (;;) {
        size_t m = strcspn(a, "\n"), n = strcspn(b, "\n");
        if (m != n || memcmp(a, b, m) != 0 || a[m] != b[n] || a[m] == '\0') {
            *line_a = a, *line_b = b;
            return;
        }
        a += m + 1;
        b += n + 1;
    }
}

/* A line as one would give it: "model.width: 64" for "  width: 64" under "model:". */
static void name_in_full(const char *config, const char *line, char *out, size_t bytes) {
    const char *section = NULL;
    for (const char *at = config; at < line; at += strcspn(at, "\n") + 1)
        if (at[0] != ' ') section = at;
    const int indent = (int)strspn(line, " "), length = (int)strcspn(line, "\n") - indent;
    if (section != NULL && indent == 2)
        snprintf(out, bytes, "%.*s.%.*s", (int)strcspn(section, ":\n"), section, length,
                 line + indent);
    else
        snprintf(out, bytes, "%.*s", length, line + indent);
}

static ls_status refuse(ls_ctx *ctx, const char *folder, const char *stored, const char *config) {
    const char *line_there, *line_here;
    char there[160], here[160];
    first_difference(stored, config, &line_there, &line_here);
    name_in_full(stored, line_there, there, sizeof there);
    name_in_full(config, line_here, here, sizeof here);
    return LS_FAIL(ctx, LS_EUSE,
                   "%s holds a run with other settings: there `%s`, here `%s`; use another `out`",
                   folder, there, here);
}

/* The steps in a line "  steps: N" of a text; -1 where it is another. */
static int64_t steps_in(const char *line) {
    static const char key[] = "  steps: ";
    char number[32];
    int64_t steps;
    if (strncmp(line, key, sizeof key - 1) != 0) return -1;
    line += sizeof key - 1;
    snprintf(number, sizeof number, "%.*s", (int)strcspn(line, "\n"), line);
    return ls_parse_int(number, &steps) ? steps : -1;
}

static ls_status compare(ls_ctx *ctx, const char *folder, const ls_text *stored, const char *config,
                         int64_t steps, bool *grows) {
    const size_t length = strlen(config);
    const char *there, *here;
    if (stored->length == length && memcmp(stored->bytes, config, length) == 0) return LS_OK;
    first_difference(stored->bytes, config, &there, &here);
    *grows = steps_in(there) >= 0 && steps_in(there) < steps && steps_in(here) == steps &&
             ls_checkpoint_rest_hash(stored->bytes, stored->length) ==
                 ls_checkpoint_rest_hash(config, length);
    return *grows ? LS_OK : refuse(ctx, folder, stored->bytes, config);
}

/* Weights of other settings than config.yaml has by now: it was changed. What is wrong with
 * checkpoints themselves is said where they are loaded. */
static ls_status check_edited(ls_ctx *ctx, const char *folder, const char *config) {
    char all[PATH_BYTES], newest[PATH_BYTES];
    int64_t step;
    bool edited;
    ls_ctx quiet = *ctx;
    quiet.log = NULL;
    LS_TRY(ls_path_join(ctx, all, sizeof all, folder, "checkpoints"));
    if (ls_checkpoint_find(&quiet, all, newest, sizeof newest, &step) != LS_OK) return LS_OK;
    LS_TRY(ls_checkpoint_edited(ctx, newest, config, &edited));
    return edited ? ls_checkpoint_refuse_edited(ctx, folder) : LS_OK;
}

ls_status ls_growth_settle(ls_ctx *ctx, const char *folder, const char *config, int64_t steps,
                           bool *grows) {
    char path[PATH_BYTES];
    ls_text stored = {0};
    *grows = false;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "config.yaml"));
    if (!ls_path_exists(path)) return ls_file_write(ctx, path, config, strlen(config));
    ls_status status = ls_file_read(ctx, path, CONFIG_MAX, &stored);
    if (status == LS_OK) status = compare(ctx, folder, &stored, config, steps, grows);
    if (status == LS_OK) status = check_edited(ctx, folder, path);
    ls_text_clear(ctx, &stored);
    return status;
}

ls_status ls_growth_check(ls_ctx *ctx, const char *folder, const ls_train_settings *settings,
                          int64_t before, int64_t step) {
    ls_schedule now = ls_train_schedule(settings), then = now;
    then.steps = before;
    /* more steps fall later: where the last rate is the same, all before it are */
    if (step == 0 || ls_schedule_rate(&now, step - 1) == ls_schedule_rate(&then, step - 1))
        return LS_OK;
    return LS_FAIL(
        ctx, LS_EUSE,
        "%s: at step %lld its learning rate has begun to fall towards the end at %lld, so "
        "with %lld steps it would be another run. `longshot train train.from=%s "
        "train.steps=%lld out=OTHER` begins one with these weights, a warm-up and a "
        "schedule of its own (train.schedule=constant, or wsd before its decay, can grow)",
        folder, (long long)step, (long long)before, (long long)settings->steps, folder,
        (long long)(settings->steps - step));
}

ls_status ls_growth_write(ls_ctx *ctx, const char *folder, const char *config) {
    char path[PATH_BYTES];
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "config.yaml"));
    return ls_file_write(ctx, path, config, strlen(config));
}
