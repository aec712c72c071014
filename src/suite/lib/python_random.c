#include "suite/lib/python_random.h"

enum { N = 624, M = 397 };

static void fill(ls_python_random *r, uint32_t seed) {
    r->words[0] = seed;
    for (uint32_t i = 1; i < N; i++)
        r->words[i] = 1812433253u * (r->words[i - 1] ^ r->words[i - 1] >> 30) + i;
    r->at = N;
}

/* init_by_array with the one word of the seed. */
void ls_python_seed(ls_python_random *r, uint32_t seed) {
    uint32_t *w = r->words;
    fill(r, 19650218u);
    int i = 1;
    for (int k = 0; k < N; k++) {
        w[i] = (w[i] ^ (w[i - 1] ^ w[i - 1] >> 30) * 1664525u) + seed;
        if (++i == N) {
            w[0] = w[N - 1];
            i = 1;
        }
    }
    for (int k = 0; k < N - 1; k++) {
        w[i] = (w[i] ^ (w[i - 1] ^ w[i - 1] >> 30) * 1566083941u) - (uint32_t)i;
        if (++i == N) {
            w[0] = w[N - 1];
            i = 1;
        }
    }
    w[0] = 0x80000000u;
}

static uint32_t next_word(ls_python_random *r) {
    uint32_t *w = r->words;
    if (r->at == N) {
        for (int i = 0; i < N; i++) {
            const uint32_t y = (w[i] & 0x80000000u) | (w[(i + 1) % N] & 0x7fffffffu);
            w[i] = w[(i + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        r->at = 0;
    }
    uint32_t y = w[r->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* Uniform below a number that fits into 32 bits: as many bits as it has, until they are below. */
static size_t below(ls_python_random *r, size_t bound) {
    int bits = 0;
    while (bound >> bits != 0) bits++;
    size_t drawn;
    do drawn = next_word(r) >> (32 - bits);
    while (drawn >= bound);
    return drawn;
}

void ls_python_shuffle(ls_python_random *r, size_t *order, size_t count) {
    for (size_t i = 0; i < count; i++) order[i] = i;
    for (size_t i = count; i-- > 1;) {
        const size_t j = below(r, i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}
