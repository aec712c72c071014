#include "serve/scored.h"

#include <math.h>

static ls_status reserve(ls_ctx *ctx, ls_scored *scored, size_t more) {
    const size_t wanted = scored->count + more, tops = (size_t)ls_max(scored->tops, 0);
    return ls_array_reserve(ctx, &scored->at, &scored->capacity, wanted, sizeof *scored->at) &&
                   ls_array_reserve(ctx, &scored->top, &scored->top_capacity, wanted * tops + 1,
                                    sizeof *scored->top)
               ? LS_OK
               : LS_ENOMEM;
}

/* log sum exp, in a fixed order. */
static double log_total(const double *logits, int64_t count) {
    double most = logits[0], sum = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > most) most = logits[i];
    for (int64_t i = 0; i < count; i++) sum += exp(logits[i] - most);
    return most + log(sum);
}

/* The likeliest few, by insertion; of equal ones the lower id comes first. */
static void find_tops(const double *logits, int64_t count, double total, int64_t tops,
                      struct ls_scored_top *out) {
    int64_t have = 0;
    for (int64_t i = 0; i < count; i++) {
        if (have == tops && !(logits[i] > logits[out[have - 1].token])) continue;
        int64_t place = have < tops ? have++ : tops - 1;
        for (; place > 0 && logits[i] > logits[out[place - 1].token]; place--)
            out[place] = out[place - 1];
        out[place].token = (int32_t)i;
    }
    for (int64_t i = 0; i < have; i++) out[i].logprob = (float)(logits[out[i].token] - total);
    for (int64_t i = have; i < tops; i++) out[i] = (struct ls_scored_top){.token = -1};
}

ls_status ls_scored_add(ls_ctx *ctx, ls_scored *scored, int32_t token, const double *logits,
                        int64_t vocabulary) {
    if (scored->tops < 0) return LS_OK;
    LS_TRY(reserve(ctx, scored, 1));
    struct ls_scored_token *entry = &scored->at[scored->count];
    *entry = (struct ls_scored_token){.token = token, .given = logits != NULL};
    struct ls_scored_top *top = scored->top + scored->count * (size_t)scored->tops;
    scored->count++;
    for (int64_t i = 0; i < scored->tops; i++) top[i] = (struct ls_scored_top){.token = -1};
    if (logits == NULL) return LS_OK;
    const double total = log_total(logits, vocabulary);
    entry->logprob = (float)(logits[token] - total);
    if (scored->tops > 0) find_tops(logits, vocabulary, total, scored->tops, top);
    return LS_OK;
}

ls_status ls_scored_copy(ls_ctx *ctx, ls_scored *to, const ls_scored *from, size_t count) {
    LS_TRY(reserve(ctx, to, count));
    for (size_t i = 0; i < count; i++) {
        to->at[to->count] = from->at[i];
        for (int64_t j = 0; j < to->tops; j++)
            to->top[to->count * (size_t)to->tops + (size_t)j] =
                from->top[i * (size_t)from->tops + (size_t)j];
        to->count++;
    }
    return LS_OK;
}

size_t ls_scored_bytes(const ls_scored *scored) {
    return scored->capacity * sizeof *scored->at + scored->top_capacity * sizeof *scored->top;
}

void ls_scored_clear(ls_ctx *ctx, ls_scored *scored) {
    ls_free(ctx, scored->at);
    ls_free(ctx, scored->top);
    *scored = (ls_scored){.tops = scored->tops};
}
