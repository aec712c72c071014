/* Training byte pairs (Sennrich et al. 2016, on bytes as in GPT-2).
 *
 * Words are counted once; then the most frequent pair of neighbouring tokens is merged, again and
 * again. Each pair knows the words it occurred in, so that a merge touches only those; a heap with
 * out-of-date entries gives the next pair. Ties go to the smaller ids, hence one result. */
#include <string.h>

#include "base/file.h"
#include "data/tokenizer/bpe.h"

enum { TRAINED_TOKEN_BYTES = 128, FIRST_SLOTS = 1 << 12, LOOK_EVERY = 4096 };

typedef struct word_entry {
    size_t begin; /* in the pool of bytes, and of symbols while merging */
    int32_t length;
    int32_t stamp; /* the last merge that looked at it */
    int64_t count;
} word_entry;

struct ls_bpe_trainer {
    ls_bpe *bytes; /* the 256 bytes alone: lends its word pattern */
    ls_matcher matcher;
    ls_text pool;
    word_entry *words;
    size_t word_count, word_capacity;
    int32_t *slots; /* word number by hash, or -1 */
    size_t slot_count;
};

/* Adds a token to a tokenizer under construction. */
static void token_put(ls_bpe *bpe, const uint8_t *bytes, size_t length) {
    ls_vocabulary *pieces = &bpe->base.pieces;
    uint32_t begin = pieces->begin[pieces->count];
    memcpy(pieces->pool + begin, bytes, length);
    pieces->begin[++pieces->count] = begin + (uint32_t)length;
}

/* Room for `vocabulary` tokens, filled with the 256 bytes in GPT-2's order: visible ones first. */
static ls_status start_tokenizer(ls_ctx *ctx, int64_t vocabulary, ls_bpe **out) {
    *out = NULL;
    ls_bpe *bpe;
    LS_TRY(ls__tokenizer_new(ctx, &ls__bpe_kind, sizeof *bpe, &bpe));
    size_t room = (size_t)vocabulary;
    bpe->base.pieces.pool = ls_new(ctx, room, TRAINED_TOKEN_BYTES);
    if (bpe->base.pieces.pool == NULL) goto fail;
    bpe->base.pieces.begin = ls_new(ctx, room + 1, sizeof *bpe->base.pieces.begin);
    if (bpe->base.pieces.begin == NULL) goto fail;
    bpe->plain = ls_new(ctx, room, sizeof *bpe->plain);
    if (bpe->plain == NULL) goto fail;
    bpe->merges.list = ls_new(ctx, room, sizeof *bpe->merges.list);
    if (bpe->merges.list == NULL) goto fail;
    for (int32_t letter = 0; letter <= 323; letter++) {
        int32_t byte = ls__letter_byte(letter);
        uint8_t one = (uint8_t)byte;
        if (byte >= 0) token_put(bpe, &one, 1);
    }
    *out = bpe;
    return LS_OK;
fail:
    ls_tokenizer_free(ctx, &bpe->base);
    return LS_ENOMEM;
}

ls_status ls_bpe_trainer_new(ls_ctx *ctx, ls_bpe_trainer **out) {
    *out = NULL;
    ls_bpe_trainer *trainer = ls_new(ctx, 1, sizeof *trainer);
    if (trainer == NULL) return LS_ENOMEM;
    ls_status status;
    LS_TRY_GOTO(start_tokenizer(ctx, 256, &trainer->bytes));
    LS_TRY_GOTO(ls__bpe_complete(ctx, trainer->bytes, "the byte alphabet"));
    LS_TRY_GOTO(ls__matcher_init(ctx, &trainer->matcher));
    *out = trainer;
    return LS_OK;
fail:
    ls_bpe_trainer_free(ctx, trainer);
    return status;
}

void ls_bpe_trainer_free(ls_ctx *ctx, ls_bpe_trainer *trainer) {
    if (trainer == NULL) return;
    ls__matcher_clear(&trainer->matcher);
    if (trainer->bytes != NULL) ls_tokenizer_free(ctx, &trainer->bytes->base);
    ls_text_clear(ctx, &trainer->pool);
    ls_free(ctx, trainer->words);
    ls_free(ctx, trainer->slots);
    ls_free(ctx, trainer);
}

static size_t word_slot(const ls_bpe_trainer *trainer, const uint8_t *word, size_t length) {
    size_t mask = trainer->slot_count - 1, at = (size_t)ls_hash(word, length) & mask;
    for (; trainer->slots[at] >= 0; at = (at + 1) & mask) {
        const word_entry *entry = &trainer->words[trainer->slots[at]];
        if ((size_t)entry->length == length &&
            memcmp(trainer->pool.bytes + entry->begin, word, length) == 0)
            break;
    }
    return at;
}

static ls_status grow_slots(ls_ctx *ctx, ls_bpe_trainer *trainer) {
    size_t count = trainer->slot_count == 0 ? FIRST_SLOTS : 2 * trainer->slot_count;
    int32_t *slots = ls_new_raw(ctx, count, sizeof *slots);
    if (slots == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < count; i++) slots[i] = -1;
    ls_free(ctx, trainer->slots);
    trainer->slots = slots;
    trainer->slot_count = count;
    for (size_t i = 0; i < trainer->word_count; i++) {
        const word_entry *entry = &trainer->words[i];
        const uint8_t *bytes = (const uint8_t *)trainer->pool.bytes + entry->begin;
        slots[word_slot(trainer, bytes, (size_t)entry->length)] = (int32_t)i;
    }
    return LS_OK;
}

static ls_status count_word(ls_ctx *ctx, void *user, const uint8_t *word, size_t length) {
    ls_bpe_trainer *trainer = user;
    if (length < 2) return LS_OK; /* has no pair */
    if (length > INT32_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "a word of %zu bytes is too long to train on", length);
    if (2 * (trainer->word_count + 1) > trainer->slot_count) LS_TRY(grow_slots(ctx, trainer));
    size_t slot = word_slot(trainer, word, length);
    if (trainer->slots[slot] >= 0) {
        trainer->words[trainer->slots[slot]].count++;
        return LS_OK;
    }
    if (trainer->word_count >= INT32_MAX / 2)
        return LS_FAIL(ctx, LS_EINPUT, "more than %d different words", INT32_MAX / 2);
    if (!ls_array_reserve(ctx, &trainer->words, &trainer->word_capacity, trainer->word_count + 1,
                          sizeof *trainer->words))
        return LS_ENOMEM;
    word_entry entry = {trainer->pool.length, (int32_t)length, -1, 1};
    ls_text_append(ctx, &trainer->pool, word, length);
    LS_TRY(ls_text_status(&trainer->pool));
    trainer->words[trainer->word_count] = entry;
    trainer->slots[slot] = (int32_t)trainer->word_count++;
    return LS_OK;
}

ls_status ls_bpe_trainer_add(ls_ctx *ctx, ls_bpe_trainer *trainer, const char *text,
                             size_t length) {
    return ls__bpe_words(ctx, trainer->bytes->pattern, &trainer->matcher, (const uint8_t *)text,
                         length, count_word, trainer);
}

typedef struct pair_entry {
    int32_t left, right; /* left -1: free */
    int64_t count;
    int64_t visits; /* head of the list of words, or -1 */
} pair_entry;

typedef struct visit {
    int32_t word;
    int64_t next;
} visit;

typedef struct candidate {
    int64_t count;
    int32_t left, right;
} candidate;

/* One run of merging. */
typedef struct merger {
    word_entry *words;
    size_t word_count;
    int32_t *symbols;
    pair_entry *pairs;
    size_t pair_slots, pair_count;
    visit *visits;
    size_t visit_count, visit_capacity;
    candidate *heap;
    size_t heap_count, heap_capacity;
    candidate *fresh; /* pairs that a merge made or made more frequent */
    size_t fresh_count, fresh_capacity;
} merger;

static pair_entry *pair_find(const merger *m, int32_t left, int32_t right) {
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    size_t mask = m->pair_slots - 1, at = (size_t)(key ^ key >> 29) & mask;
    while (m->pairs[at].left >= 0 && (m->pairs[at].left != left || m->pairs[at].right != right))
        at = (at + 1) & mask;
    return &m->pairs[at];
}

static ls_status pairs_grow(ls_ctx *ctx, merger *m) {
    size_t old_slots = m->pair_slots, slots = old_slots == 0 ? FIRST_SLOTS : 2 * old_slots;
    pair_entry *old = m->pairs, *pairs = ls_new_raw(ctx, slots, sizeof *pairs);
    if (pairs == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < slots; i++) pairs[i].left = -1;
    m->pairs = pairs;
    m->pair_slots = slots;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].left >= 0) *pair_find(m, old[i].left, old[i].right) = old[i];
    ls_free(ctx, old);
    return LS_OK;
}

/* Counts a pair of a word; with word >= 0 the pair also remembers the word. */
static ls_status pair_add(ls_ctx *ctx, merger *m, int32_t left, int32_t right, int64_t count,
                          int32_t word) {
    if (2 * (m->pair_count + 1) > m->pair_slots) LS_TRY(pairs_grow(ctx, m));
    pair_entry *pair = pair_find(m, left, right);
    if (pair->left < 0) {
        *pair = (pair_entry){left, right, 0, -1};
        m->pair_count++;
    }
    pair->count += count;
    if (word < 0 || (pair->visits >= 0 && m->visits[pair->visits].word == word)) return LS_OK;
    if (!ls_array_reserve(ctx, &m->visits, &m->visit_capacity, m->visit_count + 1,
                          sizeof *m->visits))
        return LS_ENOMEM;
    m->visits[m->visit_count] = (visit){word, pair->visits};
    pair->visits = (int64_t)m->visit_count++;
    return LS_OK;
}

static bool comes_first(candidate a, candidate b) {
    if (a.count != b.count) return a.count > b.count;
    return a.left != b.left ? a.left < b.left : a.right < b.right;
}

static ls_status heap_push(ls_ctx *ctx, merger *m, candidate key) {
    if (!ls_array_reserve(ctx, &m->heap, &m->heap_capacity, m->heap_count + 1, sizeof *m->heap))
        return LS_ENOMEM;
    size_t at = m->heap_count++;
    for (; at > 0 && comes_first(key, m->heap[(at - 1) / 2]); at = (at - 1) / 2)
        m->heap[at] = m->heap[(at - 1) / 2];
    m->heap[at] = key;
    return LS_OK;
}

static candidate heap_pop(merger *m) {
    candidate top = m->heap[0], key = m->heap[--m->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < m->heap_count; at = child) {
        if (child + 1 < m->heap_count && comes_first(m->heap[child + 1], m->heap[child])) child++;
        if (!comes_first(m->heap[child], key)) break;
        m->heap[at] = m->heap[child];
    }
    m->heap[at] = key;
    return top;
}

static ls_status merger_start(ls_ctx *ctx, merger *m, const ls_bpe_trainer *trainer) {
    const uint8_t *bytes = (const uint8_t *)trainer->pool.bytes;
    m->symbols = ls_new_raw(ctx, trainer->pool.length + 1, sizeof *m->symbols);
    if (m->symbols == NULL) return LS_ENOMEM;
    m->words = ls_new_raw(ctx, trainer->word_count + 1, sizeof *m->words);
    if (m->words == NULL) return LS_ENOMEM;
    m->word_count = trainer->word_count;
    LS_TRY(pairs_grow(ctx, m));
    for (size_t w = 0; w < m->word_count; w++) {
        if (w % LOOK_EVERY == 0) LS_TRY(ls_check_stop(ctx, "learning a tokenizer"));
        word_entry *word = &m->words[w];
        *word = trainer->words[w];
        int32_t *symbols = m->symbols + word->begin;
        for (int32_t i = 0; i < word->length; i++)
            symbols[i] = trainer->bytes->byte_id[bytes[word->begin + (size_t)i]];
        for (int32_t i = 0; i + 1 < word->length; i++)
            LS_TRY(pair_add(ctx, m, symbols[i], symbols[i + 1], word->count, (int32_t)w));
    }
    for (size_t i = 0; i < m->pair_slots; i++) {
        const pair_entry *pair = &m->pairs[i];
        if (pair->left >= 0)
            LS_TRY(heap_push(ctx, m, (candidate){pair->count, pair->left, pair->right}));
    }
    return LS_OK;
}

/* Replaces the pair by `result` in one word and keeps all counts right. */
static ls_status merge_in_word(ls_ctx *ctx, merger *m, int32_t w, candidate pair, int32_t result) {
    word_entry *word = &m->words[w];
    int32_t *symbols = m->symbols + word->begin, count = 0;
    for (int32_t i = 0; i + 1 < word->length; i++)
        LS_TRY(pair_add(ctx, m, symbols[i], symbols[i + 1], -word->count, -1));
    for (int32_t i = 0; i < word->length; i++) {
        bool here = i + 1 < word->length && symbols[i] == pair.left && symbols[i + 1] == pair.right;
        symbols[count++] = here ? result : symbols[i];
        i += here;
    }
    word->length = count;
    for (int32_t i = 0; i + 1 < count; i++) {
        bool made = symbols[i] == result || symbols[i + 1] == result;
        LS_TRY(pair_add(ctx, m, symbols[i], symbols[i + 1], word->count, made ? w : -1));
        if (!made) continue;
        if (!ls_array_reserve(ctx, &m->fresh, &m->fresh_capacity, m->fresh_count + 1,
                              sizeof *m->fresh))
            return LS_ENOMEM;
        m->fresh[m->fresh_count++] = (candidate){0, symbols[i], symbols[i + 1]};
    }
    return LS_OK;
}

static ls_status merge_pair(ls_ctx *ctx, merger *m, candidate pair, int32_t stamp, int32_t result) {
    m->fresh_count = 0;
    int64_t at = pair_find(m, pair.left, pair.right)->visits;
    while (at >= 0) {
        int32_t word = m->visits[at].word;
        at = m->visits[at].next;
        if (m->words[word].stamp == stamp) continue;
        m->words[word].stamp = stamp;
        LS_TRY(merge_in_word(ctx, m, word, pair, result));
    }
    for (size_t i = 0; i < m->fresh_count; i++) {
        candidate next = m->fresh[i];
        pair_entry *entry = pair_find(m, next.left, next.right);
        next.count = entry->count;
        LS_TRY(heap_push(ctx, m, next));
    }
    return LS_OK;
}

/* Whether a token has these bytes already: there may be two ways of joining the same ones. */
static bool token_known(const ls_vocabulary *pieces, const uint8_t *bytes, size_t length) {
    for (int32_t id = 256; id < pieces->count; id++) {
        ls_bytes piece = ls__vocabulary_at(pieces, id);
        if (piece.length == length && memcmp(piece.at, bytes, length) == 0) return true;
    }
    return false;
}

static ls_status merge_all(ls_ctx *ctx, merger *m, int64_t vocabulary, ls_bpe *bpe) {
    const ls_vocabulary *pieces = &bpe->base.pieces;
    while (m->heap_count > 0 && pieces->count + 1 < vocabulary) {
        candidate top = heap_pop(m);
        LS_TRY(ls_check_stop(ctx, "learning a tokenizer"));
        const pair_entry *pair = pair_find(m, top.left, top.right);
        if (pair->count != top.count) {
            /* out of date; what grew was pushed again at once, what shrank is pushed now */
            if (pair->count > 1 && pair->count < top.count) {
                top.count = pair->count;
                LS_TRY(heap_push(ctx, m, top));
            }
            continue;
        }
        if (top.count < 2) break;
        uint8_t bytes[2 * TRAINED_TOKEN_BYTES];
        ls_bytes left = ls__vocabulary_at(pieces, top.left);
        ls_bytes right = ls__vocabulary_at(pieces, top.right);
        size_t both = left.length + right.length;
        if (both > TRAINED_TOKEN_BYTES) continue;
        memcpy(bytes, left.at, left.length);
        memcpy(bytes + left.length, right.at, right.length);
        /* a second way to an old token is left out, so that every merge brings a new one */
        if (token_known(pieces, bytes, both)) continue;
        int32_t result = pieces->count, rank = bpe->merges.count++;
        token_put(bpe, bytes, both);
        bpe->merges.list[rank] = (ls_merge){top.left, top.right, result, rank};
        LS_TRY(merge_pair(ctx, m, top, rank, result));
    }
    return LS_OK;
}

ls_status ls_bpe_trainer_finish(ls_ctx *ctx, ls_bpe_trainer *trainer, int64_t vocabulary,
                                ls_tokenizer **out) {
    merger m = {0};
    ls_bpe *bpe = NULL;
    *out = NULL;
    if (vocabulary < 257 || vocabulary > LS_VOCABULARY_MAX)
        return LS_FAIL(ctx, LS_EUSE, "a byte-pair vocabulary has 257 to %d ids, not %lld",
                       LS_VOCABULARY_MAX, (long long)vocabulary);
    ls_status status;
    LS_TRY_GOTO(start_tokenizer(ctx, vocabulary, &bpe));
    LS_TRY_GOTO(merger_start(ctx, &m, trainer));
    LS_TRY_GOTO(merge_all(ctx, &m, vocabulary, bpe));
    token_put(bpe, (const uint8_t *)LS_BPE_END_TEXT, sizeof LS_BPE_END_TEXT - 1);
    LS_TRY_GOTO(ls__bpe_complete(ctx, bpe, "the trained tokenizer"));
    *out = &bpe->base;
    bpe = NULL;
fail:
    if (bpe != NULL) ls_tokenizer_free(ctx, &bpe->base);
    ls_free(ctx, m.words);
    ls_free(ctx, m.symbols);
    ls_free(ctx, m.pairs);
    ls_free(ctx, m.visits);
    ls_free(ctx, m.heap);
    ls_free(ctx, m.fresh);
    return status;
}
