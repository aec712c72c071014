/* ReRoPE and Leaky ReRoPE (bojone/rerope): distances below the window w are exact; beyond it every
 * key seems to be at w, or, leaky, at w + (n - m - w) / k. Queries grow with the logarithm of their
 * position beyond the trained length. */
#include "position/position.h"

typedef struct rerope_options {
    int64_t window;
    double leak;
    bool growth;
} rerope_options;

#define FIELD(name) rerope_options, name
static const ls_option options[] = {
    LS_INT("window", FIELD(window), "0", 0, 1e15,
           "Distance below which positions are exact (w); 0: an eighth of trained_length."),
    LS_REAL("leak", FIELD(leak), "0", 0, 1e15,
            "Leaky ReRoPE: distances beyond the window are divided by this (k), 1 or more; 0: all "
            "of them are the window's."),
    LS_BOOL("growth", FIELD(growth), "true",
            "Queries at n are times max(1, ln(n + 1) / ln(trained_length))."),
};

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const rerope_options *o = chosen;
    int64_t window = o->window, trained;
    if (o->leak > 0 && o->leak < 1)
        return LS_FAIL(ctx, LS_EUSE, "rerope: leak=%g is below 1", o->leak);
    if (window == 0 || o->growth) {
        LS_TRY(ls_attend_length(ctx, "rerope", attend, 0, &trained));
        if (window == 0) window = ls_max(trained / 8, 1);
        if (o->growth && trained < 2)
            return LS_FAIL(ctx, LS_EUSE, "rerope: growth needs a trained_length of 2 or more");
        if (o->growth) attend->growth.length = (double)trained;
    }
    ls_key_set *far;
    LS_TRY(ls_attend_cut(ctx, "rerope", attend, window, &far));
    const double w = (double)window, k = o->leak;
    far->query_at = k > 0 ? (ls_position_map){LS_MAP_SCALE, 1 / k, w - w / k}
                          : (ls_position_map){LS_MAP_CONSTANT, w, 0};
    far->key_at = k > 0 ? (ls_position_map){LS_MAP_SCALE, 1 / k, 0}
                        : (ls_position_map){LS_MAP_CONSTANT, 0, 0};
    return LS_OK;
}

const ls_extension_type ls_extension_rerope = {
    .name = "rerope",
    .summary = "exact near positions, far ones all at the window's edge or slowed down beyond it",
    .paper = "github.com/bojone/rerope",
    .options = LS_OPTIONS(options, rerope_options),
    .needs = LS_POSITION_ROTARY | LS_POSITION_PURE,
    .causal = true,
    .extend = extend,
};
