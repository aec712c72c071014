/* The tokenizer's keys of a GGUF file: each of the wrong kind, length or value is refused by
 * name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/gguf.h"
#include "data/tokenizer.h"
#include "failing_allocator.h"

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, LIST, U64, I64, F64 };

typedef struct file {
    uint8_t bytes[8192];
    size_t length;
    uint64_t keys;
    const char *without; /* a key that is left out, because a test writes it itself */
} file;

static void put(file *f, uint64_t value, size_t bytes) {
    memcpy(f->bytes + f->length, &value, bytes);
    f->length += bytes;
}

static void put_text(file *f, const char *text) {
    put(f, strlen(text), 8);
    memcpy(f->bytes + f->length, text, strlen(text));
    f->length += strlen(text);
}

static bool put_key(file *f, const char *name, uint32_t kind) {
    if (f->without != NULL && strcmp(f->without, name) == 0) return false;
    f->keys++;
    put_text(f, name);
    put(f, kind, 4);
    return true;
}

static void put_list(file *f, uint32_t kind, uint64_t count) {
    put(f, kind, 4);
    put(f, count, 8);
}

#define KEY(name) "tokenizer.ggml." name
static const char *const tokens[] = {"<unk>", "<s>", "</s>", "a", "b", "ab"};
enum { TOKENS = sizeof tokens / sizeof tokens[0] };

/* A byte-level vocabulary without bytes but a and b: small, and complete enough to be made. */
static void sound(file *f, const char *without) {
    static const int32_t types[TOKENS] = {2, 3, 3, 1, 1, 1};
    *f = (file){.without = without};
    memcpy(f->bytes, "GGUF", 4);
    f->length = 4;
    put(f, 3, 4);
    put(f, 0, 8);
    put(f, 0, 8); /* keys, later */
    if (put_key(f, "general.architecture", TEXT)) put_text(f, "llama");
    if (put_key(f, KEY("model"), TEXT)) put_text(f, "gpt2");
    if (put_key(f, KEY("pre"), TEXT)) put_text(f, "gpt-2");
    if (put_key(f, KEY("tokens"), LIST)) {
        put_list(f, TEXT, TOKENS);
        for (int i = 0; i < TOKENS; i++) put_text(f, tokens[i]);
    }
    if (put_key(f, KEY("merges"), LIST)) {
        put_list(f, TEXT, 1);
        put_text(f, "a b");
    }
    if (put_key(f, KEY("scores"), LIST)) {
        put_list(f, F32, TOKENS);
        for (int i = 0; i < TOKENS; i++) put(f, 0, 4);
    }
    if (put_key(f, KEY("token_type"), LIST)) {
        put_list(f, I32, TOKENS);
        for (int i = 0; i < TOKENS; i++) put(f, (uint32_t)types[i], 4);
    }
    if (put_key(f, KEY("bos_token_id"), U32)) put(f, 1, 4);
    if (put_key(f, KEY("eos_token_id"), I64)) put(f, 2, 8);
    if (put_key(f, KEY("add_bos_token"), BOOL)) put(f, 1, 1);
    if (put_key(f, KEY("precompiled_charsmap"), LIST)) put_list(f, U8, 0);
}

static ls_status load(ls_ctx *ctx, void *user) {
    file *f = user;
    ls_gguf gguf;
    ls_tokenizer *tokenizer = NULL;
    ls_ids ids = {0};
    memcpy(f->bytes + 16, &f->keys, 8);
    LS_TRY(ls_gguf_view(ctx, f->bytes, f->length, "g", &gguf));
    ls_status status = ls_tokenizer_new_in_gguf(ctx, &gguf, "g", &tokenizer);
    if (status == LS_OK) {
        LS_TRY_GOTO(ls_tokenizer_encode(ctx, tokenizer, "ab</s>", 6,
                                        LS_ENCODE_SPECIAL | LS_ENCODE_TEMPLATE, &ids));
        assert_int_equal(ids.count, 3);
        assert_int_equal(ids.at[0], 1);
        assert_int_equal(ids.at[1], 5);
        assert_int_equal(ids.at[2], 2);
    }
fail:
    ls_ids_clear(ctx, &ids);
    ls_tokenizer_free(ctx, tokenizer);
    ls_gguf_close(ctx, &gguf);
    return status;
}

static void test_sound(void **state) {
    (void)state;
    static file f;
    ls_ctx ctx = ls_ctx_default();
    sound(&f, NULL);
    if (load(&ctx, &f) != LS_OK) fail_msg("%s", ctx.error.message);
    fail_each_allocation(load, &f);
}

static void refused(file *f, const char *word) {
    ls_ctx ctx = ls_ctx_default();
    ls_status status = load(&ctx, f);
    if (status != LS_EINPUT || strstr(ctx.error.message, word) == NULL)
        fail_msg("%d, `%s` does not name %s", (int)status, ctx.error.message, word);
}

static void test_kinds(void **state) {
    (void)state;
    static file f;
    static const char *const names[] = {"general.architecture",
                                        KEY("model"),
                                        KEY("pre"),
                                        KEY("tokens"),
                                        KEY("merges"),
                                        KEY("scores"),
                                        KEY("token_type"),
                                        KEY("bos_token_id"),
                                        KEY("add_bos_token"),
                                        KEY("precompiled_charsmap")};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        sound(&f, names[i]); /* a number that is no number */
        assert_true(put_key((f.without = NULL, &f), names[i], F32));
        put(&f, 0x3fc00000, 4);
        refused(&f, names[i]);
        if (i < 3) { /* a text with a NUL */
            sound(&f, names[i]);
            put_key((f.without = NULL, &f), names[i], TEXT);
            put(&f, 3, 8);
            put(&f, 'a' | 'b' << 16, 3);
            refused(&f, names[i]);
            continue;
        }
        if (i >= 7 && i < 9) continue;
        sound(&f, names[i]); /* a list of something else */
        put_key((f.without = NULL, &f), names[i], LIST);
        put_list(&f, BOOL, TOKENS);
        for (int k = 0; k < TOKENS; k++) put(&f, 1, 1);
        refused(&f, names[i]);
    }
}

static void test_numbers(void **state) {
    (void)state;
    static file f;
    static const int64_t wide[] = {(int64_t)INT32_MAX + 1, (int64_t)INT32_MIN - 1, 0, 7};
    for (size_t i = 0; i < 4; i++) {
        sound(&f, KEY("token_type"));
        put_key((f.without = NULL, &f), KEY("token_type"), LIST);
        put_list(&f, I64, TOKENS);
        for (int k = 0; k < TOKENS; k++) put(&f, (uint64_t)wide[i], 8);
        refused(&f, i < 2 ? KEY("token_type") : "type");
    }
    static const uint64_t counts[] = {0, TOKENS - 1, TOKENS + 1};
    for (size_t i = 0; i < 3; i++) {
        sound(&f, KEY("scores"));
        put_key((f.without = NULL, &f), KEY("scores"), LIST);
        put_list(&f, F64, counts[i]);
        for (uint64_t k = 0; k < counts[i]; k++) put(&f, 0, 8);
        refused(&f, KEY("scores"));
    }
    static const int64_t ids[] = {-2, TOKENS, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < 4; i++) {
        sound(&f, KEY("eos_token_id"));
        put_key((f.without = NULL, &f), KEY("eos_token_id"), I64);
        put(&f, (uint64_t)ids[i], 8);
        refused(&f, "token");
    }
    sound(&f, KEY("tokens"));
    refused(&f, "tokens");
    sound(&f, KEY("model"));
    refused(&f, "no vocabulary");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
