/* Paths that are nearly too long: checkpoints of other people, tokenizers, results, metrics. */
#include "reader_edges.h"

#include <stdlib.h>

#include "data/tokenizer.h"
#include "data/tokenizer/bpe.h"
#include "model/family.h"
#include "reader_paths.h"
#include "report/report.h"
#include "train/metrics.h"

/* ---- who reads folders ---- */

static ls_status open_family(ls_ctx *ctx, const char *path) {
    ls_family family;
    const ls_status status = ls_family_open(ctx, path, &family);
    ls_family_close(ctx, &family);
    return status;
}

static ls_status load_tokenizer(ls_ctx *ctx, const char *path) {
    ls_tokenizer *tokenizer;
    const ls_status status = ls_tokenizer_load(ctx, path, &tokenizer);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

static ls_tokenizer *learnt(ls_ctx *ctx) {
    static const char sample[] = "the whole of the whole and the rest of the whole";
    ls_tokenizer *tokenizer;
    ls_bpe_trainer *trainer;
    expect("a trainer", ls_bpe_trainer_new(ctx, &trainer), ctx, NULL);
    expect("a sample", ls_bpe_trainer_add(ctx, trainer, sample, sizeof sample - 1), ctx, NULL);
    expect("a tokenizer", ls_bpe_trainer_finish(ctx, trainer, 270, &tokenizer), ctx, NULL);
    ls_bpe_trainer_free(ctx, trainer);
    return tokenizer;
}

static ls_status save_learnt(ls_ctx *ctx, const char *path) {
    ls_tokenizer *tokenizer = learnt(ctx);
    const ls_status status = ls_tokenizer_save(ctx, tokenizer, path);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

static ls_status export_learnt(ls_ctx *ctx, const char *path) {
    ls_tokenizer *tokenizer = learnt(ctx);
    const ls_status status = ls_tokenizer_export(ctx, tokenizer, path);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

static ls_status save_bytes(ls_ctx *ctx, const char *path) {
    ls_tokenizer *tokenizer;
    ls_status status = ls_tokenizer_new_byte(ctx, &tokenizer);
    if (status == LS_OK) status = ls_tokenizer_save(ctx, tokenizer, path);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

static ls_status write_report(ls_ctx *ctx, const char *path) {
    return ls_report_write(ctx, path, NULL);
}

static ls_status write_metrics(ls_ctx *ctx, const char *path) {
    ls_metrics *metrics;
    const ls_status status = ls_metrics_open(ctx, path, 0, 1, false, &metrics);
    if (status == LS_OK) assert_int_equal(ls_metrics_close(ctx, metrics), LS_OK);
    return status;
}

static void copy(ls_ctx *ctx, const char *from, const char *to) {
    ls_text text = {0};
    expect(from, ls_file_read(ctx, from, 1 << 24, &text), ctx, NULL);
    expect(to, ls_file_write(ctx, in_folder(to), text.bytes, text.length), ctx, NULL);
    ls_text_clear(ctx, &text);
}

static void make(ls_ctx *ctx, const char *name) {
    expect(name, ls_folder_make(ctx, in_folder(name)), ctx, NULL);
}

#define CHECKPOINTS LS_TEST_SOURCE "/tests/golden/checkpoints/"
#define TOKENIZERS LS_TEST_SOURCE "/tests/golden/tokenizers/"

static void test_folders(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    sweep("a checkpoint", CHECKPOINTS "gpt2", open_family);
    sweep("a checkpoint in parts", CHECKPOINTS "llama-llama3-sharded", open_family);
    sweep("a GGUF file in a folder", CHECKPOINTS "gguf-llama", open_family);
    make(&ctx, "model");
    copy(&ctx, TOKENIZERS "t5/spiece.model", "model/spiece.model");
    sweep("spiece.model", in_folder("model"), load_tokenizer);
    make(&ctx, "json");
    copy(&ctx, TOKENIZERS "t5/tokenizer.json", "json/tokenizer.json");
    sweep("tokenizer.json", in_folder("json"), load_tokenizer);
    make(&ctx, "out/tokenizer");
    sweep("a tokenizer of bytes, saved", in_folder("out/tokenizer"), save_bytes);
    sweep("a tokenizer of bytes", in_folder("out/tokenizer"), load_tokenizer);
    sweep("a tokenizer within a folder", in_folder("out"), load_tokenizer);
    make(&ctx, "bpe");
    sweep("a tokenizer that was learnt, saved", in_folder("bpe"), save_learnt);
    sweep("a tokenizer that was learnt", in_folder("bpe"), load_tokenizer);
    sweep("a tokenizer that was learnt, exported", in_folder("bpe"), export_learnt);
}

static void test_results(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_text seed = {0};
    make(&ctx, "run");
    sweep("metrics", in_folder("run"), write_metrics);
    make(&ctx, "study");
    expect("seed",
           ls_file_read(&ctx, LS_TEST_SOURCE "/tests/fuzz/seeds/fuzz_report/study", 1 << 20, &seed),
           &ctx, NULL);
    expect("results",
           ls_file_write(&ctx, in_folder("study/results.json"), seed.bytes, strlen(seed.bytes)),
           &ctx, NULL);
    ls_text_clear(&ctx, &seed);
    sweep("a report", in_folder("study"), write_report);
}

/* A sentence that is cut is cut between characters, wherever they lie: answers in JSON have it. */
static void test_characters(void **state) {
    (void)state;
    enum { SIZES = 3, CHARACTER = 3, BEFORE = 7 };
    static const size_t sizes[SIZES] = {100, 300,
                                        3000}; /* whole, without a middle, without an end */
    static char path[BEFORE + 3000 * CHARACTER + 1];
    for (size_t i = 0; i < SIZES * BEFORE; i++) {
        ls_ctx ctx = ls_ctx_default();
        const size_t before = i % BEFORE, size = sizes[i / BEFORE];
        memset(path, 'a', before);
        for (size_t c = 0; c <= size; c++)
            strcpy(path + before + c * CHARACTER, c < size ? "\xe4\xb8\x96" : "");
        LS_FAIL(&ctx, LS_EINPUT, "%s is wrong", path);
        json_t *text = json_string(ctx.error.message);
        if (text == NULL) fail_msg("%zu letters, %zu characters: not UTF-8", before, size);
        if (i / BEFORE < 2) assert_non_null(strstr(ctx.error.message, "\x96 is wrong"));
        assert_int_equal(strstr(ctx.error.message, "\x96...\xe4") != NULL, i / BEFORE > 0);
        json_decref(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_characters),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
