/* Python's random.Random seeded with a whole number: the Mersenne Twister (Matsumoto and Nishimura
 * 1998). RULER shuffles with it, so its prompts cannot be told without. */
#ifndef LS_SUITE_LIB_PYTHON_RANDOM_H
#define LS_SUITE_LIB_PYTHON_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct ls_python_random {
    uint32_t words[624];
    int at;
} ls_python_random;

void ls_python_seed(ls_python_random *random, uint32_t seed);
/* random.shuffle: after it, what stood at order[i] stands at i. */
void ls_python_shuffle(ls_python_random *random, size_t *order, size_t count);

#endif
