#include "mixer/bigbird/random_blocks.h"

#include "base/memory.h"
#include "base/random.h"

/* ---- numpy's legacy generator: MT19937 ---- */

enum { WORDS = 624, APART = 397 };
typedef struct twister {
    uint32_t word[WORDS];
    int at;
} twister;

static void seed_twister(twister *t, uint32_t seed) {
    t->word[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        t->word[i] = 1812433253u * (t->word[i - 1] ^ (t->word[i - 1] >> 30)) + i;
    t->at = WORDS;
}

static void renew(twister *t) {
    for (int i = 0; i < WORDS; i++) {
        uint32_t both = (t->word[i] & 0x80000000u) | (t->word[(i + 1) % WORDS] & 0x7fffffffu);
        t->word[i] = t->word[(i + APART) % WORDS] ^ (both >> 1) ^ ((both & 1) ? 0x9908b0dfu : 0);
    }
    t->at = 0;
}

static uint32_t next_word(twister *t) {
    if (t->at == WORDS) renew(t);
    uint32_t x = t->word[t->at++];
    x ^= x >> 11;
    x ^= (x << 7) & 0x9d2c5680u;
    x ^= (x << 15) & 0xefc60000u;
    return x ^ (x >> 18);
}

/* A whole number from 0 to most. */
static uint32_t next_up_to(twister *t, uint32_t most) {
    uint32_t mask = most, value;
    for (int shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
    do value = next_word(t) & mask;
    while (value > most);
    return value;
}

static void shuffle(twister *t, int32_t *values, int64_t count) {
    for (int64_t i = count - 1; i > 0; i--) {
        uint32_t j = next_up_to(t, (uint32_t)i);
        int32_t kept = values[i];
        values[i] = values[j];
        values[j] = kept;
    }
}

/* ---- the lengths of the paper's models ---- */

/* Their lists are drawn once for 4,096 tokens, from the first 1,024, and cut to the length. */
enum { GRID = 4096, SOURCE = 1024, CHOICES_MAX = 4096 };

static bool has_grid(const ls_random_blocks *about) {
    const int64_t length = about->size * about->blocks;
    if (GRID % about->size != 0) return false;
    return length == 1024 || length == 3072 || length == 4096 ||
           (about->original && length == 2048);
}

/* Blocks [first, end), of which there are `all`, appended to the choices. */
static int64_t add_range(int64_t first, int64_t end, int64_t all, int32_t *choices, int64_t count) {
    for (int64_t k = first; k < ls_min(end, all); k++)
        choices[count++] = (int32_t)(k + 1); /* the first block is not among them */
    return count;
}

static int64_t grid_choices(int64_t row, int64_t size, int32_t *choices) {
    const int64_t blocks = GRID / size, all = blocks - 2;
    const int64_t last = SOURCE > 2 * size ? SOURCE / size - 1 : blocks - 1;
    if (row <= 2) return add_range(row + 1, last, all, choices, 0);
    if (row >= blocks - 3 || row - 2 > last) return add_range(0, last, all, choices, 0);
    int64_t count = add_range(0, row - 2, all, choices, 0);
    return row + 1 == last ? count : add_range(row + 1, last, all, choices, count);
}

static bool draw_grid(const ls_random_blocks *about, twister *t, int32_t *out) {
    const int64_t rows = about->blocks - 2;
    int32_t choices[CHOICES_MAX];
    for (int64_t h = 0; h < about->heads; h++)
        for (int64_t row = 1; row < GRID / about->size - 1; row++) {
            int64_t count = grid_choices(row, about->size, choices);
            shuffle(t, choices, count);
            if (row > rows) continue; /* drawn all the same: the next head's numbers follow */
            if (count < about->each) return false;
            for (int64_t i = 0; i < about->each; i++)
                out[(h * rows + row - 1) * about->each + i] = choices[i];
        }
    return true;
}

/* ---- other lengths ---- */

/* Seen anyway, or kept from rows next to the ends. */
static bool excluded(int64_t row, int64_t block, int64_t end) {
    if (block >= row - 1 && block <= row + 1) return true;
    if (block == 0 || block == end - 1) return true;
    return (row == 1 && block == end - 2) || (row == end - 2 && block == 1);
}

/* Blocks [first, end), of which a row is given `count`, in columns from `column` on. */
typedef struct span {
    int64_t first, end, count, column;
} span;

/* A single block that can be had stands for all of them, as numpy copies it; false: there are
 * otherwise too few. */
static bool draw_span(twister *t, int64_t row, span from, int32_t *out) {
    int32_t choices[CHOICES_MAX];
    int64_t taken = 0;
    if (from.end - from.first > CHOICES_MAX) return false;
    for (int64_t k = from.first; k < from.end; k++) choices[k - from.first] = (int32_t)k;
    shuffle(t, choices, from.end - from.first);
    for (int64_t i = 0; i < from.end - from.first && taken < from.count; i++)
        if (!excluded(row, choices[i], from.end)) choices[taken++] = choices[i];
    if (taken < from.count && taken != 1) return false;
    for (int64_t i = 0; i < from.count; i++) out[from.column + i] = choices[taken == 1 ? 0 : i];
    return true;
}

/* Rows [row, end), each for all heads. The last block is drawn for too, and needs nothing. */
static bool draw_rows(const ls_random_blocks *about, twister *t, int64_t row, int64_t end,
                      span from, int32_t *out) {
    int32_t unused[CHOICES_MAX];
    const int64_t rows = about->blocks - 2;
    if (from.column + from.count > CHOICES_MAX) return false;
    for (; from.count > 0 && row < end; row++)
        for (int64_t h = 0; h < about->heads; h++) {
            int32_t *to = row > rows ? unused : out + (h * rows + row - 1) * about->each;
            if (!draw_span(t, row, from, to)) return false;
        }
    return true;
}

/* With enough blocks all rows choose among the first 2 each + 5. With fewer than that, half of
 * what they get comes from the first each + 5 and the rest from those behind. */
static bool draw_first(const ls_random_blocks *about, twister *t, int32_t *out) {
    const int64_t all = about->blocks, each = about->each, enough = 2 * each + 5, few = each + 5;
    if (all > enough || all <= few)
        return draw_rows(about, t, 1, all, (span){0, ls_min(all, enough), each, 0}, out);
    const span front = {0, few, each / 2, 0}, behind = {few, all, each - each / 2, each / 2};
    return draw_rows(about, t, 1, few, front, out) && draw_rows(about, t, 1, few, behind, out) &&
           draw_rows(about, t, few, all, front, out) && draw_rows(about, t, few, all, behind, out);
}

static void draw_fresh(const ls_random_blocks *about, int32_t *out) {
    const int64_t rows = about->blocks - 2;
    for (int64_t at = 0; at < about->heads * rows; at++) {
        const ls_random key = {
            .seed = about->seed, .stream = ls_stream_of("bigbird"), .step = (uint32_t)at};
        for (int64_t taken = 0, i = 0; taken < about->each; i++) {
            uint64_t block = ls_random_permute(key, (uint64_t)i, (uint64_t)about->blocks);
            if (!excluded(at % rows + 1, (int64_t)block, about->blocks))
                out[at * about->each + taken++] = (int32_t)block;
        }
    }
}

bool ls_random_blocks_exist(const ls_random_blocks *about) {
    if (about->each == 0 || about->few) return about->blocks >= 5;
    return about->blocks > 2 * about->each + 5;
}

bool ls_random_blocks_draw(const ls_random_blocks *about, int32_t *out) {
    twister t;
    seed_twister(&t, about->seed);
    if (about->draw == LS_DRAW_FRESH) {
        if (about->blocks < about->each + 5) return false;
        draw_fresh(about, out);
        return true;
    }
    if (about->draw == LS_DRAW_NUMPY)
        return has_grid(about) ? draw_grid(about, &t, out) : draw_first(about, &t, out);
    for (int64_t i = 0; i < about->heads * (about->blocks - 2) * about->each; i++) out[i] = 0;
    return true;
}
