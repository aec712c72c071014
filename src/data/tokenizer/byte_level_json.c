/* The kinds `byte` and `bpe` as a tokenizer.json, which the library `tokenizers` opens: pair
 * encoding over GPT-2's byte alphabet. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/unicode.h"

enum { PATH_BYTES = 4096 };

/* A token in the byte alphabet, or as it is. */
static void put_token(ls_ctx *ctx, const ls_tokenizer *tokenizer, bool plain, int32_t id,
                      ls_text *out) {
    const ls_bytes piece = ls__vocabulary_at(&tokenizer->pieces, id);
    for (size_t i = 0; i < piece.length; i++) {
        uint8_t letter[4] = {(uint8_t)piece.at[i]};
        const size_t used = plain ? 1 : ls__utf8_put(ls__byte_letter(letter[0]), letter);
        ls_text_append(ctx, out, letter, used);
    }
}

static json_t *vocabulary_of(ls_ctx *ctx, const ls_tokenizer *tokenizer, const bool *plain) {
    json_t *all = json_object();
    ls_text token = {0};
    bool fine = all != NULL;
    for (int32_t id = 0; fine && id < tokenizer->vocabulary; id++) {
        token.length = 0;
        put_token(ctx, tokenizer, plain != NULL && plain[id], id, &token);
        fine = !token.failed && json_object_set_new(all, token.bytes, json_integer(id)) == 0;
    }
    ls_text_clear(ctx, &token);
    if (fine) return all;
    json_decref(all);
    return NULL;
}

static json_t *merges_of(ls_ctx *ctx, const ls_bpe *bpe) {
    json_t *all = json_array();
    ls_text pair = {0};
    bool fine = all != NULL;
    for (int32_t rank = 0; fine && bpe != NULL && rank < bpe->merges.count; rank++) {
        const ls_merge *merge = &bpe->merges.list[rank];
        pair.length = 0;
        put_token(ctx, &bpe->base, bpe->plain[merge->left], merge->left, &pair);
        ls_text_append(ctx, &pair, " ", 1);
        put_token(ctx, &bpe->base, bpe->plain[merge->right], merge->right, &pair);
        fine = !pair.failed && json_array_append_new(all, json_string(pair.bytes)) == 0;
    }
    ls_text_clear(ctx, &pair);
    if (fine) return all;
    json_decref(all);
    return NULL;
}

static json_t *added_of(const ls_tokenizer *tokenizer) {
    if (tokenizer->special.eos < 0) return json_array();
    return json_pack("[{s:i,s:s,s:b,s:b,s:b,s:b,s:b}]", "id", (int)tokenizer->special.eos,
                     "content", LS_BPE_END_TEXT, "single_word", 0, "lstrip", 0, "rstrip", 0,
                     "normalized", 0, "special", 1);
}

static json_t *byte_level(void) {
    return json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", 1);
}

static ls_status write_config(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder) {
    char path[PATH_BYTES];
    json_t *config = json_pack("{s:s,s:b,s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                               "clean_up_tokenization_spaces", 0, "add_prefix_space", 0);
    ls_status status = config == NULL
                           ? LS_FAIL(ctx, LS_ENOMEM, "no memory for a tokenizer")
                           : ls_path_join(ctx, path, sizeof path, folder, "tokenizer_config.json");
    if (tokenizer->special.eos >= 0)
        json_object_set_new(config, "eos_token", json_string(LS_BPE_END_TEXT));
    if (status == LS_OK) status = ls_json_write(ctx, path, config);
    json_decref(config);
    return status;
}

static ls_status make_json(ls_ctx *ctx, const ls_tokenizer *tokenizer, const ls_bpe *bpe,
                           ls_text *out) {
    json_t *model = json_pack("{s:s,s:n,s:n,s:s,s:s,s:b,s:b,s:b,s:o,s:o}", "type", "BPE", "dropout",
                              "unk_token", "continuing_subword_prefix", "", "end_of_word_suffix",
                              "", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0, "vocab",
                              vocabulary_of(ctx, tokenizer, bpe == NULL ? NULL : bpe->plain),
                              "merges", merges_of(ctx, bpe));
    json_t *json =
        json_pack("{s:s,s:n,s:n,s:o,s:n,s:o,s:n,s:o,s:o}", "version", "1.0", "truncation",
                  "padding", "added_tokens", added_of(tokenizer), "normalizer", "pre_tokenizer",
                  byte_level(), "post_processor", "decoder", byte_level(), "model", model);
    char *text = ls_json_dump(json, JSON_INDENT(1));
    json_decref(json);
    if (text == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for a tokenizer");
    ls_text_printf(ctx, out, "%s\n", text);
    free(text);
    return ls_text_status(out);
}

ls_status ls_tokenizer_json(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_text *out) {
    const ls_kept_file *kept = &tokenizer->files[0];
    if (tokenizer->kind == &ls__bpe_kind)
        return make_json(ctx, tokenizer, (const ls_bpe *)tokenizer, out);
    if (kept->name == NULL) return make_json(ctx, tokenizer, NULL, out);
    if (strcmp(kept->name, "tokenizer.json") != 0)
        return LS_FAIL(ctx, LS_EUSE, "a tokenizer of kind %s cannot be written as tokenizer.json",
                       tokenizer->kind->name);
    ls_text_append(ctx, out, kept->text.bytes, kept->text.length);
    return ls_text_status(out);
}

ls_status ls_tokenizer_export(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder) {
    char path[PATH_BYTES];
    ls_text text = {0};
    if (tokenizer->kind != &ls__bpe_kind && tokenizer->files[0].name != NULL)
        return ls_tokenizer_save(ctx, tokenizer, folder);
    ls_status status = ls_path_join(ctx, path, sizeof path, folder, "tokenizer.json");
    if (status == LS_OK) status = ls_tokenizer_json(ctx, tokenizer, &text);
    if (status == LS_OK) status = ls_file_write(ctx, path, text.bytes, text.length);
    ls_text_clear(ctx, &text);
    return status == LS_OK ? write_config(ctx, tokenizer, folder) : status;
}
