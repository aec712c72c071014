#include "data/tokenizer/vocabulary.h"

#include <string.h>

#include "base/file.h"
#include "data/tokenizer/unicode.h"

ls_status ls__vocabulary_make(ls_ctx *ctx, const ls_bytes *entries, size_t count, const char *what,
                              ls_vocabulary *out) {
    size_t bytes = 0;
    *out = (ls_vocabulary){0};
    if (count > LS_VOCABULARY_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: more than %d tokens", what, LS_VOCABULARY_MAX);
    for (size_t i = 0; i < count; i++) {
        if (entries[i].length > UINT32_MAX - bytes)
            return LS_FAIL(ctx, LS_EINPUT, "%s has tokens of more than 4 GiB in all", what);
        bytes += entries[i].length;
    }
    out->count = (int32_t)count;
    out->begin = ls_new(ctx, count + 1, sizeof *out->begin);
    out->pool = out->begin == NULL ? NULL : ls_new(ctx, bytes + 1, 1);
    if (out->pool == NULL) {
        ls__vocabulary_clear(ctx, out);
        return LS_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        if (entries[i].length > 0)
            memcpy(out->pool + out->begin[i], entries[i].at, entries[i].length);
        out->begin[i + 1] = out->begin[i] + (uint32_t)entries[i].length;
    }
    return LS_OK;
}

/* Where a string is, or would be put. */
static size_t slot_of(const ls_vocabulary *v, const void *bytes, size_t length) {
    size_t at = (size_t)ls_hash(bytes, length) & v->mask;
    for (; v->slots[at] >= 0; at = (at + 1) & v->mask) {
        ls_bytes entry = ls__vocabulary_at(v, v->slots[at]);
        if (entry.length == length && memcmp(entry.at, bytes, length) == 0) break;
    }
    return at;
}

ls_status ls__vocabulary_index(ls_ctx *ctx, ls_vocabulary *v, const bool *skip) {
    size_t slots = 16;
    while (slots < 2 * (size_t)v->count) slots *= 2;
    v->slots = ls_new_raw(ctx, slots, sizeof *v->slots);
    if (v->slots == NULL) return LS_ENOMEM;
    v->mask = slots - 1;
    for (size_t i = 0; i < slots; i++) v->slots[i] = -1;
    for (int32_t id = 0; id < v->count; id++) {
        ls_bytes entry = ls__vocabulary_at(v, id);
        if (entry.length > 0 && (skip == NULL || !skip[id]))
            v->slots[slot_of(v, entry.at, entry.length)] = id;
    }
    return LS_OK;
}

int32_t ls__vocabulary_find(const ls_vocabulary *v, const void *bytes, size_t length) {
    return length == 0 ? -1 : v->slots[slot_of(v, bytes, length)];
}

int32_t *ls__vocabulary_characters(ls_ctx *ctx, const ls_vocabulary *v) {
    int32_t *ids = ls_new_raw(ctx, LS_DIRECT, sizeof *ids);
    for (int32_t point = 0; ids != NULL && point < LS_DIRECT; point++) {
        uint8_t bytes[4];
        size_t length = ls__utf8_put(point, bytes);
        ids[point] = ls__vocabulary_find(v, bytes, length);
    }
    return ids;
}

void ls__vocabulary_clear(ls_ctx *ctx, ls_vocabulary *v) {
    ls_free(ctx, v->begin);
    ls_free(ctx, v->pool);
    ls_free(ctx, v->slots);
    *v = (ls_vocabulary){0};
}
