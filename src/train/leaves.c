#include "train/leaves.h"

#include <stdio.h>

#include "tensor/engine/device.h"
#include "tensor/op/adamw/adamw.h"

static bool is_power(int64_t count) {
    return count >= 1 && count <= LS_LEAVES_MAX && (count & (count - 1)) == 0;
}

ls_status ls_leaves_check(ls_ctx *ctx, int64_t shards, int64_t context, const ls_ranks *among) {
    const int ranks = among == NULL ? 1 : among->size;
    if (!is_power(shards))
        return LS_FAIL(ctx, LS_EUSE, "train.shards=%lld must be a power of two up to %d",
                       (long long)shards, LS_LEAVES_MAX);
    if (!is_power(context) || !is_power(shards * context))
        return LS_FAIL(ctx, LS_EUSE,
                       "train.context=%lld must be a power of two, and times train.shards=%lld at "
                       "most %d",
                       (long long)context, (long long)shards, LS_LEAVES_MAX);
    char times[48] = "";
    if (context > 1) snprintf(times, sizeof times, " times train.context=%lld", (long long)context);
    if (shards * context % ranks != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "%d ranks cannot share train.shards=%lld%s evenly: their number must be a "
                       "power of two, and at most that",
                       ranks, (long long)shards, times);
    return LS_OK;
}

ls_status ls_leaves_init(ls_ctx *ctx, ls_parameters *store, int64_t shards, int64_t context,
                         ls_ranks *ranks, ls_leaves *out) {
    const int64_t count = shards * context;
    const int size = ranks == NULL ? 1 : ranks->size;
    *out = (ls_leaves){.store = store, .ranks = size > 1 ? ranks : NULL, .count = count};
    LS_TRY(ls_leaves_check(ctx, shards, context, ranks));
    out->own = count / size;
    out->first = out->own * (ranks == NULL ? 0 : ranks->rank);
    out->table = ls_new(ctx, (size_t)(size * (2 * out->own + 1)), sizeof *out->table);
    out->sums = ls_new(ctx, (size_t)count, sizeof *out->sums);
    if (out->table == NULL || out->sums == NULL) return LS_ENOMEM;
    for (int k = 0; (int64_t)1 << k < out->own; k++) {
        out->waiting[k] =
            ls_device_take(ctx, (size_t)store->trained, ls_dtype_size(store->master_type));
        if (out->waiting[k] == NULL) return LS_ENOMEM;
    }
    return LS_OK;
}

void ls_leaves_clear(ls_ctx *ctx, ls_leaves *leaves) {
    for (int k = 0; k < LS_LEAVES_LEVELS; k++) ls_device_give(ctx, leaves->waiting[k]);
    ls_free(ctx, leaves->table);
    ls_free(ctx, leaves->sums);
    *leaves = (ls_leaves){0};
}

/* As a binary counter does: two sums of 2^k leaves become one of 2^(k + 1). Returns how many there
 * were. */
static int carry(ls_ctx *ctx, const ls_leaves *leaves, int64_t i, int64_t first, int64_t count) {
    const ls_parameters *store = leaves->store;
    const size_t skipped = (size_t)first * ls_dtype_size(store->master_type);
    ls_gradient_sum sum = {
        .type = store->master_type, .to = (char *)store->gradient + skipped, .count = count};
    int k = 0;
    for (; (i >> k & 1) != 0; k++) {
        sum.from = (const char *)leaves->waiting[k] + skipped;
        if (count > 0) ls_gradient_add(ctx, &sum);
    }
    return k;
}

void ls_leaves_sum(ls_ctx *ctx, const ls_leaves *leaves, int64_t first, int64_t count) {
    carry(ctx, leaves, leaves->own - 1, first, count);
}

void ls_leaves_add(ls_ctx *ctx, ls_leaves *leaves, int64_t i, ls_leaf leaf) {
    ls_parameters *store = leaves->store;
    double *row =
        leaves->table + (leaves->ranks == NULL ? 0 : leaves->ranks->rank) * (2 * leaves->own + 1);
    const bool last = i + 1 == leaves->own;
    row[2 * i] = leaf.loss;
    row[2 * i + 1] = leaf.auxiliary;
    if (ctx->rehearsal || (last && leaves->in_ranges)) return;
    const int k = carry(ctx, leaves, i, 0, store->trained);
    if (last) return;
    const ls_gradient_sum copy = {.type = store->master_type,
                                  .to = leaves->waiting[k],
                                  .from = store->gradient,
                                  .count = store->trained,
                                  .copies = true};
    ls_gradient_add(ctx, &copy);
    ls_parameters_clear_gradient(store);
}

ls_status ls_leaves_total(ls_ctx *ctx, ls_leaves *leaves, unsigned mark, ls_leaf *total,
                          unsigned *marks) {
    const int64_t each = 2 * leaves->own + 1, size = leaves->count / leaves->own;
    const int rank = leaves->ranks == NULL ? 0 : leaves->ranks->rank;
    leaves->table[rank * each + 2 * leaves->own] = (double)mark;
    if (leaves->ranks != NULL)
        LS_TRY(ls_ranks_share(ctx, leaves->ranks, leaves->table, (size_t)each * sizeof(double)));
    *marks = 0;
    for (int64_t r = 0; r < size; r++) {
        const double *row = leaves->table + r * each;
        const double theirs = row[2 * leaves->own];
        if (theirs >= 0 && theirs < 256) *marks |= (unsigned)theirs;
        for (int64_t i = 0; i < leaves->own; i++)
            leaves->sums[r * leaves->own + i] = (ls_leaf){row[2 * i], row[2 * i + 1]};
    }
    for (int64_t width = 1; width < leaves->count; width *= 2)
        for (int64_t i = 0; i < leaves->count; i += 2 * width) {
            leaves->sums[i].loss += leaves->sums[i + width].loss;
            leaves->sums[i].auxiliary += leaves->sums[i + width].auxiliary;
        }
    *total = leaves->sums[0];
    return LS_OK;
}
