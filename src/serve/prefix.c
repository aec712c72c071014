#include "serve/prefix.h"

#include <string.h>

static int64_t in_common(const ls_prefix *prefix, const int32_t *ids, int64_t count) {
    const int64_t most = ls_min(prefix->count, count);
    int64_t same = 0;
    while (same < most && prefix->tokens[same] == ids[same]) same++;
    return same;
}

const ls_prefix *ls_prefix_find(ls_prefixes *all, const int32_t *ids, int64_t count, int64_t tops) {
    ls_prefix *best = NULL;
    for (size_t i = 0; i < all->count; i++) {
        ls_prefix *prefix = &all->at[i];
        if (prefix->count <= count && (best == NULL || prefix->count > best->count) &&
            prefix->scored.tops >= tops && in_common(prefix, ids, count) == prefix->count)
            best = prefix;
    }
    if (best != NULL) best->used = ++all->clock;
    return best;
}

int64_t ls_prefix_shared(const ls_prefixes *all, const int32_t *ids, int64_t count) {
    int64_t most = 0;
    for (size_t i = 0; i < all->count; i++) most = ls_max(most, in_common(&all->at[i], ids, count));
    return most;
}

static void clear(ls_ctx *ctx, ls_prefix *prefix) {
    ls_stream_free(prefix->stream);
    ls_scored_clear(ctx, &prefix->scored);
    ls_free(ctx, prefix->tokens);
    ls_free(ctx, prefix->last);
}

static void drop(ls_ctx *ctx, ls_prefixes *all, size_t at) {
    all->bytes -= all->at[at].bytes;
    clear(ctx, &all->at[at]);
    all->at[at] = all->at[--all->count];
}

static void make_room(ls_ctx *ctx, ls_prefixes *all, size_t bytes) {
    while (all->count > 0 && all->bytes + bytes > all->most) {
        size_t oldest = 0;
        for (size_t i = 1; i < all->count; i++)
            if (all->at[i].used < all->at[oldest].used) oldest = i;
        drop(ctx, all, oldest);
    }
}

static ls_status fill(ls_ctx *ctx, ls_prefix *prefix, const int32_t *ids, const ls_stream *stream,
                      const ls_scored *scored, const double *last, int64_t vocabulary) {
    const size_t count = (size_t)prefix->count;
    if ((prefix->tokens = ls_new_raw(ctx, count, sizeof *ids)) == NULL) return LS_ENOMEM;
    memcpy(prefix->tokens, ids, count * sizeof *ids);
    if (scored != NULL) {
        prefix->scored.tops = scored->tops;
        LS_TRY(ls_scored_copy(ctx, &prefix->scored, scored, count));
        prefix->last = ls_new_raw(ctx, (size_t)vocabulary, sizeof *last);
        if (prefix->last == NULL) return LS_ENOMEM;
        memcpy(prefix->last, last, (size_t)vocabulary * sizeof *last);
    }
    return ls_stream_fork(stream, &prefix->stream);
}

ls_status ls_prefix_keep(ls_ctx *ctx, ls_prefixes *all, const int32_t *ids, int64_t count,
                         const ls_stream *stream, const ls_scored *scored, const double *last,
                         int64_t vocabulary) {
    const int64_t tops = scored == NULL ? -1 : scored->tops;
    for (size_t i = 0; i < all->count; i++) {
        if (all->at[i].count != count || in_common(&all->at[i], ids, count) != count) continue;
        if (all->at[i].scored.tops >= tops) return LS_OK;
        drop(ctx, all, i); /* this one knows more */
        break;
    }
    const size_t bytes =
        ls_stream_state_bytes(stream) + (size_t)count * sizeof *ids +
        (tops < 0 ? 0 : (size_t)vocabulary * sizeof *last + (size_t)count * (size_t)(tops + 2) * 8);
    if (bytes > all->most / 2) return LS_OK;
    make_room(ctx, all, bytes);
    if (!ls_array_reserve(ctx, &all->at, &all->capacity, all->count + 1, sizeof *all->at))
        return LS_ENOMEM;
    ls_prefix made = {.count = count, .scored = {.tops = -1}, .bytes = bytes, .used = ++all->clock};
    ls_status status = fill(ctx, &made, ids, stream, scored, last, vocabulary);
    if (status != LS_OK) {
        clear(ctx, &made);
        return status;
    }
    all->at[all->count++] = made;
    all->bytes += bytes;
    return LS_OK;
}

void ls_prefixes_clear(ls_ctx *ctx, ls_prefixes *all) {
    while (all->count > 0) drop(ctx, all, 0);
    ls_free(ctx, all->at);
    *all = (ls_prefixes){0};
}
