#include "train/optimizer.h"

#include <math.h>

#include "tensor/engine/device.h"
#include "train/optimizer_ranks.h"

ls_optimizer_settings ls_optimizer_settings_default(void) {
    return (ls_optimizer_settings){.beta1 = 0.9,
                                   .beta2 = 0.98,
                                   .epsilon = 1e-6,
                                   .weight_decay = 0.01,
                                   .state_rate = 1,
                                   .clip = 1};
}

static double rate_of(const ls_optimizer_settings *settings, const ls_init *init) {
    return init->own_rate ? settings->state_rate : 1;
}

/* Times the decay of a pass. */
static double decay_of(const ls_optimizer_settings *settings, const ls_init *init) {
    const bool spared = settings->decay_all ? init->never_decays || init->fixed : init->no_decay;
    if (spared) return 0;
    return init->own_decay ? rate_of(settings, init) : 1;
}

/* Cuts the buffers where weight decay or rate change, and then in pieces. Counts only, where
 * `pieces` is NULL. */
static int64_t cut(const ls_parameters *store, const ls_optimizer_settings *settings,
                   ls_adamw_piece *pieces) {
    int64_t count = 0;
    for (size_t i = 0; i < store->count;) {
        const ls_init *first = &store->items[i].init;
        const double decay = decay_of(settings, first), rate = rate_of(settings, first);
        int64_t at = store->items[i].offset;
        while (i < store->count && decay == decay_of(settings, &store->items[i].init) &&
               rate == rate_of(settings, &store->items[i].init) &&
               first->running == store->items[i].init.running)
            i++;
        int64_t end = i < store->count ? store->items[i].offset : store->total;
        for (; at < end; at += LS_ADAMW_PIECE) {
            if (pieces != NULL)
                pieces[count] = (ls_adamw_piece){.offset = at,
                                                 .count = ls_min(end - at, LS_ADAMW_PIECE),
                                                 .decay = (float)decay,
                                                 .rate = (float)rate,
                                                 .running = first->running};
            count++;
        }
    }
    return count;
}

/* Buckets as large as a message at least, and with a piece for each rank. */
static void cut_buckets(ls_optimizer *o) {
    enum { BUCKET_BYTES = 1 << 20 };
    const int64_t size = (int64_t)ls_dtype_size(o->store->master_type);
    const int64_t *cuts = o->cuts, ranks = o->ranks == NULL ? o->all_pieces : o->ranks->size;
    const int64_t even = ls_ceil_div(cuts[o->all_pieces], LS_OPTIMIZER_BUCKETS);
    const int64_t least = ls_max(even, BUCKET_BYTES / size);
    for (int64_t from = 0, end; from < o->all_pieces; from = end) {
        end = from + 1;
        while (end < o->all_pieces && (cuts[end] - cuts[from] < least || end - from < ranks)) end++;
        o->bucket[++o->buckets] = end;
    }
}

/* Which pieces are a rank's: their number, and where their sums stand. */
static int64_t take_rank(ls_optimizer *o, int rank) {
    int64_t count = 0;
    for (int64_t b = 0; b < o->buckets; b++) {
        const ls_pieces part = ls__optimizer_part(o, b, rank, LS_OPTIMIZER_WHOLLY);
        for (int64_t i = part.from; i < part.end; i++) o->sum_of[i] = rank * o->most + count++;
    }
    return count;
}

/* The pieces of this rank, moved to the front of all of them. */
static void take_own(ls_optimizer *o, ls_adamw_piece *all) {
    for (int64_t b = 0; b < o->buckets; b++) {
        const int rank = o->ranks == NULL ? 0 : o->ranks->rank;
        const ls_pieces part = ls__optimizer_part(o, b, rank, LS_OPTIMIZER_WHOLLY);
        o->before[b] = o->elements;
        for (int64_t i = part.from; i < part.end; i++) {
            all[o->own] = all[i];
            all[o->own++].own = o->elements;
            o->elements += o->cuts[i + 1] - o->cuts[i];
        }
    }
}

static ls_status take_part(ls_ctx *ctx, ls_optimizer *o, ls_adamw_piece *all) {
    const int64_t count = o->all_pieces;
    const int ranks = o->ranks == NULL ? 1 : o->ranks->size;
    o->cuts = ls_new(ctx, (size_t)count + 1, sizeof *o->cuts);
    o->sum_of = ls_new(ctx, (size_t)count + 1, sizeof *o->sum_of);
    if (o->cuts == NULL || o->sum_of == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < count; i++) {
        o->cuts[i] = all[i].offset;
        o->cuts[i + 1] = all[i].offset + all[i].count;
    }
    cut_buckets(o);
    int64_t most = 0;
    for (int rank = 0; rank < ranks; rank++) most = ls_max(most, take_rank(o, rank));
    o->most = most;
    for (int rank = 0; rank < ranks; rank++) take_rank(o, rank);
    o->all_sums = ls_new(ctx, (size_t)(ranks * most) + 1, sizeof *o->all_sums);
    take_own(o, all);
    return o->all_sums == NULL ? LS_ENOMEM : LS_OK;
}

static ls_status take_buffers(ls_ctx *ctx, ls_optimizer *o) {
    const size_t size = ls_dtype_size(o->store->master_type);
    o->all_pieces = cut(&o->part, &o->settings, NULL);
    ls_adamw_piece *all = ls_new(ctx, (size_t)o->all_pieces, sizeof *all);
    if (all == NULL) return LS_ENOMEM;
    cut(&o->part, &o->settings, all);
    ls_status status = take_part(ctx, o, all);
    const size_t own = (size_t)o->own, room = own > 0 ? own : 1;
    const size_t elements = o->elements > 0 ? (size_t)o->elements : 1;
    if (status == LS_OK) status = ls__optimizer_chunks(ctx, o);
    if (status == LS_OK) status = ls__optimizer_cut_masters(ctx, o);
    if (status == LS_OK) status = ls_parameters_take_gradient(o->store);
    if (status == LS_OK) {
        o->mean = ls_device_take_cleared(ctx, elements, size);
        o->square = ls_device_take_cleared(ctx, elements, size);
        o->pieces = ls_device_take_cleared(ctx, room, sizeof *o->pieces);
        o->sums = ls_device_take_cleared(ctx, room, sizeof *o->sums);
        if (o->mean == NULL || o->square == NULL || o->pieces == NULL || o->sums == NULL)
            status = LS_ENOMEM;
    }
    if (status == LS_OK) ls_device_put(ctx, o->pieces, all, own * sizeof *all);
    ls_free(ctx, all);
    return status;
}

ls_status ls_optimizer_new(ls_ctx *ctx, ls_parameters *store, const ls_optimizer_settings *settings,
                           ls_optimizer **out) {
    return ls_optimizer_new_among(ctx, store, settings, NULL, out);
}

ls_status ls_optimizer_new_among(ls_ctx *ctx, ls_parameters *store,
                                 const ls_optimizer_settings *settings, ls_ranks *ranks,
                                 ls_optimizer **out) {
    *out = NULL;
    if (!store->sealed) return LS_FAIL(ctx, LS_EBUG, "an optimiser needs a sealed store");
    ls_optimizer *optimizer = ls_new(ctx, 1, sizeof *optimizer);
    if (optimizer == NULL) return LS_ENOMEM;
    *optimizer = (ls_optimizer){.store = store, .settings = *settings};
    if (ranks != NULL && ranks->size > 1) optimizer->ranks = ranks;
    optimizer->part = *store;
    ls_status status = store->adapter.rank == 0
                           ? LS_OK
                           : ls_parameters_part(store, LS_PART_TRAINED, &optimizer->part);
    if (status == LS_OK) status = take_buffers(ctx, optimizer);
    if (status != LS_OK) {
        ls_optimizer_free(ctx, optimizer);
        return status;
    }
    *out = optimizer;
    return LS_OK;
}

void ls_optimizer_free(ls_ctx *ctx, ls_optimizer *optimizer) {
    if (optimizer == NULL) return;
    ls_device_give(ctx, optimizer->weights);
    ls_free(ctx, optimizer->fulls);
    ls_device_give(ctx, optimizer->mean);
    ls_device_give(ctx, optimizer->square);
    ls_device_give(ctx, optimizer->pieces);
    ls_device_give(ctx, optimizer->sums);
    ls__optimizer_give_chunks(ctx, optimizer);
    ls_free(ctx, optimizer->cuts);
    ls_free(ctx, optimizer->all_sums);
    ls_free(ctx, optimizer->sum_of);
    if (optimizer->part.items != optimizer->store->items) ls_free(ctx, optimizer->part.items);
    ls_free(ctx, optimizer);
}

static ls_adamw pass_of(const ls_optimizer *optimizer) {
    const ls_parameters *store = optimizer->store;
    const bool apart = optimizer->weights != NULL;
    return (ls_adamw){.type = store->master_type,
                      .weights = apart ? optimizer->weights : store->master,
                      .apart = apart,
                      .gradient = store->gradient,
                      .mean = optimizer->mean,
                      .square = optimizer->square,
                      .shadow = store->shadow,
                      .pieces = optimizer->pieces,
                      .piece_count = optimizer->own,
                      .sums = optimizer->sums};
}

/* Pieces are added up in their order, whoever has them. */
ls_status ls_optimizer_norm(ls_ctx *ctx, const ls_optimizer *optimizer, double *norm) {
    const ls_adamw pass = pass_of(optimizer);
    double sum = 0;
    const int64_t rank = optimizer->ranks == NULL ? 0 : optimizer->ranks->rank;
    LS_TRY(ls_adamw_squares(ctx, &pass, optimizer->all_sums + rank * optimizer->most));
    LS_TRY(ls__optimizer_share_sums(ctx, optimizer));
    for (int64_t i = 0; i < optimizer->all_pieces; i++)
        sum += optimizer->all_sums[optimizer->sum_of[i]];
    *norm = sqrt(sum);
    return LS_OK;
}

ls_status ls_optimizer_update(ls_ctx *ctx, ls_optimizer *optimizer, double rate, double norm,
                              int64_t step) {
    const ls_optimizer_settings *settings = &optimizer->settings;
    ls_adamw pass = pass_of(optimizer);
    pass.beta1 = settings->beta1;
    pass.beta2 = settings->beta2;
    pass.epsilon = settings->epsilon;
    pass.scale = settings->clip > 0 && norm > settings->clip ? settings->clip / norm : 1;
    pass.decay = rate * settings->weight_decay;
    pass.rate = rate / (1 - pow(settings->beta1, (double)step));
    pass.root = 1 / sqrt(1 - pow(settings->beta2, (double)step));
    pass.part = 1 / (double)ls_max(settings->leaves, 1);
    ls_adamw_apply(ctx, &pass);
    ls_parameters_changed(optimizer->store);
    return ls__optimizer_share_weights(ctx, optimizer);
}
