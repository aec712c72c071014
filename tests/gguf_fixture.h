/* The tokenizer keys of a GGUF file, for tests. Include after cmocka.h. */
#ifndef LS_TESTS_GGUF_FIXTURE_H
#define LS_TESTS_GGUF_FIXTURE_H

#include <string.h>

#include "base/file.h"
#include "data/tokenizer.h"

typedef struct gguf_fixture {
    ls_whole whole;
    ls_gguf_vocabulary vocabulary;
    ls_gguf_text *tokens, *merges;
    float *scores;
    int32_t *types;
    char model[32], pre[32], architecture[32];
} gguf_fixture;

static inline ls_gguf_text gguf_string(ls_reader *r) {
    uint64_t length;
    const uint8_t *at;
    assert_true(ls_reader_u64(r, &length));
    assert_true(ls_reader_take(r, (size_t)length, &at));
    return (ls_gguf_text){(const char *)at, (size_t)length};
}

static inline int64_t gguf_number(ls_reader *r, uint32_t type) {
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    const uint8_t *at;
    int64_t value = 0;
    assert_true(type < 13 && sizes[type] > 0);
    assert_true(ls_reader_take(r, sizes[type], &at));
    memcpy(&value, at, sizes[type]);
    return type == 5 ? (int32_t)value : value;
}

static inline bool gguf_is(ls_gguf_text key, const char *name) {
    return key.length == strlen(name) && memcmp(key.at, name, key.length) == 0;
}

static inline void gguf_array(ls_ctx *ctx, gguf_fixture *f, ls_gguf_text key, ls_reader *r) {
    uint32_t type;
    uint64_t count;
    assert_true(ls_reader_u32(r, &type) && ls_reader_u64(r, &count));
    if (type != 8) {
        int32_t *numbers = ls_new(ctx, (size_t)count + 1, sizeof *numbers);
        assert_non_null(numbers);
        for (uint64_t i = 0; i < count; i++) numbers[i] = (int32_t)gguf_number(r, type);
        if (gguf_is(key, "tokenizer.ggml.token_type"))
            f->vocabulary.types = f->types = numbers;
        else if (gguf_is(key, "tokenizer.ggml.scores"))
            f->vocabulary.scores = f->scores = (float *)(void *)numbers;
        else
            ls_free(ctx, numbers);
        return;
    }
    ls_gguf_text *texts = ls_new(ctx, (size_t)count + 1, sizeof *texts);
    assert_non_null(texts);
    for (uint64_t i = 0; i < count; i++) texts[i] = gguf_string(r);
    if (gguf_is(key, "tokenizer.ggml.tokens")) {
        f->vocabulary.tokens = f->tokens = texts;
        f->vocabulary.token_count = (size_t)count;
    } else if (gguf_is(key, "tokenizer.ggml.merges")) {
        f->vocabulary.merges = f->merges = texts;
        f->vocabulary.merge_count = (size_t)count;
    } else {
        ls_free(ctx, texts);
    }
}

static inline void gguf_text_key(gguf_fixture *f, ls_gguf_text key, ls_gguf_text value) {
    char *into = gguf_is(key, "tokenizer.ggml.model")   ? f->model
                 : gguf_is(key, "tokenizer.ggml.pre")   ? f->pre
                 : gguf_is(key, "general.architecture") ? f->architecture
                                                        : NULL;
    if (into == NULL) return;
    assert_true(value.length < sizeof f->model);
    memcpy(into, value.at, value.length);
}

static inline void gguf_number_key(gguf_fixture *f, ls_gguf_text key, int64_t value) {
    ls_gguf_vocabulary *v = &f->vocabulary;
    if (gguf_is(key, "tokenizer.ggml.bos_token_id")) v->bos = value;
    if (gguf_is(key, "tokenizer.ggml.eos_token_id")) v->eos = value;
    if (gguf_is(key, "tokenizer.ggml.unknown_token_id")) v->unk = value;
    if (gguf_is(key, "tokenizer.ggml.padding_token_id")) v->pad = value;
    if (gguf_is(key, "tokenizer.ggml.add_bos_token")) v->add_bos = value != 0;
    if (gguf_is(key, "tokenizer.ggml.add_eos_token")) v->add_eos = value != 0;
    if (gguf_is(key, "tokenizer.ggml.add_space_prefix")) v->add_space_prefix = value != 0;
}

static inline void gguf_fixture_open(ls_ctx *ctx, const char *path, gguf_fixture *f) {
    uint32_t version, type;
    uint64_t tensors, keys;
    const uint8_t *magic;
    *f = (gguf_fixture){.vocabulary = ls_gguf_vocabulary_empty};
    assert_int_equal(ls_whole_read(ctx, path, false, &f->whole), LS_OK);
    ls_reader r = {f->whole.bytes, f->whole.length};
    assert_true(ls_reader_take(&r, 4, &magic) && memcmp(magic, "GGUF", 4) == 0);
    assert_true(ls_reader_u32(&r, &version) && ls_reader_u64(&r, &tensors));
    assert_true(ls_reader_u64(&r, &keys));
    for (uint64_t i = 0; i < keys; i++) {
        ls_gguf_text key = gguf_string(&r);
        assert_true(ls_reader_u32(&r, &type));
        if (type == 9)
            gguf_array(ctx, f, key, &r);
        else if (type == 8)
            gguf_text_key(f, key, gguf_string(&r));
        else
            gguf_number_key(f, key, gguf_number(&r, type));
    }
    f->vocabulary.model = f->model;
    f->vocabulary.architecture = f->architecture;
    f->vocabulary.pre = f->pre[0] == '\0' ? NULL : f->pre;
}

static inline void gguf_fixture_close(ls_ctx *ctx, gguf_fixture *f) {
    ls_free(ctx, f->tokens);
    ls_free(ctx, f->merges);
    ls_free(ctx, f->scores);
    ls_free(ctx, f->types);
    ls_whole_free(&f->whole);
}

#endif
