/* Writes the seeds of the data formats' fuzz targets into a folder: make_seeds tests/fuzz/seeds */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "../state_fixture.h"
#include "data/token_file.h"
#include "stream_fixture.h"

static const char text[] =
    "It's the whole thing: the cat, the hat, 1905.\r\n  na\xc3\xafve --------\n";

static void need(ls_ctx *ctx, ls_status status) {
    if (status == LS_OK) return;
    fprintf(stderr, "%s\n", ctx->error.message);
    exit(ls_status_exit_code(status));
}

static void put_seed(ls_ctx *ctx, const char *root, const char *target, const char *name,
                     uint8_t choice, bool chosen, const void *bytes, size_t length) {
    ls_text seed = {0};
    char folder[1000], path[1100];
    snprintf(folder, sizeof folder, "%s/%s", root, target);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (chosen) ls_text_append(ctx, &seed, &choice, 1);
    ls_text_append(ctx, &seed, bytes, length);
    need(ctx, ls_folder_make(ctx, folder));
    need(ctx, ls_file_write(ctx, path, seed.bytes, seed.length));
    ls_text_clear(ctx, &seed);
}

static void tokenizer_seeds(ls_ctx *ctx, const char *root) {
    static const char merges[] =
        "#version: 0.2\na b\nt h\nth e\na a\nab c\n\0abc the aaaaaaaa \xff";
    ls_bpe_trainer *trainer;
    ls_tokenizer *tokenizer;
    ls_text vocab = {0};
    char path[1100];
    need(ctx, ls_bpe_trainer_new(ctx, &trainer));
    need(ctx, ls_bpe_trainer_add(ctx, trainer, text, sizeof text - 1));
    need(ctx, ls_bpe_trainer_finish(ctx, trainer, 270, &tokenizer));
    need(ctx, ls_tokenizer_save(ctx, tokenizer, root));
    snprintf(path, sizeof path, "%s/vocab.json", root);
    need(ctx, ls_file_read(ctx, path, 1 << 20, &vocab));
    remove(path);
    snprintf(path, sizeof path, "%s/merges.txt", root);
    ls_text_append(ctx, &vocab, "", 1);
    need(ctx, ls_file_read(ctx, path, 1 << 20, &vocab));
    remove(path);
    ls_text_append(ctx, &vocab, "", 1);
    ls_text_append(ctx, &vocab, text, sizeof text - 1);
    put_seed(ctx, root, "fuzz_tokenizer", "trained", 0, true, vocab.bytes, vocab.length);
    put_seed(ctx, root, "fuzz_tokenizer", "merges", 1, true, merges, sizeof merges - 1);
    ls_text_clear(ctx, &vocab);
    ls_tokenizer_free(ctx, tokenizer);
    ls_bpe_trainer_free(ctx, trainer);
}

static void corpus_seeds(ls_ctx *ctx, const char *root) {
    static const char lines[] =
        "{\"text\": \"one\\u0000\"}\n\n{\"text\": \"two\", \"n\": [1, 2.5]}\r\n";
    char packed[1000];
    size_t length = ZSTD_compress(packed, sizeof packed, lines, sizeof lines - 1, 3);
    put_seed(ctx, root, "fuzz_corpus", "text", 4, true, text, sizeof text - 1);
    put_seed(ctx, root, "fuzz_corpus", "lines", 5, true, lines, sizeof lines - 1);
    put_seed(ctx, root, "fuzz_corpus", "lines-zstd", 5, true, packed, length);
    put_seed(ctx, root, "fuzz_json", "line", 0, false, lines, 21);
    put_seed(ctx, root, "fuzz_json", "object", 0, false,
             "{\"int\": 1, \"real\": 1e-4, \"text\": \"x\"}", 37);
}

static void token_seeds(ls_ctx *ctx, const char *root) {
    static const int32_t ids[] = {1, 2, 3, 250, 9, 0, 255, 7};
    ls_tokenizer *tokenizer;
    ls_token_writer *writer;
    ls_text bytes = {0};
    char path[1100];
    snprintf(path, sizeof path, "%s/seed.tokens", root);
    need(ctx, ls_tokenizer_new_byte(ctx, &tokenizer));
    need(ctx, ls_token_writer_new(ctx, path, tokenizer, 1, &writer));
    need(ctx, ls_token_writer_add(ctx, writer, ids, 8, 8));
    need(ctx, ls_token_writer_add(ctx, writer, ids + 2, 1, 1));
    need(ctx, ls_token_writer_add(ctx, writer, ids, 5, 6));
    need(ctx, ls_token_writer_finish(ctx, writer));
    need(ctx, ls_file_read(ctx, path, 1 << 20, &bytes));
    remove(path);
    static const uint8_t choices[] = {0, 1 + (3 << 3), 3 + (2 << 3), 5 + (3 << 3), 7 + (1 << 3)};
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "small-%d", i);
        put_seed(ctx, root, "fuzz_token_file", name, choices[i], true, bytes.bytes, bytes.length);
    }
    ls_text_clear(ctx, &bytes);
    ls_token_writer_free(ctx, writer);
    ls_tokenizer_free(ctx, tokenizer);
}

static void stream_seeds(ls_ctx *ctx, const char *root) {
    static const char *const names[STREAM_KINDS] = {"attention", "rmt", "transformer_xl", "mamba"};
    static const int32_t tokens[7] = {3, 1, 4, 1, 5, 2, 6};
    double logits[STREAM_VOCABULARY];
    for (size_t kind = 0; kind < STREAM_KINDS; kind++) {
        ls_stream *stream = fuzz_stream(ctx, kind);
        ls_text saved = {0};
        need(ctx, ls_stream_logits(stream, tokens, 7, 7, logits));
        need(ctx, ls_stream_save(stream, &saved));
        put_seed(ctx, root, "fuzz_stream", names[kind], (uint8_t)kind, true, saved.bytes,
                 saved.length);
        ls_text_clear(ctx, &saved);
    }
}

/* A saved state of every mixer of the fixture, as it is and cut. */
static void state_seeds(ls_ctx *ctx, const char *root) {
    for (size_t i = 0; i < CASES; i++) {
        stream s;
        char name[32];
        stream_open(&s, i, i % 2 == 1 && i < 5);
        snprintf(name, sizeof name, "stream-%zu", i);
        put_seed(ctx, root, "fuzz_state", name, (uint8_t)i, true, s.saved.bytes, s.saved.length);
        stream_close(&s);
    }
}

int main(int count, char **arguments) {
    ls_ctx ctx = ls_ctx_default();
    if (count != 2) return 2;
    need(&ctx, ls_folder_make(&ctx, arguments[1]));
    tokenizer_seeds(&ctx, arguments[1]);
    corpus_seeds(&ctx, arguments[1]);
    token_seeds(&ctx, arguments[1]);
    stream_seeds(&ctx, arguments[1]);
    state_seeds(&ctx, arguments[1]);
    return 0;
}
