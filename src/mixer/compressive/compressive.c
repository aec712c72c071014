/* The Compressive Transformer (arXiv 1911.05507): Transformer-XL whose oldest rows are not
 * forgotten but compressed, and seen on as fewer, coarser ones. See compressive.md. */
#include <math.h>

#include "mixer/mixer.h"

enum { COMPRESS_CONV, COMPRESS_DILATED, COMPRESS_MEAN, COMPRESS_MAX, COMPRESS_MOST_USED };
enum { LOSS_ATTENTION, LOSS_AUTOENCODE, LOSS_NONE };
enum { DISTANCE_SLOTS, DISTANCE_TIME };
enum { POSITIONS_XL, POSITIONS_TABLE };

typedef struct compressive_options {
    int64_t heads, head_width, segment, memory, compressed, rate, dilation, clamp_len;
    int compress, loss, distance, positions;
    ls_ints memory_layers;
    double loss_weight;
    bool bptt, untied, out_bias;
} compressive_options;

#define FIELD(name) compressive_options, name
static const ls_option options[] = {
    LS_INT("heads", FIELD(heads), "4", 1, 4096, "Heads."),
    LS_INT("head_width", FIELD(head_width), "0", 0, 65536,
           "Head dimension of queries, keys and values; 0: width/heads."),
    LS_INT("segment", FIELD(segment), "32", 1, 1e12,
           "Rows of a segment, counted from the start of the stream; as published, train.length."),
    LS_INT("memory", FIELD(memory), "32", 0, 1e12,
           "Rows before a segment that its queries see as they are; may differ at test."),
    LS_INT("compressed", FIELD(compressed), "32", 0, 1e12,
           "Compressed rows before those; may differ at test."),
    LS_INTS("memory_layers", FIELD(memory_layers), "", 0, 65535,
            "Layers that have these memories, counted from 0; the others see their segment "
            "alone; empty: all."),
    LS_INT("rate", FIELD(rate), "4", 1, 1 << 20,
           "Rows that are compressed into one; divides segment and memory."),
    LS_CHOICE("compress", FIELD(compress), "conv", "conv|dilated|mean|max|most_used",
              "How rows are compressed: by a learned convolution (of rows side by side, or "
              "`dilation` apart), to their mean, to their maximum, or by keeping of a segment's "
              "rows those that attention used most."),
    LS_INT("dilation", FIELD(dilation), "2", 1, 1 << 20,
           "Distance of the rows that are compressed into one.", .needs = "compress=dilated"),
    LS_CHOICE("loss", FIELD(loss), "attention", "attention|autoencode|none",
              "What trains a learned compression: attention finds the same in it, or the rows "
              "can be reconstructed from it.",
              .needs = "compress=conv|dilated"),
    LS_REAL("loss_weight", FIELD(loss_weight), "1", 0, 1e6, "Factor of that loss in each layer.",
            .needs = "compress=conv|dilated and loss!=none"),
    LS_BOOL("bptt", FIELD(bptt), "false",
            "Whether the model's own loss trains the compression, where train.length holds "
            "several segments."),
    LS_CHOICE("distance", FIELD(distance), "slots", "slots|time",
              "Unit of the distance to compressed rows: rows, or the tokens they stand for."),
    LS_CHOICE("positions", FIELD(positions), "xl", "xl|table",
              "Relative keys: Transformer-XL's, or a learned table by distance."),
    LS_INT("clamp_len", FIELD(clamp_len), "0", 0, 1 << 24,
           "Largest distance that is told apart; 0: no limit.", .needs = "positions=xl"),
    LS_BOOL("untied", FIELD(untied), "false",
            "Whether each layer has its own biases of the scores, or its own table."),
    LS_BOOL("out_bias", FIELD(out_bias), "false", "A bias on the output projection."),
};

static int64_t head_width(const ls_mixer *mixer) {
    const compressive_options *o = mixer->options;
    return o->head_width > 0 ? o->head_width : mixer->width / o->heads;
}

static bool is_learned(const compressive_options *o) {
    return o->compress == COMPRESS_CONV || o->compress == COMPRESS_DILATED;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const compressive_options *o = mixer->options;
    if (o->head_width == 0 && mixer->width % o->heads != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "compressive: %lld heads (mixer.heads) do not divide a width of %lld "
                       "(model.width): set mixer.head_width, or another number",
                       (long long)o->heads, (long long)mixer->width);
    if (mixer->width % 2 != 0 && o->positions == POSITIONS_XL)
        return LS_FAIL(ctx, LS_EUSE, "compressive: positions=xl needs an even width, not %lld",
                       (long long)mixer->width);
    if (o->segment % o->rate != 0 || o->memory % o->rate != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "compressive: rate %lld must divide segment %lld and memory %lld",
                       (long long)o->rate, (long long)o->segment, (long long)o->memory);
    if (o->bptt && o->loss != LOSS_NONE && is_learned(o))
        return LS_FAIL(ctx, LS_EUSE,
                       "compressive: with bptt=true the model's loss trains the compression: set "
                       "loss=none");
    if (o->compress == COMPRESS_MOST_USED && (o->bptt || o->distance == DISTANCE_TIME))
        return LS_FAIL(ctx, LS_EUSE,
                       "compressive: compress=most_used takes neither bptt=true nor distance=time");
    return LS_OK;
}

/* The options as they are for the mixer's own layer. */
static compressive_options own_options(const ls_mixer *mixer) {
    compressive_options own = *(const compressive_options *)mixer->options;
    bool listed = own.memory_layers.count == 0;
    for (int64_t i = 0; i < own.memory_layers.count; i++)
        listed |= own.memory_layers.at[i] == mixer->layer;
    if (!listed) own.memory = own.compressed = 0;
    return own;
}

static ls_groups groups_of(const compressive_options *o) {
    return (ls_groups){.rate = o->rate,
                       .dilation = o->compress == COMPRESS_DILATED ? o->dilation : 1,
                       .segment = o->segment,
                       .memory = o->memory};
}

/* Compressed rows that are kept, of a sequence of up to `length`. */
static int64_t kept_groups(const compressive_options *o, int64_t length) {
    return ls_min(o->compressed, ls_groups_due(groups_of(o), length));
}

/* Of the rows themselves: what is seen, and what is yet to be compressed (`whole`). */
static ls_retention retention(const compressive_options *o, bool whole) {
    const ls_groups g = groups_of(o);
    int64_t more = whole && o->compressed > 0 ? (g.dilation - 1) * (g.rate - 1) : 0;
    return (ls_retention){.block = o->segment, .before = o->memory + more, .whole = true};
}

static int64_t distances(const compressive_options *o, int64_t length) {
    int64_t step = o->distance == DISTANCE_TIME ? o->rate : 1;
    int64_t most = ls_min(length, o->memory + o->segment + step * ls_min(o->compressed, length));
    return o->clamp_len > 0 ? ls_min(most, o->clamp_len + 1) : most;
}

/* ---- parts of the forward pass ---- */

/* Keys and values of rows. */
typedef struct projected {
    ls_tensor *k, *v; /* [B,N,H,e] */
} projected;

static projected project(ls_program *p, const ls_mixer *mixer, ls_tensor *rows, bool constant) {
    const int64_t H = ((const compressive_options *)mixer->options)->heads, e = head_width(mixer);
    ls_tensor *weight =
        ls_param(p, "kv.weight", LS_DIMS(2 * H * e, mixer->width), ls_init_normal(0.02));
    if (constant) weight = ls_detach(p, weight);
    ls_tensor *parts[2];
    if (rows == NULL) return (projected){NULL, NULL};
    ls_split(p, ls_linear(p, rows, weight, NULL), 2, (int64_t[]){H * e, H * e}, parts);
    const int64_t B = rows->dim[0], N = rows->dim[1];
    return (projected){ls_reshape(p, parts[0], LS_DIMS(B, N, H, e)),
                       ls_reshape(p, parts[1], LS_DIMS(B, N, H, e))};
}

/* A learned compression. */
typedef struct compression {
    ls_tensor *weight, *bias;
} compression;

static compression compression_of(ls_program *p, const ls_mixer *mixer) {
    const int64_t D = mixer->width, wide = ((const compressive_options *)mixer->options)->rate * D;
    const ls_init init = ls_init_normal(1 / sqrt((double)wide));
    ls_tensor *weight = ls_param(p, "compress.weight", LS_DIMS(D, wide), init);
    return (compression){weight, ls_param(p, "compress.bias", LS_DIMS(D), ls_init_bias())};
}

/* One row [B,G,D] of each group [B,G,rate*D]. */
static ls_tensor *compress(ls_program *p, const ls_mixer *mixer, ls_tensor *grouped) {
    const compressive_options *o = mixer->options;
    if (!is_learned(o))
        return ls_blend(p, o->compress == COMPRESS_MEAN ? LS_BLEND_MEAN : LS_BLEND_MAX, grouped,
                        o->rate);
    const compression by = compression_of(p, mixer);
    return ls_linear(p, grouped, by.weight, by.bias);
}

/* The far past: what this run compresses, and what is seen of it. */
typedef struct far_past {
    ls_tensor *grouped,
        *fresh; /* rows that are compressed in this run, side by side; as one each */
    projected seen;
} far_past;

static far_past look_back(ls_program *p, const ls_mixer *mixer, ls_tensor *rows) {
    const compressive_options *o = mixer->options;
    const ls_program_options *about = ls_program_about(p);
    const ls_groups groups = groups_of(o);
    const int64_t keep = kept_groups(o, about->capacity);
    const int64_t most = ls_groups_max(groups, about->chunk_max, ls_positions_end(p));
    far_past far = {0};
    far.grouped = ls_row_groups(p, "groups", o->bptt ? rows : ls_detach(p, rows), groups);
    far.fresh = compress(p, mixer, far.grouped);
    if (about->grad) {
        ls_tensor *all = ls_rows_append(p, "compressed", far.fresh, keep, most);
        far.seen = project(p, mixer, o->bptt ? all : ls_detach(p, all), false);
    } else {
        projected fresh = project(p, mixer, far.fresh, false);
        far.seen.k = ls_rows_append(p, "compressed.key", fresh.k, keep, most);
        far.seen.v = ls_rows_append(p, "compressed.value", fresh.v, keep, most);
    }
    return far;
}

/* The rows that attention used most, which is known only after it: what is seen are those of
 * earlier segments, so a run lies within one. Rows of a segment are chosen when it ends. */
typedef struct used_past {
    ls_tensor *rows, *keys, *values; /* caches; rows with gradients, else keys and values */
    int64_t keep;
    projected seen;
} used_past;

static used_past look_back_used(ls_program *p, const ls_mixer *mixer, ls_tensor *x,
                                projected near) {
    const compressive_options *o = mixer->options;
    const ls_program_options *about = ls_program_about(p);
    const int64_t most = ls_groups_max(groups_of(o), about->chunk_max, ls_positions_end(p));
    used_past used = {.keep = kept_groups(o, about->capacity)};
    if (!about->grad) ls_program_limit_chunk(p, 1);
    if (about->grad && o->segment % about->length != 0)
        ls_refuse(p, LS_EUSE,
                  "compressive: with compress=most_used train.length %lld must divide "
                  "mixer.segment %lld",
                  (long long)about->length, (long long)o->segment);
    if (ls_failed(p) || near.k == NULL || near.v == NULL) return used;
    /* any tensors with the shape of a row: those of one row */
    const int64_t B = x->dim[0], H = o->heads, e = head_width(mixer);
    const ls_row_rule rule = ls_groups_rule(groups_of(o));
    if (about->grad) {
        ls_tensor *like = ls_activation(p, ls_type(p), LS_DIMS(B, 1, mixer->width));
        used.rows = ls_rows_cache(p, "compressed", like, rule, used.keep, most);
        used.seen = project(p, mixer, used.rows, false);
    } else {
        ls_tensor *like = ls_activation(p, ls_type(p), LS_DIMS(B, 1, H, e));
        used.seen.k = used.keys = ls_rows_cache(p, "compressed.key", like, rule, used.keep, most);
        used.seen.v = used.values =
            ls_rows_cache(p, "compressed.value", like, rule, used.keep, most);
    }
    return used;
}

static void keep_used(ls_program *p, const ls_mixer *mixer, const used_past *used, ls_tensor *rows,
                      ls_tensor *received) {
    const compressive_options *o = mixer->options;
    ls_tensor *fresh = ls_most_used(p, "used", ls_detach(p, rows), received, groups_of(o));
    if (used->rows != NULL) {
        ls_rows_put_last(p, used->rows, fresh, used->keep);
        return;
    }
    projected keys = project(p, mixer, fresh, false);
    ls_rows_put_last(p, used->keys, keys.k, used->keep);
    ls_rows_put_last(p, used->values, keys.v, used->keep);
}

/* What the compression is trained by: it reads constants and leads to the compression alone. */
static void reconstruct(ls_program *p, const ls_mixer *mixer, ls_tensor *q, projected near,
                        const far_past *far) {
    const compressive_options *o = mixer->options;
    const ls_program_options *about = ls_program_about(p);
    const int64_t L = o->segment, M = o->memory, c = o->rate, D = mixer->width;
    ls_tensor *expand_weight = NULL, *expand_bias = NULL;
    if (o->loss == LOSS_NONE || !is_learned(o)) return;
    if (o->loss == LOSS_AUTOENCODE) {
        ls_init init = ls_init_normal(1 / sqrt((double)D));
        expand_weight = ls_param(p, "expand.weight", LS_DIMS(c * D, D), init);
        expand_bias = ls_param(p, "expand.bias", LS_DIMS(c * D), ls_init_bias());
    }
    if (!about->grad || !about->train) return;
    if (!about->streaming && ls_groups_due(groups_of(o), about->length) == 0) return;
    if (about->length % L != 0) {
        ls_refuse(p, LS_EUSE,
                  "compressive: mixer.loss trains on whole segments: train.length %lld is no "
                  "multiple of mixer.segment %lld",
                  (long long)about->length, (long long)L);
        return;
    }
    if (o->loss == LOSS_AUTOENCODE) {
        ls_tensor *again = ls_linear(p, far->fresh, expand_weight, expand_bias);
        again = ls_mask_rows(p, again, ls_own_rows(p, far->fresh)); /* other groups are zeros */
        ls_auxiliary(p, "compression", ls_mean_square(p, again, far->grouped), o->loss_weight);
        return;
    }
    projected fresh = project(p, mixer, far->fresh, true);
    ls_attention_options how = {.scale = 1 / sqrt((double)head_width(mixer))};
    q = ls_detach(p, q);
    ls_key_set before = ls_key_set_all(q, ls_detach(p, near.k), ls_detach(p, near.v));
    before.span = (ls_span){L, L, -M, L - M};
    ls_key_set after = ls_key_set_all(q, fresh.k, fresh.v);
    after.span = (ls_span){L, L / c, -M / c, (L - M) / c};
    ls_auxiliary(p, "compression",
                 ls_mean_square(p, ls_attention(p, 1, &before, how, NULL),
                                ls_attention(p, 1, &after, how, NULL)),
                 o->loss_weight);
}

/* Relative keys for all distances, and the queries that meet keys and relative keys. */
typedef struct scored {
    ls_tensor *q, *relative, *relative_q;
} scored;

static scored score(ls_program *p, const ls_mixer *mixer, ls_tensor *q) {
    const compressive_options *o = mixer->options;
    const ls_program_options *about = ls_program_about(p);
    const int64_t H = o->heads, e = head_width(mixer);
    if (o->positions == POSITIONS_TABLE) {
        ls_init zero = {.kind = LS_INIT_ZERO, .no_decay = true};
        int64_t rows = distances(o, LS_FAR);
        ls_tensor *table = o->untied ? ls_param(p, "table", LS_DIMS(rows, H, e), zero)
                                     : ls_shared_param(p, "table", LS_DIMS(rows, H, e), zero);
        return (scored){q, table, q};
    }
    ls_attend attend = ls_attend_start(mixer->width, H, H, e, e, true);
    int64_t length = about->streaming ? about->capacity : about->length;
    ls_attend_xl(p, &attend, distances(o, length), o->untied);
    return (scored){ls_plus_broadcast(p, q, attend.content_bias), attend.relative,
                    ls_plus_broadcast(p, q, attend.distance_bias)};
}

/* Keys, values and how they are scored; what is visible is the caller's. */
static ls_key_set segment_of(scored by, projected keys) {
    ls_key_set segment = ls_key_set_all(by.q, keys.k, keys.v);
    segment.relative = by.relative;
    segment.relative_q = by.relative_q;
    return segment;
}

static ls_key_set near_segment(const compressive_options *o, scored by, projected keys) {
    ls_key_set near = segment_of(by, keys);
    near.lo = 0;
    near.span = (ls_span){o->segment, o->segment, -o->memory, o->segment};
    return near;
}

/* Key number k stands for the tokens from k * rate on. */
static ls_key_set far_segment(const compressive_options *o, scored by, projected keys) {
    ls_key_set far = segment_of(by, keys);
    const int64_t L = o->segment, M = o->memory, c = o->rate;
    far.span = (ls_span){L, L / c, -M / c - o->compressed, -M / c};
    if (o->distance == DISTANCE_TIME) {
        far.key_at = (ls_position_map){LS_MAP_SCALE, (double)c, (double)((c - 1) / 2)};
    } else { /* row i of segment s is i + M - (k - (s L - M) / c) from it */
        far.query_at = (ls_position_map){LS_MAP_BLOCK, (double)L, (double)(L / c)};
        far.key_at = (ls_position_map){LS_MAP_GROUP, 1, -(double)(M - M / c)};
    }
    return far;
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    if (x == NULL) return NULL;
    const compressive_options own = own_options(mixer), *all_layers = mixer->options, *o = &own;
    const ls_program_options *about = ls_program_about(p);
    const int64_t B = x->dim[0], T = x->dim[1], D = mixer->width, H = o->heads;
    const int64_t e = head_width(mixer);
    const ls_init init = ls_init_normal(0.02);
    ls_tensor *q = ls_linear(p, x, ls_param(p, "q.weight", LS_DIMS(H * e, D), init), NULL);
    q = ls_reshape(p, q, LS_DIMS(B, T, H, e));
    const scored by = score(p, mixer, q);

    ls_retention all = retention(o, true), seen = retention(o, false);
    all.exact = about->grad;
    ls_tensor *rows = x;
    if (about->grad || o->compressed > 0)
        rows = ls_cache_append(p, o->memory > 0 ? "memory" : "rows", x, all);
    /* weights do not depend on which layers have memories */
    if (o->compressed == 0 && all_layers->compressed > 0 && is_learned(o)) compression_of(p, mixer);
    projected near = project(p, mixer, about->grad ? rows : x, false);
    if (!about->grad) {
        near.k = ls_cache_append(p, "key", near.k, seen);
        near.v = ls_cache_append(p, "value", near.v, seen);
    }
    const bool picks = o->compress == COMPRESS_MOST_USED;
    const bool looks_back = o->compressed > 0 && (!picks || about->streaming);
    ls_key_set segment[2] = {near_segment(o, by, near)};
    if (!about->streaming) segment[0].valid = mixer->valid;
    used_past used = {0};
    if (looks_back && picks) {
        used = look_back_used(p, mixer, x, near);
        segment[1] = far_segment(o, by, used.seen);
    } else if (looks_back) {
        far_past far = look_back(p, mixer, rows);
        segment[1] = far_segment(o, by, far.seen);
        reconstruct(p, mixer, q, near, &far);
    } else if (o->compressed > 0 && T > o->segment) {
        ls_refuse(p, LS_EUSE,
                  "compressive: with compress=most_used a whole text of %lld tokens needs a stream "
                  "(train.carry, eval.protocol=stream), or a segment as long",
                  (long long)T);
    }
    const int parts = looks_back ? 2 : 1;
    ls_attention_options how = {.scale = 1 / sqrt((double)e)};
    ls_tensor *lse, *y = ls_attention(p, parts, segment, how, &lse);
    if (looks_back && picks)
        keep_used(p, mixer, &used, rows, ls_attention_received(p, parts, segment, how, y, lse));
    y = ls_reshape(p, y, LS_DIMS(B, T, H * e));
    ls_tensor *bias = o->out_bias ? ls_param(p, "out.bias", LS_DIMS(D), ls_init_bias()) : NULL;
    return ls_linear(p, y, ls_param(p, "out.weight", LS_DIMS(D, H * e), init), bias);
}

/* ---- what it takes ---- */

static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    const compressive_options own = own_options(mixer), *o = &own;
    const int64_t pair = 2 * o->heads * head_width(mixer) * size;
    int64_t bytes = ls_cache_rows(retention(o, false), T, 1) * pair;
    if (o->compressed == 0) return bytes;
    bytes += ls_cache_rows(retention(o, true), T, 1) * mixer->width * size;
    if (o->compress == COMPRESS_MOST_USED) bytes += ls_min(o->segment, T) * ls_max(size, 4);
    return bytes + (kept_groups(o, T) + ls_groups_max(groups_of(o), 1, T)) * pair + 1;
}

/* Products and scores of the visible pairs. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const compressive_options own = own_options(mixer), *o = &own;
    const double D = (double)mixer->width, across = (double)(o->heads * head_width(mixer));
    double pairs = 0, products = 4 * (double)T * across * D;
    if (o->positions == POSITIONS_XL) products += (double)distances(o, T) * across * D;
    for (int64_t n = 0; n < T; n++) {
        int64_t left = n / o->segment * o->segment - o->memory;
        pairs += (double)(n - ls_max(left, 0) + 1);
        if (left > 0) pairs += (double)ls_min(left / o->rate, o->compressed);
    }
    if (o->compressed > 0) {
        double made = (double)ls_max(1, ls_groups_due(groups_of(o), T));
        products += made * (2 * across * D + (is_learned(o) ? (double)o->rate * D * D : 0));
    }
    return 2 * products + 4 * across * pairs;
}

enum { ROWS_SAME, ROWS_FROM_OLDEST };

/* Public code counts the rows of its table from the oldest row that a segment sees. */
static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    const compressive_options *o = mixer->options;
    if (layout == ROWS_SAME) return r;
    const int64_t before = mixer->start / o->segment * o->segment, near = ls_min(before, o->memory);
    const int64_t far = ls_min(o->compressed, (before - near) / o->rate);
    return ls_max(-1, far + near + o->segment - 1 - r);
}

static const ls_alias aliases[] = {
    {"to_q.weight", "q.weight", ROWS_SAME},
    {"to_kv.weight", "kv.weight", ROWS_SAME},
    {"to_out.weight", "out.weight", ROWS_SAME},
    {"to_out.bias", "out.bias", ROWS_SAME},
    {"compress_mem_fn.conv.weight", "compress.weight", ROWS_SAME | LS_ALIAS_LAST_TRANSPOSED},
    {"compress_mem_fn.conv.bias", "compress.bias", ROWS_SAME},
    {"pos_emb", "/position.table", ROWS_FROM_OLDEST | LS_ALIAS_TRANSPOSED | LS_ALIAS_MOVES},
    {"pos_emb", "table", ROWS_FROM_OLDEST | LS_ALIAS_TRANSPOSED | LS_ALIAS_MOVES},
    {0},
};

static const char *const at_test[] = {"segment",       "memory",    "compressed",
                                      "memory_layers", "clamp_len", NULL};

const ls_mixer_type ls_mixer_compressive = {
    .name = "compressive",
    .summary = "Transformer-XL whose oldest rows are compressed instead of forgotten",
    .paper = "arXiv 1911.05507",
    .options = LS_OPTIONS(options, compressive_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_STREAMING,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .row = row,
    .at_test = at_test,
};
