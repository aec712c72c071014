/* Sizes of a model that the shapes of its weights tell. */
#include <stdio.h>
#include <string.h>

#include "model/fit.h"

enum { TARGET_BYTES = 1024 };

/* What the first rule says a weight is: its first word, and whether it is transposed there. */
static void read_target(const ls_naming *naming, const char *name, char out[TARGET_BYTES],
                        bool *transposed) {
    char full[LS_SAFETENSORS_NAME_MAX + 8];
    size_t from = 0;
    int64_t piece;
    snprintf(full, sizeof full, "w.%s", name);
    if (!ls_naming_find(naming, full, &from, out, TARGET_BYTES, &piece))
        snprintf(out, TARGET_BYTES, "%s", name);
    char *space = strchr(out, ' ');
    *transposed = space != NULL && (strstr(space, " transposed") || strstr(space, " turned"));
    if (space != NULL) *space = '\0';
}

/* A size that an axis of one of our parameters has. */
static const struct {
    const char *parameter, *key;
    int axis;
} sizes[] = {
    {"layers.{n}.ffn.down.weight", "model.width", 0},
    {"layers.{n}.ffn.down.weight", "model.hidden", 1},
    {"position.embedding", "position.length", 0},
    {"memory.start", "model.memory", 0},
    {"encoder.memory.start", "model.memory", 0},
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static bool is_plain_number(const char *text) {
    return text[0] != '\0' && strspn(text, "0123456789") == strlen(text);
}

/* `why`: the weight that tells; `found`: what is put, for a message. */
static ls_status put_size(ls_ctx *ctx, ls_settings *settings, const char *key, int64_t value,
                          const char *why, ls_text *found) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    for (size_t i = 0; i < settings->count; i++) {
        const ls_setting *setting = &settings->items[i];
        int64_t given;
        if (strcmp(setting->key, key) != 0) continue;
        /* 0 lets another option decide; a list of layers is more than their number */
        if (!is_plain_number(setting->value) || !ls_parse_int(setting->value, &given) ||
            given == value || given == 0)
            return LS_OK;
        return LS_FAIL(ctx, LS_EUSE, "%s=%s does not fit the file, where %s makes it %lld", key,
                       setting->value, why, (long long)value);
    }
    ls_text_printf(ctx, found, " %s=%s", key, text);
    return ls_settings_put(ctx, settings, key, text);
}

static bool has_value(const ls_settings *settings, const char *key, const char *value) {
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, key) == 0)
            return strcmp(settings->items[i].value, value) == 0;
    return false;
}

/* Whether a size is one of this model: a table of places is no other method's. */
static bool applies(const ls_settings *settings, const char *key) {
    return strcmp(key, "position.length") != 0 || has_value(settings, "model.position", "learned");
}

/* What all weights tell together. */
typedef struct total {
    const char *key, *pattern, *other, *why; /* other: a second pattern, or NULL */
    int64_t value;
} total;

/* Layers of a stack: one more than the largest number. */
static void count_layers(const char *target, const char *name, total *of) {
    int64_t number[26];
    const char *rest;
    if (!ls_name_parts(of->pattern, target, number, &rest)) return;
    if (number['n' - 'a'] < of->value) return;
    of->value = number['n' - 'a'] + 1;
    of->why = name;
}

/* Words: all rows of the embedding, which may be cut into clusters. */
static void count_words(const char *target, const ls_safetensor *tensor, total *of) {
    int64_t number[26];
    const char *rest;
    if (tensor->rank != 2 || (!ls_name_parts(of->pattern, target, number, &rest) &&
                              !ls_name_parts(of->other, target, number, &rest)))
        return;
    of->value += tensor->dim[0]; /* at most what a file holds */
    of->why = tensor->name;
}

/* A model whose layers have no feed-forward part is as wide as its embedding; clusters differ. */
static ls_status put_width(ls_ctx *ctx, ls_settings *settings, const char *target,
                           const ls_safetensor *tensor, ls_text *found) {
    if (strcmp(target, "embed.weight") != 0 || tensor->rank != 2 || tensor->count < 1 ||
        ls_settings_has(settings, "model.width") ||
        ls_settings_has(settings, "model.adaptive_cutoffs"))
        return LS_OK;
    return put_size(ctx, settings, "model.width", tensor->dim[1], tensor->name, found);
}

static ls_status put_sizes(ls_ctx *ctx, ls_settings *settings, const char *target,
                           const ls_safetensor *tensor, bool transposed, ls_text *found) {
    int64_t number[26];
    const char *rest;
    for (int s = 0; s < SIZES && tensor->rank == 2 && tensor->count > 0; s++)
        if (ls_name_parts(sizes[s].parameter, target, number, &rest) &&
            applies(settings, sizes[s].key))
            LS_TRY(put_size(ctx, settings, sizes[s].key,
                            tensor->dim[transposed ? 1 - sizes[s].axis : sizes[s].axis],
                            tensor->name, found));
    return LS_OK;
}

ls_status ls_fit_model(ls_ctx *ctx, ls_settings *settings, const ls_naming *naming,
                       const ls_safetensors *file, const char *prefix, ls_text *found) {
    total totals[] = {
        {"model.layers", "layers.{n}.*", NULL, NULL, 0},
        {"model.encoder_layers", "encoder.layers.{n}.*", NULL, NULL, 0},
        {"model.vocabulary", "embed.weight", "embed.{i}.weight", NULL, 0},
    };
    for (size_t i = 0; i < file->count; i++) {
        const ls_safetensor *tensor = &file->items[i];
        const char *name = ls_name_after(tensor->name, prefix);
        char target[TARGET_BYTES];
        bool transposed;
        if (name == NULL) continue;
        read_target(naming, name, target, &transposed);
        for (int t = 0; t < 2; t++) count_layers(target, tensor->name, &totals[t]);
        count_words(target, tensor, &totals[2]);
        LS_TRY(put_sizes(ctx, settings, target, tensor, transposed, found));
        LS_TRY(put_width(ctx, settings, target, tensor, found));
    }
    for (int t = 0; t < 3; t++)
        if (totals[t].value > 0)
            LS_TRY(put_size(ctx, settings, totals[t].key, totals[t].value, totals[t].why, found));
    return ls_text_status(found);
}

/* ---- mixers ---- */

/* The weights of one layer's mixer, by their names below it. */
static ls_status gather(ls_ctx *ctx, const ls_naming *naming, const ls_safetensors *file,
                        const char *prefix, const char *scope, ls_fit_weights *out) {
    for (size_t i = 0; i < file->count; i++) {
        const char *name = ls_name_after(file->items[i].name, prefix);
        char target[TARGET_BYTES];
        bool transposed;
        if (name == NULL) continue;
        read_target(naming, name, target, &transposed);
        const char *below = ls_name_after(target, scope);
        if (below != NULL && !transposed)
            LS_TRY(ls_fit_weights_add(ctx, out, below, &file->items[i]));
    }
    return LS_OK;
}

/* Which options of a mixer the settings give, as mixer.KEY or mixer.NAME.KEY. */
static void find_given(const ls_settings *settings, const ls_model_config *config, int which,
                       bool *given) {
    const ls_mixer_type *type = config->mixer[which].type;
    for (size_t i = 0; i < type->options.count; i++) {
        const char *key = type->options.options[i].key;
        const char *const names[] = {type->name, config->mixer[which].name};
        char full[256];
        snprintf(full, sizeof full, "mixer.%s", key);
        given[i] = ls_settings_has(settings, full);
        for (int n = 0; n < 2; n++) {
            snprintf(full, sizeof full, "mixer.%s.%s", names[n], key);
            given[i] |= ls_settings_has(settings, full);
        }
    }
}

static ls_status fit_one(ls_ctx *ctx, const ls_settings *settings, ls_model_config *config,
                         int which, const ls_mixer *mixer, const char *scope,
                         const ls_naming *naming, const ls_safetensors *file, const char *prefix,
                         ls_text *found) {
    enum { LENGTH = 16 };
    const ls_naming none = {0};
    ls_fit_weights weights = {0};
    bool *given = ls_new(ctx, mixer->type->options.count + 1, sizeof *given);
    if (given == NULL) return LS_ENOMEM;
    find_given(settings, config, which, given);
    ls_status status = gather(ctx, naming, file, prefix, scope, &weights);
    if (status == LS_OK)
        status = ls_fit_mixer(ctx, mixer, config->mixer[which].options, given, &none, &weights,
                              LENGTH, found);
    ls_fit_weights_clear(ctx, &weights);
    ls_free(ctx, given);
    return status;
}

ls_status ls_fit_model_mixers(ls_ctx *ctx, const ls_settings *settings, ls_model_config *config,
                              const ls_naming *naming, const ls_safetensors *file,
                              const char *prefix, ls_text *found) {
    bool done[LS_MODEL_MIXERS_MAX] = {false};
    for (int64_t i = 0; i < config->layers + config->encoder_layers; i++) {
        const bool encodes = i >= config->layers;
        const int64_t layer = encodes ? i - config->layers : i;
        const int which = encodes ? config->encoder_mixer[layer] : config->layer_mixer[layer];
        const ls_mixer mixer =
            encodes ? ls_model_encoder_mixer(config, layer) : ls_model_mixer(config, layer);
        char scope[64];
        if (done[which]) continue;
        done[which] = true;
        snprintf(scope, sizeof scope, "%slayers.%lld.mixer.", encodes ? "encoder." : "",
                 (long long)layer);
        LS_TRY(fit_one(ctx, settings, config, which, &mixer, scope, naming, file, prefix, found));
    }
    return LS_OK;
}
