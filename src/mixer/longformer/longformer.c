/* Longformer (arXiv 2004.05150): a sliding window, and tokens that are global: every row sees them
 * and they see every row, through projections of their own. Causal models have the window alone,
 * with a dilation for each head where wished. See longformer.md. */
#include <string.h>

#include "mixer/mixer.h"

typedef struct longformer_options {
    int64_t heads, globals;
    ls_ints window, dilation, global_at;
    bool bias, global_weights;
} longformer_options;

#define FIELD(name) longformer_options, name
static const ls_option options[] = {
    LS_INT("heads", FIELD(heads), "4", 1, LS_OPTION_LIST_MAX, "Heads."),
    LS_INTS("window", FIELD(window), "512", 1, 1e15,
            "Keys that a query sees besides itself, half of them on each side (causal: all "
            "behind it), in steps of the dilation: one number, or one for each layer."),
    LS_INTS("dilation", FIELD(dilation), "", 1, 1e9,
            "Step between the keys of the window: one for all heads, one for each, or one for "
            "each head of each layer; not together with global tokens."),
    LS_INT("globals", FIELD(globals), "0", 0, 1 << 20,
           "First tokens that are global (models that look both ways)."),
    LS_INTS("global_at", FIELD(global_at), "", 0, 1e9,
            "Positions of global tokens, rising, instead of the first ones; with positions that "
            "enter at the embedding."),
    LS_BOOL("global_weights", FIELD(global_weights), "false",
            "Whether there are projections for global tokens where none is global, as public "
            "checkpoints have them.",
            .needs = "model.causal=false"),
    LS_BOOL("bias", FIELD(bias), "true", "Biases on the projections."),
};

/* ---- what is global ---- */

static bool has_globals(const longformer_options *o) {
    return o->globals > 0 || o->global_at.count > 0;
}

/* Global tokens among the first T, and the position of one of them. */
static int64_t global_count(const longformer_options *o, int64_t T) {
    if (o->global_at.count == 0) return ls_min(o->globals, T);
    int64_t count = 0;
    while (count < o->global_at.count && o->global_at.at[count] < T) count++;
    return count;
}

static int64_t global_position(const longformer_options *o, int64_t i) {
    return o->global_at.count == 0 ? i : o->global_at.at[i];
}

/* ---- options ---- */

static int64_t window_of(const ls_mixer *mixer) {
    const ls_ints *window = &((const longformer_options *)mixer->options)->window;
    return window->at[window->count > 1 ? mixer->layer : 0];
}

static ls_status check_globals(ls_ctx *ctx, const ls_mixer *mixer) {
    const longformer_options *o = mixer->options;
    if (!has_globals(o)) return LS_OK;
    if (mixer->causal)
        return LS_FAIL(ctx, LS_EUSE,
                       "longformer: global tokens see every row, which a causal model must not: "
                       "leave globals and global_at out");
    if (o->dilation.count > 0)
        return LS_FAIL(ctx, LS_EUSE, "longformer: dilation and global tokens do not go together");
    if (o->globals > 0 && o->global_at.count > 0)
        return LS_FAIL(ctx, LS_EUSE, "longformer: give globals or global_at, not both");
    for (int64_t i = 1; i < o->global_at.count; i++)
        if (o->global_at.at[i] <= o->global_at.at[i - 1])
            return LS_FAIL(ctx, LS_EUSE, "longformer: the positions in global_at must rise");
    if (o->global_at.count > 0 && mixer->position != NULL && mixer->position->type->attend != NULL)
        return LS_FAIL(ctx, LS_EUSE,
                       "longformer: global_at goes with positions that enter at the embedding, "
                       "and %s does not (globals may be used)",
                       mixer->position->type->name);
    return LS_OK;
}

/* ---- what rows see ---- */

/* The window, and the first tokens where those are global; `dilation` has room for every head. */
static ls_attend local_rows(const ls_mixer *mixer, int64_t *dilation) {
    const longformer_options *o = mixer->options;
    const int64_t K = mixer->width / o->heads, window = window_of(mixer), steps = o->dilation.count;
    ls_attend attend = ls_attend_start(mixer->width, o->heads, o->heads, K, K, mixer->causal);
    attend.valid = mixer->valid;
    attend.set[0].hi = mixer->causal ? window : window / 2;
    if (!mixer->causal) attend.set[0].lo = -window / 2;
    if (o->globals > 0) {
        attend.sets = 2;
        attend.set[1] = attend.set[0];
        attend.set[0].key_first = attend.set[1].key_end = o->globals;
        attend.set[1].lo = -LS_FAR;
        attend.set[1].hi = LS_FAR;
    }
    if (steps > 0) attend.dilation = dilation;
    for (int64_t h = 0; steps > 0 && h < o->heads; h++) {
        int64_t at = steps == 1 ? 0 : steps == o->heads ? h : mixer->layer * o->heads + h;
        dilation[h] = o->dilation.at[at];
    }
    return attend;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const longformer_options *o = mixer->options;
    if (mixer->width % o->heads != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "longformer: %lld heads (mixer.heads) do not divide a width of %lld "
                       "(model.width)",
                       (long long)o->heads, (long long)mixer->width);
    if (o->window.count < 1 || (o->window.count > 1 && mixer->layer >= o->window.count))
        return LS_FAIL(ctx, LS_EUSE,
                       "longformer: window has %lld numbers; give one, or one for each layer",
                       (long long)o->window.count);
    if (!mixer->causal && window_of(mixer) % 2 != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "longformer: a window of %lld has no two equal sides: make it even",
                       (long long)window_of(mixer));
    int64_t steps = o->dilation.count;
    if (steps > 1 && steps != o->heads &&
        (steps % o->heads != 0 || steps < (mixer->layer + 1) * o->heads))
        return LS_FAIL(ctx, LS_EUSE,
                       "longformer: dilation has %lld numbers; give one, one for each of %lld "
                       "heads, or that for each layer",
                       (long long)steps, (long long)o->heads);
    LS_TRY(check_globals(ctx, mixer));
    LS_TRY(ls_position_fits(ctx, mixer->position, mixer->width, o->heads, mixer->causal));
    /* extensions that cut the keys themselves refuse a window */
    int64_t dilation[LS_OPTION_LIST_MAX];
    ls_attend attend = local_rows(mixer, dilation);
    return ls_attend_extend(ctx, mixer->position, &attend);
}

/* The window without the global tokens, and these gathered: one softmax over both. */
static ls_tensor *attend_scattered(ls_program *p, const ls_mixer *mixer, const int64_t *at,
                                   int64_t count, ls_tensor *q, ls_tensor *k, ls_tensor *v) {
    int64_t unused[LS_OPTION_LIST_MAX], B = q->dim[0], T = q->dim[1];
    const ls_attend attend = local_rows(mixer, unused);
    ls_tensor *valid = mixer->valid, *none = ls_constant(p, LS_U8, LS_DIMS(B, count), NULL);
    if (valid == NULL) {
        double *ones = ls_new(ls_program_ctx(p), (size_t)(B * T), sizeof *ones);
        if (ones == NULL) {
            ls_refuse(p, LS_ENOMEM, "longformer: no memory for %lld rows", (long long)T);
            return NULL;
        }
        for (int64_t i = 0; i < B * T; i++) ones[i] = 1;
        valid = ls_constant(p, LS_U8, LS_DIMS(B, T), ones);
        ls_free(ls_program_ctx(p), ones);
    }
    ls_key_set segment[2] = {ls_key_set_all(q, k, v), ls_key_set_all(q, NULL, NULL)};
    segment[0].lo = attend.set[0].lo;
    segment[0].hi = attend.set[0].hi;
    segment[0].valid = ls_put_rows(p, valid, none, count, at);
    segment[1].k = ls_take_rows(p, k, count, at);
    segment[1].v = ls_take_rows(p, v, count, at);
    if (mixer->valid != NULL) segment[1].valid = ls_take_rows(p, mixer->valid, count, at);
    return ls_attention(p, 2, segment, (ls_attention_options){.scale = attend.scale}, NULL);
}

/* ---- recording ---- */

static ls_tensor *project(ls_program *p, const longformer_options *o, const char *name,
                          ls_tensor *x, int64_t rows, int64_t width) {
    ls_scope(p, "%s", name);
    ls_tensor *weight = ls_param(p, "weight", LS_DIMS(rows, width), ls_init_normal(0.02));
    ls_tensor *bias = o->bias ? ls_param(p, "bias", LS_DIMS(rows), ls_init_bias()) : NULL;
    ls_scope_end(p);
    return ls_linear(p, x, weight, bias);
}

/* `parts` projections of x one below the other, as heads. */
static void project_heads(ls_program *p, const ls_mixer *mixer, const char *name, ls_tensor *x,
                          int parts, ls_tensor **out) {
    const longformer_options *o = mixer->options;
    const int64_t D = mixer->width, widths[3] = {D, D, D};
    ls_split(p, project(p, o, name, x, parts * D, D), parts, widths, out);
    for (int i = 0; i < parts && out[i] != NULL; i++)
        out[i] =
            ls_reshape(p, out[i], LS_DIMS(out[i]->dim[0], out[i]->dim[1], o->heads, D / o->heads));
}

/* The rows of global tokens, from their own projections; all rows keep what they have elsewhere. */
static ls_tensor *replace_globals(ls_program *p, const ls_mixer *mixer, const int64_t *at,
                                  int64_t count, ls_tensor *x, ls_tensor *mixed) {
    const longformer_options *o = mixer->options;
    const int64_t K = mixer->width / o->heads;
    ls_tensor *q[1] = {0}, *kv[2] = {0};
    /* parameters do not depend on the length: they are declared where no token is global yet */
    project_heads(p, mixer, "global_q", count > 0 ? ls_take_rows(p, x, count, at) : x, 1, q);
    project_heads(p, mixer, "global_kv", x, 2, kv);
    if (count == 0) return mixed;
    ls_attend attend = ls_attend_start(mixer->width, o->heads, o->heads, K, K, false);
    attend.valid = mixer->valid;
    ls_scope(p, "global");
    ls_tensor *rows = ls_attend_record(p, mixer->position, attend, q[0], kv[0], kv[1]);
    ls_scope_end(p);
    return ls_put_rows(p, mixed, rows, count, at);
}

static ls_tensor *mix(ls_program *p, const ls_mixer *mixer, const int64_t *at, int64_t count,
                      ls_tensor *x) {
    const longformer_options *o = mixer->options;
    int64_t dilation[LS_OPTION_LIST_MAX];
    ls_tensor *qkv[3] = {0}, *mixed;
    project_heads(p, mixer, "qkv", x, 3, qkv);
    if (ls_failed(p)) return NULL;
    if (count > 0 && o->global_at.count > 0)
        mixed = attend_scattered(p, mixer, at, count, qkv[0], qkv[1], qkv[2]);
    else
        mixed = ls_attend_record(p, mixer->position, local_rows(mixer, dilation), qkv[0], qkv[1],
                                 qkv[2]);
    const bool weights = has_globals(o) || o->global_weights;
    return weights ? replace_globals(p, mixer, at, count, x, mixed) : mixed;
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    if (x == NULL) return NULL;
    const longformer_options *o = mixer->options;
    const int64_t B = x->dim[0], T = x->dim[1], count = global_count(o, T);
    ls_ctx *ctx = ls_program_ctx(p);
    ls_status status = check(ctx, mixer);
    int64_t *at = NULL;
    if (status == LS_OK) {
        at = ls_new(ctx, (size_t)count + 1, sizeof *at);
        status = at == NULL ? LS_ENOMEM : LS_OK;
    }
    if (status != LS_OK) {
        ls_refuse(p, status, "%s", ctx->error.message);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) at[i] = global_position(o, i);
    ls_tensor *mixed = ls_reshape(p, mix(p, mixer, at, count, x), LS_DIMS(B, T, mixer->width));
    ls_free(ctx, at);
    return project(p, o, "out", mixed, mixer->width, mixer->width);
}

/* ---- cost ---- */

static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    int64_t dilation[LS_OPTION_LIST_MAX];
    ls_attend attend = local_rows(mixer, dilation);
    return ls_attend_state_bytes(&attend, T, size);
}

/* Projections, the pairs of local rows and those of global ones. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const longformer_options *o = mixer->options;
    const double D = (double)mixer->width, count = (double)global_count(o, T);
    int64_t dilation[LS_OPTION_LIST_MAX];
    ls_attend attend = local_rows(mixer, dilation);
    ls_ctx ctx = ls_ctx_default();
    attend.planned_length = T;
    if (ls_attend_extend(&ctx, mixer->position, &attend) != LS_OK) return 0;
    double pairs = ls_attend_pairs(&attend, T);
    if (o->global_at.count > 0) { /* seen once by each row, in the window or not */
        const double H = (double)o->heads;
        const int64_t side = window_of(mixer) / 2;
        pairs += H * count * (double)T;
        for (int64_t i = 0; i < (int64_t)count; i++) {
            int64_t m = global_position(o, i);
            pairs -= H * (double)(ls_min(T - 1, m + side) - ls_max(0, m - side) + 1);
        }
    }
    double projected = 4 * (double)T + (has_globals(o) ? 2 * (double)T + count : 0);
    pairs += (double)o->heads * count * (double)T;
    return 2 * projected * D * D + 4 * D / (double)o->heads * pairs;
}

/* ---- names ---- */

enum { ROWS_FIRST, ROWS_SECOND, ROWS_THIRD };

static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    return layout * mixer->width + r;
}

static const ls_alias aliases[] = {
    LS_ALIAS_LAYER("query", "qkv", ROWS_FIRST),
    LS_ALIAS_LAYER("key", "qkv", ROWS_SECOND),
    LS_ALIAS_LAYER("value", "qkv", ROWS_THIRD),
    LS_ALIAS_LAYER("query_global", "global_q", ROWS_FIRST),
    LS_ALIAS_LAYER("key_global", "global_kv", ROWS_FIRST),
    LS_ALIAS_LAYER("value_global", "global_kv", ROWS_SECOND),
    LS_ALIAS_LAYER("dense", "out", ROWS_FIRST),
    LS_ALIAS_LAYER("q", "qkv", ROWS_FIRST),
    LS_ALIAS_LAYER("k", "qkv", ROWS_SECOND),
    LS_ALIAS_LAYER("v", "qkv", ROWS_THIRD),
    LS_ALIAS_LAYER("o", "out", ROWS_FIRST),
    {0},
};

/* With weights for them any token may be global. */
static const char *const at_test[] = {"globals", "global_at", NULL};

const ls_mixer_type ls_mixer_longformer = {
    .name = "longformer",
    .summary = "a sliding window with dilation by head, and global tokens with projections of "
               "their own",
    .paper = "arXiv 2004.05150",
    .options = LS_OPTIONS(options, longformer_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_BIDIRECTIONAL | LS_MIXER_STREAMING | LS_MIXER_POSITIONS,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .row = row,
    .at_test = at_test,
};
