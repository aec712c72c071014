#include "model/public_weights.h"

#include <stdio.h>
#include <string.h>

enum { TARGET_BYTES = 1024 }; /* of what a rule says a weight is */

/* ---- names ---- */

ls_mixer *ls_public_mixers(ls_ctx *ctx, const ls_model_config *config) {
    ls_mixer *mixers =
        ls_new(ctx, (size_t)(config->layers + config->encoder_layers), sizeof *mixers);
    if (mixers == NULL) return NULL;
    for (int64_t i = 0; i < config->layers; i++) mixers[i] = ls_model_mixer(config, i);
    for (int64_t i = 0; i < config->encoder_layers; i++)
        mixers[config->layers + i] = ls_model_encoder_mixer(config, i);
    return mixers;
}

/* The mixer whose scope a name begins with, or NULL; *root: where its model's shared ones are. */
static const ls_mixer *mixer_of(const ls_public_scope *scope, const char *name, size_t *root,
                                size_t *below) {
    const bool encodes = ls_name_after(name, "encoder.") != NULL;
    const ls_model_config *config = scope->config;
    const int64_t layers = encodes ? config->encoder_layers : config->layers;
    int layer = -1, used = 0;
    *root = encodes ? strlen("encoder.") : 0;
    if (sscanf(name + *root, "layers.%9d.mixer.%n", &layer, &used) != 1 || used == 0) return NULL;
    if (layer < 0 || layer >= layers) return NULL;
    *below = *root + (size_t)used;
    return &scope->mixers[encodes ? config->layers + layer : layer];
}

/* What a mixer alone calls the parameter that a model has below one of its layers. */
static const char *name_alone(const char *name) {
    const char *encodes = ls_name_after(name, "encoder.");
    const char *layers = encodes == NULL ? name : encodes;
    int layer, used = 0;
    if (sscanf(layers, "layers.%9d.mixer.%n", &layer, &used) == 1 && used > 0) return layers + used;
    return name;
}

/* Whether something here has one of our names, or a mixer may know it. */
static bool is_known(const ls_public_scope *scope, const char *name) {
    ls_weight unused;
    ls_ctx silent = {0};
    size_t root, below;
    if (scope->config != NULL)
        return ls_parameters_find(scope->store, name) != NULL ||
               mixer_of(scope, name, &root, &below) != NULL;
    return ls_parameters_find(scope->store, name_alone(name)) != NULL ||
           ls_weight_of_mixer(&silent, scope->store, scope->mixers, "", "", name_alone(name),
                              &unused) == LS_OK;
}

/* What a mixer makes of a name below it, with what the rule says beside. */
static ls_status add_mixers(ls_ctx *ctx, const ls_public_scope *scope, const ls_mixer *mixer,
                            const char *ours, size_t root_bytes, size_t below, ls_weight *out) {
    char root[16], place[64];
    const ls_weight before = *out;
    snprintf(root, sizeof root, "%.*s", (int)root_bytes, ours);
    snprintf(place, sizeof place, "%.*s", (int)below, ours);
    LS_TRY(ls_weight_of_mixer(ctx, scope->store, mixer, place, root, ours + below, out));
    out->name = before.name;
    out->flags |= before.flags;
    out->last = before.last;
    out->reversed = before.reversed;
    out->log_negated = before.log_negated;
    out->plus_one = before.plus_one;
    return LS_OK;
}

/* Adds the parameter of one of our names, or what a mixer has under a name of public code. */
static ls_status add_part(ls_ctx *ctx, const ls_public_scope *scope, const char *ours,
                          ls_weight *out) {
    size_t root = 0, below = 0;
    if (scope->config == NULL) ours = name_alone(ours);
    const ls_parameter *parameter = ls_parameters_find(scope->store, ours);
    if (parameter != NULL && out->parts < LS_WEIGHT_PARTS_MAX) {
        out->part[out->parts++] = (struct ls_weight_part){.parameter = parameter};
        return LS_OK;
    }
    const ls_mixer *mixer =
        scope->config == NULL ? scope->mixers : mixer_of(scope, ours, &root, &below);
    if (parameter == NULL && mixer != NULL && out->parts == 0)
        return add_mixers(ctx, scope, mixer, ours, root, below, out);
    return LS_FAIL(ctx, LS_EUSE,
                   "the file gives %s, but the model has no parameter %.200s with these options",
                   out->name, ours);
}

/* How a target says that rows and values stand; `turned` is what older files of rules say. */
static bool read_modifier(const char *word, ls_weight *out) {
    const bool transposed = strcmp(word, "transposed") == 0 || strcmp(word, "turned") == 0;
    const bool last = strcmp(word, "last") == 0, reversed = strcmp(word, "reversed") == 0;
    const bool plus_one = strcmp(word, "plus_one") == 0;
    const bool log_negated = strcmp(word, "log_negated") == 0;
    if (transposed) out->flags |= LS_ALIAS_TRANSPOSED;
    out->last |= last;
    out->reversed |= reversed;
    out->plus_one |= plus_one;
    out->log_negated |= log_negated;
    return transposed || last || reversed || plus_one || log_negated || strcmp(word, "-") == 0 ||
           strcmp(word, "+") == 0;
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
static ls_status add_clusters(ls_ctx *ctx, const ls_public_scope *scope, const char *word,
                              ls_weight *out) {
    const ls_model_settings *model = &scope->config->model;
    const ls_ints *cutoffs = &model->adaptive_cutoffs;
    char name[TARGET_BYTES];
    for (int64_t i = 0; i <= cutoffs->count; i++) {
        const int64_t first = i == 0 ? 0 : cutoffs->at[i - 1];
        const int64_t end = i == cutoffs->count ? model->vocabulary : cutoffs->at[i];
        if (!name_cluster(word, i, name)) break;
        LS_TRY(add_part(ctx, scope, name, out));
        out->part[out->parts - 1].rows = end - first;
    }
    return LS_OK;
}

/* Whether all that a target names is here. */
static bool has_all(const ls_public_scope *scope, const char *target) {
    char words[TARGET_BYTES], cluster[TARGET_BYTES], *rest = NULL;
    ls_weight unused = {0};
    snprintf(words, sizeof words, "%s", target);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (!read_modifier(word, &unused) &&
            !is_known(scope, name_cluster(word, 0, cluster) ? cluster : word))
            return false;
    return true;
}

/* The target of the first rule whose parameters are here, or else of the first; a name without a
 * rule is ours. */
static ls_status target_of(ls_ctx *ctx, const ls_public_scope *scope, const char *name,
                           char out[TARGET_BYTES]) {
    char full[LS_SAFETENSORS_NAME_MAX + 8], next[TARGET_BYTES];
    size_t from = 0;
    int64_t piece;
    snprintf(full, sizeof full, "w.%s", name);
    out[0] = '\0';
    while (ls_naming_find(scope->naming, full, &from, next, sizeof next, &piece)) {
        const bool has = has_all(scope, next);
        if (has || out[0] == '\0') memcpy(out, next, sizeof next);
        if (has) return LS_OK;
    }
    if (out[0] != '\0') return LS_OK; /* who looks for its parameters will say what is missing */
    snprintf(out, TARGET_BYTES, "%s", name);
    /* a mixer alone says itself what it knows */
    if (scope->config == NULL || has_all(scope, out)) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "no name is known for %s (set names=)", full);
}

ls_status ls_public_weight(ls_ctx *ctx, const ls_public_scope *scope, const char *name,
                           ls_weight *out) {
    char target[TARGET_BYTES], *rest = NULL;
    *out = (ls_weight){.name = name};
    LS_TRY(target_of(ctx, scope, name, target));
    for (char *word = strtok_r(target, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (read_modifier(word, out)) continue;
        const bool clusters = scope->config != NULL && strchr(word, '{') != NULL;
        LS_TRY(clusters ? add_clusters(ctx, scope, word, out) : add_part(ctx, scope, word, out));
    }
    return LS_OK;
}

/* ---- files ---- */

void ls_public_report_clear(ls_ctx *ctx, ls_public_report *report) {
    ls_text_clear(ctx, &report->left_over_names);
    ls_text_clear(ctx, &report->incomplete_names);
    *report = (ls_public_report){0};
}

static void add_name(ls_ctx *ctx, ls_text *names, size_t *count, const char *name) {
    ls_text_printf(ctx, names, "%s%s", *count == 0 ? "" : ", ", name);
    ++*count;
}

ls_status ls_public_complete(ls_ctx *ctx, const ls_parameters *store, const int64_t *set) {
    for (size_t i = 0; i < store->count; i++)
        if (set[i] != store->items[i].count)
            return LS_FAIL(ctx, LS_EINPUT, "the file gives %lld of the %lld values of %s",
                           (long long)set[i], (long long)store->items[i].count,
                           store->items[i].name);
    return LS_OK;
}

static ls_status load_one(ls_ctx *ctx, const ls_public_scope *scope, const ls_safetensor *tensor,
                          const char *name, ls_parameters *store, int64_t *set,
                          ls_public_report *report) {
    const ls_error before = ctx->error;
    ls_weight weight;
    const ls_status status = ls_public_weight(ctx, scope, name, &weight);
    if (status == LS_EINPUT && report != NULL) {
        ctx->error = before;
        add_name(ctx, &report->left_over_names, &report->left_over, tensor->name);
        return LS_OK;
    }
    LS_TRY(status);
    LS_TRY(ls_weight_load(ctx, store, &weight, tensor, set));
    if (report != NULL) ++*(weight.parts > 0 ? &report->loaded : &report->buffers);
    return LS_OK;
}

ls_status ls_public_load(ls_ctx *ctx, const ls_public_scope *scope, const ls_safetensors *file,
                         const char *prefix, ls_parameters *store, ls_public_report *report) {
    int64_t *set = ls_new(ctx, store->count + 1, sizeof *set);
    ls_parameters here = *store; /* with the weights where the processor can reach them */
    here.master = NULL;
    ls_status status =
        set == NULL ? LS_ENOMEM : ls_parameters_fetch(store, store->master, &here.master);
    for (size_t i = 0; status == LS_OK && i < file->count; i++) {
        const char *name = ls_name_after(file->items[i].name, prefix);
        if (name == NULL) continue;
        status = ls_check_stop(ctx, "reading weights");
        if (status == LS_OK)
            status = load_one(ctx, scope, &file->items[i], name, &here, set, report);
    }
    if (status == LS_OK) status = ls_safetensors_check(ctx, file);
    ls_parameters_release(store, store->master, here.master, status == LS_OK);
    if (status == LS_OK && report == NULL) status = ls_public_complete(ctx, store, set);
    for (size_t i = 0; status == LS_OK && report != NULL && i < store->count; i++)
        if (set[i] != store->items[i].count)
            add_name(ctx, &report->incomplete_names, &report->incomplete, store->items[i].name);
    if (status == LS_OK && report != NULL &&
        (report->left_over_names.failed || report->incomplete_names.failed))
        status = LS_ENOMEM;
    if (status == LS_OK) ls_parameters_round(store);
    ls_free(ctx, set);
    return status;
}

ls_status ls_model_load_public(ls_model *model, const ls_naming *naming, const ls_safetensors *file,
                               const char *prefix, ls_public_report *report) {
    ls_mixer *mixers = ls_public_mixers(model->ctx, model->config);
    if (mixers == NULL) return LS_ENOMEM;
    const ls_public_scope scope = {model->store, naming, model->config, mixers};
    ls_status status = ls_public_load(model->ctx, &scope, file, prefix, model->store, report);
    ls_free(model->ctx, mixers);
    return status;
}

ls_status ls_public_values(ls_ctx *ctx, const ls_public_scope *scope, const ls_safetensor *shape,
                           double *out) {
    ls_weight weight;
    LS_TRY(ls_public_weight(ctx, scope, shape->name, &weight));
    if (weight.parts > 0) return ls_weight_values(ctx, scope->store, &weight, shape, out);
    return LS_FAIL(ctx, LS_EUSE, "%s is no parameter here", shape->name);
}
