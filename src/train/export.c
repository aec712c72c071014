#include "train/export.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/temporary.h"
#include "model/family_write.h"
#include "model/gguf_write.h"

enum { PATH_BYTES = 4096 };

#define FIELD(name) ls_export_settings, name
static const ls_option options[] = {
    LS_CHOICE("to", FIELD(to), "hf", "hf|gguf|peft",
              "What is written: a folder as transformers has it, a file as llama.cpp has it, or of "
              "a run with train.lora the adapter alone, for peft. Else adapters are merged."),
    LS_TEXT("out", FIELD(out), "",
            "Folder to write, or FILE.gguf; it must not be there yet. A folder gets model.gguf."),
    LS_TEXT("family", FIELD(family), "",
            "Family of public models (llama, gpt2, ...); empty: the checkpoint's own, or the first "
            "that has the model's form."),
    LS_CHOICE("dtype", FIELD(dtype), "f32", "f32|bf16|f16|q8_0",
              "Type of the weights; f32 gives back the same bytes when it is opened. q8_0 is for "
              "GGUF."),
    LS_INT(
        "shard_bytes", FIELD(shard_bytes), "5000000000", 1, 1LL << 50,
        "Weights of a larger model are several files with an index, each of at most so many bytes "
        "(or one tensor).",
        .needs = "to=hf"),
    LS_BOOL("tokenizer", FIELD(tokenizer), "true", "Whether the tokenizer is written too."),
};
const ls_option_table ls_export_options = LS_OPTIONS(options, ls_export_settings);

static ls_stored_type stored_type(const ls_export_settings *settings) {
    static const ls_stored_type types[] = {LS_STORED_F32, LS_STORED_BF16, LS_STORED_F16};
    return types[settings->dtype];
}

static ls_status write_json(ls_ctx *ctx, const char *folder, const char *name, const json_t *json) {
    char path[PATH_BYTES];
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, name));
    return ls_json_write(ctx, path, json);
}

/* ---- weights ---- */

typedef struct weights {
    ls_ctx *ctx;
    ls_public_scope scope;
    ls_parameters here; /* with the weights where the processor can reach them */
    ls_family_tensor *tensors;
    ls_safetensor_source *sources;
    size_t count;
    size_t first; /* of the file that is being written */
    ls_stored_type type;
} weights;

static ls_status fill(void *user, size_t index, void *out) {
    const weights *all = user;
    const ls_family_tensor *tensor = &all->tensors[all->first + index];
    double *values = ls_new_raw(all->ctx, (size_t)tensor->shape.count, sizeof *values);
    if (values == NULL) return LS_ENOMEM;
    ls_status status = ls_public_values(all->ctx, &all->scope, &tensor->shape, values);
    if (status == LS_OK) ls_stored_round(values, tensor->shape.count, all->type, out);
    ls_free(all->ctx, values);
    return status;
}

/* Where the head is not the embedding, transformers has its bias a second time, which nothing
 * reads.
 */
static void add_second_bias(weights *all, const ls_family_type *type, bool tied) {
    const char *own = type->head_biases[1];
    const size_t tail = own == NULL ? 0 : strlen(own);
    for (size_t i = 0, count = all->count; own != NULL && !tied && i < count; i++) {
        const size_t length = strlen(all->tensors[i].name);
        if (length < tail || strcmp(all->tensors[i].name + length - tail, own) != 0) continue;
        ls_family_tensor *copy = &all->tensors[all->count++];
        *copy = all->tensors[i];
        snprintf(copy->name + length - tail, sizeof copy->name - (length - tail), "%s",
                 type->head_biases[0]);
        copy->shape.name = copy->name;
    }
}

static int64_t bytes_of(const weights *all, size_t tensor) {
    const int64_t each = all->type == LS_STORED_F32 ? 4 : 2;
    return all->tensors[tensor].shape.count * each;
}

/* Where the file that begins with a tensor ends: one tensor at least is in it. */
static size_t end_of_shard(const weights *all, size_t first, int64_t most) {
    int64_t bytes = bytes_of(all, first);
    size_t end = first + 1;
    while (end < all->count && bytes + bytes_of(all, end) <= most) bytes += bytes_of(all, end++);
    return end;
}

static ls_status put_shard(weights *all, const char *folder, const char *name, size_t end) {
    static const ls_stored_text format = {"format", "pt"};
    char path[PATH_BYTES];
    LS_TRY(ls_path_join(all->ctx, path, sizeof path, folder, name));
    return ls_safetensors_make(all->ctx, path, all->sources + all->first, end - all->first, &format,
                               1, fill, all);
}

/* Several files, and an index that says which tensor is in which. */
static ls_status put_shards(weights *all, const char *folder, int64_t most, size_t shards) {
    json_t *map = json_object();
    int64_t total = 0;
    ls_status status = LS_OK;
    for (size_t k = 1; status == LS_OK && k <= shards; k++) {
        const size_t end = end_of_shard(all, all->first, most);
        char name[64];
        snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", k, shards);
        status = put_shard(all, folder, name, end);
        for (size_t i = all->first; i < end; total += bytes_of(all, i++))
            if (json_object_set_new(map, all->tensors[i].name, json_string(name)) != 0)
                status = LS_FAIL(all->ctx, LS_ENOMEM, "no memory for an index");
        all->first = end;
    }
    json_t *index =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    if (status == LS_OK)
        status = index == NULL
                     ? LS_FAIL(all->ctx, LS_ENOMEM, "no memory for an index")
                     : write_json(all->ctx, folder, "model.safetensors.index.json", index);
    json_decref(index);
    return status;
}

static ls_status put_tensors(weights *all, const ls_export_settings *settings, const char *folder) {
    size_t shards = 0;
    all->type = stored_type(settings);
    all->sources = ls_new(all->ctx, all->count + 1, sizeof *all->sources);
    if (all->sources == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < all->count; i++)
        all->sources[i] = (ls_safetensor_source){.name = all->tensors[i].name,
                                                 .type = all->type,
                                                 .rank = all->tensors[i].shape.rank,
                                                 .dim = all->tensors[i].shape.dim};
    for (size_t i = 0; i < all->count; shards++) i = end_of_shard(all, i, settings->shard_bytes);
    return shards < 2 ? put_shard(all, folder, "model.safetensors", all->count)
                      : put_shards(all, folder, settings->shard_bytes, shards);
}

static ls_status write_weights(const ls_trained *trained, const ls_family_type *type,
                               const ls_export_settings *settings, const char *folder) {
    ls_ctx *ctx = trained->ctx;
    const ls_parameters *store = trained->model->store;
    const ls_family_layout layout = ls_family_layout_of(type, &trained->config);
    ls_naming naming;
    weights all = {.ctx = ctx, .here = *store};
    LS_TRY(ls_naming_read(ctx, type->names == NULL ? "" : type->names,
                          type->rules == NULL ? "" : type->rules, &naming));
    ls_mixer *mixers = ls_public_mixers(ctx, &trained->config);
    all.scope = (ls_public_scope){&all.here, &naming, &trained->config, mixers};
    all.here.master = NULL;
    ls_status status =
        mixers == NULL ? LS_ENOMEM : ls_parameters_fetch(store, store->master, &all.here.master);
    if (status == LS_OK)
        status = ls_family_tensors(ctx, &layout, &all.scope, &all.tensors, &all.count);
    if (status == LS_OK) add_second_bias(&all, type, trained->config.model.tied);
    if (status == LS_OK) status = put_tensors(&all, settings, folder);
    ls_parameters_release(store, store->master, all.here.master, false);
    ls_free(ctx, all.tensors);
    ls_free(ctx, all.sources);
    ls_free(ctx, mixers);
    ls_naming_clear(ctx, &naming);
    return status;
}

/* ---- the folder ---- */

/* Where a text ends: the checkpoint's own ids, or the tokenizer's. */
static json_t *stops_of(const ls_trained *trained) {
    const int32_t end = trained->tokenizer == NULL ? -1 : ls_tokenizer_end(trained->tokenizer);
    if (trained->family.stops == 0) return end < 0 ? json_null() : json_integer(end);
    if (trained->family.stops == 1) return json_integer(trained->family.stop[0]);
    json_t *list = json_array();
    for (size_t i = 0; i < trained->family.stops; i++)
        json_array_append_new(list, json_integer(trained->family.stop[i]));
    return list;
}

static json_t *start_of(const ls_trained *trained) {
    const int32_t bos =
        trained->tokenizer == NULL ? -1 : ls_tokenizer_special(trained->tokenizer).bos;
    return bos < 0 ? json_null() : json_integer(bos);
}

static json_t *padding_of(const ls_trained *trained) {
    const int32_t pad =
        trained->tokenizer == NULL ? -1 : ls_tokenizer_special(trained->tokenizer).pad;
    return pad < 0 ? json_null() : json_integer(pad);
}

static ls_status write_config(const ls_trained *trained, const ls_export_settings *settings,
                              json_t *config, const char *folder) {
    static const char *const types[] = {"float32", "bfloat16", "float16"};
    if (json_object_set_new(config, "torch_dtype", json_string(types[settings->dtype])) != 0 ||
        json_object_set_new(config, "bos_token_id", start_of(trained)) != 0 ||
        (json_object_get(config, "pad_token_id") == NULL &&
         json_object_set_new(config, "pad_token_id", padding_of(trained)) != 0) ||
        json_object_set_new(config, "eos_token_id", stops_of(trained)) != 0)
        return LS_FAIL(trained->ctx, LS_ENOMEM, "no memory for config.json");
    return write_json(trained->ctx, folder, "config.json", config);
}

/* A checkpoint's own way of drawing tokens, where it says one. */
static ls_status write_generation(const ls_trained *trained, const char *folder) {
    const ls_generation *own = &trained->family.generation;
    json_t *json = json_pack("{s:o,s:o}", "bos_token_id", start_of(trained), "eos_token_id",
                             stops_of(trained));
    if (own->given && own->sample)
        json_object_update_new(json, json_pack("{s:b,s:f,s:I,s:f}", "do_sample", 1, "temperature",
                                               own->temperature, "top_k", (json_int_t)own->top_k,
                                               "top_p", own->top_p));
    ls_status status = json == NULL
                           ? LS_FAIL(trained->ctx, LS_ENOMEM, "no memory for a configuration")
                           : write_json(trained->ctx, folder, "generation_config.json", json);
    json_decref(json);
    return status;
}

static ls_status write_all(const ls_trained *trained, const ls_export_settings *settings,
                           const ls_family_type *type, json_t *config, const char *folder) {
    char path[PATH_BYTES];
    LS_TRY(ls_path_join(trained->ctx, path, sizeof path, folder, "model.gguf"));
    if (settings->to == LS_EXPORT_GGUF)
        return ls__export_gguf(trained, settings, type, config, path);
    if (settings->to == LS_EXPORT_PEFT) {
        LS_TRY(ls__export_peft(trained, type, folder));
        return ls_folder_sync(trained->ctx, folder);
    }
    LS_TRY(write_config(trained, settings, config, folder));
    LS_TRY(write_generation(trained, folder));
    if (trained->tokenizer != NULL && settings->tokenizer)
        LS_TRY(ls_tokenizer_export(trained->ctx, trained->tokenizer, folder));
    LS_TRY(write_weights(trained, type, settings, folder));
    return ls_folder_sync(trained->ctx, folder);
}

static ls_status write_folder(const ls_trained *trained, const ls_export_settings *settings,
                              const ls_family_type *type, json_t *config) {
    ls_ctx *ctx = trained->ctx;
    char unfinished[PATH_BYTES], parent[PATH_BYTES];
    int lock;
    snprintf(parent, sizeof parent, "%s", settings->out);
    char *slash = strrchr(parent, '/');
    if (slash != NULL && slash != parent) {
        *slash = '\0';
        LS_TRY(ls_folder_make(ctx, parent));
    }
    LS_TRY(ls_temporaries_sweep_beside(ctx, settings->out));
    LS_TRY(ls_temporary_folder(ctx, settings->out, unfinished, sizeof unfinished, &lock));
    ls_status status = write_all(trained, settings, type, config, unfinished);
    if (status == LS_OK && ls_path_exists(settings->out))
        status = LS_FAIL(ctx, LS_EUSE, "%s is there already: name another out=", settings->out);
    if (status == LS_OK) status = ls_path_rename(ctx, unfinished, settings->out);
    if (status != LS_OK) {
        const ls_error error = ctx->error;
        ls_folder_remove(ctx, unfinished);
        ctx->error = error;
    }
    close(lock);
    return status;
}

static bool is_file_name(const char *path) {
    const size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".gguf") == 0;
}

ls_status ls_export(const ls_trained *trained, const ls_export_settings *settings,
                    const char **family) {
    ls_ctx *ctx = trained->ctx;
    const char *wanted = settings->family;
    const ls_family_type *type;
    json_t *config;
    if (settings->out[0] == '\0') return LS_FAIL(ctx, LS_EUSE, "say where to: out=FOLDER");
    if (ls_path_exists(settings->out))
        return LS_FAIL(ctx, LS_EUSE, "%s is there already: name another out=", settings->out);
    const ls_family_type *own = trained->family.type;
    if (wanted[0] == '\0' && own != NULL)
        wanted = own->stands_for == NULL ? own->name : own->stands_for;
    if (settings->to != LS_EXPORT_GGUF && settings->dtype > LS_EXPORT_F16)
        return LS_FAIL(ctx, LS_EUSE, "dtype=q8_0 is for to=gguf");
    LS_TRY(ls_family_choose(ctx, &trained->config, wanted, settings->to == LS_EXPORT_GGUF, &type,
                            &config));
    ls_status status = settings->to == LS_EXPORT_GGUF && is_file_name(settings->out)
                           ? ls__export_gguf(trained, settings, type, config, settings->out)
                           : write_folder(trained, settings, type, config);
    json_decref(config);
    *family = type->name;
    return status;
}
