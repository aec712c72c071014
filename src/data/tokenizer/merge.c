#include "data/tokenizer/merge.h"

#include "data/tokenizer/unicode.h"

enum { SHORT_WORD = 64 };

static size_t pair_home(int32_t left, int32_t right, size_t mask) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9E3779B97F4A7C15u;
    return (size_t)(key ^ key >> 32) & mask;
}

static size_t pair_slot(const ls_merges *m, int32_t left, int32_t right) {
    size_t at = pair_home(left, right, m->mask);
    for (; m->slots[at] >= 0; at = (at + 1) & m->mask) {
        const ls_merge *merge = &m->list[m->slots[at]];
        if (merge->left == left && merge->right == right) break;
    }
    return at;
}

const ls_merge *ls__merges_find(const ls_merges *merges, int32_t left, int32_t right) {
    int32_t number = merges->slots[pair_slot(merges, left, right)];
    return number < 0 ? NULL : &merges->list[number];
}

ls_status ls__merges_index(ls_ctx *ctx, ls_merges *m, int32_t *again) {
    size_t slots = 16; /* at most half full */
    while (slots < 2 * (size_t)m->count) slots *= 2;
    m->slots = ls_new_raw(ctx, slots, sizeof *m->slots);
    if (m->slots == NULL) return LS_ENOMEM;
    m->mask = slots - 1;
    for (size_t i = 0; i < slots; i++) m->slots[i] = -1;
    if (again != NULL) *again = -1;
    for (int32_t i = 0; i < m->count; i++) {
        int32_t *slot = &m->slots[pair_slot(m, m->list[i].left, m->list[i].right)];
        if (*slot >= 0 && again != NULL) *again = i;
        *slot = i;
    }
    return LS_OK;
}

void ls__merges_clear(ls_ctx *ctx, ls_merges *merges) {
    ls_free(ctx, merges->list);
    ls_free(ctx, merges->slots);
    ls_free(ctx, merges->joins);
    *merges = (ls_merges){0};
}

ls_status ls__merges_join_start(ls_ctx *ctx, ls_merges *merges) {
    merges->joins = ls_new(ctx, (1u << LS_JOIN_BITS) / 64, sizeof *merges->joins);
    return merges->joins == NULL ? LS_ENOMEM : LS_OK;
}

void ls__merges_join(ls_merges *merges, int32_t last, int32_t first) {
    uint32_t hash = ls__join_hash(last, first);
    merges->joins[hash / 64] |= 1ull << hash % 64;
}

size_t ls__merges_part(const ls_merges *merges, const uint8_t *text, size_t length) {
    int32_t before = 0, point = 0;
    size_t at = 0;
    for (size_t used; at < length; at += used, before = point) {
        used = ls__utf8_take(text + at, length - at, &point);
        if (used == 0) used = 1;
        if (at > 0 && !ls__merges_may_join(merges, before, point)) break;
    }
    return at;
}

void ls__merge_work_clear(ls_ctx *ctx, ls_merge_work *work) {
    ls_free(ctx, work->before);
    ls_free(ctx, work->after);
    ls_free(ctx, work->heap);
    *work = (ls_merge_work){0};
}

/* A short word scans for the next merge. */
static size_t merge_short(const ls_merges *m, int32_t *symbols, size_t count) {
    const ls_merge *merges[SHORT_WORD];
    for (size_t i = 0; i + 1 < count; i++)
        merges[i] = ls__merges_find(m, symbols[i], symbols[i + 1]);
    for (;;) {
        size_t best = count;
        int32_t rank = INT32_MAX;
        for (size_t i = 0; i + 1 < count; i++)
            if (merges[i] != NULL && (best == count || merges[i]->rank < rank)) {
                best = i;
                rank = merges[i]->rank;
            }
        if (best == count) return count;
        symbols[best] = merges[best]->result;
        count--;
        for (size_t i = best + 1; i < count; i++) symbols[i] = symbols[i + 1];
        for (size_t i = best + 1; i + 1 < count; i++) merges[i] = merges[i + 1];
        if (best > 0) merges[best - 1] = ls__merges_find(m, symbols[best - 1], symbols[best]);
        if (best + 1 < count) merges[best] = ls__merges_find(m, symbols[best], symbols[best + 1]);
    }
}

static ls_status heap_push(ls_ctx *ctx, ls_merge_work *w, uint64_t key) {
    if (!ls_array_reserve(ctx, &w->heap, &w->heap_capacity, w->heap_count + 1, sizeof *w->heap))
        return LS_ENOMEM;
    size_t at = w->heap_count++;
    for (; at > 0 && w->heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = key;
    return LS_OK;
}

static uint64_t heap_pop(ls_merge_work *w) {
    uint64_t top = w->heap[0], key = w->heap[--w->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < w->heap_count; at = child) {
        if (child + 1 < w->heap_count && w->heap[child + 1] < w->heap[child]) child++;
        if (w->heap[child] >= key) break;
        w->heap[at] = w->heap[child];
    }
    w->heap[at] = key;
    return top;
}

static ls_status push_pair(ls_ctx *ctx, const ls_merges *m, ls_merge_work *w,
                           const int32_t *symbols, int32_t at) {
    if (at < 0 || w->after[at] < 0) return LS_OK;
    const ls_merge *merge = ls__merges_find(m, symbols[at], symbols[w->after[at]]);
    if (merge == NULL) return LS_OK;
    if (w->seen != NULL) w->seen(w->user, merge);
    return heap_push(ctx, w, (uint64_t)(uint32_t)merge->rank << 32 | (uint32_t)at);
}

/* A long one (a line of 10,000 dashes) keeps a heap. Entries are never taken out when their pair
 * is: they are told by not having the rank of what stands at their place now. */
static ls_status merge_long(ls_ctx *ctx, const ls_merges *m, ls_merge_work *w, int32_t *symbols,
                            size_t *length) {
    if (*length > INT32_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "a word of %zu symbols is too long to encode", *length);
    if (!ls_array_reserve(ctx, &w->before, &w->before_capacity, *length, sizeof *w->before) ||
        !ls_array_reserve(ctx, &w->after, &w->after_capacity, *length, sizeof *w->after))
        return LS_ENOMEM;
    int32_t count = (int32_t)*length;
    w->heap_count = 0;
    for (int32_t i = 0; i < count; i++) {
        w->before[i] = i - 1;
        w->after[i] = i + 1 < count ? i + 1 : -1;
    }
    for (int32_t i = 0; i < count; i++) LS_TRY(push_pair(ctx, m, w, symbols, i));
    while (w->heap_count > 0) {
        uint64_t top = heap_pop(w);
        int32_t left = (int32_t)(uint32_t)top, right = w->after[left];
        if (right < 0 || symbols[left] < 0) continue;
        const ls_merge *merge = ls__merges_find(m, symbols[left], symbols[right]);
        if (merge == NULL || merge->rank != (int32_t)(top >> 32)) continue;
        symbols[left] = merge->result;
        symbols[right] = -1;
        w->after[left] = w->after[right];
        if (w->after[left] >= 0) w->before[w->after[left]] = left;
        w->after[right] = -1;
        LS_TRY(push_pair(ctx, m, w, symbols, w->before[left]));
        LS_TRY(push_pair(ctx, m, w, symbols, left));
    }
    size_t kept = 0;
    for (int32_t at = 0; at >= 0; at = w->after[at]) symbols[kept++] = symbols[at];
    *length = kept;
    return LS_OK;
}

ls_status ls__merge(ls_ctx *ctx, const ls_merges *merges, ls_merge_work *work, int32_t *symbols,
                    size_t *count) {
    if (*count < 2) return LS_OK;
    if (*count > SHORT_WORD || work->seen != NULL)
        return merge_long(ctx, merges, work, symbols, count);
    *count = merge_short(merges, symbols, *count);
    return LS_OK;
}
