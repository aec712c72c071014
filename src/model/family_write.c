/* Which family a model can be written as, and its config.json. */
#include "model/family_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/form.h"

/* What a family reads in a config.json, as a form. */
static ls_status read_back(ls_ctx *ctx, const json_t *config, const char *name, ls_settings *form,
                           char note[LS_FAMILY_NOTE_BYTES]) {
    ls_family family = {0};
    ls_model_config model = {0};
    char *text = json_dumps(config, JSON_REAL_PRECISION(17));
    if (text == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for a config.json");
    ls_status status = ls_family_parse(ctx, text, strlen(text), name, &family);
    free(text);
    const bool tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
    if (status == LS_OK)
        status = ls_settings_put(ctx, &family.settings, "model.tied", tied ? "true" : "false");
    if (status == LS_OK) status = ls_model_config_read(ctx, &family.settings, &model);
    if (status == LS_OK) status = ls_form_of(ctx, &model, form);
    snprintf(note, LS_FAMILY_NOTE_BYTES, "%s", family.note);
    ls_model_config_clear(ctx, &model);
    ls_family_close(ctx, &family);
    return status;
}

static ls_status write_fields(ls_ctx *ctx, const ls_family_type *type, bool gguf,
                              const ls_settings *form, json_t *made) {
    ls_family_reader r = {.ctx = ctx,
                          .what = type->name,
                          .made = made,
                          .form = form,
                          .fields = gguf ? NULL : type->fields,
                          .seen = json_object()};
    const char *tied = ls_settings_get(form, "model.tied");
    json_object_set_new(made, "model_type", json_string(type->name));
    if (!gguf) json_object_set_new(made, "architectures", json_pack("[s]", type->architecture));
    json_object_set_new(made, "tie_word_embeddings",
                        json_boolean(tied != NULL && strcmp(tied, "true") == 0));
    type->read(&r);
    json_decref(r.seen);
    return r.status;
}

/* What a family makes of a model, and how it differs. */
typedef struct choice {
    const ls_family_type *type;
    json_t *config;
    ls_text said;
    size_t differs;
    char note[LS_FAMILY_NOTE_BYTES];
} choice;

/* A family's config.json for a form, and in how much the family differs from it. */
static ls_status try_family(ls_ctx *ctx, bool gguf, const ls_settings *form, choice *out) {
    ls_settings there = {0};
    const ls_family_type *type = out->type;
    out->config = json_object();
    ls_status status = out->config == NULL ? LS_FAIL(ctx, LS_ENOMEM, "no memory for a config.json")
                                           : write_fields(ctx, type, gguf, form, out->config);
    if (status == LS_OK) status = read_back(ctx, out->config, type->name, &there, out->note);
    if (status == LS_OK) {
        out->differs = ls_form_differs(ctx, form, &there, &out->said);
        status = out->said.failed ? LS_ENOMEM : LS_OK;
    } else if (status == LS_EINPUT || status == LS_EUSE) { /* it has no field for a value */
        ls_text_printf(ctx, &out->said, "%s", ctx->error.message);
        out->differs = form->count;
        ctx->error = (ls_error){0};
        status = LS_OK;
    }
    ls_settings_clear(ctx, &there);
    return status;
}

static void clear_choice(ls_ctx *ctx, choice *found) {
    json_decref(found->config);
    ls_text_clear(ctx, &found->said);
}

static ls_status try_next(ls_ctx *ctx, const ls_family_type *type, bool gguf,
                          const ls_settings *form, choice *best) {
    choice next = {.type = type};
    ls_status status = try_family(ctx, gguf, form, &next);
    if (status == LS_OK && (best->type == NULL || next.differs < best->differs)) {
        const choice before = *best;
        *best = next;
        next = before;
    }
    clear_choice(ctx, &next);
    return status;
}

static ls_status refuse(ls_ctx *ctx, const ls_settings *form, const char *name,
                        const choice *best) {
    const char *mixer = ls_settings_get(form, "mixer");
    const char *said = best->said.bytes == NULL ? "" : best->said.bytes;
    if (best->type == NULL && name[0] != '\0')
        return LS_FAIL(ctx, LS_EUSE, "there is no family %s that can be written for mixer %s", name,
                       mixer);
    if (best->type == NULL)
        return LS_FAIL(ctx, LS_EUSE,
                       "the mixer %s is known neither to transformers nor to llama.cpp", mixer);
    if (name[0] != '\0')
        return LS_FAIL(ctx, LS_EUSE, "this model is no %s: it has %.400s", name, said);
    return LS_FAIL(ctx, LS_EUSE,
                   "no family of public models has this form; the nearest is %s, but this one has "
                   "%.400s",
                   best->type->name, said);
}

ls_status ls_family_choose(ls_ctx *ctx, const ls_model_config *model, const char *name, bool gguf,
                           const ls_family_type **out, json_t **config) {
    ls_settings form = {0};
    choice best = {0};
    *config = NULL;
    ls_status status = ls_form_of(ctx, model, &form);
    const char *mixer = status == LS_OK ? ls_settings_get(&form, "mixer") : "";
    for (int rare = 0; rare < 2; rare++)
        for (size_t i = 0; status == LS_OK && i < ls_family_count; i++) {
            const ls_family_type *type = ls_family_types[i];
            const char *known = gguf ? type->gguf.architecture : type->architecture;
            if (known == NULL || type->fields == NULL || type->rare != (rare == 1)) continue;
            if (name[0] != '\0' && strcmp(type->name, name) != 0) continue;
            if (!ls_word_in(type->mixer == NULL ? "attention" : type->mixer, mixer)) continue;
            status = try_next(ctx, type, gguf, &form, &best);
        }
    if (status == LS_OK && (best.type == NULL || best.differs > 0))
        status = refuse(ctx, &form, name, &best);
    if (status == LS_OK) {
        if (best.note[0] != '\0') ls_say(ctx, "%s: %s", best.type->name, best.note);
        *out = best.type;
        *config = json_incref(best.config);
    }
    clear_choice(ctx, &best);
    ls_settings_clear(ctx, &form);
    return status;
}

/* Of a masked head's two biases the one that counts is written. */
ls_family_layout ls_family_layout_of(const ls_family_type *type, const ls_model_config *model) {
    ls_family_layout layout = {
        .name = type->name, .prefix = type->prefix, .head = type->head, .weights = type->weights};
    if (type->unused != NULL) type->unused(model, layout.unused);
    const char *bias = type->head_biases[model->model.tied ? 1 : 0];
    const size_t used = strlen(layout.unused);
    if (bias != NULL) snprintf(layout.unused + used, sizeof layout.unused - used, " %s", bias);
    return layout;
}
