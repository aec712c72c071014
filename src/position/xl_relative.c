/* Transformer-XL's relative positions (arXiv 1901.02860 section 3.3):
 *     score = [(q + u) . k_m + (q + v) . W_R R_(n-m)] / sqrt(d),
 * R the sinusoid of the distance ([sin|cos] layout), W_R of each layer, u and v of all layers. */
#include "position/position.h"

typedef struct xl_options {
    int64_t clamp_len;
    bool untied;
} xl_options;

#define FIELD(name) xl_options, name
static const ls_option options[] = {
    LS_INT("clamp_len", FIELD(clamp_len), "0", 0, 1 << 24,
           "Largest distance that is told apart; 0: no limit."),
    LS_BOOL("untied", FIELD(untied), "false", "Whether each layer has its own u and v."),
};

static ls_status check(ls_ctx *ctx, const void *chosen, int64_t width, int64_t heads) {
    (void)chosen, (void)heads;
    if (width % 2 == 0) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "xl_relative needs an even width, not %lld", (long long)width);
}

void ls_attend_xl(ls_program *p, ls_attend *attend, int64_t distances, bool untied) {
    int64_t heads = attend->heads, key_width = attend->key_width;
    ls_init init = {.kind = LS_INIT_NORMAL, .a = 0.02};
    ls_init bias_init = {.kind = LS_INIT_NORMAL, .a = 0.02, .no_decay = true};
    ls_tensor *(*bias)(ls_program *, const char *, int, const int64_t *, ls_init) =
        untied ? ls_param : ls_shared_param;
    attend->content_bias = bias(p, "content_bias", LS_DIMS(heads, key_width), bias_init);
    attend->distance_bias = bias(p, "distance_bias", LS_DIMS(heads, key_width), bias_init);
    ls_tensor *weight =
        ls_param(p, "relative.weight", LS_DIMS(heads * key_width, attend->width), init);
    ls_tensor *rows = ls_sinusoid(p, LS_SINUSOID_XL, distances, attend->width, true);
    attend->relative =
        ls_reshape(p, ls_linear(p, rows, weight, NULL), LS_DIMS(distances, heads, key_width));
}

static void attend_xl(ls_program *p, const void *chosen, ls_attend *attend) {
    const xl_options *o = chosen;
    int64_t distances = attend->planned_length;
    if (o->clamp_len > 0) distances = ls_min(distances, o->clamp_len + 1);
    ls_attend_xl(p, attend, distances, o->untied);
}

const ls_position_type ls_position_xl_relative = {
    .name = "xl_relative",
    .summary = "scores against a learned projection of the sinusoid of the distance",
    .paper = "arXiv 1901.02860",
    .options = LS_OPTIONS(options, xl_options),
    .traits = LS_POSITION_RELATIVE | LS_POSITION_CAUSAL | LS_POSITION_LEARNED,
    .check = check,
    .attend = attend_xl,
};
