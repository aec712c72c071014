/* Weights of the file into the model, and gradients of those that move back. */
#include "compare/model_trial.h"

#include <string.h>

ls_status ls_trial_load_weights(ls_trial *trial, bool moving) {
    for (size_t i = 0; i < trial->file.count; i++) {
        const ls_safetensor *tensor = &trial->file.items[i];
        const char *name = ls_name_after(tensor->name, "w.");
        ls_weight weight;
        if (name == NULL) continue;
        LS_TRY(ls_trial_weight_of(trial, name, &weight));
        if (moving && (weight.flags & LS_ALIAS_MOVES) == 0) continue;
        LS_TRY(ls_weight_load(trial->ctx, trial->model->store, &weight, tensor, trial->set));
    }
    if (!moving) LS_TRY(ls_public_complete(trial->ctx, trial->model->store, trial->set));
    ls_parameters_round(trial->model->store);
    return LS_OK;
}

ls_status ls_trial_gather_moving(ls_trial *trial, const char *prefix) {
    ls_parameters *store = trial->model->store;
    for (int clears = 0; clears < 2; clears++)
        for (size_t i = 0; i < trial->file.count; i++) {
            const ls_safetensor *tensor = &trial->file.items[i];
            const char *name = ls_name_after(tensor->name, prefix);
            ls_weight weight;
            if (name == NULL) continue;
            LS_TRY(ls_trial_weight_of(trial, name, &weight));
            if ((weight.flags & LS_ALIAS_MOVES) == 0) continue;
            if (trial->moving[i] == NULL)
                trial->moving[i] = ls_new(trial->ctx, (size_t)tensor->count + 1, sizeof(double));
            if (trial->moving[i] == NULL) return LS_ENOMEM;
            if (!clears) {
                LS_TRY(ls_weight_gradient(trial->ctx, store, &weight, tensor, trial->moving[i]));
                continue;
            }
            for (int part = 0; part < weight.parts; part++) {
                const ls_parameter *parameter = weight.part[part].parameter;
                memset(ls_parameter_gradient(store, parameter), 0,
                       (size_t)parameter->count * ls_dtype_size(store->master_type));
            }
        }
    return LS_OK;
}
