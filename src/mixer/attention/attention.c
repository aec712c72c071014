/* Softmax attention with heads (arXiv 1706.03762 section 3.2), with fewer key-value heads than
 * query heads where wished (arXiv 2305.13245), a sliding window and dilation (arXiv 2004.05150),
 * norms of queries and keys (arXiv 2010.04245), a soft cap of scores (arXiv 2408.00118).
 * Positions and what extends them come from the position room. See attention.md. */
#include <string.h>

#include "mixer/mixer.h"

typedef struct attention_options {
    int64_t heads, kv_heads, key_width, value_width, window;
    bool bias, out_bias;
    int inner_norm; /* 0: none; else of ls_norm_kind, plus 1 */
    double inner_epsilon;
    int qk_norm;      /* qk_norm below */
    int qk_norm_kind; /* ls_norm_kind */
    bool qk_norm_bias;
    double qk_epsilon, score_scale, score_cap, rope_base;
    int positions; /* positions_taken below */
    ls_ints dilation;
} attention_options;

enum qk_norm { QK_NONE, QK_HEAD, QK_ALL };
enum positions_taken { POSITIONS_ALL, POSITIONS_TRAINED, POSITIONS_NONE };

#define FIELD(name) attention_options, name
static const ls_option options[] = {
    LS_INT("heads", FIELD(heads), "4", 1, 4096,
           "Query heads. On a GPU those of at most 128 numbers are fast."),
    LS_INT("kv_heads", FIELD(kv_heads), "0", 0, 4096,
           "Key-value heads, each shared by heads/kv_heads query heads; 0: as many as heads."),
    LS_INT("key_width", FIELD(key_width), "0", 0, 65536,
           "Head dimension of queries and keys; 0: width/heads."),
    LS_INT("value_width", FIELD(value_width), "0", 0, 65536,
           "Head dimension of values; 0: width/heads."),
    LS_BOOL("bias", FIELD(bias), "false", "Biases on the projections."),
    LS_BOOL("out_bias", FIELD(out_bias), "true", "A bias on the output projection too.",
            .needs = "bias=true"),
    LS_CHOICE("inner_norm", FIELD(inner_norm), "none", "none|layer|rms",
              "A norm of all heads together before the output projection (sub-LayerNorm)."),
    LS_REAL("inner_epsilon", FIELD(inner_epsilon), "1e-5", 1e-12, 1, "Added in that norm.",
            .needs = "inner_norm!=none"),
    LS_CHOICE(
        "qk_norm", FIELD(qk_norm), "none", "none|head|all",
        "Norms of queries and of keys before positions enter: of each head, with weights that "
        "heads share (Qwen3), or of all heads together (OLMo 2)."),
    LS_CHOICE("qk_norm_kind", FIELD(qk_norm_kind), "rms", "layer|rms", "Kind of those norms.",
              .needs = "qk_norm!=none"),
    LS_BOOL("qk_norm_bias", FIELD(qk_norm_bias), "false", "Whether they have biases.",
            .needs = "qk_norm!=none and qk_norm_kind=layer"),
    LS_REAL("qk_epsilon", FIELD(qk_epsilon), "1e-6", 1e-12, 1, "Added in them.",
            .needs = "qk_norm!=none"),
    LS_REAL("score_scale", FIELD(score_scale), "0", 0, 1e6,
            "Factor of the products of queries and keys; 0: 1/sqrt(key_width)."),
    LS_REAL("score_cap", FIELD(score_cap), "0", 0, 1e6,
            "Soft cap of scores, biases included: cap tanh(score / cap) (Gemma 2); 0: none."),
    LS_CHOICE("positions", FIELD(positions), "all", "all|trained|none",
              "What these layers take of the position method: all; the method as trained, without "
              "extensions (windows of Gemma 3); nothing (SmolLM3)."),
    LS_REAL("rope_base", FIELD(rope_base), "0", 0, 1e12,
            "Base of the rotation of these layers; 0: position.base.", .needs = "positions!=none"),
    LS_INT("window", FIELD(window), "0", 0, 1e15,
           "Keys that a query sees, itself included, in steps of the dilation; 0: all."),
    LS_INTS("dilation", FIELD(dilation), "", 1, 1e9,
            "Step between the keys that a query sees: one for all heads, or one per head; empty: "
            "1."),
};

/* The options with every 0 filled in. */
typedef struct shape {
    int64_t heads, groups, key_width, value_width;
} shape;

static shape shape_of(const ls_mixer *mixer) {
    const attention_options *o = mixer->options;
    return (shape){
        .heads = o->heads,
        .groups = o->kv_heads > 0 ? o->kv_heads : o->heads,
        .key_width = o->key_width > 0 ? o->key_width : mixer->width / o->heads,
        .value_width = o->value_width > 0 ? o->value_width : mixer->width / o->heads,
    };
}

/* The position method as these layers take it: NULL for none; `room` is for a copy. */
static const ls_position *position_of(const ls_mixer *mixer, ls_position *room) {
    const attention_options *o = mixer->options;
    if (mixer->position == NULL || o->positions == POSITIONS_NONE) return NULL;
    if (o->positions == POSITIONS_ALL) return mixer->position;
    *room = *mixer->position;
    room->extensions = 0;
    return room;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const attention_options *o = mixer->options;
    shape s = shape_of(mixer);
    if ((o->key_width == 0 || o->value_width == 0) && mixer->width % o->heads != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "attention: %lld heads (mixer.heads) do not divide a width of %lld "
                       "(model.width): set mixer.key_width and mixer.value_width, or "
                       "another number",
                       (long long)o->heads, (long long)mixer->width);
    if (s.heads % s.groups != 0)
        return LS_FAIL(ctx, LS_EUSE, "attention: %lld heads cannot share %lld key-value heads",
                       (long long)s.heads, (long long)s.groups);
    if (o->rope_base > 0 && o->rope_base < 1)
        return LS_FAIL(ctx, LS_EUSE, "attention: rope_base is %g, below 1", o->rope_base);
    if (o->rope_base > 0 &&
        (mixer->position == NULL || strcmp(mixer->position->type->name, "rope") != 0))
        return LS_FAIL(ctx, LS_EUSE, "attention: rope_base is for position method rope");
    if (o->dilation.count > 1 && o->dilation.count != o->heads)
        return LS_FAIL(ctx, LS_EUSE,
                       "attention: dilation has %lld numbers; give one, or one for each of %lld "
                       "heads",
                       (long long)o->dilation.count, (long long)o->heads);
    if (o->dilation.count > 0 && o->heads > LS_OPTION_LIST_MAX)
        return LS_FAIL(ctx, LS_EUSE, "attention: dilation is for at most %d heads",
                       LS_OPTION_LIST_MAX);
    return ls_position_fits(ctx, mixer->position, mixer->width, s.heads, mixer->causal);
}

/* What is visible before extensions; `dilation` has room for every head. */
static ls_attend start(const ls_mixer *mixer, int64_t *dilation) {
    const attention_options *o = mixer->options;
    shape s = shape_of(mixer);
    ls_attend attend =
        ls_attend_start(mixer->width, s.heads, s.groups, s.key_width, s.value_width, mixer->causal);
    if (o->score_scale > 0) attend.scale = o->score_scale;
    attend.cap = o->score_cap;
    attend.base = o->rope_base;
    if (o->window > 0) {
        attend.set[0].hi = o->window - 1;
        if (!mixer->causal) attend.set[0].lo = 1 - o->window;
    }
    if (o->dilation.count > 0) {
        attend.dilation = dilation;
        for (int64_t h = 0; h < s.heads; h++)
            dilation[h] = o->dilation.at[o->dilation.count > 1 ? h : 0];
    }
    return attend;
}

/* Queries or keys [B,T,heads * width] as [B,T,heads,width], through their norm. */
static ls_tensor *head_rows(ls_program *p, const attention_options *o, const char *name,
                            ls_tensor *x, int64_t heads, int64_t width) {
    if (x == NULL) return NULL;
    const int64_t B = x->dim[0], T = x->dim[1];
    const int64_t weights = o->qk_norm == QK_HEAD ? width : heads * width;
    const ls_norm_kind kind = o->qk_norm_kind == 0 ? LS_NORM_LAYER : LS_NORM_RMS;
    if (o->qk_norm != QK_NONE) {
        ls_scope(p, "%s", name);
        ls_tensor *weight = ls_param(p, "weight", LS_DIMS(weights), ls_init_gain());
        ls_tensor *bias = kind == LS_NORM_LAYER && o->qk_norm_bias
                              ? ls_param(p, "bias", LS_DIMS(weights), ls_init_bias())
                              : NULL;
        ls_scope_end(p);
        /* rows of heads lie together, which parts of a product do not */
        if (o->qk_norm == QK_HEAD)
            x = ls_reshape(p, ls_activate(p, LS_ACT_NONE, false, x), LS_DIMS(B, T, heads, width));
        x = ls_residual_norm(p, kind, o->qk_epsilon, x, NULL, weight, bias, NULL);
    }
    return ls_reshape(p, x, LS_DIMS(B, T, heads, width));
}

static ls_tensor *inner_norm(ls_program *p, const attention_options *o, ls_tensor *mixed) {
    if (mixed == NULL) return NULL;
    const ls_norm_kind kind = o->inner_norm == 1 ? LS_NORM_LAYER : LS_NORM_RMS;
    const int64_t width = mixed->dim[2];
    ls_tensor *weight = ls_param(p, "inner_norm.weight", LS_DIMS(width), ls_init_gain());
    ls_tensor *bias = kind == LS_NORM_LAYER && o->bias
                          ? ls_param(p, "inner_norm.bias", LS_DIMS(width), ls_init_bias())
                          : NULL;
    return ls_residual_norm(p, kind, o->inner_epsilon, mixed, NULL, weight, bias, NULL);
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    if (x == NULL) return NULL;
    ls_ctx *ctx = ls_program_ctx(p);
    ls_status status = check(ctx, mixer);
    if (status != LS_OK) {
        ls_refuse(p, status, "%s", ctx->error.message);
        return NULL;
    }
    const attention_options *o = mixer->options;
    const shape s = shape_of(mixer);
    const int64_t B = x->dim[0], T = x->dim[1], D = mixer->width;
    const int64_t widths[3] = {s.heads * s.key_width, s.groups * s.key_width,
                               s.groups * s.value_width};
    const int64_t all = widths[0] + widths[1] + widths[2];
    const ls_init init = {.kind = LS_INIT_NORMAL, .a = 0.02};
    const ls_init zero = {.kind = LS_INIT_ZERO, .no_decay = true, .full = true};

    ls_tensor *qkv_weight = ls_param(p, "qkv.weight", LS_DIMS(all, D), init);
    ls_tensor *qkv_bias = o->bias ? ls_param(p, "qkv.bias", LS_DIMS(all), zero) : NULL;
    ls_tensor *qkv[3];
    ls_split(p, ls_linear(p, x, qkv_weight, qkv_bias), 3, widths, qkv);
    ls_tensor *q = head_rows(p, o, "q_norm", qkv[0], s.heads, s.key_width);
    ls_tensor *k = head_rows(p, o, "k_norm", qkv[1], s.groups, s.key_width);
    ls_tensor *v = ls_reshape(p, qkv[2], LS_DIMS(B, T, s.groups, s.value_width));

    int64_t dilation[LS_OPTION_LIST_MAX];
    ls_attend attend = start(mixer, dilation);
    attend.valid = mixer->valid;
    attend.places = mixer->places;
    ls_position room;
    ls_tensor *mixed = ls_attend_record(p, position_of(mixer, &room), attend, q, k, v);
    mixed = ls_reshape(p, mixed, LS_DIMS(B, T, s.heads * s.value_width));
    if (o->inner_norm != 0) mixed = inner_norm(p, o, mixed);
    ls_tensor *out_weight = ls_param(p, "out.weight", LS_DIMS(D, s.heads * s.value_width), init);
    ls_tensor *out_bias = o->bias && o->out_bias ? ls_param(p, "out.bias", LS_DIMS(D), zero) : NULL;
    return ls_linear(p, mixed, out_weight, out_bias);
}

/* What the extensions leave visible; false where they refuse, which `forward` will report. */
static bool visible(const ls_mixer *mixer, int64_t T, int64_t *dilation, ls_attend *attend) {
    ls_ctx ctx = ls_ctx_default();
    ls_position room;
    *attend = start(mixer, dilation);
    attend->planned_length = T;
    return ls_attend_extend(&ctx, position_of(mixer, &room), attend) == LS_OK;
}

static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    int64_t dilation[LS_OPTION_LIST_MAX];
    ls_attend attend;
    return visible(mixer, T, dilation, &attend) ? ls_attend_state_bytes(&attend, T, size) : 0;
}

/* Projections and scores; what is linear in T without a factor of the width is left out. */
static double flops(const ls_mixer *mixer, int64_t T) {
    int64_t dilation[LS_OPTION_LIST_MAX];
    ls_attend attend;
    if (!visible(mixer, T, dilation, &attend)) return 0;
    shape s = shape_of(mixer);
    int64_t projected = (s.heads + s.groups) * (s.key_width + s.value_width);
    return 2 * (double)T * (double)mixer->width * (double)projected +
           2 * (double)(s.key_width + s.value_width) * ls_attend_pairs(&attend, T);
}

/* How public checkpoints order the rows of what is here [queries | keys | values]. */
enum {
    ROWS_SAME,    /* as here */
    ROWS_KEYS,    /* keys alone */
    ROWS_VALUES,  /* values alone */
    ROWS_GROUPED, /* per key-value head: its queries, its key, its value (BLOOM, NeoX, Falcon) */
    /* queries or keys alone, the two of a rotated pair next to each other (Llama in GGUF) */
    ROWS_PAIRED_QUERIES,
    ROWS_PAIRED_KEYS,
};

/* Row 2i + s of a head is here row i of its half s. */
static int64_t unpaired(int64_t width, int64_t r) {
    const int64_t at = r % width;
    return r - at + at % 2 * (width / 2) + at / 2;
}

static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    shape s = shape_of(mixer);
    int64_t keys = s.heads * s.key_width, values = keys + s.groups * s.key_width;
    switch (layout) {
    case ROWS_KEYS:
        return keys + r;
    case ROWS_VALUES:
        return values + r;
    case ROWS_GROUPED: {
        int64_t queries = s.heads / s.groups * s.key_width;
        int64_t size = queries + s.key_width + s.value_width, group = r / size, at = r % size;
        if (at < queries) return group * queries + at;
        if (at < queries + s.key_width) return keys + group * s.key_width + at - queries;
        return values + group * s.value_width + at - queries - s.key_width;
    }
    case ROWS_PAIRED_QUERIES:
        return r < keys ? unpaired(s.key_width, r) : -1;
    case ROWS_PAIRED_KEYS:
        return keys + unpaired(s.key_width, r);
    default:
        return r;
    }
}

static const ls_alias aliases[] = {
    LS_ALIAS_LAYER("q_proj", "qkv", ROWS_SAME),
    LS_ALIAS_LAYER("k_proj", "qkv", ROWS_KEYS),
    LS_ALIAS_LAYER("v_proj", "qkv", ROWS_VALUES),
    LS_ALIAS_LAYER("paired.q_proj", "qkv", ROWS_PAIRED_QUERIES),
    LS_ALIAS_LAYER("paired.k_proj", "qkv", ROWS_PAIRED_KEYS),
    LS_ALIAS_LAYER("out_proj", "out", ROWS_SAME),
    LS_ALIAS_LAYER("o_proj", "out", ROWS_SAME),
    LS_ALIAS_LAYER("q", "qkv", ROWS_SAME),
    LS_ALIAS_LAYER("k", "qkv", ROWS_KEYS),
    LS_ALIAS_LAYER("v", "qkv", ROWS_VALUES),
    LS_ALIAS_LAYER("o", "out", ROWS_SAME),
    LS_ALIAS_LAYER("query_key_value", "qkv", ROWS_GROUPED),
    LS_ALIAS_LAYER("dense", "out", ROWS_SAME),
    LS_ALIAS_LAYER("inner_attn_ln", "inner_norm", ROWS_SAME),
    LS_ALIAS_LAYER("q_layernorm", "q_norm", ROWS_SAME),
    LS_ALIAS_LAYER("k_layernorm", "k_norm", ROWS_SAME),
    LS_ALIAS_LAYER("Wqkv", "qkv", ROWS_SAME),
    LS_ALIAS_LAYER("qkv_proj", "qkv", ROWS_SAME),
    LS_ALIAS_LAYER("to_q", "qkv", ROWS_SAME),
    LS_ALIAS_LAYER("to_kv", "qkv", ROWS_KEYS),
    LS_ALIAS_LAYER("to_out", "out", ROWS_SAME),
    {"c_attn.weight", "qkv.weight", ROWS_SAME | LS_ALIAS_TRANSPOSED},
    {"c_attn.bias", "qkv.bias", ROWS_SAME},
    {"c_proj.weight", "out.weight", ROWS_SAME | LS_ALIAS_TRANSPOSED},
    {"c_proj.bias", "out.bias", ROWS_SAME},
    LS_ALIAS_LAYER("query", "qkv", ROWS_SAME),
    LS_ALIAS_LAYER("key", "qkv", ROWS_KEYS),
    LS_ALIAS_LAYER("value", "qkv", ROWS_VALUES),
    {"clex.proj_func.ode_up_proj", "/position.clex.up", ROWS_SAME},
    {"clex.proj_func.ode_down_proj", "/position.clex.down", ROWS_SAME},
    {"relative_attention_bias.weight", "/position.bias", ROWS_SAME},
    {"relative_attention_bias.weight", "position_bias", ROWS_SAME},
    {"qkv_net.weight", "qkv.weight", ROWS_SAME},
    {"o_net.weight", "out.weight", ROWS_SAME},
    {"r_net.weight", "relative.weight", ROWS_SAME},
    {"r_w_bias", "/position.content_bias", ROWS_SAME},
    {"r_r_bias", "/position.distance_bias", ROWS_SAME},
    {0},
};

/* ---- tables of public files ---- */

/* What the position method and its extensions make of the rotation for a text of T tokens. */
static ls_status rotary_of(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, ls_attend *out) {
    const attention_options *o = mixer->options;
    ls_position room;
    const ls_position *position = position_of(mixer, &room);
    const shape s = shape_of(mixer);
    ls_parameters *store = NULL;
    ls_program *p = NULL;
    ls_status status;
    *out =
        ls_attend_start(mixer->width, s.heads, s.groups, s.key_width, s.value_width, mixer->causal);
    if (position == NULL || (position->type->traits & LS_POSITION_ROTARY) == 0) return LS_OK;
    out->trained_length = position->trained_length;
    out->planned_length = T;
    out->base = o->rope_base;
    LS_TRY_GOTO(ls_parameters_new(ctx, LS_F64, &store));
    LS_TRY_GOTO(ls_program_new(ctx, &(ls_program_options){.type = LS_F64, .batch = 1, .length = T},
                               store, &p));
    position->type->attend(p, position->options, out);
    status = ls_failed(p) ? ctx->error.code : ls_attend_extend(ctx, position, out);
    if (status == LS_OK && out->rotary.dynamic != NULL) {
        const ls_rotary trained = out->rotary;
        trained.dynamic(&trained, T, out->rotary.frequency, &out->rotary.factor);
    }
fail:
    ls_program_free(p);
    ls_parameters_free(store);
    return status;
}

static ls_status copy_values(ls_ctx *ctx, const double *values, int64_t count, double **out,
                             int64_t *counted) {
    *counted = count;
    *out = ls_new(ctx, (size_t)ls_max(count, 1), sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < count; i++) (*out)[i] = values[i];
    return LS_OK;
}

static ls_status frequencies(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                             int64_t *count) {
    ls_attend attend;
    LS_TRY(rotary_of(ctx, mixer, T, &attend));
    return copy_values(ctx, attend.rotary.frequency, attend.rotates ? attend.rotary.pairs : 0, out,
                       count);
}

static ls_status temperature(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                             int64_t *count) {
    ls_attend attend;
    LS_TRY(rotary_of(ctx, mixer, T, &attend));
    return copy_values(ctx, &attend.rotary.factor, attend.rotates, out, count);
}

/* The table that `apply position=NAME` gives. */
static ls_status position_table(ls_ctx *ctx, const ls_mixer *mixer, const char *name, double **out,
                                int64_t *count) {
    const ls_position *position = mixer->position;
    const shape s = shape_of(mixer);
    const ls_table_request request = {
        .width = s.heads * s.key_width, .heads = s.heads, .length = 1, .causal = mixer->causal};
    int64_t rows, columns;
    if (position == NULL || strcmp(position->type->name, name) != 0)
        return copy_values(ctx, NULL, 0, out, count);
    LS_TRY(position->type->table(ctx, position->options, &request, out, &rows, &columns));
    *count = rows * columns;
    return LS_OK;
}

static ls_status slopes(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                        int64_t *count) {
    (void)T;
    return position_table(ctx, mixer, "alibi", out, count);
}

static ls_status fading(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                        int64_t *count) {
    (void)T;
    return position_table(ctx, mixer, "xpos", out, count);
}

static const ls_buffer buffers[] = {
    {"w.inv_freq", frequencies},
    {"w.rotary_emb.inv_freq", frequencies},
    {"w.mscale", temperature},
    {"w.slopes", slopes},
    {"w.scale", fading},
    {"w.xpos.scale", fading},
    {"out.probs", NULL},
    /* the same layer at test time; a gradient of public code that is not its output's */
    {"out.full", NULL},
    {"out.official_grad_x", NULL},
    /* which rows are landmarks, and what they leave of the softmax */
    {"in.is_mem", NULL},
    {"out.weights", NULL},
    {0},
};

static ls_value_rows value_rows(const ls_mixer *mixer) {
    const attention_options *o = mixer->options;
    const shape s = shape_of(mixer);
    return (ls_value_rows){.in = "qkv.weight",
                           .out = "out.weight",
                           .first = (s.heads + s.groups) * s.key_width,
                           .groups = s.groups,
                           .width = o->inner_norm == 0 ? s.value_width : 0};
}

const ls_mixer_type ls_mixer_attention = {
    .name = "attention",
    .summary = "softmax attention over all keys, a window, or what a position extension leaves",
    .paper = "arXiv 1706.03762",
    .options = LS_OPTIONS(options, attention_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_BIDIRECTIONAL | LS_MIXER_STREAMING | LS_MIXER_POSITIONS |
              LS_MIXER_PLACES,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
    .row = row,
    .value_rows = value_rows,
};
