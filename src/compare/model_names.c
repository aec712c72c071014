/* Which output or which parameters a name of the file is, by the rules of its naming. */
#include "compare/model_trial.h"

#include <stdio.h>
#include <string.h>

bool ls_trial_gives_rows(const ls_trial *trial, const char *name) {
    char target[64];
    int64_t piece;
    size_t from = 0;
    return name != NULL && ls_name_after(name, "in.") != NULL &&
           ls_naming_find(&trial->naming, name, &from, target, sizeof target, &piece) &&
           strcmp(target, "rows") == 0;
}

ls_status ls_trial_check_names(const ls_trial *trial) {
    static const char *const kinds[] = {"w.", "in.", "out.", "cot.", "grad.w.", "grad.aux."};
    for (size_t i = 0; i < trial->file.count; i++) {
        const char *name = trial->file.items[i].name;
        bool known =
            strcmp(name, "cot") == 0 || ls_trial_gives_rows(trial, ls_name_after(name, "grad."));
        for (size_t j = 0; j < sizeof kinds / sizeof kinds[0]; j++)
            known |= ls_name_after(name, kinds[j]) != NULL;
        if (!known)
            return LS_FAIL(trial->ctx, LS_EINPUT,
                           "%s: %s is neither a weight, an input or an output nor a gradient of "
                           "a model",
                           trial->keys->golden, name);
    }
    return LS_OK;
}

ls_status ls_trial_output_of(const ls_trial *trial, const char *name, ls_trial_output *out) {
    static const char *const kinds[] = {"rows", "logits", "loss", "mean_loss", "auxiliary"};
    char full[LS_SAFETENSORS_NAME_MAX + 8], target[sizeof out->name];
    snprintf(full, sizeof full, "out.%s", name);
    *out = (ls_trial_output){.kind = LS_OUTPUT_NONE};
    size_t from = 0;
    if (!ls_naming_find(&trial->naming, full, &from, target, sizeof target, &out->piece))
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: no name is known for %s (set names=)",
                       trial->keys->golden, full);
    for (int i = 0; i < 5; i++)
        if (strcmp(target, kinds[i]) == 0) out->kind = (ls_output_kind)i;
    /* what comes out of a model without a head are its rows */
    if (out->kind == LS_OUTPUT_LOGITS && trial->config.model.head == LS_HEAD_NONE)
        out->kind = LS_OUTPUT_ROWS;
    const char *state = ls_name_after(target, "state ");
    const char *segment = ls_name_after(target, "segment ");
    if (state != NULL) out->kind = LS_OUTPUT_STATE;
    if (segment != NULL) out->kind = LS_OUTPUT_SEGMENT;
    if (out->kind == LS_OUTPUT_NONE && strcmp(target, "-") != 0)
        return LS_FAIL(trial->ctx, LS_EUSE, "names: %s = %.200s is no output of a model", full,
                       target);
    if (state != NULL || segment != NULL)
        snprintf(out->name, sizeof out->name, "%s", state != NULL ? state : segment);
    return LS_OK;
}

const char *ls_trial_cotangent_of(const char *name) {
    if (strcmp(name, "cot") == 0) return "y";
    return ls_name_after(name, "cot.");
}

ls_status ls_trial_weight_of(const ls_trial *trial, const char *name, ls_weight *out) {
    const ls_public_scope scope = {trial->model->store, &trial->naming, &trial->config,
                                   trial->mixers};
    return ls_public_weight(trial->ctx, &scope, name, out);
}
