/* Inputs and weights of a mixer's file. */
#include <math.h>

#include <string.h>

#include "compare/mixer_trial.h"

static const char *path_of(const ls_mixer_trial *a) {
    return a->golden ? a->keys->golden : a->keys->input;
}

/* A tensor as [B,T,D]; sets the sizes where they are not known yet (0). */
static ls_status read_rows(ls_mixer_trial *a, const ls_safetensor *tensor, const char *what,
                           int64_t *T, int64_t *D, double **out) {
    bool transposed = a->keys->layout == LS_LAYOUT_TBD;
    if (tensor == NULL || tensor->rank != 3 || tensor->count < 1)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: there is no tensor %s of three axes", path_of(a),
                       what);
    int64_t B = tensor->dim[transposed ? 1 : 0], rows = tensor->dim[transposed ? 0 : 1];
    if (a->B == 0) a->B = B;
    if (*T == 0) *T = rows, *D = tensor->dim[2];
    if (B != a->B || rows != *T || tensor->dim[2] != *D)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: %s is not [%lld,%lld,%lld], as it must be",
                       path_of(a), tensor->name, (long long)a->B, (long long)*T, (long long)*D);
    return ls_stored_rows(a->ctx, tensor, (ls_rows_shape){B, rows, *D, transposed}, out);
}

/* Queries, keys and values side by side as x. */
static ls_status read_heads(ls_mixer_trial *a, const ls_safetensor *const qkv[3]) {
    a->B = a->heads.B, a->T = a->heads.T, a->D = 3 * a->heads.H * a->heads.W;
    a->x = ls_new(a->ctx, (size_t)(a->B * a->T * a->D), sizeof *a->x);
    if (a->x == NULL) return LS_ENOMEM;
    for (int i = 0; i < 3; i++) LS_TRY(ls_bare_heads_read(a->ctx, &a->heads, qkv[i], i, a->x));
    return LS_OK;
}

static ls_status read_mask(ls_mixer_trial *a) {
    const ls_safetensor *tensor = ls_mixer_trial_find(a, LS_GIVEN_MASK, NULL);
    if (tensor == NULL) return LS_OK;
    if (tensor->rank != 2 || tensor->dim[0] != a->B || tensor->dim[1] != a->T)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s is not [%lld,%lld], as it must be", tensor->name,
                       (long long)a->B, (long long)a->T);
    if (a->keys->cut.count > 0)
        return LS_FAIL(a->ctx, LS_EUSE, "cut: sequences with padding (%s) are run whole",
                       tensor->name);
    LS_TRY(ls_safetensor_values(a->ctx, tensor, &a->mask));
    for (int64_t i = 0; i < a->B * a->T; i++) a->global |= a->mask[i] > 1;
    if (a->global && ls_options_find(&a->mixer.type->options, "global_at") == NULL)
        return LS_FAIL(a->ctx, LS_EUSE, "%s has global tokens (2), which mixer %s does not have",
                       tensor->name, a->mixer.type->name);
    return LS_OK;
}

/* Whole numbers, of all sequences or of each. */
static ls_status read_places(ls_mixer_trial *a) {
    const ls_safetensor *tensor = ls_mixer_trial_find(a, LS_GIVEN_PLACES, NULL);
    if (tensor == NULL) return LS_OK;
    const bool one = tensor->rank == 1 && tensor->dim[0] == a->T;
    if (!one && (tensor->rank != 2 || tensor->dim[0] != a->B || tensor->dim[1] != a->T))
        return LS_FAIL(a->ctx, LS_EINPUT, "%s is not [%lld] or [%lld,%lld], as it must be",
                       tensor->name, (long long)a->T, (long long)a->B, (long long)a->T);
    if (!(a->mixer.type->traits & LS_MIXER_PLACES) || a->keys->cut.count > 0)
        return LS_FAIL(a->ctx, LS_EUSE, "%s gives positions, which %s does not take", tensor->name,
                       a->keys->cut.count > 0 ? "a text in chunks" : a->mixer.type->name);
    double *values = NULL;
    ls_status status = ls_safetensor_values(a->ctx, tensor, &values);
    a->places = ls_new(a->ctx, (size_t)(a->B * a->T), sizeof *a->places);
    if (status == LS_OK && a->places == NULL) status = LS_ENOMEM;
    for (int64_t i = 0; status == LS_OK && i < a->B * a->T; i++) {
        const double value = values[one ? i % a->T : i];
        if (!(value >= 0 && value < INT32_MAX && value == floor(value)))
            status =
                LS_FAIL(a->ctx, LS_EINPUT, "%s has %g, which is no position", tensor->name, value);
        else
            a->places[i] = (int32_t)value;
    }
    ls_free(a->ctx, values);
    return status;
}

ls_status ls_mixer_trial_open(ls_mixer_trial *a) {
    const ls_compare_keys *keys = a->keys;
    if (!a->golden &&
        (keys->weights[0] == '\0' || keys->input[0] == '\0' || keys->output[0] == '\0'))
        return LS_FAIL(a->ctx, LS_EUSE, "give weights=, input= and output=, or golden=");
    LS_TRY(ls_safetensors_open(a->ctx, path_of(a), &a->input));
    a->input_open = true;
    if (!a->golden) LS_TRY(ls_safetensors_open(a->ctx, keys->weights, &a->weights));
    a->weights_open = !a->golden;
    const ls_safetensor *const qkv[3] = {ls_mixer_trial_find(a, LS_GIVEN_Q, NULL),
                                         ls_mixer_trial_find(a, LS_GIVEN_K, NULL),
                                         ls_mixer_trial_find(a, LS_GIVEN_V, NULL)};
    LS_TRY(ls_bare_heads_find(a->ctx, qkv, &a->heads));
    const ls_safetensor *x = ls_mixer_trial_find(a, LS_GIVEN_X, NULL);
    if (a->heads.H > 0 && x != NULL)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s has both %s and %s", path_of(a), x->name,
                       qkv[0]->name);
    if (a->heads.H > 0)
        LS_TRY(read_heads(a, qkv));
    else
        LS_TRY(read_rows(a, x, a->golden ? "in.x" : "x", &a->T, &a->D, &a->x));
    LS_TRY(read_mask(a));
    LS_TRY(read_places(a));
    const ls_safetensor *z = ls_mixer_trial_find(a, LS_GIVEN_Z, NULL);
    if (z == NULL) return LS_OK;
    if (!(a->mixer.type->traits & LS_MIXER_SECOND_INPUT))
        return LS_FAIL(a->ctx, LS_EUSE, "the file gives latents %s, which mixer %s does not take",
                       z->name, a->mixer.type->name);
    return read_rows(a, z, z->name, &a->latents, &a->latent_width, &a->z);
}

ls_status ls_mixer_trial_read_outputs(ls_mixer_trial *a, const ls_safetensor *tensor,
                                      double **out) {
    if (a->heads.H == 0) return read_rows(a, tensor, "cot", &a->out_T, &a->out_D, out);
    *out = ls_new(a->ctx, (size_t)(a->B * a->out_T * a->out_D), sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    return ls_bare_heads_read(a->ctx, &a->heads, tensor, 0, *out);
}

/* Whether row t of sequence b is padding for which the file says nothing: outputs of 0. */
static bool is_void(const ls_mixer_trial *a, const double *y, int64_t row) {
    if (a->mask == NULL || a->mask[row] != 0) return false;
    for (int64_t d = 0; d < a->out_D; d++)
        if (y[row * a->out_D + d] != 0) return false;
    return true;
}

ls_status ls_mixer_trial_clear_void(ls_mixer_trial *a, double *values) {
    const ls_safetensor *reference = ls_mixer_trial_find(a, LS_GIVEN_Y, NULL);
    double *y = NULL;
    if (a->mask == NULL || !a->golden || reference == NULL || a->out_T != a->T) return LS_OK;
    ls_status status = ls_mixer_trial_read_outputs(a, reference, &y);
    for (int64_t row = 0; status == LS_OK && row < a->B * a->T; row++)
        if (is_void(a, y, row))
            memset(values + row * a->out_D, 0, (size_t)a->out_D * sizeof *values);
    ls_free(a->ctx, y);
    return status;
}

/* ---- weights ---- */

static bool is_missing(const ls_mixer_trial *a, const ls_parameter *parameter) {
    return parameter != NULL && a->set[parameter - a->store->items] == 0;
}

/* A projection that a file of less than a layer lacks lets everything through. */
static void load_identity(ls_mixer_trial *a, const char *weight_name, const char *bias_name) {
    const ls_parameter *weight = ls_parameters_find(a->store, weight_name);
    const ls_parameter *bias = ls_parameters_find(a->store, bias_name);
    if (!is_missing(a, weight) || weight->rank != 2) return;
    if (a->heads.H == 0 && weight->dim[0] != weight->dim[1]) return;
    for (int64_t i = 0; i < weight->count; i++)
        ls_element_set(ls_parameter_master(a->store, weight), a->store->master_type, i,
                       i / weight->dim[1] == i % weight->dim[1]);
    a->set[weight - a->store->items] = weight->count;
    if (!is_missing(a, bias)) return;
    for (int64_t i = 0; i < bias->count; i++)
        ls_element_set(ls_parameter_master(a->store, bias), a->store->master_type, i, 0);
    a->set[bias - a->store->items] = bias->count;
}

ls_status ls_mixer_trial_load_weights(ls_mixer_trial *a) {
    const ls_safetensors *file = a->golden ? &a->input : &a->weights;
    const ls_public_scope scope = ls_mixer_trial_scope(a);
    a->set = ls_new(a->ctx, a->store->count + 1, sizeof *a->set);
    if (a->set == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < file->count; i++) {
        const char *name = ls_mixer_trial_weight(a, file->items[i].name);
        ls_weight weight;
        if (name == NULL) continue;
        LS_TRY(ls_public_weight(a->ctx, &scope, name, &weight));
        LS_TRY(ls_weight_load(a->ctx, a->store, &weight, &file->items[i], a->set));
    }
    if (a->heads.H > 0) load_identity(a, "qkv.weight", "qkv.bias");
    if (a->golden) load_identity(a, "out.weight", "out.bias");
    LS_TRY(ls_public_complete(a->ctx, a->store, a->set));
    ls_parameters_round(a->store);
    return LS_OK;
}
