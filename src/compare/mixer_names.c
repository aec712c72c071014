/* What the tensors of a mixer's file are, by the rules of a naming. */
#include <stdio.h>
#include <string.h>

#include "compare/mixer_trial.h"

static const char own[] = "in.x = x\n"
                          "in.z = z\n"
                          "in.mask = mask\n"
                          "in.q = q\n"
                          "in.k = k\n"
                          "in.v = v\n"
                          "in.positions = places\n"
                          "out.y = y\n"
                          "out.step = step\n"
                          "out.step_dense = step\n"
                          "out.step_linear = step\n"
                          "out.stream = step\n";

ls_status ls_mixer_trial_read_names(ls_mixer_trial *a) {
    return ls_naming_read(a->ctx, a->keys->names, own, &a->naming);
}

ls_public_scope ls_mixer_trial_scope(const ls_mixer_trial *a) {
    return (ls_public_scope){.store = a->store, .naming = &a->naming, .mixers = &a->mixer};
}

const char *ls_mixer_trial_weight(const ls_mixer_trial *a, const char *name) {
    const char *behind = ls_name_after(name, "w.");
    return behind != NULL || a->golden ? behind : name;
}

const ls_buffer *ls_mixer_trial_buffer(const ls_mixer_trial *a, const char *name) {
    char unused[LS_SAFETENSORS_NAME_MAX];
    for (const ls_buffer *buffer = a->mixer.type->buffers; buffer && buffer->official; buffer++)
        if (ls_name_fits(buffer->official, name, "", unused, sizeof unused)) return buffer;
    return NULL;
}

/* The role of in.NAME or out.NAME; false: it has none. */
static bool role_by_rules(const ls_mixer_trial *a, const char *name, ls_given *out, char *target,
                          size_t bytes) {
    static const char *const inputs[] = {"x", "z", "mask", "q", "k", "v", "places"};
    static const char *const outputs[] = {"y", "step"};
    const bool is_input = ls_name_after(name, "in.") != NULL;
    size_t from = 0;
    int64_t piece;
    target[0] = '\0';
    if (!ls_naming_find(&a->naming, name, &from, target, bytes, &piece)) {
        *out = LS_GIVEN_BUFFER;
        return ls_mixer_trial_buffer(a, name) != NULL;
    }
    for (int i = 0; i < (is_input ? 7 : 2); i++)
        if (strcmp(target, is_input ? inputs[i] : outputs[i]) == 0) {
            *out = (ls_given)(i + (is_input ? LS_GIVEN_X : LS_GIVEN_Y));
            return true;
        }
    *out = LS_GIVEN_NONE;
    return strcmp(target, "-") == 0;
}

/* The role of any tensor of the input file. */
static bool role_of(const ls_mixer_trial *a, const char *tensor, ls_given *out, char *target,
                    size_t bytes) {
    char full[LS_SAFETENSORS_NAME_MAX + 8];
    const char *of = ls_name_after(tensor, "cot.");
    target[0] = '\0';
    *out = LS_GIVEN_COT;
    if (strcmp(tensor, "cot") == 0) return true;
    *out = LS_GIVEN_STATE;
    if (!a->golden && strcmp(tensor, "state") == 0) return true;
    if (!a->golden) {
        snprintf(full, sizeof full, "in.%s", tensor);
        return role_by_rules(a, full, out, target, bytes) &&
               (*out <= LS_GIVEN_MASK || *out == LS_GIVEN_NONE);
    }
    if (ls_name_after(tensor, "in.") != NULL || ls_name_after(tensor, "out.") != NULL)
        return role_by_rules(a, tensor, out, target, bytes);
    if (of != NULL) { /* gradients begin at y alone */
        snprintf(full, sizeof full, "out.%s", of);
        if (!role_by_rules(a, full, out, target, bytes)) return false;
        const bool known = *out == LS_GIVEN_Y;
        *out = LS_GIVEN_COT;
        return known;
    }
    of = ls_name_after(tensor, "grad.in.");
    if (of != NULL) {
        snprintf(full, sizeof full, "in.%s", of);
        if (!role_by_rules(a, full, out, target, bytes)) return false;
        const bool known = *out <= LS_GIVEN_V && *out != LS_GIVEN_MASK;
        *out = LS_GIVEN_GRADIENT;
        return known && ls_safetensors_find(&a->input, full) != NULL;
    }
    *out = ls_name_after(tensor, "w.") != NULL ? LS_GIVEN_WEIGHT : LS_GIVEN_GRADIENT;
    return *out == LS_GIVEN_WEIGHT || ls_name_after(tensor, "grad.w.") != NULL;
}

const ls_safetensor *ls_mixer_trial_find(const ls_mixer_trial *a, ls_given role, size_t *from) {
    char target[64];
    ls_given here;
    for (size_t i = from == NULL ? 0 : *from; i < a->input.count; i++)
        if (role_of(a, a->input.items[i].name, &here, target, sizeof target) && here == role) {
            if (from != NULL) *from = i + 1;
            return &a->input.items[i];
        }
    return NULL;
}

const ls_safetensor *ls_mixer_trial_find_gradient(const ls_mixer_trial *a, ls_given role) {
    const ls_safetensor *input = ls_mixer_trial_find(a, role, NULL);
    char name[LS_SAFETENSORS_NAME_MAX + 8];
    if (input == NULL) return NULL;
    snprintf(name, sizeof name, "grad.%s", input->name);
    return ls_safetensors_find(&a->input, name);
}

ls_status ls_mixer_trial_check_names(const ls_mixer_trial *a) {
    const char *path = a->golden ? a->keys->golden : a->keys->input;
    const char *seen[LS_GIVEN_NONE + 1] = {0};
    for (size_t i = 0; i < a->input.count; i++) {
        const char *name = a->input.items[i].name;
        char target[64];
        ls_given role;
        if (!role_of(a, name, &role, target, sizeof target)) {
            if (target[0] != '\0' && role == LS_GIVEN_NONE)
                return LS_FAIL(a->ctx, LS_EUSE,
                               "names: %s = %s is no input, or no output, of a mixer", name,
                               target);
            return LS_FAIL(a->ctx, LS_EINPUT, "%s: mixer %s can make nothing of %s (see names=)",
                           path, a->mixer.type->name, name);
        }
        if (role > LS_GIVEN_STATE || role == LS_GIVEN_STEP) continue;
        if (seen[role] != NULL)
            return LS_FAIL(a->ctx, LS_EINPUT, "%s: %s and %s are the same thing", path, seen[role],
                           name);
        seen[role] = name;
    }
    return LS_OK;
}
