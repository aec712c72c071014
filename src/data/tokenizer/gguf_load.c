/* The tokenizer that a GGUF file holds. */
#include <string.h>

#include "data/tokenizer/kind.h"

typedef struct lists {
    ls_gguf_text *tokens, *merges;
    float *scores;
    int32_t *types;
    char *model, *pre, *architecture;
} lists;

static const ls_gguf_key *find(const ls_gguf *file, const char *name) {
    char full[96];
    snprintf(full, sizeof full, "tokenizer.ggml.%s", name);
    return ls_gguf_find(file, full);
}

/* A text of the file with a NUL behind it; NULL stays where there is none. */
static ls_status read_name(ls_ctx *ctx, const ls_gguf_key *key, char **out) {
    ls_gguf_text text;
    if (key == NULL) return LS_OK;
    if (!ls_gguf_string(key, &text) || memchr(text.at, '\0', text.length) != NULL)
        return LS_FAIL(ctx, LS_EINPUT, "the key %s must be a text", key->name);
    *out = ls_new(ctx, text.length + 1, 1);
    if (*out == NULL) return LS_ENOMEM;
    memcpy(*out, text.at, text.length);
    return LS_OK;
}

static ls_status read_texts(ls_ctx *ctx, const ls_gguf_key *key, ls_gguf_text **out,
                            size_t *count) {
    if (key == NULL) return LS_OK;
    if (key->kind != LS_GGUF_ARRAY || key->element != LS_GGUF_TEXT)
        return LS_FAIL(ctx, LS_EINPUT, "the key %s must be a list of texts", key->name);
    *out = ls_new(ctx, (size_t)key->count + 1, sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    ls_gguf_walk walk = ls_gguf_walk_of(key);
    while (ls_gguf_next(&walk)) ls_gguf_string(&walk.element, &(*out)[(*count)++]);
    return LS_OK;
}

/* Numbers, one for each token: as floats or as whole ones. */
static ls_status read_numbers(ls_ctx *ctx, const ls_gguf_key *key, size_t count, float **reals,
                              int32_t **whole) {
    if (key == NULL) return LS_OK;
    if (key->kind != LS_GGUF_ARRAY || key->count != count)
        return LS_FAIL(ctx, LS_EINPUT, "the key %s must have one number for each of %zu tokens",
                       key->name, count);
    if (reals != NULL)
        *reals = ls_new(ctx, count + 1, sizeof **reals);
    else
        *whole = ls_new(ctx, count + 1, sizeof **whole);
    if (reals != NULL ? *reals == NULL : *whole == NULL) return LS_ENOMEM;
    ls_gguf_walk walk = ls_gguf_walk_of(key);
    for (size_t i = 0; ls_gguf_next(&walk); i++) {
        double real = 0;
        int64_t number = 0;
        const bool fits = reals != NULL ? ls_gguf_real(&walk.element, &real)
                                        : ls_gguf_integer(&walk.element, &number) &&
                                              number >= INT32_MIN && number <= INT32_MAX;
        if (!fits)
            return LS_FAIL(ctx, LS_EINPUT, "the key %s must be a list of numbers", key->name);
        if (reals != NULL)
            (*reals)[i] = (float)real;
        else
            (*whole)[i] = (int32_t)number;
    }
    return LS_OK;
}

static ls_status read_ids(ls_ctx *ctx, const ls_gguf *file, ls_gguf_vocabulary *out) {
    const struct {
        const char *name;
        int64_t *id;
    } ids[] = {
        {"bos_token_id", &out->bos},     {"eos_token_id", &out->eos},
        {"unknown_token_id", &out->unk}, {"padding_token_id", &out->pad},
        {"cls_token_id", &out->cls},     {"seperator_token_id", &out->sep}, /* spelt so */
    };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        const ls_gguf_key *key = find(file, ids[i].name);
        if (key != NULL && (!ls_gguf_integer(key, ids[i].id) || *ids[i].id < -1))
            return LS_FAIL(ctx, LS_EINPUT, "the key %s must be the number of a token", key->name);
    }
    return LS_OK;
}

static ls_status read_flags(ls_ctx *ctx, const ls_gguf *file, ls_gguf_vocabulary *out) {
    const struct {
        const char *name;
        int *flag;
    } flags[] = {
        {"add_bos_token", &out->add_bos},
        {"add_eos_token", &out->add_eos},
        {"add_space_prefix", &out->add_space_prefix},
        {"remove_extra_whitespaces", &out->remove_extra_whitespaces},
    };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        const ls_gguf_key *key = find(file, flags[i].name);
        bool value;
        if (key == NULL) continue;
        if (!ls_gguf_boolean(key, &value))
            return LS_FAIL(ctx, LS_EINPUT, "the key %s must be true or false", key->name);
        *flags[i].flag = value;
    }
    return LS_OK;
}

static ls_status read_all(ls_ctx *ctx, const ls_gguf *file, lists *own, ls_gguf_vocabulary *out) {
    const ls_gguf_key *map = find(file, "precompiled_charsmap");
    LS_TRY(read_name(ctx, find(file, "model"), &own->model));
    LS_TRY(read_name(ctx, find(file, "pre"), &own->pre));
    LS_TRY(read_name(ctx, ls_gguf_find(file, "general.architecture"), &own->architecture));
    LS_TRY(read_texts(ctx, find(file, "tokens"), &own->tokens, &out->token_count));
    LS_TRY(read_texts(ctx, find(file, "merges"), &own->merges, &out->merge_count));
    LS_TRY(read_numbers(ctx, find(file, "scores"), out->token_count, &own->scores, NULL));
    LS_TRY(read_numbers(ctx, find(file, "token_type"), out->token_count, NULL, &own->types));
    LS_TRY(read_ids(ctx, file, out));
    LS_TRY(read_flags(ctx, file, out));
    if (map != NULL) {
        if (map->kind != LS_GGUF_ARRAY ||
            (map->element != LS_GGUF_U8 && map->element != LS_GGUF_I8))
            return LS_FAIL(ctx, LS_EINPUT, "the key %s must be a list of bytes", map->name);
        out->charsmap = map->value.at;
        out->charsmap_length = map->value.left;
    }
    out->model = own->model;
    out->pre = own->pre;
    out->architecture = own->architecture;
    out->tokens = own->tokens;
    out->merges = own->merges;
    out->scores = own->scores;
    out->types = own->types;
    return LS_OK;
}

static void clear(ls_ctx *ctx, lists *own) {
    ls_free(ctx, own->tokens);
    ls_free(ctx, own->merges);
    ls_free(ctx, own->scores);
    ls_free(ctx, own->types);
    ls_free(ctx, own->model);
    ls_free(ctx, own->pre);
    ls_free(ctx, own->architecture);
}

ls_status ls_tokenizer_new_in_gguf(ls_ctx *ctx, const ls_gguf *file, const char *what,
                                   ls_tokenizer **out) {
    ls_gguf_vocabulary vocabulary = ls_gguf_vocabulary_empty;
    lists own = {0};
    ls_status status = read_all(ctx, file, &own, &vocabulary);
    if (status == LS_OK) status = ls_tokenizer_new_gguf(ctx, &vocabulary, what, out);
    clear(ctx, &own);
    return status;
}

ls_status ls__tokenizer_load_gguf(ls_ctx *ctx, const char *path, ls_tokenizer **out) {
    ls_gguf file;
    LS_TRY(ls_gguf_open(ctx, path, &file));
    ls_status status = ls_tokenizer_new_in_gguf(ctx, &file, path, out);
    ls_gguf_close(ctx, &file);
    return status;
}

bool ls__tokenizer_is_in_gguf(const char *path) {
    ls_ctx silent = ls_ctx_default();
    ls_gguf file;
    if (ls_gguf_open(&silent, path, &file) != LS_OK) return false;
    const bool is = find(&file, "tokens") != NULL;
    ls_gguf_close(&silent, &file);
    return is;
}
