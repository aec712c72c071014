/* A model's description, read from settings, checked whole, and printed. */
#include "model/config.h"

#include <stdio.h>
#include <string.h>

#include "model/block.h"
#include "model/head.h"
#include "model/wrap.h"

/* The option of extension i that a key means: extend.KEY is of all that have the key,
 * extend.NAME.KEY of one. NULL: none. */
static const ls_option *extension_option(const ls_position *position, int i, const char *key) {
    const ls_extension_type *type = position->extension[i].type;
    const char *dot = strchr(key += strlen("extend."), '.');
    if (dot == NULL) return ls_options_find(&type->options, key);
    const size_t length = (size_t)(dot - key);
    if (strlen(type->name) != length || strncmp(key, type->name, length) != 0) return NULL;
    return ls_options_find(&type->options, dot + 1);
}

/* extend.trained_length and extend.NAME.trained_length are keys of every extension. */
static bool sets_length(const ls_position *position, int i, const char *key) {
    const char *name = position->extension[i].type->name;
    const size_t length = strlen(name);
    key += strlen("extend.");
    if (strncmp(key, name, length) == 0 && key[length] == '.') key += length + 1;
    return strcmp(key, "trained_length") == 0;
}

static ls_status set_length(ls_ctx *ctx, ls_position *position, int i, const ls_setting *setting) {
    enum { LENGTH_MAX = 1 << 30 };
    int64_t length;
    if (!ls_parse_int(setting->value, &length) || length < 1 || length > LENGTH_MAX)
        return LS_FAIL(ctx, LS_EUSE, "%s=%.40s must be a length from 1 to %d", setting->key,
                       setting->value, LENGTH_MAX);
    position->extension[i].trained_length = length;
    return LS_OK;
}

static ls_status set_extension_key(ls_ctx *ctx, ls_position *position, ls_setting *setting) {
    const char *key = setting->key + strlen("extend.");
    bool known = false;
    for (int i = 0; i < position->extensions; i++) {
        if (sets_length(position, i, setting->key)) {
            LS_TRY(set_length(ctx, position, i, setting));
            known = true;
            continue;
        }
        const ls_option *option = extension_option(position, i, setting->key);
        const ls_option_table *table = &position->extension[i].type->options;
        const bool only = position->extensions == 1 && strchr(key, '.') == NULL;
        if (option == NULL && !only) continue; /* of the only one an error names the nearest */
        LS_TRY(ls_options_set(ctx, table, "extend.", option == NULL ? key : option->key,
                              setting->value, position->extension[i].options));
        known = true;
    }
    if (!known)
        return LS_FAIL(ctx, LS_EUSE, "no extension that is chosen has a key %s", setting->key);
    setting->used = true;
    return LS_OK;
}

/* LS_EUSE for a key that is given and has an effect in none of the extensions that have it. */
static ls_status check_extension_key(ls_ctx *ctx, const ls_position *position,
                                     const ls_settings *settings, ls_setting *setting) {
    ls_status status = LS_OK;
    for (int i = 0; i < position->extensions; i++) {
        const ls_option_table *table = &position->extension[i].type->options;
        const void *values = position->extension[i].options;
        if (sets_length(position, i, setting->key)) {
            if (setting->optional || ls_extension_measures(ctx, position, i)) return LS_OK;
            status = LS_FAIL(ctx, LS_EUSE, "%s has no effect: %s measures by no length here",
                             setting->key, position->extension[i].type->name);
            continue;
        }
        const ls_option *option = extension_option(position, i, setting->key);
        if (option == NULL) continue;
        if (ls_option_has_effect(option, table, values, NULL)) return LS_OK;
        status = ls_setting_check_effect(ctx, settings, setting, option, table, values, NULL);
    }
    return status;
}

ls_status ls_position_extensions_read(ls_ctx *ctx, const ls_settings *settings,
                                      ls_position *position) {
    const char *names = ls_settings_get(settings, "extend");
    while (names != NULL && *names != '\0') {
        char name[64];
        size_t length = strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), names);
        LS_TRY(ls_position_extend(ctx, position, name));
        names += length + (names[length] == ',');
    }
    for (int named = 0; named < 2; named++) /* what is meant for one of them comes later */
        for (size_t i = 0; i < settings->count; i++) {
            ls_setting *setting = &settings->items[i];
            if (strncmp(setting->key, "extend.", 7) != 0) continue;
            if ((strchr(setting->key + 7, '.') != NULL) == (named == 1))
                LS_TRY(set_extension_key(ctx, position, setting));
        }
    for (size_t i = 0; i < settings->count; i++)
        if (strncmp(settings->items[i].key, "extend.", 7) == 0)
            LS_TRY(check_extension_key(ctx, position, settings, &settings->items[i]));
    return LS_OK;
}

static bool takes_positions(const ls_model_config *config) {
    for (int i = 0; i < config->mixers; i++)
        if (config->mixer[i].type->traits & LS_MIXER_POSITIONS) return true;
    return false;
}

/* Without mixers nothing reads their options, nor positions but those that are embedded. */
static ls_status check_mixing(ls_ctx *ctx, const ls_settings *settings,
                              const ls_model_config *config) {
    const bool embeds = config->position.type->embed != NULL;
    for (size_t i = 0; !config->model.mixing && i < settings->count; i++) {
        const ls_setting *item = &settings->items[i];
        const bool mixer = strncmp(item->key, "mixer.", 6) == 0;
        const bool position = strncmp(item->key, "position.", 9) == 0 ||
                              strcmp(item->key, "extend") == 0 ||
                              strncmp(item->key, "extend.", 7) == 0;
        if (!item->optional && (mixer || (position && !embeds)))
            return LS_FAIL(ctx, LS_EUSE, "%s has no effect here: it needs model.mixing=true",
                           item->key);
    }
    return LS_OK;
}

/* Rows that one layer leaves out in training would be missing in the next. */
static ls_status check_trained(ls_ctx *ctx, const ls_model_config *config, const ls_mixer *mixer) {
    const int64_t trained = ls_mixer_result_of(mixer).trained;
    if (trained == 0 || (config->layers == 1 && config->encoder_layers == 0 &&
                         config->model.head == LS_HEAD_LM && config->model.segment == 0))
        return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "mixer %s trains the last %lld positions alone: that is for a language model of "
                   "one such layer, without segments and encoder",
                   mixer->type->name, (long long)trained);
}

static ls_status check(ls_ctx *ctx, const ls_model_config *config) {
    LS_TRY(ls_block_check(ctx, &config->model));
    for (size_t i = 0; i < ls_head_count; i++)
        if (ls_head_types[i]->check != NULL) LS_TRY(ls_head_types[i]->check(ctx, &config->model));
    for (size_t i = 0; i < ls_wrap_count; i++)
        if (ls_wrap_types[i]->check != NULL) LS_TRY(ls_wrap_types[i]->check(ctx, config));
    for (int64_t layer = 0; config->model.mixing && layer < config->layers; layer++) {
        const ls_mixer mixer = ls_model_mixer(config, layer);
        LS_TRY(ls_mixer_check(ctx, &mixer));
        LS_TRY(check_trained(ctx, config, &mixer));
    }
    if (takes_positions(config)) return LS_OK;
    const ls_position_type *position = config->position.type;
    if (position->embed == NULL && strcmp(position->name, "none") != 0)
        return LS_FAIL(ctx, LS_EUSE, "mixer %s takes no position method: set model.position=none",
                       config->mixer[0].type->name);
    if (config->position.extensions > 0)
        return LS_FAIL(ctx, LS_EUSE, "mixer %s takes no positions, so there is nothing to extend",
                       config->mixer[0].type->name);
    return LS_OK;
}

/* Settings from `given` on come from a preset. */
static ls_status read_all(ls_ctx *ctx, const ls_settings *settings, size_t given,
                          ls_model_config *out) {
    LS_TRY(ls_options_default(ctx, &ls_model_options, &out->model));
    LS_TRY(ls_settings_apply(ctx, settings, "model", &ls_model_options, NULL, &out->model));
    LS_TRY(ls__layers_read(ctx, settings, given, out));
    bool positioned = takes_positions(out);
    for (size_t i = 0; i < given; i++)
        positioned |= strcmp(settings->items[i].key, "model.position") == 0;
    if (!positioned) snprintf(out->model.position, sizeof out->model.position, "none");
    LS_TRY(ls_position_choose(ctx, out->model.position, &out->position));
    out->trained_length = out->model.length;
    const char *trained = ls_settings_get(settings, "train.length");
    int64_t length; /* a wrong one is refused where it is read */
    if (trained != NULL && ls_parse_int(trained, &length) && length > 0)
        out->trained_length = length;
    out->position.trained_length = out->trained_length;
    LS_TRY(ls_settings_apply(ctx, settings, "position", &out->position.type->options, NULL,
                             out->position.options));
    LS_TRY(ls_position_extensions_read(ctx, settings, &out->position));
    LS_TRY(check_mixing(ctx, settings, out));
    return check(ctx, out);
}

ls_status ls_model_config_read(ls_ctx *ctx, const ls_settings *settings, ls_model_config *out) {
    *out = (ls_model_config){0};
    /* the preset's keys come below those given: a copy, in which it is spelled out */
    ls_settings whole = {0};
    ls_status status = LS_OK;
    const char *preset = ls_settings_get(settings, "model.preset");
    for (size_t i = 0; i < settings->count && status == LS_OK; i++)
        if (strcmp(settings->items[i].key, "model.preset") != 0)
            status = ls_settings_copy(ctx, &whole, &settings->items[i]);
    size_t given = whole.count;
    if (status == LS_OK && preset != NULL) status = ls__preset_add(ctx, &whole, preset);
    if (status == LS_OK) status = read_all(ctx, &whole, given, out);
    for (size_t i = 0; i < settings->count; i++) /* what was found out of the copy */
        for (size_t j = 0; j < whole.count; j++)
            if (strcmp(whole.items[j].key, settings->items[i].key) == 0) {
                settings->items[i].used |= whole.items[j].used;
                settings->items[i].optional = whole.items[j].optional;
            }
    ls_settings_clear(ctx, &whole);
    if (status != LS_OK) ls_model_config_clear(ctx, out);
    return status;
}

ls_status ls_model_config_read_words(ls_ctx *ctx, const char *words, ls_model_config *out) {
    ls_settings settings = {0};
    *out = (ls_model_config){0};
    ls_status status = ls_settings_put_words(ctx, &settings, words);
    if (status == LS_OK) status = ls_model_config_read(ctx, &settings, out);
    if (status == LS_OK) status = ls_settings_finish(ctx, &settings, NULL);
    if (status != LS_OK) ls_model_config_clear(ctx, out);
    ls_settings_clear(ctx, &settings);
    return status;
}

void ls_model_config_print(ls_ctx *ctx, const ls_model_config *config, bool trained, ls_text *out) {
    ls_settings_print(ctx, "model", &ls_model_options, NULL, &config->model, out);
    for (int i = 0; i < config->mixers; i++) {
        const ls_mixer_type *type = config->mixer[i].type;
        ls_fact facts[3];
        ls__mixer_facts(config, i, facts);
        char section[96] = "mixer";
        if (config->mixers > 1)
            snprintf(section, sizeof section, "mixer.%s", config->mixer[i].name);
        if (type->options.count > 0)
            ls_settings_print(ctx, section, &type->options, facts, config->mixer[i].options, out);
    }
    if (config->position.type->options.count > 0)
        ls_settings_print(ctx, "position", &config->position.type->options, NULL,
                          config->position.options, out);
    for (int i = 0; !trained && i < config->position.extensions; i++)
        ls_settings_print(ctx, config->position.extension[i].type->name,
                          &config->position.extension[i].type->options, NULL,
                          config->position.extension[i].options, out);
}

void ls_model_config_clear(ls_ctx *ctx, ls_model_config *config) {
    for (int i = 0; i < config->mixers; i++) ls_free(ctx, config->mixer[i].options);
    ls_position_clear(ctx, &config->position);
    *config = (ls_model_config){0};
}

/* The mixer that the settings name; nobody has read it by that. */
static const ls_mixer_type *named_mixer(const ls_settings *settings) {
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, "model.mixer") == 0)
            return ls_mixer_find(settings->items[i].value);
    return NULL;
}

void ls_keys_know(ls_ctx *ctx, const ls_settings *settings, const ls_section *own,
                  const ls_section *common, ls_known_keys *keys) {
    size_t count = 0;
    const ls_mixer_type *mixer = NULL;
    *keys = (ls_known_keys){0};
    for (const ls_section *s = own; s != NULL && s->table != NULL; s++)
        if (s->table == &ls_model_options && (mixer = named_mixer(settings)) == NULL)
            mixer = ls_mixer_find("attention"); /* the most usual one */
    if (common != NULL) keys->lists[count++] = common;
    if (own != NULL) keys->lists[count++] = own;
    if (mixer != NULL) {
        keys->mixer[0] = (ls_section){"mixer", &mixer->options};
        keys->lists[count++] = keys->mixer;
    }
    ctx->sections = keys->lists;
}
