#include "model/form.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "model/layers.h"

/* Of training alone: initial weights, drop-out. */
static const char *const of_training[] = {
    "model.mask_token", "model.mask_share",    "model.dropout",  "model.init",
    "model.mixer",      "model.encoder_mixer", "mixer.dt_min",   "mixer.dt_max",
    "mixer.dt_floor",   "mixer.dt_init",       "mixer.dt_scale", "mixer.A_min",
    "mixer.A_max",      "mixer.conv_init",     "position.beyond"};

static bool is_of_training(const char *key) {
    for (size_t i = 0; i < sizeof of_training / sizeof of_training[0]; i++)
        if (strcmp(key, of_training[i]) == 0) return true;
    return false;
}

/* All options of a table that have an effect, as SECTION.KEY. */
static ls_status add_options(ls_ctx *ctx, const char *section, const ls_option_table *table,
                             const ls_fact *facts, const void *values, ls_settings *out) {
    ls_status status = LS_OK;
    ls_text value = {0};
    for (size_t i = 0; status == LS_OK && i < table->count; i++) {
        char key[128];
        snprintf(key, sizeof key, "%s.%s", section, table->options[i].key);
        if (is_of_training(key) || !ls_option_has_effect(&table->options[i], table, values, facts))
            continue;
        value.length = 0;
        ls_text_append(ctx, &value, "", 0);
        ls_option_print(ctx, &table->options[i], values, &value);
        status = ls_text_status(&value);
        if (status == LS_OK) status = ls_settings_put(ctx, out, key, value.bytes);
    }
    ls_text_clear(ctx, &value);
    return status;
}

/* ---- options that stand for others ---- */

static ls_status put_int(ls_ctx *ctx, ls_settings *form, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return ls_settings_put(ctx, form, key, text);
}

static double number_of(const ls_settings *form, const char *key) {
    const char *text = ls_settings_get(form, key);
    return text == NULL ? 0 : strtod(text, NULL);
}

static bool is(const ls_settings *form, const char *key, const char *value) {
    const char *text = ls_settings_get(form, key);
    return text != NULL && strcmp(text, value) == 0;
}

/* A number that is 0 becomes what it stands for. */
static ls_status settle(ls_ctx *ctx, ls_settings *form, const char *key, int64_t meant) {
    return is(form, key, "0") ? put_int(ctx, form, key, meant) : LS_OK;
}

static ls_status settle_mixer(ls_ctx *ctx, int64_t width, ls_settings *form) {
    const int64_t heads = (int64_t)number_of(form, "mixer.heads");
    const int64_t each = heads > 0 ? width / heads : 0;
    const int64_t channels = (int64_t)(number_of(form, "mixer.expand") * (double)width);
    const int64_t inside = (int64_t)number_of(form, "mixer.d_ssm");
    if (is(form, "mixer.dilation", "1")) LS_TRY(ls_settings_put(ctx, form, "mixer.dilation", ""));
    if (number_of(form, "mixer.ngroups") == 1 && is(form, "mixer.norm", "groups"))
        LS_TRY(ls_settings_put(ctx, form, "mixer.norm", "whole"));
    LS_TRY(settle(ctx, form, "mixer.kv_heads", heads));
    LS_TRY(settle(ctx, form, "mixer.key_width", each));
    LS_TRY(settle(ctx, form, "mixer.value_width", each));
    LS_TRY(settle(ctx, form, "mixer.dt_rank", ls_ceil_div(width, 16)));
    if (is(form, "mixer.score_scale", "0")) {
        char scale[40];
        snprintf(scale, sizeof scale, "%.17g", 1 / sqrt(number_of(form, "mixer.key_width")));
        LS_TRY(ls_settings_put(ctx, form, "mixer.score_scale", scale));
    }
    return settle(ctx, form, "mixer.headdim", ls_min(64, inside > 0 ? inside : channels));
}

static ls_status settle_model(ls_ctx *ctx, const ls_model_config *config, ls_settings *form) {
    LS_TRY(put_int(ctx, form, "model.layers", config->layers));
    LS_TRY(put_int(ctx, form, "model.encoder_layers", config->encoder_layers));
    LS_TRY(settle(ctx, form, "model.hidden", ls_hidden_width(&config->model)));
    if (is(form, "model.norm_bias", "as_bias"))
        LS_TRY(ls_settings_put(ctx, form, "model.norm_bias", config->model.bias ? "yes" : "no"));
    return LS_OK;
}

/* A table of learned positions is as long as the model can be (landmarks are of the trained
 * length); a share of a head is so many of its elements. */
static ls_status settle_position(ls_ctx *ctx, const ls_model_config *config, ls_settings *form) {
    const double share = number_of(form, "position.fraction");
    const char *table = ls_settings_get(form, "position.length");
    if (share > 0) {
        ls_settings_remove(ctx, form, "position.fraction");
        LS_TRY(settle(ctx, form, "position.rotary_dim",
                      (int64_t)(share * number_of(form, "mixer.key_width"))));
    }
    if (strcmp(config->position.type->name, "learned") == 0 && table != NULL &&
        !is(form, "mixer", "nystromformer"))
        LS_TRY(put_int(ctx, form, "model.length", strtoll(table, NULL, 10)));
    return LS_OK;
}

/* ---- parts ---- */

/* A base of its own that is the base of all; the rotation as trained where nothing extends it. */
static ls_status settle_rotation(ls_ctx *ctx, const ls_model_config *config,
                                 const ls_settings *form, ls_settings *own) {
    const double base = number_of(own, "mixer.rope_base");
    if (base > 0 && base == number_of(form, "position.base"))
        LS_TRY(ls_settings_put(ctx, own, "mixer.rope_base", "0"));
    if (config->position.extensions == 0 && is(own, "mixer.positions", "trained"))
        LS_TRY(ls_settings_put(ctx, own, "mixer.positions", "all"));
    return LS_OK;
}

/* Options of layer 0, and of others where they differ; those of an encoder are below `encoder.`. */
static ls_status add_mixers(ls_ctx *ctx, const ls_model_config *config, bool encoder,
                            ls_settings *form) {
    ls_settings own = {0};
    ls_status status = LS_OK;
    const int64_t layers = encoder ? config->encoder_layers : config->layers;
    const char *root = encoder ? "encoder." : "";
    for (int64_t i = 0; status == LS_OK && i < layers; i++) {
        const int which = encoder ? config->encoder_mixer[i] : config->layer_mixer[i];
        const ls_mixer_type *type = config->mixer[which].type;
        ls_fact facts[3];
        ls__mixer_facts(config, which, facts);
        ls_settings_clear(ctx, &own);
        LS_TRY_GOTO(ls_settings_put(ctx, &own, "mixer", type->name));
        LS_TRY_GOTO(
            add_options(ctx, "mixer", &type->options, facts, config->mixer[which].options, &own));
        LS_TRY_GOTO(settle_mixer(ctx, config->model.width, &own));
        LS_TRY_GOTO(settle_rotation(ctx, config, form, &own));
        for (size_t j = 0; j < own.count; j++) {
            char key[160];
            snprintf(key, sizeof key, "%s%s", root, own.items[j].key);
            const char *first = ls_settings_get(form, key);
            if (i > 0 && first != NULL && strcmp(first, own.items[j].value) == 0) continue;
            if (i > 0) snprintf(key, sizeof key, "%slayers.%d.%s", root, (int)i, own.items[j].key);
            LS_TRY_GOTO(ls_settings_put(ctx, form, key, own.items[j].value));
        }
    }
fail:
    ls_settings_clear(ctx, &own);
    return status;
}

static ls_status add_extensions(ls_ctx *ctx, const ls_model_config *config, ls_settings *form) {
    ls_text names = {0};
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < config->position.extensions; i++) {
        const ls_extension_type *type = config->position.extension[i].type;
        char section[64], original[80];
        snprintf(section, sizeof section, "extend.%s", type->name);
        snprintf(original, sizeof original, "%s.original", section);
        if (type->training) continue; /* it decides nothing of what the model computes */
        ls_text_printf(ctx, &names, "%s%s", names.length == 0 ? "" : ",", type->name);
        LS_TRY_GOTO(add_options(ctx, section, &type->options, NULL,
                                config->position.extension[i].options, form));
        const int64_t own = config->position.extension[i].trained_length;
        LS_TRY_GOTO(settle(ctx, form, original, own > 0 ? own : config->model.length));
        if (own > 0 && !ls_settings_has(form, original) &&
            ls_extension_measures(ctx, &config->position, i)) {
            snprintf(original, sizeof original, "%s.trained_length", section);
            LS_TRY_GOTO(put_int(ctx, form, original, own));
        }
    }
    if (names.length == 0) return LS_OK;
    LS_TRY_GOTO(ls_text_status(&names));
    status = ls_settings_put(ctx, form, "extend", names.bytes);
fail:
    ls_text_clear(ctx, &names);
    return status;
}

ls_status ls_form_of(ls_ctx *ctx, const ls_model_config *config, ls_settings *out) {
    *out = (ls_settings){0};
    LS_TRY(add_options(ctx, "model", &ls_model_options, NULL, &config->model, out));
    LS_TRY(settle_model(ctx, config, out));
    LS_TRY(add_options(ctx, "position", &config->position.type->options, NULL,
                       config->position.options, out));
    LS_TRY(add_mixers(ctx, config, false, out));
    LS_TRY(add_mixers(ctx, config, true, out));
    LS_TRY(settle_position(ctx, config, out));
    return add_extensions(ctx, config, out);
}

static void add_difference(ls_ctx *ctx, ls_text *out, size_t *count, const ls_setting *has,
                           const char *there) {
    ls_text_printf(ctx, out, "%s%s=%s (%s there)", *count == 0 ? "" : ", ", has->key, has->value,
                   there == NULL ? "none" : there);
    ++*count;
}

/* Numbers are the same where they are in f32, which some files have. */
static bool is_same(const char *a, const char *b) {
    double x, y;
    if (strcmp(a, b) == 0) return true;
    return ls_parse_real(a, &x) && ls_parse_real(b, &y) && (float)x == (float)y;
}

size_t ls_form_differs(ls_ctx *ctx, const ls_settings *form, const ls_settings *other,
                       ls_text *out) {
    size_t count = 0;
    for (size_t i = 0; i < form->count; i++) {
        const char *there = ls_settings_get(other, form->items[i].key);
        if (there == NULL || !is_same(there, form->items[i].value))
            add_difference(ctx, out, &count, &form->items[i], there);
    }
    for (size_t i = 0; i < other->count; i++) {
        const ls_setting missing = {.key = other->items[i].key, .value = "none"};
        if (!ls_settings_has(form, other->items[i].key))
            add_difference(ctx, out, &count, &missing, other->items[i].value);
    }
    return count;
}
