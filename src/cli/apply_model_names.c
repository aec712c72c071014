/* Which output or which parameters a name of the file is, by the rules of its naming. */
#include "cli/apply_model.h"

#include <stdio.h>
#include <string.h>

enum { TARGET_BYTES = 1024 }; /* of what a rule says a weight is */

ls_status ls_trial_check_names(const ls_trial *trial) {
    static const char *const kinds[] = {"w.", "in.", "out.", "cot.", "grad.w.", "grad.aux."};
    for (size_t i = 0; i < trial->file.count; i++) {
        const char *name = trial->file.items[i].name;
        bool known = strcmp(name, "cot") == 0;
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
    char full[LS_SAFETENSORS_NAME_MOST + 8], target[sizeof out->name];
    snprintf(full, sizeof full, "out.%s", name);
    *out = (ls_trial_output){.kind = LS_OUTPUT_NONE};
    size_t from = 0;
    if (!ls_naming_find(&trial->naming, full, &from, target, sizeof target, &out->piece))
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: no name is known for %s (set names=)",
                       trial->keys->golden, full);
    for (int i = 0; i < 5; i++)
        if (strcmp(target, kinds[i]) == 0) out->kind = (ls_output_kind)i;
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

/* The mixer whose scope a name begins with, or NULL; *root: where its model's shared ones are. */
static const ls_mixer *mixer_of(const ls_trial *trial, const char *name, size_t *root,
                                size_t *scope) {
    const bool encodes = ls_name_after(name, "encoder.") != NULL;
    const int64_t layers = encodes ? trial->config.encoder_layers : trial->config.layers;
    int layer = -1, used = 0;
    *root = encodes ? strlen("encoder.") : 0;
    if (sscanf(name + *root, "layers.%9d.mixer.%n", &layer, &used) != 1 || used == 0) return NULL;
    if (layer < 0 || layer >= layers) return NULL;
    *scope = *root + (size_t)used;
    return &trial->mixers[encodes ? trial->config.layers + layer : layer];
}

/* Adds the parameter of one of our names, or what a mixer has under a name of public code. */
static ls_status add_part(const ls_trial *trial, const char *ours, ls_weight *out) {
    const ls_parameter *parameter = ls_parameters_find(trial->model->store, ours);
    char root[16], scope[64];
    size_t root_bytes, scope_bytes;
    if (parameter != NULL && out->parts < LS_WEIGHT_PARTS_MOST) {
        out->part[out->parts++] = (struct ls_weight_part){.parameter = parameter};
        return LS_OK;
    }
    const ls_mixer *mixer = mixer_of(trial, ours, &root_bytes, &scope_bytes);
    if (parameter != NULL || mixer == NULL || out->parts > 0)
        return LS_FAIL(trial->ctx, LS_EUSE,
                       "the file gives %s, but the model has no parameter %.200s with these "
                       "options",
                       out->name, ours);
    snprintf(root, sizeof root, "%.*s", (int)root_bytes, ours);
    snprintf(scope, sizeof scope, "%.*s", (int)scope_bytes, ours);
    const char *name = out->name;
    const int flags = out->flags;
    LS_TRY(ls_weight_of_mixer(trial->ctx, trial->model->store, mixer, scope, root,
                              ours + scope_bytes, out));
    out->name = name;
    out->flags |= flags;
    return LS_OK;
}

/* How a target says that rows stand. */
static bool read_modifier(const char *word, ls_weight *out) {
    if (strcmp(word, "turned") == 0) out->flags |= LS_ALIAS_TURNED;
    if (strcmp(word, "last") == 0) out->last = true;
    if (strcmp(word, "reversed") == 0) out->reversed = true;
    return strcmp(word, "turned") == 0 || strcmp(word, "last") == 0 ||
           strcmp(word, "reversed") == 0 || strcmp(word, "-") == 0 || strcmp(word, "+") == 0;
}

/* Puts a cluster's number where a word of a target has a {x} left over; false: it has none. */
static bool name_cluster(const char *word, int64_t cluster, char out[TARGET_BYTES]) {
    const char *open = strchr(word, '{'), *close = open == NULL ? NULL : strchr(open, '}');
    if (close == NULL) return false;
    snprintf(out, TARGET_BYTES, "%.*s%lld%s", (int)(open - word), word, (long long)cluster,
             close + 1);
    return true;
}

/* The clusters' own rows one after the other, as they stand in the only table of an adaptive
 * softmax whose clusters are all of one width. */
static ls_status add_clusters(const ls_trial *trial, const char *word, ls_weight *out) {
    const ls_reals *cutoffs = &trial->config.model.adaptive_cutoffs;
    char name[TARGET_BYTES];
    for (int64_t i = 0; i <= cutoffs->count; i++) {
        const double first = i == 0 ? 0 : cutoffs->at[i - 1];
        const double end =
            i == cutoffs->count ? (double)trial->config.model.vocabulary : cutoffs->at[i];
        if (!name_cluster(word, i, name)) break;
        LS_TRY(add_part(trial, name, out));
        out->part[out->parts - 1].rows = (int64_t)(end - first);
    }
    return LS_OK;
}

/* Whether the model has what a target names. */
static bool has_all(const ls_trial *trial, const char *target) {
    char words[TARGET_BYTES], cluster[TARGET_BYTES], *rest = NULL;
    ls_weight unused = {0};
    size_t root, scope;
    snprintf(words, sizeof words, "%s", target);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (!read_modifier(word, &unused) &&
            ls_parameters_find(trial->model->store,
                               name_cluster(word, 0, cluster) ? cluster : word) == NULL &&
            mixer_of(trial, word, &root, &scope) == NULL)
            return false;
    return true;
}

/* The target of the first rule whose parameters the model has, or else of the first; a name without
 * a rule is ours. */
static ls_status target_of(const ls_trial *trial, const char *name, char out[TARGET_BYTES]) {
    char full[LS_SAFETENSORS_NAME_MOST + 8], next[TARGET_BYTES];
    size_t from = 0;
    int64_t piece;
    snprintf(full, sizeof full, "w.%s", name);
    out[0] = '\0';
    while (ls_naming_find(&trial->naming, full, &from, next, sizeof next, &piece)) {
        const bool has = has_all(trial, next);
        if (has || out[0] == '\0') memcpy(out, next, sizeof next);
        if (has) return LS_OK;
    }
    if (out[0] != '\0') return LS_OK; /* who looks for its parameters will say what is missing */
    snprintf(out, TARGET_BYTES, "%s", name);
    if (has_all(trial, out)) return LS_OK;
    return LS_FAIL(trial->ctx, LS_EINPUT, "%s: no name is known for %s (set names=)",
                   trial->keys->golden, full);
}

ls_status ls_trial_weight_of(const ls_trial *trial, const char *name, ls_weight *out) {
    char target[TARGET_BYTES], *rest = NULL;
    *out = (ls_weight){.name = name};
    LS_TRY(target_of(trial, name, target));
    for (char *word = strtok_r(target, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (!read_modifier(word, out))
            LS_TRY(strchr(word, '{') != NULL ? add_clusters(trial, word, out)
                                             : add_part(trial, word, out));
    return LS_OK;
}
