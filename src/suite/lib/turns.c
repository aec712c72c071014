#include "suite/lib/turns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

ls_status ls_turns_open(ls_ctx *ctx, ls_ranks *ranks, const json_t *identity,
                        const ls_samples *samples, ls_turns *out) {
    *out = (ls_turns){.ctx = ctx};
    if (ranks == NULL || ranks->transport == NULL) return LS_OK;
    char *text = ls_json_dump(identity, JSON_COMPACT | JSON_SORT_KEYS);
    if (text == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for the suite");
    const uint64_t hash = ls_hash(text, strlen(text));
    free(text);
    LS_TRY(ls_ranks_compare(ctx, ranks, hash, "another model, other data or other settings"));
    const size_t count = (size_t)samples->group_count;
    out->had = ls_new(ctx, count + 1, 1);
    if (out->had == NULL) return LS_ENOMEM;
    for (size_t g = 0; g < count; g++) out->had[g] = ls_samples_has(samples, (int64_t)g);
    out->ranks = ranks;
    return ls_ranks_broadcast(ctx, ranks, out->had, count);
}

void ls_turns_clear(ls_turns *t) {
    ls_free(t->ctx, t->had);
    t->had = NULL;
}

bool ls_turns_had(const ls_turns *t, const ls_samples *samples, int64_t group) {
    return t->had == NULL ? ls_samples_has(samples, group) : t->had[group] != 0;
}

static int owner_of(const ls_turns *t) {
    return (int)(t->number % t->ranks->size);
}

bool ls_turns_begin(ls_turns *t) {
    return t->ranks == NULL || owner_of(t) == t->ranks->rank;
}

static ls_status send(ls_turns *t, ls_samples *samples, const int64_t *groups, int64_t count) {
    json_t *all = json_array();
    bool whole = all != NULL;
    for (int64_t i = 0; whole && i < count; i++)
        whole = json_array_append(all, samples->groups[groups[i]]) == 0;
    char *text = whole ? ls_json_dump(all, JSON_COMPACT) : NULL;
    json_decref(all);
    if (text == NULL) return LS_FAIL(t->ctx, LS_ENOMEM, "no memory for the samples");
    const ls_status status = ls_ranks_send(t->ctx, t->ranks, 0, text, strlen(text));
    free(text);
    for (int64_t i = 0; i < count; i++) ls_samples_forget(samples, groups[i]);
    return status;
}

/* What came is looked at as a file would be. */
static ls_status keep(ls_turns *t, ls_samples *samples, json_t *all, const int64_t *groups,
                      int64_t count) {
    if (!json_is_array(all) || (int64_t)json_array_size(all) != count)
        return LS_FAIL(t->ctx, LS_ERANK, "rank %d sends other samples than its own", owner_of(t));
    for (int64_t i = 0; i < count; i++) {
        json_t *records = json_array_get(all, (size_t)i);
        if (!ls_samples_fit(samples, groups[i], records))
            return LS_FAIL(t->ctx, LS_ERANK, "rank %d sends what is no sample", owner_of(t));
        if (!t->had[groups[i]]) LS_TRY(ls_samples_add(samples, groups[i], json_incref(records)));
    }
    return LS_OK;
}

static ls_status receive(ls_turns *t, ls_samples *samples, const int64_t *groups, int64_t count) {
    const size_t most = (size_t)1 << 30;
    const int owner = owner_of(t);
    size_t length;
    char from[32];
    snprintf(from, sizeof from, "rank %d", owner);
    LS_TRY(ls_ranks_expect(t->ctx, t->ranks, owner, "samples", most, &length));
    char *text = ls_new_raw(t->ctx, length + 1, 1);
    if (text == NULL) return LS_ENOMEM;
    json_t *all = NULL;
    ls_status status = ls_ranks_exchange(t->ctx, t->ranks, owner, NULL, 0, text, length);
    if (status == LS_OK) status = ls_json_parse_line(t->ctx, text, length, from, 1, &all);
    if (status == LS_OK) status = keep(t, samples, all, groups, count);
    json_decref(all);
    ls_free(t->ctx, text);
    return status;
}

ls_status ls_turns_end(ls_turns *t, ls_samples *samples, const int64_t *groups, int64_t count) {
    if (t->ranks == NULL) return LS_OK;
    const int owner = owner_of(t), rank = t->ranks->rank;
    ls_status status = LS_OK;
    if (owner != 0 && rank == 0) status = receive(t, samples, groups, count);
    if (owner != 0 && rank == owner) status = send(t, samples, groups, count);
    t->number++;
    return status;
}
