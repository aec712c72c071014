/* What a run folder, a checkpoint or a safetensors file holds. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/inspect.h"
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

static ls_status describe_file(ls_ctx *ctx, const char *path, json_t **out) {
    ls_safetensors file;
    LS_TRY(ls_safetensors_open(ctx, path, &file));
    json_t *tensors = json_array(), *metadata = json_object();
    int64_t elements = 0;
    for (size_t i = 0; i < file.count; i++) {
        const ls_safetensor *tensor = &file.items[i];
        elements += tensor->count;
        json_array_append_new(tensors,
                              json_pack("{s:s, s:s, s:o}", "name", tensor->name, "type",
                                        ls_stored_name(tensor->type), "shape", shape_of(tensor)));
    }
    for (size_t i = 0; i < file.metadata_count; i++)
        json_object_set_new(metadata, file.metadata[i].key, json_string(file.metadata[i].value));
    *out = json_pack("{s:s, s:I, s:o, s:o}", "file", path, "elements", (json_int_t)elements,
                     "metadata", metadata, "tensors", tensors);
    ls_safetensors_close(ctx, &file);
    return *out == NULL ? LS_FAIL(ctx, LS_ENOMEM, "no memory to describe %s", path) : LS_OK;
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

static ls_status inspect_file(ls_cli *cli, const char *path) {
    json_t *file;
    LS_TRY(describe_file(&cli->ctx, path, &file));
    if (cli->json) return ls_cli_print_json(cli, file);
    ls_text text = {0};
    print_tensors(&cli->ctx, file, &text);
    json_decref(file);
    return ls_cli_print_text(cli, &text);
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

static ls_status inspect_run(ls_cli *cli, const char *path) {
    ls_ctx *ctx = &cli->ctx;
    ls_trained trained;
    json_t *checkpoints = json_array(), *config = json_object(), *file = NULL;
    ls_status status = ls_trained_find(ctx, path, &trained);
    bool damaged = status == LS_EINPUT && trained.folder[0] != '\0';
    if (damaged) { /* the list below says what is wrong with which checkpoint */
        ctx->error = (ls_error){0};
        status = LS_OK;
    }
    if (status == LS_OK) status = list_checkpoints(ctx, trained.folder, checkpoints);
    if (status == LS_OK && !damaged) status = describe_file(ctx, trained.weights, &file);
    for (size_t i = 0; i < trained.settings.count; i++)
        json_object_set_new(config, trained.settings.items[i].key,
                            json_string(trained.settings.items[i].value));
    json_t *all = json_pack("{s:s, s:I, s:o, s:o, s:o}", "folder", path, "step",
                            (json_int_t)trained.step, "checkpoints", checkpoints, "config", config,
                            "weights", file == NULL ? json_null() : file);
    ls_trained_clear(&trained);
    if (status != LS_OK || cli->json) {
        if (status == LS_OK) return ls_cli_print_json(cli, all);
        json_decref(all);
        return status;
    }
    ls_text text = {0};
    const char *key;
    json_t *value;
    ls_text_printf(ctx, &text, "%s\n", path);
    for (size_t i = 0; i < json_array_size(checkpoints); i++) {
        const json_t *one = json_array_get(checkpoints, i);
        bool intact = json_is_true(json_object_get(one, "intact"));
        ls_text_printf(
            ctx, &text, "  %s: %s%s\n", json_string_value(json_object_get(one, "name")),
            intact ? "intact" : "damaged: ", json_string_value(json_object_get(one, "damage")));
    }
    json_object_foreach(config, key, value)
        ls_text_printf(ctx, &text, "  %s=%s\n", key, json_string_value(value));
    if (file != NULL) print_tensors(ctx, file, &text);
    json_decref(all);
    return ls_cli_print_text(cli, &text);
}

ls_status ls_inspect_path(ls_cli *cli, const char *path) {
    if (ls_path_is_folder(path)) return inspect_run(cli, path);
    if (ls_path_exists(path)) return inspect_file(cli, path);
    return LS_FAIL(&cli->ctx, LS_EUSE,
                   "%s is neither a list (mixers, positions, extensions, presets, tasks, "
                   "operations) nor a folder or file",
                   path);
}
