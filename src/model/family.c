/* Folders of public checkpoints: which family, which files, and what is loaded from them. */
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, CONFIG_BYTES_MAX = 16 << 20 };

/* ---- config.json ---- */

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Fields that change no result of a trained model: drop-out, initial weights, caches, ids of
 * special tokens (the tokenizer's), what the file was made with. */
static bool is_inert(const char *name) {
    static const char *const names[] = {
        "_name_or_path",
        "architectures",
        "attn_implementation",
        "auto_map",
        "bos_token_id",
        "cache_implementation",
        "chunk_size_feed_forward",
        "decoder_start_token_id",
        "dtype",
        "embd_pdrop",
        "eos_token_id",
        "finetuning_task",
        "gradient_checkpointing",
        "id2label",
        "initializer_range",
        "is_llama_config",
        "keys_to_ignore_at_inference",
        "label2id",
        "model_type",
        "onnx_export",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "pretraining_tp",
        "problem_type",
        "reorder_and_upcast_attn",
        "rescale_prenorm_residual",
        "residual_in_fp32",
        "return_dict",
        "sep_token_id",
        "slow_but_exact",
        "task_specific_params",
        "tie_word_embeddings",
        "torch_dtype",
        "torchscript",
        "transformers.js_config",
        "transformers_version",
        "unk_token_id",
        "use_cache",
        "is_decoder",
        "is_encoder_decoder",
        "cross_attention_hidden_size",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return strncmp(name, "summary_", 8) == 0 || ends_with(name, "_dropout") ||
           ends_with(name, "_pdrop") || ends_with(name, "_dropout_prob");
}

/* Families that a part is missing for. */
static const struct {
    const char *name, *part;
} lacking[] = {
    {"codegen", "queries, values and keys in four groups of rows"},
    {"recurrent_gemma", "the mixer RG-LRU"},
    {"rwkv", "the mixer of RWKV"},
    {"llama4", "experts"},
    {"mixtral", "experts"},
    {"deepseek_v2", "latent attention"},
    {"deepseek_v3", "latent attention"},
};

static const ls_family_type *find_type(const char *name) {
    for (size_t i = 0; i < ls_family_count; i++)
        if (strcmp(ls_family_types[i]->name, name) == 0) return ls_family_types[i];
    return NULL;
}

static void choose_type(ls_family_reader *r, const ls_family_type **out) {
    const char *name = ls_field_text(r, "model_type", NULL);
    static const char *const experts[] = {"num_local_experts", "num_experts", "n_routed_experts"};
    *out = NULL;
    if (name == NULL) ls_field_refuse(r, "`model_type` is missing");
    if (ls_field_any(r, "quantization_config") != NULL)
        ls_field_refuse(r, "the weights are quantised (quantization_config): open the model as it "
                           "was before, or a .gguf file");
    for (size_t i = 0; i < sizeof experts / sizeof experts[0]; i++)
        if (ls_field_any(r, experts[i]) != NULL)
            ls_field_refuse(r, "the model has experts (%s), which there are not here", experts[i]);
    if (r->status != LS_OK) return;
    *out = find_type(name);
    if (*out != NULL) return;
    for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++)
        if (strcmp(name, lacking[i].name) == 0) {
            ls_field_refuse(r, "%s needs %s, which there is not yet", name, lacking[i].part);
            return;
        }
    ls_text known = {0};
    for (size_t i = 0; i < ls_family_count; i++)
        ls_text_printf(r->ctx, &known, "%s%s", known.length == 0 ? "" : ", ",
                       ls_family_types[i]->name);
    r->status = ls_text_status(&known);
    ls_field_refuse(r, "the family `%.64s` is not known; there are %s", name, known.bytes);
    ls_text_clear(r->ctx, &known);
}

/* What nobody read may change the computation. */
static void check_unread(ls_family_reader *r) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->json, key, value) if (!json_is_null(value) && !is_inert(key) &&
                                                           json_object_get(r->seen, key) == NULL)
        ls_field_refuse(r, "the field `%.64s` is not understood: it may change what is computed",
                        key);
}

void ls_family_read_within(ls_family_reader *r, const char *name, const ls_family_type *type) {
    ls_family_reader inner = *r;
    inner.json = ls_field_any(r, name);
    inner.seen = json_object();
    if (inner.seen == NULL) {
        r->status = LS_FAIL(r->ctx, LS_ENOMEM, "no memory to read %s", r->what);
    } else if (!json_is_object(inner.json)) {
        ls_field_refuse(r, "`%s` must be an object", name);
    } else {
        type->read(&inner);
        check_unread(&inner);
        r->status = inner.status;
    }
    json_decref(inner.seen);
}

/* eos_token_id, a number or a list of them; null or none: a text ends nowhere. */
static ls_status read_stops(ls_ctx *ctx, const json_t *json, const char *what, ls_family *out) {
    const json_t *ids = json_object_get(json, "eos_token_id");
    const size_t count =
        json_is_array(ids) ? json_array_size(ids) : ids != NULL && !json_is_null(ids);
    if (count > LS_FAMILY_STOPS_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: `eos_token_id` has more than %d ids", what,
                       LS_FAMILY_STOPS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_is_array(ids) ? json_array_get(ids, i) : ids;
        if (!json_is_integer(id) || json_integer_value(id) < -1 ||
            json_integer_value(id) > INT32_MAX)
            return LS_FAIL(ctx, LS_EINPUT, "%s: `eos_token_id` must be one id or a list of them",
                           what);
        out->stop[i] = (int32_t)json_integer_value(id);
    }
    out->stops = count;
    return LS_OK;
}

/* Fields of generation_config.json with the value that does nothing; of those without one, null. */
static bool changes_nothing(const char *name, const json_t *value) {
    static const char *const inert[] = {"_from_model_config",
                                        "transformers_version",
                                        "bos_token_id",
                                        "pad_token_id",
                                        "eos_token_id",
                                        "do_sample",
                                        "temperature",
                                        "top_k",
                                        "top_p",
                                        "max_length",
                                        "max_new_tokens",
                                        "use_cache",
                                        "output_scores",
                                        "output_logits",
                                        "return_dict_in_generate",
                                        "output_attentions",
                                        "output_hidden_states",
                                        "decoder_start_token_id",
                                        "cache_implementation",
                                        "length_penalty",
                                        "early_stopping",
                                        "num_return_sequences",
                                        "trust_remote_code",
                                        "remove_invalid_values"};
    static const struct {
        const char *name;
        double nothing;
    } plain[] = {{"num_beams", 1},          {"num_beam_groups", 1},
                 {"repetition_penalty", 1}, {"encoder_repetition_penalty", 1},
                 {"typical_p", 1},          {"min_p", 0},
                 {"epsilon_cutoff", 0},     {"eta_cutoff", 0},
                 {"diversity_penalty", 0},  {"no_repeat_ngram_size", 0},
                 {"min_length", 0},         {"encoder_no_repeat_ngram_size", 0}};
    if (json_is_null(value) || json_is_false(value)) return true;
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++)
        if (strcmp(name, inert[i]) == 0) return true;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(name, plain[i].name) == 0)
            return json_is_number(value) && json_number_value(value) == plain[i].nothing;
    return false;
}

/* What is not given is as transformers has it. */
static ls_status read_sampling(ls_ctx *ctx, const json_t *json, const char *what,
                               ls_generation *out) {
    ls_family_reader r = {.ctx = ctx, .what = what, .json = json, .seen = json_object()};
    const char *key;
    json_t *value;
    size_t used = 0;
    *out = (ls_generation){.given = true};
    out->sample = ls_field_bool(&r, "do_sample", false);
    out->temperature = ls_field_real(&r, "temperature", 1, 0, 100);
    out->top_k = ls_field_int(&r, "top_k", 50, 0, 1 << 24);
    out->top_p = ls_field_real(&r, "top_p", 1, 0, 1);
    json_decref(r.seen);
    LS_TRY(r.status);
    json_object_foreach((json_t *)json, key, value) {
        if (changes_nothing(key, value) || used >= sizeof out->unheeded) continue;
        used += (size_t)snprintf(out->unheeded + used, sizeof out->unheeded - used, "%s%.60s",
                                 used == 0 ? "" : ", ", key);
    }
    return LS_OK;
}

/* generation_config.json goes before config.json, whole, where there is one. */
static ls_status read_generation(ls_ctx *ctx, const char *folder, ls_family *out) {
    char path[PATH_BYTES];
    json_t *json;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "generation_config.json"));
    if (!ls_path_exists(path)) return LS_OK;
    LS_TRY(ls_json_read(ctx, path, CONFIG_BYTES_MAX, &json));
    ls_status status = read_stops(ctx, json, path, out);
    if (status == LS_OK) status = read_sampling(ctx, json, path, &out->generation);
    json_decref(json);
    return status;
}

ls_status ls__family_read(ls_ctx *ctx, const json_t *json, const char *what, const char *rules,
                          ls_family *out, bool *tied) {
    ls_family_reader r = {.ctx = ctx,
                          .what = what,
                          .json = json,
                          .seen = json_object(),
                          .out = &out->settings,
                          .note = out->note};
    if (r.seen == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory to read %s", what);
    if (!json_is_object(json)) ls_field_refuse(&r, "this is no object");
    choose_type(&r, &out->type);
    if (r.status == LS_OK) {
        *tied = ls_field_bool(&r, "tie_word_embeddings", out->type->tied);
        out->type->read(&r);
    }
    check_unread(&r);
    json_decref(r.seen);
    LS_TRY(r.status);
    LS_TRY(read_stops(ctx, json, what, out));
    ls_settings_mark_optional(&out->settings);
    if (rules != NULL) return ls_naming_parse(ctx, what, rules, &out->naming);
    return ls_naming_read(ctx, out->type->names == NULL ? "" : out->type->names,
                          out->type->rules == NULL ? "" : out->type->rules, &out->naming);
}

/* Python writes Infinity, which is no JSON: a number that no field but a limit takes. */
static void tame_infinity(char *text, size_t length) {
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        if (quoted && text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            quoted = !quoted;
        } else if (!quoted && length - i >= 8 && memcmp(text + i, "Infinity", 8) == 0) {
            memcpy(text + i, LS_FAMILY_INFINITY "   ", 8);
            i += 7;
        }
    }
}

static ls_status parse_config(ls_ctx *ctx, ls_text *text, const char *what, ls_family *out,
                              bool *tied) {
    json_t *json;
    tame_infinity(text->bytes, text->length);
    LS_TRY(ls_json_parse(ctx, text->bytes, text->length, what, &json));
    ls_status status = ls__family_read(ctx, json, what, NULL, out, tied);
    json_decref(json);
    return status;
}

ls_status ls_family_parse(ls_ctx *ctx, const char *text, size_t length, const char *what,
                          ls_family *out) {
    ls_text copy = {0};
    bool tied;
    *out = (ls_family){0};
    ls_text_append(ctx, &copy, text, length);
    ls_status status = ls_text_status(&copy);
    if (status == LS_OK) status = parse_config(ctx, &copy, what, out, &tied);
    ls_text_clear(ctx, &copy);
    return status;
}

/* ---- folders ---- */

/* A folder without config.json stands for the model.gguf in it. */
static const char *gguf_at(const char *path, char within[PATH_BYTES]) {
    if (ls_gguf_is_file(path)) return path;
    const bool fits = (size_t)snprintf(within, PATH_BYTES, "%s/config.json", path) < PATH_BYTES;
    if (!fits || ls_path_exists(within)) return NULL;
    snprintf(within, PATH_BYTES, "%s/model.gguf", path); /* is no longer */
    return ls_gguf_is_file(within) ? within : NULL;
}

bool ls_family_is_at(const char *path) {
    char config[PATH_BYTES];
    if (gguf_at(path, config) != NULL || ls__family_adapter_at(path)) return true;
    return (size_t)snprintf(config, sizeof config, "%s/config.json", path) < sizeof config &&
           ls_path_exists(config);
}

/* adapter: its folder, or NULL. */
static ls_status open_folder(ls_ctx *ctx, const char *folder, const char *adapter, ls_family *out) {
    char path[PATH_BYTES];
    ls_text text = {0};
    bool tied = false;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "config.json"));
    ls_status status = ls_file_read(ctx, path, CONFIG_BYTES_MAX, &text);
    if (status == LS_OK) status = parse_config(ctx, &text, path, out, &tied);
    ls_text_clear(ctx, &text);
    LS_TRY(status);
    LS_TRY(read_generation(ctx, folder, out));
    LS_TRY(ls__family_open_shards(ctx, out, folder));
    if (adapter != NULL) LS_TRY(ls__family_adapt(ctx, out, adapter));
    return ls__family_settle_folder(ctx, out, folder, tied);
}

ls_status ls_family_open(ls_ctx *ctx, const char *path, ls_family *out) {
    char within[PATH_BYTES];
    const char *gguf = gguf_at(path, within);
    *out = (ls_family){0};
    if (gguf != NULL) return ls__family_open_gguf(ctx, gguf, out);
    if (!ls__family_adapter_at(path)) return open_folder(ctx, path, NULL, out);
    LS_TRY(ls__family_adapter_base(ctx, path, out->base));
    return open_folder(ctx, out->base, path, out);
}

ls_status ls_family_load(const ls_family *family, ls_model *model) {
    ls_public_report report = {0};
    ls_status status = ls_model_load_public(model, &family->naming, &family->file, "", &report);
    if (status == LS_OK && report.left_over > 0)
        status = LS_FAIL(model->ctx, LS_EINPUT,
                         "%zu tensors of the checkpoint have no place in the model: %.300s",
                         report.left_over, report.left_over_names.bytes);
    if (status == LS_OK && report.incomplete > 0)
        status =
            LS_FAIL(model->ctx, LS_EINPUT,
                    "%zu parameters of the model are not given whole by the checkpoint: %.300s",
                    report.incomplete, report.incomplete_names.bytes);
    ls_public_report_clear(model->ctx, &report);
    return status;
}

void ls_family_close(ls_ctx *ctx, ls_family *family) {
    for (size_t i = 0; i < family->shards; i++) ls_safetensors_close(ctx, &family->shard[i]);
    ls_free(ctx, family->shard);
    for (size_t i = 0; i < family->ggufs; i++) ls_gguf_close(ctx, &family->gguf[i]);
    ls_free(ctx, family->gguf);
    for (size_t i = 0; i < family->merged_count; i++) ls_free(ctx, family->merged[i]);
    ls_free(ctx, family->merged);
    ls_free(ctx, family->file.items);
    ls_naming_clear(ctx, &family->naming);
    ls_settings_clear(ctx, &family->settings);
    *family = (ls_family){0};
}
