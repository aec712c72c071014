#include "data/tokenizer/added.h"

#include <stdlib.h>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/vocabulary.h"

ls_status ls__added_put(ls_ctx *ctx, ls_added *added, ls_added_token token, const char *content,
                        size_t length) {
    if (!ls_array_reserve(ctx, &added->tokens, &added->capacity, added->count + 1,
                          sizeof *added->tokens))
        return LS_ENOMEM;
    token.content = ls_new(ctx, length + 1, 1);
    if (token.content == NULL) return LS_ENOMEM;
    memcpy(token.content, content, length);
    token.length = length;
    added->tokens[added->count++] = token;
    return LS_OK;
}

static ls_status read_token(ls_ctx *ctx, const json_t *json, const char *what, ls_added *out) {
    ls_added_token token = {0};
    int64_t id;
    const json_t *content = json_object_get(json, "content");
    LS_TRY(ls__fields_known(ctx, json, "id|content|single_word|lstrip|rstrip|normalized|special",
                            what));
    LS_TRY(ls_json_int(ctx, json, "id", what, 0, LS_VOCABULARY_MAX - 1, &id));
    if (!json_is_string(content))
        return LS_FAIL(ctx, LS_EINPUT, "%s: an added token needs a `content`", what);
    token.id = (int32_t)id;
    LS_TRY(ls__field_bool(ctx, json, "special", false, what, &token.special));
    LS_TRY(ls__field_bool(ctx, json, "normalized", !token.special, what, &token.normalized));
    LS_TRY(ls__field_bool(ctx, json, "lstrip", false, what, &token.lstrip));
    LS_TRY(ls__field_bool(ctx, json, "rstrip", false, what, &token.rstrip));
    LS_TRY(ls__field_bool(ctx, json, "single_word", false, what, &token.single_word));
    if (json_string_length(content) == 0) return LS_OK;
    return ls__added_put(ctx, out, token, json_string_value(content), json_string_length(content));
}

static int compare_ids(const void *a, const void *b) {
    const ls_added_token *left = a, *right = b;
    return left->id < right->id ? -1 : left->id > right->id;
}

ls_status ls__added_read(ls_ctx *ctx, const json_t *list, const char *what, ls_added *out) {
    const json_t *member;
    size_t index;
    if (list != NULL && !json_is_array(list))
        return LS_FAIL(ctx, LS_EINPUT, "%s: `added_tokens` must be a list", what);
    json_array_foreach(list, index, member) {
        if (!json_is_object(member))
            return LS_FAIL(ctx, LS_EINPUT, "%s: an added token must be an object", what);
        LS_TRY(read_token(ctx, member, what, out));
    }
    return LS_OK;
}

ls_status ls__added_finish(ls_ctx *ctx, ls_added *added) {
    if (added->count > 0) qsort(added->tokens, added->count, sizeof *added->tokens, compare_ids);
    for (int form = 0; form < 2; form++) {
        size_t count = 0;
        ls_trie_key *keys = ls_new(ctx, added->count + 1, sizeof *keys);
        if (keys == NULL) return LS_ENOMEM;
        for (size_t i = 0; i < added->count; i++) {
            const ls_added_token *token = &added->tokens[i];
            if (token->normalized == (form == 1) && token->length > 0)
                keys[count++] =
                    (ls_trie_key){(const uint8_t *)token->content, token->length, (int32_t)i};
        }
        added->any[form] = count > 0;
        ls_status status = ls__trie_make(ctx, keys, count, &added->tries[form]);
        ls_free(ctx, keys);
        LS_TRY(status);
    }
    return LS_OK;
}

void ls__added_clear(ls_ctx *ctx, ls_added *added) {
    for (size_t i = 0; i < added->count; i++) ls_free(ctx, added->tokens[i].content);
    ls_free(ctx, added->tokens);
    for (int form = 0; form < 2; form++) ls__trie_clear(ctx, &added->tries[form]);
    *added = (ls_added){0};
}

const ls_added_token *ls__added_find(const ls_added *added, int32_t id) {
    ls_added_token wanted = {.id = id};
    return added->count == 0
               ? NULL
               : bsearch(&wanted, added->tokens, added->count, sizeof *added->tokens, compare_ids);
}

/* Where the character before `at` begins. */
static size_t step_back(const uint8_t *text, size_t at) {
    for (at--; at > 0 && (text[at] & 0xC0) == 0x80;) at--;
    return at;
}

static bool alone(const uint8_t *text, size_t length, size_t begin, size_t end) {
    int32_t point;
    if (begin > 0) {
        size_t before = step_back(text, begin);
        if (ls__utf8_take(text + before, begin - before, &point) > 0 && ls__is_word(point))
            return false;
    }
    return ls__utf8_take(text + end, length - end, &point) == 0 || !ls__is_word(point);
}

static void swallow(const uint8_t *text, size_t length, size_t done, ls_added_match *match) {
    int32_t point;
    while (match->token->lstrip && match->begin > done) {
        size_t before = step_back(text, match->begin);
        if (before < done || ls__utf8_take(text + before, match->begin - before, &point) == 0 ||
            !ls__is_white(point))
            break;
        match->begin = before;
    }
    for (size_t used; match->token->rstrip && match->end < length; match->end += used) {
        used = ls__utf8_take(text + match->end, length - match->end, &point);
        if (used == 0 || !ls__is_white(point)) break;
    }
}

ls_added_match ls__added_next(const ls_added *added, bool normalized, bool special,
                              const uint8_t *text, size_t length, size_t from, size_t done) {
    const ls_trie *trie = &added->tries[normalized];
    ls_added_match match = {.begin = length, .end = length, .next = length};
    if (!added->any[normalized]) return match;
    for (size_t at = from, used; at < length; at++) {
        if (trie->root[text[at]] == 0) continue;
        int32_t number = ls__trie_longest(trie, text + at, length - at, &used);
        if (number < 0) continue;
        const ls_added_token *token = &added->tokens[number];
        bool taken = (special || !token->special) &&
                     (!token->single_word || alone(text, length, at, at + used));
        if (taken) {
            match = (ls_added_match){token, at < done ? done : at, at + used, at + used};
            if (match.end < match.begin) match.end = match.begin;
            swallow(text, length, done, &match);
            return match;
        }
        at += used - 1;
    }
    return match;
}
