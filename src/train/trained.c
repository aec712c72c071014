#include "train/trained.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/weights.h"
#include "train/checkpoint.h"
#include "train/objective.h"
#include "train/train.h"

static ls_status join(ls_ctx *ctx, char *out, const char *a, const char *b) {
    return ls_path_join(ctx, out, LS_TRAINED_PATH, a, b);
}

/* A public checkpoint with its own tokenizer, where it has one. */
static ls_status find_public(const char *path, ls_trained *out) {
    ls_ctx *ctx = out->ctx;
    const ls_settings *settings = &out->family.settings;
    LS_TRY(ls_family_open(ctx, path, &out->family));
    LS_TRY(join(ctx, out->folder, path, "."));
    out->folder[strlen(path)] = '\0';
    for (size_t i = 0; i < settings->count; i++)
        LS_TRY(
            ls_settings_put(ctx, &out->settings, settings->items[i].key, settings->items[i].value));
    if (ls_tokenizer_is_in(path))
        LS_TRY(ls_settings_put(ctx, &out->settings, "data.tokenizer", path));
    ls_settings_mark_optional(&out->settings);
    return LS_OK;
}

static ls_status refuse_edited(const ls_trained *trained) {
    return LS_FAIL(trained->ctx, LS_EINPUT,
                   "%s/config.yaml was changed after the training: its checksum is not the one in "
                   "the checkpoint's manifest. Undo the change; what an evaluation may differ in "
                   "goes on the command line (data.corpus=, extend=), and other settings take "
                   "these weights by train.from=%s",
                   trained->folder, trained->folder);
}

/* Which checkpoint stands for a run: train.select. */
static ls_status find_checkpoint(ls_trained *out, char *checkpoint) {
    ls_ctx *ctx = out->ctx;
    char folder[LS_TRAINED_PATH];
    ls_train_settings train;
    LS_TRY(join(ctx, folder, out->folder, "checkpoints"));
    LS_TRY(ls_options_default(ctx, &ls_train_options, &train));
    LS_TRY(ls_settings_apply(ctx, &out->settings, "train", &ls_train_options, NULL, &train));
    if (train.validate_every > 0 && train.select == LS_TRAIN_SELECT_BEST) {
        LS_TRY(ls_checkpoint_find_best(ctx, folder, checkpoint, LS_TRAINED_PATH, &out->step));
        if (out->step >= 0) return LS_OK;
    }
    return ls_checkpoint_find(ctx, folder, checkpoint, LS_TRAINED_PATH, &out->step);
}

ls_status ls_trained_find(ls_ctx *ctx, const char *path, ls_trained *out) {
    char checkpoint[LS_TRAINED_PATH], config[LS_TRAINED_PATH];
    *out = (ls_trained){.ctx = ctx, .step = -1};
    if (ls_gguf_is_file(path)) return find_public(path, out);
    if (!ls_path_is_folder(path))
        return LS_FAIL(ctx, LS_EINPUT,
                       "%s is neither the folder of a run or of a checkpoint nor a .gguf file",
                       path);
    LS_TRY(join(ctx, config, path, "config.yaml"));
    if (!ls_path_exists(config) && ls_family_is_at(path)) return find_public(path, out);
    LS_TRY(join(ctx, out->weights, path, "model.safetensors"));
    if (ls_path_exists(config)) {
        LS_TRY(join(ctx, out->folder, path, "."));
        out->folder[strlen(path)] = '\0';
        LS_TRY(ls_settings_read(ctx, &out->settings, config));
        ls_settings_mark_optional(&out->settings);
        LS_TRY(find_checkpoint(out, checkpoint));
        LS_TRY(join(ctx, out->weights, checkpoint, "model.safetensors"));
    } else if (ls_path_exists(out->weights)) {
        LS_TRY(join(ctx, out->folder, path, "../.."));
        LS_TRY(join(ctx, config, out->folder, "config.yaml"));
        LS_TRY(join(ctx, checkpoint, path, "."));
        LS_TRY(ls_settings_read(ctx, &out->settings, config));
        ls_settings_mark_optional(&out->settings);
    } else {
        return LS_FAIL(ctx, LS_EINPUT,
                       "%s holds neither config.yaml (a run), model.safetensors (a checkpoint) nor "
                       "config.json (a public checkpoint)",
                       path);
    }
    return ls_checkpoint_edited(ctx, checkpoint, config, &out->edited);
}

/* Whether a list of names with commas between them has one. */
static bool lists(const char *names, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = strstr(names, name); at != NULL; at = strstr(at + 1, name))
        if ((at == names || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

/* What a public checkpoint, or a run that went on from one, does to its own positions stays, and what is asked for comes behind it,
 * unless that is another form of the same method. */
static ls_status take_extension(ls_trained *trained, const char *asked) {
    const char *own = ls_settings_get(&trained->settings, "extend");
    char both[LS_OPTION_TEXT_BYTES];
    if (own == NULL) return ls_settings_put(trained->ctx, &trained->settings, "extend", asked);
    if (!lists(asked, own)) {
        if ((size_t)snprintf(both, sizeof both, "%s,%s", own, asked) >= sizeof both)
            return LS_FAIL(trained->ctx, LS_EUSE, "extend=%.40s... is too long", asked);
        return ls_settings_put(trained->ctx, &trained->settings, "extend", both);
    }
    char prefix[LS_OPTION_TEXT_BYTES + 16];
    snprintf(prefix, sizeof prefix, "extend.%s.", own);
    ls_say(trained->ctx, "extend=%s takes the place of the %s that %s has itself", asked, own,
           trained->folder);
    ls_settings_remove(trained->ctx, &trained->settings, prefix);
    return ls_settings_put(trained->ctx, &trained->settings, "extend", asked);
}

/* A key that takes the place of the model's own is said. */
static void say_override(const ls_trained *trained, const char *key, const char *value) {
    const char *own = ls_settings_get(&trained->settings, key);
    if (own == NULL || strcmp(own, value) == 0) return;
    ls_say(trained->ctx, "%s=%s takes the place of %s, which %s has itself", key, value, own,
           trained->folder);
}

/* Takes the settings that may differ from those of the training: extensions, and some options of
 * the mixers. */
static ls_status take_differing(ls_trained *trained, const ls_model_config *as_trained,
                                const ls_settings *overrides) {
    for (size_t i = 0; overrides != NULL && i < overrides->count; i++) {
        ls_setting *setting = &overrides->items[i];
        if (strcmp(setting->key, "extend") == 0) {
            LS_TRY(take_extension(trained, setting->value));
            setting->used = true;
        }
        if (strncmp(setting->key, "extend.", 7) == 0) {
            say_override(trained, setting->key, setting->value);
            LS_TRY(ls_settings_copy(trained->ctx, &trained->settings, setting));
            setting->used = true;
        }
        for (int j = 0; j < as_trained->mixers; j++) {
            const char *name = as_trained->mixer[j].name;
            const char *option =
                ls_mixer_option_at_test(as_trained->mixer[j].type, name, setting->key);
            if (option == NULL) continue;
            char key[256]; /* named: it goes before what the run's file says */
            snprintf(key, sizeof key, "mixer.%s.%s", name, option);
            say_override(trained, setting->key, setting->value);
            LS_TRY(ls_settings_put(trained->ctx, &trained->settings, key, setting->value));
            setting->used = true;
        }
    }
    return LS_OK;
}

static ls_status take_overrides(ls_trained *trained, const ls_settings *overrides) {
    ls_model_config as_trained;
    ls_status status = ls_model_config_read(trained->ctx, &trained->settings, &as_trained);
    if (status == LS_OK) status = take_differing(trained, &as_trained, overrides);
    ls_model_config_clear(trained->ctx, &as_trained);
    return status;
}

static ls_status trained_type(ls_trained *trained, ls_dtype *out) {
    ls_train_settings train;
    LS_TRY(ls_options_default(trained->ctx, &ls_train_options, &train));
    LS_TRY(ls_settings_apply(trained->ctx, &trained->settings, "train", &ls_train_options, NULL,
                             &train));
    *out = ls_train_dtype(&train);
    return LS_OK;
}

static ls_status open_tokenizer(ls_trained *trained) {
    char path[LS_TRAINED_PATH];
    LS_TRY(join(trained->ctx, path, trained->folder, "tokenizer"));
    const char *source = ls_settings_get(&trained->settings, "data.tokenizer");
    if (ls_settings_get(&trained->settings, "task") != NULL) return LS_OK;
    if (trained->family.type != NULL && source == NULL) return LS_OK;
    if (trained->family.type == NULL && ls_path_is_folder(path)) source = path;
    LS_TRY(ls_tokenizer_load(trained->ctx, source == NULL ? "byte" : source, &trained->tokenizer));
    int64_t has = ls_tokenizer_vocabulary(trained->tokenizer);
    if (has > trained->config.model.vocabulary)
        return LS_FAIL(trained->ctx, LS_EINPUT,
                       "the tokenizer of %s has %lld ids, its model takes %lld", trained->folder,
                       (long long)has, (long long)trained->config.model.vocabulary);
    ls_model_settings *model = &trained->config.model;
    int32_t mask;
    if (model->head != LS_HEAD_MASKED || model->mask_token >= 0) return LS_OK;
    LS_TRY(ls_objective_mask_of(trained->ctx, trained->tokenizer, &mask));
    model->mask_token = mask;
    return LS_OK;
}

static ls_status read_config(ls_trained *trained, const ls_settings *overrides) {
    /* what a checkpoint does to its own positions is measured by its own length */
    const bool scaled = ls_settings_has(&trained->settings, "extend");
    LS_TRY(take_overrides(trained, overrides));
    LS_TRY(ls_model_config_read(trained->ctx, &trained->settings, &trained->config));
    if (scaled) trained->config.position.trained_length = trained->config.model.length;
    return LS_OK;
}

ls_status ls_trained_describe(ls_ctx *ctx, const char *path, const ls_settings *overrides,
                              ls_trained *out) {
    LS_TRY(ls_trained_find(ctx, path, out));
    if (out->edited) return refuse_edited(out);
    if (out->family.note[0] != '\0') ls_say(ctx, "%s: %s", path, out->family.note);
    return read_config(out, overrides);
}

static ls_status open_all(ls_trained *trained, const ls_dtype *type) {
    ls_ctx *ctx = trained->ctx;
    ls_dtype wanted;
    LS_TRY(trained_type(trained, &wanted));
    if (type != NULL) wanted = *type;
    LS_TRY(ls_model_hold(ctx, &trained->config, wanted, &trained->model));
    if (!ctx->rehearsal) LS_TRY(ls_trained_load(trained, trained->model, NULL));
    return open_tokenizer(trained);
}

static ls_status load_weights(const ls_trained *trained, ls_model *model, size_t *missing) {
    if (trained->family.type == NULL) return ls_model_load(model, trained->weights, missing);
    if (missing == NULL) return ls_family_load(&trained->family, model);
    return LS_FAIL(trained->ctx, LS_EUSE,
                   "%s is a public checkpoint: all of its weights are needed", trained->folder);
}

ls_status ls_trained_load(const ls_trained *trained, ls_model *model, size_t *missing) {
    const char *broken;
    LS_TRY(load_weights(trained, model, missing));
    LS_TRY(ls_weights_find_broken(model->store, &broken));
    if (broken == NULL) return LS_OK;
    return LS_FAIL(trained->ctx, LS_EINPUT,
                   "%s: weights are not finite (%s): no result would mean anything",
                   trained->weights[0] == '\0' ? trained->folder : trained->weights, broken);
}

ls_status ls_trained_rehearse(ls_ctx *ctx, const ls_settings *settings,
                              const ls_settings *overrides, const ls_dtype *type, ls_trained *out) {
    *out = (ls_trained){.ctx = ctx, .step = -1};
    ls_status status = LS_OK;
    for (size_t i = 0; i < settings->count && status == LS_OK; i++)
        status = ls_settings_copy(ctx, &out->settings, &settings->items[i]);
    ls_settings_mark_optional(&out->settings);
    if (status == LS_OK) status = read_config(out, overrides);
    if (status == LS_OK) status = open_all(out, type);
    if (status != LS_OK) ls_trained_clear(out);
    return status;
}

ls_status ls_trained_open(ls_ctx *ctx, const char *path, const ls_settings *overrides,
                          const ls_dtype *type, ls_trained *out) {
    ls_status status = ls_trained_describe(ctx, path, overrides, out);
    if (status == LS_OK) status = open_all(out, type);
    if (status != LS_OK) ls_trained_clear(out);
    return status;
}

ls_status ls_trained_needs_text(const ls_trained *trained) {
    if (trained->tokenizer != NULL) return LS_OK;
    if (trained->family.type != NULL)
        return LS_FAIL(trained->ctx, LS_EUSE,
                       "%s has no tokenizer (tokenizer.json or one of its "
                       "like): no text can be read or written",
                       trained->folder);
    return LS_FAIL(trained->ctx, LS_EUSE,
                   "the run was trained on task %s: it has no tokenizer and knows no text",
                   ls_settings_get(&trained->settings, "task"));
}

void ls_trained_clear(ls_trained *trained) {
    ls_ctx *ctx = trained->ctx;
    ls_tokenizer_free(ctx, trained->tokenizer);
    ls_model_free(trained->model);
    ls_model_config_clear(ctx, &trained->config);
    ls_settings_clear(ctx, &trained->settings);
    ls_family_close(ctx, &trained->family);
    trained->tokenizer = NULL;
    trained->model = NULL;
}
