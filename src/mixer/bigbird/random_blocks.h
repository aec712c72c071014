/* The random blocks of BigBird, as its public code draws them. */
#ifndef LS_MIXER_BIGBIRD_RANDOM_BLOCKS_H
#define LS_MIXER_BIGBIRD_RANDOM_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    LS_DRAW_NUMPY, /* from numpy's legacy generator, in the order of the public code */
    LS_DRAW_ZERO,  /* block 0 every time: what the transformers library does outside training */
    LS_DRAW_FRESH, /* from our own numbers, among all blocks that are not seen anyway */
} ls_draw;

typedef struct ls_random_blocks {
    int64_t size, blocks; /* positions in a block; blocks of a sequence, the last one filled up */
    int64_t heads, each;  /* blocks drawn for a row */
    uint32_t seed;
    ls_draw draw;
    bool original; /* at 2,048 tokens too, blocks are drawn as for 1,024, 3,072 and 4,096 */
    bool few;      /* sequences of at most 2 each + 5 blocks draw too */
} ls_random_blocks;

/* Whether blocks are drawn for a sequence of this length; shorter ones see everything. */
bool ls_random_blocks_exist(const ls_random_blocks *about);
/* out[heads][blocks - 2][each] for the rows 1 .. blocks - 2, where they exist; false where a row
 * has fewer blocks to choose from. */
bool ls_random_blocks_draw(const ls_random_blocks *about, int32_t *out);

#endif
