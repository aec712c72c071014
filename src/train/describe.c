#include "train/describe.h"

#include <string.h>

#include "base/file.h"
#include "base/meter.h"
#include "base/option.h"
#include "model/blocks.h"
#include "model/safetensors.h"
#include "train/checkpoint.h"
#include "train/trained.h"

enum { PATH_BYTES = 4096 };

static json_t *shape_of(const ls_safetensor *tensor) {
    json_t *shape = json_array();
    for (int i = 0; i < tensor->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->dim[i]));
    return shape;
}

static ls_status describe_tensors(ls_ctx *ctx, const ls_safetensors *file, const char *path,
                                  json_t **out) {
    json_t *tensors = json_array(), *metadata = json_object();
    int64_t elements = 0;
    for (size_t i = 0; i < file->count; i++) {
        const ls_safetensor *tensor = &file->items[i];
        elements += tensor->count;
        json_array_append_new(tensors, json_pack("{s:s, s:s, s:o}", "name", tensor->name, "type",
                                                 ls_safetensor_type_name(tensor), "shape",
                                                 shape_of(tensor)));
    }
    for (size_t i = 0; i < file->metadata_count; i++)
        json_object_set_new(metadata, file->metadata[i].key, json_string(file->metadata[i].value));
    *out = json_pack("{s:s, s:I, s:o, s:o}", "file", path, "elements", (json_int_t)elements,
                     "metadata", metadata, "tensors", tensors);
    return *out == NULL ? LS_FAIL(ctx, LS_ENOMEM, "no memory to describe %s", path) : LS_OK;
}

/* A key of a GGUF file in one line. */
static void describe_key(ls_ctx *ctx, const ls_gguf_key *key, ls_text *out) {
    ls_gguf_text text;
    double real;
    bool flag;
    if (key->kind == LS_GGUF_ARRAY)
        ls_text_printf(ctx, out, "a list of %llu", (unsigned long long)key->count);
    else if (ls_gguf_real(key, &real))
        ls_text_printf(ctx, out, "%.9g", real);
    else if (ls_gguf_boolean(key, &flag))
        ls_text_printf(ctx, out, "%s", flag ? "true" : "false");
    else if (ls_gguf_string(key, &text))
        ls_text_append(ctx, out, text.at, text.length);
}

/* A model is described as one. */
static ls_status describe_gguf(ls_ctx *ctx, const char *path, json_t **out) {
    ls_gguf file;
    LS_TRY(ls_gguf_open(ctx, path, &file));
    if (ls_gguf_find_tensor(&file, "token_embd.weight") != NULL) {
        ls_gguf_close(ctx, &file);
        return ls_describe_run(ctx, path, out);
    }
    ls_safetensors view = {.items = ls_new(ctx, file.tensor_count + 1, sizeof *view.items)};
    ls_status status = view.items == NULL ? LS_ENOMEM : LS_OK;
    for (size_t i = 0; status == LS_OK && i < file.tensor_count; i++)
        view.items[view.count++] = ls_blocks_tensor(&file.tensors[i]);
    if (status == LS_OK) status = describe_tensors(ctx, &view, path, out);
    for (size_t i = 0; status == LS_OK && i < file.key_count; i++) {
        ls_text text = {0};
        describe_key(ctx, &file.keys[i], &text);
        json_object_set_new(json_object_get(*out, "metadata"), file.keys[i].name,
                            json_stringn(text.bytes == NULL ? "" : text.bytes, text.length));
        ls_text_clear(ctx, &text);
    }
    ls_free(ctx, view.items);
    ls_gguf_close(ctx, &file);
    return status;
}

ls_status ls_describe_file(ls_ctx *ctx, const char *path, json_t **out) {
    ls_safetensors file;
    if (ls_gguf_is_file(path)) return describe_gguf(ctx, path, out);
    LS_TRY(ls_safetensors_open(ctx, path, &file));
    ls_status status = describe_tensors(ctx, &file, path, out);
    ls_safetensors_close(ctx, &file);
    return status;
}

static void print_tensors(ls_ctx *ctx, const json_t *file, ls_text *out) {
    const json_t *tensors = json_object_get(file, "tensors");
    ls_text_printf(ctx, out, "%s: %zu tensors, %lld elements\n",
                   json_string_value(json_object_get(file, "file")), json_array_size(tensors),
                   (long long)json_integer_value(json_object_get(file, "elements")));
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        const json_t *tensor = json_array_get(tensors, i),
                     *shape = json_object_get(tensor, "shape");
        ls_text_printf(ctx, out, "  %-44s %-5s [",
                       json_string_value(json_object_get(tensor, "name")),
                       json_string_value(json_object_get(tensor, "type")));
        for (size_t j = 0; j < json_array_size(shape); j++)
            ls_text_printf(ctx, out, "%s%lld", j == 0 ? "" : ", ",
                           (long long)json_integer_value(json_array_get(shape, j)));
        ls_text_printf(ctx, out, "]\n");
    }
}

/* Every checkpoint of a run with what is wrong with it, if anything is. */
static ls_status list_checkpoints(ls_ctx *ctx, const char *folder, json_t *list) {
    char path[PATH_BYTES], **names;
    size_t count;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "checkpoints"));
    if (!ls_path_is_folder(path)) return LS_OK;
    LS_TRY(ls_folder_list(ctx, path, &names, &count));
    for (size_t i = 0; i < count; i++) {
        int64_t step;
        if (strncmp(names[i], "step-", 5) != 0 || !ls_parse_int(names[i] + 5, &step)) continue;
        ls_status status = ls_checkpoint_verify(ctx, path, step);
        json_array_append_new(list, json_pack("{s:s, s:I, s:b, s:s}", "name", names[i], "step",
                                              (json_int_t)step, "intact", status == LS_OK, "damage",
                                              status == LS_OK ? "" : ctx->error.message));
        ctx->error = (ls_error){0};
    }
    ls_names_free(ctx, names, count);
    return LS_OK;
}

static json_t *config_json(const ls_settings *settings) {
    json_t *config = json_object();
    for (size_t i = 0; i < settings->count; i++)
        json_object_set_new(config, settings->items[i].key, json_string(settings->items[i].value));
    return config;
}

/* ---- what it will take ---- */

enum { CHUNK = 512 }; /* tokens that eval takes at once unless told otherwise */

/* The state of one text of `length` tokens and, beside the weights, what scoring it takes. */
static ls_status rehearse_text(ls_model *model, int64_t length, json_t *out) {
    const int64_t count = ls_min(length, CHUNK);
    const int32_t tokens[CHUNK] = {0};
    double loss[CHUNK];
    ls_stream *stream = NULL;
    ls_status status = ls_stream_new(model, 1, length, CHUNK, &stream);
    if (status == LS_OK) status = ls_stream_loss(stream, tokens, tokens, count, count, loss);
    if (status == LS_OK) {
        json_object_set_new(out, "state", json_integer((json_int_t)ls_stream_state_bytes(stream)));
        json_object_set_new(out, "scoring", json_integer((json_int_t)ls_stream_bytes(stream)));
    }
    ls_stream_free(stream);
    return status;
}

static ls_status rehearse_model(ls_ctx *ctx, const ls_model_config *config, ls_dtype type,
                                json_t *out) {
    ls_meter meter;
    ls_ctx metered = ls_meter_of(ctx, true, &meter);
    ls_model *model = NULL;
    json_t *bytes = json_object();
    const bool streams = config->model.head == LS_HEAD_LM && config->encoder_layers == 0;
    ls_status status = ls_model_hold(&metered, config, type, &model);
    if (status == LS_OK) {
        json_object_set_new(bytes, "weights", json_integer((json_int_t)meter.live));
        json_object_set_new(out, "parameters",
                            json_integer((json_int_t)ls_parameters_elements(model->store)));
        if (streams) status = rehearse_text(model, config->trained_length, bytes);
    }
    ls_model_free(model);
    json_object_set_new(out, ls_dtype_name(type), bytes);
    return status;
}

/* {"parameters", "length", "bf16": {"weights", "state", "scoring"}, "f32": ...} in bytes: nothing
 * is loaded. NULL where the model cannot be made: who opens it will say why. */
static json_t *foresee(const ls_ctx *ctx, const char *path) {
    ls_ctx quiet = *ctx;
    ls_trained trained;
    json_t *memory = json_object();
    quiet.log = NULL;
    ls_status status = ls_trained_describe(&quiet, path, NULL, &trained);
    const ls_model_config *config = &trained.config;
    if (status == LS_OK) {
        json_object_set_new(memory, "length", json_integer((json_int_t)config->trained_length));
        status = rehearse_model(&quiet, config, LS_BF16, memory);
    }
    if (status == LS_OK) status = rehearse_model(&quiet, config, LS_F32, memory);
    ls_trained_clear(&trained);
    if (status == LS_OK) return memory;
    json_decref(memory);
    return NULL;
}

static void print_memory(ls_ctx *ctx, const json_t *memory, ls_text *out) {
    static const char *const types[] = {"bf16", "f32"};
    ls_text_printf(ctx, out, "  %lld parameters\n",
                   (long long)json_integer_value(json_object_get(memory, "parameters")));
    for (size_t i = 0; i < 2; i++) {
        const json_t *bytes = json_object_get(memory, types[i]);
        const json_t *state = json_object_get(bytes, "state");
        ls_text_printf(ctx, out, "  memory in %s: %.1f MB of weights", types[i],
                       1e-6 * (double)json_integer_value(json_object_get(bytes, "weights")));
        if (state != NULL)
            ls_text_printf(ctx, out, "; a text of %lld tokens %.1f MB, scoring it %.1f MB",
                           (long long)json_integer_value(json_object_get(memory, "length")),
                           1e-6 * (double)json_integer_value(state),
                           1e-6 * (double)json_integer_value(json_object_get(bytes, "scoring")));
        ls_text_printf(ctx, out, "\n");
    }
}

ls_status ls_describe_run(ls_ctx *ctx, const char *path, json_t **out) {
    ls_trained trained;
    json_t *checkpoints = json_array(), *file = NULL;
    ls_status status = ls_trained_find(ctx, path, &trained);
    bool damaged = status == LS_EINPUT && trained.folder[0] != '\0';
    if (damaged) { /* the list below says what is wrong with which checkpoint */
        ctx->error = (ls_error){0};
        status = LS_OK;
    }
    if (status == LS_OK) status = list_checkpoints(ctx, trained.folder, checkpoints);
    if (status == LS_OK && !damaged)
        status = trained.family.type != NULL
                     ? describe_tensors(ctx, &trained.family.file, path, &file)
                     : ls_describe_file(ctx, trained.weights, &file);
    *out = json_pack("{s:s, s:I, s:o, s:o, s:o}", "folder", path, "step", (json_int_t)trained.step,
                     "checkpoints", checkpoints, "config", config_json(&trained.settings),
                     "weights", file == NULL ? json_null() : file);
    if (*out != NULL && trained.family.type != NULL)
        json_object_set_new(*out, "family", json_string(trained.family.type->name));
    if (*out != NULL && trained.edited) json_object_set_new(*out, "edited", json_true());
    json_t *memory = *out == NULL || damaged ? NULL : foresee(ctx, path);
    if (memory != NULL) json_object_set_new(*out, "memory", memory);
    ls_trained_clear(&trained);
    if (status == LS_OK && *out == NULL)
        status = LS_FAIL(ctx, LS_ENOMEM, "no memory to describe %s", path);
    if (status != LS_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

static void print_run(ls_ctx *ctx, const json_t *run, ls_text *out) {
    const json_t *checkpoints = json_object_get(run, "checkpoints");
    const json_t *weights = json_object_get(run, "weights");
    const char *key;
    json_t *value;
    const char *family = json_string_value(json_object_get(run, "family"));
    ls_text_printf(ctx, out, "%s%s%s\n", json_string_value(json_object_get(run, "folder")),
                   family == NULL ? "" : ": a public checkpoint of the family ",
                   family == NULL ? "" : family);
    for (size_t i = 0; i < json_array_size(checkpoints); i++) {
        const json_t *one = json_array_get(checkpoints, i);
        bool intact = json_is_true(json_object_get(one, "intact"));
        ls_text_printf(
            ctx, out, "  %s: %s%s\n", json_string_value(json_object_get(one, "name")),
            intact ? "intact" : "damaged: ", json_string_value(json_object_get(one, "damage")));
    }
    if (json_is_true(json_object_get(run, "edited")))
        ls_text_printf(ctx, out, "  config.yaml was changed after the training\n");
    json_object_foreach(json_object_get(run, "config"), key, value)
        ls_text_printf(ctx, out, "  %s=%s\n", key, json_string_value(value));
    if (json_object_get(run, "memory") != NULL)
        print_memory(ctx, json_object_get(run, "memory"), out);
    if (!json_is_null(weights)) print_tensors(ctx, weights, out);
}

void ls_describe_print(ls_ctx *ctx, const json_t *description, ls_text *out) {
    const size_t before = out->length;
    if (json_object_get(description, "checkpoints") != NULL)
        print_run(ctx, description, out);
    else
        print_tensors(ctx, description, out);
    if (out->bytes != NULL) ls_plain(out->bytes + before, true);
}
