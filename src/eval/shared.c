#include "eval/shared.h"

#include <string.h>

#include "base/memory.h"
#include "eval/score.h"

ls_status ls_eval_check_context(ls_ctx *ctx, const ls_eval_settings *settings,
                                const ls_ranks *ranks, bool whole) {
    const int64_t context = settings->context, size = ranks == NULL ? 1 : ranks->size;
    if (context == 1) return LS_OK;
    if ((context & (context - 1)) != 0)
        return LS_FAIL(ctx, LS_EUSE, "eval.context=%lld is no power of two", (long long)context);
    if (whole)
        return LS_FAIL(ctx, LS_EUSE,
                       "this model reads windows whole: eval.context cuts texts that are read from "
                       "their start to their end");
    if (settings->resolution)
        return LS_FAIL(ctx, LS_EUSE,
                       "eval.resolution wants all scores of a text in one place: measure it "
                       "without eval.context");
    if (!ctx->rehearsal && size % context != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "eval.context=%lld cuts a text over so many ranks, and there %s %lld: start "
                       "a multiple of it (mpirun -n %lld longshot eval ...)",
                       (long long)context, size == 1 ? "is" : "are", (long long)size,
                       (long long)context);
    return LS_OK;
}

ls_shared ls_shared_of(ls_ctx *ctx, ls_ranks *ranks, int64_t context) {
    return (ls_shared){.ctx = ctx,
                       .ranks = ranks == NULL || ranks->transport == NULL ? NULL : ranks,
                       .together = (int)context};
}

static ls_status exchange(void *user, int64_t with, const void *send, void *receive, size_t bytes) {
    ls_shared *s = user;
    const int first = s->ranks->rank / s->together * s->together;
    return ls_ranks_exchange(s->ctx, s->ranks, first + (int)with, send, bytes, receive, bytes);
}

ls_parts ls_shared_parts(ls_shared *s, int64_t context) {
    return (ls_parts){.count = context,
                      .own = s->ranks == NULL ? 0 : s->ranks->rank % context,
                      .exchange = exchange,
                      .user = s};
}

void ls_shared_part_ways(ls_shared *s) {
    s->together = 1;
}

void ls_shared_clear(ls_shared *shared) {
    ls_free(shared->ctx, shared->values);
    *shared = (ls_shared){.ctx = shared->ctx, .together = shared->together};
}

static ls_status make_room(ls_shared *s, int64_t most) {
    if (s->room >= (size_t)most) return LS_OK;
    ls_free(s->ctx, s->values);
    s->room = 0;
    s->values = ls_new_raw(s->ctx, (size_t)most, sizeof *s->values);
    if (s->values == NULL) return LS_ENOMEM;
    s->room = (size_t)most;
    return LS_OK;
}

static ls_status receive(ls_shared *s) {
    size_t bytes;
    const size_t most = s->room * sizeof *s->values;
    LS_TRY(ls_ranks_expect(s->ctx, s->ranks, s->owner, "its batch's losses", most, &bytes));
    s->count = bytes / sizeof *s->values;
    return ls_ranks_exchange(s->ctx, s->ranks, s->owner, NULL, 0, s->values, bytes);
}

ls_status ls_shared_begin(ls_shared *s, int64_t number, int64_t most, bool *wanted) {
    *wanted = true;
    if (s->ranks == NULL) return LS_OK;
    s->owner = (int)(number % (s->ranks->size / s->together)) * s->together;
    s->count = s->taken = 0;
    *wanted = s->ranks->rank == 0 || ls_shared_computes(s);
    if (!*wanted || s->owner == 0) return LS_OK;
    LS_TRY(make_room(s, most));
    return s->ranks->rank == 0 ? receive(s) : LS_OK;
}

bool ls_shared_computes(const ls_shared *s) {
    return s->ranks == NULL || s->owner / s->together == s->ranks->rank / s->together;
}

ls_status ls_shared_values(ls_shared *s, double *values, int64_t count) {
    const size_t bytes = (size_t)count * sizeof *values;
    if (s->ranks == NULL || s->owner == 0) return LS_OK;
    if (s->ranks->rank > 0 && s->ranks->rank != s->owner) return LS_OK; /* it has the same */
    if (s->ranks->rank > 0) {
        if (s->count + (size_t)count > s->room)
            return LS_FAIL(s->ctx, LS_EBUG, "a batch has more losses than it has room for");
        memcpy(s->values + s->count, values, bytes);
        s->count += (size_t)count;
        return LS_OK;
    }
    if (s->taken + (size_t)count > s->count)
        return LS_FAIL(s->ctx, LS_ERANK, "rank %d sends fewer losses than its batch has", s->owner);
    memcpy(values, s->values + s->taken, bytes);
    s->taken += (size_t)count;
    return LS_OK;
}

ls_status ls_shared_losses(ls_shared *s, const int32_t *targets, double *losses, int64_t count) {
    for (int64_t t = 0; t < count && s->ranks != NULL; t++)
        if (targets[t] >= 0) LS_TRY(ls_shared_values(s, &losses[t], 1));
    return LS_OK;
}

ls_status ls_shared_end(ls_shared *s) {
    if (s->ranks == NULL || s->ranks->rank == 0 || s->owner == 0) return LS_OK;
    if (s->ranks->rank != s->owner) return LS_OK;
    return ls_ranks_send(s->ctx, s->ranks, 0, s->values, s->count * sizeof *s->values);
}
