/* Outputs, gradients and tables of a mixer against those of the file. */
#include <stdio.h>

#include "compare/mixer_trial.h"

/* Compares [B,T,D] values with a tensor of the file. */
static ls_status compare_rows(ls_mixer_trial *a, ls_comparison *comparison, const char *shown,
                              const ls_safetensor *reference, const double *rows, int64_t T,
                              int64_t D, double tolerance) {
    if (reference->count != a->B * T * D)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: %s has another shape than ours", a->keys->golden,
                       reference->name);
    const ls_rows_shape shape = {a->B, T, D, a->keys->layout == LS_LAYOUT_TBD};
    return ls_compare_rows(a->ctx, comparison, shown, rows, shape, reference, tolerance);
}

/* Part 0, 1 or 2 of rows [B,T,3 H W] with a tensor [B,H,T,W] of the file. */
static ls_status compare_heads(ls_mixer_trial *a, ls_comparison *comparison, const char *shown,
                               const ls_safetensor *reference, const double *rows, int part,
                               double tolerance) {
    double *values;
    if (reference->count != a->B * a->T * a->D / 3)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: %s has another shape than ours", a->keys->golden,
                       reference->name);
    LS_TRY(ls_bare_heads_take(a->ctx, &a->heads, rows, part, &values));
    ls_status status = ls_compare(a->ctx, comparison, shown, values, reference, tolerance);
    ls_free(a->ctx, values);
    return status;
}

static ls_status compare_outputs(ls_mixer_trial *a, ls_comparison *comparison, const char *how,
                                 const ls_safetensor *reference) {
    char shown[LS_SAFETENSORS_NAME_MAX + 16];
    snprintf(shown, sizeof shown, "%s%s", reference->name, how);
    LS_TRY(ls_mixer_trial_clear_void(a, a->y));
    if (a->heads.H > 0)
        return compare_heads(a, comparison, shown, reference, a->y, 0, a->keys->tol);
    return compare_rows(a, comparison, shown, reference, a->y, a->out_T, a->out_D, a->keys->tol);
}

static ls_status compare_inputs(ls_mixer_trial *a, ls_comparison *comparison) {
    const double tolerance = a->keys->grad_tol;
    const ls_safetensor *gradient;
    for (int i = 0; i < 3; i++) {
        gradient = ls_mixer_trial_find_gradient(a, (ls_given)(LS_GIVEN_Q + i));
        if (gradient != NULL)
            LS_TRY(compare_heads(a, comparison, gradient->name, gradient, a->grad_x, i, tolerance));
    }
    gradient = ls_mixer_trial_find_gradient(a, LS_GIVEN_X);
    if (gradient != NULL)
        LS_TRY(compare_rows(a, comparison, gradient->name, gradient, a->grad_x, a->T, a->D,
                            tolerance));
    gradient = ls_mixer_trial_find_gradient(a, LS_GIVEN_Z);
    if (gradient == NULL) return LS_OK;
    return compare_rows(a, comparison, gradient->name, gradient, a->grad_z, a->latents,
                        a->latent_width, tolerance);
}

static ls_status compare_gradients(ls_mixer_trial *a, ls_comparison *comparison) {
    const ls_public_scope scope = ls_mixer_trial_scope(a);
    for (size_t i = 0; i < a->input.count; i++) {
        const ls_safetensor *tensor = &a->input.items[i];
        const char *name = ls_name_after(tensor->name, "grad.w.");
        ls_weight weight;
        if (name == NULL) continue;
        LS_TRY(ls_public_weight(a->ctx, &scope, name, &weight));
        LS_TRY(
            ls_compare_gradient(a->ctx, comparison, a->store, &weight, tensor, a->keys->grad_tol));
    }
    return LS_OK;
}

/* Tables that follow from the options: among the weights, the inputs and the outputs. */
static ls_status compare_buffers(ls_mixer_trial *a, ls_comparison *comparison) {
    const ls_public_scope scope = ls_mixer_trial_scope(a);
    const ls_safetensor *tensor;
    size_t from = 0;
    for (size_t i = 0; i < a->input.count; i++) {
        const char *name = ls_name_after(a->input.items[i].name, "w.");
        ls_weight weight;
        if (name == NULL) continue;
        LS_TRY(ls_public_weight(a->ctx, &scope, name, &weight));
        if (weight.buffer != NULL)
            LS_TRY(ls_compare_buffer(a->ctx, comparison, weight.buffer, &a->mixer, a->T,
                                     &a->input.items[i], a->keys->tol));
    }
    while ((tensor = ls_mixer_trial_find(a, LS_GIVEN_BUFFER, &from)) != NULL)
        LS_TRY(ls_compare_buffer(a->ctx, comparison, ls_mixer_trial_buffer(a, tensor->name),
                                 &a->mixer, a->T, tensor, a->keys->tol));
    return LS_OK;
}

ls_status ls_mixer_trial_compare(ls_mixer_trial *a, ls_comparison *comparison) {
    const ls_compare_keys *keys = a->keys;
    const ls_safetensor *y = ls_mixer_trial_find(a, LS_GIVEN_Y, NULL), *step;
    const ls_safetensor *gradient = ls_mixer_trial_find(a, LS_GIVEN_GRADIENT, NULL);
    size_t from = 0;
    if (y == NULL) return LS_FAIL(a->ctx, LS_EINPUT, "%s has no tensor out.y", a->keys->golden);
    if (a->cot == NULL && gradient != NULL)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: there is %s, but no cotangent", a->keys->golden,
                       gradient->name);
    LS_TRY(ls_comparison_scale(a->ctx, &a->input, comparison));
    LS_TRY(compare_outputs(a, comparison, "", y));
    while ((step = ls_mixer_trial_find(a, LS_GIVEN_STEP, &from)) != NULL) {
        LS_TRY(ls_mixer_trial_run_cut(a, &(int64_t){1}, 1, a->y));
        LS_TRY(compare_outputs(a, comparison, "", step));
    }
    if (keys->cut.count > 0) {
        LS_TRY(ls_mixer_trial_run_cut(a, keys->cut.at, keys->cut.count, a->y));
        LS_TRY(compare_outputs(a, comparison, " (cut)", y));
    }
    if (a->cot != NULL) LS_TRY(compare_inputs(a, comparison));
    if (a->cot != NULL) LS_TRY(compare_gradients(a, comparison));
    return compare_buffers(a, comparison);
}
