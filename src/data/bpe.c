/* Byte-level pair encoding: the tables, made from GPT-2's two files or by training.
 *
 * The files spell each byte as one visible letter (space is U+0120), so that vocab.json is plain
 * text; a token with any other letter in it stands for its own UTF-8 bytes. */
#include "data/bpe.h"

#include <string.h>
#include <utf8proc.h>

#include "base/json.h"

enum { PATH_BYTES = 4096 };

int32_t ls__bpe_byte_of(int32_t letter) {
    if ((letter >= 33 && letter <= 126) || (letter >= 161 && letter <= 255 && letter != 173))
        return letter;
    if (letter >= 256 && letter < 289) return letter - 256; /* bytes 0 to 32 */
    if (letter >= 289 && letter < 323) return letter - 289 + 127;
    return letter == 323 ? 173 : -1;
}

int32_t ls__bpe_letter_of(uint8_t byte) {
    if (byte <= 32) return 256 + byte;
    if (byte >= 127 && byte <= 160) return 289 + byte - 127;
    return byte == 173 ? 323 : byte;
}

static size_t pair_home(int32_t left, int32_t right, size_t mask) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9E3779B97F4A7C15u;
    return (size_t)(key ^ key >> 32) & mask;
}

int32_t ls__bpe_rank(const ls_tokenizer *tokenizer, int32_t left, int32_t right) {
    for (size_t at = pair_home(left, right, tokenizer->pair_mask);;
         at = (at + 1) & tokenizer->pair_mask) {
        int32_t rank = tokenizer->pair_slots[at];
        if (rank < 0) return -1;
        const ls_bpe_merge *merge = &tokenizer->merges[rank];
        if (merge->left == left && merge->right == right) return rank;
    }
}

/* Open addressing wants a table at most half full. */
static size_t slots_for(size_t count) {
    size_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    return slots;
}

static void *pcre_take(size_t bytes, void *user) {
    const ls_allocator *allocator = user;
    return allocator->take(allocator->user, bytes);
}

static void pcre_give(void *pointer, void *user) {
    const ls_allocator *allocator = user;
    if (pointer != NULL) allocator->give(allocator->user, pointer);
}

/* \s is written out: PCRE2's own has U+180E in it, which is no white space since Unicode 6.3. */
#define WHITE                                                                                      \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
static const char word_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WHITE "\\p{L}\\p{N}]+"
    "|[" WHITE "]+(?![^" WHITE "])|[" WHITE "]+";

static ls_status compile_pattern(ls_ctx *ctx, ls_tokenizer *tokenizer) {
    tokenizer->allocator = ctx->allocator;
    tokenizer->memory = pcre2_general_context_create(pcre_take, pcre_give, &tokenizer->allocator);
    if (tokenizer->memory == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for a word pattern");
    pcre2_compile_context *compile = pcre2_compile_context_create(tokenizer->memory);
    if (compile == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for a word pattern");
    int code;
    PCRE2_SIZE where;
    tokenizer->pattern = pcre2_compile((PCRE2_SPTR)word_pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF,
                                       &code, &where, compile);
    pcre2_compile_context_free(compile);
    if (tokenizer->pattern == NULL)
        return LS_FAIL(ctx, LS_ENOMEM, "no memory for a word pattern (PCRE2 code %d)", code);
    /* without machine code (a hardened system may refuse it) the interpreter
     * gives the same words */
    (void)pcre2_jit_compile(tokenizer->pattern, PCRE2_JIT_COMPLETE);
    return LS_OK;
}

static ls_status index_pairs(ls_ctx *ctx, ls_tokenizer *tokenizer, const char *what) {
    size_t slots = slots_for((size_t)tokenizer->merge_count);
    tokenizer->pair_slots = ls_new_raw(ctx, slots, sizeof *tokenizer->pair_slots);
    if (tokenizer->pair_slots == NULL) return LS_ENOMEM;
    tokenizer->pair_mask = slots - 1;
    for (size_t i = 0; i < slots; i++) tokenizer->pair_slots[i] = -1;
    for (int32_t rank = 0; rank < tokenizer->merge_count; rank++) {
        const ls_bpe_merge *merge = &tokenizer->merges[rank];
        if (ls__bpe_rank(tokenizer, merge->left, merge->right) >= 0)
            return LS_FAIL(ctx, LS_EINPUT, "%s: merge number %ld is there twice", what, (long)rank);
        size_t at = pair_home(merge->left, merge->right, tokenizer->pair_mask);
        while (tokenizer->pair_slots[at] >= 0) at = (at + 1) & tokenizer->pair_mask;
        tokenizer->pair_slots[at] = rank;
    }
    return LS_OK;
}

ls_status ls__bpe_complete(ls_ctx *ctx, ls_tokenizer *tokenizer, const char *what) {
    static const char end_text[] = LS_BPE_END_TEXT;
    tokenizer->bpe = true;
    tokenizer->end = -1;
    for (int byte = 0; byte < 256; byte++) tokenizer->byte_id[byte] = -1;
    for (int32_t id = 0; id < tokenizer->vocabulary; id++) {
        const uint8_t *bytes = tokenizer->pool + tokenizer->begin[id];
        size_t length = tokenizer->begin[id + 1] - tokenizer->begin[id];
        if (length == 1 && !tokenizer->plain[id]) tokenizer->byte_id[*bytes] = id;
        if (length == sizeof end_text - 1 && memcmp(bytes, end_text, length) == 0)
            tokenizer->end = id;
    }
    for (int byte = 0; byte < 256; byte++)
        if (tokenizer->byte_id[byte] < 0)
            return LS_FAIL(ctx, LS_EINPUT, "%s has no token for the byte 0x%02x", what,
                           (unsigned)byte);
    LS_TRY(index_pairs(ctx, tokenizer, what));
    uint64_t parts[4] = {
        ls_hash(tokenizer->pool, tokenizer->begin[tokenizer->vocabulary]),
        ls_hash(tokenizer->begin, (size_t)(tokenizer->vocabulary + 1) * sizeof *tokenizer->begin),
        ls_hash(tokenizer->merges, (size_t)tokenizer->merge_count * sizeof *tokenizer->merges),
        ls_hash(word_pattern, sizeof word_pattern)};
    tokenizer->hash = ls_hash(parts, sizeof parts);
    return compile_pattern(ctx, tokenizer);
}

/* The bytes that `text` stands for in the byte alphabet, at most its length of them; false where a
 * letter is not of the alphabet. */
static bool spell(const char *text, size_t length, uint8_t *out, size_t *out_length) {
    const uint8_t *at = (const uint8_t *)text;
    size_t count = 0;
    for (size_t left = length; left > 0;) {
        utf8proc_int32_t letter;
        utf8proc_ssize_t used = utf8proc_iterate(at, (utf8proc_ssize_t)left, &letter);
        int32_t byte = used > 0 ? ls__bpe_byte_of(letter) : -1;
        if (byte < 0) return false;
        out[count++] = (uint8_t)byte;
        at += used;
        left -= (size_t)used;
    }
    *out_length = count;
    return true;
}

/* Puts the tokens of vocab.json in the order of their ids. */
static ls_status take_vocabulary(ls_ctx *ctx, ls_tokenizer *t, json_t *vocab, const char *what) {
    ls_status status = LS_OK;
    size_t count = json_object_size(vocab), pool_bytes = 0;
    const char **names = NULL;
    if (!json_is_object(vocab) || count < 256 || count > LS_BPE_VOCABULARY_MOST)
        return LS_FAIL(ctx, LS_EINPUT, "%s must map 256 to %d tokens to ids", what,
                       LS_BPE_VOCABULARY_MOST);
    names = ls_new(ctx, count, sizeof *names);
    if (names == NULL) return LS_ENOMEM;
    const char *key;
    json_t *value;
    json_object_foreach(vocab, key, value) {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        size_t length = strlen(key);
        if (id < 0 || id >= (json_int_t)count || names[id] != NULL || length == 0 ||
            length > (size_t)2 * LS_BPE_TOKEN_BYTES) {
            status = LS_FAIL(ctx, LS_EINPUT,
                             "%s: the token \"%.64s\" needs 1 to %d bytes and an id of its own "
                             "from 0 to %zu",
                             what, key, LS_BPE_TOKEN_BYTES, count - 1);
            goto fail;
        }
        names[id] = key;
        pool_bytes += length; /* spelling never lengthens */
    }
    status = LS_ENOMEM;
    t->vocabulary = (int64_t)count;
    t->pool = ls_new(ctx, pool_bytes, 1);
    if (t->pool == NULL) goto fail;
    t->begin = ls_new(ctx, count + 1, sizeof *t->begin);
    if (t->begin == NULL) goto fail;
    t->plain = ls_new(ctx, count, sizeof *t->plain);
    if (t->plain == NULL) goto fail;
    if (pool_bytes > UINT32_MAX) {
        status = LS_FAIL(ctx, LS_EINPUT, "%s has tokens of more than 4 GiB in all", what);
        goto fail;
    }
    for (size_t id = 0; id < count; id++) {
        size_t length = strlen(names[id]), used;
        uint8_t *at = t->pool + t->begin[id];
        if (!spell(names[id], length, at, &used)) {
            t->plain[id] = true;
            memcpy(at, names[id], length);
            used = length;
        }
        t->begin[id + 1] = t->begin[id] + (uint32_t)used;
    }
    status = LS_OK;
fail:
    ls_free(ctx, names);
    return status;
}

/* Token ids by their bytes, needed only while merges are read. */
typedef struct token_index {
    const ls_tokenizer *tokenizer;
    int32_t *slots;
    size_t mask;
} token_index;

static int32_t token_find(const token_index *index, const uint8_t *bytes, size_t length,
                          size_t *slot) {
    const ls_tokenizer *t = index->tokenizer;
    for (*slot = (size_t)ls_hash(bytes, length) & index->mask;; *slot = (*slot + 1) & index->mask) {
        int32_t id = index->slots[*slot];
        if (id < 0) return -1;
        if (t->begin[id + 1] - t->begin[id] == length &&
            memcmp(t->pool + t->begin[id], bytes, length) == 0)
            return id;
    }
}

static ls_status token_index_make(ls_ctx *ctx, const ls_tokenizer *t, token_index *index) {
    size_t slots = slots_for((size_t)t->vocabulary), slot;
    *index = (token_index){.tokenizer = t, .mask = slots - 1};
    index->slots = ls_new_raw(ctx, slots, sizeof *index->slots);
    if (index->slots == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < slots; i++) index->slots[i] = -1;
    for (int32_t id = 0; id < t->vocabulary; id++) {
        if (t->plain[id]) continue;
        if (token_find(index, t->pool + t->begin[id], t->begin[id + 1] - t->begin[id], &slot) < 0)
            index->slots[slot] = id;
    }
    return LS_OK;
}

static bool read_merge(const token_index *index, const char *line, size_t length,
                       ls_bpe_merge *out) {
    uint8_t bytes[2 * LS_BPE_TOKEN_BYTES];
    const char *space = memchr(line, ' ', length);
    if (space == NULL || length > sizeof bytes) return false;
    size_t first = (size_t)(space - line), left, right, slot;
    if (!spell(line, first, bytes, &left)) return false;
    if (!spell(space + 1, length - first - 1, bytes + left, &right)) return false;
    if (left == 0 || right == 0) return false;
    out->left = token_find(index, bytes, left, &slot);
    out->right = token_find(index, bytes + left, right, &slot);
    out->result = token_find(index, bytes, left + right, &slot);
    return out->left >= 0 && out->right >= 0 && out->result >= 0;
}

static ls_status take_merges(ls_ctx *ctx, ls_tokenizer *t, const char *text, size_t length,
                             const char *what) {
    size_t lines = 1;
    for (size_t i = 0; i < length; i++) lines += text[i] == '\n';
    if (lines > LS_BPE_VOCABULARY_MOST)
        return LS_FAIL(ctx, LS_EINPUT, "%s: more than %d merges", what, LS_BPE_VOCABULARY_MOST);
    t->merges = ls_new(ctx, lines, sizeof *t->merges);
    if (t->merges == NULL) return LS_ENOMEM;
    token_index index;
    ls_status status = token_index_make(ctx, t, &index);
    long number = 0;
    for (size_t begin = 0; begin < length && status == LS_OK;) {
        const char *line = text + begin, *end = memchr(line, '\n', length - begin);
        size_t used = end == NULL ? length - begin : (size_t)(end - line);
        begin += used + 1;
        number++;
        if (used > 0 && line[used - 1] == '\r') used--;
        /* only the first line can be a comment: "# #" is a merge like any other */
        if (used == 0 || (number == 1 && used >= 8 && memcmp(line, "#version", 8) == 0)) continue;
        if (read_merge(&index, line, used, &t->merges[t->merge_count]))
            t->merge_count++;
        else
            status = LS_FAIL(ctx, LS_EINPUT,
                             "%s: line %ld of the merges does not join two tokens into a third",
                             what, number);
    }
    ls_free(ctx, index.slots);
    return status;
}

ls_status ls_tokenizer_new_bpe(ls_ctx *ctx, const char *vocab, size_t vocab_length,
                               const char *merges, size_t merges_length, const char *what,
                               ls_tokenizer **out) {
    json_t *json;
    *out = NULL;
    LS_TRY(ls_json_parse(ctx, vocab, vocab_length, what, &json));
    ls_status status = LS_ENOMEM;
    ls_tokenizer *tokenizer = ls_new(ctx, 1, sizeof *tokenizer);
    if (tokenizer == NULL) goto fail;
    LS_TRY_GOTO(take_vocabulary(ctx, tokenizer, json, what));
    LS_TRY_GOTO(take_merges(ctx, tokenizer, merges, merges_length, what));
    LS_TRY_GOTO(ls__bpe_complete(ctx, tokenizer, what));
    *out = tokenizer;
    tokenizer = NULL;
fail:
    json_decref(json);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

/* Appends a token as the files write it: byte alphabet, or itself where it is plain. */
static void put_token(ls_ctx *ctx, const ls_tokenizer *t, int32_t id, ls_text *out) {
    const uint8_t *bytes = t->pool + t->begin[id];
    size_t length = t->begin[id + 1] - t->begin[id];
    if (t->plain[id]) {
        ls_text_append(ctx, out, bytes, length);
        return;
    }
    for (size_t i = 0; i < length; i++) {
        uint8_t letter[4];
        utf8proc_ssize_t used = utf8proc_encode_char(ls__bpe_letter_of(bytes[i]), letter);
        ls_text_append(ctx, out, letter, (size_t)used);
    }
}

static void put_quoted(ls_ctx *ctx, const char *text, size_t length, ls_text *out) {
    ls_text_append(ctx, out, "\"", 1);
    for (size_t i = 0; i < length; i++) {
        uint8_t c = (uint8_t)text[i];
        if (c < 0x20) {
            ls_text_printf(ctx, out, "\\u%04x", (unsigned)c);
        } else {
            if (c == '"' || c == '\\') ls_text_append(ctx, out, "\\", 1);
            ls_text_append(ctx, out, &c, 1);
        }
    }
    ls_text_append(ctx, out, "\"", 1);
}

ls_status ls__bpe_save(ls_ctx *ctx, const ls_tokenizer *t, const char *folder) {
    ls_text text = {0}, token = {0};
    char path[PATH_BYTES];
    ls_status status;
    for (int32_t id = 0; id < t->vocabulary; id++) {
        token.length = 0;
        put_token(ctx, t, id, &token);
        LS_TRY_GOTO(ls_text_status(&token));
        ls_text_append(ctx, &text, id == 0 ? "{" : ", ", id == 0 ? 1 : 2);
        put_quoted(ctx, token.bytes, token.length, &text);
        ls_text_printf(ctx, &text, ": %ld", (long)id);
    }
    ls_text_append(ctx, &text, "}\n", 2);
    LS_TRY_GOTO(ls_text_status(&text));
    LS_TRY_GOTO(ls_path_join(ctx, path, sizeof path, folder, "vocab.json"));
    LS_TRY_GOTO(ls_file_write(ctx, path, text.bytes, text.length));
    text.length = 0;
    ls_text_printf(ctx, &text, "#version: 0.2\n");
    for (int32_t rank = 0; rank < t->merge_count; rank++) {
        put_token(ctx, t, t->merges[rank].left, &text);
        ls_text_append(ctx, &text, " ", 1);
        put_token(ctx, t, t->merges[rank].right, &text);
        ls_text_append(ctx, &text, "\n", 1);
    }
    LS_TRY_GOTO(ls_text_status(&text));
    LS_TRY_GOTO(ls_path_join(ctx, path, sizeof path, folder, "merges.txt"));
    LS_TRY_GOTO(ls_file_write(ctx, path, text.bytes, text.length));
fail:
    ls_text_clear(ctx, &text);
    ls_text_clear(ctx, &token);
    return status;
}
