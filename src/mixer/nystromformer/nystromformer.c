/* Nystromformer (arXiv 2102.03902): softmax attention through a few landmarks, the means of pieces
 * of the text, and a convolution beside it. See nystromformer.md. */
#include <math.h>

#include "mixer/heads.h"

typedef struct nystromformer_options {
    ls_heads heads;
    int64_t landmarks, iterations, conv;
    int start, padding;
} nystromformer_options;

enum { START_EXACT, START_ORIGINAL };
enum { PADDING_LEFT_OUT, PADDING_ZEROS, PADDING_KEPT };

#define FIELD(name) nystromformer_options, name
static const ls_option options[] = {
    LS_HEADS_OPTIONS(nystromformer_options),
    LS_INT("landmarks", FIELD(landmarks), "64", 1, 1 << 16,
           "Segments of a text whose means are its landmarks; a text of no more tokens gets "
           "softmax attention."),
    LS_INT("iterations", FIELD(iterations), "6", 0, 100,
           "Iterations towards the pseudo-inverse; more of them are not always better."),
    LS_CHOICE("start", FIELD(start), "exact", "exact|original",
              "Start of the iterations: each head for itself, or as published, with one factor "
              "for all heads and all sequences of a batch."),
    LS_INT("conv", FIELD(conv), "33", 0, 4095,
           "Taps (odd) of each head's convolution over values, which is added; 0: none."),
    LS_CHOICE("padding", FIELD(padding), "left-out", "left-out|zeros|kept",
              "Rows that are padding: left out; as the authors have it, zeros in the means; as "
              "the transformers library has it, rows like others that landmarks do not see."),
};

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const nystromformer_options *o = mixer->options;
    if (o->conv > 0 && o->conv % 2 == 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "nystromformer: conv must be odd, not %lld, to look both ways alike",
                       (long long)o->conv);
    return ls_heads_check(ctx, mixer, &o->heads);
}

static ls_tensor *attend(ls_program *p, ls_tensor *q, ls_tensor *k, ls_tensor *v, ls_tensor *valid,
                         double scale) {
    ls_key_set segment = ls_key_set_all(q, k, v);
    segment.valid = valid;
    return ls_attention(p, 1, &segment, (ls_attention_options){.scale = scale}, NULL);
}

/* softmax(Q K~^T) W with W = Z softmax(Q~ K^T) V. A text that is short without its padding has all
 * its rows for landmarks, and W is V. */
static ls_tensor *through_landmarks(ls_program *p, const ls_mixer *mixer, ls_tensor *q,
                                    ls_tensor *k, ls_tensor *v, double scale) {
    const nystromformer_options *o = mixer->options;
    const ls_landmark_options inverse = {
        .scale = scale, .iterations = o->iterations, .joint = o->start == START_ORIGINAL};
    ls_tensor *counted = o->padding == PADDING_LEFT_OUT ? mixer->valid : NULL;
    ls_tensor *used = NULL, *few = NULL;
    ls_tensor *q_means = ls_segment_means(p, q, o->landmarks, counted, NULL, NULL);
    ls_tensor *k_means = ls_segment_means(
        p, k, o->landmarks, counted, counted == NULL ? NULL : &used, counted == NULL ? NULL : &few);
    ls_tensor *seen = attend(p, q_means, k, v, mixer->valid, scale);
    ls_tensor *values = ls_landmark_inverse(p, q_means, k_means, seen, inverse);
    if (counted != NULL)
        values = ls_pick(p, few, ls_segment_means(p, v, o->landmarks, counted, NULL, NULL), values);
    return attend(p, q, k_means, values, used, scale);
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    const nystromformer_options *o = mixer->options;
    if (x == NULL) return NULL;
    const double scale = 1 / sqrt((double)ls_heads_width(mixer, &o->heads));
    ls_tensor *qkv[3], *y;
    if (o->padding == PADDING_KEPT)
        ls_heads_project(p, mixer, &o->heads, x, NULL, qkv);
    else
        ls_heads_split(p, mixer, &o->heads, x, qkv);
    if (x->dim[1] <= o->landmarks)
        y = attend(p, qkv[0], qkv[1], qkv[2], mixer->valid, scale);
    else
        y = through_landmarks(p, mixer, qkv[0], qkv[1], qkv[2], scale);
    if (o->conv > 0) {
        const ls_init init = {
            .kind = LS_INIT_UNIFORM, .a = 1 / sqrt((double)o->conv), .full = true};
        ls_tensor *taps = ls_param(p, "conv.weight", LS_DIMS(o->heads.count, o->conv), init);
        y = ls_plus(p, y, ls_head_conv(p, qkv[2], taps));
    }
    return ls_heads_join(p, mixer, &o->heads, y);
}

static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    (void)mixer, (void)T, (void)size;
    return 0;
}

/* Projections, the convolution, scores of and by landmarks, and the pseudo-inverse. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const nystromformer_options *o = mixer->options;
    const double W = (double)ls_heads_width(mixer, &o->heads), H = (double)o->heads.count;
    const double n = (double)T, m = (double)o->landmarks;
    const double always = ls_heads_flops(mixer, &o->heads, T) + 2 * n * (double)o->conv * H * W;
    if (T <= o->landmarks) return always + 4 * n * n * H * W;
    return always + H * (8 * n * m * W + 4 * m * m * W + 8 * m * m * m * (double)o->iterations);
}

static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    const nystromformer_options *o = mixer->options;
    return ls_heads_row(mixer, &o->heads, layout, r);
}

static const ls_alias aliases[] = {
    LS_HEADS_ALIASES("query", "key", "value", "dense"),
    LS_HEADS_ALIASES("W_q", "W_k", "W_v", "ff"),
    {"conv.weight", "conv.weight", LS_ROWS_OUT | LS_ALIAS_DEPTHWISE | LS_ALIAS_COLUMN},
    {0},
};

static const ls_buffer buffers[] = {
    {"out.pinv", NULL},
    {0},
};

const ls_mixer_type ls_mixer_nystromformer = {
    .name = "nystromformer",
    .summary = "softmax attention through landmarks, means of pieces of the text; linear in length",
    .paper = "arXiv 2102.03902",
    .options = LS_OPTIONS(options, nystromformer_options),
    .traits = LS_MIXER_BIDIRECTIONAL,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
    .row = row,
};
