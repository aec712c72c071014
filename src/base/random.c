#include "base/random.h"

#include <math.h>

__extension__ typedef unsigned __int128 wide_word;

void ls_random_block(ls_random key, uint64_t index, uint32_t words[4]) {
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = key.stream, c3 = key.step;
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

uint32_t ls_random_word(ls_random key, uint64_t index) {
    uint32_t words[4];
    ls_random_block(key, index / 4, words);
    return words[index % 4];
}

double ls_random_unit(ls_random key, uint64_t index) {
    uint32_t words[4];
    ls_random_block(key, index / 2, words);
    uint64_t wide = ((uint64_t)words[2 * (index % 2)] << 32) | words[2 * (index % 2) + 1];
    return (double)(wide >> 11) * 0x1p-53;
}

double ls_random_normal(ls_random key, uint64_t index) {
    uint32_t words[4];
    ls_random_block(key, index / 2, words);
    double u = ((double)words[0] + (double)words[1] * 0x1p-32 + 0x1p-33) * 0x1p-32;
    double angle = ((double)words[2] + (double)words[3] * 0x1p-32) * 0x1p-32 * 6.283185307179586477;
    double radius = sqrt(-2.0 * log(u));
    return radius * (index % 2 == 0 ? cos(angle) : sin(angle));
}

uint64_t ls_random_below(ls_random key, uint64_t index, uint64_t bound) {
    uint32_t words[4];
    ls_random_block(key, index, words);
    uint64_t wide = ((uint64_t)words[0] << 32) | words[1];
    return (uint64_t)(((wide_word)wide * bound) >> 64);
}

uint64_t ls_random_permute(ls_random key, uint64_t index, uint64_t count) {
    enum { ROUNDS = 6 }; /* four suffice for large halves; small ones mix better with two more */
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < count) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = index >> half, right = index & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint32_t words[4];
            ls_random_block(key, round << 32 | right, words);
            uint64_t mixed = left ^ (words[0] & mask);
            left = right;
            right = mixed;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}

uint32_t ls_stream_of(const char *name) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = name; *c != '\0'; c++) hash = (hash ^ (uint8_t)*c) * 16777619u;
    return hash;
}
