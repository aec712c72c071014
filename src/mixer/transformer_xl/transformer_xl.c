/* Transformer-XL (arXiv 1901.02860): attention with relative positions over the rows of a segment
 * and a memory of the rows before it. What is remembered is the layer's input; keys and values are
 * made from it with the weights of now. See transformer_xl.md. */
#include <math.h>

#include "mixer/mixer.h"

typedef struct xl_options {
    int64_t heads, head_width, memory, segment, clamp_len;
    bool same_length, untied;
} xl_options;

#define FIELD(name) xl_options, name
static const ls_option options[] = {
    LS_INT("heads", FIELD(heads), "4", 1, 4096, "Heads."),
    LS_INT("head_width", FIELD(head_width), "0", 0, 65536,
           "Head dimension of queries, keys and values; 0: width/heads."),
    LS_INT("memory", FIELD(memory), "64", 0, 1e12,
           "Rows before a segment that its queries see; may differ at test."),
    LS_INT("segment", FIELD(segment), "64", 1, 1e12,
           "Rows of a segment, counted from the start of the stream; as published, train.length."),
    LS_BOOL("same_length", FIELD(same_length), "false",
            "Whether each query sees `memory` keys, itself included, wherever segments begin."),
    LS_INT("clamp_len", FIELD(clamp_len), "0", 0, 1 << 24,
           "Largest distance that is told apart; 0: no limit."),
    LS_BOOL("untied", FIELD(untied), "false", "Whether each layer has its own u and v."),
};

static int64_t head_width(const ls_mixer *mixer) {
    const xl_options *o = mixer->options;
    return o->head_width > 0 ? o->head_width : mixer->width / o->heads;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const xl_options *o = mixer->options;
    if (o->head_width == 0 && mixer->width % o->heads != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "transformer_xl: %lld heads (mixer.heads) do not divide a width of "
                       "%lld (model.width): set mixer.head_width, or another number",
                       (long long)o->heads, (long long)mixer->width);
    if (mixer->width % 2 != 0)
        return LS_FAIL(ctx, LS_EUSE, "transformer_xl needs an even width, not %lld",
                       (long long)mixer->width);
    if (o->same_length && o->memory == 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "transformer_xl: with same_length a memory of 0 shows nothing");
    return LS_OK;
}

static ls_retention retention(const xl_options *o) {
    if (o->same_length) return (ls_retention){.window = o->memory};
    return (ls_retention){.block = o->segment, .before = o->memory};
}

/* Distances between a query and a key it sees, of a sequence of `length`. */
static int64_t distances(const xl_options *o, int64_t length) {
    int64_t most = ls_min(length, o->same_length ? o->memory : o->memory + o->segment);
    return o->clamp_len > 0 ? ls_min(most, o->clamp_len + 1) : most;
}

/* The layer's input of the chunk and of the memory, [B,N,D]. In a model with norms before its
 * layers it is kept as it was before the norm. */
static ls_tensor *remember(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    ls_retention keep = retention(mixer->options);
    keep.exact = true;
    if (mixer->norm == NULL || !ls_program_about(p)->streaming)
        return ls_cache_append(p, "memory", x, keep);
    ls_tensor *rows = ls_cache_append(p, "memory", mixer->stream, keep);
    return ls_norm_rows(p, mixer->norm, rows, NULL, NULL);
}

/* Keys and values [B,N,H,e] of the chunk and of what is remembered. Where weights may change from
 * run to run the layer's input is remembered, and its old rows have a part in the gradient of the
 * weights; otherwise the keys and values themselves are, which is the same function and saves
 * making them again. */
static void recall(ls_program *p, const ls_mixer *mixer, ls_tensor *x, ls_tensor **k,
                   ls_tensor **v) {
    const xl_options *o = mixer->options;
    const int64_t H = o->heads, e = head_width(mixer), widths[2] = {H * e, H * e};
    const bool exact = ls_program_about(p)->grad;
    ls_tensor *weight =
        ls_param(p, "kv.weight", LS_DIMS(2 * H * e, mixer->width), ls_init_normal(0.02));
    ls_tensor *rows = exact ? remember(p, mixer, x) : x, *parts[2];
    if (rows == NULL) return;
    ls_split(p, ls_linear(p, rows, weight, NULL), 2, widths, parts);
    *k = ls_reshape(p, parts[0], LS_DIMS(rows->dim[0], rows->dim[1], H, e));
    *v = ls_reshape(p, parts[1], LS_DIMS(rows->dim[0], rows->dim[1], H, e));
    if (exact) return;
    *k = ls_cache_append(p, "key", *k, retention(o));
    *v = ls_cache_append(p, "value", *v, retention(o));
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    if (x == NULL) return NULL;
    const xl_options *o = mixer->options;
    const ls_program_options *about = ls_program_about(p);
    const int64_t B = x->dim[0], T = x->dim[1], D = mixer->width, H = o->heads;
    const int64_t e = head_width(mixer);
    const ls_init init = ls_init_normal(0.02);
    ls_tensor *q = ls_linear(p, x, ls_param(p, "q.weight", LS_DIMS(H * e, D), init), NULL);
    q = ls_reshape(p, q, LS_DIMS(B, T, H, e));
    ls_tensor *k = NULL, *v = NULL;
    recall(p, mixer, x, &k, &v);

    ls_attend attend = ls_attend_start(D, H, H, e, e, true);
    ls_attend_xl(p, &attend, distances(o, about->streaming ? about->capacity : T), o->untied);
    ls_key_set seen = ls_key_set_all(ls_plus_broadcast(p, q, attend.content_bias), k, v);
    seen.lo = 0;
    if (o->same_length)
        seen.hi = o->memory - 1;
    else
        seen.span = (ls_span){o->segment, o->segment, -o->memory, o->segment};
    if (!about->streaming) seen.valid = mixer->valid;
    seen.relative = attend.relative;
    seen.relative_q = ls_plus_broadcast(p, q, attend.distance_bias);
    ls_tensor *y = ls_attention_seen(p, 1, &seen, (ls_attention_options){.scale = attend.scale});
    y = ls_reshape(p, y, LS_DIMS(B, T, H * e));
    return ls_linear(p, y, ls_param(p, "out.weight", LS_DIMS(D, H * e), init), NULL);
}

static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    const xl_options *o = mixer->options;
    return ls_cache_rows(retention(o), T, 1) * 2 * o->heads * head_width(mixer) * size;
}

/* Products and scores of the admitted pairs. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const xl_options *o = mixer->options;
    double pairs = 0, across = (double)(o->heads * head_width(mixer));
    for (int64_t n = 0; n < T; n++) {
        int64_t first =
            o->same_length ? n - o->memory + 1 : n / o->segment * o->segment - o->memory;
        pairs += (double)(n - ls_max(first, 0) + 1);
    }
    return 2 * across * (double)mixer->width * (double)(4 * T + distances(o, T)) +
           4 * across * pairs;
}

enum { ROWS_SAME, ROWS_QUERIES, ROWS_KEYS_VALUES };

/* Public code has queries, keys and values in one matrix. */
static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    const xl_options *o = mixer->options;
    const int64_t queries = o->heads * head_width(mixer);
    if (layout == ROWS_KEYS_VALUES) return r < queries ? -1 : r - queries;
    return layout == ROWS_SAME || r < queries ? r : -1;
}

static const ls_alias aliases[] = {
    {"qkv_net.weight", "q.weight", ROWS_QUERIES | LS_ALIAS_PART},
    {"qkv_net.weight", "kv.weight", ROWS_KEYS_VALUES | LS_ALIAS_PART},
    {"o_net.weight", "out.weight", ROWS_SAME},
    {"r_net.weight", "relative.weight", ROWS_SAME},
    {"r_w_bias", "/position.content_bias", ROWS_SAME},
    {"r_r_bias", "/position.distance_bias", ROWS_SAME},
    {"r_w_bias", "content_bias", ROWS_SAME},
    {"r_r_bias", "distance_bias", ROWS_SAME},
    {0},
};

/* What a trained model may be tested with otherwise. */
static const char *const at_test[] = {"memory", "segment", "same_length", "clamp_len", NULL};

/* Of the sinusoids that distances are seen by. */
static ls_status frequencies(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                             int64_t *count) {
    (void)T;
    *count = ls_ceil_div(mixer->width, 2);
    *out = ls_new(ctx, (size_t)*count, sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < *count; i++)
        (*out)[i] = pow(10000, -2.0 * (double)i / (double)mixer->width);
    return LS_OK;
}

static const ls_buffer buffers[] = {
    {"w.pos_emb.inv_freq", frequencies},
    {0},
};

static ls_value_rows value_rows(const ls_mixer *mixer) {
    const int64_t H = ((const xl_options *)mixer->options)->heads, e = head_width(mixer);
    return (ls_value_rows){
        .in = "kv.weight", .out = "out.weight", .first = H * e, .groups = H, .width = e};
}

const ls_mixer_type ls_mixer_transformer_xl = {
    .name = "transformer_xl",
    .summary = "attention over a segment and a memory of earlier layer inputs, relative positions",
    .paper = "arXiv 1901.02860",
    .options = LS_OPTIONS(options, xl_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_STREAMING,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
    .row = row,
    .at_test = at_test,
    .value_rows = value_rows,
};
