/* A trained model as a GGUF file: keys, tokenizer, tensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/temporary.h"
#include "model/family_write.h"
#include "model/gguf_write.h"
#include "train/export.h"

/* ---- the tokenizer ---- */

enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_UNUSED = 5 };

/* Byte-level pairs over GPT-2's words are what is written; others have no name in GGUF here. */
static bool is_gpt2(const json_t *tokenizer) {
    const json_t *model = json_object_get(tokenizer, "model");
    const json_t *words = json_object_get(tokenizer, "pre_tokenizer");
    const char *kind = json_string_value(json_object_get(model, "type"));
    const char *cut = json_string_value(json_object_get(words, "type"));
    return kind != NULL && strcmp(kind, "BPE") == 0 && cut != NULL &&
           strcmp(cut, "ByteLevel") == 0 &&
           !json_is_true(json_object_get(words, "add_prefix_space")) &&
           !json_is_false(json_object_get(words, "use_regex")) &&
           json_is_null(json_object_get(tokenizer, "normalizer"));
}

/* What stands in the file for each id; filler for those that mean nothing. */
typedef struct tokens {
    ls_gguf_text *text;
    int32_t *kind;
    char (*filler)[24];
    size_t count;
} tokens;

static void place(tokens *all, const char *text, const json_t *id, int32_t kind) {
    const json_int_t at = json_is_integer(id) ? json_integer_value(id) : -1;
    if (at < 0 || (size_t)at >= all->count) return;
    all->text[at] = (ls_gguf_text){text, strlen(text)};
    all->kind[at] = kind;
}

static void fill_tokens(const json_t *tokenizer, tokens *all) {
    const json_t *vocabulary = json_object_get(json_object_get(tokenizer, "model"), "vocab");
    const json_t *added = json_object_get(tokenizer, "added_tokens");
    const char *text;
    json_t *id;
    for (size_t i = 0; i < all->count; i++) {
        snprintf(all->filler[i], sizeof all->filler[i], "[PAD%zu]", i);
        all->text[i] = (ls_gguf_text){all->filler[i], strlen(all->filler[i])};
        all->kind[i] = TOKEN_UNUSED;
    }
    json_object_foreach((json_t *)vocabulary, text, id) place(all, text, id, TOKEN_NORMAL);
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *one = json_array_get(added, i);
        text = json_string_value(json_object_get(one, "content"));
        if (text != NULL) place(all, text, json_object_get(one, "id"), TOKEN_CONTROL);
    }
}

/* Merges are texts "a b", or in newer files pairs of texts. */
static ls_status put_merges(ls_ctx *ctx, ls_gguf_writer *writer, const json_t *list) {
    const size_t count = json_array_size(list);
    ls_gguf_text *texts = ls_new(ctx, count + 1, sizeof *texts);
    ls_text joined = {0};
    ls_status status = texts == NULL ? LS_ENOMEM : LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        const json_t *merge = json_array_get(list, i);
        const char *left = json_string_value(json_array_get(merge, 0)),
                   *right = json_string_value(json_array_get(merge, 1));
        const size_t begin = joined.length;
        if (json_is_string(merge))
            ls_text_printf(ctx, &joined, "%s", json_string_value(merge));
        else
            ls_text_printf(ctx, &joined, "%s %s", left == NULL ? "" : left,
                           right == NULL ? "" : right);
        texts[i].length = joined.length - begin;
    }
    if (status == LS_OK && joined.failed) status = LS_ENOMEM;
    for (size_t i = 0, at = 0; status == LS_OK && i < count; at += texts[i++].length)
        texts[i].at = joined.bytes + at;
    if (status == LS_OK) ls_gguf_put_texts(writer, "tokenizer.ggml.merges", texts, count);
    ls_text_clear(ctx, &joined);
    ls_free(ctx, texts);
    return status;
}

static ls_status put_tokens(const ls_trained *trained, const json_t *tokenizer,
                            ls_gguf_writer *writer) {
    ls_ctx *ctx = trained->ctx;
    tokens all = {.count = (size_t)trained->config.model.vocabulary};
    all.text = ls_new(ctx, all.count, sizeof *all.text);
    all.kind = ls_new(ctx, all.count, sizeof *all.kind);
    all.filler = ls_new(ctx, all.count, sizeof *all.filler);
    ls_status status =
        all.text == NULL || all.kind == NULL || all.filler == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) {
        const ls_special_ids special = ls_tokenizer_special(trained->tokenizer);
        fill_tokens(tokenizer, &all);
        ls_gguf_put_text(writer, "tokenizer.ggml.model", "gpt2");
        ls_gguf_put_text(writer, "tokenizer.ggml.pre", "gpt-2");
        ls_gguf_put_texts(writer, "tokenizer.ggml.tokens", all.text, all.count);
        ls_gguf_put_i32s(writer, "tokenizer.ggml.token_type", all.kind, all.count);
        if (special.bos >= 0)
            ls_gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", (uint32_t)special.bos);
        /* without one, llama.cpp would end a text at a vertical tab: take the byte 0 */
        ls_gguf_put_u32(writer, "tokenizer.ggml.eos_token_id",
                        special.eos >= 0 ? (uint32_t)special.eos : 0);
        ls_gguf_put_bool(writer, "tokenizer.ggml.add_bos_token", false);
        status =
            put_merges(ctx, writer, json_object_get(json_object_get(tokenizer, "model"), "merges"));
    }
    ls_free(ctx, all.text);
    ls_free(ctx, all.kind);
    ls_free(ctx, all.filler);
    return status;
}

/* What came in such a file goes on as it was, of whatever kind it is. */
static void put_as_it_was(const ls_gguf *from, ls_gguf_writer *writer) {
    static const char section[] = "tokenizer.";
    for (size_t i = 0; i < from->key_count; i++)
        if (strncmp(from->keys[i].name, section, strlen(section)) == 0)
            ls_gguf_put_key(writer, &from->keys[i]);
}

static ls_status put_tokenizer(const ls_trained *trained, ls_gguf_writer *writer) {
    ls_ctx *ctx = trained->ctx;
    if (trained->family.ggufs > 0) {
        put_as_it_was(&trained->family.gguf[0], writer);
        return LS_OK;
    }
    ls_text text = {0};
    json_t *json = NULL;
    ls_status status = ls_tokenizer_json(ctx, trained->tokenizer, &text);
    if (status == LS_OK)
        status = ls_json_parse(ctx, text.bytes, text.length, "the tokenizer", &json);
    if (status == LS_OK && !is_gpt2(json))
        status = LS_FAIL(ctx, LS_EUSE,
                         "the tokenizer is none of byte-level pairs over GPT-2's words, which "
                         "alone are written into a GGUF file (tokenizer=false leaves it out)");
    if (status == LS_OK) status = put_tokens(trained, json, writer);
    json_decref(json);
    ls_text_clear(ctx, &text);
    return status;
}

/* ---- tensors ---- */

/* What llama.cpp wants in f32 whatever the others are. */
static uint32_t type_of(const ls_family_tensor *tensor, const ls_export_settings *settings) {
    static const uint32_t types[] = {LS_GGML_F32, LS_GGML_BF16, LS_GGML_F16, LS_GGML_Q8_0};
    const uint32_t wanted = types[settings->dtype];
    const int rank = tensor->shape.rank;
    if (rank != 2 || strstr(tensor->name, "ssm_conv1d") != NULL ||
        strstr(tensor->name, "ssm_a") != NULL || strstr(tensor->name, "ssm_d") != NULL ||
        strstr(tensor->name, "position_embd") != NULL)
        return LS_GGML_F32;
    if (!ls_gguf_writes(wanted, tensor->shape.dim[rank - 1])) return LS_GGML_F32;
    return wanted;
}

/* Mamba-2 has one number for each head in two of them, which stand there as rows, and a row of its
 * norm for each group. */
static void declare(ls_gguf_writer *writer, const ls_family_type *type, const json_t *config,
                    const ls_family_tensor *tensor, const ls_export_settings *settings) {
    const size_t length = strlen(tensor->name);
    const char *end = tensor->name + (length > 5 ? length - 5 : 0);
    const int64_t groups = json_integer_value(json_object_get(config, "n_groups"));
    int64_t dim[LS_SAFETENSORS_RANK_MAX + 1];
    int rank = tensor->shape.rank;
    memcpy(dim, tensor->shape.dim, (size_t)rank * sizeof *dim);
    if (strcmp(type->name, "mamba2") == 0 && rank == 1 &&
        (strcmp(end, "ssm_a") == 0 || strcmp(end, "ssm_d") == 0))
        dim[rank++] = 1;
    if (groups > 0 && rank == 1 && strstr(tensor->name, "ssm_norm.weight") != NULL) {
        dim[rank++] = dim[0] / groups;
        dim[0] = groups;
    }
    ls_gguf_declare(writer, tensor->name, type_of(tensor, settings), rank, dim);
}

static ls_status append(ls_ctx *ctx, ls_gguf_writer *writer, const ls_public_scope *scope,
                        const ls_family_tensor *tensor) {
    const size_t count = (size_t)tensor->shape.count;
    double *values = ls_new_raw(ctx, count, sizeof *values);
    float *narrow = ls_new_raw(ctx, count, sizeof *narrow);
    ls_status status = values == NULL || narrow == NULL
                           ? LS_ENOMEM
                           : ls_public_values(ctx, scope, &tensor->shape, values);
    if (status == LS_OK) {
        ls_stored_round(values, tensor->shape.count, LS_STORED_F32, narrow);
        status = ls_gguf_append(writer, narrow, tensor->shape.count);
    }
    ls_free(ctx, values);
    ls_free(ctx, narrow);
    return status;
}

/* The embedding, where llama.cpp wants it a second time as the head. */
static const ls_family_tensor *head_of(const ls_family_type *type, const ls_trained *trained,
                                       const ls_family_tensor *tensors, size_t count) {
    for (size_t i = 0; type->gguf.head && trained->config.model.tied && i < count; i++)
        if (strcmp(tensors[i].name, "token_embd.weight") == 0) return &tensors[i];
    return NULL;
}

static ls_status put_tensors(const ls_trained *trained, const ls_export_settings *settings,
                             const ls_family_type *type, const json_t *config,
                             const ls_gguf_divisors *divisors, const ls_public_scope *scope,
                             ls_gguf_writer *writer) {
    ls_ctx *ctx = trained->ctx;
    const ls_family_layout layout = ls_family_gguf_layout(type, &trained->config);
    ls_family_tensor *tensors;
    size_t count;
    LS_TRY(ls_family_tensors(ctx, &layout, scope, &tensors, &count));
    ls_status status = LS_OK;
    const ls_family_tensor *embedding = head_of(type, trained, tensors, count);
    ls_family_tensor head;
    for (size_t i = 0; i < count; i++) declare(writer, type, config, &tensors[i], settings);
    if (embedding != NULL) {
        head = *embedding;
        snprintf(head.name, sizeof head.name, "output.weight");
        declare(writer, type, config, &head, settings);
    }
    if (divisors->count > 0)
        ls_gguf_declare(writer, "rope_freqs.weight", LS_GGML_F32, 1, &divisors->count);
    for (size_t i = 0; status == LS_OK && i < count; i++)
        status = append(ctx, writer, scope, &tensors[i]);
    if (status == LS_OK && embedding != NULL) status = append(ctx, writer, scope, embedding);
    if (status == LS_OK && divisors->count > 0)
        status = ls_gguf_append(writer, divisors->at, divisors->count);
    ls_free(ctx, tensors);
    return status;
}

static ls_status write_tensors(const ls_trained *trained, const ls_export_settings *settings,
                               const ls_family_type *type, const json_t *config,
                               const ls_gguf_divisors *divisors, ls_gguf_writer *writer) {
    ls_ctx *ctx = trained->ctx;
    const ls_parameters *store = trained->model->store;
    ls_parameters here = *store;
    ls_naming naming;
    LS_TRY(ls_family_gguf_naming(ctx, type, &naming));
    ls_mixer *mixers = ls_public_mixers(ctx, &trained->config);
    const ls_public_scope scope = {&here, &naming, &trained->config, mixers};
    here.master = NULL;
    ls_status status =
        mixers == NULL ? LS_ENOMEM : ls_parameters_fetch(store, store->master, &here.master);
    if (status == LS_OK)
        status = put_tensors(trained, settings, type, config, divisors, &scope, writer);
    ls_parameters_release(store, store->master, here.master, false);
    ls_free(ctx, mixers);
    ls_naming_clear(ctx, &naming);
    return status;
}

/* ---- the file ---- */

static ls_status write_file(const ls_trained *trained, const ls_export_settings *settings,
                            const ls_family_type *type, const json_t *config, const char *path) {
    static const uint32_t labels[] = {0, 32, 1, 7}; /* general.file_type */
    ls_gguf_writer *writer;
    ls_gguf_divisors divisors;
    LS_TRY(ls_gguf_writer_new(trained->ctx, path, &writer));
    ls_status status =
        ls_family_gguf_keys(trained->ctx, type, config, &trained->config, writer, &divisors);
    ls_gguf_put_u32(writer, "general.file_type", labels[settings->dtype]);
    if (status == LS_OK && trained->tokenizer != NULL && settings->tokenizer)
        status = put_tokenizer(trained, writer);
    else if (status == LS_OK)
        ls_gguf_put_text(writer, "tokenizer.ggml.model", "none");
    if (status == LS_OK) status = write_tensors(trained, settings, type, config, &divisors, writer);
    if (status == LS_OK) return ls_gguf_finish(writer);
    ls_gguf_abandon(writer);
    return status;
}

/* Written in a folder of its own beside its place, opened there, and only then given its name. */
ls_status ls__export_gguf(const ls_trained *trained, const ls_export_settings *settings,
                          const ls_family_type *type, const json_t *config, const char *path) {
    char folder[LS_TRAINED_PATH], file[LS_TRAINED_PATH];
    ls_ctx *ctx = trained->ctx;
    int lock;
    LS_TRY(ls_temporaries_sweep_beside(ctx, path));
    LS_TRY(ls_temporary_folder(ctx, path, folder, sizeof folder, &lock));
    ls_status status = ls_path_join(ctx, file, sizeof file, folder, "model.gguf");
    if (status == LS_OK) status = write_file(trained, settings, type, config, file);
    if (status == LS_OK) status = ls_family_gguf_check(ctx, file, &trained->config);
    if (status == LS_OK) status = ls_path_rename(ctx, file, path);
    const ls_error first = ctx->error;
    ls_folder_remove(ctx, folder); /* where it cannot be, the next export sweeps it away */
    ctx->error = first;
    close(lock);
    return status;
}
