#include "train/trained.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/weights.h"
#include "train/adapter.h"
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
    const char *base = out->family.base; /* of an adapter, which may lack one */
    const char *tokenizer = ls_tokenizer_is_in(path) ? path : base[0] != '\0' ? base : NULL;
    if (tokenizer != NULL && ls_tokenizer_is_in(tokenizer))
        LS_TRY(ls_settings_put(ctx, &out->settings, "data.tokenizer", tokenizer));
    ls_settings_mark_optional(&out->settings);
    return LS_OK;
}

/* The file in a checkpoint. */
static ls_status find_weights(const char *folder, ls_trained *out) {
    LS_TRY(join(out->ctx, out->weights, folder, LS_ADAPTER_WEIGHTS));
    out->adapter = ls_path_exists(out->weights);
    return out->adapter ? LS_OK : join(out->ctx, out->weights, folder, "model.safetensors");
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
                       ls_path_exists(path)
                           ? "%s is neither the folder of a run or of a checkpoint nor a .gguf file"
                           : "there is no %s: name the folder of a run or of a checkpoint, or a "
                             ".gguf file",
                       path);
    LS_TRY(join(ctx, config, path, "config.yaml"));
    if (!ls_path_exists(config) && ls_family_is_at(path)) return find_public(path, out);
    LS_TRY(find_weights(path, out));
    if (ls_path_exists(config)) {
        LS_TRY(join(ctx, out->folder, path, "."));
        out->folder[strlen(path)] = '\0';
        LS_TRY(ls_settings_read(ctx, &out->settings, config));
        ls_settings_mark_optional(&out->settings);
        LS_TRY(find_checkpoint(out, checkpoint));
        LS_TRY(find_weights(checkpoint, out));
    } else if (ls_path_exists(out->weights)) {
        LS_TRY(join(ctx, out->folder, path, "../.."));
        LS_TRY(join(ctx, config, out->folder, "config.yaml"));
        LS_TRY(join(ctx, checkpoint, path, "."));
        LS_TRY(ls_settings_read(ctx, &out->settings, config));
        ls_settings_mark_optional(&out->settings);
    } else {
        LS_TRY(join(ctx, config, path, "study.yaml"));
        if (ls_path_exists(config))
            return LS_FAIL(ctx, LS_EINPUT,
                           "%s is the folder of a study: name one of its runs, %s/arms/ARM/seed-N",
                           path, path);
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

/* Another form of an extension that the model has itself goes in its place. It is measured by the
 * same length, and that stays. */
static ls_status replace_extension(ls_trained *trained, const char *own, const char *asked) {
    char prefix[LS_OPTION_TEXT_BYTES + 16], key[LS_OPTION_TEXT_BYTES + 32], length[32] = "";
    snprintf(prefix, sizeof prefix, "extend.%s.", own);
    snprintf(key, sizeof key, "%strained_length", prefix);
    const char *measured = ls_settings_get(&trained->settings, key);
    if (measured != NULL) snprintf(length, sizeof length, "%s", measured);
    ls_say(trained->ctx, "extend=%s takes the place of the %s that %s has itself", asked, own,
           trained->folder);
    ls_settings_remove(trained->ctx, &trained->settings, prefix);
    if (measured != NULL) {
        LS_TRY(ls_settings_put(trained->ctx, &trained->settings, key, length));
        trained->settings.items[trained->settings.count - 1].optional = true;
    }
    return ls_settings_put(trained->ctx, &trained->settings, "extend", asked);
}

/* What a model was trained with, or a public checkpoint does to its own positions, stays, and what
 * is asked for comes behind it, unless that is another form of the same method. */
static ls_status take_extension(ls_trained *trained, const char *asked) {
    const char *own = ls_settings_get(&trained->settings, "extend");
    char both[LS_OPTION_TEXT_BYTES];
    if (own == NULL) return ls_settings_put(trained->ctx, &trained->settings, "extend", asked);
    if (lists(asked, own)) return replace_extension(trained, own, asked);
    if (lists(own, asked))
        return LS_FAIL(trained->ctx, LS_EUSE,
                       "%s has extend=%s itself: extend=%s would act twice; its own keys can be "
                       "set, as extend.%s.KEY",
                       trained->folder, own, asked, asked);
    if ((size_t)snprintf(both, sizeof both, "%s,%s", own, asked) >= sizeof both)
        return LS_FAIL(trained->ctx, LS_EUSE, "extend=%.40s... is too long", asked);
    ls_say(trained->ctx, "extend=%s acts behind the %s that %s has itself", asked, own,
           trained->folder);
    return ls_settings_put(trained->ctx, &trained->settings, "extend", both);
}

/* A key that takes the place of the model's own is said. */
static void say_override(const ls_trained *trained, const char *key, const char *value) {
    const char *own = ls_settings_get(&trained->settings, key);
    if (own == NULL || strcmp(own, value) == 0) return;
    ls_say(trained->ctx, "%s=%s takes the place of %s, which %s has itself", key, value, own,
           trained->folder);
}

/* extend.KEY for an extension that the model has itself: its file says extend.NAME.KEY, which would
 * go before. */
static ls_status take_extension_key(ls_trained *trained, const ls_setting *setting, bool asked) {
    const char *own = ls_settings_get(&trained->settings, "extend");
    const char *key = setting->key + strlen("extend.");
    char named[LS_OPTION_TEXT_BYTES + 32];
    ls_setting copy = *setting;
    if (own != NULL && !asked && strchr(own, ',') == NULL && strchr(key, '.') == NULL) {
        snprintf(named, sizeof named, "extend.%s.%s", own, key);
        copy.key = named;
    }
    say_override(trained, copy.key, copy.value);
    return ls_settings_copy(trained->ctx, &trained->settings, &copy);
}

ls_status ls_trained_extend(ls_trained *trained, const ls_settings *asked) {
    const char *names = ls_settings_get(asked, "extend");
    if (names != NULL) LS_TRY(take_extension(trained, names));
    for (size_t i = 0; i < asked->count; i++) {
        ls_setting *setting = &asked->items[i];
        if (strncmp(setting->key, "extend.", 7) != 0) continue;
        LS_TRY(take_extension_key(trained, setting, names != NULL));
        setting->used = true;
    }
    return LS_OK;
}

/* What acts in training alone can be asked for there alone. */
static ls_status refuse_training_only(ls_ctx *ctx, const ls_settings *asked) {
    const char *names = ls_settings_get(asked, "extend");
    for (size_t i = 0; names != NULL && i < ls_extension_count; i++)
        if (ls_extension_types[i]->training && lists(names, ls_extension_types[i]->name))
            return LS_FAIL(ctx, LS_EUSE,
                           "extension %s acts in training alone (longshot train): at test there is "
                           "nothing that it changes",
                           ls_extension_types[i]->name);
    return LS_OK;
}

/* lora.base: where the base of an adapter lies now. */
static ls_status take_base(ls_trained *trained, ls_setting *setting) {
    if (!trained->adapter)
        return LS_FAIL(trained->ctx, LS_EUSE,
                       "lora.base=%s: %s is not an adapter, it has all of its weights",
                       setting->value, trained->folder);
    setting->used = true;
    return ls_settings_put(trained->ctx, &trained->settings, "train.from", setting->value);
}

/* Takes the settings that may differ from those of the training: extensions, and some options of
 * the mixers. */
static ls_status take_differing(ls_trained *trained, const ls_model_config *as_trained,
                                const ls_settings *overrides) {
    if (overrides != NULL) LS_TRY(refuse_training_only(trained->ctx, overrides));
    if (overrides != NULL) LS_TRY(ls_trained_extend(trained, overrides));
    for (size_t i = 0; overrides != NULL && i < overrides->count; i++) {
        ls_setting *setting = &overrides->items[i];
        if (strcmp(setting->key, "lora.base") == 0) LS_TRY(take_base(trained, setting));
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

static ls_status read_training(const ls_trained *trained, ls_train_settings *out) {
    LS_TRY(ls_options_default(trained->ctx, &ls_train_options, out));
    return ls_settings_apply(trained->ctx, &trained->settings, "train", &ls_train_options, NULL,
                             out);
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
    if (out->edited) return ls_checkpoint_refuse_edited(ctx, out->folder);
    if (out->family.note[0] != '\0') ls_say(ctx, "%s: %s", path, out->family.note);
    return read_config(out, overrides);
}

static ls_status open_all(ls_trained *trained, const ls_dtype *type) {
    ls_ctx *ctx = trained->ctx;
    ls_train_settings train;
    LS_TRY(read_training(trained, &train));
    const ls_dtype wanted = type == NULL ? ls_train_dtype(&train) : *type;
    LS_TRY(train.lora_rank > 0 /* its product is added before weights are rounded */
               ? ls_model_plan(ctx, &trained->config, wanted, false, &trained->model)
               : ls_model_hold(ctx, &trained->config, wanted, &trained->model));
    if (!ctx->rehearsal) LS_TRY(ls_trained_load(trained, trained->model, NULL));
    return open_tokenizer(trained);
}

/* Where an adapter's base lies. Its hash is compared, so that no other one is taken for it. */
static ls_status find_base(const ls_trained *trained, const char *given, char *out) {
    ls_ctx *ctx = trained->ctx;
    LS_TRY(ls_path_find(ctx, given, trained->folder, out, LS_TRAINED_PATH));
    if (ls_path_exists(out)) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT,
                   "%s is an adapter of %s (train.from), which is not there: say where it is with "
                   "lora.base=PATH, or put it back",
                   trained->folder, given);
}

/* An adapter's base, and the adapter in it. */
static ls_status load_adapted(const ls_trained *trained, ls_model *model) {
    enum { DEPTH_MAX = 16 };
    ls_ctx *ctx = trained->ctx;
    ls_train_settings train;
    ls_trained base;
    char path[LS_TRAINED_PATH];
    LS_TRY(read_training(trained, &train));
    const ls_adapter adapter = ls_train_adapter(&train);
    if (adapter.rank == 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s is an adapter, and config.yaml has no train.lora.rank",
                       trained->weights);
    if (trained->depth == DEPTH_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: more than %d adapters stand on each other",
                       trained->folder, DEPTH_MAX);
    LS_TRY(find_base(trained, adapter.base, path));
    ls_status status = ls_trained_find(ctx, path, &base);
    base.depth = trained->depth + 1;
    if (status == LS_OK) status = ls_trained_load(&base, model, NULL);
    ls_trained_clear(&base);
    if (status == LS_OK) status = ls_adapter_merge(ctx, trained->weights, &adapter, model->store);
    return status;
}

static ls_status load_weights(const ls_trained *trained, ls_model *model, size_t *missing) {
    if (trained->adapter) {
        if (missing != NULL) *missing = 0;
        return load_adapted(trained, model);
    }
    if (trained->family.type == NULL) return ls_model_load(model, trained->weights, missing);
    if (missing == NULL) return ls_family_load(&trained->family, model);
    return LS_FAIL(trained->ctx, LS_EUSE,
                   "%s is a public checkpoint: all of its weights are needed", trained->folder);
}

ls_status ls_trained_load(const ls_trained *trained, ls_model *model, size_t *missing) {
    const char *broken;
    LS_TRY(load_weights(trained, model, missing));
    LS_TRY(ls_check_stop(trained->ctx, "reading weights"));
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

ls_status ls_trained_dtype(ls_ctx *ctx, const ls_settings *settings, ls_dtype *out, bool *given) {
    const char *name = ls_settings_get(settings, "dtype");
    *out = LS_F32;
    *given = name != NULL && strcmp(name, "auto") != 0;
    if (!*given) return LS_OK;
    for (int t = 0; t < LS_REAL_TYPES; t++)
        if (strcmp(name, ls_dtype_name((ls_dtype)t)) == 0) {
            *out = (ls_dtype)t;
            return LS_OK;
        }
    return LS_FAIL(ctx, LS_EUSE, "dtype=%.40s: choose auto, f64, f32 or bf16", name);
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
