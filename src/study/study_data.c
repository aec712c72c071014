/* Whether the corpora of a study are still those that its stored results were made with. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "data/data.h"
#include "study/study.h"
#include "train/task_keys.h"

/* The corpus that was looked at last: arms mostly share theirs. */
typedef struct look {
    ls_data_settings settings;
    char hash[17]; /* empty: it cannot be read now, which the jobs will say */
    bool taken;
} look;

static ls_status take_look(const ls_study *study, const ls_study_arm *arm, look *last) {
    ls_ctx *ctx = study->ctx;
    ls_data_settings settings;
    ls_dataset data;
    memset(&settings, 0, sizeof settings);
    LS_TRY(ls_options_default(ctx, &ls_data_options, &settings));
    LS_TRY(ls_data_read(ctx, &arm->training, ls_training_facts, &settings));
    if (last->taken && memcmp(&settings, &last->settings, sizeof settings) == 0) return LS_OK;
    *last = (look){.settings = settings, .taken = true};
    ls_status status = ls_data_open(ctx, &settings, study->from.cache, study->keys.out, &data);
    if (status == LS_EINPUT) {
        ctx->error = (ls_error){0};
        return LS_OK;
    }
    LS_TRY(status);
    snprintf(last->hash, sizeof last->hash, "%016" PRIx64, ls_data_hash(&data));
    ls_data_close(ctx, &data);
    return LS_OK;
}

static ls_status compare_arm(const ls_study *study, size_t index, look *last) {
    const ls_study_arm *arm = &study->arms[index];
    for (int64_t i = 0; i < arm->seeds.count; i++) {
        json_t *stored;
        LS_TRY(ls_study_stored(study, index, arm->seeds.at[i], LS_STUDY_EVAL, &stored));
        const char *then =
            json_string_value(json_object_get(json_object_get(stored, "said"), "data_hash"));
        ls_status status = then == NULL ? LS_OK : take_look(study, arm, last);
        const bool differs = status == LS_OK && then != NULL && last->hash[0] != '\0' &&
                             strcmp(then, last->hash) != 0;
        if (differs)
            ls_say(study->ctx,
                   "%s: its results were made with other data (%s) than the corpus %s holds now "
                   "(%s). They are kept; to compare arms on one corpus, give another out=",
                   arm->name, then, last->settings.corpus, last->hash);
        json_decref(stored);
        LS_TRY(status);
        if (differs) return LS_OK;
    }
    return LS_OK;
}

ls_status ls_study_compare_data(const ls_study *study) {
    look last = {0};
    for (size_t i = 0; i < study->count; i++) LS_TRY(compare_arm(study, i, &last));
    return LS_OK;
}
