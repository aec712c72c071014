/* Self-Extend (arXiv 2401.01325): distances below the window W are exact; beyond it positions are
 * grouped, query floor(n / G) + W - W / G against key floor(m / G), so that the two agree at W. */
#include "position/position.h"

typedef struct self_extend_options {
    int64_t group, window;
    double scale_base;
} self_extend_options;

#define FIELD(name) self_extend_options, name
static const ls_option options[] = {
    LS_INT("group", FIELD(group), "4", 1, 1e9, "Far positions that share one place (G)."),
    LS_INT("window", FIELD(window), "0", 0, 1e15,
           "Distance below which positions are exact (W); 0: a quarter of trained_length."),
    LS_REAL("scale_base", FIELD(scale_base), "0", 0, 1e15,
            "Queries at n are times max(1, ln(n + 1) / ln(scale_base)); 0: they are not."),
};

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const self_extend_options *o = chosen;
    int64_t window = o->window;
    if (window == 0) {
        LS_TRY(ls_attend_length(ctx, "self_extend", attend, 0, &window));
        window = ls_max(window / 4, 1);
    }
    if (o->scale_base > 0 && !(o->scale_base > 1))
        return LS_FAIL(ctx, LS_EUSE, "self_extend: scale_base=%g is not above 1", o->scale_base);
    attend->growth.length = o->scale_base;
    if (o->group == 1) return LS_OK; /* every place is its own group */
    ls_key_set *far;
    LS_TRY(ls_attend_cut(ctx, "self_extend", attend, window, &far));
    double group = (double)o->group, exact = (double)window;
    far->query_at = (ls_position_map){LS_MAP_GROUP, group, exact - exact / group};
    far->key_at = (ls_position_map){LS_MAP_GROUP, group, 0};
    return LS_OK;
}

const ls_extension_type ls_extension_self_extend = {
    .name = "self_extend",
    .summary = "exact near positions, grouped far ones",
    .paper = "arXiv 2401.01325",
    .options = LS_OPTIONS(options, self_extend_options),
    .causal = true,
    .extend = extend,
};
