/* A model's keys in a GGUF file, from the fields of the config.json that they stand for. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/family_write.h"
#include "model/form.h"

/* What is being written. */
typedef struct keys {
    ls_ctx *ctx;
    const ls_family_type *type;
    const json_t *config;
    const ls_model_config *model;
    ls_gguf_writer *writer;
} keys;

static const char *full(const keys *k, const char *name, char out[LS_GGUF_NAME_MAX]) {
    snprintf(out, LS_GGUF_NAME_MAX, "%s.%s", k->type->gguf.architecture, name);
    return out;
}

static void put_int(const keys *k, const char *name, int64_t value) {
    char key[LS_GGUF_NAME_MAX];
    ls_gguf_put_u32(k->writer, full(k, name, key), (uint32_t)value);
}

static void put_real(const keys *k, const char *name, double value) {
    char key[LS_GGUF_NAME_MAX];
    ls_gguf_put_f32(k->writer, full(k, name, key), (float)value);
}

static int64_t whole(const json_t *json, const char *field) {
    return json_integer_value(json_object_get(json, field));
}

static double real(const json_t *json, const char *field) {
    return json_number_value(json_object_get(json, field));
}

static void put_field(const keys *k, const char *field, const json_t *value) {
    const bool recurrent = k->type->mixer != NULL;
    const bool layer = k->model->model.norm == 0;
    const char *name = ls__family_gguf_key(field, recurrent);
    char key[LS_GGUF_NAME_MAX];
    if (strcmp(field, "rms_norm_eps") == 0 && layer) name = "attention.layer_norm_epsilon";
    if (name == NULL || (recurrent && strcmp(field, "head_dim") == 0)) return;
    if (json_is_boolean(value))
        ls_gguf_put_bool(k->writer, full(k, name, key), json_is_true(value));
    else if (json_is_integer(value))
        put_int(k, name, json_integer_value(value));
    else if (json_is_real(value))
        put_real(k, name, json_real_value(value));
}

/* ---- rotary positions ---- */

static int64_t head_width(const keys *k) {
    const int64_t given = whole(k->config, "head_dim"),
                  heads = whole(k->config, "num_attention_heads");
    if (k->type->mixer != NULL || heads < 1) return 0;
    return given > 0 ? given : whole(k->config, "hidden_size") / heads;
}

/* Llama 3's rule as the list of divisors that it makes: see extend_llama3.c. */
static ls_status put_llama3(const keys *k, const json_t *scaling, int64_t rotated,
                            ls_gguf_divisors *out) {
    const double low = real(scaling, "low_freq_factor"), high = real(scaling, "high_freq_factor"),
                 factor = real(scaling, "factor"), base = real(k->config, "rope_theta"),
                 original = real(scaling, "original_max_position_embeddings");
    if (rotated / 2 > LS_OPTION_LIST_MAX)
        return LS_FAIL(k->ctx, LS_EUSE, "heads of %lld are too wide for a list of factors",
                       (long long)rotated);
    out->count = rotated / 2;
    for (int64_t i = 0; i < out->count; i++) {
        const double turns = original / (2 * M_PI * pow(base, (double)i / (double)out->count));
        const double kept = fmin(fmax((turns - low) / (high - low), 0), 1);
        out->at[i] = (float)(1 / ((1 - kept) / factor + kept));
    }
    return LS_OK;
}

static ls_status put_scaling(const keys *k, int64_t rotated, ls_gguf_divisors *divisors) {
    const json_t *scaling = json_object_get(k->config, "rope_scaling");
    const char *kind = json_string_value(json_object_get(scaling, "rope_type"));
    char key[LS_GGUF_NAME_MAX];
    if (kind == NULL) return LS_OK;
    if (strcmp(kind, "llama3") == 0) return put_llama3(k, scaling, rotated, divisors);
    const bool yarn = strcmp(kind, "yarn") == 0;
    const bool usual = real(scaling, "beta_fast") == 32 && real(scaling, "beta_slow") == 1 &&
                       json_object_get(scaling, "attention_factor") == NULL &&
                       json_object_get(scaling, "mscale") == NULL &&
                       !json_is_false(json_object_get(scaling, "truncate"));
    if ((!yarn && strcmp(kind, "linear") != 0) || (yarn && !usual))
        return LS_FAIL(k->ctx, LS_EUSE,
                       "llama.cpp has no %s%s of rotary positions that depends on the file alone",
                       kind, yarn ? " with other keys than factor and original" : " scaling");
    ls_gguf_put_text(k->writer, full(k, "rope.scaling.type", key), kind);
    put_real(k, "rope.scaling.factor", real(scaling, "factor"));
    if (yarn)
        put_int(k, "rope.scaling.original_context_length",
                whole(scaling, "original_max_position_embeddings"));
    return LS_OK;
}

static ls_status put_rope(const keys *k, ls_gguf_divisors *divisors) {
    const json_t *share = json_object_get(k->config, "partial_rotary_factor");
    const int64_t head = head_width(k);
    int64_t rotated = whole(k->config, "rotary_dim");
    if (strcmp(k->model->position.type->name, "rope") != 0) return LS_OK;
    if (share != NULL) rotated = (int64_t)lround(json_number_value(share) * (double)head);
    put_int(k, "rope.dimension_count", rotated);
    return put_scaling(k, rotated, divisors);
}

/* ---- the whole ---- */

/* Every so many layers has no window; what is not so the check of the file will find. */
static void put_period(const keys *k) {
    const json_t *types = json_object_get(k->config, "layer_types");
    const size_t count = json_array_size(types);
    size_t every = 0;
    if (k->type->gguf.windows != LS_GGUF_PERIOD_WINDOWS) return;
    while (every < count) {
        const char *type = json_string_value(json_array_get(types, every++));
        if (type != NULL && strcmp(type, "full_attention") == 0) break;
    }
    const char *last = json_string_value(json_array_get(types, count - 1));
    const bool none = every == count && last != NULL && strcmp(last, "full_attention") != 0;
    put_int(k, "attention.sliding_window_pattern", (int64_t)(none ? count + 1 : every));
}

/* What llama.cpp wants though the family's config.json does not have it. */
static void put_more(const keys *k) {
    const int64_t width = whole(k->config, "hidden_size"), expand = whole(k->config, "expand");
    if (k->type->mixer != NULL) {
        put_int(k, "ssm.inner_size", expand * width);
        put_int(k, "feed_forward_length", 0);
        put_int(k, "attention.head_count", 0);
        if (json_object_get(k->config, "time_step_rank") == NULL)
            put_int(k, "ssm.time_step_rank", whole(k->config, "num_heads"));
    } else if (json_object_get(k->config, "intermediate_size") == NULL) {
        put_int(k, "feed_forward_length", 4 * width);
    }
    if (k->type->gguf.only != NULL) {
        char key[LS_GGUF_NAME_MAX];
        ls_gguf_put_bool(k->writer, full(k, k->type->gguf.only, key), true);
    }
    put_period(k);
    if (strcmp(k->type->name, "mpt") == 0) put_real(k, "attention.max_alibi_bias", 8);
    if (k->type->mixer == NULL && whole(k->config, "head_dim") > 0)
        put_int(k, "attention.value_length", whole(k->config, "head_dim"));
}

ls_status ls_family_gguf_keys(ls_ctx *ctx, const ls_family_type *type, const json_t *config,
                              const ls_model_config *model, ls_gguf_writer *writer,
                              ls_gguf_divisors *divisors) {
    const keys k = {ctx, type, config, model, writer};
    const char *field;
    json_t *value;
    divisors->count = 0;
    if (json_is_integer(json_object_get(config, "sliding_window")) &&
        type->gguf.windows == LS_GGUF_NO_WINDOWS)
        return LS_FAIL(ctx, LS_EUSE, "llama.cpp does not look at the window of a %s model",
                       type->name);
    if (json_is_false(json_object_get(config, "use_conv_bias")) ||
        (type->mixer != NULL && json_is_true(json_object_get(config, "use_bias"))))
        return LS_FAIL(ctx, LS_EUSE,
                       "llama.cpp knows %s with a bias on the convolution and on nothing else",
                       type->name);
    ls_gguf_put_text(writer, "general.architecture", type->gguf.architecture);
    ls_gguf_put_text(writer, "general.type", "model");
    json_object_foreach((json_t *)config, field, value) put_field(&k, field, value);
    put_more(&k);
    return put_rope(&k, divisors);
}

ls_family_layout ls_family_gguf_layout(const ls_family_type *type, const ls_model_config *model) {
    const char *own = type->weights == NULL ? "" : type->weights;
    const bool paired = type->gguf.rules != NULL && strstr(type->gguf.rules, "paired") != NULL;
    ls_family_layout layout = {.name = type->gguf.architecture,
                               .prefix = "",
                               .head = "output.weight",
                               .whole = true,
                               .squeezed = true};
    if (ls_family_is_gated(model))
        layout.whole = type->rules != NULL && strstr(type->rules, "gate_up_proj") != NULL;
    if (type->mixer == NULL && strncmp(own, "q_proj ", 7) != 0)
        layout.weights = "qkv_proj o_proj";
    else if (type->mixer == NULL)
        layout.weights = paired ? "paired.q_proj paired.k_proj v_proj o_proj"
                                : "q_proj k_proj v_proj o_proj q_norm k_norm";
    return layout;
}

ls_status ls_family_gguf_check(ls_ctx *ctx, const char *path, const ls_model_config *model) {
    ls_family family;
    ls_model_config read = {0};
    ls_settings form = {0}, there = {0};
    ls_text said = {0};
    ls_status status = ls_family_open(ctx, path, &family);
    if (status == LS_OK) status = ls_model_config_read(ctx, &family.settings, &read);
    if (status == LS_OK) status = ls_form_of(ctx, model, &form);
    if (status == LS_OK) status = ls_form_of(ctx, &read, &there);
    if (status == LS_OK && ls_gguf_find_tensor(&family.gguf[0], "rope_freqs.weight") != NULL) {
        /* a list of divisors does not always tell by which rule it was made */
        ls_settings_remove(ctx, &form, "extend");
        ls_settings_remove(ctx, &there, "extend");
    }
    if (status == LS_OK && ls_form_differs(ctx, &form, &there, &said) > 0)
        status = LS_FAIL(ctx, LS_EUSE, "a GGUF file cannot say this model: it has %.400s",
                         said.bytes == NULL ? "" : said.bytes);
    ls_text_clear(ctx, &said);
    ls_settings_clear(ctx, &form);
    ls_settings_clear(ctx, &there);
    ls_model_config_clear(ctx, &read);
    ls_family_close(ctx, &family);
    return status;
}
