/* Which files a path means. */
#include <string.h>

#include "base/json.h"
#include "data/tokenizer/kind.h"

enum { PATH_BYTES = 4096, FILE_MAX = 100000000, CONFIG_MAX = 20000000 };

static ls_status load_pair(ls_ctx *ctx, const char *vocab_path, const char *merges_path,
                           ls_tokenizer **out) {
    ls_text vocab = {0}, merges = {0};
    ls_status status = ls_file_read(ctx, vocab_path, FILE_MAX, &vocab);
    if (status == LS_OK) status = ls_file_read(ctx, merges_path, FILE_MAX, &merges);
    if (status == LS_OK)
        status = ls_tokenizer_new_bpe(ctx, vocab.bytes, vocab.length, merges.bytes, merges.length,
                                      vocab_path, out);
    ls_text_clear(ctx, &vocab);
    ls_text_clear(ctx, &merges);
    return status;
}

typedef ls_status (*reader)(ls_ctx *ctx, const ls_text *file, const ls_text *config,
                            const char *what, ls_tokenizer **out);

/* tokenizer_config.json of the folder that a file is in, empty where there is none. */
static ls_status read_config(ls_ctx *ctx, const char *path, ls_text *out) {
    char config[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    int folder = slash == NULL ? 0 : (int)(slash - path + 1);
    if ((size_t)snprintf(config, sizeof config, "%.*stokenizer_config.json", folder, path) >=
        sizeof config)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", path);
    ls_text_append(ctx, out, "", 0);
    return ls_path_exists(config) ? ls_file_read(ctx, config, CONFIG_MAX, out)
                                  : ls_text_status(out);
}

static ls_status load_one(ls_ctx *ctx, const char *path, reader read, ls_tokenizer **out) {
    ls_text file = {0}, config = {0};
    ls_status status = ls_file_read(ctx, path, FILE_MAX, &file);
    if (status == LS_OK) status = read_config(ctx, path, &config);
    if (status == LS_OK) status = read(ctx, &file, &config, path, out);
    ls_text_clear(ctx, &file);
    ls_text_clear(ctx, &config);
    return status;
}

/* Files of a tokenizer, in the order in which they are looked for. */
static const struct {
    const char *name, *second;
    reader read;
} known[] = {
    {"tokenizer.json", NULL, ls__tokenizer_new_json},
    {"tokenizer.model", NULL, ls__tokenizer_new_sentencepiece},
    {"spiece.model", NULL, ls__tokenizer_new_sentencepiece},
    {"sentencepiece.bpe.model", NULL, ls__tokenizer_new_sentencepiece},
    {"vocab.json", "merges.txt", NULL},
    {"encoder.json", "vocab.bpe", NULL},
    {"vocab.txt", NULL, ls__tokenizer_new_vocab_txt},
};

bool ls_tokenizer_is_in(const char *folder) {
    char path[PATH_BYTES];
    if (ls_gguf_is_file(folder)) return ls__tokenizer_is_in_gguf(folder);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const int length = snprintf(path, sizeof path, "%s/%s", folder, known[i].name);
        if (length > 0 && (size_t)length < sizeof path && ls_path_exists(path)) return true;
    }
    return false;
}

static ls_status load_folder(ls_ctx *ctx, const char *folder, bool inner, ls_tokenizer **out) {
    char path[PATH_BYTES], second[PATH_BYTES];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        LS_TRY(ls_path_join(ctx, path, sizeof path, folder, known[i].name));
        if (!ls_path_exists(path)) continue;
        if (known[i].second == NULL) return load_one(ctx, path, known[i].read, out);
        LS_TRY(ls_path_join(ctx, second, sizeof second, folder, known[i].second));
        return load_pair(ctx, path, second, out);
    }
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, LS_BYTE_FILE));
    if (ls_path_exists(path)) return ls_tokenizer_new_byte(ctx, out);
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "tokenizer"));
    if (!inner && ls_path_is_folder(path)) return load_folder(ctx, path, true, out);
    return LS_FAIL(ctx, LS_EINPUT,
                   "%s holds no tokenizer: neither tokenizer.json, tokenizer.model, spiece.model, "
                   "vocab.json + merges.txt, encoder.json + vocab.bpe nor vocab.txt",
                   folder);
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

ls_status ls_tokenizer_load(ls_ctx *ctx, const char *source, ls_tokenizer **out) {
    char first[PATH_BYTES];
    *out = NULL;
    if (strcmp(source, "byte") == 0) return ls_tokenizer_new_byte(ctx, out);
    if (ls_path_is_folder(source)) return load_folder(ctx, source, false, out);
    const char *comma = strchr(source, ',');
    if (comma == NULL || ls_path_exists(source)) {
        if (ends_with(source, ".json")) return load_one(ctx, source, ls__tokenizer_new_json, out);
        if (ends_with(source, ".model"))
            return load_one(ctx, source, ls__tokenizer_new_sentencepiece, out);
        if (ends_with(source, ".txt"))
            return load_one(ctx, source, ls__tokenizer_new_vocab_txt, out);
        if (ends_with(source, ".gguf")) return ls__tokenizer_load_gguf(ctx, source, out);
        return LS_FAIL(ctx, LS_EINPUT,
                       "the tokenizer %s is neither `byte`, a folder, a .json, .model, .txt or "
                       ".gguf file, nor VOCAB.json,MERGES.txt",
                       source);
    }
    if ((size_t)(comma - source) >= sizeof first)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", source);
    memcpy(first, source, (size_t)(comma - source));
    first[comma - source] = '\0';
    return load_pair(ctx, first, comma + 1, out);
}
