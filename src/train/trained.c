#include "train/trained.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "train/checkpoint.h"
#include "train/train.h"

static ls_status join(ls_ctx *ctx, char *out, const char *a, const char *b) {
    return ls_path_join(ctx, out, LS_TRAINED_PATH, a, b);
}

ls_status ls_trained_find(ls_ctx *ctx, const char *path, ls_trained *out) {
    char checkpoint[LS_TRAINED_PATH], config[LS_TRAINED_PATH], folder[LS_TRAINED_PATH];
    *out = (ls_trained){.ctx = ctx, .step = -1};
    if (!ls_path_is_folder(path))
        return LS_FAIL(ctx, LS_EINPUT, "%s is not the folder of a run or of a checkpoint", path);
    LS_TRY(join(ctx, config, path, "config.yaml"));
    LS_TRY(join(ctx, out->weights, path, "model.safetensors"));
    if (ls_path_exists(config)) {
        LS_TRY(join(ctx, out->folder, path, "."));
        out->folder[strlen(path)] = '\0';
        LS_TRY(join(ctx, folder, path, "checkpoints"));
        LS_TRY(ls_checkpoint_find(ctx, folder, checkpoint, sizeof checkpoint, &out->step));
        LS_TRY(join(ctx, out->weights, checkpoint, "model.safetensors"));
    } else if (ls_path_exists(out->weights)) {
        LS_TRY(join(ctx, out->folder, path, "../.."));
        LS_TRY(join(ctx, config, out->folder, "config.yaml"));
    } else {
        return LS_FAIL(ctx, LS_EINPUT,
                       "%s holds neither config.yaml (a run) nor model.safetensors (a checkpoint)",
                       path);
    }
    LS_TRY(ls_settings_read(ctx, &out->settings, config));
    ls_settings_mark_stored(&out->settings);
    return LS_OK;
}

/* Takes the settings that may differ from those of the training: extensions, and some options of
 * the mixers. */
static ls_status take_differing(ls_trained *trained, const ls_model_config *as_trained,
                                const ls_settings *overrides) {
    for (size_t i = 0; overrides != NULL && i < overrides->count; i++) {
        ls_setting *setting = &overrides->items[i];
        if (strcmp(setting->key, "extend") == 0 || strncmp(setting->key, "extend.", 7) == 0) {
            LS_TRY(ls_settings_put(trained->ctx, &trained->settings, setting->key, setting->value));
            setting->used = true;
        }
        for (int j = 0; j < as_trained->mixers; j++) {
            const char *name = as_trained->mixer[j].name;
            const char *option =
                ls_mixer_option_at_test(as_trained->mixer[j].type, name, setting->key);
            if (option == NULL) continue;
            char key[256]; /* named: it goes before what the run's file says */
            snprintf(key, sizeof key, "mixer.%s.%s", name, option);
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
    if (ls_path_is_folder(path)) source = path;
    LS_TRY(ls_tokenizer_load(trained->ctx, source == NULL ? "byte" : source, &trained->tokenizer));
    int64_t has = ls_tokenizer_vocabulary(trained->tokenizer);
    if (has > trained->config.model.vocabulary)
        return LS_FAIL(trained->ctx, LS_EINPUT,
                       "the tokenizer of %s has %lld ids, its model takes %lld", trained->folder,
                       (long long)has, (long long)trained->config.model.vocabulary);
    return LS_OK;
}

static ls_status open_all(ls_trained *trained, const ls_settings *overrides, const ls_dtype *type) {
    ls_ctx *ctx = trained->ctx;
    ls_dtype wanted;
    LS_TRY(take_overrides(trained, overrides));
    LS_TRY(ls_model_config_read(ctx, &trained->settings, &trained->config));
    LS_TRY(trained_type(trained, &wanted));
    if (type != NULL) wanted = *type;
    LS_TRY(ls_model_new(ctx, &trained->config, wanted, 0, false, &trained->model));
    LS_TRY(ls_model_load(trained->model, trained->weights, NULL));
    return open_tokenizer(trained);
}

ls_status ls_trained_open(ls_ctx *ctx, const char *path, const ls_settings *overrides,
                          const ls_dtype *type, ls_trained *out) {
    ls_status status = ls_trained_find(ctx, path, out);
    if (status == LS_OK) status = open_all(out, overrides, type);
    if (status != LS_OK) ls_trained_clear(out);
    return status;
}

ls_status ls_trained_needs_text(const ls_trained *trained) {
    if (trained->tokenizer != NULL) return LS_OK;
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
    trained->tokenizer = NULL;
    trained->model = NULL;
}
