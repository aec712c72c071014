/* Byte-level pair encoding: the tables, made from GPT-2's two files or by training.
 *
 * The files spell each byte as one visible letter (space is U+0120), so that vocab.json is plain
 * text; a token with any other letter in it stands for its own UTF-8 bytes. */
#include "data/tokenizer/bpe.h"

#include <string.h>

#include "base/json.h"
#include "data/tokenizer/unicode.h"

enum { PATH_BYTES = 4096 };

int32_t ls__letter_byte(int32_t letter) {
    if ((letter >= 33 && letter <= 126) || (letter >= 161 && letter <= 255 && letter != 173))
        return letter;
    if (letter >= 256 && letter < 289) return letter - 256; /* bytes 0 to 32 */
    if (letter >= 289 && letter < 323) return letter - 289 + 127;
    return letter == 323 ? 173 : -1;
}

int32_t ls__byte_letter(uint8_t byte) {
    if (byte <= 32) return 256 + byte;
    if (byte >= 127 && byte <= 160) return 289 + byte - 127;
    return byte == 173 ? 323 : byte;
}

bool ls__byte_letters_read(const char *text, size_t length, uint8_t *out, size_t *out_length) {
    const uint8_t *at = (const uint8_t *)text;
    size_t count = 0;
    while (length > 0) {
        int32_t letter, byte;
        size_t used = ls__utf8_take(at, length, &letter);
        if (used == 0 || (byte = ls__letter_byte(letter)) < 0) return false;
        out[count++] = (uint8_t)byte;
        at += used;
        length -= used;
    }
    *out_length = count;
    return true;
}

void ls__bpe_clear(ls_ctx *ctx, ls_tokenizer *tokenizer) {
    ls_bpe *bpe = (ls_bpe *)tokenizer;
    ls_free(ctx, bpe->plain);
    ls__merges_clear(ctx, &bpe->merges);
    ls__pattern_free(ctx, bpe->pattern);
}

ls_status ls__bpe_complete(ls_ctx *ctx, ls_bpe *bpe, const char *what) {
    static const char end_text[] = LS_BPE_END_TEXT;
    const ls_vocabulary *pieces = &bpe->base.pieces;
    int32_t again;
    bpe->base.vocabulary = pieces->count;
    for (int byte = 0; byte < 256; byte++) bpe->byte_id[byte] = -1;
    for (int32_t id = 0; id < pieces->count; id++) {
        ls_bytes piece = ls__vocabulary_at(pieces, id);
        if (piece.length == 1 && !bpe->plain[id]) bpe->byte_id[(uint8_t)*piece.at] = id;
        if (piece.length == sizeof end_text - 1 && memcmp(piece.at, end_text, piece.length) == 0)
            bpe->base.special.eos = id;
    }
    for (int byte = 0; byte < 256; byte++)
        if (bpe->byte_id[byte] < 0)
            return LS_FAIL(ctx, LS_EINPUT, "%s has no token for the byte 0x%02x", what,
                           (unsigned)byte);
    LS_TRY(ls__merges_index(ctx, &bpe->merges, &again));
    if (again >= 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s: merge number %ld is there twice", what, (long)again);
    uint64_t parts[4] = {
        ls_hash(pieces->pool, pieces->begin[pieces->count]),
        ls_hash(pieces->begin, ((size_t)pieces->count + 1) * sizeof *pieces->begin),
        ls_hash(bpe->merges.list, (size_t)bpe->merges.count * sizeof *bpe->merges.list),
        ls_hash(ls__gpt2_pattern, strlen(ls__gpt2_pattern))};
    bpe->base.hash = ls_hash(parts, sizeof parts);
    return ls__pattern_regex(ctx, ls__gpt2_pattern, what, &bpe->pattern);
}

/* Puts the tokens of vocab.json in the order of their ids. */
static ls_status order_tokens(ls_ctx *ctx, json_t *vocab, const char *what, ls_bytes *entries) {
    const char *key;
    json_t *value;
    size_t count = json_object_size(vocab);
    json_object_foreach(vocab, key, value) {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        size_t length = strlen(key);
        if (id < 0 || id >= (json_int_t)count || entries[id].at != NULL || length == 0 ||
            length > (size_t)2 * LS_BPE_TOKEN_BYTES)
            return LS_FAIL(ctx, LS_EINPUT,
                           "%s: the token \"%.64s\" needs 1 to %d bytes and an id of its own "
                           "from 0 to %zu",
                           what, key, LS_BPE_TOKEN_BYTES, count - 1);
        entries[id] = (ls_bytes){key, length};
    }
    return LS_OK;
}

static ls_status take_vocabulary(ls_ctx *ctx, ls_bpe *bpe, json_t *vocab, const char *what) {
    ls_vocabulary *pieces = &bpe->base.pieces;
    ls_status status = LS_ENOMEM;
    size_t count = json_object_size(vocab);
    if (!json_is_object(vocab) || count < 256 || count > LS_VOCABULARY_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s must map 256 to %d tokens to ids", what,
                       LS_VOCABULARY_MAX);
    ls_bytes *entries = ls_new(ctx, count, sizeof *entries);
    if (entries == NULL) return LS_ENOMEM;
    bpe->plain = ls_new(ctx, count, sizeof *bpe->plain);
    if (bpe->plain == NULL) goto fail;
    LS_TRY_GOTO(order_tokens(ctx, vocab, what, entries));
    LS_TRY_GOTO(ls__vocabulary_make(ctx, entries, count, what, pieces));
    uint32_t end = 0; /* spelt out in place: spelling never lengthens */
    for (size_t id = 0; id < count; id++) {
        ls_bytes entry = entries[id];
        size_t used;
        if (!ls__byte_letters_read(entry.at, entry.length, pieces->pool + end, &used)) {
            bpe->plain[id] = true;
            memcpy(pieces->pool + end, entry.at, entry.length);
            used = entry.length;
        }
        pieces->begin[id] = end;
        end += (uint32_t)used;
    }
    pieces->begin[count] = end;
    status = ls__vocabulary_index(ctx, pieces, bpe->plain);
fail:
    ls_free(ctx, entries);
    return status;
}

static bool read_merge(const ls_vocabulary *pieces, const char *line, size_t length,
                       ls_merge *out) {
    uint8_t bytes[2 * LS_BPE_TOKEN_BYTES];
    const char *space = memchr(line, ' ', length);
    if (space == NULL || length > sizeof bytes) return false;
    size_t first = (size_t)(space - line), left, right;
    if (!ls__byte_letters_read(line, first, bytes, &left)) return false;
    if (!ls__byte_letters_read(space + 1, length - first - 1, bytes + left, &right)) return false;
    out->left = ls__vocabulary_find(pieces, bytes, left);
    out->right = ls__vocabulary_find(pieces, bytes + left, right);
    out->result = ls__vocabulary_find(pieces, bytes, left + right);
    return out->left >= 0 && out->right >= 0 && out->result >= 0;
}

static ls_status take_merges(ls_ctx *ctx, ls_bpe *bpe, const char *text, size_t length,
                             const char *what) {
    size_t lines = 1;
    for (size_t i = 0; i < length; i++) lines += text[i] == '\n';
    if (lines > LS_VOCABULARY_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: more than %d merges", what, LS_VOCABULARY_MAX);
    ls_merges *merges = &bpe->merges;
    merges->list = ls_new(ctx, lines, sizeof *merges->list);
    if (merges->list == NULL) return LS_ENOMEM;
    ls_status status = LS_OK;
    long number = 0;
    for (size_t begin = 0; begin < length && status == LS_OK;) {
        const char *line = text + begin, *end = memchr(line, '\n', length - begin);
        size_t used = end == NULL ? length - begin : (size_t)(end - line);
        begin += used + 1;
        number++;
        if (used > 0 && line[used - 1] == '\r') used--;
        /* only the first line can be a comment: "# #" is a merge like any other */
        if (used == 0 || (number == 1 && used >= 8 && memcmp(line, "#version", 8) == 0)) continue;
        ls_merge *merge = &merges->list[merges->count];
        if (read_merge(&bpe->base.pieces, line, used, merge))
            merge->rank = merges->count++;
        else
            status = LS_FAIL(ctx, LS_EINPUT,
                             "%s: line %ld of the merges does not join two tokens into a third",
                             what, number);
    }
    return status;
}

ls_status ls_tokenizer_new_bpe(ls_ctx *ctx, const char *vocab, size_t vocab_length,
                               const char *merges, size_t merges_length, const char *what,
                               ls_tokenizer **out) {
    json_t *json;
    *out = NULL;
    LS_TRY(ls_json_parse(ctx, vocab, vocab_length, what, &json));
    ls_bpe *bpe = NULL;
    ls_status status;
    LS_TRY_GOTO(ls__tokenizer_new(ctx, &ls__bpe_kind, sizeof *bpe, &bpe));
    LS_TRY_GOTO(take_vocabulary(ctx, bpe, json, what));
    LS_TRY_GOTO(take_merges(ctx, bpe, merges, merges_length, what));
    LS_TRY_GOTO(ls__bpe_complete(ctx, bpe, what));
    *out = &bpe->base;
    bpe = NULL;
fail:
    json_decref(json);
    if (bpe != NULL) ls_tokenizer_free(ctx, &bpe->base);
    return status;
}

/* Appends a token as the files write it: byte alphabet, or itself where it is plain. */
static void put_token(ls_ctx *ctx, const ls_bpe *bpe, int32_t id, ls_text *out) {
    ls_bytes piece = ls__vocabulary_at(&bpe->base.pieces, id);
    if (bpe->plain[id]) {
        ls_text_append(ctx, out, piece.at, piece.length);
        return;
    }
    for (size_t i = 0; i < piece.length; i++) {
        uint8_t letter[4];
        size_t used = ls__utf8_put(ls__byte_letter((uint8_t)piece.at[i]), letter);
        ls_text_append(ctx, out, letter, used);
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

ls_status ls__bpe_save(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder) {
    const ls_bpe *bpe = (const ls_bpe *)tokenizer;
    ls_text text = {0}, token = {0};
    char path[PATH_BYTES];
    ls_status status;
    for (int32_t id = 0; id < tokenizer->vocabulary; id++) {
        token.length = 0;
        put_token(ctx, bpe, id, &token);
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
    for (int32_t rank = 0; rank < bpe->merges.count; rank++) {
        put_token(ctx, bpe, bpe->merges.list[rank].left, &text);
        ls_text_append(ctx, &text, " ", 1);
        put_token(ctx, bpe, bpe->merges.list[rank].right, &text);
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
