/* Where no piece reaches beyond a place, every way goes through it: the pieces before it are handed
 * out at once, and the score is carried on. So a long text takes little memory, and the sums are
 * those of the whole. */
#include "data/tokenizer/unigram.h"

#include "data/tokenizer/unicode.h"

void ls__unigram_clear(ls_ctx *ctx, ls_unigram *unigram) {
    ls__trie_clear(ctx, &unigram->trie);
    ls_free(ctx, unigram->scores);
    ls_free(ctx, unigram->user);
    *unigram = (ls_unigram){0};
}

void ls__unigram_work_clear(ls_ctx *ctx, ls_unigram_work *work) {
    ls_free(ctx, work->nodes);
    ls_free(ctx, work->ends);
    *work = (ls_unigram_work){0};
}

typedef struct search {
    const ls_unigram *unigram;
    ls_unigram_work *work;
    const uint8_t *text; /* from the last place that every way goes through */
    size_t reach;        /* nodes up to here are set */
} search;

/* A piece from `begin` to `end` is one way to come to `end`; of equal ways the first stays. */
static ls_status offer(ls_ctx *ctx, search *s, size_t begin, size_t end, int32_t id,
                       double candidate) {
    if (end > s->reach) {
        if (!ls_array_reserve(ctx, &s->work->nodes, &s->work->capacity, end + 1,
                              sizeof *s->work->nodes))
            return LS_ENOMEM;
        while (s->reach < end) s->work->nodes[++s->reach].length = 0;
    }
    ls_unigram_node *node = &s->work->nodes[end];
    if (node->length > 0 && !(candidate > node->score)) return LS_OK;
    node->score = s->unigram->single ? (double)(float)candidate : candidate;
    node->id = id;
    node->length = (uint32_t)(end - begin);
    return LS_OK;
}

static double piece_score(const ls_unigram *u, int32_t id, size_t length) {
    if (u->user != NULL && u->user[id]) return (double)((float)length * u->user_score) - 0.1;
    return u->scores[id];
}

/* All pieces that begin at `at`, where the text has `left` bytes more. */
static ls_status offer_all(ls_ctx *ctx, search *s, size_t at, size_t left) {
    const ls_unigram *u = s->unigram;
    const double before = s->work->nodes[at].score;
    const size_t one = ls__utf8_length(s->text + at, left);
    bool single = false;
    uint32_t node = 0;
    for (size_t used = 1; used <= left; used++) {
        node = ls__trie_step(&u->trie, node, s->text[at + used - 1]);
        if (node == 0) break;
        int32_t id = u->trie.nodes[node].value;
        if (id < 0) continue;
        LS_TRY(offer(ctx, s, at, at + used, id, piece_score(u, id, used) + before));
        if (used == one) single = true;
    }
    if (single) return LS_OK;
    double score = u->unk_score + before;
    return offer(ctx, s, at, at + one, u->unk, u->single ? (double)(float)score : score);
}

/* Hands out the best way to `end`. */
static ls_status hand_out(ls_ctx *ctx, search *s, size_t end, ls_unigram_take take, void *user) {
    size_t count = 0;
    for (size_t at = end; at > 0; at -= s->work->nodes[at].length) {
        if (!ls_array_reserve(ctx, &s->work->ends, &s->work->end_capacity, count + 1,
                              sizeof *s->work->ends))
            return LS_ENOMEM;
        s->work->ends[count++] = (uint32_t)at;
    }
    while (count > 0) {
        size_t at = s->work->ends[--count];
        const ls_unigram_node *node = &s->work->nodes[at];
        LS_TRY(take(ctx, user, s->text + at - node->length, node->length, node->id));
    }
    return LS_OK;
}

ls_status ls__unigram_run(ls_ctx *ctx, const ls_unigram *unigram, ls_unigram_work *work,
                          const uint8_t *text, size_t length, ls_unigram_take take, void *user) {
    search s = {.unigram = unigram, .work = work, .text = text};
    if (length > UINT32_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "a text of %zu bytes is too long to encode", length);
    if (!ls_array_reserve(ctx, &work->nodes, &work->capacity, 1, sizeof *work->nodes))
        return LS_ENOMEM;
    work->nodes[0] = (ls_unigram_node){0};
    size_t at = 0;
    while (length > 0) {
        LS_TRY(offer_all(ctx, &s, at, length - at));
        at += ls__utf8_length(s.text + at, length - at);
        if (at < s.reach) continue;
        LS_TRY(ls_check_stop(ctx, "tokenising"));
        LS_TRY(hand_out(ctx, &s, at, take, user));
        work->nodes[0] = (ls_unigram_node){.score = work->nodes[at].score};
        s.text += at;
        length -= at;
        s.reach = at = 0;
    }
    return LS_OK;
}
