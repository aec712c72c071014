/* One mixer alone: its weights by any of their names, forward whole and in chunks, gradients. */
#include "compare/mixer_trial.h"

#include <stdio.h>
#include <string.h>

#include "model/fit.h"

/* The mixer's options, by their names alone or as mixer.NAME. Without golden=, `input` and `output`
 * are files, also where a mixer has options of these names. */
static ls_status read_options(ls_mixer_trial *a, const ls_settings *settings) {
    const ls_option_table *table = &a->mixer.type->options;
    const ls_fact facts[] = {{"model.causal", a->keys->causal ? "true" : "false"}, {0}};
    LS_TRY(ls_options_default(a->ctx, table, a->mixer_options));
    for (size_t i = 0; i < table->count; i++) {
        const char *key = table->options[i].key;
        const bool file = !a->golden && (strcmp(key, "input") == 0 || strcmp(key, "output") == 0);
        const char *value = file ? NULL : ls_settings_get(settings, key);
        char full[128];
        snprintf(full, sizeof full, "mixer.%s", key);
        a->given[i] = value != NULL || ls_settings_has(settings, full);
        if (value != NULL) LS_TRY(ls_options_set(a->ctx, table, "", key, value, a->mixer_options));
    }
    LS_TRY(ls_settings_apply(a->ctx, settings, "mixer", table, facts, a->mixer_options));
    for (size_t i = 0; i < table->count; i++)
        if (a->given[i])
            LS_TRY(ls_option_check_effect(a->ctx, &table->options[i], table, table->options[i].key,
                                          a->mixer_options, facts));
    return LS_OK;
}

static ls_status read_position(ls_mixer_trial *a, const ls_settings *settings) {
    const bool takes = (a->mixer.type->traits & LS_MIXER_POSITIONS) != 0;
    if (!takes && a->keys->position[0] != '\0')
        return LS_FAIL(a->ctx, LS_EUSE, "mixer %s takes no position method", a->mixer.type->name);
    if (!takes) return LS_OK;
    LS_TRY(ls_position_choose(a->ctx, a->keys->position[0] == '\0' ? "none" : a->keys->position,
                              &a->position));
    a->position.trained_length = a->keys->trained_length;
    LS_TRY(ls_settings_apply(a->ctx, settings, "position", &a->position.type->options, NULL,
                             a->position.options));
    LS_TRY(ls_position_extensions_read(a->ctx, settings, &a->position));
    a->mixer.position = &a->position;
    return LS_OK;
}

static ls_status read(ls_comparer *comparer) {
    ls_mixer_trial *a = comparer->own;
    *a = (ls_mixer_trial){.ctx = comparer->ctx,
                          .keys = comparer->keys,
                          .type = comparer->dtype,
                          .golden = comparer->keys->golden[0] != '\0'};
    a->mixer.type = ls_mixer_find(a->keys->mixer);
    if (a->mixer.type == NULL)
        return LS_FAIL(a->ctx, LS_EUSE, "there is no mixer %s: see `longshot inspect mixers`",
                       a->keys->mixer);
    const ls_option_table *table = &a->mixer.type->options;
    a->mixer_options = ls_new(a->ctx, 1, table->size > 0 ? table->size : 1);
    a->given = ls_new(a->ctx, table->count + 1, sizeof *a->given);
    if (a->mixer_options == NULL || a->given == NULL) return LS_ENOMEM;
    LS_TRY(read_options(a, comparer->settings));
    a->mixer.options = a->mixer_options;
    a->mixer.causal = a->keys->causal;
    LS_TRY(read_position(a, comparer->settings));
    return ls_mixer_trial_read_names(a);
}

static bool measures(const ls_comparer *comparer) {
    const ls_position *position = &((const ls_mixer_trial *)comparer->own)->position;
    for (int i = 0; i < position->extensions; i++)
        if (position->extension[i].trained_length == 0 &&
            ls_extension_measures(comparer->ctx, position, i))
            return true;
    return false;
}

/* ---- sizes ---- */

static ls_status choose(ls_mixer_trial *a, const char *key, const char *value) {
    const ls_option_table *table = &a->mixer.type->options;
    const ls_option *option = ls_options_find(table, key);
    if (option != NULL) a->given[option - table->options] = true;
    return ls_options_set(a->ctx, table, "", key, value, a->mixer_options);
}

/* Heads of a file have no projections, and are as wide as they are. */
static ls_status fit_heads(ls_mixer_trial *a) {
    char number[32];
    if (a->heads.H == 0) return LS_OK;
    if (ls_options_find(&a->mixer.type->options, "head_width") == NULL)
        return LS_FAIL(a->ctx, LS_EUSE, "mixer %s cannot be given queries, keys and values",
                       a->mixer.type->name);
    snprintf(number, sizeof number, "%lld", (long long)a->heads.W);
    LS_TRY(choose(a, "head_width", number));
    LS_TRY(choose(a, "bias", "false"));
    snprintf(number, sizeof number, "%lld", (long long)a->heads.H);
    LS_TRY(choose(a, "heads", number));
    return choose(a, "out_bias", "false");
}

/* Latents that the file gives are as many and as wide as they are. */
static ls_status fit_latents(ls_mixer_trial *a) {
    const ls_option_table *table = &a->mixer.type->options;
    const char *const keys[] = {"latents", "latent_width"};
    const int64_t sizes[] = {a->latents, a->latent_width};
    for (int i = 0; a->z != NULL && i < 2; i++) {
        const ls_option *option = ls_options_find(table, keys[i]);
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)sizes[i]);
        if (option != NULL && !a->given[option - table->options])
            LS_TRY(choose(a, keys[i], number));
    }
    return LS_OK;
}

static ls_status fit_sizes(ls_mixer_trial *a, ls_text *found) {
    const ls_safetensors *file = a->golden ? &a->input : &a->weights;
    ls_fit_weights weights = {0};
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < file->count; i++) {
        const char *name = ls_mixer_trial_weight(a, file->items[i].name);
        if (name != NULL) status = ls_fit_weights_add(a->ctx, &weights, name, &file->items[i]);
    }
    if (status == LS_OK)
        status = ls_fit_mixer(a->ctx, &a->mixer, a->mixer_options, a->given, &a->naming, &weights,
                              a->T, found);
    ls_fit_weights_clear(a->ctx, &weights);
    return status;
}

/* ---- the whole ---- */

/* Once the shape of y is known. */
static ls_status make_room(ls_mixer_trial *a) {
    const ls_safetensor *cot = ls_mixer_trial_find(a, LS_GIVEN_COT, NULL);
    if (a->keys->grad || (a->golden && cot != NULL))
        LS_TRY(ls_mixer_trial_read_outputs(a, cot, &a->cot));
    if (a->cot != NULL) LS_TRY(ls_mixer_trial_clear_void(a, a->cot));
    a->y = ls_new(a->ctx, (size_t)(a->B * a->out_T * a->out_D), sizeof *a->y);
    a->grad_x = ls_new(a->ctx, (size_t)(a->B * a->T * a->D), sizeof *a->grad_x);
    if (a->z != NULL)
        a->grad_z =
            ls_new(a->ctx, (size_t)(a->B * a->latents * a->latent_width), sizeof *a->grad_z);
    const bool lacks = a->y == NULL || a->grad_x == NULL || (a->z != NULL && a->grad_z == NULL);
    return lacks ? LS_ENOMEM : LS_OK;
}

/* training=true is for what acts in training alone, or otherwise than at test. */
static ls_status check_training(const ls_mixer_trial *a) {
    if (!a->keys->training) return LS_OK;
    for (int i = 0; i < a->position.extensions; i++)
        if (a->position.extension[i].type->training || a->position.extension[i].type->marks != NULL)
            return LS_OK;
    return LS_FAIL(a->ctx, LS_EUSE,
                   "training=true has no effect: nothing here acts in training alone");
}

static ls_status run(ls_comparer *comparer, ls_comparison *out) {
    ls_mixer_trial *a = comparer->own;
    const ls_ints *cut = &a->keys->cut;
    LS_TRY(check_training(a));
    LS_TRY(ls_mixer_trial_open(a));
    a->mixer.width = a->D;
    LS_TRY(fit_heads(a));
    LS_TRY(fit_latents(a));
    LS_TRY(ls_mixer_trial_check_names(a));
    LS_TRY(ls_mixer_trial_choose_globals(a));
    LS_TRY(fit_sizes(a, &comparer->sizes));
    LS_TRY(ls_mixer_check(a->ctx, &a->mixer));
    LS_TRY(ls_mixer_trial_declare(a));
    LS_TRY(make_room(a));
    LS_TRY(ls_mixer_trial_load_weights(a));
    LS_TRY(ls_mixer_trial_run_whole(a));
    if (a->golden) return ls_mixer_trial_compare(a, out);
    if (cut->count > 0)
        LS_TRY(ls_mixer_trial_run_cut(a, cut->at, cut->count, a->y));
    else if (ls_mixer_trial_find(a, LS_GIVEN_STATE, NULL) != NULL)
        LS_TRY(ls_mixer_trial_run_cut(a, &a->T, 1, a->y));
    return ls_mixer_trial_write(a);
}

static void clear(ls_comparer *comparer) {
    ls_mixer_trial *a = comparer->own;
    ls_ctx *ctx = comparer->ctx;
    if (a->input_open) ls_safetensors_close(ctx, &a->input);
    if (a->weights_open) ls_safetensors_close(ctx, &a->weights);
    ls_parameters_free(a->store);
    ls_position_clear(ctx, &a->position);
    ls_naming_clear(ctx, &a->naming);
    ls_free(ctx, a->mixer_options);
    ls_free(ctx, a->given);
    ls_free(ctx, a->x);
    ls_free(ctx, a->z);
    ls_free(ctx, a->mask);
    ls_free(ctx, a->places);
    ls_free(ctx, a->cot);
    ls_free(ctx, a->y);
    ls_free(ctx, a->grad_x);
    ls_free(ctx, a->grad_z);
    ls_free(ctx, a->set);
    ls_text_clear(ctx, &a->state);
}

const ls_comparer_type ls_mixer_comparer = {
    .name = "mixer",
    .size = sizeof(ls_mixer_trial),
    .read = read,
    .run = run,
    .measures = measures,
    .clear = clear,
};
