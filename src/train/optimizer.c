#include "train/optimizer.h"

#include <math.h>

#include "tensor/engine/device.h"

ls_optimizer_settings ls_optimizer_settings_default(void) {
    return (ls_optimizer_settings){
        .beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-6, .weight_decay = 0.01, .clip = 1};
}

/* Cuts the buffers where the weight decay changes, and then in pieces. Counts only, where `pieces`
 * is NULL. */
static int64_t cut(const ls_parameters *store, ls_adamw_piece *pieces) {
    int64_t count = 0;
    for (size_t i = 0; i < store->count;) {
        bool decays = !store->items[i].init.no_decay;
        int64_t at = store->items[i].offset;
        while (i < store->count && decays == !store->items[i].init.no_decay) i++;
        int64_t end = i < store->count ? store->items[i].offset : store->total;
        for (; at < end; at += LS_ADAMW_PIECE) {
            if (pieces != NULL)
                pieces[count] = (ls_adamw_piece){at, ls_min(end - at, LS_ADAMW_PIECE), decays};
            count++;
        }
    }
    return count;
}

ls_status ls_optimizer_new(ls_ctx *ctx, ls_parameters *store, const ls_optimizer_settings *settings,
                           ls_optimizer **out) {
    *out = NULL;
    if (!store->sealed || store->gradient == NULL)
        return LS_FAIL(ctx, LS_EBUG, "an optimiser needs a sealed store with gradients");
    ls_optimizer *optimizer = ls_new(ctx, 1, sizeof *optimizer);
    if (optimizer == NULL) return LS_ENOMEM;
    size_t total = (size_t)store->trained, size = ls_dtype_size(store->master_type);
    *optimizer = (ls_optimizer){.store = store, .settings = *settings};
    optimizer->part = *store;
    ls_status status = store->adapter.rank == 0
                           ? LS_OK
                           : ls_parameters_part(store, LS_PART_TRAINED, &optimizer->part);
    if (status != LS_OK) {
        ls_optimizer_free(ctx, optimizer);
        return status;
    }
    const ls_parameters *part = &optimizer->part;
    optimizer->piece_count = cut(part, NULL);
    size_t pieces = (size_t)optimizer->piece_count;
    ls_adamw_piece *here = ls_new(ctx, pieces, sizeof *here);
    optimizer->mean = ls_device_take_cleared(ctx, total, size);
    optimizer->square = ls_device_take_cleared(ctx, total, size);
    optimizer->pieces = ls_device_take_cleared(ctx, pieces, sizeof *optimizer->pieces);
    optimizer->sums = ls_device_take_cleared(ctx, pieces, sizeof *optimizer->sums);
    if (here == NULL || optimizer->mean == NULL || optimizer->square == NULL ||
        optimizer->pieces == NULL || optimizer->sums == NULL) {
        ls_free(ctx, here);
        ls_optimizer_free(ctx, optimizer);
        return LS_ENOMEM;
    }
    cut(part, here);
    ls_device_put(ctx, optimizer->pieces, here, pieces * sizeof *here);
    ls_free(ctx, here);
    *out = optimizer;
    return LS_OK;
}

void ls_optimizer_free(ls_ctx *ctx, ls_optimizer *optimizer) {
    if (optimizer == NULL) return;
    ls_device_give(ctx, optimizer->mean);
    ls_device_give(ctx, optimizer->square);
    ls_device_give(ctx, optimizer->pieces);
    ls_device_give(ctx, optimizer->sums);
    if (optimizer->part.items != optimizer->store->items) ls_free(ctx, optimizer->part.items);
    ls_free(ctx, optimizer);
}

static ls_adamw pass_of(const ls_optimizer *optimizer) {
    const ls_parameters *store = optimizer->store;
    return (ls_adamw){.type = store->master_type,
                      .weights = store->master,
                      .gradient = store->gradient,
                      .mean = optimizer->mean,
                      .square = optimizer->square,
                      .shadow = store->shadow,
                      .pieces = optimizer->pieces,
                      .piece_count = optimizer->piece_count,
                      .sums = optimizer->sums};
}

ls_status ls_optimizer_norm(ls_ctx *ctx, const ls_optimizer *optimizer, double *norm) {
    ls_adamw pass = pass_of(optimizer);
    return ls_adamw_norm(ctx, &pass, norm);
}

void ls_optimizer_update(ls_ctx *ctx, ls_optimizer *optimizer, double rate, double norm,
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
    ls_adamw_apply(ctx, &pass);
}
