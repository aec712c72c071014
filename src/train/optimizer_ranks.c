/* The optimiser's buffers over ranks. Gradients are summed by halving: ranks at the distance 1,
 * then 2, 4, ... swap halves of what they still have, so that level k of the tree is summed in
 * round k and each rank sends less than one gradient in all. What comes back (weights after an
 * update, sums of squares) goes the same way in reverse.
 *
 * Bytes pass through the caller's memory, also those of a device, in chunks of a fixed size; from
 * device to device (link.h) in larger ones, and what is not added lands in its place. */
#include "train/optimizer_ranks.h"

#include <string.h>

#include "tensor/engine/device.h"
#include "train/link.h"

enum { CHUNK = 1 << 20, CHUNK_THERE = 32 << 20 }; /* bytes */

/* The piece at which the elements of some are halved most evenly. */
static int64_t middle_of(const int64_t *cuts, ls_pieces part) {
    const int64_t half = cuts[part.from] + (cuts[part.end] - cuts[part.from]) / 2;
    int64_t low = part.from, high = part.end;
    while (low < high) {
        const int64_t at = low + (high - low) / 2;
        if (cuts[at] < half)
            low = at + 1;
        else
            high = at;
    }
    const bool before = low > part.from && half - cuts[low - 1] < cuts[low] - half;
    return before ? low - 1 : low;
}

ls_pieces ls__optimizer_part(const ls_optimizer *o, int64_t bucket, int rank, int halvings) {
    const int size = o->ranks == NULL ? 1 : o->ranks->size;
    ls_pieces part = {o->bucket[bucket], o->bucket[bucket + 1]};
    for (int k = 0; k < halvings && (1 << k) < size; k++) {
        const int64_t middle = middle_of(o->cuts, part);
        *(((rank ^ bucket) >> k & 1) != 0 ? &part.from : &part.end) = middle;
    }
    return part;
}

/* A part of a flat buffer of the master's type. */
static ls_part_bytes span_of(const ls_optimizer *o, void *buffer, int64_t bucket, int rank,
                             int halvings) {
    const size_t size = ls_dtype_size(o->store->master_type);
    const ls_pieces part = ls__optimizer_part(o, bucket, rank, halvings);
    return (ls_part_bytes){(char *)buffer + (size_t)o->cuts[part.from] * size,
                           (size_t)(o->cuts[part.end] - o->cuts[part.from]) * size};
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

/* On a device, as much as comes from another at once: half of the largest bucket. */
static size_t room_there(const ls_optimizer *o) {
    size_t most = 0;
    for (int64_t b = 0; b < o->buckets; b++) {
        const int64_t first = o->cuts[o->bucket[b]], end = o->cuts[o->bucket[b + 1]];
        most = (size_t)ls_max((int64_t)most, end - first);
    }
    most *= ls_dtype_size(o->store->master_type);
    return most < CHUNK ? CHUNK : most < CHUNK_THERE ? most : CHUNK_THERE;
}

ls_status ls__optimizer_chunks(ls_ctx *ctx, ls_optimizer *o) {
    if (o->ranks == NULL) return LS_OK;
    o->there_bytes = room_there(o);
    o->received = take_chunk(ctx);
    o->sent = ctx->device == NULL ? NULL : take_chunk(ctx);
    o->there = ctx->device == NULL ? NULL : ls_device_take(ctx, o->there_bytes, 1);
    const bool all = ctx->device == NULL || (o->sent != NULL && o->there != NULL);
    return o->received != NULL && all ? LS_OK : LS_ENOMEM;
}

static size_t part_of(size_t bytes, size_t done, size_t most) {
    return done >= bytes ? 0 : bytes - done < most ? bytes - done : most;
}

static size_t chunk_of(size_t bytes, size_t done) {
    return part_of(bytes, done, CHUNK);
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

static void add(ls_ctx *ctx, const ls_optimizer *o, char *to, const void *more, size_t bytes) {
    const ls_dtype type = o->store->master_type;
    const ls_gradient_sum sum = {
        .type = type, .to = to, .from = more, .count = (int64_t)(bytes / ls_dtype_size(type))};
    if (bytes > 0) ls_gradient_add(ctx, &sum);
}

/* From device to device, and added there. */
static ls_status add_there(ls_ctx *ctx, const ls_optimizer *o, int with, ls_part_bytes give,
                           ls_part_bytes take) {
    const size_t most = o->there_bytes;
    for (size_t done = 0; done < give.bytes || done < take.bytes; done += most) {
        const size_t in = part_of(take.bytes, done, most);
        const ls_nccl_span span = {give.at + done, part_of(give.bytes, done, most), o->there, in};
        LS_TRY(ls_link_swap(ctx, o->ranks, with, &span, 1));
        add(ctx, o, take.at + done, o->there, in);
    }
    return LS_OK;
}

/* Swaps spans with a rank, and adds what comes to what is there or puts it in its place. */
static ls_status swap_spans(ls_ctx *ctx, const ls_optimizer *o, int with, ls_part_bytes give,
                            ls_part_bytes take, bool adds) {
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
        add(ctx, o, take.at + done, more, in);
    }
    return LS_OK;
}

static int rounds_of(const ls_ranks *ranks) {
    int rounds = 0;
    while ((1 << rounds) < ranks->size) rounds++;
    return rounds;
}

ls_status ls__optimizer_reduce_bucket(ls_ctx *ctx, ls_optimizer *o, int64_t bucket) {
    const int rank = o->ranks->rank;
    for (int k = 0; k < rounds_of(o->ranks); k++) {
        const int with = rank ^ (1 << k);
        const ls_part_bytes give = span_of(o, o->store->gradient, bucket, with, k + 1);
        const ls_part_bytes take = span_of(o, o->store->gradient, bucket, rank, k + 1);
        LS_TRY(o->ranks->nccl != NULL ? add_there(ctx, o, with, give, take)
                                      : swap_spans(ctx, o, with, give, take, true));
    }
    return LS_OK;
}

ls_status ls_optimizer_reduce(ls_ctx *ctx, ls_optimizer *o) {
    for (int64_t b = 0; o->ranks != NULL && b < o->buckets; b++)
        LS_TRY(ls__optimizer_reduce_bucket(ctx, o, b));
    return LS_OK;
}

ls_status ls__optimizer_share(ls_ctx *ctx, ls_optimizer *o, ls_part_fn span) {
    const int rank = o->ranks->rank;
    const bool there = o->ranks->nccl != NULL;
    for (int k = rounds_of(o->ranks) - 1; k >= 0; k--) {
        const int with = rank ^ (1 << k);
        ls_nccl_span spans[LS_OPTIMIZER_BUCKETS];
        for (int64_t b = 0; b < o->buckets; b++) {
            const ls_part_bytes give = span(o, b, rank, k + 1), take = span(o, b, with, k + 1);
            spans[b] = (ls_nccl_span){give.at, give.bytes, take.at, take.bytes};
            if (!there) LS_TRY(swap_spans(ctx, o, with, give, take, false));
        }
        if (there) LS_TRY(ls_link_swap(ctx, o->ranks, with, spans, (size_t)o->buckets));
    }
    return LS_OK;
}

static ls_part_bytes master_span(const ls_optimizer *o, int64_t bucket, int rank, int halvings) {
    return span_of(o, o->store->master, bucket, rank, halvings);
}

ls_status ls__optimizer_share_weights(ls_ctx *ctx, ls_optimizer *o) {
    if (o->ranks == NULL) return LS_OK;
    LS_TRY(o->weights != NULL ? ls__optimizer_share_masters(ctx, o, false)
                              : ls__optimizer_share(ctx, o, master_span));
    if (ctx->rehearsal) return LS_OK;
    ls_parameters_round(o->store);
    ls_parameters_clear_gradient(o->store);
    return LS_OK;
}

ls_status ls__optimizer_share_sums(ls_ctx *ctx, const ls_optimizer *o) {
    if (o->ranks == NULL) return LS_OK;
    return ls_ranks_share(ctx, o->ranks, o->all_sums, (size_t)o->most * sizeof(double));
}

ls_status ls_optimizer_broadcast(ls_ctx *ctx, ls_optimizer *o) {
    const ls_parameters *store = o->store;
    const size_t bytes = (size_t)store->total * ls_dtype_size(store->master_type);
    if (o->ranks == NULL || ctx->rehearsal) return LS_OK;
    ls_parameters_changed(o->store);
    if (o->weights != NULL) return ls__optimizer_share_masters(ctx, o, true);
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
    int64_t bucket, first, count;
} request;

static char *moment_at(const ls_optimizer *o, ls_moment_kind kind, int64_t bucket,
                       int64_t element) {
    char *buffer = kind == LS_MOMENT_MEAN     ? o->mean
                   : kind == LS_MOMENT_SQUARE ? o->square
                                              : o->weights;
    const int rank = o->ranks == NULL ? 0 : o->ranks->rank;
    const ls_pieces part = ls__optimizer_part(o, bucket, rank, LS_OPTIMIZER_WHOLLY);
    const int64_t at = o->before[bucket] + element - o->cuts[part.from];
    return buffer + (size_t)at * ls_dtype_size(o->store->master_type);
}

/* Whether this rank has what is asked for. */
static bool has(const ls_optimizer *o, const request *asked) {
    if ((asked->what != GET && asked->what != PUT) || asked->kind < LS_MOMENT_MEAN ||
        asked->kind > (o->weights != NULL ? LS_MOMENT_WEIGHTS : LS_MOMENT_SQUARE) ||
        asked->bucket < 0 || asked->bucket >= o->buckets)
        return false;
    const ls_pieces part =
        ls__optimizer_part(o, asked->bucket, o->ranks->rank, LS_OPTIMIZER_WHOLLY);
    const int64_t first = o->cuts[part.from], count = o->cuts[part.end] - first;
    return asked->first >= first && asked->count >= 0 && asked->count <= count &&
           asked->first - first <= count - asked->count;
}

/* Between a span of this rank's and rank 0 or back, in chunks. */
static ls_status carry(ls_ctx *ctx, const ls_optimizer *o, ls_part_bytes what, bool away) {
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
        if (!has(o, &asked))
            return LS_FAIL(ctx, LS_ERANK, "rank 0 asks for moments that are not here");
        const ls_part_bytes what = {
            moment_at(o, (ls_moment_kind)asked.kind, asked.bucket, asked.first),
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

/* Elements of one bucket that one rank has. */
typedef struct elements {
    int64_t bucket, first, count;
    char *values;
} elements;

static ls_status fetch_part(const ls_moment *m, int rank, errand what, const elements *part) {
    ls_ranks *ranks = m->optimizer->ranks;
    ls_ctx *ctx = m->optimizer->store->ctx;
    const size_t bytes = (size_t)part->count * ls_dtype_size(m->optimizer->store->master_type);
    const request asked = {(int32_t)what, (int32_t)m->kind, part->bucket, part->first, part->count};
    char *values = part->values;
    LS_TRY(ls_ranks_exchange(ctx, ranks, rank, &asked, sizeof asked, NULL, 0));
    for (size_t done = 0; done < bytes; done += CHUNK) {
        const size_t chunk = chunk_of(bytes, done);
        LS_TRY(what == GET ? ls_ranks_exchange(ctx, ranks, rank, NULL, 0, values + done, chunk)
                           : ls_ranks_exchange(ctx, ranks, rank, values + done, chunk, NULL, 0));
    }
    return LS_OK;
}

static ls_status move_part(const ls_moment *m, int rank, errand what, const elements *part) {
    const ls_optimizer *o = m->optimizer;
    const size_t bytes = (size_t)part->count * ls_dtype_size(o->store->master_type);
    if (rank > 0) return fetch_part(m, rank, what, part);
    char *here = moment_at(o, m->kind, part->bucket, part->first);
    if (what == GET) return ls_device_get(o->store->ctx, part->values, here, bytes);
    ls_device_put(o->store->ctx, here, part->values, bytes);
    return LS_OK;
}

/* The elements [first, end) wherever they are. */
static ls_status move_moment(const ls_moment *m, errand what, int64_t first, int64_t end,
                             char *values) {
    const ls_optimizer *o = m->optimizer;
    const size_t size = ls_dtype_size(o->store->master_type);
    for (int64_t b = 0; b < o->buckets; b++) {
        if (o->cuts[o->bucket[b + 1]] <= first || o->cuts[o->bucket[b]] >= end) continue;
        for (int rank = 0; rank < (o->ranks == NULL ? 1 : o->ranks->size); rank++) {
            const ls_pieces part = ls__optimizer_part(o, b, rank, LS_OPTIMIZER_WHOLLY);
            const int64_t at = ls_max(first, o->cuts[part.from]);
            const int64_t stop = ls_min(end, o->cuts[part.end]);
            const elements of = {b, at, stop - at, values + (size_t)(at - first) * size};
            if (at < stop) LS_TRY(move_part(m, rank, what, &of));
        }
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
