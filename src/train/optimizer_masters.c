/* Master weights cut over ranks, as moments are. Programs in bf16 read the shadow, and some small
 * parameters in the master's type: these two are whole on every rank, and go to all after an
 * update, in half the bytes that masters would take. */
#include "tensor/engine/device.h"
#include "train/optimizer_ranks.h"

static ls_part_bytes shadow_span(const ls_optimizer *o, int64_t bucket, int rank, int halvings) {
    const ls_pieces part = ls__optimizer_part(o, bucket, rank, halvings);
    const int64_t first = o->cuts[part.from];
    return (ls_part_bytes){(char *)(o->store->shadow + first),
                           (size_t)(o->cuts[part.end] - first) * sizeof *o->store->shadow};
}

static ls_part_bytes full_span(const ls_optimizer *o, int64_t bucket, int rank, int halvings) {
    const ls_pieces part = ls__optimizer_part(o, bucket, rank, halvings);
    const size_t size = ls_dtype_size(o->store->master_type);
    const int64_t first = o->fulls[part.from];
    return (ls_part_bytes){(char *)o->store->full + (size_t)first * size,
                           (size_t)(o->fulls[part.end] - first) * size};
}

/* Where each cut is in `full`: so many elements of what is there come before it. */
static ls_status find_fulls(ls_ctx *ctx, ls_optimizer *o) {
    const ls_parameters *store = o->store;
    size_t i = 0;
    o->fulls = ls_new(ctx, (size_t)o->all_pieces + 1, sizeof *o->fulls);
    if (o->fulls == NULL) return LS_ENOMEM;
    for (int64_t cut = 0; cut <= o->all_pieces; cut++) {
        while (i + 1 < store->count && store->items[i + 1].offset <= o->cuts[cut]) i++;
        const ls_parameter *item = &store->items[i];
        const int64_t all = ls_parameter_full_count(item);
        o->fulls[cut] = item->full_offset + ls_min(o->cuts[cut] - item->offset, all);
    }
    return LS_OK;
}

static void copy(ls_ctx *ctx, const ls_optimizer *o, char *to, const char *from, int64_t count) {
    const ls_gradient_sum sum = {
        .type = o->store->master_type, .to = to, .from = from, .count = count, .copies = true};
    ls_gradient_add(ctx, &sum);
}

/* What of a bucket's masters is this rank's: elements first .. end - 1 of all, and where they
 * lie. */
static char *own_part(const ls_optimizer *o, int64_t bucket, int64_t *first, int64_t *end) {
    const ls_pieces part = ls__optimizer_part(o, bucket, o->ranks->rank, LS_OPTIMIZER_WHOLLY);
    *first = o->cuts[part.from];
    *end = o->cuts[part.end];
    return (char *)o->weights + (size_t)o->before[bucket] * ls_dtype_size(o->store->master_type);
}

ls_status ls__optimizer_cut_masters(ls_ctx *ctx, ls_optimizer *o) {
    ls_parameters *store = o->store;
    const size_t size = ls_dtype_size(store->master_type);
    if (o->ranks == NULL || store->type != LS_BF16 || store->adapter.rank > 0) return LS_OK;
    LS_TRY(ls_optimizer_broadcast(ctx, o));
    void *weights = ls_device_take(ctx, (size_t)ls_max(o->elements, 1), size);
    if (weights == NULL) return LS_ENOMEM;
    o->weights = weights;
    for (int64_t b = 0; !ctx->rehearsal && b < o->buckets; b++) {
        int64_t first, end;
        char *here = own_part(o, b, &first, &end);
        if (end > first)
            copy(ctx, o, here, (char *)store->master + (size_t)first * size, end - first);
    }
    LS_TRY(ls_device_settle(ctx));
    LS_TRY(ls_parameters_give_master(store));
    o->part.master = NULL;
    o->part.full = store->full;
    return find_fulls(ctx, o);
}

/* This rank's part of what programs read in the master's type. */
static void refresh_full(ls_ctx *ctx, const ls_optimizer *o) {
    const ls_parameters *store = o->store;
    const size_t size = ls_dtype_size(store->master_type);
    for (int64_t b = 0; b < o->buckets; b++) {
        int64_t first, end;
        char *here = own_part(o, b, &first, &end);
        for (size_t i = 0; i < store->count; i++) {
            const ls_parameter *item = &store->items[i];
            const int64_t at = ls_max(item->offset, first);
            const int64_t stop = ls_min(item->offset + ls_parameter_full_count(item), end);
            if (at >= stop) continue;
            const int64_t place = item->full_offset + at - item->offset;
            copy(ctx, o, (char *)store->full + (size_t)place * size,
                 here + (size_t)(at - first) * size, stop - at);
        }
    }
}

/* An update has rounded its part itself. */
static void round_part(const ls_optimizer *o) {
    for (int64_t b = 0; b < o->buckets; b++) {
        int64_t first, end;
        const char *here = own_part(o, b, &first, &end);
        ls_parameters_round_some(o->store, here, first, end - first);
    }
}

ls_status ls__optimizer_share_masters(ls_ctx *ctx, ls_optimizer *o, bool loaded) {
    if (!ctx->rehearsal) {
        if (loaded) round_part(o);
        refresh_full(ctx, o);
    }
    LS_TRY(ls__optimizer_share(ctx, o, shadow_span));
    return ls__optimizer_share(ctx, o, full_span);
}
