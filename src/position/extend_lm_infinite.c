/* LM-Infinite (arXiv 2308.16137): a window of M distances, and the first G keys, which beyond the
 * window all seem to stand at one distance. */
#include "position/position.h"

typedef struct lm_infinite_options {
    int64_t first, window, limit;
} lm_infinite_options;

#define FIELD(name) lm_infinite_options, name
static const ls_option options[] = {
    LS_INT("first", FIELD(first), "10", 1, 1 << 20, "First keys that stay visible (G)."),
    LS_INT("window", FIELD(window), "0", 0, 1e15,
           "Distance below which keys are seen as they are (M); 0: trained_length."),
    LS_INT("limit", FIELD(limit), "0", 0, 1e15,
           "Distance at which far first keys seem to be, at most the window; 0: the window."),
};

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const lm_infinite_options *o = chosen;
    int64_t window, limit;
    LS_TRY(ls_attend_length(ctx, "lm_infinite", attend, o->window, &window));
    limit = o->limit > 0 ? o->limit : window;
    /* Beyond the window the published min(limit, length - 1) would depend on what
     * is yet to come. */
    if (limit > window)
        return LS_FAIL(ctx, LS_EUSE, "lm_infinite: limit=%lld exceeds the window of %lld",
                       (long long)limit, (long long)window);
    ls_key_set *far;
    LS_TRY(ls_attend_cut(ctx, "lm_infinite", attend, window, &far));
    far->key_end = o->first;
    far->query_at = (ls_position_map){LS_MAP_CONSTANT, (double)limit, 0};
    far->key_at = (ls_position_map){LS_MAP_CONSTANT, 0, 0};
    return LS_OK;
}

const ls_extension_type ls_extension_lm_infinite = {
    .name = "lm_infinite",
    .summary = "the first keys at one bounded distance, and a sliding window",
    .paper = "arXiv 2308.16137",
    .options = LS_OPTIONS(options, lm_infinite_options),
    .causal = true,
    .extend = extend,
};
