/* A sliding window: each query sees the last W keys, itself included (m > n - W); on both sides
 * where the model is not causal. */
#include "position/position.h"

typedef struct window_options {
    int64_t window;
} window_options;

#define FIELD(name) window_options, name
static const ls_option options[] = {
    LS_INT("window", FIELD(window), "0", 0, 1e15,
           "Keys that a query sees, itself included; 0: trained_length."),
};

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    int64_t window;
    LS_TRY(
        ls_attend_length(ctx, "window", attend, ((const window_options *)chosen)->window, &window));
    if (attend->sets != 1)
        return LS_FAIL(ctx, LS_EUSE, "window takes no other extension that cuts the keys");
    ls_key_set *set = &attend->set[0];
    set->hi = ls_min(set->hi, window - 1);
    set->lo = ls_max(set->lo, 1 - window);
    return LS_OK;
}

const ls_extension_type ls_extension_window = {
    .name = "window",
    .summary = "each query sees the last W keys",
    .paper = "arXiv 2004.05150",
    .options = LS_OPTIONS(options, window_options),
    .extend = extend,
};
