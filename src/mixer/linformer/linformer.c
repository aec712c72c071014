/* Linformer (arXiv 2006.04768): keys and values of a text are mixed into k rows by learned
 * projections along time, and softmax attention sees those. See linformer.md. */
#include <math.h>

#include "mixer/heads.h"

typedef struct linformer_options {
    ls_heads heads;
    int64_t k, length;
    int sharing;
} linformer_options;

enum { SHARING_NONE, SHARING_HEADWISE, SHARING_KEY_VALUE, SHARING_LAYERWISE, SHARING_PER_HEAD };

#define FIELD(name) linformer_options, name
static const ls_option options[] = {
    LS_HEADS_OPTIONS(linformer_options),
    LS_INT("k", FIELD(k), "128", 1, 1 << 24,
           "Rows that the keys and values of a text are projected to."),
    LS_INT("length", FIELD(length), "512", 1, 1 << 24,
           "Longest text: the projections have a row for each position."),
    LS_CHOICE("sharing", FIELD(sharing), "headwise", "none|headwise|key-value|layerwise|per-head",
              "Projections: one per head, each for keys and for values; one per layer, each for "
              "keys and for values; one per layer; one for all layers; one per head, for keys and "
              "values."),
    LS_INT("kv_heads", FIELD(heads.kv), "0", 0, 4096,
           "Key-value heads, each shared by as many query heads; 0: as many as heads."),
    LS_BOOL("keys_alone", FIELD(heads.keys_alone), "false",
            "Whether values are the keys, projections along time included; goes with "
            "sharing=key-value."),
};

static bool one_projection(const linformer_options *o) {
    return o->sharing == SHARING_KEY_VALUE || o->sharing == SHARING_LAYERWISE ||
           o->sharing == SHARING_PER_HEAD;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const linformer_options *o = mixer->options;
    if (o->heads.keys_alone && !one_projection(o))
        return LS_FAIL(ctx, LS_EUSE,
                       "linformer: keys_alone leaves nothing to project but keys: set "
                       "sharing=key-value or layerwise");
    return ls_heads_check(ctx, mixer, &o->heads);
}

/* E or F, [length,k], of each head where wished. */
static ls_tensor *projection(ls_program *p, const linformer_options *o, const char *name) {
    const ls_init init = {.kind = LS_INIT_UNIFORM, .a = 1 / sqrt((double)o->k)};
    if (o->sharing == SHARING_NONE || o->sharing == SHARING_PER_HEAD)
        return ls_param(p, name, LS_DIMS(ls_heads_kv(&o->heads), o->length, o->k), init);
    return ls_param(p, name, LS_DIMS(o->length, o->k), init);
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    const linformer_options *o = mixer->options;
    if (x == NULL) return NULL;
    if (x->dim[1] > o->length) {
        ls_refuse(p, LS_EUSE,
                  "linformer: a text of %lld tokens is longer than its projections, which are made "
                  "for %lld (set mixer.length before training)",
                  (long long)x->dim[1], (long long)o->length);
        return NULL;
    }
    ls_tensor *qkv[3];
    ls_heads_split(p, mixer, &o->heads, x, qkv);
    ls_tensor *E = projection(p, o, o->sharing == SHARING_LAYERWISE ? "/linformer.E" : "E");
    ls_tensor *F = one_projection(o) ? E : projection(p, o, "F");
    ls_tensor *keys = ls_time_linear(p, qkv[1], E);
    ls_tensor *values = o->heads.keys_alone ? keys : ls_time_linear(p, qkv[2], F);
    const ls_key_set segment = ls_key_set_all(qkv[0], keys, values);
    const double scale = 1 / sqrt((double)ls_heads_width(mixer, &o->heads));
    ls_tensor *y = ls_attention(p, 1, &segment, (ls_attention_options){.scale = scale}, NULL);
    return ls_heads_join(p, mixer, &o->heads, y);
}

static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    (void)mixer, (void)T, (void)size;
    return 0;
}

/* Projections of tokens, of keys and values along time, and scores of k rows. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const linformer_options *o = mixer->options;
    const int64_t W = ls_heads_width(mixer, &o->heads), parts = o->heads.keys_alone ? 1 : 2;
    const int64_t products = 2 * parts * ls_heads_kv(&o->heads) + 4 * o->heads.count;
    return ls_heads_flops(mixer, &o->heads, T) + (double)(products * W) * (double)T * (double)o->k;
}

static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    const linformer_options *o = mixer->options;
    return ls_heads_row(mixer, &o->heads, layout, r);
}

static const ls_alias aliases[] = {
    LS_HEADS_ALIASES("to_q", "to_k", "to_v", "to_out"),
    {"proj_k", "E", LS_ROWS_OUT},
    {"proj_k", "/linformer.E", LS_ROWS_OUT},
    {"proj_v", "F", LS_ROWS_OUT},
    {0},
};

const ls_mixer_type ls_mixer_linformer = {
    .name = "linformer",
    .summary = "softmax attention over k mixtures of a text's keys and values; one longest length",
    .paper = "arXiv 2006.04768",
    .options = LS_OPTIONS(options, linformer_options),
    .traits = LS_MIXER_BIDIRECTIONAL,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .row = row,
};
