#include "eval/positions.h"

enum { ALONE = 64, PER_DOUBLING = 8 };

ls_status ls_position_losses_init(ls_ctx *ctx, int64_t length, ls_position_losses *out) {
    *out = (ls_position_losses){.length = length,
                                .sum = ls_new(ctx, (size_t)length, sizeof *out->sum),
                                .count = ls_new(ctx, (size_t)length, sizeof *out->count)};
    if (out->sum != NULL && out->count != NULL) return LS_OK;
    ls_position_losses_clear(ctx, out);
    return LS_ENOMEM;
}

void ls_position_losses_clear(ls_ctx *ctx, ls_position_losses *losses) {
    ls_free(ctx, losses->sum);
    ls_free(ctx, losses->count);
    *losses = (ls_position_losses){0};
}

/* Mean loss of the tokens at positions [first, end); 0 where there are none. */
static double mean_of(const ls_position_losses *losses, int64_t first, int64_t end) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t p = first; p < ls_min(end, losses->length); p++) {
        sum += losses->sum[p];
        count += losses->count[p];
    }
    return count == 0 ? 0 : sum / (double)count;
}

double ls_flat_tail(const ls_position_losses *at, const ls_position_losses *reference,
                    int64_t trained) {
    const double tail = mean_of(reference, trained / 2, trained);
    double sum = 0;
    int64_t count = 0;
    for (int64_t p = 0; p < at->length; p++) {
        bool known = p < trained && p < reference->length && reference->count[p] > 0;
        double expected = known ? reference->sum[p] / (double)reference->count[p] : tail;
        sum += (double)at->count[p] * expected;
        count += at->count[p];
    }
    return count == 0 ? 0 : sum / (double)count;
}

/* The end of the bucket that begins at `first`. */
static int64_t bucket_end(int64_t first) {
    int64_t octave = ALONE;
    if (first < ALONE) return first + 1;
    while (2 * octave <= first) octave *= 2;
    return first + octave / PER_DOUBLING;
}

ls_status ls_position_buckets_of(ls_ctx *ctx, const ls_position_losses *losses,
                                 ls_position_buckets *out) {
    size_t capacity = 0;
    *out = (ls_position_buckets){0};
    for (int64_t first = 0, end; first < losses->length; first = end) {
        end = ls_min(bucket_end(first), losses->length);
        int64_t tokens = 0;
        for (int64_t p = first; p < end; p++) tokens += losses->count[p];
        if (tokens == 0) continue;
        if (!ls_array_reserve(ctx, &out->at, &capacity, out->count + 1, sizeof *out->at)) {
            ls_free(ctx, out->at);
            *out = (ls_position_buckets){0};
            return LS_ENOMEM;
        }
        out->at[out->count++] = (ls_position_bucket){
            .first = first, .end = end, .tokens = tokens, .loss = mean_of(losses, first, end)};
    }
    return LS_OK;
}
