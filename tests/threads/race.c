/* What ThreadSanitizer must see, and must not: `race` has one, `race ordered` has only what
 * OpenMP's forks, barriers and critical sections order. */
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 20 };

static long shared[THREADS], sums[THREADS], total;

static void ordered(void) {
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < THREADS; i++) shared[i] = round; /* before the fork */
#pragma omp parallel num_threads(THREADS)
        {
#pragma omp for schedule(static, 1)
            for (int i = 0; i < THREADS; i++) sums[i] = shared[i] + i;
#pragma omp for schedule(static, 1) /* after a barrier: what another thread wrote */
            for (int i = 0; i < THREADS; i++) shared[i] = sums[(i + 1) % THREADS];
#pragma omp critical
            total += shared[0];
        }
        total += shared[1]; /* after the join */
    }
}

static void racing(void) {
#pragma omp parallel num_threads(THREADS)
    for (int i = 0; i < ROUNDS; i++) total += i;
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1)
        ordered();
    else
        racing();
    printf("%ld\n", total);
    return 0;
}
