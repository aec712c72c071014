/* Counter-based random numbers (Philox4x32-10, Salmon et al. 2011).
 *
 * A number is a pure function of (seed, stream, step, index): no generator state exists, so a
 * resumed run, another thread count or a recomputed segment draws the same numbers. */
#ifndef LS_BASE_RANDOM_H
#define LS_BASE_RANDOM_H

#include <stdint.h>

typedef struct ls_random {
    uint64_t seed;
    uint32_t stream; /* what the numbers are for: see ls_stream_of */
    uint32_t step;   /* training step, or 0 */
} ls_random;

/* Four independent 32-bit words for the block `index`. */
void ls_random_block(ls_random key, uint64_t index, uint32_t words[4]);
/* Word `index` of the stream, uniform over 32 bits. */
uint32_t ls_random_word(ls_random key, uint64_t index);
/* Uniform in [0, 1) with 53 bits. */
double ls_random_unit(ls_random key, uint64_t index);
/* Standard normal. */
double ls_random_normal(ls_random key, uint64_t index);
/* Uniform in [0, bound), without modulo bias beyond 2^-32; bound > 0. */
uint64_t ls_random_below(ls_random key, uint64_t index, uint64_t bound);
/* Where `index` goes in a permutation of [0, count) drawn by the key; index < count. Costs no
 * memory whatever the count: a Feistel network walked until it lands inside. */
uint64_t ls_random_permute(ls_random key, uint64_t index, uint64_t count);
/* A stream number from a name, so that streams never collide by position. */
uint32_t ls_stream_of(const char *name);

#endif
