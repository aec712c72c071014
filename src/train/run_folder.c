#include "train/run_folder.h"

#include <string.h>

#include "base/json.h"
#include "tensor/engine/kernel.h"
#include "tensor/engine/machine.h"
#include "train/checkpoint.h"

enum { PATH_BYTES = 4096, CONFIG_BYTES_MAX = 1 << 20 };

void ls_run_settings_clear(ls_ctx *ctx, ls_run_settings *settings) {
    ls_task_clear(ctx, &settings->task);
    ls_mixture_clear(ctx, &settings->mixture);
    ls_model_config_clear(ctx, &settings->model);
}

/* What acts on positions in training, and so on everything that is done with the weights. */
static void print_extensions(ls_ctx *ctx, const ls_position *position, ls_text *out) {
    for (int i = 0; i < position->extensions; i++)
        ls_text_printf(ctx, out, "%s%s%s", i == 0 ? "extend: " : ",",
                       position->extension[i].type->name,
                       i + 1 == position->extensions ? "\n" : "");
    for (int i = 0; i < position->extensions; i++) {
        const ls_extension_type *type = position->extension[i].type;
        char section[96];
        snprintf(section, sizeof section, "extend.%s", type->name);
        if (type->options.count > 0)
            ls_settings_print(ctx, section, &type->options, NULL, position->extension[i].options,
                              out);
        if (position->extension[i].trained_length > 0)
            ls_text_printf(ctx, out, "%s.trained_length: %lld\n", section,
                           (long long)position->extension[i].trained_length);
    }
}

ls_status ls_run_folder_print(ls_ctx *ctx, const ls_run_settings *settings, ls_text *out) {
    ls_model_config_print(ctx, &settings->model, true, out);
    print_extensions(ctx, &settings->model.position, out);
    if (settings->task.type != NULL)
        ls_task_print(ctx, &settings->task, out);
    else
        ls_settings_print(ctx, "data", &ls_data_options, ls_training_facts, &settings->data, out);
    ls_mixture_print(ctx, &settings->mixture, out);
    ls_settings_print(ctx, "train", &ls_train_options, NULL, &settings->train, out);
    return ls_text_status(out);
}

static ls_status take_settings(ls_ctx *ctx, const ls_settings *settings, ls_run_settings *out) {
    LS_TRY(ls_task_read(ctx, settings, ls_training_facts, &out->task));
    LS_TRY(ls_model_config_read(ctx, settings, &out->model));
    LS_TRY(ls_options_default(ctx, &ls_data_options, &out->data));
    LS_TRY(ls_data_read(ctx, settings, ls_training_facts, &out->data));
    LS_TRY(ls_mixture_read(ctx, settings, out->data.mix, &out->mixture));
    LS_TRY(ls_options_default(ctx, &ls_train_options, &out->train));
    LS_TRY(ls_settings_apply(ctx, settings, "train", &ls_train_options, NULL, &out->train));
    return ls_settings_finish(ctx, settings, NULL);
}

/* A config.yaml as it would be written today: with the defaults of what it does not name. */
static ls_status print_today(ls_ctx *ctx, const char *path, const ls_text *stored, ls_text *out) {
    ls_settings settings = {0};
    ls_run_settings run = {0};
    ls_status status = ls_settings_parse(ctx, &settings, stored->bytes, stored->length, path);
    ls_settings_mark_optional(&settings);
    if (status == LS_OK) status = take_settings(ctx, &settings, &run);
    if (status == LS_OK) status = ls_run_folder_print(ctx, &run, out);
    ls_run_settings_clear(ctx, &run);
    ls_settings_clear(ctx, &settings);
    return status;
}

/* The text that a run has, with the steps of another. */
static ls_status put_steps(ls_ctx *ctx, const ls_text *stored, const ls_text *ours, ls_text *out) {
    const char *line, *end, *steps, *steps_end;
    ls_checkpoint_steps_line(stored->bytes, stored->length, &line, &end);
    ls_checkpoint_steps_line(ours->bytes, ours->length, &steps, &steps_end);
    ls_text_append(ctx, out, stored->bytes, (size_t)(line - stored->bytes));
    ls_text_append(ctx, out, steps, (size_t)(steps_end - steps));
    ls_text_append(ctx, out, end, (size_t)(stored->bytes + stored->length - end));
    return ls_text_status(out);
}

ls_status ls_run_folder_config(ls_ctx *ctx, const char *folder, const ls_run_settings *settings,
                               ls_text *out) {
    char path[PATH_BYTES];
    ls_text stored = {0}, today = {0};
    LS_TRY(ls_run_folder_print(ctx, settings, out));
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "config.yaml"));
    if (!ls_path_exists(path)) return LS_OK;
    ls_status status = ls_file_read(ctx, path, CONFIG_BYTES_MAX, &stored);
    if (status == LS_OK) status = print_today(ctx, path, &stored, &today);
    if (status == LS_OK && ls_checkpoint_rest_hash(today.bytes, today.length) ==
                               ls_checkpoint_rest_hash(out->bytes, out->length)) {
        ls_text ours = *out;
        *out = (ls_text){0};
        status = put_steps(ctx, &stored, &ours, out);
        ls_text_clear(ctx, &ours);
    }
    ls_text_clear(ctx, &today);
    ls_text_clear(ctx, &stored);
    if (status == LS_ENOMEM) return status;
    ctx->error = (ls_error){0}; /* what cannot be read is another run's: training will say so */
    return LS_OK;
}

/* Whether a folder holds a whole tokenizer, and this one. */
static ls_status look_at_tokenizer(ls_ctx *ctx, const char *path, const ls_tokenizer *tokenizer,
                                   bool *whole, bool *same) {
    ls_tokenizer *stored = NULL;
    *whole = *same = false;
    if (!ls_path_is_folder(path)) return LS_OK;
    ls_status status = ls_tokenizer_load(ctx, path, &stored);
    if (status == LS_ENOMEM) return status;
    *whole = status == LS_OK;
    *same = *whole && ls_tokenizer_hash(stored) == ls_tokenizer_hash(tokenizer);
    ls_tokenizer_free(ctx, stored);
    ctx->error = (ls_error){0}; /* what is damaged is written again */
    return LS_OK;
}

/* Written beside its place and renamed: the folder is there whole or not at all. */
static ls_status replace_tokenizer(ls_ctx *ctx, const char *path, const ls_tokenizer *tokenizer) {
    char unfinished[PATH_BYTES + 8];
    snprintf(unfinished, sizeof unfinished, "%s.tmp", path);
    LS_TRY(ls_folder_remove(ctx, unfinished));
    ls_status status = ls_folder_make(ctx, unfinished);
    if (status == LS_OK) status = ls_tokenizer_save(ctx, tokenizer, unfinished);
    if (status == LS_OK) status = ls_folder_remove(ctx, path);
    if (status == LS_OK) status = ls_path_rename(ctx, unfinished, path);
    if (status != LS_OK) {
        ls_error first = ctx->error;
        ls_folder_remove(ctx, unfinished);
        ctx->error = first;
    }
    return status;
}

ls_status ls_run_folder_tokenizer(ls_ctx *ctx, const char *folder, const ls_tokenizer *tokenizer) {
    char path[PATH_BYTES];
    bool whole, same;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "tokenizer"));
    LS_TRY(look_at_tokenizer(ctx, path, tokenizer, &whole, &same));
    if (same) return LS_OK;
    if (whole && ls_run_folder_begun(ctx, folder))
        return LS_FAIL(ctx, LS_EUSE, "%s is not the tokenizer of the data", path);
    if (!whole && ls_path_exists(path)) ls_say(ctx, "%s is not whole: it is written again", path);
    return replace_tokenizer(ctx, path, tokenizer);
}

ls_status ls_run_folder_environment(ls_ctx *ctx, const char *folder) {
    char path[PATH_BYTES];
    ls_machine machine;
    ls_machine_describe(&machine);
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "env.json"));
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:I, s:s, s:s}", "longshot", LS_VERSION, "compiler",
        __VERSION__, "cpu", machine.name, "isa", ls_kernel_isa(ctx->isa), "threads", ctx->threads,
        "onednn", machine.onednn, "instructions", machine.instructions, "memory_bytes",
        (json_int_t)machine.memory_bytes, "system", machine.system, "release", machine.release);
    if (json == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for %s", path);
    ls_status status = ls_json_write(ctx, path, json);
    json_decref(json);
    return status;
}

bool ls_run_folder_begun(ls_ctx *ctx, const char *folder) {
    char checkpoints[PATH_BYTES], newest[PATH_BYTES];
    int64_t step;
    ls_status status = ls_path_join(ctx, checkpoints, sizeof checkpoints, folder, "checkpoints");
    if (status == LS_OK)
        status = ls_checkpoint_find(ctx, checkpoints, newest, sizeof newest, &step);
    if (status != LS_OK) ctx->error = (ls_error){0};
    return status == LS_OK || status == LS_EIO; /* what cannot be read now is there */
}
