/* Vocabularies that come as bare lists: GGUF's arrays and BERT's vocab.txt. They are written down
 * as the file that they stand for, a tokenizer.json or a SentencePiece model, and read as that; so
 * there is one implementation of each kind, and such a tokenizer can be saved. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/tokenizer/kind.h"
#include "data/tokenizer/unicode.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

const ls_gguf_vocabulary ls_gguf_vocabulary_empty = {.bos = -1,
                                                     .eos = -1,
                                                     .unk = -1,
                                                     .pad = -1,
                                                     .cls = -1,
                                                     .sep = -1,
                                                     .add_bos = -1,
                                                     .add_eos = -1,
                                                     .add_space_prefix = -1,
                                                     .remove_extra_whitespaces = -1};

static int32_t type_of(const ls_gguf_vocabulary *v, size_t i) {
    return v->types == NULL ? NORMAL : v->types[i];
}

/* [PADn] at place n only fills the list up to the rows of the embedding. */
static bool is_filler(const ls_gguf_vocabulary *v, size_t i) {
    char name[32];
    size_t length = (size_t)snprintf(name, sizeof name, "[PAD%zu]", i);
    return v->tokens[i].length == length && memcmp(v->tokens[i].at, name, length) == 0;
}

static ls_status check(ls_ctx *ctx, const ls_gguf_vocabulary *v, const char *what) {
    if (v->model == NULL || v->token_count == 0 || v->token_count > LS_VOCABULARY_MAX ||
        v->merge_count > LS_VOCABULARY_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s has no vocabulary of 1 to %d tokens", what,
                       LS_VOCABULARY_MAX);
    const int64_t ids[] = {v->bos, v->eos, v->unk, v->pad, v->cls, v->sep};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (ids[i] >= (int64_t)v->token_count)
            return LS_FAIL(ctx, LS_EINPUT, "%s: the special token %lld is not in the vocabulary",
                           what, (long long)ids[i]);
    for (size_t i = 0; i < v->token_count; i++) {
        const ls_gguf_text *token = &v->tokens[i];
        if (type_of(v, i) < NORMAL || type_of(v, i) > BYTE)
            return LS_FAIL(ctx, LS_EINPUT, "%s: token number %zu has the unknown type %ld", what, i,
                           (long)type_of(v, i));
        if (token->length > 0 && memchr(token->at, 0, token->length) != NULL)
            return LS_FAIL(ctx, LS_EINPUT, "%s: token number %zu has a NUL in it", what, i);
        if (ls__utf8_valid((const uint8_t *)token->at, token->length) != token->length)
            return LS_FAIL(ctx, LS_EINPUT, "%s: token number %zu is not UTF-8", what, i);
    }
    return LS_OK;
}

/* tokenizer_config.json: the special tokens by name; with `added` also the control tokens, which
 * a SentencePiece model alone would not recognise in a text. */
static ls_status write_config(ls_ctx *ctx, const ls_gguf_vocabulary *v, bool added, bool bos,
                              bool eos, ls_text *out) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    const int64_t ids[] = {v->bos, v->eos, v->unk, v->pad};
    json_t *config = json_pack("{s:b, s:b}", "add_bos_token", bos, "add_eos_token", eos);
    json_t *list = json_object();
    int failed = config == NULL || list == NULL;
    for (int i = 0; i < 4; i++)
        if (ids[i] >= 0)
            failed |= json_object_set_new(
                config, names[i], json_stringn(v->tokens[ids[i]].at, v->tokens[ids[i]].length));
    for (size_t i = 0; i < v->token_count && added; i++) {
        char key[24];
        if (type_of(v, i) != CONTROL || v->tokens[i].length == 0) continue;
        snprintf(key, sizeof key, "%zu", i);
        failed |= json_object_set_new(list, key,
                                      json_pack("{s:o, s:b}", "content",
                                                json_stringn(v->tokens[i].at, v->tokens[i].length),
                                                "special", 1));
    }
    if (added)
        failed |= json_object_set_new(config, "added_tokens_decoder", list);
    else
        json_decref(list);
    char *text = failed ? NULL : ls_json_dump(config, JSON_INDENT(1));
    json_decref(config);
    if (text == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for a tokenizer's configuration");
    ls_text_append(ctx, out, text, strlen(text));
    free(text);
    return ls_text_status(out);
}

static void put_varint(ls_ctx *ctx, uint64_t value, ls_text *out) {
    do {
        uint8_t byte = (uint8_t)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        ls_text_append(ctx, out, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_number(ls_ctx *ctx, unsigned field, uint64_t value, ls_text *out) {
    put_varint(ctx, field << 3, out);
    put_varint(ctx, value, out);
}

static void put_bytes(ls_ctx *ctx, unsigned field, const void *bytes, size_t length, ls_text *out) {
    put_varint(ctx, field << 3 | 2, out);
    put_varint(ctx, length, out);
    ls_text_append(ctx, out, bytes, length);
}

/* A piece's text. GGUF has user-defined ones with plain spaces (Gemma's runs of spaces), a model
 * with the mark that a text's spaces become before pieces are looked for. */
static void put_piece(ls_ctx *ctx, const ls_gguf_text *token, int32_t type, ls_text *out) {
    size_t spaces = 0;
    for (size_t i = 0; type == USER && i < token->length; i++) spaces += token->at[i] == ' ';
    put_varint(ctx, 1 << 3 | 2, out);
    put_varint(ctx, token->length + spaces * (strlen(LS_METASPACE) - 1), out);
    if (spaces == 0) {
        ls_text_append(ctx, out, token->at, token->length);
        return;
    }
    for (size_t i = 0; i < token->length; i++)
        if (token->at[i] == ' ')
            ls_text_append(ctx, out, LS_METASPACE, strlen(LS_METASPACE));
        else
            ls_text_append(ctx, out, token->at + i, 1);
}

/* A SentencePiece model; the numbers are those of its ModelProto. */
static ls_status write_sentencepiece(ls_ctx *ctx, const ls_gguf_vocabulary *v, bool bpe,
                                     ls_text *out) {
    ls_text part = {0};
    bool unknown = false, bytes = false;
    for (size_t i = 0; i < v->token_count; i++) unknown |= type_of(v, i) == UNKNOWN;
    size_t unk = v->unk >= 0 ? (size_t)v->unk : 0;
    for (size_t i = 0; i < v->token_count; i++) {
        float score = v->scores == NULL ? 0 : v->scores[i];
        int32_t type = !unknown && i == unk ? UNKNOWN : type_of(v, i);
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        uint8_t little[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16),
                             (uint8_t)(bits >> 24)};
        bytes |= type == BYTE;
        part.length = 0;
        put_piece(ctx, &v->tokens[i], type, &part);
        put_varint(ctx, 2 << 3 | 5, &part);
        ls_text_append(ctx, &part, little, 4);
        put_number(ctx, 3, (uint64_t)type, &part);
        put_bytes(ctx, 1, part.bytes, part.length, out);
    }
    part.length = 0;
    put_number(ctx, 3, bpe ? 2 : 1, &part);
    put_number(ctx, 35, bytes, &part);
    if (v->bos >= 0) put_number(ctx, 41, (uint64_t)v->bos, &part);
    if (v->eos >= 0) put_number(ctx, 42, (uint64_t)v->eos, &part);
    if (v->pad >= 0) put_number(ctx, 43, (uint64_t)v->pad, &part);
    put_bytes(ctx, 2, part.bytes, part.length, out);
    part.length = 0;
    if (v->charsmap_length > 0) put_bytes(ctx, 2, v->charsmap, v->charsmap_length, &part);
    put_number(ctx, 3, v->add_space_prefix != 0, &part);
    put_number(ctx, 4, v->remove_extra_whitespaces < 0 ? !bpe : v->remove_extra_whitespaces != 0,
               &part);
    put_bytes(ctx, 3, part.bytes, part.length, out);
    ls_status status = part.failed ? LS_ENOMEM : ls_text_status(out);
    ls_text_clear(ctx, &part);
    return status;
}

static ls_status new_sentencepiece(ls_ctx *ctx, const ls_gguf_vocabulary *v, bool bpe,
                                   const char *what, ls_tokenizer **out) {
    ls_text model = {0}, config = {0};
    bool bos = v->add_bos < 0 ? bpe : v->add_bos != 0;
    bool eos = v->add_eos < 0 ? !bpe : v->add_eos != 0;
    ls_status status = write_sentencepiece(ctx, v, bpe, &model);
    if (status == LS_OK) status = write_config(ctx, v, true, bos, eos, &config);
    if (status == LS_OK) status = ls__tokenizer_new_sentencepiece(ctx, &model, &config, what, out);
    ls_text_clear(ctx, &model);
    ls_text_clear(ctx, &config);
    return status;
}

#define SPLIT_ISOLATED(regex)                                                                      \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex                                      \
    "\"}, \"behavior\": \"Isolated\", \"invert\": false}"
#define BYTES(words)                                                                               \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "              \
    "\"use_regex\": " words "}"
#define SEQUENCE(steps) "{\"type\": \"Sequence\", \"pretokenizers\": [" steps "]}"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LLAMA3(digits)                                                                             \
    CONTRACTIONS "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" digits                                \
                 "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"                  \
                 "\\\\s+(?!\\\\S)|\\\\s+"
#define UPPER "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define LOWER "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define O200K                                                                                      \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?|"                         \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "+" LOWER "*" CONTRACTIONS "?|\\\\p{N}{1,3}|"           \
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define BLOOM " ?[^(\\\\s|[.,!?\\u2026\\u3002\\uff0c\\u3001\\u0964\\u06d4\\u060c])]+"
#define GPT2_WORDS                                                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)"

static const char gpt2_words[] = BYTES("true");
static const char llama3_words[] =
    SEQUENCE(SPLIT_ISOLATED(LLAMA3("\\\\p{N}{1,3}")) ", " BYTES("false"));
static const char qwen2_words[] = SEQUENCE(SPLIT_ISOLATED(LLAMA3("\\\\p{N}")) ", " BYTES("false"));
static const char o200k_words[] = SEQUENCE(SPLIT_ISOLATED(O200K) ", " BYTES("false"));
static const char digit_words[] =
    SEQUENCE("{\"type\": \"Digits\", \"individual_digits\": true}, " BYTES("true"));
static const char falcon_words[] =
    SEQUENCE("{\"type\": \"Punctuation\", \"behavior\": \"Contiguous\"}, " BYTES(
        "true") ", "
                "{\"type\": \"Digits\", \"individual_digits\": false}, " SPLIT_ISOLATED(
                    "[0-9][0-9][0-9]"));
static const char bloom_words[] = SEQUENCE(SPLIT_ISOLATED(BLOOM) ", " BYTES("false"));
static const char default_words[] = SEQUENCE(
    SPLIT_ISOLATED("[\\\\p{P}\\\\$\\\\+<=>\\\\^~\\\\|]+") ", " SPLIT_ISOLATED(GPT2_WORDS) ", " SPLIT_ISOLATED(
        "\\\\p{N}+") ", " SPLIT_ISOLATED("[0-9][0-9][0-9]") ", " BYTES("false"));

/* What a `pre` name stands for. nfc: the tokenizer that the name comes from has that normaliser,
 * though llama.cpp does without. llama3: BOS is added unless the file says no, and a word that is a
 * token is not merged. */
typedef struct word_rule {
    const char *pre, *words;
    bool nfc, llama3;
} word_rule;
static const word_rule rules[] = {
    {"gpt-2", gpt2_words, false, false},       {"phi-2", gpt2_words, false, false},
    {"modern-bert", gpt2_words, false, false}, {"mpt", gpt2_words, true, false},
    {"olmo", gpt2_words, true, false},         {"gptneox", gpt2_words, true, false},
    {"llama-bpe", llama3_words, false, true},  {"llama3", llama3_words, false, true},
    {"llama-v3", llama3_words, false, true},   {"smaug-bpe", llama3_words, false, false},
    {"dbrx", llama3_words, false, false},      {"qwen2", qwen2_words, true, false},
    {"stablelm2", qwen2_words, false, false},  {"starcoder", digit_words, false, false},
    {"smollm", digit_words, false, false},     {"command-r", digit_words, false, false},
    {"refact", digit_words, false, false},     {"falcon", falcon_words, false, false},
    {"bloom", bloom_words, false, false},      {"gpt-4o", o200k_words, false, false},
    {"default", default_words, false, false},  {"gpt2", gpt2_words, false, false},
};

static const word_rule *find_rule(ls_ctx *ctx, const ls_gguf_vocabulary *v, const char *what) {
    /* old files have no `pre`; the architecture was named like the pattern */
    const char *name = v->pre != NULL ? v->pre : v->architecture;
    for (size_t i = 0; name != NULL && i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(name, rules[i].pre) == 0) return &rules[i];
    ls_say(ctx, "%s: the word pattern `%.40s` is not known; GPT-2's is used", what,
           name == NULL ? "" : name);
    return &rules[0];
}

/* {"token": id}; `spell` (or NULL) changes how a token is written. */
typedef void (*spelling)(ls_ctx *ctx, const ls_gguf_vocabulary *v, size_t i, ls_text *out);
static json_t *vocabulary_object(ls_ctx *ctx, const ls_gguf_vocabulary *v, spelling spell) {
    json_t *vocab = json_object();
    ls_text token = {0};
    for (size_t i = 0; i < v->token_count && vocab != NULL; i++) {
        if (is_filler(v, i)) continue;
        token.length = 0;
        if (spell != NULL)
            spell(ctx, v, i, &token);
        else
            ls_text_append(ctx, &token, v->tokens[i].at, v->tokens[i].length);
        if (token.failed || json_object_set_new(vocab, token.bytes, json_integer((json_int_t)i))) {
            json_decref(vocab);
            vocab = NULL;
        }
    }
    ls_text_clear(ctx, &token);
    return vocab;
}

static json_t *token_text(const ls_gguf_vocabulary *v, int64_t id) {
    return json_stringn(v->tokens[id].at, v->tokens[id].length);
}

static json_t *added_list(const ls_gguf_vocabulary *v, bool normalized) {
    json_t *list = json_array();
    for (size_t i = 0; i < v->token_count; i++) {
        int32_t type = type_of(v, i);
        if ((type != CONTROL && type != USER) || v->tokens[i].length == 0 || is_filler(v, i))
            continue;
        json_array_append_new(
            list, json_pack("{s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i, "content",
                            token_text(v, (int64_t)i), "single_word", 0, "lstrip", 0, "rstrip", 0,
                            "normalized", normalized && type == USER, "special", type == CONTROL));
    }
    return list;
}

/* TemplateProcessing with one token before and one after, either -1. */
static json_t *template_object(const ls_gguf_vocabulary *v, int64_t before, int64_t after) {
    json_t *single = json_array(), *special = json_object();
    const int64_t ids[2] = {before, after};
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            json_array_append_new(single,
                                  json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0));
        if (ids[i] < 0) continue;
        json_t *name = token_text(v, ids[i]);
        json_array_append_new(
            single, json_pack("{s:{s:O, s:i}}", "SpecialToken", "id", name, "type_id", 0));
        json_object_set_new(special, json_string_value(name),
                            json_pack("{s:O, s:[I], s:[O]}", "id", name, "ids", (json_int_t)ids[i],
                                      "tokens", name));
        json_decref(name);
    }
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "TemplateProcessing", "single", single,
                     "pair", "special_tokens", special);
}

/* Dumps the document, which is used up, and reads it. */
static ls_status read_document(ls_ctx *ctx, json_t *document, const ls_text *config,
                               const char *what, ls_tokenizer **out) {
    char *dumped = ls_json_dump(document, JSON_COMPACT);
    json_decref(document);
    if (dumped == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for the tokenizer of %s", what);
    ls_text text = {0};
    ls_text_append(ctx, &text, dumped, strlen(dumped));
    free(dumped);
    ls_status status = ls_text_status(&text);
    if (status == LS_OK) status = ls__tokenizer_new_json(ctx, &text, config, what, out);
    ls_text_clear(ctx, &text);
    return status;
}

static ls_status new_gpt2(ls_ctx *ctx, const ls_gguf_vocabulary *v, const char *what,
                          ls_tokenizer **out) {
    const word_rule *rule = find_rule(ctx, v, what);
    bool bos = v->add_bos < 0 ? rule->llama3 : v->add_bos != 0;
    json_t *merges = json_array();
    for (size_t i = 0; i < v->merge_count && merges != NULL; i++)
        if (json_array_append_new(merges, json_stringn(v->merges[i].at, v->merges[i].length))) {
            json_decref(merges);
            return ls_json_starved()
                       ? LS_FAIL(ctx, LS_ENOMEM, "no memory for the tokenizer of %s", what)
                       : LS_FAIL(ctx, LS_EINPUT, "%s: merge number %zu is not text", what, i);
        }
    json_t *document = json_pack(
        "{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, "
        "s:o, s:o}}",
        "version", "1.0", "truncation", "padding", "added_tokens", added_list(v, rule->nfc),
        "normalizer", rule->nfc ? json_pack("{s:s}", "type", "NFC") : json_null(), "pre_tokenizer",
        ls_json_constant(rule->words), "post_processor",
        template_object(v, bos ? v->bos : -1, v->add_eos > 0 ? v->eos : -1), "decoder",
        ls_json_constant(gpt2_words), "model", "type", "BPE", "dropout", "unk_token",
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
        "ignore_merges", rule->llama3, "vocab", vocabulary_object(ctx, v, NULL), "merges", merges);
    ls_text config = {0};
    ls_status status = write_config(ctx, v, false, bos, v->add_eos > 0, &config);
    if (status == LS_OK)
        status = read_document(ctx, document, &config, what, out);
    else
        json_decref(document);
    ls_text_clear(ctx, &config);
    return status;
}

/* Word starts carry U+2581 and continuations nothing; WordPiece marks continuations with ##. */
static void spell_bert(ls_ctx *ctx, const ls_gguf_vocabulary *v, size_t i, ls_text *out) {
    const ls_gguf_text *token = &v->tokens[i];
    bool name = token->length > 1 && token->at[0] == '[' && token->at[token->length - 1] == ']';
    bool start = token->length > 3 && memcmp(token->at, LS_METASPACE, 3) == 0;
    if (!name && !start) ls_text_append(ctx, out, "##", 2);
    ls_text_append(ctx, out, token->at + (start ? 3 : 0), token->length - (start ? 3 : 0));
}

static ls_status new_word_piece(ls_ctx *ctx, const ls_gguf_vocabulary *v, spelling spell,
                                json_t *normalizer, const ls_text *config, const char *what,
                                ls_tokenizer **out) {
    int64_t before = v->cls >= 0 ? v->cls : v->bos, after = v->sep >= 0 ? v->sep : v->eos;
    if (v->unk < 0) {
        json_decref(normalizer);
        return LS_FAIL(ctx, LS_EINPUT, "%s has no unknown token", what);
    }
    json_t *document = json_pack(
        "{s:s, s:n, s:n, s:o, s:o, s:{s:s}, s:o, s:{s:s, s:s, s:b}, s:{s:s, s:o, s:s, s:i, s:o}}",
        "version", "1.0", "truncation", "padding", "added_tokens", added_list(v, false),
        "normalizer", normalizer, "pre_tokenizer", "type", "BertPreTokenizer", "post_processor",
        template_object(v, v->add_bos == 0 ? -1 : before, v->add_eos == 0 ? -1 : after), "decoder",
        "type", "WordPiece", "prefix", "##", "cleanup", 1, "model", "type", "WordPiece",
        "unk_token", token_text(v, v->unk), "continuing_subword_prefix", "##",
        "max_input_chars_per_word", 100, "vocab", vocabulary_object(ctx, v, spell));
    return read_document(ctx, document, config, what, out);
}

static json_t *bert_normalizer(const json_t *config) {
    const json_t *lower = json_object_get(config, "do_lower_case");
    const json_t *strip = json_object_get(config, "strip_accents");
    const json_t *chinese = json_object_get(config, "tokenize_chinese_chars");
    return json_pack("{s:s, s:b, s:b, s:o, s:b}", "type", "BertNormalizer", "clean_text", 1,
                     "handle_chinese_chars", !json_is_false(chinese), "strip_accents",
                     json_is_boolean(strip) ? json_boolean(json_is_true(strip)) : json_null(),
                     "lowercase", !json_is_false(lower));
}

ls_status ls_tokenizer_new_gguf(ls_ctx *ctx, const ls_gguf_vocabulary *v, const char *what,
                                ls_tokenizer **out) {
    *out = NULL;
    LS_TRY(check(ctx, v, what));
    if (strcmp(v->model, "gpt2") == 0) return new_gpt2(ctx, v, what, out);
    if (strcmp(v->model, "llama") == 0) return new_sentencepiece(ctx, v, true, what, out);
    if (strcmp(v->model, "t5") == 0) return new_sentencepiece(ctx, v, false, what, out);
    if (strcmp(v->model, "bert") == 0)
        return new_word_piece(ctx, v, spell_bert, bert_normalizer(NULL), NULL, what, out);
    return LS_FAIL(ctx, LS_EINPUT, "%s: the vocabulary's model `%.40s` is not understood", what,
                   v->model);
}

static int64_t find_line(const ls_gguf_vocabulary *v, const char *token) {
    for (size_t i = 0; i < v->token_count; i++)
        if (v->tokens[i].length == strlen(token) &&
            memcmp(v->tokens[i].at, token, v->tokens[i].length) == 0)
            return (int64_t)i;
    return -1;
}

static ls_status read_lines(ls_ctx *ctx, const ls_text *config_text, const char *what,
                            ls_gguf_vocabulary *v, int32_t *types, ls_tokenizer **out) {
    static const char *const names[] = {"[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"};
    int64_t *const ids[] = {&v->cls, &v->sep, &v->unk, &v->pad};
    json_t *config = NULL;
    LS_TRY(check(ctx, v, what));
    for (int i = 0; i < 5; i++) {
        int64_t id = find_line(v, names[i]);
        if (id >= 0) types[id] = CONTROL;
        if (i < 4) *ids[i] = id;
    }
    if (config_text->length > 0)
        LS_TRY(ls_json_parse(ctx, config_text->bytes, config_text->length, "tokenizer_config.json",
                             &config));
    json_t *normalizer = bert_normalizer(config);
    json_decref(config);
    return new_word_piece(ctx, v, NULL, normalizer, config_text, what, out);
}

ls_status ls__tokenizer_new_vocab_txt(ls_ctx *ctx, const ls_text *lines, const ls_text *config,
                                      const char *what, ls_tokenizer **out) {
    ls_gguf_vocabulary v = ls_gguf_vocabulary_empty;
    size_t count = 0;
    *out = NULL;
    for (size_t i = 0; i < lines->length; i++) count += lines->bytes[i] == '\n';
    ls_gguf_text *tokens = ls_new(ctx, count + 1, sizeof *tokens);
    int32_t *types = tokens == NULL ? NULL : ls_new(ctx, count + 1, sizeof *types);
    if (types == NULL) {
        ls_free(ctx, tokens);
        return LS_ENOMEM;
    }
    for (size_t at = 0; at < lines->length;) {
        const char *line = lines->bytes + at, *end = memchr(line, '\n', lines->length - at);
        size_t length = end == NULL ? lines->length - at : (size_t)(end - line);
        at += length + 1;
        if (length > 0 && line[length - 1] == '\r') length--;
        types[v.token_count] = NORMAL;
        tokens[v.token_count++] = (ls_gguf_text){line, length};
    }
    v.model = "bert";
    v.tokens = tokens;
    v.types = types;
    ls_status status = read_lines(ctx, config, what, &v, types, out);
    ls_free(ctx, tokens);
    ls_free(ctx, types);
    return status;
}
