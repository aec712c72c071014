/* The mixers of a model, layer by layer, and their options. */
#include <stdio.h>
#include <string.h>

#include "model/config.h"

static ls_mixer mixer_at(const ls_model_config *config, int which, int64_t layer) {
    const ls_mixer_type *type = config->mixer[which].type;
    return (ls_mixer){
        .type = type,
        .options = config->mixer[which].options,
        .width = config->model.width,
        .causal = config->model.causal && layer >= config->model.memory_encoder,
        .position = type->traits & LS_MIXER_POSITIONS ? &config->position : NULL,
        .layer = layer,
        .trained_length = config->model.length,
    };
}

ls_mixer ls_model_mixer(const ls_model_config *config, int64_t layer) {
    ls_mixer mixer = mixer_at(config, config->layer_mixer[layer], layer);
    mixer.branches =
        config->layers * (1 + config->model.feed_forward + (config->encoder_layers > 0));
    return mixer;
}

ls_mixer ls_model_encoder_mixer(const ls_model_config *config, int64_t layer) {
    ls_mixer mixer = mixer_at(config, config->encoder_mixer[layer], layer);
    mixer.causal = false;
    mixer.branches = config->encoder_layers * (1 + config->model.feed_forward);
    return mixer;
}

/* A list of layers that is being read. */
typedef struct layer_list {
    const char *key;   /* of the setting */
    const char *value; /* a number of layers, or a mixer for each */
    const char *mixer; /* where it is a number */
    int64_t fewest, *count;
    uint8_t *which;
} layer_list;

/* A label is a short word that is no mixer. */
static ls_status check_label(ls_ctx *ctx, const char *key, const char *label) {
    size_t length = strspn(label, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    if (length == 0 || label[length] != '\0' || length >= LS_MIXER_NAME_BYTES)
        return LS_FAIL(ctx, LS_EUSE,
                       "%s: a label has 1 to %d small letters, digits, _ or -, which `%s` has not",
                       key, LS_MIXER_NAME_BYTES - 1, label);
    if (ls_mixer_find(label) != NULL)
        return LS_FAIL(ctx, LS_EUSE, "%s: the label %s is the name of a mixer", key, label);
    return LS_OK;
}

static const char *mixer_name(const void *list, size_t index) {
    (void)list;
    return index < ls_mixer_count ? ls_mixer_types[index]->name : NULL;
}

/* The next layer has the mixer TYPE or TYPE:LABEL, one of those there are or a new one. */
static ls_status add_layer(ls_ctx *ctx, ls_model_config *config, const layer_list *list,
                           char *name) {
    char *label = strchr(name, ':');
    if (label != NULL) *label++ = '\0';
    size_t index;
    LS_TRY(ls_name_find(ctx, "mixer", name, mixer_name, NULL, &index));
    const ls_mixer_type *type = ls_mixer_types[index];
    int which = 0;
    if (label != NULL) LS_TRY(check_label(ctx, list->key, label));
    const char *own = label != NULL ? label : type->name;
    if (*list->count == LS_LAYERS_MAX)
        return LS_FAIL(ctx, LS_EUSE, "%s: a model has at most %d", list->key, LS_LAYERS_MAX);
    while (which < config->mixers && strcmp(config->mixer[which].name, own) != 0) which++;
    if (which == LS_MODEL_MIXERS_MAX)
        return LS_FAIL(ctx, LS_EUSE, "%s: at most %d different mixers fit", list->key, which);
    if (which == config->mixers) {
        void *values = ls_new(ctx, 1, type->options.size + 1); /* a mixer may have no options */
        if (values == NULL) return LS_ENOMEM;
        config->mixer[config->mixers].type = type;
        snprintf(config->mixer[config->mixers].name, LS_MIXER_NAME_BYTES, "%s", own);
        config->mixer[config->mixers++].options = values;
        LS_TRY(ls_options_default(ctx, &type->options, values));
    }
    if (config->mixer[which].type != type)
        return LS_FAIL(ctx, LS_EUSE, "%s: %s is the label of %s, not of %s", list->key, own,
                       config->mixer[which].type->name, type->name);
    list->which[(*list->count)++] = (uint8_t)which;
    return LS_OK;
}

static ls_status add_layers(ls_ctx *ctx, ls_model_config *config, const layer_list *list) {
    const char *rest = list->value;
    int64_t count;
    if (ls_parse_int(rest, &count)) {
        if (count < list->fewest || count > LS_LAYERS_MAX)
            return LS_FAIL(ctx, LS_EUSE, "%s=%s is out of range: use %lld to %d", list->key, rest,
                           (long long)list->fewest, LS_LAYERS_MAX);
        while (*list->count < count) {
            char name[LS_OPTION_TEXT_BYTES];
            snprintf(name, sizeof name, "%s", list->mixer);
            LS_TRY(add_layer(ctx, config, list, name));
        }
        return LS_OK;
    }
    do {
        char name[64];
        rest += strspn(rest, " ");
        size_t length = strcspn(rest, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), rest);
        if (length == 0)
            return LS_FAIL(ctx, LS_EUSE, "%s=%s: give a number, or a mixer for each layer",
                           list->key, list->value);
        LS_TRY(add_layer(ctx, config, list, name));
        rest += length;
    } while (*rest++ == ',');
    return LS_OK;
}

static ls_status choose_mixers(ls_ctx *ctx, ls_model_config *config) {
    const ls_model_settings *model = &config->model;
    const layer_list own = {"model.layers",  model->layers,      model->mixer, 1,
                            &config->layers, config->layer_mixer};
    const layer_list encoder = {"model.encoder_layers",
                                model->encoder_layers,
                                model->encoder_mixer[0] != '\0' ? model->encoder_mixer
                                                                : model->mixer,
                                0,
                                &config->encoder_layers,
                                config->encoder_mixer};
    LS_TRY(add_layers(ctx, config, &own));
    return add_layers(ctx, config, &encoder);
}

static bool is_section_of(const char *key, const char *name) {
    size_t length = strlen(name);
    return strncmp(key, name, length) == 0 && key[length] == '.';
}

/* mixer.KEY goes to all mixers that have the key, mixer.NAME.KEY to those of a type or with a
 * label. A preset's keys are optional: what they say about mixers that are not there is passed
 * over. */
static ls_status set_mixer_key(ls_ctx *ctx, ls_model_config *config, ls_setting *setting,
                               bool optional) {
    const char *key = setting->key + strlen("mixer."), *dot = strchr(key, '.');
    for (int i = 0; i < config->mixers; i++) {
        const ls_mixer_type *type = config->mixer[i].type;
        bool named = is_section_of(key, type->name) || is_section_of(key, config->mixer[i].name);
        bool only =
            dot == NULL && config->mixers == 1 && !optional; /* an error names the nearest */
        if (!named && !only && ls_options_find(&type->options, key) == NULL) continue;
        char where[96];
        snprintf(where, sizeof where, named ? "mixer.%.*s." : "mixer.",
                 named ? (int)(dot - key) : 0, key);
        LS_TRY(ls_options_set(ctx, &type->options, where, named ? dot + 1 : key, setting->value,
                              config->mixer[i].options));
        setting->used = true;
    }
    if (!setting->used && !optional)
        return LS_FAIL(ctx, LS_EUSE, "no mixer of this model has a key %s", setting->key);
    return LS_OK;
}

/* 0: for all mixers; 1: for those of a type; 2: for the one with a label. */
static int narrowness(const char *key) {
    if (strchr(key, '.') == NULL) return 0;
    for (size_t i = 0; i < ls_mixer_count; i++)
        if (is_section_of(key, ls_mixer_types[i]->name)) return 1;
    return 2;
}

void ls__mixer_facts(const ls_model_config *config, int which, ls_fact facts[3]) {
    bool seen[2] = {false, false};
    int count = 0;
    for (int64_t i = 0; i < config->layers; i++)
        if (config->layer_mixer[i] == which) seen[ls_model_mixer(config, i).causal] = true;
    for (int64_t i = 0; i < config->encoder_layers; i++)
        if (config->encoder_mixer[i] == which) seen[false] = true;
    if (seen[true]) facts[count++] = (ls_fact){"model.causal", "true"};
    if (seen[false]) facts[count++] = (ls_fact){"model.causal", "false"};
    facts[count] = (ls_fact){0};
}

/* LS_EUSE for a key that is given and has an effect in none of the mixers that have it. */
static ls_status check_effect(ls_ctx *ctx, const ls_model_config *config,
                              const ls_settings *settings, ls_setting *setting) {
    const char *key = setting->key + strlen("mixer.");
    ls_status status = LS_OK;
    for (int i = 0; i < config->mixers; i++) {
        const ls_option_table *table = &config->mixer[i].type->options;
        const void *values = config->mixer[i].options;
        const bool named = is_section_of(key, config->mixer[i].type->name) ||
                           is_section_of(key, config->mixer[i].name);
        const ls_option *option = ls_options_find(table, named ? strchr(key, '.') + 1 : key);
        ls_fact facts[3];
        if (option == NULL) continue;
        ls__mixer_facts(config, i, facts);
        if (ls_option_has_effect(option, table, values, facts)) return LS_OK;
        status = ls_setting_check_effect(ctx, settings, setting, option, table, values, facts);
    }
    return status;
}

ls_status ls__layers_read(ls_ctx *ctx, const ls_settings *settings, size_t given,
                          ls_model_config *config) {
    LS_TRY(choose_mixers(ctx, config));
    for (int narrow = 0; narrow < 3; narrow++) /* what is meant for fewer mixers comes later */
        for (size_t i = 0; i < settings->count; i++) {
            ls_setting *setting = &settings->items[i];
            if (strncmp(setting->key, "mixer.", 6) == 0 && narrowness(setting->key + 6) == narrow)
                LS_TRY(set_mixer_key(ctx, config, setting, i >= given));
        }
    for (size_t i = 0; i < settings->count; i++)
        if (strncmp(settings->items[i].key, "mixer.", 6) == 0)
            LS_TRY(check_effect(ctx, config, settings, &settings->items[i]));
    return LS_OK;
}
