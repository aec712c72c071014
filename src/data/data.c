#include "data/data.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/temporary.h"

enum { PATH_BYTES = 4096, LAYOUT = 1 }; /* LAYOUT: changes whenever the same text gives other ids */

#define FIELD(name) ls_data_settings, name
static const ls_option options[] = {
    LS_TEXT("corpus", FIELD(corpus), "default",
            "Text file, folder of text files, or JSONL file, each may be .zst; `default`: Perl's "
            "manual."),
    LS_CHOICE("format", FIELD(format), "auto", "auto|text|folder|jsonl",
              "Format of the corpus; auto: by its name."),
    LS_TEXT("text_key", FIELD(text_key), "text", "Key of the text in each line of JSONL.",
            .needs = "format=auto|jsonl"),
    LS_TEXT(
        "tokenizer", FIELD(tokenizer), "byte",
        "Tokenizer: `byte`, `train` (byte pairs learnt from the corpus), or a tokenizer's folder "
        "or file: docs/tokenizers.md."),
    LS_INT("vocabulary", FIELD(vocabulary), "8192", 257, 1 << 20,
           "Ids of the tokenizer that is learnt.", .needs = "tokenizer=train"),
    LS_REAL("test_share", FIELD(test_share), "0.1", 0, 0.5,
            "Share of the documents, long and short alike, that is kept for testing."),
    LS_CHOICE("loader", FIELD(loader), "shuffled", "shuffled|stream",
              "Windows in random order, or rows that walk through the text in order.",
              .needs = "training"),
    LS_BOOL("borders", FIELD(borders), "false",
            "Whether windows end where documents do, and carried state begins anew with each; "
            "false: documents follow each other.",
            .needs = "training"),
    LS_TEXT("mix", FIELD(mix), "",
            "Tasks whose samples stand among the windows of the corpus, with their shares: "
            "text_needle:0.2,text_pairs:0.2; task.NAME.KEY sets the options of one.",
            .needs = "training"),
};
const ls_option_table ls_data_options = LS_OPTIONS(options, ls_data_settings);

/* Files of one corpus and split: those of train and test are told apart by their names. */
static uint64_t corpus_key(const ls_corpus *corpus, const ls_data_settings *settings) {
    int64_t share = llround(settings->test_share * 1e9);
    int64_t parts[4] = {(int64_t)ls_corpus_key(corpus), settings->format, share, LAYOUT};
    return ls_hash(parts, sizeof parts);
}

static ls_status split_once(ls_ctx *ctx, ls_corpus *corpus, const ls_data_settings *settings,
                            bool *done) {
    if (*done) return LS_OK;
    ls_say(ctx, "reading the corpus %s", settings->corpus);
    LS_TRY(ls_corpus_split(ctx, corpus, settings->test_share));
    *done = true;
    return LS_OK;
}

static ls_status train_tokenizer(ls_ctx *ctx, ls_corpus *corpus, int64_t vocabulary,
                                 ls_tokenizer **out) {
    ls_bpe_trainer *trainer;
    ls_document document;
    LS_TRY(ls_bpe_trainer_new(ctx, &trainer));
    ls_status status;
    ls_corpus_rewind(ctx, corpus);
    for (;;) {
        LS_TRY_GOTO(ls_corpus_next(ctx, corpus, &document));
        if (document.text == NULL) break;
        if (!document.test)
            LS_TRY_GOTO(ls_bpe_trainer_add(ctx, trainer, document.text, document.length));
    }
    LS_TRY_GOTO(ls_bpe_trainer_finish(ctx, trainer, vocabulary, out));
fail:
    ls_bpe_trainer_free(ctx, trainer);
    return status;
}

/* Saves into a folder of its own and renames that, so that nobody finds half a tokenizer. */
static ls_status keep_tokenizer(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder) {
    char temporary[PATH_BYTES];
    int lock;
    LS_TRY(ls_temporary_folder(ctx, folder, temporary, sizeof temporary, &lock));
    ls_status status = ls_tokenizer_save(ctx, tokenizer, temporary);
    if (status == LS_OK && rename(temporary, folder) != 0 && errno != ENOTEMPTY && errno != EEXIST)
        status = LS_FAIL(ctx, LS_EIO, "renaming %s: %s", temporary, strerror(errno));
    ls_status removed =
        ls_folder_remove(ctx, temporary); /* left only where another run was first */
    close(lock);
    return status != LS_OK ? status : removed;
}

/* A cached thing that cannot be read is made again; want of memory and an end are passed on. */
static bool usable(ls_ctx *ctx, ls_status status) {
    if (status == LS_OK) return true;
    if (status == LS_ENOMEM || status == LS_ESTOP) return false;
    ls_say(ctx, "%s; making it again", ctx->error.message);
    ctx->error = (ls_error){0};
    return false;
}

static ls_status open_tokenizer(ls_ctx *ctx, ls_corpus *corpus, const ls_data_settings *settings,
                                const char *cache, bool *split, ls_dataset *data) {
    ls_tokenizer **out = &data->tokenizer;
    char *folder = data->tokenizer_path;
    const size_t room = sizeof data->tokenizer_path;
    snprintf(folder, room, "%s", settings->tokenizer);
    if (strcmp(settings->tokenizer, "train") != 0) return ls_tokenizer_load(ctx, folder, out);
    if ((size_t)snprintf(folder, room, "%s/bpe-%016" PRIx64 "-%" PRId64, cache,
                         corpus_key(corpus, settings), settings->vocabulary) >= room)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", cache);
    if (ls_path_exists(folder)) {
        ls_status status = ls_tokenizer_load(ctx, folder, out);
        if (usable(ctx, status)) return LS_OK;
        if (status == LS_ENOMEM || status == LS_ESTOP) return status;
        LS_TRY(ls_folder_remove(ctx, folder));
    }
    LS_TRY(split_once(ctx, corpus, settings, split));
    ls_say(ctx, "learning a tokenizer of %" PRId64 " ids", settings->vocabulary);
    LS_TRY(train_tokenizer(ctx, corpus, settings->vocabulary, out));
    return keep_tokenizer(ctx, *out, folder);
}

static ls_status open_side(ls_ctx *ctx, ls_corpus *corpus, const ls_data_settings *settings,
                           const ls_tokenizer *tokenizer, const char *cache, ls_token_side side,
                           bool *split, ls_token_file **out) {
    char path[PATH_BYTES];
    uint64_t parts[2] = {corpus_key(corpus, settings), ls_tokenizer_hash(tokenizer)};
    uint64_t key = ls_hash(parts, sizeof parts);
    const char *name = side == LS_SPLIT_TEST ? "test" : "train";
    if ((size_t)snprintf(path, sizeof path, "%s/%016" PRIx64 "-%s.tokens", cache, key, name) >=
        sizeof path)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", cache);
    if (ls_path_exists(path)) {
        ls_status status = ls_token_file_open(ctx, path, out);
        if (usable(ctx, status)) {
            if (ls_token_file_key(*out) == key) return LS_OK;
            ls_token_file_close(ctx, *out);
            *out = NULL;
        }
        if (status == LS_ENOMEM || status == LS_ESTOP) return status;
    }
    LS_TRY(split_once(ctx, corpus, settings, split));
    ls_say(ctx, "tokenising the %s documents", name);
    LS_TRY(ls_token_file_build(ctx, corpus, tokenizer, side, key, path));
    return ls_token_file_open(ctx, path, out);
}

/* The cache folder that is meant: the one given, else longshot in the user's. */
static ls_status find_cache(ls_ctx *ctx, const char *given, char *out) {
    const char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");
    int length;
    if (given[0] != '\0')
        length = snprintf(out, PATH_BYTES, "%s", given);
    else if (cache != NULL && cache[0] != '\0')
        length = snprintf(out, PATH_BYTES, "%s/longshot", cache);
    else if (home != NULL && home[0] != '\0')
        length = snprintf(out, PATH_BYTES, "%s/.cache/longshot", home);
    else
        return LS_FAIL(ctx, LS_EUSE, "neither HOME nor XDG_CACHE_HOME is set: give cache=");
    if (length < 0 || length >= PATH_BYTES)
        return LS_FAIL(ctx, LS_EUSE, "the path of the cache folder is too long");
    return LS_OK;
}

/* Temporary files and folders of a cache, as token files and tokenizers are named. */
static bool is_of_cache(const char *name) {
    return strstr(name, ".tokens.") != NULL || strncmp(name, "bpe-", 4) == 0;
}

ls_status ls_data_open(ls_ctx *ctx, const ls_data_settings *settings, const char *cache_folder,
                       ls_dataset *out) {
    char cache[PATH_BYTES];
    ls_corpus *corpus = NULL;
    bool split = false;
    ls_status status;
    *out = (ls_dataset){0};
    LS_TRY_GOTO(ls_corpus_open(ctx, settings->corpus, (ls_corpus_format)settings->format,
                               settings->text_key, &corpus));
    LS_TRY_GOTO(find_cache(ctx, cache_folder, cache));
    LS_TRY_GOTO(ls_folder_make(ctx, cache));
    LS_TRY_GOTO(ls_temporaries_sweep(ctx, cache, is_of_cache));
    LS_TRY_GOTO(open_tokenizer(ctx, corpus, settings, cache, &split, out));
    LS_TRY_GOTO(open_side(ctx, corpus, settings, out->tokenizer, cache, LS_SPLIT_TRAIN, &split,
                          &out->train));
    LS_TRY_GOTO(
        open_side(ctx, corpus, settings, out->tokenizer, cache, LS_SPLIT_TEST, &split, &out->test));
fail:
    ls_corpus_free(ctx, corpus);
    if (status != LS_OK) ls_data_close(ctx, out);
    return status;
}

void ls_data_close(ls_ctx *ctx, ls_dataset *data) {
    ls_tokenizer_free(ctx, data->tokenizer);
    ls_token_file_close(ctx, data->train);
    ls_token_file_close(ctx, data->test);
    *data = (ls_dataset){0};
}

uint64_t ls_data_hash(const ls_dataset *data) {
    const uint64_t parts[3] = {ls_tokenizer_hash(data->tokenizer), ls_token_file_hash(data->train),
                               ls_token_file_hash(data->test)};
    return ls_hash(parts, sizeof parts);
}

ls_status ls_data_loader(ls_ctx *ctx, const ls_dataset *data, const ls_data_settings *settings,
                         int64_t batch, int64_t length, uint64_t seed, ls_loader **out) {
    ls_loader_settings wanted = {.kind = (ls_loader_kind)settings->loader,
                                 .borders = settings->borders,
                                 .batch = batch,
                                 .length = length,
                                 .seed = seed};
    return ls_loader_new(ctx, data->train, wanted, out);
}
