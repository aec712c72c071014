/* Drawing a token: temperature, then the k most likely, then the smallest set whose share is p. */
#include <math.h>
#include <stdlib.h>

#include "model/model.h"

static int descending(const void *a, const void *b) {
    const double *x = a, *y = b; /* pairs of (logit, token) */
    if (x[0] != y[0]) return x[0] < y[0] ? 1 : -1;
    return x[1] < y[1] ? -1 : x[1] > y[1];
}

int32_t ls_sample(const ls_sampling *how, const double *logits, int64_t vocabulary, uint64_t index,
                  double *scratch) {
    int32_t best = 0;
    for (int64_t i = 1; i < vocabulary; i++)
        if (logits[i] > logits[best]) best = (int32_t)i;
    if (how->temperature <= 0) return best;
    for (int64_t i = 0; i < vocabulary; i++) {
        scratch[2 * i] = (logits[i] - logits[best]) / how->temperature;
        scratch[2 * i + 1] = (double)i;
    }
    qsort(scratch, (size_t)vocabulary, 2 * sizeof *scratch, descending);
    int64_t kept = how->top_k > 0 ? ls_min(how->top_k, vocabulary) : vocabulary;
    double total = 0, share = 0;
    for (int64_t i = 0; i < kept; i++) total += scratch[2 * i] = exp(scratch[2 * i]);
    if (how->top_p < 1) {
        int64_t few = 0;
        while (few < kept && share < how->top_p * total) share += scratch[2 * few++];
        kept = ls_max(few, 1);
        total = share;
    }
    ls_random key = {.seed = how->seed, .stream = ls_stream_of("sample")};
    double point = ls_random_unit(key, index) * total;
    for (int64_t i = 0; i < kept; i++) {
        point -= scratch[2 * i];
        if (point < 0) return (int32_t)scratch[2 * i + 1];
    }
    return (int32_t)scratch[2 * (kept - 1) + 1];
}
