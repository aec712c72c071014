/* Folders of public checkpoints: which family, which files, and what is loaded from them. */
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, CONFIG_BYTES_MAX = 16 << 20, INDEX_BYTES_MAX = 256 << 20 };

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
        if (strcmp(name, lacking[i].name) == 0)
            ls_field_refuse(r, "%s needs %s, which there is not yet", name, lacking[i].part);
    ls_text known = {0};
    for (size_t i = 0; i < ls_family_count; i++)
        ls_text_printf(r->ctx, &known, "%s%s", known.length == 0 ? "" : ", ",
                       ls_family_types[i]->name);
    ls_field_refuse(r, "the family `%.64s` is not known; there are %s", name,
                    known.bytes == NULL ? "" : known.bytes);
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
    if (!json_is_object(inner.json) || inner.seen == NULL) {
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

/* generation_config.json goes before config.json, whole, where there is one. */
static ls_status read_generation(ls_ctx *ctx, const char *folder, ls_family *out) {
    char path[PATH_BYTES];
    json_t *json;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "generation_config.json"));
    if (!ls_path_exists(path)) return LS_OK;
    LS_TRY(ls_json_read(ctx, path, CONFIG_BYTES_MAX, &json));
    ls_status status = read_stops(ctx, json, path, out);
    json_decref(json);
    return status;
}

static ls_status read_config(ls_ctx *ctx, const json_t *json, const char *what, ls_family *out,
                             bool *tied) {
    ls_family_reader r = {
        .ctx = ctx, .what = what, .json = json, .seen = json_object(), .out = &out->settings};
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
    ls_status status = read_config(ctx, json, what, out, tied);
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

/* ---- weights ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const ls_safetensor *)a)->name, ((const ls_safetensor *)b)->name);
}

/* Adds what an index says of a shard (NULL: all of it) to the tensors that count. */
static ls_status add_tensors(ls_ctx *ctx, ls_family *family, const ls_safetensors *shard,
                             const json_t *index, const char *name) {
    ls_safetensor *items = ls_grow(ctx, family->file.items, family->file.count,
                                   family->file.count + shard->count + 1, sizeof *items);
    if (items == NULL) return LS_ENOMEM;
    family->file.items = items;
    for (size_t i = 0; i < shard->count; i++) {
        const char *place = json_string_value(json_object_get(index, shard->items[i].name));
        if (index != NULL && (place == NULL || strcmp(place, name) != 0)) continue;
        items[family->file.count++] = shard->items[i];
    }
    return LS_OK;
}

static ls_status open_shard(ls_ctx *ctx, ls_family *family, const char *folder, const json_t *index,
                            const char *name) {
    char path[PATH_BYTES];
    ls_safetensors *shards =
        ls_grow(ctx, family->shard, family->shards, family->shards + 1, sizeof *shards);
    if (shards == NULL) return LS_ENOMEM;
    family->shard = shards;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, name));
    LS_TRY(ls_safetensors_open(ctx, path, &shards[family->shards]));
    return add_tensors(ctx, family, &shards[family->shards++], index, name);
}

/* Every tensor of the index must be in the shard that it names. */
static ls_status open_index(ls_ctx *ctx, ls_family *family, const char *folder, const char *path,
                            const json_t *json) {
    const json_t *index = json_object_get(json, "weight_map");
    json_t *opened = json_object(), *place;
    const char *tensor;
    ls_status status =
        opened == NULL ? LS_FAIL(ctx, LS_ENOMEM, "no memory to read %s", path) : LS_OK;
    if (status == LS_OK && !json_is_object(index))
        status = LS_FAIL(ctx, LS_EINPUT, "%s: `weight_map` must be an object", path);
    if (status == LS_OK) json_object_foreach((json_t *)index, tensor, place) {
            const char *name = json_string_value(place);
            if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL ||
                strstr(name, "..") != NULL) {
                status = LS_FAIL(ctx, LS_EINPUT, "%s: `%.64s` stands in no file of this folder",
                                 path, tensor);
                break;
            }
            if (json_object_get(opened, name) != NULL) continue;
            status = open_shard(ctx, family, folder, index, name);
            if (status == LS_OK && json_object_set_new(opened, name, json_true()) != 0)
                status = LS_FAIL(ctx, LS_ENOMEM, "no memory to read %s", path);
            if (status != LS_OK) break;
        }
    if (status == LS_OK && family->file.count != json_object_size(index))
        status = LS_FAIL(ctx, LS_EINPUT, "%s names %zu tensors, of which the files hold %zu", path,
                         json_object_size(index), family->file.count);
    json_decref(opened);
    return status;
}

static ls_status open_weights(ls_ctx *ctx, ls_family *family, const char *folder) {
    char path[PATH_BYTES];
    json_t *json;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "model.safetensors"));
    if (ls_path_exists(path)) return open_shard(ctx, family, folder, NULL, "model.safetensors");
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "model.safetensors.index.json"));
    if (ls_path_exists(path)) {
        LS_TRY(ls_json_read(ctx, path, INDEX_BYTES_MAX, &json));
        ls_status status = open_index(ctx, family, folder, path, json);
        json_decref(json);
        return status;
    }
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "pytorch_model.bin"));
    if (ls_path_exists(path))
        return LS_FAIL(ctx, LS_EINPUT,
                       "%s can run code when it is opened: convert it to model.safetensors (save "
                       "the model again with transformers)",
                       path);
    return LS_FAIL(ctx, LS_EINPUT,
                   "%s holds neither model.safetensors nor model.safetensors.index.json", folder);
}

/* The tensor whose name is `end`, alone or behind a dot. */
static size_t find_ending(const ls_safetensors *file, const char *end) {
    for (size_t i = 0; i < file->count; i++) {
        const char *name = file->items[i].name;
        const size_t before = strlen(name) - strlen(end);
        if (ends_with(name, end) && (before == 0 || name[before - 1] == '.')) return i;
    }
    return file->count;
}

static bool is_equal(const ls_safetensor *a, const ls_safetensor *b) {
    return a->type == b->type && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

/* Whether the head is the embedding. The file decides before the flag: two matrices that differ are
 * both used; a copy is redundant. Only a head, where it is tied, is the embedding too. */
static ls_status settle_head(ls_ctx *ctx, ls_family *family, const char *folder, bool tied) {
    ls_safetensors *file = &family->file;
    const size_t embedding = find_ending(file, family->type->embedding),
                 head = find_ending(file, family->type->head);
    const bool has_embedding = embedding < file->count, has_head = head < file->count;
    if (!has_head && !tied)
        return LS_FAIL(ctx, LS_EINPUT, "%s: %s is missing, and the head is not tied", folder,
                       family->type->head);
    if (has_embedding && has_head) {
        tied = tied && is_equal(&file->items[embedding], &file->items[head]);
        if (tied) file->items[head] = file->items[--file->count];
    } else if (has_head && tied) {
        file->items[head].name = family->type->embedding;
    }
    qsort(file->items, file->count, sizeof *file->items, by_name);
    return ls_settings_put(ctx, &family->settings, "model.tied", tied ? "true" : "false");
}

/* ---- folders ---- */

bool ls_family_is_folder(const char *path) {
    char config[PATH_BYTES];
    return (size_t)snprintf(config, sizeof config, "%s/config.json", path) < sizeof config &&
           ls_path_exists(config);
}

ls_status ls_family_open(ls_ctx *ctx, const char *folder, ls_family *out) {
    char path[PATH_BYTES];
    ls_text text = {0};
    bool tied = false;
    *out = (ls_family){0};
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "config.json"));
    ls_status status = ls_file_read(ctx, path, CONFIG_BYTES_MAX, &text);
    if (status == LS_OK) status = parse_config(ctx, &text, path, out, &tied);
    ls_text_clear(ctx, &text);
    LS_TRY(status);
    LS_TRY(read_generation(ctx, folder, out));
    LS_TRY(open_weights(ctx, out, folder));
    return settle_head(ctx, out, folder, tied);
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
    ls_free(ctx, family->file.items);
    ls_naming_clear(ctx, &family->naming);
    ls_settings_clear(ctx, &family->settings);
    *family = (ls_family){0};
}
