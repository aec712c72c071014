/* The attention of LongT5 (arXiv 2112.07916): a window, and with transient global attention one
 * side token for each block of tokens, made anew in every layer from their sum. See longt5.md. */
#include <math.h>

#include "mixer/mixer.h"

typedef struct longt5_options {
    int64_t heads, key_width, radius, global_block, buckets, max_distance;
    double epsilon;
} longt5_options;

#define FIELD(name) longt5_options, name
static const ls_option options[] = {
    LS_INT("heads", FIELD(heads), "4", 1, 4096, "Heads."),
    LS_INT("key_width", FIELD(key_width), "0", 0, 65536,
           "Head dimension of queries, keys and values; 0: width/heads."),
    LS_INT("radius", FIELD(radius), "127", 0, 1e15,
           "Distance that a query sees, on each side (causal: behind it)."),
    LS_INT("global_block", FIELD(global_block), "16", 0, 1 << 30,
           "Tokens that are summed to a global token; 0: local attention alone."),
    LS_INT("buckets", FIELD(buckets), "32", 4, 4096,
           "Rows of each bias table (half for each direction where the model is not causal)."),
    LS_INT("max_distance", FIELD(max_distance), "128", 2, 1 << 20,
           "Distance, in tokens and in blocks, from which on all share the last bucket."),
    LS_REAL("eps", FIELD(epsilon), "1e-6", 0, 1,
            "Added to the mean square in the norm of global tokens.", .needs = "global_block!=0"),
};

static int64_t head_width(const ls_mixer *mixer) {
    const longt5_options *o = mixer->options;
    return o->key_width > 0 ? o->key_width : mixer->width / o->heads;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const longt5_options *o = mixer->options;
    if (o->key_width == 0 && mixer->width % o->heads != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "longt5: %lld heads (mixer.heads) do not divide a width of %lld "
                       "(model.width): set mixer.key_width, or another number",
                       (long long)o->heads, (long long)mixer->width);
    return ls_t5_fits(ctx, o->buckets, o->max_distance);
}

/* Side tokens of a sequence. */
static int64_t side_tokens(const longt5_options *o, int64_t T) {
    return o->global_block > 0 ? T / o->global_block : 0;
}

/* Keys and values of x, both [B,N,H,K]. */
static void keys_and_values(ls_program *p, const ls_mixer *mixer, ls_tensor *x, ls_tensor *weight,
                            ls_tensor **out) {
    const longt5_options *o = mixer->options;
    const int64_t K = head_width(mixer), all = o->heads * K;
    out[0] = out[1] = NULL;
    if (x == NULL) return;
    ls_split(p, ls_linear(p, x, weight, NULL), 2, (const int64_t[]){all, all}, out);
    for (int i = 0; i < 2; i++)
        out[i] = ls_reshape(p, out[i], LS_DIMS(x->dim[0], x->dim[1], o->heads, K));
}

static ls_retention local_retention(const longt5_options *o) {
    return (ls_retention){.window = o->radius + 1};
}

/* Blocks of rows, each made once its last row is there. */
static ls_groups blocks_of(const longt5_options *o) {
    return (ls_groups){.rate = o->global_block, .dilation = 1, .segment = o->global_block};
}

/* Rows of a block that is not complete wait for the others. */
static ls_retention block_retention(const longt5_options *o) {
    return (ls_retention){.window = o->global_block, .whole = true};
}

static ls_key_set local_segment(ls_program *p, const ls_mixer *mixer, ls_tensor *x, ls_tensor *q,
                                ls_tensor *weight) {
    const longt5_options *o = mixer->options;
    ls_tensor *kv[2];
    keys_and_values(p, mixer, x, weight, kv);
    ls_key_set segment = ls_key_set_all(q, ls_cache_append(p, "key", kv[0], local_retention(o)),
                                        ls_cache_append(p, "value", kv[1], local_retention(o)));
    segment.lo = mixer->causal ? 0 : -o->radius;
    segment.hi = o->radius;
    segment.valid = mixer->valid;
    segment.table = ls_t5_table(p, "bias", o->buckets, o->max_distance, o->heads, mixer->causal,
                                false, &segment.table_zero);
    return segment;
}

/* The sums of blocks that this chunk of a stream completes. */
static ls_tensor *completed_sums(ls_program *p, const longt5_options *o, ls_tensor *x) {
    ls_tensor *rows = ls_cache_append(p, "rows", x, block_retention(o));
    ls_tensor *side = ls_row_groups(p, "blocks", rows, blocks_of(o));
    return ls_times(p, ls_blend(p, LS_BLEND_MEAN, side, o->global_block), (double)o->global_block);
}

/* Keys or values of side tokens with those of earlier chunks. */
static ls_tensor *with_earlier(ls_program *p, const longt5_options *o, const char *name,
                               ls_tensor *fresh) {
    const ls_program_options *about = ls_program_about(p);
    if (!about->streaming) return fresh;
    return ls_rows_append(p, name, fresh, ls_groups_due(blocks_of(o), about->capacity),
                          ls_groups_max(blocks_of(o), about->chunk_max, ls_positions_end(p)));
}

/* Side tokens stand at the numbers of their blocks, and queries at those of theirs; a causal query
 * sees the blocks that were complete before its own began. */
static ls_key_set side_segment(ls_program *p, const ls_mixer *mixer, ls_tensor *x, ls_tensor *q,
                               ls_tensor *weight) {
    const longt5_options *o = mixer->options;
    const bool streaming = ls_program_about(p)->streaming;
    ls_tensor *kv[2], *most = NULL, *there = NULL;
    int64_t zero;
    /* parameters do not depend on the length: they are declared where there is no block yet */
    ls_tensor *gain = ls_param(p, "global_norm.weight", LS_DIMS(mixer->width), ls_init_gain());
    ls_tensor *table = ls_t5_table(p, "global_bias", o->buckets, o->max_distance, o->heads,
                                   mixer->causal, false, &zero);
    if (!streaming && side_tokens(o, x->dim[1]) == 0) return (ls_key_set){0};
    ls_tensor *side = streaming ? completed_sums(p, o, x)
                                : ls_block_sums(p, x, mixer->valid, o->global_block, !mixer->causal,
                                                &most, &there);
    side = ls_residual_norm(p, LS_NORM_RMS, o->epsilon, side, NULL, gain, NULL, NULL);
    keys_and_values(p, mixer, side, weight, kv);
    ls_key_set segment = ls_key_set_all(q, with_earlier(p, o, "side.key", kv[0]),
                                        with_earlier(p, o, "side.value", kv[1]));
    segment.query_at = (ls_position_map){LS_MAP_GROUP, (double)o->global_block, 0};
    if (mixer->causal)
        segment.group = o->global_block;
    else
        segment.query_max = most;
    if (mixer->valid != NULL) segment.valid = there;
    segment.table = table;
    segment.table_zero = zero;
    return segment;
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    if (x == NULL) return NULL;
    const longt5_options *o = mixer->options;
    const int64_t B = x->dim[0], T = x->dim[1], D = mixer->width, K = head_width(mixer);
    const int64_t all = o->heads * K;
    const double width = (double)D;
    ls_ctx *ctx = ls_program_ctx(p);
    ls_status status = check(ctx, mixer);
    if (status != LS_OK) {
        ls_refuse(p, status, "%s", ctx->error.message);
        return NULL;
    }
    /* scores are not scaled: the initial weights are */
    ls_tensor *q_weight =
        ls_param(p, "q.weight", LS_DIMS(all, D), ls_init_normal(1 / sqrt(width * (double)K)));
    ls_tensor *kv_weight =
        ls_param(p, "kv.weight", LS_DIMS(2 * all, D), ls_init_normal(1 / sqrt(width)));
    ls_tensor *out_weight =
        ls_param(p, "out.weight", LS_DIMS(D, all), ls_init_normal(1 / sqrt((double)all)));
    ls_tensor *q = ls_reshape(p, ls_linear(p, x, q_weight, NULL), LS_DIMS(B, T, o->heads, K));
    ls_key_set segment[2] = {local_segment(p, mixer, x, q, kv_weight)};
    if (o->global_block > 0) segment[1] = side_segment(p, mixer, x, q, kv_weight);
    int segments = segment[1].q != NULL ? 2 : 1;
    ls_tensor *mixed = ls_attention(p, segments, segment, (ls_attention_options){.scale = 1}, NULL);
    return ls_linear(p, ls_reshape(p, mixed, LS_DIMS(B, T, all)), out_weight, NULL);
}

static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    const longt5_options *o = mixer->options;
    const int64_t pair = 2 * o->heads * head_width(mixer) * size;
    if (!mixer->causal) return 0; /* it takes no stream */
    int64_t bytes = ls_cache_rows(local_retention(o), T, 1) * pair;
    if (o->global_block == 0) return bytes;
    bytes += ls_cache_rows(block_retention(o), T, 1) * mixer->width * size;
    return bytes + (side_tokens(o, T) + ls_groups_max(blocks_of(o), 1, T)) * pair + 1;
}

/* Projections of tokens and side tokens, and pairs. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const longt5_options *o = mixer->options;
    const int64_t side = side_tokens(o, T), all = o->heads * head_width(mixer);
    double pairs = 0, projected = 4 * (double)T + 2 * (double)side;
    for (int64_t n = 0; n < T; n++) {
        int64_t last = mixer->causal ? n : ls_min(T - 1, n + o->radius);
        pairs += (double)(last - ls_max(0, n - o->radius) + 1);
        if (o->global_block > 0) pairs += (double)(mixer->causal ? n / o->global_block : side);
    }
    return 2 * projected * (double)(mixer->width * all) + 4 * (double)all * pairs;
}

/* ---- names ---- */

enum { ROWS_FIRST, ROWS_SECOND };

static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    const longt5_options *o = mixer->options;
    return layout * o->heads * head_width(mixer) + r;
}

static const ls_alias aliases[] = {
    {"q.weight", "q.weight", ROWS_FIRST},
    {"k.weight", "kv.weight", ROWS_FIRST},
    {"v.weight", "kv.weight", ROWS_SECOND},
    {"o.weight", "out.weight", ROWS_FIRST},
    {"relative_attention_bias.weight", "/position.bias", ROWS_FIRST},
    {"global_relative_attention_bias.weight", "/position.global_bias", ROWS_FIRST},
    {"global_input_layer_norm.weight", "global_norm.weight", ROWS_FIRST},
    {0},
};

static const ls_buffer buffers[] = {
    {"out.block_ids", NULL},
    {"out.global_segment_ids", NULL},
    {0},
};

const ls_mixer_type ls_mixer_longt5 = {
    .name = "longt5",
    .summary = "a window with T5's bias, and one side token for each block of tokens",
    .paper = "arXiv 2112.07916",
    .options = LS_OPTIONS(options, longt5_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_BIDIRECTIONAL | LS_MIXER_STREAMING,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
    .row = row,
};
