#include "eval/shared.h"

#include <string.h>

#include "base/memory.h"

ls_shared ls_shared_of(ls_ctx *ctx, ls_ranks *ranks) {
    return (ls_shared){.ctx = ctx,
                       .ranks = ranks == NULL || ranks->transport == NULL ? NULL : ranks};
}

void ls_shared_clear(ls_shared *shared) {
    ls_free(shared->ctx, shared->values);
    *shared = (ls_shared){.ctx = shared->ctx};
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
    uint64_t count;
    LS_TRY(ls_ranks_exchange(s->ctx, s->ranks, s->owner, NULL, 0, &count, sizeof count));
    if (count > s->room)
        return LS_FAIL(s->ctx, LS_ERANK, "rank %d sends more losses than its batch has", s->owner);
    s->count = (size_t)count;
    return ls_ranks_exchange(s->ctx, s->ranks, s->owner, NULL, 0, s->values,
                             s->count * sizeof *s->values);
}

ls_status ls_shared_begin(ls_shared *s, int64_t number, int64_t most, bool *wanted) {
    *wanted = true;
    if (s->ranks == NULL) return LS_OK;
    s->owner = (int)(number % s->ranks->size);
    s->count = s->taken = 0;
    *wanted = s->ranks->rank == 0 || ls_shared_computes(s);
    if (!*wanted || s->owner == 0) return LS_OK;
    LS_TRY(make_room(s, most));
    return s->ranks->rank == 0 ? receive(s) : LS_OK;
}

bool ls_shared_computes(const ls_shared *s) {
    return s->ranks == NULL || s->owner == s->ranks->rank;
}

ls_status ls_shared_values(ls_shared *s, double *values, int64_t count) {
    const size_t bytes = (size_t)count * sizeof *values;
    if (s->ranks == NULL || s->owner == 0) return LS_OK;
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
    const uint64_t count = s->count;
    if (s->ranks == NULL || s->ranks->rank == 0 || s->owner == 0) return LS_OK;
    LS_TRY(ls_ranks_exchange(s->ctx, s->ranks, 0, &count, sizeof count, NULL, 0));
    return ls_ranks_exchange(s->ctx, s->ranks, 0, s->values, s->count * sizeof *s->values, NULL, 0);
}
