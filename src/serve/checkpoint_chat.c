#include "serve/checkpoint_chat.h"

#include <string.h>

enum { MOST = 16 << 20 };

static ls_status read_if_there(ls_ctx *ctx, const char *folder, const char *name, ls_text *out) {
    char path[LS_TRAINED_PATH];
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, name));
    return ls_path_exists(path) ? ls_file_read(ctx, path, MOST, out) : LS_OK;
}

/* tokenizer_config.json has it as a text, or as a list of named ones. */
static const json_t *template_in(const json_t *config) {
    const json_t *found = json_object_get(config, "chat_template");
    if (!json_is_array(found)) return found;
    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *one = json_array_get(found, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name != NULL && strcmp(name, "default") == 0) return json_object_get(one, "template");
    }
    return NULL;
}

static ls_status from_folder(ls_ctx *ctx, const char *folder, ls_text *out) {
    ls_text config = {0};
    json_t *json = NULL;
    LS_TRY(read_if_there(ctx, folder, "chat_template.jinja", out));
    if (out->length > 0) return LS_OK;
    ls_status status = read_if_there(ctx, folder, "tokenizer_config.json", &config);
    if (status == LS_OK && config.length > 0)
        status = ls_json_parse(ctx, config.bytes, config.length, "tokenizer_config.json", &json);
    const json_t *found = template_in(json);
    if (json_is_string(found))
        ls_text_append(ctx, out, json_string_value(found), json_string_length(found));
    json_decref(json);
    ls_text_clear(ctx, &config);
    return status;
}

static ls_status from_gguf(ls_ctx *ctx, const char *path, ls_text *out) {
    ls_gguf file;
    ls_gguf_text text;
    LS_TRY(ls_gguf_open(ctx, path, &file));
    const ls_gguf_key *key = ls_gguf_find(&file, "tokenizer.chat_template");
    if (key != NULL && ls_gguf_string(key, &text)) ls_text_append(ctx, out, text.at, text.length);
    ls_gguf_close(ctx, &file);
    return ls_text_status(out);
}

/* The bytes of a special token, "" where there is none. */
static ls_status special_text(ls_ctx *ctx, const ls_tokenizer *tokenizer, int32_t id,
                              ls_text *out) {
    ls_text_append(ctx, out, "", 0);
    return id < 0 ? ls_text_status(out) : ls_tokenizer_decode(ctx, tokenizer, &id, 1, out);
}

ls_status ls_checkpoint_chat_open(ls_ctx *ctx, const ls_trained *trained, ls_checkpoint_chat *out) {
    *out = (ls_checkpoint_chat){0};
    LS_TRY(ls_gguf_is_file(trained->folder) ? from_gguf(ctx, trained->folder, &out->source)
                                            : from_folder(ctx, trained->folder, &out->source));
    if (out->source.length == 0) {
        snprintf(out->missing, sizeof out->missing,
                 "this model has no chat template: use /v1/completions");
        return LS_OK;
    }
    const ls_special_ids special = ls_tokenizer_special(trained->tokenizer);
    ls_text bos = {0}, eos = {0};
    ls_status status = special_text(ctx, trained->tokenizer, special.bos, &bos);
    if (status == LS_OK) status = special_text(ctx, trained->tokenizer, special.eos, &eos);
    if (status == LS_OK)
        status = ls_template_new(ctx, out->source.bytes, out->source.length,
                                 bos.bytes == NULL ? "" : bos.bytes,
                                 eos.bytes == NULL ? "" : eos.bytes, &out->chat);
    ls_text_clear(ctx, &bos);
    ls_text_clear(ctx, &eos);
    if (status != LS_EINPUT) return status;
    snprintf(out->missing, sizeof out->missing, "%.460s: use /v1/completions", ctx->error.message);
    ctx->error = (ls_error){0};
    return LS_OK;
}

void ls_checkpoint_chat_clear(ls_ctx *ctx, ls_checkpoint_chat *chat) {
    ls_template_free(ctx, chat->chat);
    ls_text_clear(ctx, &chat->source);
}
