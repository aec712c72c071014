/* The optimiser's buffers over ranks. Gradients are summed by halving: ranks at the distance 1, then
 * 2, 4, ... swap halves of what they still have, so that level k of the tree is summed in round k
 * and each rank sends less than one gradient in all. What comes back (weights after an update, sums
 * of squares) goes the same way in reverse.
 *
 * Bytes pass through the caller's memory, also those of a device, in chunks of a fixed size. */
#include "train/optimizer_ranks.h"

#include <string.h>

#include "tensor/engine/device.h"

enum { CHUNK = 1 << 20 }; /* bytes */

void ls__optimizer_part(const ls_optimizer *o, int rank, int halvings, int64_t *from,
                        int64_t *end) {
    const int size = o->ranks == NULL ? 1 : o->ranks->size;
    *from = 0;
    *end = o->all_pieces;
    for (int k = 0; k < halvings && (1 << k) < size; k++) {
        const int64_t middle = *from + (*end - *from) / 2;
        *((rank >> k & 1) != 0 ? from : end) = middle;
    }
}

/* A part in bytes of a flat buffer of the master's type. */
typedef struct span {
    char *at;
    size_t bytes;
} span;

/* Of the pieces [among.from, among.end). */
static span span_of(const ls_optimizer *o, void *buffer, ls_pieces among, int rank, int halvings) {
    const size_t size = ls_dtype_size(o->store->master_type);
    int64_t from, end;
    ls__optimizer_part(o, rank, halvings, &from, &end);
    from = ls_max(from, among.from);
    end = ls_max(ls_min(end, among.end), from);
    return (span){(char *)buffer + (size_t)o->cuts[from] * size,
                  (size_t)(o->cuts[end] - o->cuts[from]) * size};
}

/* A device copies from and to memory of its own kind faster, and while it computes. */
static void *take_chunk(ls_ctx *ctx) {
    const bool far = ctx->device != NULL && !ctx->rehearsal;
    return far ? ls_device_take_far(ctx, CHUNK) : ls_new_raw(ctx, CHUNK, 1);
}

static void give_chunk(ls_ctx *ctx, void *chunk) {
    if (ctx->device != NULL && !ctx->rehearsal)
        ls_device_give_far(ctx, chunk, CHUNK);
    else
        ls_free(ctx, chunk);
}

void ls__optimizer_give_chunks(ls_ctx *ctx, ls_optimizer *o) {
    ls_device_give(ctx, o->there);
    give_chunk(ctx, o->sent);
    give_chunk(ctx, o->received);
}

ls_status ls__optimizer_chunks(ls_ctx *ctx, ls_optimizer *o) {
    if (o->ranks == NULL) return LS_OK;
    o->received = take_chunk(ctx);
    o->sent = ctx->device == NULL ? NULL : take_chunk(ctx);
    o->there = ctx->device == NULL ? NULL : ls_device_take(ctx, CHUNK, 1);
    const bool all = ctx->device == NULL || (o->sent != NULL && o->there != NULL);
    return o->received != NULL && all ? LS_OK : LS_ENOMEM;
}

static size_t chunk_of(size_t bytes, size_t done) {
    return done >= bytes ? 0 : bytes - done < CHUNK ? bytes - done : CHUNK;
}

/* The bytes from which a chunk is sent. */
static ls_status stage(ls_ctx *ctx, const ls_optimizer *o, const void *from, size_t bytes,
                       const void **out) {
    *out = from;
    if (ctx->device == NULL || bytes == 0) return LS_OK;
    *out = o->sent;
    return ls_device_get(ctx, o->sent, from, bytes);
}

/* What was received to where the context computes; then the next may come. */
static ls_status place(ls_ctx *ctx, const ls_optimizer *o, void *there, size_t bytes) {
    ls_device_put(ctx, there, o->received, bytes);
    return ls_device_settle(ctx);
}

/* Swaps spans with a rank, and adds what comes to what is there or puts it in its place. */
static ls_status swap_spans(ls_ctx *ctx, const ls_optimizer *o, int with, span give, span take,
                            bool adds) {
    const ls_dtype type = o->store->master_type;
    if (ctx->rehearsal) /* counts what would go */
        return ls_ranks_exchange(ctx, o->ranks, with, NULL, give.bytes, NULL, take.bytes);
    for (size_t done = 0; done < give.bytes || done < take.bytes; done += CHUNK) {
        const size_t out = chunk_of(give.bytes, done), in = chunk_of(take.bytes, done);
        const bool straight = !adds && ctx->device == NULL;
        const void *from;
        void *to = straight ? take.at + done : o->received;
        LS_TRY(stage(ctx, o, give.at + done, out, &from));
        LS_TRY(ls_ranks_exchange(ctx, o->ranks, with, from, out, to, in));
        if (in == 0 || straight) continue;
        if (!adds) {
            LS_TRY(place(ctx, o, take.at + done, in));
            continue;
        }
        const void *more = o->received;
        if (ctx->device != NULL) {
            LS_TRY(place(ctx, o, o->there, in));
            more = o->there;
        }
        const ls_gradient_sum sum = {.type = type,
                                     .to = take.at + done,
                                     .from = more,
                                     .count = (int64_t)(in / ls_dtype_size(type))};
        ls_gradient_add(ctx, &sum);
    }
    return LS_OK;
}

static int rounds_of(const ls_ranks *ranks) {
    int rounds = 0;
    while ((1 << rounds) < ranks->size) rounds++;
    return rounds;
}

static ls_pieces all_pieces(const ls_optimizer *o) {
    return (ls_pieces){0, o->all_pieces};
}

ls_status ls__optimizer_reduce_pieces(ls_ctx *ctx, ls_optimizer *o, ls_pieces among) {
    const int rank = o->ranks->rank;
    for (int k = 0; k < rounds_of(o->ranks); k++) {
        const int with = rank ^ (1 << k);
        LS_TRY(swap_spans(ctx, o, with, span_of(o, o->store->gradient, among, with, k + 1),
                          span_of(o, o->store->gradient, among, rank, k + 1), true));
    }
    return LS_OK;
}

ls_status ls_optimizer_reduce(ls_ctx *ctx, ls_optimizer *o) {
    return o->ranks == NULL ? LS_OK : ls__optimizer_reduce_pieces(ctx, o, all_pieces(o));
}

ls_status ls__optimizer_share_weights(ls_ctx *ctx, ls_optimizer *o) {
    if (o->ranks == NULL) return LS_OK;
    const int rank = o->ranks->rank;
    for (int k = rounds_of(o->ranks) - 1; k >= 0; k--) {
        const int with = rank ^ (1 << k);
        LS_TRY(swap_spans(ctx, o, with, span_of(o, o->store->master, all_pieces(o), rank, k + 1),
                          span_of(o, o->store->master, all_pieces(o), with, k + 1), false));
    }
    if (ctx->rehearsal) return LS_OK;
    ls_parameters_round(o->store);
    ls_parameters_clear_gradient(o->store);
    return LS_OK;
}

ls_status ls__optimizer_share_sums(ls_ctx *ctx, const ls_optimizer *o) {
    if (o->ranks == NULL) return LS_OK;
    const int rank = o->ranks->rank;
    for (int k = rounds_of(o->ranks) - 1; k >= 0; k--) {
        const int with = rank ^ (1 << k);
        int64_t ours, ours_end, theirs, theirs_end;
        ls__optimizer_part(o, rank, k + 1, &ours, &ours_end);
        ls__optimizer_part(o, with, k + 1, &theirs, &theirs_end);
        LS_TRY(ls_ranks_exchange(ctx, o->ranks, with, o->all_sums + ours,
                                 (size_t)(ours_end - ours) * sizeof(double), o->all_sums + theirs,
                                 (size_t)(theirs_end - theirs) * sizeof(double)));
    }
    return LS_OK;
}

ls_status ls_optimizer_broadcast(ls_ctx *ctx, ls_optimizer *o) {
    const ls_parameters *store = o->store;
    const size_t bytes = (size_t)store->total * ls_dtype_size(store->master_type);
    if (o->ranks == NULL || ctx->rehearsal) return LS_OK;
    for (size_t done = 0; done < bytes; done += CHUNK) {
        const size_t chunk = chunk_of(bytes, done);
        char *at = (char *)store->master + done;
        if (o->ranks->rank == 0) LS_TRY(ls_device_get(ctx, o->received, at, chunk));
        LS_TRY(ls_ranks_broadcast(ctx, o->ranks, o->received, chunk));
        if (o->ranks->rank != 0) LS_TRY(place(ctx, o, at, chunk));
    }
    ls_parameters_round(o->store);
    return LS_OK;
}

/* ---- moments ---- */

typedef enum { RELEASE, GET, PUT } errand;
/* What rank 0 asks of another. */
typedef struct request {
    int32_t what, kind;
    int64_t first, count;
} request;

static char *moment_at(const ls_optimizer *o, ls_moment_kind kind, int64_t element) {
    char *buffer = kind == LS_MOMENT_MEAN ? o->mean : o->square;
    return buffer + (size_t)(element - o->first) * ls_dtype_size(o->store->master_type);
}

/* Between a span of this rank's and rank 0 or back, in chunks. */
static ls_status carry(ls_ctx *ctx, const ls_optimizer *o, span what, bool away) {
    for (size_t done = 0; done < what.bytes; done += CHUNK) {
        const size_t chunk = chunk_of(what.bytes, done);
        const void *from;
        if (away) {
            LS_TRY(stage(ctx, o, what.at + done, chunk, &from));
            LS_TRY(ls_ranks_exchange(ctx, o->ranks, 0, from, chunk, NULL, 0));
            continue;
        }
        LS_TRY(ls_ranks_exchange(ctx, o->ranks, 0, NULL, 0, o->received, chunk));
        LS_TRY(place(ctx, o, what.at + done, chunk));
    }
    return LS_OK;
}

ls_status ls_optimizer_serve(ls_ctx *ctx, ls_optimizer *o) {
    const size_t size = ls_dtype_size(o->store->master_type);
    for (;;) {
        request asked;
        LS_TRY(ls_ranks_exchange(ctx, o->ranks, 0, NULL, 0, &asked, sizeof asked));
        if (asked.what == RELEASE) return LS_OK;
        if ((asked.what != GET && asked.what != PUT) || asked.kind < LS_MOMENT_MEAN ||
            asked.kind > LS_MOMENT_SQUARE || asked.first < o->first || asked.count < 0 ||
            asked.count > o->elements || asked.first - o->first > o->elements - asked.count)
            return LS_FAIL(ctx, LS_ERANK, "rank 0 asks for moments that are not here");
        const span what = {moment_at(o, (ls_moment_kind)asked.kind, asked.first),
                           (size_t)asked.count * size};
        LS_TRY(carry(ctx, o, what, asked.what == GET));
    }
}

ls_status ls_optimizer_release(ls_ctx *ctx, ls_optimizer *o) {
    const request done = {.what = RELEASE};
    for (int i = 1; o->ranks != NULL && i < o->ranks->size; i++)
        LS_TRY(ls_ranks_exchange(ctx, o->ranks, i, &done, sizeof done, NULL, 0));
    return LS_OK;
}

/* A part that another rank has. */
static ls_status fetch_part(const ls_moment *m, int rank, errand what, int64_t first, int64_t count,
                            char *values) {
    ls_ranks *ranks = m->optimizer->ranks;
    ls_ctx *ctx = m->optimizer->store->ctx;
    const size_t bytes = (size_t)count * ls_dtype_size(m->optimizer->store->master_type);
    const request asked = {(int32_t)what, (int32_t)m->kind, first, count};
    LS_TRY(ls_ranks_exchange(ctx, ranks, rank, &asked, sizeof asked, NULL, 0));
    for (size_t done = 0; done < bytes; done += CHUNK) {
        const size_t chunk = chunk_of(bytes, done);
        LS_TRY(what == GET ? ls_ranks_exchange(ctx, ranks, rank, NULL, 0, values + done, chunk)
                           : ls_ranks_exchange(ctx, ranks, rank, values + done, chunk, NULL, 0));
    }
    return LS_OK;
}

/* The elements [first, end) wherever they are. */
static ls_status move_moment(const ls_moment *m, errand what, int64_t first, int64_t end,
                             char *values) {
    const ls_optimizer *o = m->optimizer;
    ls_ctx *ctx = o->store->ctx;
    const size_t size = ls_dtype_size(o->store->master_type);
    for (int rank = 0; rank < (o->ranks == NULL ? 1 : o->ranks->size); rank++) {
        int64_t from, to;
        ls__optimizer_part(o, rank, LS_OPTIMIZER_WHOLLY, &from, &to);
        const int64_t at = ls_max(first, o->cuts[from]), stop = ls_min(end, o->cuts[to]);
        if (at >= stop) continue;
        char *here = values + (size_t)(at - first) * size;
        const size_t bytes = (size_t)(stop - at) * size;
        if (rank > 0)
            LS_TRY(fetch_part(m, rank, what, at, stop - at, here));
        else if (what == GET)
            LS_TRY(ls_device_get(ctx, here, moment_at(o, m->kind, at), bytes));
        else
            ls_device_put(ctx, moment_at(o, m->kind, at), here, bytes);
    }
    return LS_OK;
}

ls_status ls_moment_get(void *moment, int64_t first, int64_t count, void *values) {
    return move_moment(moment, GET, first, first + count, values);
}

ls_status ls_moment_put(void *moment, int64_t first, int64_t count, const void *values) {
    char *from;
    memcpy(&from, &values, sizeof from); /* only read from */
    return move_moment(moment, PUT, first, first + count, from);
}
