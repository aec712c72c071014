/* Attention sinks (StreamingLLM, arXiv 2309.17453): the first S keys and the last W, at
 * positions inside the cache. Written as a mask: query n stands at i = min(n, S + W - 1); a
 * recent key keeps the distance n - m, a sink outside the window has i - m. One pass and a
 * stream are then the same. */
#include "position/position.h"

typedef struct sinks_options {
    int64_t sinks, window;
} sinks_options;

#define FIELD(name) sinks_options, name
static const ls_option options[] = {
    LS_INT("sinks", FIELD(sinks), "4", 0, 1 << 20, "First keys that stay visible."),
    LS_INT("window", FIELD(window), "0", 0, 1e15,
           "Last keys that are visible; 0: trained_length less the sinks."),
};

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const sinks_options *o = chosen;
    int64_t window = o->window;
    if (window == 0) {
        LS_TRY(ls_attend_length(ctx, "sinks", attend, 0, &window));
        window -= o->sinks;
    }
    if (window < 1)
        return LS_FAIL(ctx, LS_EUSE, "sinks: %lld sinks leave no window", (long long)o->sinks);
    ls_key_set *far;
    LS_TRY(ls_attend_cut(ctx, "sinks", attend, window, &far));
    far->key_end = o->sinks;
    far->query_at = (ls_position_map){LS_MAP_CLAMP, (double)(o->sinks + window - 1), 0};
    if (o->sinks == 0) attend->sets = 1;
    return LS_OK;
}

const ls_extension_type ls_extension_sinks = {
    .name = "sinks",
    .summary = "the first few keys and a sliding window, at cache positions",
    .paper = "arXiv 2309.17453",
    .options = LS_OPTIONS(options, sinks_options),
    .causal = true,
    .extend = extend,
};
